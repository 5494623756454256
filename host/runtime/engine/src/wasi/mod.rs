//! The files of one call for `wasi:filesystem`: the descriptors, the write budget, and the denials
//! during the call.
//!
//! This module implements the whole interface, without parts of another implementation. Every
//! function that takes a path uses `toolhold_system::files`. If a later version of the interface
//! adds a function, this crate doesn't compile until the function is implemented here.
//!
//! A call starts on a thread that must not block. So every function that may block waits for
//! [`CallWatch::may_block`] first, except if the kernel's cache has the answer.
//!
//! [`Capture`] stores the output that a guest prints.
#![allow(unreachable_pub, reason = "the generated bindings export these types, which needs `pub`")]

mod bindings;
mod descriptor;
mod errors;
mod output;
mod streams;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use toolhold_contract::{Access, Denial};
use toolhold_system::files::{FileError, FileView, Listing};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable, ResourceTableError};

use crate::timing::CallWatch;
use crate::wasi::bindings::wasi::filesystem::{preopens, types};
pub use crate::wasi::output::Capture;

/// A guest's file descriptor.
#[derive(Debug)]
pub struct Descriptor {
    handle: Arc<OwnedFd>,
    directory: bool,
    readable: bool,
    /// Whether this is a granted directory. Libraries open granted directories once for all calls.
    granted: bool,
    /// Whether the object is writable. For a directory, only its grant matters here. The rules
    /// decide on each change by its path.
    writable: bool,
    /// Whether the file system returns cached data without waiting.
    prompt: bool,
}

impl Descriptor {
    /// Checks whether this is a granted directory, not one that the guest opened.
    pub fn is_granted(&self) -> bool {
        self.granted
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    fn directory(&self) -> Result<BorrowedFd<'_>, FsError> {
        if self.directory { Ok(self.fd()) } else { Err(types::ErrorCode::NotDirectory.into()) }
    }

    fn readable_file(&self) -> Result<&Arc<OwnedFd>, FsError> {
        match self {
            Self { directory: true, .. } => Err(types::ErrorCode::IsDirectory.into()),
            Self { readable: false, .. } => Err(types::ErrorCode::BadDescriptor.into()),
            Self { handle, .. } => Ok(handle),
        }
    }

    fn writable_file(&self) -> Result<&Arc<OwnedFd>, FsError> {
        match self {
            Self { directory: true, .. } => Err(types::ErrorCode::IsDirectory.into()),
            Self { writable: false, .. } => Err(types::ErrorCode::BadDescriptor.into()),
            Self { handle, .. } => Ok(handle),
        }
    }
}

/// A stream of a directory's entries for a guest.
#[derive(Debug)]
pub struct EntryStream(Listing);

/// The files of one call.
#[derive(Debug)]
pub struct Files {
    view: Option<FileView>,
    /// Whether the guest has accessed any file.
    accessed: bool,
    /// The number of bytes that the call may still write.
    write_budget: Arc<WriteBudget>,
    denials: RememberedDenials,
}

/// The denials of a call: their number, and the first one, which explains a failure best.
#[derive(Debug, Default)]
pub struct RememberedDenials {
    first: Option<Box<Denial>>,
    count: u64,
}

impl RememberedDenials {
    /// Remembers a refusal.
    pub fn remember(&mut self, denial: Box<Denial>) {
        self.count += 1;
        self.first.get_or_insert(denial);
    }

    /// Takes the first refusal and the number of refusals.
    pub fn take(&mut self) -> (Option<Box<Denial>>, u64) {
        (self.first.take(), std::mem::take(&mut self.count))
    }
}

impl Files {
    /// Makes the files of a call. `view`: `None` if no directory is granted. `write_budget`: the
    /// total number of bytes that the call may write.
    pub fn new(view: Option<FileView>, write_budget: u64) -> Self {
        let write_budget =
            WriteBudget { left: AtomicU64::new(write_budget), refused: AtomicBool::new(false) };
        Self {
            view,
            accessed: false,
            write_budget: Arc::new(write_budget),
            denials: RememberedDenials::default(),
        }
    }

    /// Returns the files that the guest may use now, and records the access.
    pub fn view(&mut self) -> Option<FileView> {
        self.accessed = true;
        self.view.clone()
    }

