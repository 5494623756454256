//! Reads the words of a command without their quotes, as far as they are known before the command
//! runs.

use tree_sitter::{Node, TreeCursor};

/// Replaces a part of a word that is only known when the command runs.
pub(super) const UNKNOWN: char = '\u{fffc}';

/// A word without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The known text, with [`UNKNOWN`] for the rest.
    pub(super) text: String,
    /// Whether the value may differ from `text` because of an expansion, a pattern or braces.
    pub(super) open: bool,
    /// Whether the word may become several words because it has an expansion without quotes.
    pub(super) splits: bool,
    /// The word as written.
    pub(super) raw: String,
}

impl Word {
    /// Returns a word with an unknown value.
    pub(super) fn unknown(raw: &str) -> Self {
        Self { text: UNKNOWN.to_string(), open: true, splits: true, raw: raw.to_owned() }
    }

    /// Returns a word without quotes or expansions.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), raw: text.to_owned(), ..Self::default() }
    }

    /// Appends a word that follows without a gap.
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

/// Reads a word from its node. Also detects whether a shell may read the word in another way than
/// the grammar.
pub(super) struct Reader<'t> {
    source: &'t str,
    /// The first reason why a shell may read the word differently.
    pub(super) unclear: Option<&'static str>,
    word: Word,
    /// Whether there is an unquoted `{`.
    has_brace: bool,
    /// Whether an unquoted `,` or `..` follows an unquoted `{`.
    has_brace_list: bool,
}

/// The reason if shells, or a shell and the grammar, read a text differently.
pub(super) const DISPUTED: &str = "it has a quote or bracket that shells read differently";

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
    // `{a,b}` becomes several words, so no word is known here.
    if has_brace_list {
        word = Word::unknown(&word.raw);
    }
    (word, unclear)
}

impl<'t> Reader<'t> {
    fn read(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        if node.kind() != "concatenation" {
            return self.primary(node, cursor);
        }
        let mut end = node.start_byte();
        for part in node.children(cursor).collect::<Vec<_>>() {
            self.between(end, part.start_byte());
            end = part.end_byte();
            self.primary(part, &mut part.walk());
        }
    }

    /// Checks the gap between two parts of a word: only a continued line is allowed.
    fn between(&mut self, end: usize, start: usize) {
        if !self.source.get(end..start).is_some_and(|gap| gap.replace("\\\n", "").is_empty()) {
            self.unclear(DISPUTED);
        }
    }

    fn unclear(&mut self, why: &'static str) {
        self.unclear.get_or_insert(why);
    }

