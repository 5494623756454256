//! The programs of a language, which the author has installed: how they are found and run.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folders of a project where its own programs are, before those on `PATH`.
const LOCAL: [&str; 2] = [".venv/bin", "node_modules/.bin"];

/// A program: its file, and what is written before the arguments.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) first: Vec<String>,
}

/// Finds a program among those of the project, else on `PATH`.
pub(crate) fn find(project: &Path, name: &str) -> Option<Program> {
    let path = env::var_os("PATH").unwrap_or_default();
    let local = LOCAL.iter().map(|folder| project.join(folder));
    local
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .map(|file| Program { file, first: Vec::new() })
}

/// The error that a program is missing, with the command that installs it.
pub(crate) fn missing(what: &str, install: &str) -> String {
    format!("{what} is missing. To install it:\n  {install}")
}

impl Program {
    /// A command that runs in the project.
    pub(crate) fn command(&self, project: &Path) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(project).args(&self.first);
        command
    }
}

/// Runs a command to its end, shows it and its output, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    // The output of tools is for people. Standard output stays free for the result.
    run_to(command, Stdio::from(std::io::stderr())).map(drop)
}

/// Runs a command as `run` does, and returns its standard output instead of showing it.
pub(crate) fn run_for_output(command: &mut Command) -> Result<Vec<u8>, String> {
    run_to(command, Stdio::piped())
}

fn run_to(command: &mut Command, stdout: Stdio) -> Result<Vec<u8>, String> {
    eprintln!("$ {}", shown(command));
    let name = Path::new(command.get_program()).display().to_string();
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{name} can't be started: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{name} failed ({})", output.status))
    }
}

/// The command as an author would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or(program.as_os_str()))
        .chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_the_project_comes_first() {
        let project = tempfile::tempdir().unwrap();
        let bin = project.path().join(".venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        assert_ne!(find(project.path(), "sh").unwrap().file, bin.join("sh"));
        std::fs::write(bin.join("sh"), "").unwrap();
        assert_eq!(find(project.path(), "sh").unwrap().file, bin.join("sh"));
        assert!(find(project.path(), "no-such-program").is_none());
    }

    #[test]
    fn command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/opt/bin/tool");
        command.args(["-o", "a b", "it's", "plain.c"]);
        assert_eq!(shown(&command), r"tool -o 'a b' 'it'\''s' plain.c");
    }
}
