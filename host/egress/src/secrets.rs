//! Where secrets come from.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_policy::egress::SecretRule;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::program::{find, output};

/// Bytes of a secret.
const MAX: usize = 4096;

/// Bytes that a secret has at least. What a server echoes of it is looked for in its answers, and
/// anything shorter stands there by chance.
const MIN: usize = 6;

/// Until when a program has to have printed it: a person may have to unlock what it is kept in.
const TIME: Duration = Duration::from_secs(60);

/// The program that asks the desktop's keyring.
const SECRET_TOOL: &str = "secret-tool";

/// A secret: where it may go, and where it comes from.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Where it may go.
    pub rule: SecretRule,
    /// Where it comes from. It is read when it is first needed.
    pub source: SecretSource,
}

/// A secret itself. Its bytes are overwritten when it goes, and nothing shows them.
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes a text as one.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// Where a secret comes from.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// An environment variable, and what it holds. None: it isn't set.
    Variable {
        /// The variable's name.
        name: String,
        /// What it holds.
        value: Option<Arc<SecretValue>>,
    },
    /// A file, without the line's end at its end.
    File(PathBuf),
    /// What a program prints, without the line's end at its end: the program and its arguments.
    Command(Vec<String>),
    /// The desktop's keyring, by what the entry is stored under.
    Keyring {
        /// The attribute `service`.
        service: String,
        /// The attribute `account`.
        account: String,
    },
}

/// Reads a secret. Blocks: a program may have to be asked.
///
/// # Errors
///
/// In words why there is none, without anything of what is there.
pub fn read(source: &SecretSource) -> Result<Arc<SecretValue>, String> {
    read_with(source, &path(), TIME)
}

/// What can be told of a source without reading or running anything: `Ok` with what should be
/// mended, though it works.
///
/// # Errors
///
/// Why nothing can come from it.
pub fn examine(source: &SecretSource) -> Result<Option<String>, String> {
    match source {
        SecretSource::Variable { value: Some(_), .. } => Ok(None),
        SecretSource::Variable { name, value: None } => Err(unset(name)),
        SecretSource::File(path) => opened(path).map(|(_, mode)| exposed(path, mode)),
        SecretSource::Command(words) => {
            let program = words.first().map_or("", String::as_str);
            find(program, &self::path()).map(|_| None).ok_or_else(|| missing(program))
        }
        SecretSource::Keyring { .. } => {
            find(SECRET_TOOL, &self::path()).map(|_| None).ok_or_else(no_keyring)
        }
    }
}

fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

fn read_with(
    source: &SecretSource,
    path: &OsStr,
    time: Duration,
) -> Result<Arc<SecretValue>, String> {
    let run = |program: &Path, arguments: &[String]| output(program, arguments, time, MAX);
    match source {
        SecretSource::Variable { name, value } => {
            let value = value.as_ref().ok_or_else(|| unset(name))?;
            checked(value.expose().as_bytes())
                .map_err(|why| format!("the variable `{name}` {why}"))?;
            Ok(Arc::clone(value))
        }
        SecretSource::File(path) => {
            let (file, mode) = opened(path)?;
            if let Some(exposed) = exposed(path, mode) {
                tracing::warn!("{exposed}");
            }
            // Never moved, so that no copy is left.
            let mut bytes = Zeroizing::new(Vec::with_capacity(MAX + 2));
            file.take(MAX as u64 + 2)
                .read_to_end(&mut bytes)
                .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
            value(&bytes).map_err(|why| format!("the file {} {why}", path.display()))
        }
        SecretSource::Command(words) => {
            let Some((name, arguments)) = words.split_first() else {
                return Err("no program is named".to_owned());
            };
            let program = find(name, path).ok_or_else(|| missing(name))?;
            let bytes = run(&program, arguments).map_err(|why| format!("`{name}` {why}"))?;
            value(&bytes).map_err(|why| format!("what `{name}` prints {why}"))
        }
        SecretSource::Keyring { service, account } => {
            let program = find(SECRET_TOOL, path).ok_or_else(no_keyring)?;
            let entry = ["lookup", "service", service, "account", account].map(str::to_owned);
            let bytes = run(&program, &entry).map_err(|why| match why.starts_with("failed") {
                true => format!(
                    "the keyring has no entry of this service and account, or is locked; \
                     `secret-tool store --label=… service '{service}' account '{account}'` makes one"
                ),
                false => format!("`{SECRET_TOOL}` {why}"),
            })?;
            value(&bytes).map_err(|why| format!("what the keyring has {why}"))
        }
    }
}

fn unset(name: &str) -> String {
    format!("the variable `{name}` is not set where Berth was started")
}

fn missing(program: &str) -> String {
    format!(
        "program `{program}` not found; give its path, or the name of a program in an absolute folder of PATH"
    )
}

