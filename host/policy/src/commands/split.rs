//! A shell command, taken apart as far as it takes to know which programs it starts.
//!
//! This is no shell. What it can't follow it says so, and such a command asks.

/// Stands in a word for what is only known when the command runs.
pub(super) const UNKNOWN: char = '\u{fffc}';

/// Bytes of a command that is looked into.
const MAX_BYTES: usize = 64 * 1024;

/// Why it is unclear where shells read it differently.
const DISPUTED: &str = "a quote or bracket stands where shells don't agree on what it means";

/// Why it is unclear where something isn't closed.
const NO_END: &str = "a quote or bracket in it has no end";

/// Commands inside each other.
const MAX_DEPTH: usize = 8;

/// Parts of one command.
const MAX_PARTS: usize = 256;

/// A word, its quotes taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// What is known of it; [`UNKNOWN`] for the rest.
    pub(super) text: String,
    /// Whether it may come to something else: by an expansion, a pattern or braces.
    pub(super) open: bool,
}

/// Words that stand together: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// As it is written. A redirection to a file is a part of its own: `> file`.
    pub(super) text: String,
    /// None for a redirection.
    pub(super) words: Vec<Word>,
}

/// What a text is made of.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) parts: Vec<Part>,
    /// Why more may happen than the parts tell.
    pub(super) unclear: Option<&'static str>,
}

impl Split {
    /// Takes `text` apart into `self`. `depth`: how many commands it stands in.
    pub(super) fn read(&mut self, text: &str, depth: usize) {
        if text.len() > MAX_BYTES {
            return self.unclear("it is longer than 64 KiB");
        }
        if depth > MAX_DEPTH {
            return self.unclear("it holds commands inside commands, more than 8 deep");
        }
        Reader { text, at: 0, depth, begun: 0, words: Vec::new(), word: None, split: self, heredocs: Vec::new() }.run();
    }

    pub(super) fn unclear(&mut self, why: &'static str) {
        self.unclear.get_or_insert(why);
    }

    pub(super) fn push(&mut self, part: Part) {
        if self.parts.len() == MAX_PARTS {
            return self.unclear("it has more than 256 parts");
        }
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }
}

struct Reader<'t, 's> {
    text: &'t str,
    at: usize,
    depth: usize,
    /// Where the part began that is being read.
    begun: usize,
    words: Vec<Word>,
    word: Option<Word>,
    split: &'s mut Split,
    /// Ends of the documents that begin on the next line, and whether something is expanded in them.
    heredocs: Vec<(String, bool)>,
}

