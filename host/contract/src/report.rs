use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Denial;

/// What a provider tells of a call beside its outcome: for the audit, and for those who want to know whether an answer is still true.
///
/// It is filled while the call runs, from whatever thread does, and read when the call is over.
#[derive(Debug, Default)]
pub struct Report {
    told: Mutex<Told>,
    watched: bool,
}

/// What was told.
#[derive(Debug, Default)]
pub struct Told {
    /// The first refusal of an operation of the call.
    pub denial: Option<Denial>,
    /// How many operations were refused.
    pub denials: u64,
    /// What a program that the call started ended with.
    pub exit_code: Option<i32>,
    /// What the answer was made of, where somebody [watches](Report::watching).
    pub seen: Seen,
}

/// The files and directories that a call has looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Seen {
    /// Nobody knows: nothing was told, or more than is remembered.
    #[default]
    Unknown,
    /// These, each as it was before it was read, and nothing else.
    Files(Vec<SeenFile>),
}

/// A file or directory as a call found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// The absolute path by which it was found, links followed.
    pub path: PathBuf,
    /// What was there. None: nothing.
    pub state: Option<FileState>,
}

/// What shows that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Device and inode.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// Last change of the contents: seconds and nanoseconds.
    pub modified: (i64, u64),
    /// Last change of anything: seconds and nanoseconds.
    pub changed: (i64, u64),
}

impl Report {
    /// A report for somebody who wants to know what the call looks at.
    pub fn watching() -> Self {
        Self { watched: true, ..Self::default() }
    }

    /// Whether somebody wants to know what the call looks at. Where nobody does, telling it is a waste.
    pub fn is_watching(&self) -> bool {
        self.watched
    }

    /// What was told so far.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