fn no_keyring() -> String {
    format!(
        "there is no `{SECRET_TOOL}`, which asks the keyring; install it (Debian: libsecret-tools, Fedora: libsecret)"
    )
}

fn value(bytes: &[u8]) -> Result<Arc<SecretValue>, &'static str> {
    let bytes =
        bytes.strip_suffix(b"\n").map_or(bytes, |line| line.strip_suffix(b"\r").unwrap_or(line));
    checked(bytes).map(|text| Arc::new(SecretValue::new(text.to_owned())))
}

/// What can be put into any request as it is, and splits none.
fn checked(bytes: &[u8]) -> Result<&str, &'static str> {
    match bytes.len() {
        0 => return Err("is empty"),
        1..MIN => return Err("is too short for a secret: it has fewer than 6 bytes"),
        MIN..=MAX => {}
        _ => return Err("is too long for a secret: it has more than 4096 bytes"),
    }
    let fits = bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
        && bytes.first() != Some(&b' ')
        && bytes.last() != Some(&b' ');
    let text = std::str::from_utf8(bytes).ok().filter(|_| fits);
    text.ok_or("has more than one line, a space at an end, or a character that no header takes; a secret is one line of plain ASCII")
}

/// The file and its mode. Asked of what is open: the name could be given to another file meanwhile.
fn opened(path: &Path) -> Result<(File, u32), String> {
    let failed = |error: std::io::Error| format!("{} can't be read: {error}", path.display());
    // Not blocking: opening a FIFO would wait for somebody to write into it.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
        .open(path);
    let file = file.map_err(failed)?;
    let status = file.metadata().map_err(failed)?;
    if !status.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    Ok((file, status.mode()))
}

