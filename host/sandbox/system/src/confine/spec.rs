//! The messages between the host and the helper that confines a command: trees, limits and results.

use serde::{Deserialize, Serialize};

/// How complete the sandbox must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// All parts of the sandbox are required. Otherwise, no program starts.
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
    /// The real path of the tree.
    pub path: String,
    /// The access to the tree.
    pub access: TreeAccess,
}

/// Whether the host learns of a program's changes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recorded {
    /// No.
    #[default]
    No,
    /// Changes are recorded if this machine and the sandbox support it.
    IfPossible,
    /// Changes must be recorded. Otherwise, the program doesn't start.
    Required,
}

/// The limits of a command. A limit applies to all processes together, unless its description says
/// "each".
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
    /// The process that waits for the command. When it ends, all processes of the command end.
    pub(crate) parent: i32,
    /// How complete the sandbox must be.
    pub(crate) sandbox: Sandbox,
    /// Whether the command gets its own namespaces and view. Always true, except with
    /// [`Sandbox::BestEffort`] on a machine that doesn't support namespaces.
    pub(crate) namespaces: bool,
    /// Whether the command reaches the network.
    pub(crate) network: bool,
    /// The number of the network that the helper enters. The namespaces of the network come with
    /// the next two messages. `None` if the command has its own network or that of the machine.
    pub(crate) shared_network: Option<u64>,
    /// Whether the host records the command's file changes.
    pub(crate) recorded: Recorded,
    /// The trees of the command. Outer trees come before inner ones.
    pub(crate) trees: Vec<Tree>,
    /// A private empty directory that the command may write to, in addition to `/tmp`: `$HOME`.
    pub(crate) home: Option<String>,
    /// The limits of the command.
    pub(crate) limits: Limits,
}

impl Preparation {
    /// Returns the trees that the command may write.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &str> {
        let writable = self.trees.iter().filter(|tree| tree.access == TreeAccess::Write);
        writable.map(|tree| tree.path.as_str())
    }
}

/// The identity of the object at a path. It must be the same when the helper prepares itself and
/// when the command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Identity {
    /// A file or a directory, identified by numbers that don't change while a view uses the object.
    Object { device: u64, inode: u64 },
    /// A link, identified by its target.
    Link(String),
}

/// The state of the trees when the command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeState {
    /// The object at the path of each tree of the preparation. `None` if the path doesn't exist.
    pub(crate) found: Vec<Option<Identity>>,
    /// Directories in the trees whose names and places may not change. Outer directories come
    /// before inner ones. If one of these directories moved, the covered paths in it would become
    /// visible.
    pub(crate) pinned: Vec<String>,
    /// Paths in the trees that can't be read or written.
    pub(crate) hidden: Vec<String>,
    /// Paths in the trees that can't be written.
    pub(crate) frozen: Vec<String>,
}

/// The program of the command. The message carries the program's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// The complete environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The working directory.
    pub(crate) directory: String,
    /// Whether the program is a `bash` that records its state for later commands. The descriptor
    /// for the record comes with the next message.
    pub(crate) leaves_state: bool,
}

/// The reports of the helper to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperStatus {
    /// The program starts now. If its changes are recorded, the message carries the listener.
    Started {
        /// Parts of the sandbox that this machine doesn't have.
        missing: Vec<String>,
        /// The reason why the host can't record the changes, if it wanted to record them.
        unrecorded: Option<String>,
    },
    /// The program doesn't start.
    Failed(String),
    /// The program doesn't start, because a path moved that must be covered or stay in place.
    Moved(String),
    /// The program ended by itself, and all of its processes have ended.
    Exited {
        /// The exit code, or 128 plus the signal that ended the program.
        code: i32,
        /// The names of the processes that still ran when the program ended. They were ended too.
        left: Vec<String>,
    },
    /// All processes were ended at this limit.
    Reached(Bound),
}

/// A limit on all processes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// The limit [`Limits::memory`].
    Memory,
    /// The limit [`Limits::processes`].
    Processes,
    /// The limit [`Limits::cpu`].
    Processor,
}
