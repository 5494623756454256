//! `cargo xtask ctags`: compares what the parsers find in real sources with what Universal Ctags
//! finds, and asks a third reader of the language where they differ. The sources come from the
//! package registries, through their own clients, in the versions and with the SHA-256 that
//! `tests/sources/sources.txt` fixes. Nothing of a package is built or run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use crate::{CommandResult, cargo, clients, grammars, no_arguments, step};

/// One package.
struct Package<'t> {
    kind: &'t str,
    name: &'t str,
    version: &'t str,
    sha256: &'t str,
}

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    let list = cargo::root().join("tests/sources/sources.txt");
    let list = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let packages = parse(&list)?;
    let folder = cargo::target().join("sources");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut folders = Vec::new();
    for package in &packages {
        match package.fetch(&folder) {
            Ok(folder) => folders.push(folder),
            Err(why) => eprintln!("NOT TRIED: {} {}: {why}", package.name, package.version),
        }
    }
    let comparison = grammars::build_comparison()?;
    // The compiler of TypeScript is the judge. It is also one of the checkers.
    if let Err(why) = clients::fetch("checkers-node") {
        eprintln!("NOT TRIED: the judge of TypeScript and JavaScript: {why}");
    }
    let mut compare = Command::new(comparison);
    compare
        .arg("--judges")
        .arg(cargo::plugins().join("grammars/judges"))
        .args(&folders)
        .env("NODE_PATH", clients::folder("checkers-node").join("node_modules"));
    let status = compare.status().map_err(|error| step::cannot_start(&compare, &error))?;
    let all = status.success() && folders.len() == packages.len();
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The packages of the list: a line each, with kind, name, version and SHA-256.
fn parse(list: &str) -> Result<Vec<Package<'_>>, String> {
    list.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<Package<'_>, String> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        [kind, name, version, sha256] if sha256.len() == 64 => {
            Ok(Package { kind, name, version, sha256 })
        }
        _ => Err(format!("a line isn't KIND NAME VERSION SHA256: {line}")),
    }
}

impl Package<'_> {
    /// Fetches and unpacks the package, unless an earlier run did this. Returns its folder.
    fn fetch(&self, all: &Path) -> Result<PathBuf, String> {
        let folder = all.join(format!("{}-{}", self.name, self.version.replace(':', "_")));
        if folder.exists() {
            return Ok(folder);
        }
        let unfinished = all.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|error| failed(&folder, &error))?;
        step::headline(&format!("fetch {} {}", self.name, self.version));
        let sources = match self.kind {
            "crate" => self.vendor(&unfinished)?,
            _ => self.download(&unfinished)?,
        };
        fs::rename(sources, &folder).map_err(|error| failed(&folder, &error))?;
        Ok(folder)
    }

    /// Fetches a crate. Writes a package that depends on the crate, because cargo fetches crates
    /// only for such a package.
    fn vendor(&self, folder: &Path) -> Result<PathBuf, String> {
        let manifest = format!(
            "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             [lib]\npath = \"Cargo.toml\"\n[workspace]\n[dependencies]\n\
             {} = {{ version = \"={}\", default-features = false }}\n",
            self.name, self.version
        );
        fs::write(folder.join("Cargo.toml"), manifest).map_err(|error| failed(folder, &error))?;
        let mut vendor = cargo::cargo(folder, "vendor");
        let options = ["--quiet", "--versioned-dirs", "vendor"];
        step::run("cargo vendor", vendor.args(options).stdout(Stdio::null()))?;
        let sources = folder.join("vendor").join(format!("{}-{}", self.name, self.version));
        let sums = fs::read_to_string(sources.join(".cargo-checksum.json"))
            .map_err(|error| failed(folder, &error))?;
        if !sums.contains(&format!("\"package\":\"{}\"", self.sha256)) {
            return Err(format!("its SHA-256 isn't {}", self.sha256));
        }
        Ok(sources)
    }

    fn download(&self, folder: &Path) -> Result<PathBuf, String> {
        let Self { kind, name, version, .. } = self;
        let (mut fetch, package) = match *kind {
            "npm" => {
                let mut npm = Command::new("npm");
                npm.args(["pack", "--silent", "--ignore-scripts"]);
                (npm, format!("{name}@{version}"))
            }
            "wheel" => {
                let mut pip = Command::new("python3");
                pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
                pip.args(["--no-deps", "--only-binary=:all:", "--platform=any"]);
                (pip, format!("{name}=={version}"))
            }
            "debian" => {
                let mut apt = Command::new("apt-get");
                // The other user that apt-get would switch to can't write into the folder.
                apt.args(["-o", "APT::Sandbox::User=root", "--quiet", "--quiet", "download"]);
                (apt, format!("{name}={version}"))
            }
            _ => return Err(format!("{kind} is no kind of package")),
        };
        fetch.current_dir(folder).arg(package).stdout(Stdio::null());
        step::run("its registry's client", &mut fetch)?;
        let mut entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
        let entry = entries.next().ok_or("nothing was fetched")?;
        let archive = entry.map_err(|error| failed(folder, &error))?.path();
        let mut digest = Command::new("sha256sum");
        let output =
            digest.arg(&archive).output().map_err(|error| step::cannot_start(&digest, &error))?;
        let sum = String::from_utf8_lossy(&output.stdout);
        // If the name has unusual characters, `sha256sum` writes a backslash before the sum.
        if sum.trim_start_matches('\\').split(' ').next() != Some(self.sha256) {
            return Err(format!("its SHA-256 isn't {}: {sum}", self.sha256));
        }
        let sources = folder.join("sources");
        fs::create_dir(&sources).map_err(|error| failed(folder, &error))?;
        let mut unpack = match *kind {
            "npm" => Command::new("tar"),
            "wheel" => Command::new("python3"),
            _ => Command::new("dpkg-deb"),
        };
        match *kind {
            "npm" => unpack.arg("-xzf").arg(&archive).arg("-C").arg(&sources),
            "wheel" => unpack.args(["-m", "zipfile", "-e"]).arg(&archive).arg(&sources),
            _ => unpack.arg("--extract").arg(&archive).arg(&sources),
        };
        step::run("unpacking it", &mut unpack)?;
        Ok(sources)
    }
}

fn failed(folder: &Path, error: &io::Error) -> String {
    format!("{}: {error}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_fixed_by_version_and_digest() {
        let list = fs::read_to_string(cargo::root().join("tests/sources/sources.txt"));
        let list = list.expect("the list is readable");
        let packages = parse(&list).expect("it is valid");
        assert!(packages.len() >= 10);
        for Package { kind, name, version, sha256 } in packages {
            assert!(["crate", "npm", "wheel", "debian"].contains(&kind), "{name}");
            assert!(!name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()));
            assert!(sha256.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
        assert!(parse("crate tokio 1.0.0").is_err());
    }
}
