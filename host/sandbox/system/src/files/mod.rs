//! The path layer, which checks and opens each path that a call names. No other code opens granted
//! paths.
//!
//! A guest's name is resolved below a directory handle without side effects (`openat2`, `O_PATH`).
//! The kernel reports the real path of the result, and the rules decide on this path. An allowed
//! object is opened again through its handle. So the opened object is the checked one, even if its
//! name has another object by then. Changes of names use the parent's handle and the last
//! component, which the kernel doesn't follow.

mod below;
mod change;
mod grants;
mod kernel;
mod listing;
mod open;
mod seen;
mod temporary;

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use toolhold_contract::{Access, ChangeRecorder, ChangedPath, Denial, PathRules, Report};
use toolhold_policy::files::{FileRules, Kind, OwnFolder, Refusal};

pub use grants::{GrantError, Grants, Root, real_or_given, with_its_links};
pub use kernel::{proc_works, resolving_works};
pub use listing::{Listing, ListingEntry};
pub use open::{OpenObject, OpenOptions};
pub use seen::FileDependencies;
use seen::Watcher;
use temporary::Temporary;

use crate::mounts;

/// The most created files that a call remembers. With them, [`FileView::rename`] can preserve the
/// mode of a replaced file.
const REMEMBERED: usize = 1024;

/// The most links to a missing target that are followed one after the other. The kernel's limit for
/// all links is the same.
const MAX_LINKS: u32 = 40;

/// The error for a path without a last component, such as `.`, where a last component is needed.
const NO_LEAF: Errno = Errno::INVAL;

/// The files of one call: the grants of its plugin. All grants are read-only for a reading call.
#[derive(Clone, Debug)]
pub struct FileView {
    grants: Arc<Grants>,
    read_only: bool,
    /// Toolhold's own folders under the other names that they have because of mounts inside a
    /// grant.
    aliases: Arc<[OwnFolder]>,
    /// File systems that aren't those of the grants, by device. The flag says whether the file
    /// system is one of the kernel's own.
    devices: Arc<Mutex<Vec<(u64, bool)>>>,
    made: Arc<Mutex<Made>>,
    /// Receives everything that the call reads, if set.
    watcher: Option<Arc<Watcher>>,
    /// The rules about calls if they concern paths, and the report for entries that listings omit
    /// because of these rules.
    call: Option<(Arc<dyn PathRules>, Arc<Report>)>,
    /// Saves objects before they change. `None` if nothing saves them.
    changes: Option<Arc<dyn ChangeRecorder>>,
    /// Whether only the kernel's cache is used to resolve names.
    cached: bool,
}

/// The objects that a call has created and that matter later in the call.
#[derive(Debug, Default)]
struct Made {
    /// The device and inode of each created file.
    files: Vec<(u64, u64)>,
    /// The permission bits of the file and the directory that the call opened last for reading.
    read: LastRead,
    temporary: Vec<Arc<Temporary>>,
}

/// The file that the call opened last for reading. A copy gets its mode.
#[derive(Clone, Copy, Debug, Default)]
struct LastRead {
    file: Option<Mode>,
    directory: Option<Mode>,
}

/// An existing object that may be used: its real path, and a handle that is independent of its
/// name.
#[derive(Debug)]
pub struct ResolvedObject {
    /// An `O_PATH` handle, which refers to the object and can't read it.
    pub handle: OwnedFd,
    /// Real path.
    pub path: PathBuf,
    /// The type of the object.
    pub kind: FileType,
    /// The metadata of the object when it was found.
    pub stat: Stat,
}

/// A path that a call names and that was decided on before the tool runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The path for the tool, which is absolute and below the real path of its grant.
    pub given: PathBuf,
    /// The real path, with every link resolved. The object may not exist yet.
    pub real: PathBuf,
}

/// The treatment of a path whose last component is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The link's target.
    Followed,
    /// The link itself is removed, renamed or replaced. In this case, the path may not name a
    /// granted directory in any spelling.
    Meant,
}

/// The reason why the path layer failed.
#[derive(Debug)]
pub enum FileError {
    /// A rule refuses the request.
    Denied(Box<Denial>),
    /// The kernel refuses the request.
    Errno(Errno),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Returns the error for an object that could not be saved before its change.
fn not_saved(error: std::io::Error) -> FileError {
    FileError::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A last component in an existing directory, for an operation that changes names.
#[derive(Debug)]
struct DirEntryRef<'p> {
    dir: OwnedFd,
    dir_path: PathBuf,
    leaf: &'p str,
    /// Whether the name ended in a slash, so that it must be a directory.
    wants_directory: bool,
}

impl DirEntryRef<'_> {
    fn path(&self) -> PathBuf {
        self.dir_path.join(self.leaf)
    }
}

