//! The messages between the host and the helper.

use serde::{Deserialize, Serialize};

/// How complete the sandbox must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Complete; otherwise nothing starts.
    #[default]
    Strict,
    /// As complete as this machine allows. Missing parts are reported.
    BestEffort,
    /// No sandbox.
    Off,
}

/// The access below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TreeAccess {
    /// Read and run files, list directories.
    Read,
    /// Everything.
    Write,
}

/// A directory or a file that a program gets, with everything below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Its real path.
    pub path: String,
    /// Its access.
    pub access: TreeAccess,
}

/// Whether the host learns of a program's changes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recorded {
    /// No.
    #[default]
    No,
    /// If this machine and the sandbox make it possible.
    IfPossible,
    /// Yes; otherwise the program doesn't start.
    Required,
}

/// Limits, of each process if it says "each"; otherwise of all processes of a command together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, each and together.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Seconds of processor time.
    pub cpu: u64,
    /// Bytes of a written file, each.
    pub file_size: u64,
    /// Descriptors, each.
    pub open_files: u64,
    /// Bytes of the private `/tmp` and home.
    pub scratch: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let gibibyte = 1 << 30;
        Self {
            memory: 4 * gibibyte,
            processes: 512,
            cpu: 3600,
            file_size: 4 * gibibyte,
            open_files: 4096,
            scratch: gibibyte,
        }
    }
}

/// One command and its sandbox, for the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The process that waits for the command: if it ends, everything ends.
    pub parent: i32,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub directory: String,
    /// How complete the sandbox must be.
    pub sandbox: Sandbox,
    /// Whether it gets namespaces and a view of its own: always, except with
    /// [`Sandbox::BestEffort`] on a machine that has none.
    pub namespaces: bool,
    /// Whether it reaches the network.
    pub network: bool,
    /// Whether the host wants to learn of its changes in files.
    pub recorded: Recorded,
    /// Its trees, the outer before the inner.
    pub trees: Vec<Tree>,
    /// Directories in the trees that keep their names and places, the outer before the inner: if
    /// they moved, what is covered in them would become visible.
    pub pinned: Vec<String>,
    /// Paths in the trees that can't be read or written.
    pub hidden: Vec<String>,
    /// Paths in the trees that can't be written.
    pub frozen: Vec<String>,
    /// A private empty directory that it may write to, beside `/tmp`: `$HOME`.
    pub home: Option<String>,
    /// Its limits.
    pub limits: Limits,
}

/// The first line that the helper writes to its standard error: the state of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperStatus {
    /// The program starts now.
    Started {
        /// Parts of the sandbox that this machine doesn't have.
        missing: Vec<String>,
        /// Why the host can't learn of its changes, if it wanted to.
        unrecorded: Option<String>,
    },
    /// The program doesn't start.
    Failed(String),
    /// The program doesn't start: a path that has to be covered or kept in place has moved.
    Moved(String),
}

/// The signals with which the helper ends itself to report the limit that was reached. Nothing in
/// the sandbox can send it one.
pub(crate) const ENDED_BY: [(i32, Bound); 3] = [
    (libc::SIGUSR1, Bound::Memory),
    (libc::SIGUSR2, Bound::Processes),
    (libc::SIGXCPU, Bound::Processor),
];

/// A limit on all processes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::processes`].
    Processes,
    /// [`Limits::cpu`].
    Processor,
}
