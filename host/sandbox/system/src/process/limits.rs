//! The limits on how many paths are searched and covered for one command, and the errors when these
//! limits are exceeded.

use std::path::PathBuf;

use toolhold_data_dir::NotKept;

/// Entries below the granted directories that are checked against globs.
pub(super) const MAX_LOOKED_AT: usize = 1_000_000;

/// The most paths that are covered or frozen for one command. Each path needs a mount.
pub(super) const MAX_DENIED: usize = 10_000;

/// Levels of directories.
pub(super) const MAX_DEPTH: usize = 128;

/// The reason why the places can't be determined. The command then isn't started.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// More entries than are checked.
    #[error(
        "more than {MAX_LOOKED_AT} entries are in the granted directories, too many to check for sockets and denied files"
    )]
    TooMany,
    /// More paths than are covered.
    #[error(
        "more than {MAX_DENIED} files and folders in the granted directories are denied by globs, too many to be hidden one by one"
    )]
    TooManyDenied,
    /// A name that can't be passed on.
    #[error("{} may not be read or written, but can't be hidden: its name is not UTF-8; rename it", .0.display())]
    NotText(PathBuf),
    /// More levels than are checked.
    #[error("{} is more than {MAX_DEPTH} folders deep, too deep to be searched for sockets and denied files", .0.display())]
    TooDeep(PathBuf),
    /// The whole machine is granted.
    #[error(
        "commands can't be given `/` as a whole: they run in a root directory of their own. Name the directories below it in `allowed_paths`; \
         what programs need of the system, they see anyway"
    )]
    Root,
    /// A command could make a file or folder that must stay missing.
    #[error(transparent)]
    NotKept(#[from] NotKept),
    /// A folder that can't be read.
    #[error("{0} can't be searched for sockets and denied files: {1}")]
    Unreadable(PathBuf, std::io::Error),
}