    fn primary(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        let raw = &self.source[node.byte_range()];
        match node.kind() {
            "word" | "number" | "test_operator" | "variable_name" | "heredoc_start"
                if node.child_count() == 0 =>
            {
                self.bare(raw);
            }
            "raw_string" => self.word.text.push_str(&raw[1..raw.len().max(2) - 1]),
            "ansi_c_string" => self.ansi_quoted(&raw[2.min(raw.len())..]),
            "string" => self.quoted(node, cursor),
            "translated_string" => {
                let string = node.children(cursor).find(|child| child.kind() == "string");
                match string {
                    Some(string) => self.quoted(string, &mut string.walk()),
                    None => self.unclear(DISPUTED),
                }
            }
            "$" | "=~" | "==" => self.word.text.push_str(raw),
            "``" => {}
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

    /// Reads text without quotes.
    fn bare(&mut self, raw: &str) {
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
                    self.unclear("it contains a character that some shells treat as a space");
                    self.word.text.push(c);
                }
                c => {
                    match c {
                        '*' | '?' | '[' => self.word.open = true,
                        '{' => {
                            self.word.open = true;
                            self.has_brace = true;
                        }
                        ',' if self.has_brace => self.has_brace_list = true,
                        '.' if self.has_brace && letters.peek() == Some(&'.') => {
                            self.has_brace_list = true;
                        }
                        _ => {}
                    }
                    self.word.text.push(c);
                }
            }
        }
    }

    /// Reads text in double quotes. The grammar's nodes don't contain all spaces, so this function
    /// reads the source between the expansions.
    fn quoted(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        let mut at = node.start_byte() + 1;
        let end = node.end_byte() - 1;
        if end < at || !self.source[node.byte_range()].ends_with('"') {
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
            self.in_quotes(at, child.start_byte());
            self.unknown();
            at = child.end_byte();
            // Shells interpret these characters differently in an expansion within quotes.
            let has_quote = self.source[child.byte_range()].contains(['\'', '"', '\\']);
            if has_quote && child.kind() == "expansion" {
                self.unclear(DISPUTED);
            }
        }
        self.in_quotes(at, end);
    }

    fn in_quotes(&mut self, from: usize, to: usize) {
        let Some(raw) = self.source.get(from..to) else { return self.unclear(DISPUTED) };
        let mut letters = raw.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.word.text.push(c),
                    Some(c) => self.word.text.extend(['\\', c]),
                    None => self.unclear(DISPUTED),
                },
                '"' | '`' => self.unclear(DISPUTED),
                '$' if letters.peek().is_some_and(|c| expands(*c) || *c == '\\') => {
                    self.unclear(DISPUTED);
                    self.word.text.push(c);
                }
                UNKNOWN => {
                    self.unclear("it contains a character that some shells treat as a space");
                }
                c => self.word.text.push(c),
            }
        }
    }

    /// Reads `$'…'`, in which characters can be written as numbers. `raw` starts after the first
    /// quote.
    fn ansi_quoted(&mut self, raw: &str) {
        let mut letters = raw.chars();
        loop {
            match letters.next() {
                None => return self.unclear(DISPUTED),
                // The grammar reads on to the last quote of the text.
                Some('\'') if letters.as_str().is_empty() => return,
                Some('\'') => return self.unclear(DISPUTED),
                Some('\\') => match letters.next() {
                    None => return self.unclear(DISPUTED),
                    Some(escaped) => self.ansi_escape(escaped, &mut letters),
                },
                Some(c) => self.word.text.push(c),
            }
        }
    }

    /// Reads an escape of `$'…'`. `escaped` is the character after the backslash.
    fn ansi_escape(&mut self, escaped: char, letters: &mut std::str::Chars<'_>) {
        match escaped {
            '\'' => {
                self.unclear(DISPUTED);
                self.word.text.push('\'');
            }
            'x' => self.read_hex(letters, 2),
            'u' => self.read_hex(letters, 4),
            'U' => self.read_hex(letters, 8),
            '0'..='7' => {
                let mut number = escaped.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let next = letters.clone().next();
                    let Some(digit) = next.and_then(|c| c.to_digit(8)) else { break };
                    number = number * 8 + digit;
                    letters.next();
                }
                // If the number is larger than a byte, shells use its lowest byte.
                self.push_code(number & 0xff);
            }
            'n' => self.word.text.push('\n'),
            't' => self.word.text.push('\t'),
            'r' => self.word.text.push('\r'),
            'c' => {
                letters.next();
                self.unknown();
            }
            c => self.word.text.push(c),
        }
    }

    /// Reads the hexadecimal number of a character, with at most `max_digits` digits.
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

    fn push_code(&mut self, number: u32) {
        match char::from_u32(number) {
            // In some shells, the text ends here.
            Some('\0') | None => {
                self.unknown();
                self.unclear(DISPUTED);
            }
            // A number beyond ASCII may be one byte of a longer character.
            Some(c) if c.is_ascii() => self.word.text.push(c),
            Some(_) => self.unknown(),
        }
    }
}

/// Checks whether `$` before this character begins an expansion.
pub(super) fn expands(c: char) -> bool {
    c.is_alphanumeric() || "_?@*#$!-({[".contains(c)
}

/// Returns the name and the value of `NAME=value`. Returns `None` if a shell doesn't read the text
/// as an assignment.
pub(super) fn assigned(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}
