//! Reads the words of a command without their quotes.

use tree_sitter::{Node, TreeCursor};

/// Replaces a part of a word that is known only at run time.
pub(super) const UNKNOWN: char = '\u{fffc}';

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text without quotes, with [`UNKNOWN`] for unknown parts.
    pub(super) text: String,
    /// Whether the value may differ from `text` because of an expansion, a pattern or braces.
    pub(super) open: bool,
    /// Whether the word may become several words, because of an expansion without quotes.
    pub(super) splits: bool,
    pub(super) raw: String,
}

impl Word {
    pub(super) fn unknown(raw: &str) -> Self {
        Self { text: UNKNOWN.to_string(), open: true, splits: true, raw: raw.to_owned() }
    }

    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), raw: text.to_owned(), ..Self::default() }
    }

    pub(super) fn join(&mut self, next: &Self) {
        self.text.push_str(&next.text);
        self.raw.push_str(&next.raw);
        self.open = self.open || next.open;
        self.splits = self.splits || next.splits;
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.text.contains(UNKNOWN)
    }
}

/// Reads a word from its node. Detects words that a shell may read differently.
pub(super) struct Reader<'t> {
    source: &'t str,
    pub(super) unclear: Option<&'static str>,
    word: Word,
    has_brace: bool,
    /// Whether an unquoted `,` or `..` follows the `{`.
    has_brace_list: bool,
}

pub(super) const DISPUTED: &str = "the command has a quote or bracket that shells read differently";

/// Returns the word of a node, and the reason why a shell may read it differently.
pub(super) fn word(node: Node<'_>, source: &str) -> (Word, Option<&'static str>) {
    let raw = source[node.byte_range()].to_owned();
    let mut reader = Reader {
        source,
        unclear: None,
        word: Word { raw, ..Word::default() },
        has_brace: false,
        has_brace_list: false,
    };
    reader.read(node, &mut node.walk());
    let Reader { unclear, mut word, has_brace_list, .. } = reader;
    // A shell makes several words of `{a,b}`, so the word as a whole isn't known.
    if has_brace_list {
        word = Word::unknown(&word.raw);
    }
    (word, unclear)
}

impl<'t> Reader<'t> {
    /// Reads a word, which may be a concatenation of parts.
    fn read(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        if node.kind() != "concatenation" {
            return self.read_part(node, cursor);
        }
        let mut end = node.start_byte();
        for part in node.children(cursor).collect::<Vec<_>>() {
            self.between(end, part.start_byte());
            end = part.end_byte();
            self.read_part(part, &mut part.walk());
        }
    }

    /// Checks that the gap between two parts of a word is empty or only continues the line.
    fn between(&mut self, end: usize, start: usize) {
        if !self.source.get(end..start).is_some_and(|gap| gap.replace("\\\n", "").is_empty()) {
            self.unclear(DISPUTED);
        }
    }

    fn unclear(&mut self, why: &'static str) {
        self.unclear.get_or_insert(why);
    }

    /// Reads a part of a word: plain text, text in quotes, or an expansion.
    fn read_part(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        let raw = &self.source[node.byte_range()];
        match node.kind() {
            "word" | "number" | "test_operator" | "variable_name" | "heredoc_start"
                if node.child_count() == 0 =>
            {
                self.read_bare(raw);
            }
            // The text between single quotes contains no single quote, so only the outer quotes are
            // removed.
            "raw_string" => self.word.text.push_str(raw.trim_matches('\'')),
            "ansi_c_string" => {
                let after_quote = raw.get("$'".len()..).unwrap_or_default();
                self.read_ansi_quoted(after_quote);
            }
            "string" => self.read_quoted(node, cursor),
            "translated_string" => {
                let string = node.children(cursor).find(|child| child.kind() == "string");
                match string {
                    Some(string) => self.read_quoted(string, &mut string.walk()),
                    None => self.unclear(DISPUTED),
                }
            }
            "$" | "=~" | "==" => self.word.text.push_str(raw),
            // An empty command has no output.
            "``" => {}
            // All other nodes are expansions.
            _ => {
                self.word.splits = true;
                self.unknown();
            }
        }
    }

    fn unknown(&mut self) {
        self.word.open = true;
        if !self.word.text.ends_with(UNKNOWN) {
            self.word.text.push(UNKNOWN);
        }
    }