impl FileView {
    /// Makes a view of `grants`. With `read_only`, nothing can be written.
    pub fn new(grants: Arc<Grants>, read_only: bool) -> Self {
        let aliases = grants.aliases();
        Self {
            grants,
            read_only,
            aliases,
            devices: Arc::default(),
            made: Arc::default(),
            watcher: None,
            call: None,
            changes: None,
            cached: false,
        }
    }

    /// Returns the same view for a thread that must not block, to [`locate`](Self::locate) paths.
    /// Paths fail with `AGAIN` if they aren't in the kernel's cache, or are in a file system that
    /// isn't [prompt](Root::prompt).
    #[must_use]
    pub fn cache_only(self) -> Self {
        Self { cached: true, ..self }
    }

    /// Returns the same view for a call with rules about its paths.
    #[must_use]
    pub fn under(self, rules: Option<&Arc<dyn PathRules>>, report: &Arc<Report>) -> Self {
        Self { call: rules.map(|rules| (Arc::clone(rules), Arc::clone(report))), ..self }
    }

    /// Returns the same view, which reports each change to `changes` before the change.
    #[must_use]
    pub fn recording(self, changes: Option<&Arc<dyn ChangeRecorder>>) -> Self {
        Self { changes: changes.map(Arc::clone), ..self }
    }

    /// Makes the recorder save the object of a name before a change. If the object doesn't exist,
    /// the recorder saves this.
    fn before_change(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let object = match kernel::resolve(place.dir.as_fd(), place.leaf, false) {
            Err(Errno::NOENT) => None,
            object => Some(object?),
        };
        let changed = ChangedPath {
            path: &place.path(),
            object: object.as_ref().map(AsFd::as_fd),
            parent: Some(place.dir.as_fd()),
        };
        changes.before_change(&changed).map_err(not_saved)
    }

