//! The messages between the host and the helper that confines a command.

use serde::{Deserialize, Serialize};

/// How complete the sandbox must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// All parts of the sandbox are required. If one is missing, no program starts.
    #[default]
    Strict,
    /// The sandbox has all parts that this machine supports. Missing parts are reported.
    BestEffort,
    /// No sandbox.
    Off,
}

/// The access below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TreeAccess {
    /// Read and run files, and list directories.
    Read,
    /// Read and change everything.
    Write,
}

/// A directory or file that a program may access, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The real path.
    pub path: String,
    /// The access to the tree.
    pub access: TreeAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recorded {
    #[default]
    No,
    /// If this machine and the sandbox support it.
    IfPossible,
    /// If the host can't record them, the program doesn't start.
    Required,
}

/// The limits of a command. A limit applies to all processes together, except for limits with the
/// word "each".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of written memory. Reserved memory doesn't count.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Seconds of CPU time.
    pub cpu: u64,
    /// Bytes of each written file.
    pub file_size: u64,
    /// Open descriptors of each process.
    pub open_files: u64,
    /// Bytes of the private `/tmp` and home directory.
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

/// The part of the setup that doesn't depend on the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The process that waits for the command. When it ends, all processes of the command are
    /// killed.
    pub(crate) parent: i32,
    pub(crate) sandbox: Sandbox,
    /// Whether the command gets its own namespaces and view. False only for [`Sandbox::BestEffort`]
    /// on a machine without namespaces.
    pub(crate) namespaces: bool,
    pub(crate) network: bool,
    /// The number of the network that the helper enters. The next two messages contain its
    /// namespaces. `None` if the command has its own network or that of the machine.
    pub(crate) shared_network: Option<u64>,
    pub(crate) recorded: Recorded,
    /// Whether the host decides on the program's connections and answers its DNS queries: in the
    /// shared network, or without namespaces by sockets that it gives to the program.
    pub(crate) relayed: bool,
    /// The certificate, in PEM format, that the command trusts besides the machine's certificates.
    pub(crate) authority: Option<String>,
    /// The trees of the command. An outer tree comes before its inner trees.
    pub(crate) trees: Vec<Tree>,
    /// A private directory for `$HOME`, initially empty, that the command may write.
    pub(crate) home: Option<String>,
    pub(crate) limits: Limits,
}

impl Preparation {
    pub(crate) fn writable(&self) -> impl Iterator<Item = &str> {
        let writable = self.trees.iter().filter(|tree| tree.access == TreeAccess::Write);
        writable.map(|tree| tree.path.as_str())
    }
}

/// Identifies the object at a path, to notice when another object takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Identity {
    /// A file or a directory. These numbers don't change while a view uses the object.
    Object {
        device: u64,
        inode: u64,
    },
    Link(String),
}

/// The state of the trees when the command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeState {
    /// The object at the path of each tree. `None` if the path doesn't exist.
    pub(crate) found: Vec<Option<Identity>>,
    /// Directories in the trees that may not be renamed or moved. Otherwise, the covered paths in
    /// them would become visible. An outer directory comes before its inner directories.
    pub(crate) pinned: Vec<String>,
    /// Paths in the trees that may not be read or written.
    pub(crate) hidden: Vec<String>,
    /// Paths in the trees that may not be written.
    pub(crate) frozen: Vec<String>,
}

/// The program of a command. Its standard input comes with this message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: String,
    /// Whether the program is a `bash` that records its state for later commands. The descriptor
    /// for the record comes with the next message.
    pub(crate) leaves_state: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperStatus {
    /// The program starts now. If its changes are recorded, the listener comes with this message.
    Started {
        /// Parts of the sandbox that this machine doesn't support.
        missing: Vec<String>,
        /// The reason why the host can't record changes, although it should.
        unrecorded: Option<String>,
    },
    Failed(String),
    /// The program doesn't start, because a path was moved that must be covered or stay in place.
    Moved(String),
    /// The program ended by itself. All its processes have ended.
    Exited {
        /// The exit code, or 128 plus the signal that ended the program.
        code: i32,
        /// The names of processes that were still running when the program ended. They were killed.
        left: Vec<String>,
    },
    /// All processes were killed at this limit.
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
