//! The files of a call for `wasi:filesystem`.
//!
//! This module implements the whole interface. Every function with a path goes through
//! `toolhold_system::files`. If a later version of the interface adds a function, this crate
//! doesn't compile until the function is implemented here.
//!
//! A call starts on a thread that must not block. Each function waits for [`CallWatch::may_block`]
//! before it blocks.
//!
//! [`Capture`] stores the output of a guest.
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
    /// Whether the object is writable. For a directory, this is only the grant, and rules decide on
    /// each change of an entry.
    writable: bool,
    /// Whether the file system can return cached data without blocking.
    answers_from_cache: bool,
}

impl Descriptor {
    /// Checks whether this is a granted directory. Other directories were opened by the guest.
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

/// The entries of a directory, as a stream.
#[derive(Debug)]
pub struct EntryStream(Listing);

/// The files of a call.
#[derive(Debug)]
pub struct Files {
    view: Option<FileView>,
    accessed: bool,
    write_budget: Arc<WriteBudget>,
    denials: RememberedDenials,
}

/// The denials of a call. The first denial explains a failure best.
#[derive(Debug, Default)]
pub struct RememberedDenials {
    first: Option<Box<Denial>>,
    count: u64,
}

impl RememberedDenials {
    /// Remembers a denial.
    pub fn remember(&mut self, denial: Box<Denial>) {
        self.count += 1;
        self.first.get_or_insert(denial);
    }

    /// Takes the first denial and the number of denials.
    pub fn take(&mut self) -> (Option<Box<Denial>>, u64) {
        (self.first.take(), std::mem::take(&mut self.count))
    }
}

impl Files {
    /// Makes the files of a call. `view` is `None` without granted directories. The call may write
    /// `write_budget` bytes.
    pub fn new(view: Option<FileView>, write_budget: u64) -> Self {
        Self {
            view,
            accessed: false,
            write_budget: Arc::new(WriteBudget {
                left: AtomicU64::new(write_budget),
                refused: AtomicBool::new(false),
            }),
            denials: RememberedDenials::default(),
        }
    }

    /// Returns the view of the files, and records the access.
    pub fn view(&mut self) -> Option<FileView> {
        self.accessed = true;
        self.view.clone()
    }

    /// Returns the number of granted directories.
    pub fn roots(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.grants().roots().len())
    }

    /// Checks whether the guest has accessed a file. Listing the granted directories is no access.
    pub fn accessed(&self) -> bool {
        self.accessed
    }

    fn record_open(&mut self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.accessed = true;
        match &self.view {
            Some(view) => view.record_open(dir),
            None => Ok(()),
        }
    }

    /// Checks whether all files are read-only, whatever the grants say.
    pub fn is_read_only(&self) -> bool {
        self.view.as_ref().is_none_or(FileView::is_read_only)
    }

    /// Checks whether a write exceeded the write budget.
    pub fn reached_write_limit(&self) -> bool {
        self.write_budget.refused.load(Ordering::Relaxed)
    }

    /// Returns the denials.
    pub fn denials(&mut self) -> &mut RememberedDenials {
        &mut self.denials
    }

    /// Takes over the denials from before the call, because they may explain its failure.
    pub fn keep_denials_of(&mut self, mut earlier: Self) {
        self.denials = std::mem::take(&mut earlier.denials);
    }

    /// Converts an error of the path layer, and remembers a denial.
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

/// Unfinished files are removed whether the call succeeded or failed.
impl Drop for Files {
    fn drop(&mut self) {
        if let Some(view) = &self.view {
            view.remove_temporary();
        }
    }
}

/// The error of a function of `wasi:filesystem`.
#[derive(Debug)]
pub enum FsError {
    /// The guest gets an error code.
    Code(types::ErrorCode),
    /// The guest traps.
    Trap(wasmtime::Error),
}

impl From<types::ErrorCode> for FsError {
    fn from(code: types::ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<ResourceTableError> for FsError {
    fn from(error: ResourceTableError) -> Self {
        // The guest has too many open descriptors, or used an invalid handle.
        match error {
            ResourceTableError::Full => Self::Code(types::ErrorCode::InsufficientMemory),
            other => Self::Trap(other.into()),
        }
    }
}

/// The bytes that a call may still write.
#[derive(Debug)]
struct WriteBudget {
    left: AtomicU64,
    /// Whether a write was refused.
    refused: AtomicBool,
}

impl WriteBudget {
    /// Takes `bytes` from the budget before a write. If too few bytes remain, takes nothing.
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        let update = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        let has_too_few = update.is_err();
        if has_too_few {
            self.refused.store(true, Ordering::Relaxed);
            return Err(Errno::DQUOT);
        }
        Ok(())
    }
}

/// The host's side of `wasi:filesystem` in a call.
pub struct FilesView<'a> {
    /// The files.
    pub files: &'a mut Files,
    /// The guest's handles.
    pub table: &'a mut ResourceTable,
    /// The watch of the call, which must allow each blocking operation.
    pub watch: &'a Arc<CallWatch>,
}

/// Links `wasi:filesystem`. `view` finds the files in a store's data.
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

/// The host data of these interfaces is a [`FilesView`].
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
            // WASI requires UTF-8. The host has already refused directories with other names.
            let Some(name) = root.path.to_str() else { continue };
            let writable = root.access == Access::Write;
            let descriptor = Descriptor {
                handle: Arc::new(root.reopen()?),
                directory: true,
                granted: true,
                readable: true,
                writable,
                answers_from_cache: root.prompt,
            };
            directories.push((self.table.push(descriptor)?, name.to_owned()));
        }
        Ok(directories)
    }
}
