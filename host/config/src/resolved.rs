//! Where a path of the configuration leads, and whether somebody could change that.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use berth_private::Way;
use rustix::fs::{Access, access};

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
/// It can't be followed.
pub(super) fn resolve(written: &Path) -> io::Result<Resolved> {
    let Way { real, links, .. } = Way::follow(written)?;
    Ok(Resolved { real, link: links.into_iter().find(|link| can_be_exchanged(link)) })
}

/// Whether programs of this user can put another link in the place of one. What tools may write
/// today isn't asked: they may write elsewhere in another working directory, or by another
/// configuration, and a project may bring the link along.
fn can_be_exchanged(link: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let Some(folder) = link.parent() else { return true };
    let (Ok(around), Ok(own)) = (folder.metadata(), link.symlink_metadata()) else { return true };
    // In a sticky folder, such as `/tmp`, only their owners remove names.
    let is_kept = around.mode() & 0o1000 != 0 && own.uid() != user;
    around.uid() == user || !is_kept && access(folder, Access::WRITE_OK).is_ok()
}

/// A path as it is written in a configuration, from `base` or the home.
pub(super) fn expand(path: &str, base: &Path, folders: &Folders) -> PathBuf {
    match (&folders.home, path.strip_prefix('~')) {
        (Some(home), Some(rest)) => home.join(rest.trim_start_matches('/')),
        _ => base.join(path),
    }
}
