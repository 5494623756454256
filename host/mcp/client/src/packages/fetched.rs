//! Runs npm and uv in the server's sandbox to resolve, fetch and remove the server's packages.

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

use super::line::{Line, Manager, npm_name};
use super::lock::{self, LockError};
use crate::pins::digest;

/// Time limit for one run of a package manager.
const PATIENCE: Duration = Duration::from_secs(300);

/// Most bytes of a lock, and of another file that a package manager writes.
const MAX_FILE: u64 = 1 << 20;

/// Bytes of a package manager's error text that are stored.
const MAX_COMPLAINT: usize = 2 * 1024;

/// The file that marks a folder as complete: all its packages were fetched.
const COMPLETE: &str = "complete";

/// The folder of the package manager's cache, in the folder of the packages. The cache is removed
/// after the fetch.
const CACHE: &str = ".cache";

const PACKAGE: &str = "package.json";
const PACKAGE_LOCK: &str = "package-lock.json";
const WANTED: &str = "requirements.in";
const REQUIREMENTS: &str = "requirements.txt";

/// The obstacle to resolving, fetching or removing packages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is larger than {MAX_FILE} bytes, the limit", .0.display())]
    TooLarge(PathBuf),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("`{program}`: {error}")]
    Start { program: String, error: StartError },
    #[error(
        "`{program}`, which fetches its packages, didn't end within {} s: {complaint}",
        PATIENCE.as_secs()
    )]
    Unended { program: String, complaint: String },
    #[error("`{program}`, which fetches its packages, ended with {code}: {complaint}")]
    Failed { program: String, code: i32, complaint: String },
    #[error("the packages have no program `{0}`")]
    NoProgram(String),
    #[error("it isn't clear which program of `{0}` is meant: name it with `-p`")]
    UnclearProgram(String),
}

/// Resolves the packages that a command line fetches now. Returns the lock, which contains each
/// package with the digest of its archive. Fetches no npm packages. Fetches Python packages only if
/// their dependencies can't be known otherwise. Blocks, in some cases for minutes.
///
/// # Errors
///
/// Returns an error if the package manager fails or can't pin all packages.
pub(crate) fn resolve(
    line: &Line,
    places: ServerPlaces,
    folder: &Path,
) -> Result<String, PackageError> {
    PrivateFolder::make(folder).map_err(at(folder))?;
    let temporary = Builder::new().prefix(".new-").tempdir_in(folder).map_err(at(folder))?;
    let directory = temporary.path();
    let mut run = Run::new(places, directory);
    let lock_file = match line.manager {
        Manager::Npm => {
            let package = json!({ "name": "server", "private": true });
            write(directory, PACKAGE, &package.to_string())?;
            let words = ["install", "--package-lock-only", "--ignore-scripts", "--no-audit"];
            run.manager(line, &words, &line.wanted)?;
            PACKAGE_LOCK
        }
        Manager::Uv => {
            write(directory, WANTED, &(line.wanted.join("\n") + "\n"))?;
            let words = ["pip", "compile", "--generate-hashes", "--no-header"];
            let mut options = python_options(line);
            let files = ["--only-binary", ":all:", "-o", REQUIREMENTS, WANTED];
            options.extend(files.map(str::to_owned));
            run.manager(line, &words, &options)?;
            REQUIREMENTS
        }
    };
    let lock = read(&directory.join(lock_file))?;
    lock::check(line.manager, &lock)?;
    Ok(lock)
}

/// Returns the options of uv for the version of Python that the command line names.
fn python_options(line: &Line) -> Vec<String> {
    match &line.python {
        Some(version) => vec!["--python".to_owned(), version.clone()],
        None => Vec::new(),
    }
}

/// The packages of a lock, and the program in them that a command line runs.
pub(crate) struct Fetched {
    /// The folder of the packages.
    pub(crate) folder: PathBuf,
    /// The program.
    pub(crate) program: PathBuf,
}

/// Fetches the packages of a lock into `folder`, unless the folder is complete. The package manager
/// refuses archives with other digests. Blocks, in some cases for minutes.
///
/// # Errors
///
/// Returns an error if the package manager fails, or if the packages don't contain the program.
/// Also returns the error of `places`.
pub(crate) fn fetch<E: From<PackageError>>(
    line: &Line,
    lock: &str,
    places: impl FnOnce() -> Result<ServerPlaces, E>,
    folder: &Path,
) -> Result<Fetched, E> {
    let root = PrivateFolder::make(folder).map_err(at(folder))?;
    let _lock = root.lock("lock").map_err(at(folder))?;
    // The sandbox takes real paths only.
    let place = folder.canonicalize().map_err(at(folder))?.join(&digest(lock)[..32]);
    if !place.join(COMPLETE).is_file() {
        remove(&place)?;
        fs::create_dir(&place).map_err(at(&place))?;
        install(line, lock, places()?, &place)?;
        remove(&place.join(CACHE))?;
        write(&place, COMPLETE, "")?;
    }
    let program = find_program(line, &place)?;
    Ok(Fetched { folder: place, program })
}

