//! Removes control sequences from a program's output. Only the last state of an overwritten line
//! stays, as in a terminal.

use std::borrow::Cow;

/// Maximum length of an overwritten state of a line in bytes. A longer text is data, not progress,
/// and stays.
const LONGEST_STATE: usize = 512;

/// Number of first letters that two states of one progress message have in common.
const SAME_LETTERS: usize = 4;

const BACKSPACE: char = '\u{8}';
const ESCAPE: char = '\u{1b}';

/// The control sequence introducer: one character with the meaning of `ESC [`.
const CSI: char = '\u{9b}';

/// Removes control sequences (of ECMA-48 and xterm) from a text.
///
/// With `as_lines`, each line ends up as in a terminal: backspaces are applied, and a progress
/// message shows its last state. Several empty lines become one.
pub fn shown(mut text: String, as_lines: bool) -> String {
    let has_controls = has_control_bytes(text.as_bytes());
    if has_controls && text.contains([ESCAPE, CSI]) {
        text = without_sequences(&text);
    }
    if !as_lines {
        return text;
    }
    if has_controls && text.contains(['\r', BACKSPACE]) {
        text = last_states(&text);
    }
    // A quick search for the usual cases: two empty lines, or a line of one space or tab.
    let has_empty_lines = ["\n\n\n", "\n \n", "\n\t\n"].iter().any(|lines| text.contains(lines));
    if has_empty_lines { collapse_empty_lines(&text) } else { text }
}

/// Checks whether a text has a byte with which a control character can start. Each chunk is checked
/// without an early return, so that the compiler can use vector instructions.
fn has_control_bytes(text: &[u8]) -> bool {
    text.chunks(64).any(|chunk| {
        chunk.iter().fold(false, |any, byte| any | matches!(byte, 0x1b | b'\r' | 0x08 | 0xc2))
    })
}

fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find([ESCAPE, CSI]) {
        let (before, sequence) = rest.split_at(start);
        plain.push_str(before);
        rest = &sequence[sequence_length(sequence)..];
    }
    plain.push_str(rest);
    plain
}

/// Returns the length in bytes of the control sequence at the start of a text. An unfinished
/// sequence ends as early as possible, because the text after it must stay.
fn sequence_length(text: &str) -> usize {
    let Some((kind_start, kind)) = text.char_indices().nth(1) else { return text.len() };
    if text.starts_with(CSI) {
        return csi_length(text, CSI.len_utf8());
    }
    let kind_end = kind_start + kind.len_utf8();
    match kind {
        '[' => csi_length(text, kind_end),
        // These letters start a string, such as the title of a window.
        ']' | 'P' | 'X' | '^' | '_' => kind_end + control_string_length(&text[kind_end..]),
        '\u{20}'..='\u{2f}' => character_set_length(text, kind_start),
        // The sequence has only these two letters.
        '\u{30}'..='\u{7e}' => kind_end,
        _ => kind_start,
    }
}

/// Returns the length in bytes of the control string at the start of `text`, including its
/// terminator BEL or ST. Another sequence or a line end also ends the string. Returns 0 for a
/// string without an end.
fn control_string_length(text: &str) -> usize {
    let Some(end) = text.find(['\u{7}', ESCAPE, '\u{9c}', '\n']) else { return 0 };
    // BEL, ST as one character, and ST as two characters.
    for terminator in ["\u{7}", "\u{9c}", "\u{1b}\\"] {
        if text[end..].starts_with(terminator) {
            return end + terminator.len();
        }
    }
    end
}

/// Returns the length in bytes of the sequence at the start of a text that begins with `ESC [` or
/// U+9B. `first` is the offset after these characters.
fn csi_length(text: &str, first: usize) -> usize {
    // ECMA-48: a sequence ends with one final letter, after parameters and intermediate letters.
    let from_last = text[first..].trim_start_matches(|c: char| matches!(c, '\u{20}'..='\u{3f}'));
    let last_start = text.len() - from_last.len();
    match from_last.chars().next() {
        Some('\u{40}'..='\u{7e}') => last_start + 1,
        _ => last_start,
    }
}

/// Returns the length in bytes of a sequence that selects a character set. Its intermediate letters
/// start at the offset `first`.
fn character_set_length(text: &str, first: usize) -> usize {
    let from_last = text[first..].trim_start_matches(|c: char| matches!(c, '\u{20}'..='\u{2f}'));
    let last_start = text.len() - from_last.len();
    // A final letter is always ASCII.
    if from_last.starts_with(|c: char| c.is_ascii()) { last_start + 1 } else { last_start }
}

/// Returns the last state of each line, with backspaces applied. Overwritten text that isn't a
/// progress message gets its own line.
fn last_states(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let line_end = &line[content.len()..];
        let mut states = content.trim_end_matches('\r').split('\r').peekable();
        while let Some(state) = states.next() {
            let next = states.peek();
            // The next state shows the same progress later, so this state isn't needed.
            if next.is_some_and(|next| is_earlier_state(state, next)) {
                continue;
            }
            shown.push_str(&apply_backspaces(state));
            if next.is_some() {
                shown.push('\n');
            }
        }
        shown.push_str(line_end);
    }
    shown
}

/// Checks whether `state` is an earlier state of the progress message `next`: a bar, a count, or a
/// text with the same first letters.
fn is_earlier_state(state: &str, next: &str) -> bool {
    // The first letters of a bar are the empty text, with which every text starts.
    state.len() <= LONGEST_STATE && first_letters(next).starts_with(&first_letters(state))
}

fn first_letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphabetic()).take(SAME_LETTERS).collect()
}

/// Moves one letter back at each backspace. Later letters replace the letters there.
fn apply_backspaces(text: &str) -> Cow<'_, str> {
    if !text.contains(BACKSPACE) {
        return Cow::Borrowed(text);
    }
    let mut letters: Vec<char> = Vec::with_capacity(text.len());
    let mut column = 0_usize;
    for c in text.chars() {
        if c == BACKSPACE {
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

/// Replaces several empty lines by one empty line. A line of whitespace is an empty line.
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
