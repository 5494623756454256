//! Fetches third-party software for tests and benches, once, in the versions that `tests/clients`
//! fixes:
//!
//! * clients and servers of MCP, and its conformance suite for the MCP server;
//! * the sandboxes of Claude Code and sandlock;
//! * for the web tools, real pages, with the text that other extractors find in them;
//! * the compilers of plugins that aren't in Rust;
//! * a server of models with a small model, and what runs benchmarks of agents;
//! * skills of others;
//! * compilers, linters and a language server;
//! * what checks the files of a release;
//! * programs of Debian that Toolhold has to get along with;
//! * for the soak, the clients of MCP that people install.
//!
//! Tests also pass on a machine without Node or Python, or without access to their registries. So
//! nothing here is an error: tests and benches report what they can't try.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use crate::cargo;
use crate::step;

/// One folder of third-party software.
struct Language {
    /// Name of the folder below `tests/clients` and `target/clients`.
    name: &'static str,
    /// The file there that fixes all versions.
    lock_file: &'static str,
    /// Further files that are copied into the folder.
    files: &'static [&'static str],
    /// Fetches the software into the folder, which has these files already.
    fetch: fn(&Path) -> Result<(), String>,
}

const LANGUAGES: [Language; 16] = [
    Language {
        name: "node",
        lock_file: "package-lock.json",
        files: &["package.json", ".npmrc", "drive.mjs", "sandbox.mjs"],
        fetch: npm,
    },
    Language {
        name: "python",
        lock_file: "requirements.txt",
        files: &["drive.py", "otlp.py"],
        fetch: pip,
    },
    Language {
        name: "pages",
        lock_file: "archives.txt",
        files: &["requirements.txt", "reference.py"],
        fetch: pages,
    },
    Language {
        name: "sandlock",
        lock_file: "requirements.txt",
        files: &["commands.py"],
        fetch: pip,
    },
    Language { name: "plugins-python", lock_file: "requirements.txt", files: &[], fetch: pip },
    Language {
        name: "plugins-javascript",
        lock_file: "package-lock.json",
        files: &["package.json", ".npmrc"],
        fetch: npm,
    },
    Language { name: "plugins-c", lock_file: "requirements.txt", files: &[], fetch: pip },
    Language { name: "plugins-go", lock_file: "requirements.txt", files: &[], fetch: pip },
    Language {
        name: "llama",
        lock_file: "requirements.txt",
        files: &["serve.py"],
        fetch: |folder| pip_with(folder, OsStr::new("python3"), &["--no-deps"]),
    },
    Language {
        name: "harbor",
        lock_file: "requirements.txt",
        files: &["trial.py"],
        // Most dependencies of Harbor are for containers and models of others, so leave them out.
        fetch: |folder| pip_with(folder, &newer_python()?, &["--no-deps"]),
    },
    Language {
        name: "skills",
        lock_file: "requirements.txt",
        files: &[],
        fetch: |folder| pip_with(folder, OsStr::new("python3"), &["--no-deps"]),
    },
    Language {
        name: "checkers-node",
        lock_file: "package-lock.json",
        files: &["package.json", ".npmrc"],
        fetch: npm,
    },
    Language { name: "checkers-python", lock_file: "requirements.txt", files: &[], fetch: pip },
    Language {
        name: "release",
        lock_file: "package-lock.json",
        files: &["package.json", ".npmrc"],
        fetch: npm,
    },
    Language {
        name: "release-python",
        lock_file: "requirements.txt",
        files: &[],
        // One of the packages is only needed for the schema of the registry of MCP, so it needs no
        // dependencies.
        fetch: |folder| pip_with(folder, OsStr::new("python3"), &["--no-deps"]),
    },
    Language { name: "debian", lock_file: "packages.txt", files: &[], fetch: debian },
];

/// The software for `cargo xtask soak` alone: hundreds of megabytes.
const SOAK: [Language; 1] = [Language {
    name: "agents",
    lock_file: "package-lock.json",
    files: &["package.json", ".npmrc"],
    fetch: npm,
}];

/// The C compiler for WebAssembly.
pub(crate) const C_COMPILER: &str = "plugins-c";

/// Fetches one folder, if it isn't up to date.
pub(crate) fn fetch(name: &str) -> Result<(), String> {
    let language = LANGUAGES.iter().find(|language| language.name == name);
    language.ok_or_else(|| format!("there is no {name}"))?.fetch_if_outdated()
}

/// The folder of what is fetched under a name.
pub(crate) fn folder(name: &str) -> PathBuf {
    cargo::target().join("clients").join(name)
}

/// Locked while a folder is fetched, because two steps may want the same folder.
static FETCHING: Mutex<()> = Mutex::new(());

/// The last file that is written: a copy of the file that fixes the versions. An unfinished folder
/// doesn't have it.
const FETCHED: &str = "fetched";

/// Fetches all folders that aren't up to date, those of the soak only for the soak. Returns the
/// folders that failed, by the names that tests use, and the reasons.
pub(crate) fn fetch_all(is_soak: bool) -> Vec<(String, String)> {
    let mut failures = Vec::new();
    let soak_only = if is_soak { &SOAK[..] } else { &[] };
    for language in LANGUAGES.iter().chain(soak_only) {
        if let Err(why) = language.fetch_if_outdated() {
            failures.push((format!("clients/{}", language.name), why));
        }
    }
    failures
}

