//! Opens the files of the plugin folder. A file must be a regular file that only its user can
//! write. Each file is opened once, so that nobody can replace the file between the check and the
//! read.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_data_dir::PrivateFolder;
use toolhold_system::watch::FileStamp;

/// Maximum number of files in the folder. A folder with more files is probably a mistake.
const MAX_FILES: usize = 1024;

/// Maximum length of a plugin's name in a message, in bytes.
const MAX_SHOWN: usize = 64;

const ROOT: u32 = 0;

/// The mode bits that let the group or other users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[derive(Debug, thiserror::Error)]
pub(super) enum PluginFileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file can't be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("{} can't be read: {error}", path.display())]
    NamedUnreadable { path: PathBuf, error: io::Error },
    #[error("the file is a link; put the file itself into the folder")]
    Link,
    #[error("this isn't a file")]
    NotAFile,
    #[error(
        "other users can write to the file, so `reload = \"trust\"` would trust these users; \
         change the owner (`chown`) or the permissions (`chmod go-w`) of the file, or approve the \
         plugin"
    )]
    OthersCanWrite,
    #[error("{}: {error}", path.display())]
    Copy { path: PathBuf, error: io::Error },
}

/// A folder with plugin files. Only its user can write to it.
pub(super) struct PluginFolder {
    folder: PrivateFolder,
    path: PathBuf,
}

impl PluginFolder {
    /// Opens the folder. Returns `None` for a missing folder, and an error if other users can write
    /// to the folder.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        match PrivateFolder::open(path) {
            Ok(folder) => Ok(Some(Self { folder, path: path.to_owned() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the names of the plugins in the folder, in order. `NAME.wasm` is the plugin `NAME`.
    pub(super) fn names(&self) -> Result<Vec<String>, PluginFileError> {
        let files = self.folder.names(MAX_FILES).map_err(PluginFileError::Unreadable)?;
        let mut plugins = Vec::new();
        for file in &files {
            let Some(plugin) = file.strip_suffix(".wasm") else { continue };
            // Editors and copying programs hide their unfinished files.
            if !plugin.is_empty() && !plugin.starts_with('.') {
                plugins.push(plugin.to_owned());
            }
        }
        Ok(plugins)
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.wasm"))
    }

    /// Opens the file of a plugin. A link or another kind of file is refused.
    pub(super) fn open_plugin(&self, name: &str) -> Result<(File, FileStamp), PluginFileError> {
        let file = match self.folder.file(&format!("{name}.wasm")) {
            Ok(file) => file,
            Err(error) if is_link_error(&error) => return Err(PluginFileError::Link),
            Err(error) => return Err(error.into()),
        };
        let stamp = stamp_of(&file)?;
        Ok((file, stamp))
    }
}

fn is_link_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Opens the component at a configured path. Links are followed and the folder isn't checked,
/// because the user wrote the path. `trusted` means that the component runs without approval, so a
/// file that other users can write is refused.
pub(super) fn open_named(path: &Path, trusted: bool) -> Result<(File, FileStamp), PluginFileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        PluginFileError::NamedUnreadable { path: path.to_owned(), error: errno.into() }
    })?;
    let file = File::from(file);
    let stamp = stamp_of(&file)?;
    let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
    let group_or_others_can_write = stat.st_mode & WRITABLE_BY_OTHERS != 0;
    let user = rustix::process::geteuid().as_raw();
    let is_of_another_user = stat.st_uid != ROOT && stat.st_uid != user;
    if trusted && (group_or_others_can_write || is_of_another_user) {
        return Err(PluginFileError::OthersCanWrite);
    }
    Ok((file, stamp))
}

pub(super) fn stamp_of(file: &File) -> Result<FileStamp, PluginFileError> {
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(FileStamp::from(&metadata)) } else { Err(PluginFileError::NotAFile) }
}

pub(super) fn shown(name: &str) -> String {
    neutral_line(cut(name, MAX_SHOWN))
}
