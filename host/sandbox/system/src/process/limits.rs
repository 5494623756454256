//! Limits for the paths that are searched and covered for one command. A command that exceeds a
//! limit isn't started.

use std::path::PathBuf;

use toolhold_data_dir::NotKept;

/// Entries below the granted directories that are checked with globs.
pub(super) const MAX_CHECKED: usize = 1_000_000;

/// Maximum number of paths that are covered or frozen for one command. Each of them needs a mount.
pub(super) const MAX_DENIED: usize = 10_000;

/// Levels of directories that are searched.
pub(super) const MAX_DEPTH: usize = 128;

/// The reason why the places of a command can't be determined, so it isn't started.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// There are more than `MAX_CHECKED` entries.
    #[error(
        "the granted directories have more than {MAX_CHECKED} entries, too many to check for \
         sockets and denied files"
    )]
    TooMany,
    /// There are more than `MAX_DENIED` denied paths.
    #[error(
        "globs deny more than {MAX_DENIED} files and folders in the granted directories, too many \
         to hide from a command"
    )]
    TooManyDenied,
    /// A denied path can't be passed to the helper.
    #[error("{} is denied, but can't be hidden from commands, because the name is not UTF-8; \
             rename the file or folder", .0.display())]
    NotText(PathBuf),
    /// There are more than `MAX_DEPTH` levels.
    #[error("{} is more than {MAX_DEPTH} folders deep, too deep to search for sockets and denied \
             files", .0.display())]
    TooDeep(PathBuf),
    /// The whole machine is granted.
    #[error(
        "`/` can't be granted to commands, because commands run in a private root directory. Name \
         directories below `/` in `allowed_paths`; commands always see the system directories that \
         programs need"
    )]
    Root,
    /// The command could create a file or folder that must stay missing.
    #[error(transparent)]
    NotKept(#[from] NotKept),
    /// A folder can't be read.
    #[error("{0} can't be searched for sockets and denied files: {1}")]
    Unreadable(PathBuf, std::io::Error),
}
