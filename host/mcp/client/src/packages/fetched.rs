//! Runs npm and uv in a server's sandbox to resolve and fetch the server's packages.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde_json::{Value, json};
use tempfile::Builder;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{CancellationToken, ServerPlaces};
use toolhold_data_dir::PrivateFolder;
use toolhold_system::confine::{Tree, TreeAccess};
use toolhold_system::process::{Child, Command, StartError};

use super::line::{Manager, RunnerLine, npm_name};
use super::lock::{self, LockError};
use crate::pins::digest;

/// Time limit of a package manager.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Largest file that is read from a package manager, in bytes. A larger file is refused.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Characters of a lock file's digest in the name of the folder with the packages.
const FOLDER_NAME_LENGTH: usize = 32;

/// Longest name of a program in an error, in bytes. Longer names are cut.
const MAX_SHOWN_NAME: usize = 128;

/// Stored bytes of a package manager's error output.
const MAX_STDERR_BYTES: usize = 2 * 1024;

/// The file that marks a folder whose packages are all fetched.
const COMPLETE_FILE: &str = "complete";

/// The folder of the package manager's cache, which is removed after the fetch.
const CACHE_FOLDER: &str = ".cache";

const PACKAGE_FILE: &str = "package.json";
const PACKAGE_LOCK_FILE: &str = "package-lock.json";
const WANTED_FILE: &str = "requirements.in";
const REQUIREMENTS_FILE: &str = "requirements.txt";

#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is larger than {MAX_FILE_BYTES} bytes, the limit", .0.display())]
    TooLarge(PathBuf),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("`{program}`: {error}")]
    Start { program: String, error: StartError },
    #[error(
        "`{program}`, which fetches the server's packages, didn't end within {} s: {complaint}",
        RUN_TIMEOUT.as_secs()
    )]
    Unended { program: String, complaint: String },
    #[error("`{program}`, which fetches the server's packages, ended with {code}: {complaint}")]
    Failed { program: String, code: i32, complaint: String },
    #[error("the packages have no program `{0}`")]
    NoProgram(String),
    #[error("`{0}` has several programs: name the program with `-p`")]
    UnclearProgram(String),
}

/// Resolves the packages of a command line. Returns the text of the lock file, with the digest of
/// each archive. npm fetches no packages for this, and uv fetches packages only if their
/// dependencies aren't known otherwise. Blocks, sometimes for minutes.
pub(crate) fn resolve(
    line: &RunnerLine,
    places: ServerPlaces,
    folder: &Path,
) -> Result<String, PackageError> {
    PrivateFolder::make(folder).map_err(at(folder))?;
    let temporary = Builder::new().prefix(".new-").tempdir_in(folder).map_err(at(folder))?;
    let directory = temporary.path();
    let mut run = Run::new(places, directory);
    let lock_file_name = match line.manager {
        Manager::Npm => {
            let package = json!({ "name": "server", "private": true });
            write(directory, PACKAGE_FILE, &package.to_string())?;
            let words = ["install", "--package-lock-only", "--ignore-scripts", "--no-audit"];
            run.manager(line, &words, &line.wanted)?;
            PACKAGE_LOCK_FILE
        }
        Manager::Uv => {
            write(directory, WANTED_FILE, &(line.wanted.join("\n") + "\n"))?;
            let words = ["pip", "compile", "--generate-hashes", "--no-header"];
            let mut options = python_options(line);
            let files = ["--only-binary", ":all:", "-o", REQUIREMENTS_FILE, WANTED_FILE];
            options.extend(files.map(str::to_owned));
            run.manager(line, &words, &options)?;
            REQUIREMENTS_FILE
        }
    };
    let lock = read(&directory.join(lock_file_name))?;
    lock::check(line.manager, &lock)?;
    Ok(lock)
}

/// Returns uv's options for the Python version of a command line.
fn python_options(line: &RunnerLine) -> Vec<String> {
    match &line.python {
        Some(version) => vec!["--python".to_owned(), version.clone()],
        None => Vec::new(),
    }
}

/// Fetched packages.
pub(crate) struct Fetched {
    pub(crate) folder: PathBuf,
    /// The program that the command line runs.
    pub(crate) program: PathBuf,
}

