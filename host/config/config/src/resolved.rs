//! Where a path of the configuration really leads, and whether somebody else could change that.

use std::io;
use std::path::{Path, PathBuf};

use toolhold_data_dir::Way;

use super::Folders;

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The real path.
    pub(super) real: PathBuf,
    /// A link on the way that a tool could exchange, here or in another working directory.
    pub(super) link: Option<PathBuf>,
}

/// Where a path of the configuration leads.
///
/// # Errors
///
/// The path can't be followed.
pub(super) fn resolve(written: &Path) -> io::Result<Resolved> {
    let way = Way::follow(written)?;
    let link = way.exchangeable().map(Path::to_owned);
    Ok(Resolved { real: way.real, link })
}

/// A path as it is written in a configuration, from `base` or the home.
pub(super) fn expand(path: &str, base: &Path, folders: &Folders) -> PathBuf {
    match (&folders.home, path.strip_prefix('~')) {
        (Some(home), Some(rest)) => home.join(rest.trim_start_matches('/')),
        _ => base.join(path),
    }
}
