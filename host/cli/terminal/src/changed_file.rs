//! Changes a file of an MCP client completely or not at all, and without wider rights.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use similar::TextDiff;
use toolhold_core::HostError;

use crate::error::CommandError as Error;
use crate::new_file::{self, writing};

/// Largest file of a client, in bytes.
const LONGEST: u64 = 4 << 20;

/// A change of a file that isn't written yet.
#[derive(Debug)]
pub struct FileChange {
    /// The path that the user knows.
    path: PathBuf,
    /// The file itself.
    target: PathBuf,
    /// The content. Without one, the file doesn't exist.
    before: Option<String>,
    /// The content to be written. Without one, the file is removed.
    after: Option<String>,
}

impl FileChange {
    /// Plans the change of a file: `edited` makes the new content from the old one. Returns `None`
    /// if the content stays the same.
    ///
    /// # Errors
    ///
    /// The file can't be read or changed; or a project's file is a link that leaves the project,
    /// which is untrusted.
    pub fn plan<E: Display>(
        path: &Path,
        in_project: bool,
        edited: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<Option<Self>, Error> {
        let target = target(path, in_project)?;
        let before = read(&target)?;
        let after = edited(before.as_deref().unwrap_or_default())
            .map_err(|why| Error::Usage(format!("{} isn't changed: {why}", path.display())))?;
        if before.as_deref() == Some(&after) {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), target, before, after: Some(after) }))
    }

    /// Plans the removal of a file. Returns `None` if the file doesn't exist.
    ///
    /// # Errors
    ///
    /// The errors of [`FileChange::plan`].
    pub fn removal(path: &Path, in_project: bool) -> Result<Option<Self>, Error> {
        let target = target(path, in_project)?;
        let before = read(&target)?;
        if before.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), target, before, after: None }))
    }

    /// The path that the user knows.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content before the change. `None`: there is no file.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// The content after the change. `None`: the file is removed.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Returns the diff.
    pub fn diff(&self) -> String {
        let before = self.before.as_deref().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let shown = self.path.display().to_string();
        let diff = TextDiff::from_lines(before, after);
        diff.unified_diff().header(&shown, &shown).to_string()
    }

    /// Writes the new content completely, or not at all.
    ///
    /// # Errors
    ///
    /// The file can't be written, or was changed since the change was planned.
    pub fn write(&self) -> Result<(), Error> {
        let path = &self.path;
        let Some(after) = &self.after else {
            self.check_unchanged()?;
            fs::remove_file(&self.target).map_err(writing(path))?;
            return Ok(());
        };
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        new_file::private_folder(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".toolhold-")
            .tempfile_in(folder)
            .map_err(writing(path))?;
        file.write_all(after.as_bytes()).map_err(writing(path))?;
        if self.before.is_some() {
            let mode = fs::metadata(&self.target).map_err(writing(path))?.permissions();
            file.as_file().set_permissions(mode).map_err(writing(path))?;
        }
        file.as_file().sync_all().map_err(writing(path))?;

        self.check_unchanged()?;
        let persisted = match self.before {
            Some(_) => file.persist(&self.target),
            None => file.persist_noclobber(&self.target),
        };
        persisted.map_err(|error| writing(path)(error.error))?;
        Ok(())
    }

    /// Checks that the file has the content that the change was planned for. The client may write
    /// the file at the same time.
    fn check_unchanged(&self) -> Result<(), Error> {
        if read(&self.target)? == self.before {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} was changed in the meantime by another program, and isn't changed: try again",
            self.path.display()
        )))
    }
}

/// Changes or creates a file. `edited` makes the new content from the old one. Returns the diff, or
/// `None` if the content stays the same.
///
/// # Errors
///
/// The errors of [`FileChange::plan`] and of [`FileChange::write`].
pub fn change<E: Display>(
    path: &Path,
    in_project: bool,
    edited: impl FnOnce(&str) -> Result<String, E>,
) -> Result<Option<String>, Error> {
    let Some(change) = FileChange::plan(path, in_project, edited)? else { return Ok(None) };
    change.write()?;
    Ok(Some(change.diff()))
}

/// Returns the target if `path` is a link. Some people store such files in another place.
fn target(path: &Path, in_project: bool) -> Result<PathBuf, Error> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default();
    let real_folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound && folder.symlink_metadata().is_err() => {
            folder.to_owned()
        }
        Err(error) => return Err(looking_at(path)(error).into()),
    };
    let target = match path.symlink_metadata() {
        Ok(_) => path.canonicalize().map_err(looking_at(path))?,
        Err(error) if error.kind() == ErrorKind::NotFound => real_folder.join(name),
        Err(error) => return Err(looking_at(path)(error).into()),
    };

    if in_project {
        let project = std::env::current_dir()
            .and_then(|here| here.canonicalize())
            .map_err(looking_at(path))?;
        if !target.starts_with(&project) {
            let path = path.display();
            let target = target.display();
            return Err(Error::Usage(format!(
                "{path} leads to {target}, which is outside the project, and isn't changed"
            )));
        }
    }
    Ok(target)
}

/// Converts an error of resolving `path`.
fn looking_at(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("looking at {}", path.display()))
}

/// Reads a file. Returns `None` if the file doesn't exist.
fn read(path: &Path) -> Result<Option<String>, Error> {
    let shown = path.display();
    // Opening a named pipe would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(reading(path)(error).into()),
    };
    if !file.metadata().map_err(reading(path))?.is_file() {
        return Err(Error::Usage(format!("{shown} isn't a file, and isn't changed")));
    }

    let mut text = String::new();
    match file.take(LONGEST + 1).read_to_string(&mut text) {
        Ok(bytes) if bytes as u64 > LONGEST => Err(Error::Usage(format!(
            "{shown} is too large, and isn't changed; the limit is {} MiB",
            LONGEST >> 20
        ))),
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(Error::Usage(format!("{shown} is not UTF-8, and isn't changed")))
        }
        Err(error) => Err(reading(path)(error).into()),
    }
}

/// Converts an error of reading the file at `path`.
fn reading(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("reading {}", path.display()))
}
