//! Other people's clients and servers of the protocol, and its conformance suite, which the tests
//! and the benches of the MCP server take, and real pages with what other extractors keep of them,
//! which the test of the web tools takes: fetched once, in the versions that stand in
//! `tests/clients`.
//!
//! A machine without Node or Python, or without its registry, has to stay green. So nothing here is
//! an error: what can't be had is not tried, and the tests and benches that would take it say so as
//! well.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cargo;
use crate::step;

/// A language whose clients are taken.
struct Language {
    /// Its folder, below `tests/clients` and `target/clients`.
    name: &'static str,
    /// The file there that fixes every version.
    fixed: &'static str,
    /// What goes beside what is fetched.
    files: &'static [&'static str],
    /// Fetches all of it into a folder that has these files.
    fetch: fn(&Path) -> Result<(), String>,
}

const LANGUAGES: [Language; 3] = [
    Language {
        name: "node",
        fixed: "package-lock.json",
        files: &["package.json", ".npmrc", "drive.mjs"],
        fetch: npm,
    },
    Language { name: "python", fixed: "requirements.txt", files: &["drive.py"], fetch: pip },
    Language {
        name: "pages",
        fixed: "archives.txt",
        files: &["requirements.txt", "reference.py"],
        fetch: pages,
    },
];

/// What an unfinished folder doesn't have: a copy of the file that fixes the versions.
const FETCHED: &str = "fetched";

/// Sees to it that the clients are there. Returns which are not, as tests name them, and why.
pub(crate) fn provide() -> Vec<(String, String)> {
    let missing = |language: &Language| {
        Some((format!("clients/{}", language.name), language.provide().err()?))
    };
    LANGUAGES.iter().filter_map(missing).collect()
}

impl Language {
    fn provide(&self) -> Result<(), String> {
        let (from, to) = (
            cargo::root().join("tests/clients").join(self.name),
            cargo::target().join("clients").join(self.name),
        );
        let failed =
            |what: &str, error: std::io::Error| format!("{what} in {}: {error}", to.display());
        let fixed = fs::read_to_string(from.join(self.fixed))
            .map_err(|error| failed("what fixes the versions can't be read", error))?;
        let there = fs::read_to_string(to.join(FETCHED)).is_ok_and(|fetched| fetched == fixed);
        if !there && to.exists() {
            fs::remove_dir_all(&to)
                .map_err(|error| failed("an older version can't be removed", error))?;
        }
        fs::create_dir_all(&to).map_err(|error| failed("no folder can be made", error))?;
        for file in self.files.iter().chain([&self.fixed]) {
            fs::copy(from.join(file), to.join(file))
                .map_err(|error| failed("nothing can be written", error))?;
        }
        if there {
            return Ok(());
        }
        step::headline(&format!("fetch clients in {}", self.name));
        (self.fetch)(&to)?;
        fs::write(to.join(FETCHED), fixed).map_err(|error| failed("nothing can be written", error))
    }
}

/// Nothing that was fetched runs while it is installed.
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
    step::run(
        "python3 -m venv",
        Command::new("python3").current_dir(folder).args(["-m", "venv", "."]),
    )?;
    let options = [
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--retries=1",
        "--requirement=requirements.txt",
    ];
    step::run(
        "pip install",
        Command::new(folder.join("bin/pip")).current_dir(folder).arg("install").args(options),
    )
}

/// Archives of sources hold the pages. `pip` asks each for its metadata, for which the package's
/// own build is run, so the archives are fixed by their digests.
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
