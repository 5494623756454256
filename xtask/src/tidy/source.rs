//! A parser for Rust sources, as far as the rules need it. It separates code, comments and
//! literals, and finds the lines of tests.

/// One file. `code` and `comments` have the same line breaks as the file, so that lines have the
/// same numbers.
pub(crate) struct Source {
    /// The code. Comments and literals are blank.
    pub(crate) code: String,
    /// The comments. The rest is blank.
    pub(crate) comments: String,
    /// Ranges of lines that are compiled for tests only, from 1 and inclusive.
    tests: Vec<(usize, usize)>,
}

/// The part of the source that a character belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    /// Inside a string or character literal.
    Literal,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Source {
        let characters: Vec<char> = text.chars().collect();
        let parts = classify(&characters);
        let code = only(Part::Code, &characters, &parts);
        let tests = test_ranges(&code);
        Source { code, comments: only(Part::Comment, &characters, &parts), tests }
    }

    /// Whether the line is in an item marked `#[cfg(test)]`. Lines count from 1.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// Every path in the code, with its line. Imports are expanded: `use a::{b, c::d}` is `a::b`
    /// and `a::c::d`.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        // The text before the brace of each open group. A block counts as a group with an empty
        // text.
        let mut groups: Vec<String> = Vec::new();
        let mut path = String::new();
        let mut path_line = 1;
        let mut line = 1;
        let mut rest = self.code.as_str();
        while let Some(c) = rest.chars().next() {
            let length = if c.is_alphanumeric() || c == '_' {
                let end =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                if !path.is_empty() && !path.ends_with("::") {
                    // Two words in a row, such as `use std` or `a::b as c`. The first isn't part of
                    // the path that the second one begins.
                    if path.contains("::") {
                        found.push((path_line, std::mem::take(&mut path)));
                    }
                    path = groups.last().cloned().unwrap_or_default();
                }
                if path.is_empty() || groups.last() == Some(&path) {
                    path_line = line;
                }
                path.push_str(&rest[..end]);
                end
            } else if rest.starts_with("::") {
                path.push_str("::");
                2
            } else {
                if !c.is_whitespace() {
                    let opens = c == '{';
                    if opens {
                        groups.push(if path.ends_with("::") {
                            path.clone()
                        } else {
                            String::new()
                        });
                    } else if !path.is_empty() && !path.ends_with("::") {
                        found.push((path_line, std::mem::take(&mut path)));
                    }
                    if c == '}' {
                        groups.pop();
                    }
                    path = groups.last().cloned().unwrap_or_default();
                }
                if c == '\n' {
                    line += 1;
                }
                c.len_utf8()
            };
            rest = &rest[length..];
        }
        found
    }
}

/// The text with blanks in place of the other parts. Line breaks stay.
fn only(wanted: Part, characters: &[char], parts: &[Part]) -> String {
    characters
        .iter()
        .zip(parts)
        .map(|(c, part)| if *c == '\n' || *part == wanted { *c } else { ' ' })
        .collect()
}

fn classify(text: &[char]) -> Vec<Part> {
    let mut parts = vec![Part::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (end, part) = match text[at] {
            '/' if text.get(at + 1) == Some(&'/') => (find(text, at, &['\n']), Part::Comment),
            '/' if text.get(at + 1) == Some(&'*') => (block_comment_end(text, at), Part::Comment),
            '"' => (string_end(text, at + 1), Part::Literal),
            'r' | 'b' | 'c' if !follows_word(text, at) => match raw_string_end(text, at) {
                Some(end) => (end, Part::Literal),
                None => (at + 1, Part::Code),
            },
            '\'' => match character_end(text, at) {
                Some(end) => (end, Part::Literal),
                None => (at + 1, Part::Code),
            },
            _ => (at + 1, Part::Code),
        };
        parts[at..end].fill(part);
        at = end;
    }
    parts
}

/// The place of the first `what` at or after `from`. The end of the text if there is none.
fn find(text: &[char], from: usize, what: &[char]) -> usize {
    (from..text.len()).find(|at| text[*at..].starts_with(what)).unwrap_or(text.len())
}

