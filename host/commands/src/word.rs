//! Words of a command, as far as they can be told before it runs.

use tree_sitter::{Node, TreeCursor};

/// Stands in a word for what is only known when the command runs.
pub(super) const UNKNOWN: char = '\u{fffc}';

/// A word, its quotes taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// What is known of it; [`UNKNOWN`] for the rest.
    pub(super) text: String,
    /// Whether it may come to something else: by an expansion, a pattern or braces.
    pub(super) open: bool,
    /// Whether it may come to several words, since what is expanded in it stands in no quotes.
    pub(super) splits: bool,
    /// As it is written.
    pub(super) raw: String,
}

impl Word {
    /// A word of which nothing is known.
    pub(super) fn unknown(raw: &str) -> Self {
        Self { text: UNKNOWN.to_string(), open: true, splits: true, raw: raw.to_owned() }
    }

    /// A word that means itself.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), raw: text.to_owned(), ..Self::default() }
    }

    /// One word that two come to which nothing parts.
    pub(super) fn join(&mut self, next: &Self) {
        self.text.push_str(&next.text);
        self.raw.push_str(&next.raw);
        self.open |= next.open;
        self.splits |= next.splits;
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.text.contains(UNKNOWN)
    }
}

/// Reads the word that a node is, and says what is strange about it: where the grammar may see
/// something else there than a shell does.
pub(super) struct Reader<'t> {
    source: &'t str,
    /// What is strange, the first of it.
    pub(super) strange: Option<&'static str>,
    word: Word,
    /// An unquoted `{`, and an unquoted `,` or `..` behind one.
    braces: (bool, bool),
}

/// Why it is unclear where shells, or a shell and the grammar, read it differently.
pub(super) const DISPUTED: &str = "it has a quote or bracket that shells read differently";

