//! Explains why a server's program ended before it served. The explanation contains the program's
//! last output and a hint.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use toolhold_core::text::{cut, neutral_line};
use toolhold_system::process::CommandResult;

/// Most lines of the program's last output.
const MAX_LINES: usize = 3;

/// Bytes at the start of a file that are searched for the name of its interpreter.
const MAX_INTERPRETER: usize = 256;

/// Describes the end of a program: its exit code or its signal.
pub(crate) fn describe_end(result: &CommandResult) -> String {
    match result.code {
        None => "it ended".to_owned(),
        Some(code @ 129..=192) => format!("it ended by signal {}", code - 128),
        Some(code) => format!("it ended with exit code {code}"),
    }
}

/// Returns the last lines of the error output. The first line that looks like the error comes
/// before them.
pub(crate) fn last_words(complaint: &str) -> String {
    let lines: Vec<&str> =
        complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (earlier, last) = lines.split_at(lines.len().saturating_sub(MAX_LINES));
    let mut shown: Vec<&str> = Vec::new();
    if let Some(error) = earlier.iter().find(|line| is_error(line)) {
        shown.extend([cut(error, 300), "…"]);
    }
    shown.extend(last);
    neutral_line(&shown.join(" "))
}

/// Checks whether a line looks like an error in a common language, such as `ValueError: …` or `npm
/// error …`.
fn is_error(line: &str) -> bool {
    if line.contains("panicked at") {
        return true;
    }
    let head = line.split_once(':').map_or(line, |(head, _)| head);
    let mut words = head.split(|letter: char| !letter.is_alphanumeric());
    words.any(is_error_word)
}

fn is_error_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["error", "exception", "fatal", "panic"].iter().any(|end| word.ends_with(end))
}

/// A program that the sandbox may not have found.
pub(crate) struct Missing<'a> {
    /// The name of the server.
    pub(crate) server: &'a str,
    /// The program that was to be started.
    pub(crate) program: &'a str,
    /// The folder in which the program was started.
    pub(crate) directory: &'a Path,
    /// The variable `PATH` of the program.
    pub(crate) path: Option<&'a str>,
}

impl Missing<'_> {
    /// Returns advice if a missing program is the reason for this result and this last output.
    /// Blocks.
    pub(crate) fn hint(&self, result: &CommandResult, complaint: &str) -> Option<String> {
        if !matches!(result.code, Some(126 | 127)) {
            return None;
        }
        let keys =
            format!("`allowed_paths` and `presets` of [mcp.servers.{}] grant files", self.server);
        if !self.failed_to_start(complaint) {
            // The program ran, and missed another program.
            return Some(format!("a program that it needs may be outside of the sandbox; {keys}"));
        }
        let Some(path) = self.find() else { return Some(self.describe_search()) };
        // The sandbox needs the target of a link.
        let real_path = path.canonicalize().unwrap_or(path);
        let file = real_path.display();
        if result.code == Some(126) {
            return Some(format!("{file} has to be executable, and in the sandbox; {keys}"));
        }
        Some(match read_interpreter(&real_path) {
            Some(interpreter) => format!(
                "{file} is there, but the sandbox doesn't have it or its interpreter `{}`; {keys}",
                neutral_line(&interpreter)
            ),
            None => format!("{file} is there, but not in the sandbox; {keys}"),
        })
    }

    /// Checks whether the last line of a complaint says that the program itself wasn't started.
    fn failed_to_start(&self, complaint: &str) -> bool {
        let last_line = complaint.lines().last().unwrap_or_default();
        let error = last_line.strip_prefix(self.program).and_then(|rest| rest.strip_prefix(": "));
        error.is_some_and(|error| error == "not found" || error.contains("(os error "))
    }

    /// Finds the program outside of the sandbox.
    fn find(&self) -> Option<PathBuf> {
        if self.program.contains('/') {
            let file = self.directory.join(self.program);
            return file.is_file().then_some(file);
        }
        let folders = std::env::split_paths(self.path?).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(self.program)).find(|file| file.is_file())
    }

    /// Describes where a program was searched that isn't found anywhere.
    fn describe_search(&self) -> String {
        let program = neutral_line(self.program);
        let place = self.directory.display();
        if self.program.starts_with('/') {
            format!("there is no file {program}")
        } else if self.program.contains('/') {
            format!("its working directory {place} has no {program}; write its whole path")
        } else {
            format!("no folder of `PATH` has {program}; write its whole path")
        }
    }
}

/// Reads the program that a script names as its interpreter.
fn read_interpreter(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    fs::File::open(file).ok()?.take(MAX_INTERPRETER as u64).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_have_the_error_and_the_end() {
        let node = "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find \
                    module '/x'\n    at a\n    at b\n  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v20.20.2\n";
        assert_eq!(
            last_words(node),
            "Error: Cannot find module '/x' … code: 'MODULE_NOT_FOUND' } Node.js v20.20.2"
        );
        let python = "Traceback (most recent call last):\n  File \"a\"\n    x()\nNameError: x\n";
        assert_eq!(last_words(python), "File \"a\" x() NameError: x");
        assert_eq!(last_words(""), "");
        assert_eq!(last_words("one\ntwo"), "one two");
    }
}
