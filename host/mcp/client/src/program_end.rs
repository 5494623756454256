//! Explains why a server's program ended before it served.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use toolhold_core::text::{cut, neutral_line};
use toolhold_system::process::CommandResult;

/// Most lines of the last output that are shown.
const MAX_LINES: usize = 3;

/// Longest line with an error in bytes, if the line is shown before the last lines. Longer lines
/// are cut.
const MAX_ERROR_LINE: usize = 300;

/// The exit codes of a shell for a program that can't be executed or isn't found.
const CODE_NOT_EXECUTABLE: i32 = 126;
const CODE_NOT_FOUND: i32 = 127;

/// Bytes at the start of a file that may contain the name of its interpreter.
const MAX_INTERPRETER: usize = 256;

/// Describes the exit code or signal of a program.
pub(crate) fn describe_end(result: &CommandResult) -> String {
    match result.code {
        None => "the server ended".to_owned(),
        // As in a shell, the exit code is 128 plus the number of the signal. Signals have the
        // numbers 1 to 64.
        Some(code @ 129..=192) => format!("the server ended by signal {}", code - 128),
        Some(code) => format!("the server ended with exit code {code}"),
    }
}

/// Returns the last lines of `stderr`, joined to one line. If an earlier line looks like an
/// error, this line comes first.
pub(crate) fn last_words(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (earlier, last) = lines.split_at(lines.len().saturating_sub(MAX_LINES));
    let mut shown_lines: Vec<&str> = Vec::new();
    if let Some(error) = earlier.iter().find(|line| is_error(line)) {
        shown_lines.push(cut(error, MAX_ERROR_LINE));
        shown_lines.push("…");
    }
    shown_lines.extend(last);
    neutral_line(&shown_lines.join(" "))
}

/// Returns whether a line looks like an error, such as `ValueError: …` or `npm error …`.
fn is_error(line: &str) -> bool {
    if line.contains("panicked at") {
        return true;
    }
    let before_colon = match line.split_once(':') {
        Some((before_colon, _)) => before_colon,
        None => line,
    };
    let mut words = before_colon.split(|letter: char| !letter.is_alphanumeric());
    words.any(is_error_word)
}

fn is_error_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["error", "exception", "fatal", "panic"].iter().any(|end| word.ends_with(end))
}

/// A program that may be missing in the sandbox.
pub(crate) struct MissingProgram<'a> {
    pub(crate) server: &'a str,
    pub(crate) program: &'a str,
    /// The working directory of the program.
    pub(crate) directory: &'a Path,
    pub(crate) path: Option<&'a str>,
}

impl MissingProgram<'_> {
    /// Returns advice if a missing program may be the cause. Blocks.
    pub(crate) fn hint(&self, result: &CommandResult, stderr: &str) -> Option<String> {
        if !matches!(result.code, Some(CODE_NOT_EXECUTABLE | CODE_NOT_FOUND)) {
            return None;
        }
        let keys =
            format!("`allowed_paths` and `presets` of [mcp.servers.{}] grant files", self.server);
        if !self.failed_to_start(stderr) {
            // The program started another program, which was missing.
            return Some(format!(
                "a program that the server needs may be outside of the sandbox; {keys}"
            ));
        }
        let Some(path) = self.find() else { return Some(self.describe_search()) };
        // If the file is a link, the sandbox needs the target of the link.
        let real_path = path.canonicalize().unwrap_or(path);
        let file = real_path.display();
        if result.code == Some(CODE_NOT_EXECUTABLE) {
            return Some(format!("{file} has to be executable, and in the sandbox; {keys}"));
        }
        let advice = match read_interpreter(&real_path) {
            Some(interpreter) => format!(
                "{file} exists, but the sandbox doesn't have the file or its interpreter `{}`; \
                 {keys}",
                neutral_line(&interpreter)
            ),
            None => format!("{file} exists, but not in the sandbox; {keys}"),
        };
        Some(advice)
    }

    /// Checks whether the last line says that the program itself wasn't started.
    fn failed_to_start(&self, stderr: &str) -> bool {
        let last_line = stderr.lines().last().unwrap_or_default();
        let error = last_line.strip_prefix(self.program).and_then(|rest| rest.strip_prefix(": "));
        error.is_some_and(|error| error == "not found" || error.contains("(os error "))
    }

    /// Finds the program's file outside of the sandbox, in the working directory or in the folders
    /// of `PATH`.
    fn find(&self) -> Option<PathBuf> {
        if self.program.contains('/') {
            let file = self.directory.join(self.program);
            return if file.is_file() { Some(file) } else { None };
        }
        for folder in std::env::split_paths(self.path?) {
            let file = folder.join(self.program);
            if folder.is_absolute() && file.is_file() {
                return Some(file);
            }
        }
        None
    }

    /// Describes the places where a missing program wasn't found.
    fn describe_search(&self) -> String {
        let program = neutral_line(self.program);
        let place = self.directory.display();
        if self.program.starts_with('/') {
            format!("there is no file {program}")
        } else if self.program.contains('/') {
            format!("the server's working directory {place} has no {program}; write the whole path")
        } else {
            format!("no folder of `PATH` has {program}; write the whole path")
        }
    }
}

/// Reads the interpreter in the first line of a script.
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