fn exposed(path: &Path, mode: u32) -> Option<String> {
    let shown = path.display();
    (mode & 0o077 != 0).then(|| {
        format!("others on this machine can get at the secret in {shown}: chmod 600 '{shown}'")
    })
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

    fn read_in(path: &OsStr, source: &SecretSource) -> Result<String, String> {
        read_with(source, path, Duration::from_secs(20)).map(|value| value.expose().to_owned())
    }

    fn read_here(source: &SecretSource) -> Result<String, String> {
        read_in(&path(), source)
    }

    #[track_caller]
    fn refused(source: &SecretSource, expected: &str) {
        let why = read_here(source).expect_err("it can't be read");
        assert!(why.contains(expected) && !why.contains(SECRET), "{why}");
    }

    #[test]
    fn a_file_is_read_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        for text in [SECRET.to_owned(), format!("{SECRET}\n"), format!("{SECRET}\r\n")] {
            fs::write(&path, text).expect("it is written");
            assert_eq!(read_here(&SecretSource::File(path.clone())).as_deref(), Ok(SECRET));
        }
        let link = folder.path().join("link");
        symlink(&path, &link).expect("a link is made");
        assert_eq!(read_here(&SecretSource::File(link)).as_deref(), Ok(SECRET));
    }

    #[test]
    fn what_is_no_secret_is_told_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let source = SecretSource::File(path.clone());
        refused(&source, "can't be read");
        for (bytes, expected) in [
            (Vec::new(), "is empty"),
            (b"\n".to_vec(), "is empty"),
            (b"abc".to_vec(), "too short"),
            (format!("{SECRET}\nX-More: 1").into_bytes(), "more than one line"),
            (format!("{SECRET}\n\n").into_bytes(), "more than one line"),
            (format!("{SECRET} ").into_bytes(), "a space at an end"),
            (format!("{SECRET}\0").into_bytes(), "no header takes"),
            (format!("{SECRET}é").into_bytes(), "no header takes"),
            (vec![0xff; 32], "no header takes"),
            (vec![b'x'; MAX + 1], "too long"),
            (vec![b'x'; 1 << 20], "too long"),
        ] {
            fs::write(&path, bytes).expect("it is written");
            refused(&source, expected);
        }
        fs::write(&path, vec![b'x'; MAX]).expect("it is written");
        assert_eq!(read_here(&source).map(|value| value.len()), Ok(MAX));
    }

    #[test]
    fn nothing_but_a_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        refused(&SecretSource::File(folder.path().to_owned()), "is not a regular file");
        refused(&SecretSource::File("/dev/zero".into()), "is not a regular file");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU)
            .expect("a pipe is made");
        refused(&SecretSource::File(pipe), "is not a regular file");
    }

    #[test]
    fn a_file_that_others_can_read_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, SECRET).expect("it is written");
        for (mode, is_told) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode is set");
            let said = examine(&SecretSource::File(path.clone())).expect("it is there");
            assert_eq!(said.is_some(), is_told, "{mode:o}: {said:?}");
        }
    }

    #[test]
    fn a_variable_counts_as_it_was_at_the_start() {
        let of = |value: Option<&str>| SecretSource::Variable {
            name: "TOKEN".to_owned(),
            value: value.map(|value| Arc::new(SecretValue::new(value.to_owned()))),
        };
        assert_eq!(read_here(&of(Some(SECRET))).as_deref(), Ok(SECRET));
        refused(&of(None), "`TOKEN` is not set");
        refused(
            &of(Some(&format!("{SECRET}\r\nX: 1"))),
            "the variable `TOKEN` has more than one line",
        );
    }

    #[test]
    fn a_program_prints_it() {
        assert_eq!(read_here(&shell(&format!("printf '%s\\n' '{SECRET}'"))).as_deref(), Ok(SECRET));
        // It has no input, and Berth's environment.
        assert_eq!(
            read_here(&shell("cat; echo \"${PATH:+has a path}\"")).as_deref(),
            Ok("has a path")
        );
        refused(&shell(&format!("echo '{SECRET}' >&2; exit 3")), "`sh` failed (exit status: 3)");
        refused(&shell(&format!("echo '{SECRET}'; exit 1")), "failed");
        refused(&shell("kill -9 $$"), "failed (signal: 9");
        refused(&shell("yes"), "more than 4096 bytes");
        refused(&shell("true"), "is empty");
        refused(&SecretSource::Command(vec!["no-such-program-of-ours".to_owned()]), "not found");
        refused(&SecretSource::Command(vec!["/bin".to_owned()]), "not found");
        refused(&SecretSource::Command(Vec::new()), "no program");
        // No shell is in between.
        let literal = SecretSource::Command(["echo", "$HOME;x"].map(str::to_owned).to_vec());
        assert_eq!(read_here(&literal).as_deref(), Ok("$HOME;x"));
    }

    #[test]
    fn a_program_that_leaves_another_one_behind_is_not_waited_for() {
        // Who waits for the one that is left takes too long, and gets nothing.
        assert_eq!(
            read_here(&shell(&format!("sleep 1000 & echo '{SECRET}'"))).as_deref(),
            Ok(SECRET)
        );
    }

    #[test]
    fn a_program_that_never_ends_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let pids = folder.path().join("pids");
        let script = format!(
            "echo $$ > '{0}'; sleep 1000 & echo $! >> '{0}'; exec sleep 1000",
            pids.display()
        );
        let why = read_with(&shell(&script), &path(), Duration::from_millis(500))
            .expect_err("it takes too long");
        assert!(why.contains("took longer than 0.5 s"), "{why}");
        for pid in fs::read_to_string(&pids).expect("it began").lines() {
            // One that is dead and not yet waited for has no command line.
            let command_line = || fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // The kernel takes a moment to end what it was told to end.
            let mut lines = (0..500)
                .map(|_| command_line())
                .inspect(|_| std::thread::park_timeout(Duration::from_millis(10)));
            let line = lines.find(Vec::is_empty).unwrap_or_else(command_line);
            assert_eq!(String::from_utf8_lossy(&line), "", "{pid} is alive");
        }
    }

    #[test]
    fn no_program_of_the_working_directory_is_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("ask");
        fs::write(&program, format!("#!/bin/sh\necho '{SECRET}'\n")).expect("it is written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its mode is set");
        let source = SecretSource::Command(vec!["ask".to_owned()]);
        assert_eq!(read_in(folder.path().as_os_str(), &source).as_deref(), Ok(SECRET));
        for path in ["", ".", "relative:./more"] {
            assert!(read_in(OsStr::new(path), &source).is_err(), "{path}");
        }
        assert!(read_here(&SecretSource::Command(vec!["./ask".to_owned()])).is_err());
    }

    #[test]
    fn the_keyring_is_asked_by_its_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let source =
            SecretSource::Keyring { service: "it's $HOME".to_owned(), account: "me".to_owned() };
        let none = read_in(folder.path().as_os_str(), &source).expect_err("there is none");
        assert!(none.contains("libsecret-tools"), "{none}");
        let program = folder.path().join(SECRET_TOOL);
        fs::write(&program, "#!/bin/sh\n[ \"$1 $2 $3 $4 $5\" = \"lookup service it's \\$HOME account me\" ] && echo zq-7731-Wert\n")
            .expect("it is written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its mode is set");
        assert_eq!(read_in(folder.path().as_os_str(), &source).as_deref(), Ok("zq-7731-Wert"));
        let other = SecretSource::Keyring { service: "other".to_owned(), account: "me".to_owned() };
        let unknown =
            read_in(folder.path().as_os_str(), &other).expect_err("there is no such entry");
        assert!(unknown.contains("no entry") && unknown.contains("secret-tool store"), "{unknown}");
    }

    #[test]
    fn nothing_shows_a_secret() {
        let value = Some(Arc::new(SecretValue::new(SECRET.to_owned())));
        let shown = format!("{:?}", SecretSource::Variable { name: "TOKEN".to_owned(), value });
        assert!(!shown.contains(SECRET) && shown.contains("TOKEN"), "{shown}");
    }
}
