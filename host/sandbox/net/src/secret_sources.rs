//! Reads a secret from its source: a variable, a file or a program.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use toolhold_contract::text::shell_word;
use toolhold_policy::egress::SecretRule;
use zeroize::Zeroizing;

use super::program::{SecretProgramError, find, output, search_places};

const MAX_BYTES: usize = 4096;

/// Maximum length of a line end after a secret, in bytes: a carriage return and a newline.
const MAX_LINE_END: usize = 2;

/// The permission bits of the group and of other users.
const OTHER_USERS: u32 = 0o077;

/// Minimum length of a secret in bytes, because answers are searched for secrets, and contain
/// shorter texts by chance.
const MIN_BYTES: usize = 6;

/// Time limit of a program that prints a secret. It is long, because a person may have to unlock a
/// password store.
const PROGRAM_TIME: Duration = Duration::from_secs(60);

/// A secret for requests.
#[derive(Clone, Debug)]
pub struct Secret {
    /// The requests that get the secret.
    pub rule: SecretRule,
    /// The source of the secret, which is read at the first use.
    pub source: SecretSource,
}

/// The value of a secret. A drop overwrites its bytes, and `Debug` doesn't show them.
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Creates a value from a text.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Returns the text of the secret.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// The source of a secret.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// An environment variable.
    Variable {
        /// The name of the variable.
        name: String,
        /// The value of the variable. `None` if the variable isn't set.
        value: Option<Arc<SecretValue>>,
    },
    /// The content of a file, without a final line end.
    File(PathBuf),
    /// The output of a program, without a final line end. Contains the program and its arguments.
    Command(Vec<String>),
}

impl SecretSource {
    /// Returns the paths at which the program of the secret is searched, up to the first program. A
    /// program that is put at an earlier path would run instead.
    pub fn program_places(&self) -> Vec<PathBuf> {
        let Self::Command(words) = self else { return Vec::new() };
        let program = words.first().map_or("", String::as_str);
        search_places(program, &path())
    }
}

/// The reason why a secret can't be read, without any part of the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable isn't set.
    #[error("the variable `{0}` is not set in Toolhold's environment")]
    NoVariable(String),
    /// The value of the variable isn't a secret.
    #[error("the variable `{0}` {1}")]
    Variable(String, #[source] SecretFormError),
    /// The system can't read the file.
    #[error("{} can't be read: {source}", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file isn't a regular file.
    #[error("{} is not a regular file", .0.display())]
    FileKind(PathBuf),
    /// The content of the file isn't a secret.
    #[error("the file {} {source}", .path.display())]
    FileContent {
        /// The path of the file.
        path: PathBuf,
        /// The fault of the secret.
        source: SecretFormError,
    },
    /// The command is empty.
    #[error("the command has no program")]
    NoProgram,
    /// The program isn't found.
    #[error(
        "program `{0}` not found; give its path, or the name of a program in an absolute folder of PATH"
    )]
    ProgramNotFound(String),
    /// The program doesn't print a secret.
    #[error("the program `{0}` {1}")]
    Program(String, #[source] SecretProgramError),
    /// The output of the program isn't a secret.
    #[error("the output of the program `{0}` {1}")]
    Output(String, #[source] SecretFormError),
}

/// The fault of a text that can't be a secret. The message follows the name of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFormError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text is too short.
    #[error("is too short for a secret: the minimum is {MIN_BYTES} bytes")]
    Short,
    /// The text is too long.
    #[error("is too long for a secret: the limit is {MAX_BYTES} bytes")]
    Long,
    /// A header can't contain a character of the text.
    #[error(
        "has several lines, a leading or trailing space, or a character that headers don't allow; \
         a secret is one line of printable ASCII"
    )]
    Characters,
}

/// Reads a secret. Blocks, because it may run a program.
///
/// # Errors
///
/// Returns the reason, without any part of the secret.
pub fn read(source: &SecretSource) -> Result<Arc<SecretValue>, SecretError> {
    read_with(source, &path(), PROGRAM_TIME)
}

