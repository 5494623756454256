//! Removes control sequences from a program's output, and leaves the last state of a line that was
//! overwritten, as a terminal would show.

use std::borrow::Cow;

/// Most bytes of an earlier state of a line. Longer text is data, not progress.
const LONGEST_STATE: usize = 512;

/// Number of first letters that two states of a line share.
const SAME_LETTERS: usize = 4;

const ESCAPE: char = '\u{1b}';

/// Removes the control sequences (ECMA-48 and xterm's) from a text.
///
/// With `as_lines`, also returns the lines as a terminal would show them: only the text after the
/// last carriage return, with backspaces applied, and several empty lines as one.
pub fn shown(mut text: String, as_lines: bool) -> String {
    let has_controls = has_control_bytes(text.as_bytes());
    if has_controls && text.contains([ESCAPE, '\u{9b}']) {
        text = without_sequences(&text);
    }
    if !as_lines {
        return text;
    }
    if has_controls && text.contains(['\r', '\u{8}']) {
        text = last_states(&text);
    }
    let has_empty_lines = ["\n\n\n", "\n \n", "\n\t\n"].iter().any(|lines| text.contains(lines));
    if has_empty_lines { collapse_empty_lines(&text) } else { text }
}

/// Checks whether a text has a control character, or a byte with which a control character can
/// start. There is no early return within a chunk, so that the compiler checks many bytes at a
/// time.
fn has_control_bytes(text: &[u8]) -> bool {
    text.chunks(64).any(|chunk| {
        chunk.iter().fold(false, |any, byte| any | matches!(byte, 0x1b | b'\r' | 0x08 | 0xc2))
    })
}

/// Removes the control sequences of ECMA-48 and xterm.
fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([ESCAPE, '\u{9b}']) {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at..];
        rest = &sequence[sequence_length(sequence)..];
    }
    plain.push_str(rest);
    plain
}

/// Returns the length in bytes of the sequence at the start of a text. An unfinished sequence ends
/// as early as possible, so that no text after it is removed.
fn sequence_length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    let Some((at, kind)) = letters.next() else { return text.len() };
    if text.starts_with('\u{9b}') {
        return control_length(text, '\u{9b}'.len_utf8());
    }
    match kind {
        '[' => control_length(text, at + 1),
        ']' | 'P' | 'X' | '^' | '_' => at + 1 + control_string_length(&text[at + 1..]),
        // Sequences such as the choice of a character set have intermediate letters, and a final
        // one.
        '\u{20}'..='\u{2f}' => {
            let mut letters = text[at..].char_indices();
            match letters.find(|(_, c)| !('\u{20}'..='\u{2f}').contains(c)) {
                Some((end, last)) if last.is_ascii() => at + end + 1,
                Some((end, _)) => at + end,
                None => text.len(),
            }
        }
        '\u{30}'..='\u{7e}' => at + 1,
        _ => at,
    }
}

/// Returns the length in bytes of the control string at the start of `text`, including its
/// terminator BEL or ST. Another sequence or a line end also ends the string. Returns 0 if the
/// string has no end.
fn control_string_length(text: &str) -> usize {
    let Some(end) = text.find(['\u{7}', ESCAPE, '\u{9c}', '\n']) else { return 0 };
    let terminators = ["\u{7}", "\u{9c}", "\u{1b}\\"];
    let terminator = terminators.into_iter().find(|one| text[end..].starts_with(one));
    end + terminator.map_or(0, str::len)
}

/// Returns the length in bytes of the control sequence at the start of a text, whose parameters
/// start at `first`.
fn control_length(text: &str, first: usize) -> usize {
    let end = text[first..].char_indices().find(|(_, c)| !('\u{20}'..='\u{3f}').contains(c));
    match end {
        Some((end, '\u{40}'..='\u{7e}')) => first + end + 1,
        Some((end, _)) => first + end,
        None => text.len(),
    }
}

/// Returns the last state of each line: the text after the last carriage return, with backspaces
/// applied. Text that isn't an earlier state of the next text is meant to be read, so it gets its
/// own line.
fn last_states(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let mut states = content.trim_end_matches('\r').split('\r').peekable();
        while let Some(state) = states.next() {
            match states.peek() {
                None => shown.push_str(&apply_backspaces(state)),
                Some(next) if is_state(state, next) => {}
                Some(_) => {
                    shown.push_str(&apply_backspaces(state));
                    shown.push('\n');
                }
            }
        }
        shown.push_str(&line[content.len()..]);
    }
    shown
}

/// Checks whether a text is an earlier state of the next text: a progress bar, a count, or a text
/// with the same first letters.
fn is_state(state: &str, next: &str) -> bool {
    // A text without letters matches every next text, since it has no first letters to compare.
    state.len() <= LONGEST_STATE && first_letters(next).starts_with(&first_letters(state))
}

fn first_letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphabetic()).take(SAME_LETTERS).collect()
}

/// Returns the text after backspaces and overwriting.
fn apply_backspaces(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{8}') {
        return Cow::Borrowed(text);
    }
    let mut letters: Vec<char> = Vec::with_capacity(text.len());
    let mut column = 0_usize;
    for c in text.chars() {
        if c == '\u{8}' {
            column = column.saturating_sub(1);
            continue;
        }
        match letters.get_mut(column) {
            Some(letter) => *letter = c,
            None => letters.push(c),
        }
        column += 1;
    }
    Cow::Owned(letters.into_iter().collect())
}

/// Replaces several empty lines with one.
fn collapse_empty_lines(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    let mut after_empty = false;
    for line in text.split_inclusive('\n') {
        let is_empty = line.trim().is_empty();
        if !is_empty {
            collapsed.push_str(line);
        } else if !after_empty {
            collapsed.push('\n');
        }
        after_empty = is_empty;
    }
    collapsed
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