    /// Returns the number of granted directories.
    pub fn roots(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.grants().roots().len())
    }

    /// Checks whether the guest has accessed any file. Listing the granted directories is no
    /// access.
    pub fn accessed(&self) -> bool {
        self.accessed
    }

    /// Records in the call's report that the guest has read an open directory.
    fn record_open(&mut self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.accessed = true;
        match &self.view {
            Some(view) => view.record_open(dir),
            None => Ok(()),
        }
    }

    /// Checks whether all files are read-only, even if the grants allow writing.
    pub fn is_read_only(&self) -> bool {
        self.view.as_ref().is_none_or(FileView::is_read_only)
    }

    /// Checks whether a write was refused because the write budget was used up.
    pub fn reached_write_limit(&self) -> bool {
        self.write_budget.refused.load(Ordering::Relaxed)
    }

    /// Returns the denials of the call so far.
    pub fn denials(&mut self) -> &mut RememberedDenials {
        &mut self.denials
    }

    /// Adds the denials from before the call, which may explain the call's failure as well.
    pub fn keep_denials_of(&mut self, mut earlier: Self) {
        self.denials = std::mem::take(&mut earlier.denials);
    }

    /// Converts an error of the path layer for the guest, and remembers a denial.
    fn error_for_guest(&mut self, error: FileError) -> FsError {
        match error {
            FileError::Denied(denial) => {
                self.denials.remember(denial);
                types::ErrorCode::NotPermitted.into()
            }
            FileError::Errno(errno) => errors::code(errno).into(),
        }
    }
}

/// Removes the call's unfinished files, however the call ended.
impl Drop for Files {
    fn drop(&mut self) {
        if let Some(view) = &self.view {
            view.remove_temporary();
        }
    }
}

/// The error of a file system function.
#[derive(Debug)]
pub enum FsError {
    /// The guest gets a code.
    Code(types::ErrorCode),
    /// The guest is stopped because it violated the interface or a limit.
    Trap(wasmtime::Error),
}

impl From<types::ErrorCode> for FsError {
    fn from(code: types::ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<ResourceTableError> for FsError {
    fn from(error: ResourceTableError) -> Self {
        // A full table means that the limit of open descriptors is reached. Other errors mean that
        // the guest used an invalid handle.
        match error {
            ResourceTableError::Full => Self::Code(types::ErrorCode::InsufficientMemory),
            other => Self::Trap(other.into()),
        }
    }
}

/// The number of bytes that a call may still write to files.
#[derive(Debug)]
struct WriteBudget {
    left: AtomicU64,
    /// Whether a write was refused.
    refused: AtomicBool,
}

impl WriteBudget {
    /// Takes bytes from the budget before a write. If too few bytes remain, takes none and fails.
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        let update = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if update.is_err() {
            self.refused.store(true, Ordering::Relaxed);
            return Err(Errno::DQUOT);
        }
        Ok(())
    }
}

/// The host side of `wasi:filesystem` for one call.
pub struct FilesView<'a> {
    /// The files.
    pub files: &'a mut Files,
    /// The guest's handles.
    pub table: &'a mut ResourceTable,
    /// The watch of the call. The call's thread must not block before the watch allows it.
    pub watch: &'a Arc<CallWatch>,
}

/// Links `wasi:filesystem`. `view` finds the files in the data of a store.
///
/// # Errors
///
/// Returns an error if the linker already has one of the interfaces.
pub fn link<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> FilesView<'_>,
) -> wasmtime::Result<()> {
    types::add_to_linker::<T, HasFiles>(linker, view)?;
    preopens::add_to_linker::<T, HasFiles>(linker, view)
}

/// Tells the linker that the host data is a [`FilesView`].
struct HasFiles;

impl HasData for HasFiles {
    type Data<'a> = FilesView<'a>;
}

impl FilesView<'_> {
    fn view(&mut self) -> Result<FileView, FsError> {
        self.files.view().ok_or_else(|| types::ErrorCode::BadDescriptor.into())
    }
}

impl preopens::Host for FilesView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let Some(view) = &self.files.view else { return Ok(Vec::new()) };
        let mut directories = Vec::new();
        for root in view.grants().roots() {
            // A guest needs names in UTF-8. Loading refuses directories with other names.
            let Some(name) = root.path.to_str() else { continue };
            let writable = root.access == Access::Write;
            let descriptor = Descriptor {
                handle: Arc::new(root.reopen()?),
                directory: true,
                granted: true,
                readable: true,
                writable,
                prompt: root.prompt,
            };
            directories.push((self.table.push(descriptor)?, name.to_owned()));
        }
        Ok(directories)
    }
}
