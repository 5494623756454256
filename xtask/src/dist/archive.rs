//! The folder that is handed out, and the archive of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ARCH, printed};
use crate::{cargo, step};

/// What is handed out, as a folder in `target/dist`.
pub(crate) struct Archive {
    /// Of the folder.
    name: String,
    folder: PathBuf,
}

impl Archive {
    /// An empty one, in place of what an earlier run left.
    pub(crate) fn new(version: &str) -> Result<Archive, String> {
        let name = format!("berth-{version}-{ARCH}-linux");
        let archive = Archive { folder: dist().join(&name), name };
        if dist().exists() {
            fs::remove_dir_all(dist())
                .map_err(|error| format!("can't remove {}: {error}", dist().display()))?;
        }
        fs::create_dir_all(&archive.folder)
            .map_err(|error| format!("can't create {}: {error}", archive.folder.display()))?;
        Ok(archive)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the folder is as one file, once it is sealed.
    pub(crate) fn packed(&self) -> PathBuf {
        dist().join(format!("{}.tar.gz", self.name))
    }

    /// Adds a file, by its path in the archive.
    pub(crate) fn file(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        self.add(path, bytes, 0o644)
    }

    /// Adds a file that can be executed.
    pub(crate) fn program(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        self.add(path, bytes, 0o755)
    }

    fn add(&self, path: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        let file = self.folder.join(path);
        let folder = file.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, bytes))
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)))
            .map_err(|error| format!("can't write {}: {error}", file.display()))
    }

    /// Adds the checksums of all files, and packs the folder. Nothing is added afterwards.
    pub(crate) fn seal(&self) -> Result<(), String> {
        let mut files = Vec::new();
        collect(&self.folder, "", &mut files)?;
        self.file("SHA256SUMS", checksums(&self.folder, &files)?.as_bytes())?;
        // Nothing about this machine, its user or the time of day.
        let mut tar = Command::new("tar");
        tar.env_remove("TAR_OPTIONS").args([
            "--create",
            "--use-compress-program=gzip -9n",
            "--sort=name",
            "--format=ustar",
            "--owner=0",
            "--group=0",
        ]);
        tar.args([
            "--numeric-owner",
            "--mode=u=rwX,go=rX",
            &format!("--mtime=@{}", time()),
            "--file",
        ]);
        tar.arg(self.packed()).arg("--directory").arg(dist()).arg(&self.name);
        step::run("tar", &mut tar)?;
        let sums = checksums(&dist(), &[format!("{}.tar.gz", self.name)])?;
        let file = dist().join("SHA256SUMS");
        fs::write(&file, sums).map_err(|error| format!("can't write {}: {error}", file.display()))
    }
}

fn dist() -> PathBuf {
    cargo::target().join("dist")
}

/// When the sources were last changed, in seconds since 1970: what `SOURCE_DATE_EPOCH` says, or
/// git.
fn time() -> u64 {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let of_commit = || {
        printed(Command::new("git").current_dir(cargo::root()).args(["log", "-1", "--format=%ct"]))
            .ok()
    };
    told.or_else(of_commit).and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0)
}

/// Lines as `sha256sum` writes and checks them.
fn checksums(folder: &Path, files: &[String]) -> Result<String, String> {
    printed(Command::new("sha256sum").current_dir(folder).arg("--").args(files))
}

/// The paths of all files, sorted.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<(), String> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries =
        entries.map_err(|error| format!("can't list {}: {error}", folder.display()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{prefix}{}", entry.file_name().display());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
