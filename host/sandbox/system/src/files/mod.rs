//! The path layer. It checks and opens each path that a call names. No other code opens granted
//! paths.
//!
//! A path is resolved below a directory handle without side effects (`openat2`, `O_PATH`). The
//! kernel reports the real path of the object, and the rules decide on this path. An allowed object
//! is opened again through its handle, so the opened object is the checked object, even if its name
//! has got another object meanwhile. Changes of names use the handle of the parent and the last
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

/// Maximum number of created files that a call remembers. [`FileView::rename`] gives only a
/// remembered file the mode of the file that it replaces.
const REMEMBERED: usize = 1024;

/// Maximum number of successive links to a missing target that are followed, as in the kernel.
const MAX_LINKS: u32 = 40;

/// The error for a path without a last component, such as `.`.
const NO_LEAF: Errno = Errno::INVAL;

/// The files of one call. A call that only reads can't write, even with a grant to write.
#[derive(Clone, Debug)]
pub struct FileView {
    grants: Arc<Grants>,
    /// The rule that refuses every change. `None` if the grants decide.
    read_only: Option<Refusal>,
    /// The other names that mounts inside of a grant give Toolhold's own folders.
    aliases: Arc<[OwnFolder]>,
    /// Known devices outside of the grants. The flag is true for a file system of the kernel.
    devices: Arc<Mutex<Vec<(u64, bool)>>>,
    call_objects: Arc<Mutex<CallObjects>>,
    /// Receives everything that the call reads. `None` if nothing is recorded.
    watcher: Option<Arc<Watcher>>,
    /// The rules for the call's paths, and the report of the entries that listings omit because of
    /// these rules.
    call: Option<(Arc<dyn PathRules>, Arc<Report>)>,
    /// Saves objects before they change. `None` if nothing is saved.
    changes: Option<Arc<dyn ChangeRecorder>>,
    /// Whether names are resolved only in the kernel's cache.
    cached: bool,
}

/// Objects that the call has created or read, for later decisions in the same call.
#[derive(Debug, Default)]
struct CallObjects {
    files: Vec<(u64, u64)>,
    read: LastRead,
    temporary: Vec<Arc<Temporary>>,
}

/// The permission bits of the file and the directory that the call last opened for reading. Copies
/// get these bits.
#[derive(Clone, Copy, Debug, Default)]
struct LastRead {
    file: Option<Mode>,
    directory: Option<Mode>,
}

/// An existing object that the rules allow. Its handle stays valid if the name changes.
#[derive(Debug)]
pub struct ResolvedObject {
    /// An `O_PATH` handle, which identifies the object but can't read it.
    pub handle: OwnedFd,
    /// The real path.
    pub path: PathBuf,
    /// The type of the object.
    pub kind: FileType,
    /// The metadata when the object was found.
    pub stat: Stat,
}

/// A path of a call's arguments that the rules allow, before the tool runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The absolute path for the tool, below the real path of a grant.
    pub given: PathBuf,
    /// The real path, with every link resolved. The object may not exist yet.
    pub real: PathBuf,
}

/// The meaning of a path whose last component is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The path means the target of the link.
    Followed,
    /// The path means the link itself, to remove, rename or replace it. The link may lead out of
    /// the grants.
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

fn not_saved(error: std::io::Error) -> FileError {
    FileError::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A name in an existing directory, to be created, renamed or removed.
#[derive(Debug)]
struct DirEntryRef<'p> {
    dir: OwnedFd,
    dir_path: PathBuf,
    leaf: &'p str,
    /// Whether the path ended with a slash and therefore must be a directory.
    wants_directory: bool,
}

impl DirEntryRef<'_> {
    fn path(&self) -> PathBuf {
        self.dir_path.join(self.leaf)
    }
}

impl FileView {
    /// Creates a view of `grants`. With `read_only`, nothing can be written.
    pub fn new(grants: Arc<Grants>, read_only: bool) -> Self {
        let aliases = grants.aliases();
        let refused_writes = if read_only { Some(Refusal::ReadOnlyCall) } else { None };
        Self {
            grants,
            read_only: refused_writes,
            aliases,
            devices: Arc::default(),
            call_objects: Arc::default(),
            watcher: None,
            call: None,
            changes: None,
            cached: false,
        }
    }