impl Language {
    fn fetch_if_outdated(&self) -> Result<(), String> {
        let _fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let from = cargo::root().join("tests/clients").join(self.name);
        let to = folder(self.name);
        let fixed = fs::read_to_string(from.join(self.lock_file))
            .map_err(|error| failed("can't read the file that fixes the versions", &to, &error))?;
        let is_current = fs::read_to_string(to.join(FETCHED)).is_ok_and(|fetched| fetched == fixed);
        if !is_current && to.exists() {
            fs::remove_dir_all(&to)
                .map_err(|error| failed("can't remove the older version", &to, &error))?;
        }
        fs::create_dir_all(&to).map_err(|error| failed("can't create the folder", &to, &error))?;
        for file in self.files.iter().chain([&self.lock_file]) {
            fs::copy(from.join(file), to.join(file))
                .map_err(|error| failed("can't write a file", &to, &error))?;
        }
        if is_current {
            return Ok(());
        }
        step::headline(&format!("fetch clients in {}", self.name));
        (self.fetch)(&to)?;
        fs::write(to.join(FETCHED), fixed)
            .map_err(|error| failed("can't write a file", &to, &error))
    }
}

fn failed(what: &str, folder: &Path, error: &io::Error) -> String {
    format!("{what} in {}: {error}", folder.display())
}

/// Installs without running scripts of the packages.
fn npm(folder: &Path) -> Result<(), String> {
    let options = [
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--fetch-retries=1",
        "--fetch-timeout=60000",
    ];
    step::run("npm ci", Command::new("npm").current_dir(folder).arg("ci").args(options))
}

fn pip(folder: &Path) -> Result<(), String> {
    pip_with(folder, OsStr::new("python3"), &[])
}

fn pip_with(folder: &Path, python: &OsStr, more: &[&str]) -> Result<(), String> {
    step::run(
        "python3 -m venv",
        Command::new(python).current_dir(folder).args(["-m", "venv", "."]),
    )?;
    let options = [
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--retries=1",
        "--requirement=requirements.txt",
    ];
    let mut install = Command::new(folder.join("bin/pip"));
    step::run("pip install", install.current_dir(folder).arg("install").args(options).args(more))
}

/// A Python of version 3.12 or later.
fn newer_python() -> Result<OsString, String> {
    let mut found: Vec<OsString> =
        ["python3", "python3.14", "python3.13", "python3.12"].map(OsString::from).to_vec();
    // The names that pyenv puts into the path only start its chosen versions.
    let versions = std::env::var_os("PYENV_ROOT")
        .map(|root| Path::new(&root).join("versions"))
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten();
    found.extend(versions.map(|version| version.path().join("bin/python3").into_os_string()));
    found
        .into_iter()
        .find(|python| is_newer(python))
        .ok_or_else(|| "it needs Python 3.12 or later".to_owned())
}

fn is_newer(python: &OsStr) -> bool {
    let check = "import sys, venv; sys.exit(sys.version_info < (3, 12))";
    let output = Command::new(python).args(["-c", check]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Unpacks packages of Debian into the folder, without installing them. Debian's release fixes
/// their versions. If this machine has no list of packages, one is fetched into the folder.
fn debian(folder: &Path) -> Result<(), String> {
    let packages = fs::read_to_string(folder.join("packages.txt"))
        .map_err(|error| format!("can't read packages.txt: {error}"))?;
    let packages: Vec<&str> = packages.lines().collect();
    if apt(folder, &["download"], &packages).is_err() {
        let lists = folder.join("lists");
        fs::create_dir_all(lists.join("partial"))
            .map_err(|error| format!("can't use {}: {error}", lists.display()))?;
        let own_lists = format!("Dir::State::lists={}", lists.display());
        apt(folder, &["-o", &own_lists, "update"], &[])?;
        apt(folder, &["-o", &own_lists, "download"], &packages)?;
        fs::remove_dir_all(&lists)
            .map_err(|error| format!("can't use {}: {error}", lists.display()))?;
    }
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("can't list {}: {error}", folder.display()))?;
    for entry in entries {
        let path =
            entry.map_err(|error| format!("can't list {}: {error}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            step::run("dpkg-deb --extract", unpack.arg("--extract").arg(&path).arg(folder))?;
        }
    }
    Ok(())
}

/// Runs apt-get. `command` has options, and the subcommand as the last word.
fn apt(folder: &Path, command: &[&str], packages: &[&str]) -> Result<(), String> {
    let mut apt = Command::new("apt-get");
    apt.current_dir(folder).args(["--quiet", "--quiet", "-o", "Acquire::Retries=1"]);
    let subcommand = command.last().copied().unwrap_or_default();
    step::run(&format!("apt-get {subcommand}"), apt.args(command).args(packages))
}

/// Fetches the pages, which are in source archives. Digests fix the archives, because `pip` runs a
/// package's own build to get its metadata.
fn pages(folder: &Path) -> Result<(), String> {
    pip(folder)?;
    let options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary=:all:",
        "--retries=1",
        "--dest=archives",
    ];
    let mut download = Command::new(folder.join("bin/pip"));
    step::run(
        "pip download",
        download
            .current_dir(folder)
            .arg("download")
            .args(options)
            .arg("--requirement=archives.txt"),
    )?;
    step::run(
        "reference.py",
        Command::new(folder.join("bin/python")).current_dir(folder).arg("reference.py"),
    )
}
