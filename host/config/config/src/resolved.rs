//! Resolves a path of the configuration, and reports whether a tool could change its target.

use std::io;
use std::path::{Path, PathBuf};

use toolhold_data_dir::Way;

use super::Folders;

/// The target of a path.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The real path.
    pub(super) real: PathBuf,
    /// A link on the way that a tool could exchange, here or in another working directory.
    pub(super) link: Option<PathBuf>,
}

/// Resolves a path of the configuration.
///
/// # Errors
///
/// The path can't be followed.
pub(super) fn resolve(written: &Path) -> io::Result<Resolved> {
    let way = Way::follow(written)?;
    let link = way.exchangeable().map(Path::to_owned);
    Ok(Resolved { real: way.real, link })
}

/// Makes a path that is written in a configuration absolute, from `base` or the home.
pub(super) fn expand(path: &str, base: &Path, folders: &Folders) -> PathBuf {
    match (&folders.home, path.strip_prefix('~')) {
        (Some(home), Some(below)) => home.join(below.trim_start_matches('/')),
        _ => base.join(path),
    }
}