    /// Has the recorder save a found object that is about to change.
    fn before_change_of(&self, found: &ResolvedObject) -> Result<(), FileError> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let object = Some(found.handle.as_fd());
        let changed = ChangedPath { path: &found.path, object, parent: None };
        changes.before_change(&changed).map_err(not_saved)
    }

    /// Returns the granted directories.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns the rules for the granted directories.
    pub fn rules(&self) -> &FileRules {
        self.grants.rules()
    }

    /// Checks whether nothing can be written, whatever the grants say.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Decides whether `access` to the real path is allowed, without the text of a refusal.
    ///
    /// # Errors
    ///
    /// The rule that refuses.
    pub fn decide(&self, path: &Path, kind: Kind, access: Access) -> Result<(), Refusal> {
        if self.read_only && access == Access::Write {
            return Err(Refusal::ReadOnlyCall);
        }
        let mut aliases = self.aliases.iter().filter(|own| path.starts_with(&own.path));
        if aliases.any(|own| own.secret || access == Access::Write) {
            return Err(Refusal::Own);
        }
        if let Err(refusal) = self.rules().decide(path, kind, access) {
            match self.decide_temporary(path, kind, access) {
                Some(decision) => decision?,
                None => return Err(refusal),
            }
        }
        let Some((rules, _)) = &self.call else { return Ok(()) };
        let destination = final_path(&**rules, path);
        rules.decide(destination.as_deref().unwrap_or(path), access).map_err(Refusal::OfCall)
    }

    /// Checks whether a listing or a search omits the real path. If a rule about calls is the
    /// reason, the report records this.
    pub fn leaves_out(&self, path: &Path, kind: Kind) -> bool {
        let Err(refusal) = self.decide(path, kind, Access::Read) else { return false };
        if let (Refusal::OfCall(refusal), Some((rules, report))) = (refusal, &self.call) {
            report.left_out(refusal.asks, || rules.explain(refusal, path, Access::Read));
            if refusal.asks {
                // Every answer must mention that the entry needs approval, so this answer is not
                // reused.
                self.mark_incomplete();
            }
        }
        true
    }

    /// Returns the refusal of a path below the folder `path` that is certainly refused for writing,
    /// if such a path is known.
    fn refused_below(&self, path: &Path) -> Option<Refusal> {
        let holds_own = self.aliases.iter().any(|own| own.path.starts_with(path));
        if holds_own { Some(Refusal::Own) } else { self.rules().refused_below(path) }
    }

    /// Finds an absolute path for reading, through the grant that covers it. Follows links, but
    /// never out of the grant.
    ///
    /// # Errors
    ///
    /// [`FileError::Denied`] if the path is outside of every grant or a rule refuses it. Otherwise,
    /// the kernel's error (`NOENT`, `LOOP`, …).
    pub fn find(&self, path: &Path) -> Result<ResolvedObject, FileError> {
        let Some((root, rest)) = self.grants.covering(path) else {
            return Err(self.denied(Refusal::Outside, path, Access::Read));
        };
        let rest = rest.to_str().ok_or(Errno::ILSEQ)?;
        self.find_at(root.dir.as_fd(), if rest.is_empty() { "." } else { rest }, true)
    }

    /// Opens an absolute path through the grant that covers it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`find`](Self::find) and of [`open_at`](Self::open_at).
    pub fn open(&self, path: &Path, how: OpenOptions) -> Result<OpenObject, FileError> {
        let Some((root, rest)) = self.grants.covering(path) else {
            return Err(self.denied(Refusal::Outside, path, Access::Read));
        };
        let rest = rest.to_str().ok_or(Errno::ILSEQ)?;
        self.open_at(root.dir.as_fd(), if rest.is_empty() { "." } else { rest }, how)
    }

    /// Finds `path` below `dir` for reading. `follow`: whether a final link is followed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`find`](Self::find).
    pub fn find_at(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
    ) -> Result<ResolvedObject, FileError> {
        let found = self.resolve(dir, path, follow, Access::Read)?;
        self.check(&found.path, found.kind, Access::Read)?;
        Ok(found)
    }

    /// Finds the same as [`find_at`](Self::find_at), on a thread that must not block. Only finds
    /// objects in the kernel's cache and in the file system of `dir`, which must be
    /// [prompt](Root::prompt).
    ///
    /// # Errors
    ///
    /// `AGAIN` in all other cases, including each refusal, which [`find_at`](Self::find_at)
    /// explains.
    pub fn find_at_once(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
    ) -> Result<ResolvedObject, Errno> {
        let found = Self::find_in_cache(dir, path, follow).map_err(|_| Errno::AGAIN)?;
        let kind = if found.kind == FileType::Directory { Kind::Directory } else { Kind::Other };
        if self.decide(&found.path, kind, Access::Read).is_err() {
            return Err(Errno::AGAIN);
        }
        let result = Ok(found);
        self.record_lookup(|| kernel::real_path_at_once(dir), path, follow, &result);
        result.map_err(|_: FileError| Errno::AGAIN)
    }

    fn find_in_cache(
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
    ) -> Result<ResolvedObject, Errno> {
        if path.len() > kernel::PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        // Only the file system of the directory is searched. It answers without waiting, and isn't
        // one of the kernel's own.
        let handle = kernel::resolve_cached(dir, path, follow)?;
        let stat = rustix::fs::fstat(&handle)?;
        if stat.st_nlink == 0 {
            return Err(Errno::NOENT);
        }
        let path = kernel::real_path_at_once(handle.as_fd())?;
        Ok(ResolvedObject { handle, path, kind: kernel::file_type(&stat), stat })
    }

    /// Decides on an absolute path before a tool starts with this path. Returns the path for the
    /// tool and its real path. If the object doesn't exist yet, the place where it would be created
    /// decides.
    ///
    /// # Errors
    ///
    /// [`FileError::Denied`] if a rule refuses the path. Other errors of the path are ignored,
    /// because the tool will report them.
    pub fn locate(
        &self,
        path: &Path,
        access: Access,
        last: LastLink,
    ) -> Result<ResolvedPath, FileError> {
        if path.as_os_str().len() > kernel::PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let located = self.locate_spelled(path, access, last, MAX_LINKS);
        if !matches!(located, Err(FileError::Denied(_))) {
            return located;
        }
        if self.cached {
            return Err(Errno::AGAIN.into());
        }
        // Perhaps only the spelling is outside: it has too many `..`, or a link above the grant or
        // from one grant to another. The lookup has no side effects, and its result is checked like
        // any other path. The refusal is the same whether or not the path exists.
        let real = match (last, path.parent(), path.file_name()) {
            (LastLink::Meant, Some(parent), Some(name)) => grants::real_or_given(parent).join(name),
            _ => grants::real_or_given(path),
        };
        if real == path {
            located
        } else {
            self.locate_spelled(&real, access, last, MAX_LINKS).or(located)
        }
    }

    /// Decides on an absolute path by its spelling. `links`: how many more links to missing targets
    /// may be followed.
    fn locate_spelled(
        &self,
        path: &Path,
        access: Access,
        last: LastLink,
        links: u32,
    ) -> Result<ResolvedPath, FileError> {
        let Some((root, rest)) = self.grants.covering(path) else {
            return Err(self.denied(Refusal::Outside, path, access));
        };
        if self.cached && !root.prompt {
            return Err(Errno::AGAIN.into());
        }
        let given =
            if rest.as_os_str().is_empty() { root.path.clone() } else { root.path.join(rest) };
        let Some(rest) = rest.to_str() else {
            return Err(self.denied(Refusal::Outside, path, access));
        };

        // The existing start of `rest` is found by removing components from its end.
        let mut existing = rest;
        let found = loop {
            let follow = last == LastLink::Followed || existing.len() < rest.len();
            let name = if existing.is_empty() { "." } else { existing };
            match self.resolve(root.dir.as_fd(), name, follow, access) {
                Ok(found) => break found,
                Err(FileError::Errno(Errno::NOENT)) if !existing.is_empty() => {
                    let parent = existing.trim_end_matches('/').rsplit_once('/');
                    existing = parent.map_or("", |(parent, _)| parent);
                }
                Err(FileError::Errno(Errno::AGAIN)) if self.cached => {
                    return Err(Errno::AGAIN.into());
                }
                // The tool will get the same error. The nearest existing folder determines the
                // place.
                Err(FileError::Errno(_)) => {
                    return Ok(ResolvedPath { real: real_or_given(&given), given });
                }
                Err(denied) => return Err(denied),
            }
        };
        let missing = Path::new(rest[existing.len()..].trim_start_matches('/'));
        if missing.components().any(|part| part == Component::ParentDir) {
            return Err(self.denied(Refusal::Outside, path, access));
        }

        // This is a link to a missing target. Writing through the link creates the target.
        if links > 0
            && let Some(target) = target_of_missing(&found, missing)
        {
            let target = real_or_given(&target);
            let located = self.locate_spelled(&target, access, last, links - 1)?;
            return Ok(ResolvedPath { given, real: located.real });
        }

        let (real, kind) = if missing.as_os_str().is_empty() {
            (found.path, found.kind)
        } else {
            (found.path.join(missing), FileType::Unknown)
        };
        if last == LastLink::Meant
            && let Err(refusal) = self.rules().decide_name(&real)
        {
            return Err(self.denied(refusal, &real, access));
        }
        self.check(&real, kind, access)?;
        // A directory that the path names with `..` has its own name, and that name would change.
        if last == LastLink::Meant && given.file_name().is_none() {
            return Ok(ResolvedPath { given: real.clone(), real });
        }
        Ok(ResolvedPath { given, real })
    }

    /// Resolves a path without deciding on the result. Every caller must decide next.
    ///
    /// A path out of `dir` is denied here. If a missing path would be denied if it existed, it is
    /// also denied here, so that denied names can't be probed.
    fn resolve(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
        access: Access,
    ) -> Result<ResolvedObject, FileError> {
        let result = self.resolve_unrecorded(dir, path, follow, access);
        self.record_lookup(|| kernel::real_path(dir), path, follow, &result);
        result
    }

    fn resolve_unrecorded(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
        access: Access,
    ) -> Result<ResolvedObject, FileError> {
        if self.cached {
            return Self::find_in_cache(dir, path, follow).map_err(|_| Errno::AGAIN.into());
        }
        let handle = match kernel::resolve(dir, path, follow) {
            Ok(handle) => handle,
            Err(Errno::XDEV) => return Err(self.leads_out(dir, path, access)),
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) => {
                if let Ok(place) = self.place(dir, path) {
                    self.check(&place.path(), FileType::Unknown, access)?;
                }
                return Err(errno.into());
            }
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&handle)?;
        if stat.st_nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        let path = kernel::real_path(handle.as_fd())?;
        self.check_file_system(&handle, &stat, &path, access)?;
        Ok(ResolvedObject { handle, path, kind: kernel::file_type(&stat), stat })
    }

    /// Splits `path` into its directory, which must exist below `dir`, and the last component,
    /// which need not exist.
    fn place<'p>(&self, dir: BorrowedFd<'_>, path: &'p str) -> Result<DirEntryRef<'p>, FileError> {
        let trimmed = path.trim_end_matches('/');
        let (parent, leaf) = match trimmed.rsplit_once('/') {
            Some(("", leaf)) => ("/", leaf),
            Some((parent, leaf)) => (parent, leaf),
            None => (".", trimmed),
        };
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if matches!(leaf, "" | "." | "..") {
            // The directory of a handle itself can't be renamed or removed.
            return Err(NO_LEAF.into());
        }

        let handle = kernel::resolve(dir, parent, true).map_err(|errno| match errno {
            Errno::XDEV => self.leads_out(dir, path, Access::Write),
            errno => errno.into(),
        })?;
        let stat = rustix::fs::fstat(&handle)?;
        if kernel::file_type(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if stat.st_nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        let dir_path = kernel::real_path(handle.as_fd())?;
        self.check_file_system(&handle, &stat, &dir_path, Access::Write)?;

        let wants_directory = path.ends_with('/');
        let place = DirEntryRef { dir: handle, dir_path, leaf, wants_directory };
        match self.rules().decide_name(&place.path()) {
            Ok(()) => Ok(place),
            Err(refusal) => Err(self.denied(refusal, &place.path(), Access::Write)),
        }
    }

    fn check(&self, path: &Path, kind: FileType, access: Access) -> Result<(), FileError> {
        let kind = if kind == FileType::Directory { Kind::Directory } else { Kind::Other };
        self.decide(path, kind, access).map_err(|refusal| self.denied(refusal, path, access))
    }

    /// Refuses objects in the kernel's own file systems. The check uses the object, not its name. A
    /// directory with its own grant is allowed.
    fn check_file_system(
        &self,
        handle: &OwnedFd,
        stat: &Stat,
        path: &Path,
        access: Access,
    ) -> Result<(), FileError> {
        if self.grants.is_on_a_granted_device(stat.st_dev) {
            return Ok(());
        }
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let known = devices.iter().find(|(device, _)| *device == stat.st_dev);
        let is_kernels = match known {
            Some((_, is_kernels)) => *is_kernels,
            None => {
                let is_kernels = mounts::is_kernels(handle)?;
                devices.push((stat.st_dev, is_kernels));
                is_kernels
            }
        };
        if is_kernels { Err(self.denied(Refusal::Kernel, path, access)) } else { Ok(()) }
    }

    /// Returns the error that explains a refusal.
    fn denied(&self, refusal: Refusal, path: &Path, access: Access) -> FileError {
        self.mark_incomplete();
        let denial = match (refusal, &self.call) {
            (Refusal::OfCall(refusal), Some((rules, _))) => rules.explain(refusal, path, access),
            _ => self.rules().explain(refusal, path, access),
        };
        FileError::Denied(Box::new(denial))
    }

    /// Returns the error for a path that leads out of `dir`.
    fn leads_out(&self, dir: BorrowedFd<'_>, path: &str, access: Access) -> FileError {
        match kernel::real_path(dir) {
            Ok(dir) => self.denied(Refusal::Outside, &dir.join(path), access),
            Err(errno) => errno.into(),
        }
    }

    fn remember_made(&self, stat: &Stat) {
        let mut made = self.made();
        if made.files.len() < REMEMBERED {
            made.files.push((stat.st_dev, stat.st_ino));
        }
    }

    fn created(&self, stat: &Stat) -> bool {
        self.made().files.contains(&(stat.st_dev, stat.st_ino))
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the final path of a temporary file, by which the rules about calls decide. The temporary
/// file is next to its final path. Returns `None` for every other path.
fn final_path(rules: &dyn PathRules, path: &Path) -> Option<PathBuf> {
    let temporary = temporary::outermost(path)?;
    let place = rules.written_in(temporary.parent()?)?;
    let below = path.strip_prefix(temporary).ok()?;
    Some(if below.as_os_str().is_empty() { place.to_owned() } else { place.join(below) })
}

/// Returns the target of a link whose own target is missing. The link is the first component of
/// `missing` in the found folder. The other components are below the target.
fn target_of_missing(found: &ResolvedObject, missing: &Path) -> Option<PathBuf> {
    let mut parts = missing.components();
    let link = parts.next()?;
    let text = rustix::fs::readlinkat(&found.handle, link.as_os_str(), Vec::new()).ok()?;
    let target = found.path.join(OsStr::from_bytes(text.as_bytes()));
    Some(target.join(parts.as_path()))
}
