use berth_sdk::process::Finished;
use schemars::JsonSchema;
use serde::Serialize;

/// The most bytes of each output in an answer, as text. Bytes that are not text take more room
/// there than before.
const MAX_OUTPUT: usize = 1 << 20;

/// What begins a sequence that steers a terminal, and what takes a letter back.
const ESCAPE: char = '\u{1b}';
const BACKSPACE: char = '\u{8}';

/// What a command came to, for programs. It is stable: fields may join, none changes.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// What it wrote to its standard output.
    stdout: String,
    /// What it wrote to its standard error.
    stderr: String,
    /// Its exit code; 128 and the signal where one ended it; -1 where it was ended at one of its
    /// bounds.
    exit_code: i32,
    /// Whether it wrote more than is here.
    truncated: bool,
}

impl Envelope {
    pub(crate) fn new(finished: &Finished) -> Self {
        let output = &finished.output;
        let (stdout, stdout_cut) = text(&output.stdout, output.stdout_truncated);
        let (stderr, stderr_cut) = text(&output.stderr, output.stderr_truncated);
        Self {
            stdout,
            stderr,
            exit_code: finished.exit_code.unwrap_or(-1),
            truncated: stdout_cut || stderr_cut,
        }
    }

    /// The text for a model. The outputs are labelled only if there are two.
    pub(crate) fn text(&self) -> String {
        let mut text = match (self.stdout.is_empty(), self.stderr.is_empty()) {
            (_, true) => self.stdout.clone(),
            (true, false) => self.stderr.clone(),
            (false, false) => {
                let end = if self.stdout.ends_with('\n') { "" } else { "\n" };
                format!("stdout:\n{}{end}\nstderr:\n{}", self.stdout, self.stderr)
            }
        };
        if self.truncated {
            add_notice(
                &mut text,
                "The output is cut: of more than a MiB, the beginning and the end are kept. Write it to a file, or have less of it written.",
            );
        }
        text
    }
}

/// Adds a notice in brackets on a line of its own.
pub(crate) fn add_notice(text: &mut String, notice: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push('[');
    text.push_str(notice);
    text.push_str("]\n");
}

/// Output as a text that JSON has room for, and whether it is less than what was written. Bytes
/// that are no text, and characters that steer terminals, are replaced; so they would be by the
/// host. Escapes and backspaces stay: by them the host knows what a terminal would not show. They
/// are replaced if there are very many, since JSON takes six bytes for each.
fn text(bytes: &[u8], truncated: bool) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        let kept =
            |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | ESCAPE | BACKSPACE);
        text.extend(chunk.valid().chars().map(|c| if kept(c) { c } else { '\u{fffd}' }));
        // A character that was cut through is left out.
        let invalid = chunk.invalid();
        let cut_through = truncated
            && chunks.peek().is_none()
            && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if !invalid.is_empty() && !cut_through {
            text.push('\u{fffd}');
        }
    }
    let steers =
        text.bytes().filter(|byte| [ESCAPE, BACKSPACE].map(|c| c as u8).contains(byte)).count();
    if text.len() > MAX_OUTPUT / 4 && steers > text.len() / 6 {
        text = text.replace([ESCAPE, BACKSPACE], "\u{fffd}");
    }
    let cut = text.len() > MAX_OUTPUT;
    text.truncate(text.floor_char_boundary(MAX_OUTPUT));
    (text, truncated || cut)
}

#[cfg(test)]
mod tests {
    use berth_sdk::process::{Ending, Output};

    use super::*;

    fn envelope(stdout: &[u8], stderr: &[u8], truncated: bool) -> Envelope {
        let output = Output {
            stdout: stdout.to_vec(),
            stderr: stderr.to_vec(),
            stdout_truncated: truncated,
            stderr_truncated: false,
        };
        Envelope::new(&Finished {
            exit_code: Some(0),
            ending: Ending::Exited,
            notices: Vec::new(),
            output,
        })
    }

    #[track_caller]
    fn check(stdout: &str, stderr: &str, expected: &str) {
        assert_eq!(envelope(stdout.as_bytes(), stderr.as_bytes(), false).text(), expected);
    }

    #[test]
    fn outputs_are_labelled_only_where_there_are_two() {
        check("", "", "");
        check("a\n", "", "a\n");
        check("", "b", "b");
        check("a", "b", "stdout:\na\n\nstderr:\nb");
        check("a\n", "b\n", "stdout:\na\n\nstderr:\nb\n");
    }

    #[test]
    fn a_cut_is_told_in_the_text_and_splits_no_character() {
        let cut = envelope("aé".as_bytes().split_last().unwrap().1, b"", true);
        assert_eq!((cut.stdout.as_str(), cut.truncated), ("a", true));
        assert!(cut.text().starts_with("a\n[The output is cut:"), "{}", cut.text());
        let broken = envelope(b"a\xc3", b"", false);
        assert_eq!((broken.stdout.as_str(), broken.truncated), ("a\u{fffd}", false));
    }

    #[test]
    fn whatever_is_written_fits_into_an_answer() {
        for byte in [0, 0x1b, 0xff, b'"', b'\\', b'\n', b','] {
            let envelope = envelope(&vec![byte; 1 << 20], &vec![byte; 1 << 20], false);
            let structured = serde_json::to_string(&envelope).unwrap();
            assert!(structured.len() + envelope.text().len() < 8 << 20, "{byte}");
            assert_eq!(envelope.truncated, !(byte.is_ascii_graphic() || byte == b'\n'), "{byte}");
        }
    }
}
