//! Opens the files of the plugin folder. A file must be a regular file that only its user can
//! write. Each file is opened once, and the open file is checked and read, so that it can't be
//! replaced in between.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_data_dir::PrivateFolder;
use toolhold_system::watch::FileStamp;

/// Most files in the folder. A folder with more is probably a mistake.
const MAX_FILES: usize = 1024;

/// The reason why a plugin's file or its folder can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginFileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it can't be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("it is a link; put the file itself into the folder")]
    Link,
    #[error("it isn't a file")]
    NotAFile,
    #[error(
        "other users can write to it, so `reload = \"trust\"` would trust them; `chown` it, `chmod go-w` it, or approve it"
    )]
    OthersCanWrite,
    /// The copy of an installed plugin.
    #[error("{}: {error}", path.display())]
    Copy { path: PathBuf, error: io::Error },
}

/// A folder whose components are loaded. Only its user can write to it.
pub(super) struct PluginFolder {
    folder: PrivateFolder,
    path: PathBuf,
}

impl PluginFolder {
    /// Opens the folder. Returns `None` if there is no folder, and an error if other users can
    /// write to it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        match PrivateFolder::open(path) {
            Ok(folder) => Ok(Some(Self { folder, path: path.to_owned() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the names of the plugins in the folder, in order. Each is the `NAME` of a
    /// `NAME.wasm`.
    pub(super) fn names(&self) -> Result<Vec<String>, PluginFileError> {
        let names = self.folder.names(MAX_FILES).map_err(PluginFileError::Unreadable)?;
        // Hidden files are unfinished files of editors and copying programs.
        let plugins = names
            .iter()
            .filter_map(|name| name.strip_suffix(".wasm"))
            .filter(|name| !name.is_empty() && !name.starts_with('.'));
        Ok(plugins.map(str::to_owned).collect())
    }

    /// Returns the path of a plugin's file.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.wasm"))
    }

    /// Opens the file of a plugin, which must be a regular file that only its user can write.
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

/// Checks whether a file wasn't opened because its path is a link.
fn is_link_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Opens a component that the configuration names. Its folder isn't checked and links are followed,
/// since the operator wrote the path. With `trusted`, the component is loaded without approval, so
/// other users must not be able to write to it.
pub(super) fn open_named(path: &Path, trusted: bool) -> Result<(File, FileStamp), PluginFileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| PluginFileError::Unreadable(errno.into()))?;
    let file = File::from(file);
    let stamp = stamp_of(&file)?;
    let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
    let group_or_others_can_write = stat.st_mode & 0o022 != 0;
    let is_of_another_user = stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw();
    if trusted && (group_or_others_can_write || is_of_another_user) {
        return Err(PluginFileError::OthersCanWrite);
    }
    Ok((file, stamp))
}

/// Returns the stamp of an open file. The file has to be a regular file.
pub(super) fn stamp_of(file: &File) -> Result<FileStamp, PluginFileError> {
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(FileStamp::from(&metadata)) } else { Err(PluginFileError::NotAFile) }
}

/// Shortens and neutralises the name of a file or plugin for display.
pub(super) fn shown(name: &str) -> String {
    neutral_line(cut(name, 64))
}