/// Fetches the packages of a lock file into a folder below `folder`, if they aren't there yet.
/// Refuses archives whose digests aren't in the lock file. `places` is called only if packages are
/// fetched, and returns the places that the sandbox of the package manager may use. Blocks,
/// sometimes for minutes.
pub(crate) fn fetch<E: From<PackageError>>(
    line: &RunnerLine,
    lock: &str,
    places: impl FnOnce() -> Result<ServerPlaces, E>,
    folder: &Path,
) -> Result<Fetched, E> {
    let root = PrivateFolder::make(folder).map_err(at(folder))?;
    let _folder_lock = root.lock("lock").map_err(at(folder))?;
    // The sandbox requires real paths.
    let real_folder = folder.canonicalize().map_err(at(folder))?;
    let package_folder = real_folder.join(package_folder_name(lock));
    // A fetch that was interrupted left no `COMPLETE_FILE`, so the packages are fetched again.
    if !package_folder.join(COMPLETE_FILE).is_file() {
        remove(&package_folder)?;
        fs::create_dir(&package_folder).map_err(at(&package_folder))?;
        install(line, lock, places()?, &package_folder)?;
        remove(&package_folder.join(CACHE_FOLDER))?;
        write(&package_folder, COMPLETE_FILE, "")?;
    }
    let program = find_program(line, &package_folder)?;
    Ok(Fetched { folder: package_folder, program })
}

/// Returns the name of the folder with the packages of a lock file.
fn package_folder_name(lock: &str) -> String {
    digest(lock)[..FOLDER_NAME_LENGTH].to_owned()
}

/// Removes the packages of a server, except the packages of the lock file `kept_lock`. Blocks.
pub fn forget(folder: &Path, kept_lock: Option<&str>) {
    let kept_name = kept_lock.map(package_folder_name);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_kept = kept_name.as_deref().is_some_and(|name| entry.file_name() == name);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_kept || !is_folder {
            continue;
        }
        if let Err(reason) = remove(&entry.path()) {
            tracing::warn!("old packages of a server can't be removed: {reason}");
        }
    }
}

/// Installs the packages of a lock file into `folder`.
fn install(
    line: &RunnerLine,
    lock: &str,
    places: ServerPlaces,
    folder: &Path,
) -> Result<(), PackageError> {
    let mut run = Run::new(places, folder);
    match line.manager {
        Manager::Npm => {
            let parsed: Value = serde_json::from_str(lock)?;
            let wanted = &parsed["packages"][""]["dependencies"];
            let package = json!({ "name": "server", "private": true, "dependencies": wanted });
            write(folder, PACKAGE_FILE, &package.to_string())?;
            write(folder, PACKAGE_LOCK_FILE, lock)?;
            run.manager(line, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"], &[])
        }
        Manager::Uv => {
            write(folder, REQUIREMENTS_FILE, lock)?;
            run.manager(line, &["venv", "--no-project", "venv"], &python_options(line))?;
            let words = ["pip", "install", "--python", "venv/bin/python"];
            let options = [
                "--require-hashes",
                "--only-binary",
                ":all:",
                "--compile-bytecode",
                "--link-mode",
                "copy",
                "-r",
                REQUIREMENTS_FILE,
            ];
            run.manager(line, &words, &options.map(str::to_owned))
        }
    }
}

/// Finds the program that a command line runs. The packages are in `package_folder`.
fn find_program(line: &RunnerLine, package_folder: &Path) -> Result<PathBuf, PackageError> {
    let program_folder = match line.manager {
        Manager::Uv => "venv/bin",
        Manager::Npm => "node_modules/.bin",
    };
    let name = program_name(line, package_folder)?;
    // The package chooses the name of its program. A name such as `../x` would lead out of the
    // folder, so it is refused.
    let is_file_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let program = package_folder.join(program_folder).join(&name);
    if is_file_name && fs::symlink_metadata(&program).is_ok() {
        return Ok(program);
    }
    Err(PackageError::NoProgram(neutral_line(cut(&name, MAX_SHOWN_NAME))))
}

/// Returns the name of the program that a command line runs.
fn program_name(line: &RunnerLine, package_folder: &Path) -> Result<String, PackageError> {
    match (line.manager, &line.program) {
        (_, Some(program)) => Ok(program.clone()),
        // A command line of `uvx` always has a program.
        (Manager::Uv, None) => Ok(String::new()),
        (Manager::Npm, None) => {
            let (package, _version) = match line.wanted.first() {
                Some(wanted) => npm_name(wanted),
                None => ("", None),
            };
            let file = package_folder.join("node_modules").join(package).join(PACKAGE_FILE);
            let description: Value = serde_json::from_str(&read(&file)?)?;
            npm_program(package, &description["bin"])
        }
    }
}

/// Chooses a package's program like `npx`: the program with the package's name, or the only
/// program. `programs` is the field `bin` of the package's description.
fn npm_program(package: &str, programs: &Value) -> Result<String, PackageError> {
    let short_name = package.rsplit('/').next().unwrap_or(package);
    match programs {
        // A string is the path of the only program, which has the package's name.
        Value::String(_) => Ok(short_name.to_owned()),
        Value::Object(programs) if programs.contains_key(short_name) => Ok(short_name.to_owned()),
        Value::Object(programs) => {
            let mut names = programs.keys();
            match (names.next(), names.next()) {
                (Some(only_name), None) => Ok(only_name.clone()),
                _ => Err(PackageError::UnclearProgram(package.to_owned())),
            }
        }
        _ => Err(PackageError::UnclearProgram(package.to_owned())),
    }
}

/// Runs a package manager in a folder.
struct Run<'r> {
    places: ServerPlaces,
    folder: &'r Path,
}