    /// Returns the view of a plugin whose manifest requests files only for reading. Nothing can be
    /// written.
    #[must_use]
    pub fn of_reading_plugin(self) -> Self {
        Self { read_only: Some(Refusal::ReadOnlyManifest), ..self }
    }

    /// Returns the view for a thread that must not block. Its [`locate`](Self::locate) fails with
    /// `AGAIN` for a path outside of the kernel's cache, and for a file system that isn't
    /// [prompt](Root::prompt).
    #[must_use]
    pub fn cache_only(self) -> Self {
        Self { cached: true, ..self }
    }

    /// Returns the view for a call with rules for its paths.
    #[must_use]
    pub fn under(self, rules: Option<&Arc<dyn PathRules>>, report: &Arc<Report>) -> Self {
        Self { call: rules.map(|rules| (Arc::clone(rules), Arc::clone(report))), ..self }
    }

    /// Returns the view with a recorder that saves objects before they change.
    #[must_use]
    pub fn recording(self, changes: Option<&Arc<dyn ChangeRecorder>>) -> Self {
        Self { changes: changes.map(Arc::clone), ..self }
    }

    /// Makes the recorder save the object of a name before a change, or save that the name was
    /// free.
    fn before_change(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let follow = false;
        let object = match kernel::resolve(place.dir.as_fd(), place.leaf, follow) {
            Ok(object) => Some(object),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        let changed = ChangedPath {
            path: &place.path(),
            object: object.as_ref().map(AsFd::as_fd),
            parent: Some(place.dir.as_fd()),
        };
        changes.before_change(&changed).map_err(not_saved)
    }

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

    /// Checks whether nothing can be written, even with a grant to write.
    pub fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Decides whether `access` to a real path is allowed. The rules for the plugin decide first,
    /// and then the rules for the call.
    ///
    /// # Errors
    ///
    /// Returns the rule that denies the access.
    pub fn decide(&self, path: &Path, kind: Kind, access: Access) -> Result<(), Refusal> {
        if let Some(refusal) = self.read_only
            && access == Access::Write
        {
            return Err(refusal);
        }
        let mut aliases = self.aliases.iter().filter(|own| path.starts_with(&own.path));
        if aliases.any(|own| own.secret || access == Access::Write) {
            return Err(Refusal::Own);
        }
        if let Err(refusal) = self.rules().decide(path, kind, access) {
            // The rules refuse temporary names, but may allow the path without the temporary name.
            match self.decide_temporary(path, kind, access) {
                Some(decision) => decision?,
                None => return Err(refusal),
            }
        }

        let Some((call_rules, _)) = &self.call else { return Ok(()) };
        let decision = match final_path(&**call_rules, path) {
            Some(destination) => call_rules.decide(&destination, access),
            None => call_rules.decide(path, access),
        };
        decision.map_err(Refusal::OfCall)
    }

    /// Checks whether a listing or a search omits a real path. An omission because of a rule for
    /// calls is added to the report.
    pub fn leaves_out(&self, path: &Path, kind: Kind) -> bool {
        let Err(refusal) = self.decide(path, kind, Access::Read) else { return false };
        if let (Refusal::OfCall(by_call), Some((rules, report))) = (refusal, &self.call) {
            report.left_out(by_call.asks, || rules.explain(by_call, path, Access::Read));
            if by_call.asks {
                // Every answer must mention that the entry needs approval, so this answer can't be
                // reused.
                self.mark_incomplete();
            }
        }
        true
    }

    /// Returns a rule that certainly denies writing a path below the folder `path`, or `None` if no
    /// rule is known.
    fn refused_below(&self, path: &Path) -> Option<Refusal> {
        let contains_own_folder = self.aliases.iter().any(|own| own.path.starts_with(path));
        if contains_own_folder { Some(Refusal::Own) } else { self.rules().refused_below(path) }
    }

    /// Finds an absolute path for reading, through the grant that covers it. Follows links, but
    /// never out of the grant.
    ///
    /// # Errors
    ///
    /// Returns [`FileError::Denied`] if the path is outside of every grant or a rule denies it.
    /// Otherwise, returns the kernel's error (`NOENT`, `LOOP`, …).
    pub fn find(&self, path: &Path) -> Result<ResolvedObject, FileError> {
        let Some((root, rest)) = self.grants.covering(path) else {
            return Err(self.denied(Refusal::Outside, path, Access::Read));
        };
        let rest = rest.to_str().ok_or(Errno::ILSEQ)?;
        let relative_path = if rest.is_empty() { "." } else { rest };
        let follow = true;
        self.find_at(root.dir.as_fd(), relative_path, follow)
    }

    /// Opens an absolute path through the grant that covers it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`find`](Self::find) and of [`open_at`](Self::open_at).
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<OpenObject, FileError> {
        let Some((root, rest)) = self.grants.covering(path) else {
            return Err(self.denied(Refusal::Outside, path, Access::Read));
        };
        let rest = rest.to_str().ok_or(Errno::ILSEQ)?;
        let relative_path = if rest.is_empty() { "." } else { rest };
        self.open_at(root.dir.as_fd(), relative_path, options)
    }

    /// Finds `path` below `dir` for reading. `follow` says whether a final link is followed.
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

    /// Finds like [`find_at`](Self::find_at), but on a thread that must not block. Finds only
    /// objects in the kernel's cache and in the file system of `dir`, which must be
    /// [prompt](Root::prompt).
    ///
    /// # Errors
    ///
    /// Returns `AGAIN` in all other cases. This includes denials, which [`find_at`](Self::find_at)
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
        let lookup: Result<ResolvedObject, FileError> = Ok(found);
        self.record_lookup(|| kernel::real_path_at_once(dir), path, follow, &lookup);
        // The lookup is no error, so the conversion only changes its type.
        lookup.map_err(|_| Errno::AGAIN)
    }

