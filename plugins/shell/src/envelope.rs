//! The result of a command for programs, and its text for a model.

use schemars::JsonSchema;
use serde::Serialize;
use toolhold_sdk::process::Finished;

/// The greatest number of bytes of each output in an answer, as text. Bytes that aren't text become
/// longer there.
const MAX_OUTPUT: usize = 1 << 20;

/// The character that starts a control sequence of terminals.
const ESCAPE: char = '\u{1b}';

/// The character that takes a letter back.
const BACKSPACE: char = '\u{8}';

/// The characters that end a title or a link of a terminal.
const BELL: char = '\u{7}';
const STRING_END: char = '\u{9c}';

/// The control characters that stay in addition to those of lines.
const STEERING: [char; 4] = [ESCAPE, BACKSPACE, BELL, STRING_END];

/// The result of a command, for programs. It is stable: fields may be added, but never change.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// The standard output of the command.
    stdout: String,
    /// The standard error of the command.
    stderr: String,
    /// The exit code; 128 plus the signal if a signal ended the command; -1 if it was stopped at
    /// one of its limits.
    exit_code: i32,
    /// Whether some of the output was left out.
    truncated: bool,
    /// The id of the job, if the command goes on in the background. It has no output and no exit
    /// code yet: they are empty and 0 here.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

impl Envelope {
    /// A command that goes on as a job.
    pub(crate) fn of_job(id: String) -> Self {
        Self {
            stdout: String::new(),
            stderr: String::new(),
            exit_code: 0,
            truncated: false,
            job: Some(id),
        }
    }

    pub(crate) fn new(finished: &Finished) -> Self {
        let output = &finished.output;
        let (stdout, stdout_cut) = text(&output.stdout, output.stdout_truncated);
        let (stderr, stderr_cut) = text(&output.stderr, output.stderr_truncated);
        Self {
            stdout,
            stderr,
            exit_code: finished.exit_code.unwrap_or(-1),
            truncated: stdout_cut || stderr_cut,
            job: None,
        }
    }

    /// The text for a model. The outputs are labelled only if there are two. The host says what is
    /// left out, and where to read it.
    pub(crate) fn text(&self) -> String {
        match (self.stdout.is_empty(), self.stderr.is_empty()) {
            (_, true) => self.stdout.clone(),
            (true, false) => self.stderr.clone(),
            (false, false) => {
                let end = if self.stdout.ends_with('\n') { "" } else { "\n" };
                format!("stdout:\n{}{end}\nstderr:\n{}", self.stdout, self.stderr)
            }
        }
    }
}

/// Converts output to a text that fits into JSON, and says whether some of it was left out.
///
/// Bytes that aren't text and control characters are replaced, as the host does too. Those that
/// begin or end a control sequence stay, and so do backspaces, since the host needs them to find
/// the text that a terminal would not show: of a sequence without its end, the text behind it would
/// be lost. If there are very many, they are replaced too, since JSON takes six bytes for each.
fn text(bytes: &[u8], truncated: bool) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.extend(chunk.valid().chars().map(|c| if is_kept(c) { c } else { '\u{fffd}' }));
        // A character of which only a part was kept is left out.
        let invalid = chunk.invalid();
        let cut_through = truncated
            && chunks.peek().is_none()
            && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if !invalid.is_empty() && !cut_through {
            text.push('\u{fffd}');
        }
    }
    let steers = text.chars().filter(|c| STEERING.contains(c)).count();
    if text.len() > MAX_OUTPUT / 4 && steers > text.len() / 6 {
        text = text.replace(STEERING, "\u{fffd}");
    }
    let cut = text.len() > MAX_OUTPUT;
    text.truncate(text.floor_char_boundary(MAX_OUTPUT));
    (text, truncated || cut)
}

fn is_kept(c: char) -> bool {
    !c.is_control() || matches!(c, '\n' | '\r' | '\t') || STEERING.contains(&c)
}

#[cfg(test)]
mod tests {
    use toolhold_sdk::process::{Ending, Output};

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
    fn outputs_are_labelled_only_if_both_exist() {
        check("", "", "");
        check("a\n", "", "a\n");
        check("", "b", "b");
        check("a", "b", "stdout:\na\n\nstderr:\nb");
        check("a\n", "b\n", "stdout:\na\n\nstderr:\nb\n");
    }

    #[test]
    fn cut_is_announced_and_splits_no_character() {
        let cut = envelope("aé".as_bytes().split_last().unwrap().1, b"", true);
        assert_eq!((cut.stdout.as_str(), cut.truncated), ("a", true));
        let broken = envelope(b"a\xc3", b"", false);
        assert_eq!((broken.stdout.as_str(), broken.truncated), ("a\u{fffd}", false));
    }

    #[test]
    fn ends_of_control_sequences_stay() {
        let text = "A\u{1b}]0;x\u{7}B\u{1b}]0;x\u{9c}C\n";
        check(text, "", text);
    }

    #[test]
    fn any_output_fits_into_an_answer() {
        for byte in [0, 7, 0x1b, 0xff, b'"', b'\\', b'\n', b','] {
            let envelope = envelope(&vec![byte; 1 << 20], &vec![byte; 1 << 20], false);
            let structured = serde_json::to_string(&envelope).unwrap();
            assert!(structured.len() + envelope.text().len() < 8 << 20, "{byte}");
            assert_eq!(envelope.truncated, !(byte.is_ascii_graphic() || byte == b'\n'), "{byte}");
        }
    }
}
