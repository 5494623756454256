//! Changes a file in one step, unless another program has changed it since the change was planned.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use similar::TextDiff;
use toolhold_core::HostError;

use crate::error::CommandError as Error;
use crate::new_file::{self, writing};

/// The most bytes of a file.
const MAX_FILE: u64 = 4 * MIB;

const MIB: u64 = 1024 * 1024;

/// A planned change of a file.
#[derive(Debug)]
pub struct FileChange {
    /// The path for messages, which may be a link.
    path: PathBuf,
    /// The path of the file to which `path` leads.
    target: PathBuf,
    /// The current content, or `None` if the file doesn't exist.
    before: Option<String>,
    /// The new content, or `None` if the file is removed.
    after: Option<String>,
}

impl FileChange {
    /// Plans a change. With `in_project`, the file must be in the working directory. `edit` makes
    /// the new content from the old content. Returns `None` if the content doesn't change.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read. Also refuses a project's file that is a link to
    /// a file outside the project, because other people may have made this link.
    pub fn plan<E: Display>(
        path: &Path,
        in_project: bool,
        edit: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<Option<Self>, Error> {
        let target = real_path(path, in_project)?;
        let before = read(&target)?;
        // A missing file counts as empty.
        let old_text = before.as_deref().unwrap_or_default();
        let after = edit(old_text)
            .map_err(|why| Error::Usage(format!("{} was not changed: {why}", path.display())))?;
        if before.as_deref() == Some(&after) {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), target, before, after: Some(after) }))
    }

    /// Plans the removal of a file. Returns `None` if the file doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`FileChange::plan`].
    pub fn removal(path: &Path, in_project: bool) -> Result<Option<Self>, Error> {
        let target = real_path(path, in_project)?;
        let before = read(&target)?;
        if before.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), target, before, after: None }))
    }

    /// Returns the path for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content before the change, or `None` if there is no file.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Returns the content after the change, or `None` if the file is removed.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Returns the unified diff of the change.
    pub fn diff(&self) -> String {
        let before = self.before.as_deref().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let shown = self.path.display().to_string();
        let diff = TextDiff::from_lines(before, after);
        diff.unified_diff().header(&shown, &shown).to_string()
    }

    /// Makes the change in one step.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be written, or if another program has changed the file.
    pub fn write(&self) -> Result<(), Error> {
        match &self.after {
            Some(after) => self.replace(after),
            None => {
                self.check_unchanged()?;
                fs::remove_file(&self.target).map_err(writing(&self.path))?;
                Ok(())
            }
        }
    }

    /// Writes a temporary file next to the target, and renames it to the target.
    fn replace(&self, after: &str) -> Result<(), Error> {
        let path = &self.path;
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        new_file::private_folder(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".toolhold-")
            .tempfile_in(folder)
            .map_err(writing(path))?;
        file.write_all(after.as_bytes()).map_err(writing(path))?;
        // The new file gets the permissions of the existing file.
        if self.before.is_some() {
            let mode = fs::metadata(&self.target).map_err(writing(path))?.permissions();
            file.as_file().set_permissions(mode).map_err(writing(path))?;
        }
        file.as_file().sync_all().map_err(writing(path))?;

        self.check_unchanged()?;
        let persisted = match self.before {
            Some(_) => file.persist(&self.target),
            // This fails if another program has created the file in the meantime.
            None => file.persist_noclobber(&self.target),
        };
        persisted.map_err(|error| writing(path)(error.error))?;
        Ok(())
    }

    /// Checks that no other program has changed the file since the change was planned.
    fn check_unchanged(&self) -> Result<(), Error> {
        if read(&self.target)? == self.before {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "another program changed {} in the meantime, so the file was not changed: try again",
            self.path.display()
        )))
    }
}

/// Plans and makes a change. Returns the diff, or `None` if the content doesn't change. The
/// parameters are the same as in [`FileChange::plan`].
///
/// # Errors
///
/// Returns the errors of [`FileChange::plan`] and of [`FileChange::write`].
pub fn change<E: Display>(
    path: &Path,
    in_project: bool,
    edit: impl FnOnce(&str) -> Result<String, E>,
) -> Result<Option<String>, Error> {
    let Some(change) = FileChange::plan(path, in_project, edit)? else { return Ok(None) };
    change.write()?;
    Ok(Some(change.diff()))
}

/// Returns the real path of a file. Links are followed, because some people keep their settings in
/// another folder. With `in_project`, the file must be in the project.
fn real_path(path: &Path, in_project: bool) -> Result<PathBuf, Error> {
    // Only `/` has no parent and no name.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default();
    let real_folder = match folder.canonicalize() {
        Ok(folder) => folder,
        // A missing folder is made later. A broken link is an error.
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
        check_in_project(path, &target)?;
    }
    Ok(target)
}

/// Checks that `target` is in the working directory, the project.
fn check_in_project(path: &Path, target: &Path) -> Result<(), Error> {
    let project =
        std::env::current_dir().and_then(|here| here.canonicalize()).map_err(looking_at(path))?;
    if target.starts_with(&project) {
        return Ok(());
    }
    let path = path.display();
    let target = target.display();
    Err(Error::Usage(format!(
        "{path} leads to {target}, which is outside the project, so the file was not changed"
    )))
}

fn looking_at(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("looking at {}", path.display()))
}

/// Reads the text of a file, or returns `None` if the file doesn't exist.
fn read(path: &Path) -> Result<Option<String>, Error> {
    let shown = path.display();
    // With this flag, opening a named pipe doesn't wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(reading(path)(error).into()),
    };
    if !file.metadata().map_err(reading(path))?.is_file() {
        return Err(Error::Usage(format!("{shown} isn't a file, so nothing was changed")));
    }

    let mut text = String::new();
    // One byte more shows that the file is too large.
    match file.take(MAX_FILE + 1).read_to_string(&mut text) {
        Ok(bytes) if bytes as u64 > MAX_FILE => Err(Error::Usage(format!(
            "{shown} is too large, so the file was not changed; the limit is {} MiB",
            MAX_FILE / MIB
        ))),
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(Error::Usage(format!("{shown} is not UTF-8, so the file was not changed")))
        }
        Err(error) => Err(reading(path)(error).into()),
    }
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("reading {}", path.display()))
}