impl<'r> Run<'r> {
    /// Prepares a run of a package manager that may write only in `folder`.
    fn new(mut places: ServerPlaces, folder: &'r Path) -> Self {
        let path = folder.display().to_string();
        places.places.also.push(Tree { path, access: TreeAccess::Write });
        let cache = folder.join(CACHE_FOLDER).display().to_string();
        let own_variables = [
            ("npm_config_cache", cache.as_str()),
            ("npm_config_update_notifier", "false"),
            ("npm_config_fund", "false"),
            // Without these limits, npm would try to fetch a wrong archive again for a minute.
            ("npm_config_fetch_retries", "2"),
            ("npm_config_fetch_retry_mintimeout", "200"),
            ("npm_config_fetch_retry_maxtimeout", "2000"),
            ("UV_CACHE_DIR", cache.as_str()),
            ("UV_NO_PROGRESS", "1"),
            // uv then accepts an organisation's certificate authorities, as npm does.
            ("UV_SYSTEM_CERTS", "1"),
        ];
        for (name, value) in own_variables {
            places.environment.retain(|(variable, _value)| variable != name);
            places.environment.push((name.to_owned(), value.to_owned()));
        }
        Self { places, folder }
    }

    /// Runs the package manager until it ends.
    fn manager(
        &mut self,
        line: &RunnerLine,
        words: &[&str],
        options: &[String],
    ) -> Result<(), PackageError> {
        let program = line.manager_program();
        let mut arguments = vec![program.clone()];
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        arguments.extend_from_slice(options);
        let command = Command {
            arguments,
            environment: self.places.environment.clone(),
            directory: self.folder.to_owned(),
            // A package manager always needs the network. A server gets it only with a grant.
            network: true,
            path_rules: None,
            changes: None,
            shared_network: None,
            connections: None,
            authority: None,
            output: None,
            shell: None,
        };
        let end = Instant::now() + RUN_TIMEOUT;
        let cancel = CancellationToken::new();
        let started = Child::start(&self.places.places, &command, MAX_STDERR_BYTES, end, &cancel);
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return Err(PackageError::Start { program, error }),
        };
        child.close_input();
        let result = child.wait_for_end(&mut |_, _| {}).clone();
        if result.code == Some(0) {
            return Ok(());
        }
        let stderr = child.output().stderr.take();
        let complaint = neutral_line(String::from_utf8_lossy(&stderr).trim());
        Err(match result.code {
            None => PackageError::Unended { program, complaint },
            Some(code) => PackageError::Failed { program, code, complaint },
        })
    }
}

/// Reads a file that a package manager wrote. Doesn't follow links or wait for pipes, because a
/// package could make both.
fn read(path: &Path) -> Result<String, PackageError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
        .map_err(at(path))?;
    let mut text = String::new();
    // One byte more than the limit shows that the file is too large.
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(at(path))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(PackageError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

/// Writes a new file.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), PackageError> {
    let path = folder.join(name);
    // `create_new` fails for an existing link, which a package manager could have created.
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(at(&path))?;
    file.write_all(text.as_bytes()).map_err(at(&path))
}

fn remove(path: &Path) -> Result<(), PackageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PackageError {
    move |error| PackageError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_one_that_npx_takes() {
        for (programs, expected) in [
            (json!("x.js"), Some("server")),
            (json!({ "other": "x.js" }), Some("other")),
            (json!({ "a": "x.js", "server": "y.js" }), Some("server")),
            (json!({ "a": "x.js", "b": "y.js" }), None),
            (json!(null), None),
        ] {
            let found = npm_program("@acme/server", &programs).ok();
            assert_eq!(found.as_deref(), expected, "{programs}");
        }
    }

    #[test]
    fn files_of_package_managers_lead_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let (secret, link) = (folder.path().join("secret"), folder.path().join("link"));
        fs::write(&secret, "secret").expect("a file is written");
        std::os::unix::fs::symlink(&secret, &link).expect("a link is made");
        assert!(read(&link).is_err());
        assert_eq!(read(&secret).expect("it is a file"), "secret");
    }
}