    fn read_bare(&mut self, raw: &str) {
        let mut letters = raw.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some('\n') | None => self.unclear(DISPUTED),
                    Some(c) => self.word.text.push(c),
                },
                '\'' | '"' | '`' | '$' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => {
                    self.unclear(DISPUTED);
                    self.word.text.push(c);
                }
                c if c.is_whitespace() || c == UNKNOWN => {
                    self.unclear(
                        "the command contains a character that some shells treat as a space",
                    );
                    self.word.text.push(c);
                }
                c => {
                    let next = letters.peek().copied();
                    self.detect_pattern(c, next);
                    self.word.text.push(c);
                }
            }
        }
    }

    /// Detects patterns, and lists such as `{a,b}` and `{1..9}`.
    fn detect_pattern(&mut self, c: char, next: Option<char>) {
        if matches!(c, '*' | '?' | '[' | '{') {
            self.word.open = true;
        }
        if c == '{' {
            self.has_brace = true;
        }
        let is_range = c == '.' && next == Some('.');
        if self.has_brace && (c == ',' || is_range) {
            self.has_brace_list = true;
        }
    }

    /// Reads text in double quotes. The text between expansions is read from the source, because
    /// the nodes of the grammar don't contain all spaces.
    fn read_quoted(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        let quote_length = 1;
        let mut text_start = node.start_byte() + quote_length;
        let text_end = node.end_byte() - quote_length;
        if text_end < text_start || !self.source[node.byte_range()].ends_with('"') {
            return self.unclear(DISPUTED);
        }
        for child in node.children(cursor).collect::<Vec<_>>() {
            let is_expansion = matches!(
                child.kind(),
                "expansion" | "simple_expansion" | "command_substitution" | "arithmetic_expansion"
            );
            if !is_expansion {
                continue;
            }
            self.read_in_quotes(text_start, child.start_byte());
            self.unknown();
            text_start = child.end_byte();
            // In quotes, shells differ in their reading of these characters in an expansion.
            let has_quote = self.source[child.byte_range()].contains(['\'', '"', '\\']);
            if has_quote && child.kind() == "expansion" {
                self.unclear(DISPUTED);
            }
        }
        self.read_in_quotes(text_start, text_end);
    }

    /// Reads the text in double quotes from `start` to `end`. The text contains no expansion.
    fn read_in_quotes(&mut self, start: usize, end: usize) {
        let Some(raw) = self.source.get(start..end) else { return self.unclear(DISPUTED) };
        let mut letters = raw.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    // A backslash before a line end joins two lines.
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.word.text.push(c),
                    // The backslash isn't special before another character.
                    Some(c) => self.word.text.extend(['\\', c]),
                    None => self.unclear(DISPUTED),
                },
                '"' | '`' => self.unclear(DISPUTED),
                // For a shell, an expansion may start here.
                '$' if letters.peek().is_some_and(|c| expands(*c) || *c == '\\') => {
                    self.unclear(DISPUTED);
                    self.word.text.push(c);
                }
                UNKNOWN => {
                    self.unclear(
                        "the command contains a character that some shells treat as a space",
                    );
                }
                c => self.word.text.push(c),
            }
        }
    }

    /// Reads `$'…'`. `raw` starts after the first quote.
    fn read_ansi_quoted(&mut self, raw: &str) {
        let mut letters = raw.chars();
        loop {
            match letters.next() {
                None => return self.unclear(DISPUTED),
                Some('\'') if letters.as_str().is_empty() => return,
                // For a shell, the string ends here, but the grammar reads on to a later quote.
                Some('\'') => return self.unclear(DISPUTED),
                Some('\\') => match letters.next() {
                    None => return self.unclear(DISPUTED),
                    Some(escaped) => self.read_ansi_escape(escaped, &mut letters),
                },
                Some(c) => self.word.text.push(c),
            }
        }
    }

    /// Reads an escape in `$'…'`. `escaped` is the character after the backslash.
    fn read_ansi_escape(&mut self, escaped: char, letters: &mut std::str::Chars<'_>) {
        match escaped {
            '\'' => {
                self.unclear(DISPUTED);
                self.word.text.push('\'');
            }
            // The second argument is the largest number of digits.
            'x' => self.read_hex(letters, 2),
            'u' => self.read_hex(letters, 4),
            'U' => self.read_hex(letters, 8),
            '0'..='7' => {
                let mut number = u32::from(escaped) - u32::from('0');
                // The number has up to two more octal digits.
                for _ in 0..2 {
                    let next = letters.clone().next();
                    let Some(digit) = next.and_then(|c| c.to_digit(8)) else { break };
                    number = number * 8 + digit;
                    letters.next();
                }
                // Shells use only the lowest byte of the number.
                self.push_code(number & 0xff);
            }
            'n' => self.word.text.push('\n'),
            't' => self.word.text.push('\t'),
            'r' => self.word.text.push('\r'),
            // A control character, such as `\cA`.
            'c' => {
                letters.next();
                self.unknown();
            }
            c => self.word.text.push(c),
        }
    }

    /// Reads the hexadecimal digits of an escape. Without a digit, the character is unknown.
    fn read_hex(&mut self, letters: &mut std::str::Chars<'_>, max_digits: usize) {
        let text = letters.as_str();
        let length = text.chars().take(max_digits).take_while(char::is_ascii_hexdigit).count();
        let (digits, after) = text.split_at(length);
        *letters = after.chars();
        match u32::from_str_radix(digits, 16) {
            Ok(number) => self.push_code(number),
            Err(_) => self.unknown(),
        }
    }

    /// Adds the character with this number. The character is unknown if shells read the number
    /// differently.
    fn push_code(&mut self, number: u32) {
        match char::from_u32(number) {
            // Some shells end the text at a NUL character.
            Some('\0') | None => {
                self.unknown();
                self.unclear(DISPUTED);
            }
            // A number above ASCII may be one byte of a longer character.
            Some(c) if c.is_ascii() => self.word.text.push(c),
            Some(_) => self.unknown(),
        }
    }
}

/// Checks whether `$` before this character starts an expansion.
pub(super) fn expands(c: char) -> bool {
    c.is_alphanumeric() || "_?@*#$!-({[".contains(c)
}

/// Splits `NAME=value`. Returns `None` if a shell doesn't read the text as an assignment.
pub(super) fn assigned(text: &str) -> Option<(&str, &str)> {
    let (target, value) = text.split_once('=')?;
    // `NAME+=value` appends to the variable.
    let name = target.strip_suffix('+').unwrap_or(target);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name { Some((name, value)) } else { None }
}