/// Checks a source without reading the secret or running a program. Returns a warning about a
/// source that works but should be fixed.
///
/// # Errors
///
/// Returns the reason why the source can't work.
pub fn examine(source: &SecretSource) -> Result<Option<String>, SecretError> {
    match source {
        SecretSource::Variable { value: Some(_), .. } => Ok(None),
        SecretSource::Variable { name, value: None } => Err(SecretError::NoVariable(name.clone())),
        SecretSource::File(path) => {
            let (_, mode) = open_file(path)?;
            Ok(mode_warning(path, mode))
        }
        SecretSource::Command(words) => {
            let program = words.first().map_or("", String::as_str);
            match find(program, &path()) {
                Some(_) => Ok(None),
                None => Err(SecretError::ProgramNotFound(program.to_owned())),
            }
        }
    }
}

fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// Reads a secret. `path` lists the folders of programs, and `time` limits the time of a program.
fn read_with(
    source: &SecretSource,
    path: &OsStr,
    time: Duration,
) -> Result<Arc<SecretValue>, SecretError> {
    match source {
        SecretSource::Variable { name, value } => {
            let value = value.as_ref().ok_or_else(|| SecretError::NoVariable(name.clone()))?;
            validate(value.expose().as_bytes())
                .map_err(|error| SecretError::Variable(name.clone(), error))?;
            Ok(Arc::clone(value))
        }
        SecretSource::File(path) => read_file(path),
        SecretSource::Command(words) => {
            let (name, arguments) = words.split_first().ok_or(SecretError::NoProgram)?;
            let program =
                find(name, path).ok_or_else(|| SecretError::ProgramNotFound(name.clone()))?;
            let bytes = output(&program, arguments, time, MAX_BYTES)
                .map_err(|error| SecretError::Program(name.clone(), error))?;
            parse_value(&bytes).map_err(|error| SecretError::Output(name.clone(), error))
        }
    }
}

/// Reads a secret from a file. Warns if other users may access the file.
fn read_file(path: &Path) -> Result<Arc<SecretValue>, SecretError> {
    let (file, mode) = open_file(path)?;
    if let Some(warning) = mode_warning(path, mode) {
        tracing::warn!("{warning}");
    }
    // The buffer never grows, because growing leaves a copy of the secret in memory.
    let max_read = MAX_BYTES + MAX_LINE_END;
    let mut bytes = Zeroizing::new(Vec::with_capacity(max_read));
    file.take(max_read as u64)
        .read_to_end(&mut bytes)
        .map_err(|source| SecretError::File { path: path.to_owned(), source })?;
    parse_value(&bytes).map_err(|source| SecretError::FileContent { path: path.to_owned(), source })
}

/// Returns the secret in the bytes of a file or an output. Drops one line end.
fn parse_value(bytes: &[u8]) -> Result<Arc<SecretValue>, SecretFormError> {
    let mut line = bytes;
    if let Some(without_newline) = bytes.strip_suffix(b"\n") {
        line = without_newline.strip_suffix(b"\r").unwrap_or(without_newline);
    }
    let text = validate(line)?;
    Ok(Arc::new(SecretValue::new(text.to_owned())))
}

/// Checks the length of a secret, and that a header can contain the secret unchanged, for example
/// without a line end. Returns the secret as text.
fn validate(bytes: &[u8]) -> Result<&str, SecretFormError> {
    match bytes.len() {
        0 => return Err(SecretFormError::Empty),
        1..MIN_BYTES => return Err(SecretFormError::Short),
        MIN_BYTES..=MAX_BYTES => {}
        _ => return Err(SecretFormError::Long),
    }
    let is_printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    let has_outer_space = bytes.starts_with(b" ") || bytes.ends_with(b" ");
    if !is_printable || has_outer_space {
        return Err(SecretFormError::Characters);
    }
    std::str::from_utf8(bytes).map_err(|_| SecretFormError::Characters)
}

/// Opens a file and returns its mode. The open file has the mode, because another file may get the
/// path meanwhile.
fn open_file(path: &Path) -> Result<(File, u32), SecretError> {
    // `NONBLOCK` keeps the opening of a FIFO from waiting for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path)
        .map_err(|source| SecretError::File { path: path.to_owned(), source })?;
    let status =
        file.metadata().map_err(|source| SecretError::File { path: path.to_owned(), source })?;
    if !status.is_file() {
        return Err(SecretError::FileKind(path.to_owned()));
    }
    Ok((file, status.mode()))
}

