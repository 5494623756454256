//! The path layer: the one place that opens granted paths.

mod grants;

pub use grants::{Grants, Root};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::{Access, Denial};
use berth_policy::files::{FileRules, Kind, Refusal};
use rustix::fs::FileType;
use rustix::io::Errno;

/// What one call may do with files: the grants of its plugin, all of them read-only where the call is.
#[derive(Clone, Debug)]
pub struct FileView {
    grants: Arc<Grants>,
    read_only: bool,
}

/// Something that exists and may be used: where the kernel says it lies, and a handle that no longer depends on its name.
#[derive(Debug)]
pub struct Found {
    /// `O_PATH`: names the object, reads nothing.
    pub handle: OwnedFd,
    /// Real path.
    pub path: PathBuf,
    /// What it is.
    pub kind: FileType,
}

/// Why the path layer did not do what was asked.
#[derive(Debug)]
pub enum FileError {
    /// A rule refuses it.
    Denied(Box<Denial>),
    /// The kernel refuses it.
    Errno(Errno),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl FileView {
    /// A view of `grants`; with `read_only`, nothing may be written.
    pub fn new(grants: Arc<Grants>, read_only: bool) -> Self {
        Self { grants, read_only }
    }

    /// The rules behind the view.
    pub fn rules(&self) -> &FileRules {
        self.grants.rules()
    }

    /// Whether `access` to the real path is allowed, without words for the refusal.
    pub fn decide(&self, path: &Path, kind: Kind, access: Access) -> Result<(), Refusal> {
        if self.read_only && access == Access::Write {
            return Err(Refusal::ReadOnlyCall);
        }
        self.rules().decide(path, kind, access)
    }

    /// Finds what an absolute path names, for reading: through the grant that covers it, links followed but never out of the grant.
    ///
    /// # Errors
    ///
    /// [`FileError::Denied`] for what lies outside every grant or is refused; the kernel's error otherwise (`NOENT`, `LOOP`, …).
    pub fn find(&self, path: &Path) -> Result<Found, FileError> {
        let _ = path;
        Err(Errno::NOSYS.into())
    }
}