    /// Finds a path in the kernel's cache, without waiting for a file system.
    fn find_in_cache(
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
    ) -> Result<ResolvedObject, Errno> {
        if path.len() > kernel::PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        // An object in one of the kernel's own file systems is usually denied, but this lookup
        // can't find one: it stays in the file system of `dir`, which the caller has checked to be
        // prompt, and the kernel's own file systems aren't prompt.
        let handle = kernel::resolve_cached(dir, path, follow)?;
        let stat = rustix::fs::fstat(&handle)?;
        let was_removed = stat.st_nlink == 0;
        if was_removed {
            return Err(Errno::NOENT);
        }
        let path = kernel::real_path_at_once(handle.as_fd())?;
        Ok(ResolvedObject { handle, path, kind: kernel::file_type(&stat), stat })
    }

    /// Decides on an absolute path before a tool starts with it. Returns the path for the tool and
    /// the real path. A missing object gets the decision on the path at which it can be created.
    ///
    /// # Errors
    ///
    /// Returns [`FileError::Denied`] if a rule denies the path. Other errors of the path are
    /// ignored, because the tool reports them.
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
        // A path may lead to a grant through `..` or a link outside of the grants, so the real path
        // is tried, too. The lookup has no side effects, and its result is checked.
        let real = match (last, path.parent(), path.file_name()) {
            (LastLink::Meant, Some(parent), Some(name)) => grants::real_or_given(parent).join(name),
            _ => grants::real_or_given(path),
        };
        if real == path {
            return located;
        }
        // If the real path is also denied, the denial names the path of the caller.
        self.locate_spelled(&real, access, last, MAX_LINKS).or(located)
    }

    /// Decides on an absolute path by its text. `links` is the number of links to missing targets
    /// that may still be followed.
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

        // Removes components from the end of `rest` until the remaining path exists.
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
                // The tool will get the same error, so the path passes here. Its real path is
                // resolved as far as it exists.
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

        // If the path leads through a link to a missing target, a write through the link creates
        // the target. So the rules decide on the path of the target.
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
        // A path that ends with `..` doesn't contain the name of the directory that it means. The
        // name is what changes, so the tool gets the real path.
        if last == LastLink::Meant && given.file_name().is_none() {
            return Ok(ResolvedPath { given: real.clone(), real });
        }
        Ok(ResolvedPath { given, real })
    }

    /// Resolves a path without a decision on the result. Every caller must decide next.
    ///
    /// Denies a path out of `dir`. A missing path gets the same denial as an existing path, so a
    /// call can't test whether denied paths exist.
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

    /// Resolves a path like [`resolve`](Self::resolve), but doesn't report the lookup.
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
                // A missing path gets the same denial as an existing path.
                if let Ok(place) = self.place(dir, path) {
                    self.check(&place.path(), FileType::Unknown, access)?;
                }
                return Err(errno.into());
            }
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&handle)?;
        let was_removed = stat.st_nlink == 0;
        if was_removed {
            return Err(Errno::NOENT.into());
        }
        let path = kernel::real_path(handle.as_fd())?;
        self.check_file_system(&handle, &stat, &path, access)?;
        Ok(ResolvedObject { handle, path, kind: kernel::file_type(&stat), stat })
    }

    /// Splits `path` into an existing directory below `dir`, and the last component, which may be
    /// missing.
    fn place<'p>(&self, dir: BorrowedFd<'_>, path: &'p str) -> Result<DirEntryRef<'p>, FileError> {
        let (parent, leaf) = split_leaf(path);
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if matches!(leaf, "" | "." | "..") {
            // The directory of a handle itself can't be renamed or removed.
            return Err(NO_LEAF.into());
        }

        let follow = true;
        let handle = kernel::resolve(dir, parent, follow).map_err(|errno| match errno {
            Errno::XDEV => self.leads_out(dir, path, Access::Write),
            errno => errno.into(),
        })?;
        let stat = rustix::fs::fstat(&handle)?;
        if kernel::file_type(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let was_removed = stat.st_nlink == 0;
        if was_removed {
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

    /// Denies an object in one of the kernel's own file systems, whatever its name is. An object on
    /// the device of a granted directory is always allowed.
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
        let is_of_kernel = match known {
            Some((_, is_of_kernel)) => *is_of_kernel,
            None => {
                let is_of_kernel = mounts::is_kernels(handle)?;
                devices.push((stat.st_dev, is_of_kernel));
                is_of_kernel
            }
        };
        if is_of_kernel { Err(self.denied(Refusal::Kernel, path, access)) } else { Ok(()) }
    }

    /// Returns the error for a refusal, and prevents a reuse of the call's answer.
    fn denied(&self, refusal: Refusal, path: &Path, access: Access) -> FileError {
        self.mark_incomplete();
        let denial = match (refusal, &self.call) {
            (Refusal::OfCall(refusal), Some((rules, _))) => rules.explain(refusal, path, access),
            _ => self.rules().explain(refusal, path, access),
        };
        FileError::Denied(Box::new(denial))
    }

    fn leads_out(&self, dir: BorrowedFd<'_>, path: &str, access: Access) -> FileError {
        match kernel::real_path(dir) {
            Ok(dir) => self.denied(Refusal::Outside, &dir.join(path), access),
            Err(errno) => errno.into(),
        }
    }

    fn remember_made(&self, stat: &Stat) {
        let mut objects = self.call_objects();
        if objects.files.len() < REMEMBERED {
            objects.files.push((stat.st_dev, stat.st_ino));
        }
    }

    fn created(&self, stat: &Stat) -> bool {
        self.call_objects().files.contains(&(stat.st_dev, stat.st_ino))
    }

    fn call_objects(&self) -> MutexGuard<'_, CallObjects> {
        self.call_objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits a path into its directory and its last component.
fn split_leaf(path: &str) -> (&str, &str) {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit_once('/') {
        Some(("", leaf)) => ("/", leaf),
        Some((parent, leaf)) => (parent, leaf),
        None => (".", trimmed),
    }
}

/// Returns the final path of a temporary file, for the rules for calls. The final path is in the
/// same folder. Returns `None` for other paths.
fn final_path(rules: &dyn PathRules, path: &Path) -> Option<PathBuf> {
    let temporary = temporary::outermost_temporary(path)?;
    let destination = rules.written_in(temporary.parent()?)?;
    let below = path.strip_prefix(temporary).ok()?;
    // Joining an empty path adds a slash.
    if below.as_os_str().is_empty() {
        return Some(destination.to_owned());
    }
    Some(destination.join(below))
}

/// Returns the path to which a dangling link leads. The link is the first component of `missing`,
/// which is below `found`. The remaining components are below the link's target. Returns `None` if
/// the first component isn't a link.
fn target_of_missing(found: &ResolvedObject, missing: &Path) -> Option<PathBuf> {
    let mut parts = missing.components();
    let link = parts.next()?;
    let text = rustix::fs::readlinkat(&found.handle, link.as_os_str(), Vec::new()).ok()?;
    let target = found.path.join(OsStr::from_bytes(text.as_bytes()));
    Some(target.join(parts.as_path()))
}
