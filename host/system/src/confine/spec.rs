//! What the host tells the helper, and the helper the host.

use serde::{Deserialize, Serialize};

/// How much of the sandbox there has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// All of it; otherwise nothing starts.
    #[default]
    Strict,
    /// What this machine gives. What it doesn't is told.
    BestEffort,
    /// None.
    Off,
}

/// What may be done below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TreeAccess {
    /// Files are read and run, directories listed.
    Read,
    /// Everything.
    Write,
}

/// A directory or a file that a program gets, with all that lies below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Its real path.
    pub path: String,
    /// What may be done there.
    pub access: TreeAccess,
}

/// Bounds. Where it says "each", of each process; otherwise of all that a command starts, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, each and together.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Seconds of processor time.
    pub cpu: u64,
    /// Bytes of a file that is written, each.
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

/// One command and its sandbox, as the helper gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The process that waits for it: should it end, all ends.
    pub parent: i32,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Where it works.
    pub directory: String,
    /// How much of the sandbox there has to be.
    pub sandbox: Sandbox,
    /// Whether it gets namespaces and a view of its own: always, but for [`Sandbox::BestEffort`]
    /// where there are none to be had.
    pub namespaces: bool,
    /// Whether it reaches the network.
    pub network: bool,
    /// What it sees, the outer before the inner.
    pub trees: Vec<Tree>,
    /// Directories in those that keep their names and places, the outer before the inner: were they
    /// moved, what is covered up in them would come to light.
    pub pinned: Vec<String>,
    /// What lies in those and can't be read nor written.
    pub hidden: Vec<String>,
    /// What lies in those and can't be written.
    pub frozen: Vec<String>,
    /// An empty directory of its own that it may write to, beside `/tmp`: `$HOME`.
    pub home: Option<String>,
    /// Its bounds.
    pub limits: Limits,
}

/// The first line that the helper writes to its standard error: what became of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Begun {
    /// The program starts now, without these parts of the sandbox.
    Without(Vec<String>),
    /// It does not start.
    Failed(String),
    /// It does not start: what should be covered up or kept in its place is somewhere else by now.
    Moved(String),
}

/// The signals by which the helper ends itself to say which bound was reached. Nothing in the
/// sandbox can send it one.
pub(crate) const ENDED_BY: [(i32, Bound); 3] = [
    (libc::SIGUSR1, Bound::Memory),
    (libc::SIGUSR2, Bound::Processes),
    (libc::SIGXCPU, Bound::Processor),
];

/// A bound on all that a command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::processes`].
    Processes,
    /// [`Limits::cpu`].
    Processor,
}
