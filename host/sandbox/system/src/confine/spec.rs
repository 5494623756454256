//! The messages between the host and the helper that confines a command: trees, limits and results.

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
pub(crate) enum Recorded {
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
    /// Bytes of memory in use. What is only reserved isn't counted.
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

/// The parts of the sandbox that a helper sets up before it knows the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The process that waits for the command: if it ends, everything ends.
    pub(crate) parent: i32,
    /// How complete the sandbox must be.
    pub(crate) sandbox: Sandbox,
    /// Whether it gets namespaces and a view of its own: always, except with
    /// [`Sandbox::BestEffort`] on a machine that has none.
    pub(crate) namespaces: bool,
    /// Whether it reaches the network.
    pub(crate) network: bool,
    /// The number of the network that it enters, whose namespaces come with the next two messages.
    /// `None`: it has one of its own, or that of the machine.
    pub(crate) shared_network: Option<u64>,
    /// Whether the host wants to learn of its changes in files.
    pub(crate) recorded: Recorded,
    /// Its trees, the outer before the inner.
    pub(crate) trees: Vec<Tree>,
    /// A private empty directory that it may write to, in addition to `/tmp`: `$HOME`.
    pub(crate) home: Option<String>,
    /// Its limits.
    pub(crate) limits: Limits,
}

impl Preparation {
    /// Returns the trees that it may write.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &str> {
        let writable = self.trees.iter().filter(|tree| tree.access == TreeAccess::Write);
        writable.map(|tree| tree.path.as_str())
    }
}

/// The object of a path, which has to be the same when the helper prepares itself and when the
/// command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Identity {
    /// A file or a directory, by the numbers that it has as long as a view holds it.
    Object { device: u64, inode: u64 },
    /// A link, by its target.
    Link(String),
}

/// The state of the trees when the command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeState {
    /// The object of the path of each tree of the preparation. `None`: the path doesn't exist.
    pub(crate) found: Vec<Option<Identity>>,
    /// Directories in the trees that keep their names and places, the outer before the inner: if
    /// they moved, what is covered in them would become visible.
    pub(crate) pinned: Vec<String>,
    /// Paths in the trees that can't be read or written.
    pub(crate) hidden: Vec<String>,
    /// Paths in the trees that can't be written.
    pub(crate) frozen: Vec<String>,
}

/// The program of the command. Its standard input comes with this message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// Its whole environment.
    pub(crate) environment: Vec<(String, String)>,
    /// Its working directory.
    pub(crate) directory: String,
    /// Whether it is a `bash` that leaves its state for later commands. The descriptor for the
    /// record comes with the next message.
    pub(crate) leaves_state: bool,
}

/// The reports of the helper to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperStatus {
    /// The program starts now. If its changes are recorded, the listener comes with this message.
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
    /// The program ended by itself, and no process of it is left.
    Exited {
        /// Its exit code; 128 plus the signal if a signal ended it.
        code: i32,
        /// The names of processes that it left behind, which were ended.
        left: Vec<String>,
    },
    /// All processes were ended at this limit.
    Reached(Bound),
}

/// A limit on all processes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::processes`].
    Processes,
    /// [`Limits::cpu`].
    Processor,
}