/// The word that a node is, and what is strange about it.
pub(super) fn word(node: Node<'_>, source: &str) -> (Word, Option<&'static str>) {
    let raw = source[node.byte_range()].to_owned();
    let mut reader = Reader {
        source,
        strange: None,
        word: Word { raw, ..Word::default() },
        braces: (false, false),
    };
    reader.read(node, &mut node.walk());
    let Reader { strange, mut word, braces, .. } = reader;
    // `{a,b}` comes to several words, of which nothing here is one.
    if braces.1 {
        word = Word::unknown(&word.raw);
    }
    (word, strange)
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

    /// What the grammar skips in a word is nothing, or a line that goes on in the next.
    fn between(&mut self, end: usize, start: usize) {
        if !self.source.get(end..start).is_some_and(|gap| gap.replace("\\\n", "").is_empty()) {
            self.strange(DISPUTED);
        }
    }

    fn strange(&mut self, why: &'static str) {
        self.strange.get_or_insert(why);
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
                    None => self.strange(DISPUTED),
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

    /// Letters without quotes.
    fn bare(&mut self, raw: &str) {
        let mut letters = raw.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some('\n') | None => self.strange(DISPUTED),
                    Some(c) => self.word.text.push(c),
                },
                '\'' | '"' | '`' | '$' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => {
                    self.strange(DISPUTED);
                    self.word.text.push(c);
                }
                c if c.is_whitespace() || c == UNKNOWN => {
                    self.strange("it contains a character that some shells treat as a space");
                    self.word.text.push(c);
                }
                c => {
                    self.word.open |= matches!(c, '*' | '?' | '[' | '{');
                    self.braces.0 |= c == '{';
                    self.braces.1 |=
                        self.braces.0 && (c == ',' || c == '.' && letters.peek() == Some(&'.'));
                    self.word.text.push(c);
                }
            }
        }
    }

    /// What stands in double quotes. The grammar leaves spaces out of its nodes, so the text
    /// counts, but for what is expanded.
    fn quoted(&mut self, node: Node<'t>, cursor: &mut TreeCursor<'t>) {
        let mut at = node.start_byte() + 1;
        let end = node.end_byte() - 1;
        if end < at || !self.source[node.byte_range()].ends_with('"') {
            return self.strange(DISPUTED);
        }
        for child in node.children(cursor).collect::<Vec<_>>() {
            match child.kind() {
                "expansion"
                | "simple_expansion"
                | "command_substitution"
                | "arithmetic_expansion" => {
                    self.in_quotes(at, child.start_byte());
                    self.unknown();
                    at = child.end_byte();
                    // Inside of quotes, shells differ in what these mean there.
                    if child.kind() == "expansion"
                        && self.source[child.byte_range()].contains(['\'', '"', '\\'])
                    {
                        self.strange(DISPUTED);
                    }
                }
                _ => {}
            }
        }
        self.in_quotes(at, end);
    }

    fn in_quotes(&mut self, from: usize, to: usize) {
        let Some(raw) = self.source.get(from..to) else { return self.strange(DISPUTED) };
        let mut letters = raw.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.word.text.push(c),
                    Some(c) => self.word.text.extend(['\\', c]),
                    None => self.strange(DISPUTED),
                },
                '"' | '`' => self.strange(DISPUTED),
                '$' if letters.peek().is_some_and(|c| expands(*c) || *c == '\\') => {
                    self.strange(DISPUTED);
                    self.word.text.push(c);
                }
                UNKNOWN => {
                    self.strange("it contains a character that some shells treat as a space");
                }
                c => self.word.text.push(c),
            }
        }
    }

    /// `$'…'`, in which characters are written by their numbers: what stands behind its first
    /// quote.
    fn ansi_quoted(&mut self, raw: &str) {
        let mut rest = raw.chars();
        loop {
            match rest.next() {
                None => return self.strange(DISPUTED),
                // The grammar goes on to the last quote of all.
                Some('\'') if rest.as_str().is_empty() => return,
                Some('\'') => return self.strange(DISPUTED),
                Some('\\') => match rest.next() {
                    None => return self.strange(DISPUTED),
                    Some('\'') => {
                        self.strange(DISPUTED);
                        self.word.text.push('\'');
                    }
                    Some('x') => self.numbered(&mut rest, 16, 2),
                    Some('u') => self.numbered(&mut rest, 16, 4),
                    Some('U') => self.numbered(&mut rest, 16, 8),
                    Some(c @ '0'..='7') => {
                        let mut number = c.to_digit(8).unwrap_or_default();
                        for _ in 0..2 {
                            let Some(digit) = rest.clone().next().and_then(|c| c.to_digit(8))
                            else {
                                break;
                            };
                            number = number * 8 + digit;
                            rest.next();
                        }
                        // Of more than a byte, shells take the lower one.
                        self.numbered_as(number & 0xff);
                    }
                    Some('n') => self.word.text.push('\n'),
                    Some('t') => self.word.text.push('\t'),
                    Some('r') => self.word.text.push('\r'),
                    Some('c') => {
                        rest.next();
                        self.unknown();
                    }
                    Some(c) => self.word.text.push(c),
                },
                Some(c) => self.word.text.push(c),
            }
        }
    }

    fn numbered(&mut self, rest: &mut std::str::Chars<'_>, radix: u32, most: usize) {
        let digits = rest.as_str().chars().take(most).take_while(|c| c.is_digit(radix)).count();
        let (number, behind) = rest.as_str().split_at(digits);
        let number = u32::from_str_radix(number, radix);
        *rest = behind.chars();
        match number {
            Ok(number) => self.numbered_as(number),
            Err(_) => self.unknown(),
        }
    }

    fn numbered_as(&mut self, number: u32) {
        match char::from_u32(number) {
            // A text ends there, in one shell or another.
            Some('\0') | None => {
                self.unknown();
                self.strange(DISPUTED);
            }
            // Of a letter beyond ASCII, it may be one byte of several.
            Some(c) if c.is_ascii() => self.word.text.push(c),
            Some(_) => self.unknown(),
        }
    }
}

/// Whether `$` before it begins an expansion.
pub(super) fn expands(c: char) -> bool {
    c.is_alphanumeric() || "_?@*#$!-({[".contains(c)
}

/// `NAME=value`, as a shell takes it.
pub(super) fn assigned(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let known = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    (known && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some((name, value))
}
