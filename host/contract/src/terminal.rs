//! Removes control sequences from a program's output, and leaves the last state of a line that was
//! overwritten, as a terminal would show.

/// Bytes of a line's state that are compared, and letters at the beginning that two states share.
const LONGEST_STATE: usize = 512;
const SAME_LETTERS: usize = 4;

use std::borrow::Cow;

const ESCAPE: char = '\u{1b}';

/// A text without control sequences (ECMA-48 and xterm's). With `as_lines`, as a terminal would
/// show it: of each line the text after the last carriage return, backspaces applied, and several
/// empty lines as one.
pub fn shown(text: String, as_lines: bool) -> String {
    // Without an early return within a part, many bytes are checked at a time.
    let may_steer = text.as_bytes().chunks(64).any(|part| {
        part.iter().fold(false, |any, byte| any | matches!(byte, 0x1b | b'\r' | 0x08 | 0xc2))
    });
    let text = if may_steer && text.contains([ESCAPE, '\u{9b}']) {
        without_sequences(&text)
    } else {
        text
    };
    if !as_lines {
        return text;
    }
    let text = if may_steer && text.contains(['\r', '\u{8}']) { lines(&text) } else { text };
    let has_empty = ["\n\n\n", "\n \n", "\n\t\n"].iter().any(|lines| text.contains(lines));
    if has_empty { collapsed(&text) } else { text }
}

/// Removes the control sequences of ECMA-48 and xterm.
fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([ESCAPE, '\u{9b}']) {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at..];
        rest = &sequence[length(sequence)..];
    }
    plain.push_str(rest);
    plain
}

/// Length in bytes of the sequence at the start of a text. An unfinished sequence ends as early as
/// it can, so that no text after it is lost.
fn length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    let Some((at, kind)) = letters.next() else { return text.len() };
    if text.starts_with('\u{9b}') {
        return control_length(text, '\u{9b}'.len_utf8());
    }
    match kind {
        '[' => control_length(text, at + 1),
        // A string, up to BEL or ST, on one line.
        ']' | 'P' | 'X' | '^' | '_' => {
            let body = &text[at + 1..];
            match body.find(['\u{7}', ESCAPE, '\u{9c}', '\n']) {
                Some(end) if body[end..].starts_with("\u{1b}\\") => at + 1 + end + 2,
                Some(end) if body[end..].starts_with('\n') || body[end..].starts_with(ESCAPE) => {
                    at + 1 + end
                }
                Some(end) => at + 1 + end + body[end..].chars().next().map_or(0, char::len_utf8),
                None => text.len().min(at + 1),
            }
        }
        // Character sets and the like: intermediate letters, and one more.
        '\u{20}'..='\u{2f}' => {
            let end = text[at..]
                .find(|c: char| !('\u{20}'..='\u{2f}').contains(&c))
                .map_or(text.len(), |end| at + end);
            end + text[end..].chars().next().filter(char::is_ascii).map_or(0, char::len_utf8)
        }
        '\u{30}'..='\u{7e}' => at + 1,
        _ => at,
    }
}

/// Length in bytes of the control sequence at the start of a text, whose parameters begin at
/// `first`.
fn control_length(text: &str, first: usize) -> usize {
    let end = text[first..].char_indices().find(|(_, c)| !('\u{20}'..='\u{3f}').contains(c));
    match end {
        Some((end, '\u{40}'..='\u{7e}')) => first + end + 1,
        Some((end, _)) => first + end,
        None => text.len(),
    }
}

/// Of each line the text after the last carriage return, with backspaces applied. Text that isn't
/// an earlier state of the next one stays on a line of its own: it was written to be read.
fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let mut states = line.trim_end_matches('\r').split('\r').peekable();
        while let Some(state) = states.next() {
            match states.peek() {
                None => shown.push_str(&taken_back(state)),
                Some(next) if is_state(state, next) => {}
                Some(_) => {
                    shown.push_str(&taken_back(state));
                    shown.push('\n');
                }
            }
        }
        shown.push_str(end);
    }
    shown
}

/// Whether a text is an earlier state of the next: a progress bar, a count, or a text with the same
/// first letters.
fn is_state(state: &str, next: &str) -> bool {
    let first = first_letters(state);
    state.len() <= LONGEST_STATE && (first.is_empty() || first_letters(next).starts_with(&first))
}

fn first_letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphabetic()).take(SAME_LETTERS).collect()
}

/// The text after backspaces and overwriting are applied.
fn taken_back(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{8}') {
        return Cow::Borrowed(text);
    }
    let mut letters: Vec<char> = Vec::with_capacity(text.len());
    let mut at = 0_usize;
    for c in text.chars() {
        match letters.get_mut(at) {
            _ if c == '\u{8}' => {
                at = at.saturating_sub(1);
                continue;
            }
            Some(letter) => *letter = c,
            None => letters.push(c),
        }
        at += 1;
    }
    Cow::Owned(letters.into_iter().collect())
}

/// Shows several empty lines as one.
fn collapsed(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut empty = false;
    for line in text.split_inclusive('\n') {
        let is_empty = line.trim().is_empty();
        if !(is_empty && empty) {
            left.push_str(if is_empty { "\n" } else { line });
        }
        empty = is_empty;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(shown(text.to_owned(), true), expected, "{text:?}");
    }

    #[test]
    fn only_control_sequences_are_removed() {
        check("\u{1b}[1;31merror\u{1b}[0m: x", "error: x");
        check("\u{1b}[?25l\u{1b}[2K\u{1b}[38;5;10mgreen\u{1b}[m", "green");
        check("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "alink");
        check("\u{1b}(Ba\u{1b}Mb\u{1b}=c", "abc");
        check("\u{9b}31mx", "x");
        check("a\u{1b}", "a");
        check("a\u{1b}[31", "a");
        check("\u{1b}[31\nb", "\nb");
        check("\u{1b}]0;no end\nerror: b", "\nerror: b");
        check("\u{1b}]0;no end", "0;no end");
        check("\u{1b}é", "é");
        check("[0m is no sequence", "[0m is no sequence");
    }

    #[test]
    fn progress_keeps_its_last_state() {
        check("1%\r2%\r100%\ndone\r\n", "100%\ndone\n");
        check("a 1\ra 2\r\n\r\nc", "a 2\n\nc");
        check("error: linker failed\rprogress 100%\n", "error: linker failed\nprogress 100%\n");
        check("error: x\u{8}\u{8}\u{8}\n", "error: x\n");
        let data = "x".repeat(600);
        check(&format!("1%\r{data}\r2%\n"), &format!("{data}\n2%\n"));
        check("b\u{8}bo\u{8}ol\u{8}ld", "bold");
        check("\u{8}x", "x");
    }

    #[test]
    fn several_empty_lines_become_one() {
        check("a\n\n\n\nb\n \n\t\nc\n", "a\n\nb\n\nc\n");
        check("a\n\nb", "a\n\nb");
        assert_eq!(shown("a\n\n\nb\r\u{1b}[1mc".into(), false), "a\n\n\nb\rc");
    }
}
