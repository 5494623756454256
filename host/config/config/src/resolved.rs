//! Resolves a path of the configuration. Detects whether a tool could change its target.

use std::io;
use std::path::{Path, PathBuf};

use toolhold_data_dir::Way;

use super::Folders;

#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) real: PathBuf,
    /// A link on the path that a tool could change, in this or another working directory.
    pub(super) link: Option<PathBuf>,
}

/// Resolves a path of the configuration. The result also has the first link on the path that a tool
/// could change.
///
/// # Errors
///
/// Returns the system's error if the path can't be followed.
pub(super) fn resolve(written: &Path) -> io::Result<Resolved> {
    let way = Way::follow(written)?;
    let link = way.exchangeable().map(Path::to_owned);
    Ok(Resolved { real: way.real, link })
}

/// Returns the absolute path. A relative path starts at `base`, and `~` is the home directory.
pub(super) fn expand(path: &str, base: &Path, folders: &Folders) -> PathBuf {
    match (&folders.home, path.strip_prefix('~')) {
        (Some(home), Some(below)) => home.join(below.trim_start_matches('/')),
        _ => base.join(path),
    }
}
