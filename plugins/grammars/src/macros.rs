//! Blanks macros of C and C++ that stand before declarations, such as `EXPORT int f(void);`. What
//! they expand to isn't known, and the grammar takes them for types. So they are blanked before
//! parsing; everything keeps its place.

/// Words that don't begin what follows a macro, but belong to the type before them.
const QUALIFIERS: [&[u8]; 2] = [b"const", b"volatile"];

#[derive(Clone, Copy)]
struct Token {
    start: usize,
    end: usize,
    is_word: bool,
}

/// The source with spaces in the place of macros.
pub(crate) fn blanked(source: &[u8]) -> Vec<u8> {
    let mut blanked = source.to_vec();
    let tokens = tokens(source);
    let text = |token: &Token| &source[token.start..token.end];
    for (place, token) in tokens.iter().enumerate() {
        if !token.is_word || !is_macro(text(token)) {
            continue;
        }
        let next = &tokens[place + 1..];
        let before = place.checked_sub(1).map(|place| text(&tokens[place]));
        let end = if begins_declaration(next, &text) || ends_head(before, next.first().map(text)) {
            Some(token.end)
        } else {
            arguments(next, &text)
                .filter(|count| is_line(source, token, &next[*count - 1]))
                .filter(|count| next.get(*count).is_some_and(|after| after.is_word))
                .map(|count| next[count - 1].end)
        };
        if let Some(end) = end {
            for byte in &mut blanked[token.start..end] {
                *byte = if *byte == b'\n' { b'\n' } else { b' ' };
            }
        }
    }
    blanked
}

/// Whether a word has the form of a macro.
fn is_macro(word: &[u8]) -> bool {
    word.len() > 2
        && word.iter().any(u8::is_ascii_uppercase)
        && word.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')
}

/// Whether tokens begin with a type and a name. Then what is before them is neither.
fn begins_declaration<'s>(tokens: &[Token], text: &impl Fn(&Token) -> &'s [u8]) -> bool {
    let [first, rest @ ..] = tokens else { return false };
    if !first.is_word || QUALIFIERS.contains(&text(first)) {
        return false;
    }
    let mut rest = rest.iter().skip_while(|token| matches!(text(token), b"*" | b"&"));
    rest.next().is_some_and(|token| token.is_word || matches!(text(token), b"<" | b"::" | b"~"))
}

/// Whether a word between these stands behind the parameters of a function.
fn ends_head(before: Option<&[u8]>, after: Option<&[u8]>) -> bool {
    match before {
        Some(b")") => after == Some(b"{"),
        Some(b"const" | b"override") => matches!(after, Some(b"{" | b";")),
        _ => false,
    }
}

/// How many tokens the arguments of a macro are, with their parentheses.
fn arguments<'s>(tokens: &[Token], text: &impl Fn(&Token) -> &'s [u8]) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().take(64).enumerate() {
        match text(token) {
            b"(" => depth += 1,
            b")" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (place > 0).then_some(place + 1);
        }
    }
    None
}

/// Whether nothing else stands on the lines from one token to another.
fn is_line(source: &[u8], first: &Token, last: &Token) -> bool {
    let before = source[..first.start].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
    let after = source[last.end..].iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    before.is_none_or(|byte| *byte == b'\n') && after.is_none_or(|byte| *byte == b'\n')
}

/// The tokens of a source, without comments, texts and directives.
fn tokens(source: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut line_begins = true;
    while let Some(&byte) = source.get(at) {
        let rest = &source[at..];
        let start = at;
        at = match byte {
            b'\n' => {
                line_begins = true;
                at + 1
            }
            _ if byte.is_ascii_whitespace() => at + 1,
            b'#' if line_begins => at + directive(rest),
            b'/' if rest.starts_with(b"//") => at + until(rest, b"\n"),
            b'/' if rest.starts_with(b"/*") => at + (4 + until(&rest[2..], b"*/")).min(rest.len()),
            b'"' | b'\'' => at + string(rest, byte),
            _ if is_word_byte(byte) => {
                let length = rest.iter().take_while(|byte| is_word_byte(**byte)).count();
                tokens.push(Token { start, end: at + length, is_word: !byte.is_ascii_digit() });
                at + length
            }
            _ => {
                let length = if rest.starts_with(b"::") { 2 } else { 1 };
                tokens.push(Token { start, end: at + length, is_word: false });
                at + length
            }
        };
        line_begins &= byte.is_ascii_whitespace();
    }
    tokens
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes before a mark, or all.
fn until(bytes: &[u8], mark: &[u8]) -> usize {
    bytes.windows(mark.len()).position(|window| window == mark).unwrap_or(bytes.len())
}

/// Bytes of a directive, whose lines may end with a backslash.
fn directive(bytes: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let line = until(&bytes[length..], b"\n");
        length += line;
        let goes_on = bytes[..length].trim_ascii_end().ends_with(b"\\");
        if length >= bytes.len() || !goes_on {
            return length;
        }
        length += 1;
    }
}

/// Bytes of a text in quotes. It ends with its line at the latest.
fn string(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += match byte {
            b'\\' => 2,
            b'\n' => return at,
            _ if byte == quote => return at + 1,
            _ => 1,
        };
    }
    // A backslash may be the last byte.
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_before_declarations_are_blanked_and_types_stay() {
        for (source, expected) in [
            ("EXPORT int f(void);", "       int f(void);"),
            ("static INLINE_ T *f();", "static         T *f();"),
            ("API_A API_B std::x f();", "            std::x f();"),
            ("BEGIN_NS\nnamespace a {", "        \nnamespace a {"),
            ("  PROPERTY(a, b)\n  int c;", "                \n  int c;"),
            ("int f() const NOEXCEPT;", "int f() const         ;"),
            ("x = (int) MAX; f() NOEXCEPT {}", "x = (int) MAX; f()          {}"),
            ("BYTE x; FILE *f; DWORD a[3];", "BYTE x; FILE *f; DWORD a[3];"),
            ("TEST(A, B)\n{ }", "TEST(A, B)\n{ }"),
            ("// EXPORT int f\n\"EXPORT int f\"", "// EXPORT int f\n\"EXPORT int f\""),
            ("#define A \\\n EXPORT int f\nint g;", "#define A \\\n EXPORT int f\nint g;"),
            ("BYTE const x;", "BYTE const x;"),
            ("x = FOO + BAR;", "x = FOO + BAR;"),
        ] {
            assert_eq!(String::from_utf8_lossy(&blanked(source.as_bytes())), expected);
        }
    }

    #[test]
    fn hostile_sources_keep_their_length() {
        for source in ["/*", "\"", "'\\", "#a\\", "ABC(", "ABC", "ABC(((", "\\\n#\\\n"] {
            assert_eq!(blanked(source.as_bytes()).len(), source.len(), "{source}");
        }
        let long = "#\\\n".repeat(100_000);
        assert_eq!(blanked(long.as_bytes()).len(), long.len());
    }
}
