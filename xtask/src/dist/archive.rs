//! The folder of a release, and its archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ARCH, stdout_of};
use crate::{cargo, step};

/// The contents of a release, as a folder.
pub(crate) struct Archive {
    /// Name of the folder.
    name: String,
    folder: PathBuf,
}

impl Archive {
    /// Creates an empty folder in another one, and removes what an earlier run left there.
    pub(crate) fn new(parent: &Path, version: &str) -> Result<Archive, String> {
        let name = format!("toolhold-{version}-{ARCH}-linux");
        let archive = Archive { folder: parent.join(&name), name };
        if parent.exists() {
            fs::remove_dir_all(parent)
                .map_err(|error| format!("can't remove {}: {error}", parent.display()))?;
        }
        fs::create_dir_all(&archive.folder)
            .map_err(|error| format!("can't create {}: {error}", archive.folder.display()))?;
        Ok(archive)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the image that is made of the same files.
    pub(crate) fn image(&self) -> PathBuf {
        dist().join(self.name.replace(&format!("{ARCH}-linux"), &format!("{ARCH}-image.tar")))
    }

    /// The path of the packed archive, which `pack` writes.
    pub(crate) fn packed(&self) -> PathBuf {
        dist().join(format!("{}.tar.gz", self.name))
    }

    /// Adds a file, by its path in the archive.
    pub(crate) fn file(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        self.add(path, bytes, 0o644)
    }

    /// Adds an executable file.
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

    /// Adds the checksums of all files. No file can be added afterwards.
    pub(crate) fn sum(&self) -> Result<(), String> {
        let mut files = Vec::new();
        collect(&self.folder, "", &mut files)?;
        self.file("SHA256SUMS", checksums(&self.folder, &files)?.as_bytes())
    }

    /// Adds the checksums, and packs the folder.
    pub(crate) fn pack(&self) -> Result<(), String> {
        self.sum()?;
        // The archive has no data about this machine, its user or the current time.
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
            &format!("--mtime=@{}", source_time()),
            "--file",
        ]);
        tar.arg(self.packed()).arg("--directory").arg(dist()).arg(&self.name);
        step::run("tar", &mut tar)
    }
}

/// Writes the checksums of the archive and of all packages.
pub(crate) fn sum() -> Result<(), String> {
    let entries = fs::read_dir(dist())
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list {}: {error}", dist().display()))?;
    let mut files: Vec<String> = entries
        .iter()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().display().to_string())
        .collect();
    files.sort();
    let file = dist().join("SHA256SUMS");
    fs::write(&file, checksums(&dist(), &files)?)
        .map_err(|error| format!("can't write {}: {error}", file.display()))
}

/// The folder of a release.
pub(crate) fn dist() -> PathBuf {
    cargo::target().join("dist")
}

/// The time of the last change of the sources, in seconds since 1970: from `SOURCE_DATE_EPOCH`,
/// otherwise from git.
pub(crate) fn source_time() -> u64 {
    let from_environment = std::env::var("SOURCE_DATE_EPOCH").ok();
    from_environment
        .or_else(time_of_last_commit)
        .and_then(|seconds| seconds.trim().parse().ok())
        .unwrap_or(0)
}

fn time_of_last_commit() -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(cargo::root()).args(["log", "-1", "--format=%ct"]);
    stdout_of(&mut git).ok()
}

/// Lines in the format of `sha256sum`.
fn checksums(folder: &Path, files: &[String]) -> Result<String, String> {
    stdout_of(Command::new("sha256sum").current_dir(folder).arg("--").args(files))
}

/// The paths of all files, sorted.
pub(crate) fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<(), String> {
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list {}: {error}", folder.display()))?;
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