/// Returns a warning if other users may access a file with this mode.
fn mode_warning(path: &Path, mode: u32) -> Option<String> {
    if mode & OTHER_USERS == 0 {
        return None;
    }
    let shown = path.display().to_string();
    let word = shell_word(&shown);
    Some(format!("other users can read or change the secret in {shown}: run `chmod 600 {word}`"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const SECRET: &str = "zq-7731-Wert/+=";

    fn shell(script: &str) -> SecretSource {
        SecretSource::Command(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    fn read_in(path: &OsStr, source: &SecretSource) -> Result<String, SecretError> {
        read_with(source, path, Duration::from_secs(20)).map(|value| value.expose().to_owned())
    }

    fn read_from_path(source: &SecretSource) -> Result<String, SecretError> {
        read_in(&path(), source)
    }

    #[track_caller]
    fn check_refused(source: &SecretSource, expected: &str) {
        let why = read_from_path(source).expect_err("it can't be read").to_string();
        assert!(why.contains(expected) && !why.contains(SECRET), "{why}");
    }

    #[test]
    fn command_that_makes_a_secret_private_can_be_pasted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it's mine");
        fs::write(&path, SECRET).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode is set");
        let mode = || fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
        let warning = mode_warning(&path, mode()).expect("others can read it");
        let line = warning.split('`').nth(1).expect("it has a command");
        let done = std::process::Command::new("sh").args(["-c", line]).status();
        assert!(done.is_ok_and(|status| status.success()), "{warning}");
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn file_is_read_without_its_final_line_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        for text in [SECRET.to_owned(), format!("{SECRET}\n"), format!("{SECRET}\r\n")] {
            fs::write(&path, text).expect("it is written");
            let read = read_from_path(&SecretSource::File(path.clone()));
            assert_eq!(read.expect("it can be read"), SECRET);
        }
        let link = folder.path().join("link");
        symlink(&path, &link).expect("a link is made");
        let read = read_from_path(&SecretSource::File(link));
        assert_eq!(read.expect("it can be read"), SECRET);
    }

    #[test]
    fn invalid_secret_is_reported_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let source = SecretSource::File(path.clone());
        check_refused(&source, "can't be read");
        for (bytes, expected) in [
            (Vec::new(), "is empty"),
            (b"\n".to_vec(), "is empty"),
            (b"abc".to_vec(), "too short"),
            (format!("{SECRET}\nX-More: 1").into_bytes(), "several lines"),
            (format!("{SECRET}\n\n").into_bytes(), "several lines"),
            (format!("{SECRET} ").into_bytes(), "a leading or trailing space"),
            (format!("{SECRET}\0").into_bytes(), "headers don't allow"),
            (format!("{SECRET}é").into_bytes(), "headers don't allow"),
            (vec![0xff; 32], "headers don't allow"),
            (vec![b'x'; MAX_BYTES + 1], "too long"),
            (vec![b'x'; 1 << 20], "too long"),
        ] {
            fs::write(&path, bytes).expect("it is written");
            check_refused(&source, expected);
        }
        fs::write(&path, vec![b'x'; MAX_BYTES]).expect("it is written");
        assert_eq!(read_from_path(&source).expect("it can be read").len(), MAX_BYTES);
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        check_refused(&SecretSource::File(folder.path().to_owned()), "is not a regular file");
        check_refused(&SecretSource::File("/dev/zero".into()), "is not a regular file");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU)
            .expect("a pipe is made");
        check_refused(&SecretSource::File(pipe), "is not a regular file");
    }

    #[test]
    fn file_that_others_can_access_gets_a_warning() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, SECRET).expect("it is written");
        for (mode, warns) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode is set");
            let warning = examine(&SecretSource::File(path.clone())).expect("it is there");
            assert_eq!(warning.is_some(), warns, "{mode:o}: {warning:?}");
        }
    }

    #[test]
    fn variable_has_its_value_of_the_start() {
        let source = |value: Option<&str>| SecretSource::Variable {
            name: "TOKEN".to_owned(),
            value: value.map(|value| Arc::new(SecretValue::new(value.to_owned()))),
        };
        assert_eq!(read_from_path(&source(Some(SECRET))).expect("it can be read"), SECRET);
        check_refused(&source(None), "`TOKEN` is not set");
        check_refused(
            &source(Some(&format!("{SECRET}\r\nX: 1"))),
            "the variable `TOKEN` has several lines",
        );
    }

    #[test]
    fn output_of_a_program_is_the_secret() {
        let read = read_from_path(&shell(&format!("printf '%s\\n' '{SECRET}'")));
        assert_eq!(read.expect("it can be read"), SECRET);
        // The program has no input, and Toolhold's environment.
        let read = read_from_path(&shell("cat; echo \"${PATH:+has a path}\""));
        assert_eq!(read.expect("it can be read"), "has a path");
        check_refused(
            &shell(&format!("echo '{SECRET}' >&2; exit 3")),
            "`sh` failed (exit status: 3)",
        );
        check_refused(&shell(&format!("echo '{SECRET}'; exit 1")), "failed");
        check_refused(&shell("kill -9 $$"), "failed (signal: 9");
        check_refused(&shell("yes"), "more than 4096 bytes");
        check_refused(&shell("true"), "is empty");
        check_refused(
            &SecretSource::Command(vec!["no-such-program-of-ours".to_owned()]),
            "not found",
        );
        check_refused(&SecretSource::Command(vec!["/bin".to_owned()]), "not found");
        check_refused(&SecretSource::Command(Vec::new()), "has no program");
        // The program is started directly, without a shell.
        let literal = SecretSource::Command(["echo", "$HOME;x"].map(str::to_owned).to_vec());
        assert_eq!(read_from_path(&literal).expect("it can be read"), "$HOME;x");
    }

    #[test]
    fn processes_that_a_program_leaves_behind_are_not_waited_for() {
        // Waiting for the process in the background would reach the time limit.
        let read = read_from_path(&shell(&format!("sleep 1000 & echo '{SECRET}'")));
        assert_eq!(read.expect("it can be read"), SECRET);
    }

    #[test]
    fn program_that_never_ends_is_stopped_with_its_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let pids = folder.path().join("pids");
        let script = format!(
            "echo $$ > '{0}'; sleep 1000 & echo $! >> '{0}'; exec sleep 1000",
            pids.display()
        );
        let why = read_with(&shell(&script), &path(), Duration::from_millis(500))
            .expect_err("it takes too long")
            .to_string();
        assert!(why.contains("took longer than 0.5 s"), "{why}");
        for pid in fs::read_to_string(&pids).expect("it started").lines() {
            // A process that ended but wasn't waited for has no command line.
            let command_line = || fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // The kernel takes a moment to end the process.
            let mut lines = (0..500)
                .map(|_| command_line())
                .inspect(|_| std::thread::park_timeout(Duration::from_millis(10)));
            let line = lines.find(Vec::is_empty).unwrap_or_else(command_line);
            assert_eq!(String::from_utf8_lossy(&line), "", "{pid} is alive");
        }
    }

    #[test]
    fn programs_in_the_working_directory_are_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("ask");
        fs::write(&program, format!("#!/bin/sh\necho '{SECRET}'\n")).expect("it is written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its mode is set");
        let source = SecretSource::Command(vec!["ask".to_owned()]);
        let read = read_in(folder.path().as_os_str(), &source);
        assert_eq!(read.expect("it can be read"), SECRET);
        for path in ["", ".", "relative:./more"] {
            assert!(read_in(OsStr::new(path), &source).is_err(), "{path}");
        }
        assert!(read_from_path(&SecretSource::Command(vec!["./ask".to_owned()])).is_err());
    }

    #[test]
    fn debug_output_has_no_secret() {
        let value = Some(Arc::new(SecretValue::new(SECRET.to_owned())));
        let shown = format!("{:?}", SecretSource::Variable { name: "TOKEN".to_owned(), value });
        assert!(!shown.contains(SECRET) && shown.contains("TOKEN"), "{shown}");
    }
}