impl Reader<'_, '_> {
    fn run(mut self) {
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                '\r' => {
                    // To a shell it is a letter, but in front of a line's end it is nothing that anyone meant.
                    if !self.rest().is_empty() && !self.rest().starts_with('\n') {
                        self.split.unclear("a carriage return stands in the middle of a line of it");
                    }
                    self.end_word();
                }
                '\n' => {
                    self.end_part(self.at - 1);
                    self.skip_heredocs();
                }
                ';' | '(' | ')' => {
                    if c == '(' && self.rest().starts_with('(') {
                        self.split.unclear("it calculates (`((`)");
                    }
                    self.end_part(self.at - 1);
                }
                '|' => {
                    let end = self.at - 1;
                    // `|&` is a pipe too.
                    let _ = self.take('|') || self.take('&');
                    self.end_part(end);
                }
                '&' if self.rest().starts_with('>') => self.end_word(),
                '&' => {
                    let end = self.at - 1;
                    self.take('&');
                    self.end_part(end);
                }
                '#' if self.word.is_none() => {
                    let line = self.rest().find('\n').unwrap_or(self.rest().len());
                    let end = self.at - 1;
                    self.at += line;
                    self.end_part(end);
                }
                '<' | '>' => self.redirection(c),
                c => self.in_word(c),
            }
        }
        self.end_part(self.text.len());
        if !self.heredocs.is_empty() {
            self.split.unclear("a document in it has no end");
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.rest().starts_with(c);
        if there {
            self.at += c.len_utf8();
        }
        there
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_with(|| Word { text: String::new(), open: false })
    }

    fn push(&mut self, c: char) {
        self.word().text.push(c);
    }

    fn push_unknown(&mut self) {
        let word = self.word();
        word.open = true;
        if !word.text.ends_with(UNKNOWN) {
            word.text.push(UNKNOWN);
        }
    }

    fn end_word(&mut self) {
        if let Some(mut word) = self.word.take() {
            // `{a,b}` comes to several words, of which nothing here is one.
            if word.open && word.text.contains('{') && (word.text.contains(',') || word.text.contains("..")) {
                word.text = UNKNOWN.to_string();
            }
            self.words.push(word);
        }
    }

    fn end_part(&mut self, end: usize) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        let text = self.text[self.begun.min(end)..end].trim().to_owned();
        self.begun = self.at;
        if !words.is_empty() {
            self.split.push(Part { text, words });
        }
    }

    /// One character outside of quotes, which belongs to a word or begins something that does.
    fn in_word(&mut self, c: char) {
        match c {
            '\\' => match self.next() {
                Some('\n') | None => {}
                Some(c) => self.push(c),
            },
            '\'' => self.single_quoted(),
            '"' => self.double_quoted(),
            '$' => self.dollar(false),
            '`' => self.backticks(false),
            '*' | '?' | '[' | '{' => {
                self.push(c);
                self.word().open = true;
            }
            c => self.push(c),
        }
    }

    fn single_quoted(&mut self) {
        self.word();
        match self.rest().find('\'') {
            Some(length) => {
                let quoted = self.rest()[..length].to_owned();
                self.word().text.push_str(&quoted);
                self.at += length + 1;
            }
            None => self.unended(),
        }
    }

    fn double_quoted(&mut self) {
        self.word();
        loop {
            match self.next() {
                None => return self.unended(),
                Some('"') => return,
                Some('\\') => match self.next() {
                    Some('\n') | None => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.push(c),
                    Some(c) => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                Some('$') => self.dollar(true),
                Some('`') => self.backticks(true),
                Some(c) => self.push(c),
            }
        }
    }

    fn unended(&mut self) {
        self.at = self.text.len();
        self.split.unclear(NO_END);
    }

    fn dollar(&mut self, quoted: bool) {
        match self.rest().chars().next() {
            Some('(') => {
                self.at += 1;
                self.inner(')', false);
                self.push_unknown();
            }
            Some('{') => {
                self.at += 1;
                self.inner('}', quoted);
                self.push_unknown();
            }
            Some('\'') if !quoted => {
                self.at += 1;
                self.ansi_quoted();
            }
            // Some shells see through both.
            Some('[') => {
                self.split.unclear("it calculates (`$[`)");
                self.push('$');
            }
            Some('\\') if self.rest().starts_with("\\\n") => {
                self.split.unclear("a `$` in it ends a line");
                self.push('$');
            }
            // A text to be translated.
            Some('"') if !quoted => {}
            Some(c) if c.is_alphanumeric() || "_?@*#$!-".contains(c) => {
                self.at += c.len_utf8();
                if c.is_alphabetic() || c == '_' {
                    let length = self.rest().find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest().len());
                    self.at += length;
                }
                self.push_unknown();
            }
            _ => self.push('$'),
        }
    }

    /// What stands up to the bracket that closes: commands, or for braces an expansion that may hold some.
    fn inner(&mut self, close: char, quoted: bool) {
        let length = match closing(self.rest(), close, quoted, 0) {
            Ok(length) => length,
            Err(why) => {
                // Where it ends can't be told, so all the rest may be part of it.
                self.split.unclear(why);
                self.text.len() - self.at
            }
        };
        let inner = self.rest()[..length].to_owned();
        self.at = (self.at + length + 1).min(self.text.len());
        if close == ')' {
            self.split.read(&inner, self.depth + 1);
        } else {
            self.expanded(&inner);
        }
    }

    /// Text in which nothing counts but what is expanded in it.
    fn expanded(&mut self, text: &str) {
        if self.depth >= MAX_DEPTH {
            return self.split.unclear("it holds commands inside commands, more than 8 deep");
        }
        let mut scan = Reader {
            text,
            at: 0,
            depth: self.depth + 1,
            begun: 0,
            words: Vec::new(),
            word: None,
            split: &mut *self.split,
            heredocs: Vec::new(),
        };
        while let Some(c) = scan.next() {
            match c {
                '\\' => drop(scan.next()),
                '$' => scan.dollar(true),
                '`' => scan.backticks(true),
                '<' | '>' if scan.rest().starts_with('(') => scan.split.unclear("it starts a command inside an expansion"),
                _ => {}
            }
        }
    }

    fn backticks(&mut self, quoted: bool) {
        let (mut inner, mut closed) = (String::new(), false);
        while let Some(c) = self.next() {
            match c {
                '`' => {
                    closed = true;
                    break;
                }
                '\\' => match self.next() {
                    Some(c @ ('$' | '`' | '\\')) => inner.push(c),
                    Some('"') if quoted => {
                        self.split.unclear("quotes stand in backticks in quotes in it");
                        inner.push('"');
                    }
                    // Any other backslash is the inner command's own.
                    c => {
                        inner.push('\\');
                        inner.extend(c);
                    }
                },
                c => inner.push(c),
            }
        }
        if !closed {
            return self.unended();
        }
        self.split.read(&inner, self.depth + 1);
        self.push_unknown();
    }

    /// `$'…'`, in which characters are written by their numbers.
    fn ansi_quoted(&mut self) {
        self.word();
        loop {
            match self.next() {
                None => return self.unended(),
                Some('\'') => return,
                Some('\\') => match self.next() {
                    None => return self.unended(),
                    Some('\'') => {
                        self.split.unclear(DISPUTED);
                        self.push('\'');
                    }
                    Some('x') => self.numbered(16, 2),
                    Some('u') => self.numbered(16, 4),
                    Some('U') => self.numbered(16, 8),
                    Some(c @ '0'..='7') => {
                        self.at -= c.len_utf8();
                        self.numbered(8, 3);
                    }
                    Some('n') => self.push('\n'),
                    Some('t') => self.push('\t'),
                    Some('c') => {
                        self.next();
                        self.push_unknown();
                    }
                    Some(c) => self.push(c),
                },
                Some(c) => self.push(c),
            }
        }
    }

    fn numbered(&mut self, radix: u32, most: usize) {
        let digits = self.rest().chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let number = u32::from_str_radix(&self.rest()[..digits], radix).ok().and_then(char::from_u32);
        self.at += digits;
        match number {
            Some(c) => self.push(c),
            None => self.push_unknown(),
        }
    }

    fn redirection(&mut self, c: char) {
        // A number before it says which stream is meant.
        if self.word.as_ref().is_some_and(|word| !word.open && word.text.bytes().all(|byte| byte.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        if self.take('(') {
            self.inner(')', false);
            self.push_unknown();
            return;
        }
        if c == '<' && self.take('<') {
            if self.take('<') {
                self.split.unclear("it hands a text to a program (`<<<`)");
                return;
            }
            return self.heredoc();
        }
        let to_file = c == '>' || self.take('>');
        let _ = self.take('>') || self.take('|');
        let stream = self.take('&');
        let target = self.target();
        let known = target.text.as_str();
        let number = stream && known.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        if to_file && !number && (target.open || !["/dev/null", "/dev/stdout", "/dev/stderr"].contains(&known)) {
            let text = format!("> {known}");
            self.split.push(Part { text, words: Vec::new() });
        }
    }

    /// The word behind a redirection, which is none of the command's.
    fn target(&mut self) -> Word {
        while self.take(' ') || self.take('\t') {}
        let before = std::mem::take(&mut self.words);
        while let Some(c) = self.rest().chars().next() {
            if c.is_whitespace() || ";|&()<>".contains(c) {
                break;
            }
            self.at += c.len_utf8();
            self.in_word(c);
        }
        self.end_word();
        let target = std::mem::replace(&mut self.words, before).pop();
        target.unwrap_or(Word { text: String::new(), open: false })
    }

    fn heredoc(&mut self) {
        self.split.unclear("it hands a document to a program (`<<`)");
        self.take('-');
        let begun = self.at;
        let end = self.target();
        let quoted = self.text[begun..self.at].contains(['\'', '"', '\\']);
        self.heredocs.push((end.text, !quoted));
    }

    fn skip_heredocs(&mut self) {
        for (end, expands) in std::mem::take(&mut self.heredocs) {
            let mut body = String::new();
            loop {
                if self.at >= self.text.len() {
                    self.split.unclear("a document in it has no end");
                    break;
                }
                let length = self.rest().find('\n').unwrap_or(self.rest().len());
                let line = self.rest()[..length].to_owned();
                self.at = (self.at + length + 1).min(self.text.len());
                if line.trim_start_matches('\t') == end {
                    break;
                }
                body.push_str(&line);
                body.push('\n');
            }
            if expands {
                self.expanded(&body);
            }
        }
        self.begun = self.at;
    }
}

/// Where the bracket lies that closes what has just begun, or why that can't be told. Quotes and what is expanded are seen through.
///
/// `quoted`: whether double quotes are around it. `depth`: how many others it stands in.
fn closing(text: &str, close: char, quoted: bool, depth: usize) -> Result<usize, &'static str> {
    if depth > MAX_DEPTH {
        return Err("it holds commands inside commands, more than 8 deep");
    }
    let command = close == ')';
    // `$((` holds no command, and what quotes are in it differs.
    let disputed = quoted && !command || command && text.starts_with('(');
    let (mut at, mut open) = (0, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        let before = &text[..at];
        at += c.len_utf8();
        let rest = &text[at..];
        match c {
            '\\' if command && rest.starts_with('\n') => return Err("a line of a command inside it goes on in the next"),
            '\'' | '"' if disputed => return Err(DISPUTED),
            '{' if !command => return Err(DISPUTED),
            '\'' if before.ends_with('$') && rest.split('\'').next().is_some_and(|quoted| quoted.ends_with('\\')) => return Err(DISPUTED),
            '\'' => at += rest.find('\'').ok_or(NO_END)? + 1,
            '"' => at += closing_quote(rest, depth + 1)?,
            '#' if command && before.chars().next_back().is_none_or(|c| c.is_whitespace() || ";|&()<>".contains(c)) => {
                return Err("a remark stands in a command inside it");
            }
            c if command && c.is_whitespace() && before.ends_with("case") => return Err("a `case` stands in a command inside it"),
            c if c == close && open == 0 => return Ok(before.len()),
            '(' if command => open += 1,
            ')' if command => open -= 1,
            c => at += expansion(c, rest, quoted && !command, depth)?,
        }
    }
    Err(NO_END)
}

/// The length of what stands up to the double quote that closes, which is part of it.
fn closing_quote(text: &str, depth: usize) -> Result<usize, &'static str> {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '"' => return Ok(at),
            c => at += expansion(c, &text[at..], true, depth)?,
        }
    }
    Err(NO_END)
}

/// How much of `rest` belongs to the escape or the expansion that `c` begins, if it does.
fn expansion(c: char, rest: &str, quoted: bool, depth: usize) -> Result<usize, &'static str> {
    match (c, rest.as_bytes().first()) {
        ('\\', _) => Ok(rest.chars().next().map_or(0, char::len_utf8)),
        ('$', Some(b'(')) => Ok(closing(&rest[1..], ')', false, depth + 1)? + 2),
        ('$', Some(b'{')) => Ok(closing(&rest[1..], '}', quoted, depth + 1)? + 2),
        ('`', _) => {
            let mut characters = rest.char_indices();
            while let Some((at, c)) = characters.next() {
                match c {
                    '`' => return Ok(at + 1),
                    '\\' => drop(characters.next()),
                    _ => {}
                }
            }
            Err(NO_END)
        }
        _ => Ok(0),
    }
}