fn block_comment_end(text: &[char], from: usize) -> usize {
    let mut at = from + 2;
    let mut depth = 1;
    while at < text.len() && depth > 0 {
        if text[at..].starts_with(&['/', '*']) {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(&['*', '/']) {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    at.min(text.len())
}

fn string_end(text: &[char], from: usize) -> usize {
    let mut at = from;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// The end of a raw string that starts here: `r"…"`, `r#"…"#`, `br"…"` or `cr"…"`. `None` if none
/// does.
fn raw_string_end(text: &[char], from: usize) -> Option<usize> {
    let mut at = from + usize::from(text[from] != 'r');
    if text.get(at) != Some(&'r') {
        return None;
    }
    at += 1;
    let hashes = text[at..].iter().take_while(|c| **c == '#').count();
    at += hashes;
    if text.get(at) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    Some((find(text, at + 1, &closing) + closing.len()).min(text.len()))
}

/// The end of a character literal that starts here. `None` if the quote starts a lifetime.
fn character_end(text: &[char], from: usize) -> Option<usize> {
    match (text.get(from + 1)?, text.get(from + 2)?) {
        ('\\', _) => Some((find(text, from + 3, &['\'']) + 1).min(text.len())),
        (_, '\'') => Some(from + 3),
        _ => None,
    }
}

fn follows_word(text: &[char], at: usize) -> bool {
    at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_')
}

/// The lines of each item marked `#[cfg(test)]`, up to its `;` or its closing brace.
fn test_ranges(code: &str) -> Vec<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let mut ranges = Vec::new();
    for (start, _) in code.match_indices(MARK) {
        let mut depth = 0;
        let mut end = code.len();
        for (offset, c) in code[start + MARK.len()..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' => {}
                _ => continue,
            }
            if depth == 0 {
                end = start + MARK.len() + offset;
                break;
            }
        }
        ranges.push((line_at(code, start), line_at(code, end)));
    }
    ranges
}

/// The number of the line at a place, from 1.
fn line_at(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[track_caller]
    fn check_code(text: &str, expected: &str) {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&Source::parse(text).code), expected);
    }

    #[test]
    fn comments_and_literals_are_blank_in_code() {
        check_code("a // unsafe\nb", "a b");
        check_code("a /* x /* y */ z */ b", "a b");
        check_code(r#"f("unsafe \" {", b"x", 'y', '\'', '"')"#, "f( , b , , , )");
        check_code(r##"f(r#"a "quoted" word"#, br"x\") + rest"##, "f( , ) + rest");
        check_code(
            "fn f<'a>(x: &'a str) -> &'static str {}",
            "fn f<'a>(x: &'a str) -> &'static str {}",
        );
        check_code("for_r\"x\"", "for_r");
        check_code("\"never closed", "");
        check_code("/* never closed", "");
    }

    #[test]
    fn comments_keep_their_line_numbers() {
        let source = Source::parse("let a = \"// not one\";\n// one\n/* two\n three */ b");
        let lines: Vec<&str> = source.comments.lines().map(str::trim).collect();
        assert_eq!(lines, ["", "// one", "/* two", "three */"]);
    }

    #[test]
    fn test_module_ends_at_its_closing_brace() {
        let source = Source::parse(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { \"}\"; }\n}\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}\n",
        );
        let tests: Vec<usize> = (1..=9).filter(|line| source.is_test(*line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 7, 8]);
    }

    #[test]
    fn imports_are_expanded() {
        let source = Source::parse(
            "use std::{fs, io::{self, Read}, path::Path};\nfn f() {\n std::fs::read(a::b); x.y() }\nuse c::d as e;\nimpl g::H for I {}\n",
        );
        let found = source.paths();
        for expected in [
            (1, "std::fs"),
            (1, "std::io::self"),
            (1, "std::io::Read"),
            (1, "std::path::Path"),
            (3, "std::fs::read"),
            (3, "a::b"),
            (4, "c::d"),
            (5, "g::H"),
        ] {
            assert!(
                found.iter().any(|(line, path)| (*line, path.as_str()) == expected),
                "{expected:?} is missing in {found:?}"
            );
        }
        assert!(!found.iter().any(|(_, path)| path == "std::x" || path == "std::f"), "{found:?}");
    }
}