/// Removes the packages of a server except for the packages of the lock `kept`. Blocks.
pub fn forget(folder: &Path, kept: Option<&str>) {
    let kept_name = kept.map(|lock| digest(lock)[..32].to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_kept = kept_name.as_deref().is_some_and(|name| entry.file_name() == name);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_kept || !is_folder {
            continue;
        }
        if let Err(reason) = remove(&entry.path()) {
            tracing::warn!("old packages of a server are left: {reason}");
        }
    }
}

fn install(
    line: &Line,
    lock: &str,
    places: ServerPlaces,
    place: &Path,
) -> Result<(), PackageError> {
    let mut run = Run::new(places, place);
    match line.manager {
        Manager::Npm => {
            let parsed: Value = serde_json::from_str(lock)?;
            let wanted = &parsed["packages"][""]["dependencies"];
            let package = json!({ "name": "server", "private": true, "dependencies": wanted });
            write(place, PACKAGE, &package.to_string())?;
            write(place, PACKAGE_LOCK, lock)?;
            run.manager(line, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"], &[])
        }
        Manager::Uv => {
            write(place, REQUIREMENTS, lock)?;
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
                REQUIREMENTS,
            ];
            run.manager(line, &words, &options.map(str::to_owned))
        }
    }
}

/// Finds the program that a command line means.
fn find_program(line: &Line, place: &Path) -> Result<PathBuf, PackageError> {
    let (folder, name) = match (line.manager, &line.program) {
        (Manager::Uv, program) => ("venv/bin", program.clone().unwrap_or_default()),
        (Manager::Npm, Some(program)) => ("node_modules/.bin", program.clone()),
        (Manager::Npm, None) => {
            let package = line.wanted.first().map_or("", |wanted| npm_name(wanted).0);
            let file = place.join("node_modules").join(package).join(PACKAGE);
            let described: Value = serde_json::from_str(&read(&file)?)?;
            ("node_modules/.bin", npm_program(package, &described["bin"])?)
        }
    };
    // Another name could lead out of the folder.
    let is_file_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let program = place.join(folder).join(&name);
    if is_file_name && fs::symlink_metadata(&program).is_ok() {
        return Ok(program);
    }
    Err(PackageError::NoProgram(neutral_line(cut(&name, 128))))
}

/// Chooses the program of a package in the same way as `npx`: the program with the package's name,
/// or the only program.
fn npm_program(package: &str, programs: &Value) -> Result<String, PackageError> {
    let own = package.rsplit('/').next().unwrap_or(package);
    match programs {
        Value::String(_) => Ok(own.to_owned()),
        Value::Object(programs) if programs.contains_key(own) => Ok(own.to_owned()),
        Value::Object(programs) if programs.len() == 1 => {
            Ok(programs.keys().next().cloned().unwrap_or_default())
        }
        _ => Err(PackageError::UnclearProgram(package.to_owned())),
    }
}

/// The runs of a package manager in one folder.
struct Run<'r> {
    places: ServerPlaces,
    folder: &'r Path,
}

impl<'r> Run<'r> {
    fn new(mut places: ServerPlaces, folder: &'r Path) -> Self {
        let path = folder.display().to_string();
        places.places.also.push(Tree { path, access: TreeAccess::Write });
        let cache = folder.join(CACHE).display().to_string();
        let own = [
            ("npm_config_cache", cache.as_str()),
            ("npm_config_update_notifier", "false"),
            ("npm_config_fund", "false"),
            // By default npm retries a wrong archive for a minute.
            ("npm_config_fetch_retries", "2"),
            ("npm_config_fetch_retry_mintimeout", "200"),
            ("npm_config_fetch_retry_maxtimeout", "2000"),
            ("UV_CACHE_DIR", cache.as_str()),
            ("UV_NO_PROGRESS", "1"),
            // Certificate authorities of an organisation are valid for uv as they are for npm.
            ("UV_SYSTEM_CERTS", "1"),
        ];
        places.environment.retain(|(name, _)| own.iter().all(|(known, _)| name != known));
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        places.environment.extend(own);
        Self { places, folder }
    }

    /// Runs the package manager of a command line with these words and options until it ends.
    fn manager(
        &mut self,
        line: &Line,
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
            // The package manager must fetch packages. The server itself gets the network only with
            // a grant.
            network: true,
            path_rules: None,
            changes: None,
            shared_network: None,
            output: None,
            shell: None,
        };
        let end = Instant::now() + PATIENCE;
        let cancel = CancellationToken::new();
        let started = Child::start(&self.places.places, &command, MAX_COMPLAINT, end, &cancel);
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

/// Reads a file that a package manager wrote. A link isn't followed, because it could lead to
/// another folder.
fn read(path: &Path) -> Result<String, PackageError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let mut text = String::new();
    let read = file.and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    read.map_err(at(path))?;
    if text.len() as u64 > MAX_FILE {
        return Err(PackageError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

/// Writes a file that doesn't exist yet.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), PackageError> {
    let path = folder.join(name);
    // A package manager may have created a link at this path.
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(at(&path))
}

fn remove(path: &Path) -> Result<(), PackageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// Returns a function for `map_err` that adds the path to an I/O error.
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
