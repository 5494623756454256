//! The grants and limits of one plugin, as the runtime gets them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use toolhold_component::PluginConfig;
use toolhold_contract::{Denial, EmbeddingModel, PathRules, VectorDatabase};
use toolhold_net::Egress;
use toolhold_policy::{CommandTemplate, OwnTable, Programs};
use toolhold_store::Store;
use toolhold_store::index::DocumentIndex;
use toolhold_system::files::Grants;
use toolhold_system::process::Places;

use crate::limits::Limits;

/// The grants and limits of a plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginGrants {
    /// The granted directories. `None` if no files are granted.
    pub files: Option<Arc<Grants>>,
    /// The directory where relative paths start, granted or not.
    pub working_directory: Option<PathBuf>,
    /// Whether all directories are read-only, even if their grants allow writing.
    pub read_only: bool,
    /// Whether all of its calls only read, even those that its tools don't call so: it was granted
    /// nothing to act with.
    pub only_reads: bool,
    /// The processes that it may start. `None` if it may start none.
    pub process: Option<Arc<PluginProcesses>>,
    /// The egress of its requests. `None` if it may make no requests.
    pub egress: Option<Arc<Egress>>,
    /// What it keeps between its calls. `None` if it may keep nothing.
    pub store: Option<Arc<Store>>,
    /// The documents that it searches in. `None` if it may keep none.
    pub index: Option<PluginIndex>,
    /// Processor time that its parts may use in one call. `None` if it may run none.
    pub parts: Option<Duration>,
    /// Whether it may make tasks.
    pub schedule: bool,
    /// How it gets vectors of texts. `None` if it may send no texts.
    pub embeddings: Option<PluginEmbeddings>,
    /// Whether an instance lasts for its session, and not only for one call.
    pub session: bool,
    /// The plugin's settings.
    pub config: Arc<PluginConfig>,
    /// The template of the arguments, for a WASI command. `None`: a command isn't offered.
    pub command: Option<Arc<CommandTemplate>>,
    /// The limits of its calls.
    pub limits: Limits,
    /// The table of the configuration that grants, for remedies.
    pub table: Arc<OwnTable>,
    /// Whether the plugin is only inspected. Then the capabilities that it imports and asks for are
    /// linked without a grant, and refuse every use.
    pub inspect_only: bool,
    /// Whether it replaces a built-in plugin. Then its tools have names without a prefix, and may
    /// have aliases.
    pub replaces_built_in: bool,
}

/// The documents that a plugin keeps and searches in.
#[derive(Clone, Debug)]
pub struct PluginIndex {
    /// The documents.
    pub documents: Arc<DocumentIndex>,
    /// Whether they are derived from what the plugin may read, so that calls that only read may
    /// write them. Only a built-in plugin has that.
    pub is_derived: bool,
    /// The database elsewhere that says which vectors are near. `None`: the index compares them.
    pub vectors: Option<Arc<dyn VectorDatabase>>,
}

/// How a plugin gets vectors of texts.
#[derive(Clone, Debug)]
pub struct PluginEmbeddings {
    /// The model. `None`: the operator chose none, or this program can ask none.
    pub model: Option<Arc<dyn EmbeddingModel>>,
}

/// The processes that a plugin may start.
pub struct PluginProcesses {
    /// The programs that it may start, with their arguments.
    pub programs: Programs,
    /// Whether it may start other programs too, if they are allowed as commands of `bash`.
    pub judged: bool,
    /// Whether a shell may run the commands of its calls.
    pub shell: bool,
    /// Whether its processes always have the network. If not, a call's processes have it if the
    /// decision on the call allows it.
    pub network: bool,
    /// The sandbox of its processes.
    pub places: Places,
    /// Those that outlive a call. `None`: none may.
    pub services: Option<PluginServices>,
    /// The environment variables of its processes.
    pub environment: Vec<(String, String)>,
    /// The table of the configuration that grants, for remedies.
    pub table: Arc<OwnTable>,
    /// The advisor for single commands.
    pub advisor: Box<dyn CommandAdvisor>,
}

/// The programs of a plugin that outlive a call.
#[derive(Debug)]
pub struct PluginServices {
    /// How many it may have in one session.
    pub most: usize,
    /// Whether a judged program may be one. The gates see its command line, and not what it reads
    /// from its standard input, so this is only for a plugin whose commands the operator wrote.
    pub judged: bool,
    /// Their sandbox, in which they can only read.
    pub places: Places,
    /// No other policy has this number: a service of another one isn't used again.
    pub id: u64,
}

impl PluginServices {
    /// The policy of a plugin that is loaded now.
    pub fn new(most: usize, judged: bool, places: Places) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { most, judged, places, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

/// Applies the configuration to single commands.
pub trait CommandAdvisor: Send + Sync {
    /// The denial of a command line, which counts even if the command is granted.
    fn blocked(&self, line: &str) -> Option<Denial>;

    /// Advice after a failed command, the most likely first.
    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String>;
}

/// A failed command, for the advisor.
#[derive(Clone, Copy, Debug)]
pub struct FailedCommand<'a> {
    /// The exit code. `None` if the host ended the command.
    pub code: Option<i32>,
    /// The end of its standard output.
    pub stdout: &'a str,
    /// The end of its standard error.
    pub stderr: &'a str,
    /// Whether it had the network.
    pub network: bool,
    /// The rules of the call about the paths that it reached.
    pub path_rules: Option<&'a dyn PathRules>,
}

impl fmt::Debug for PluginProcesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginProcesses")
            .field("programs", &self.programs)
            .field("shell", &self.shell)
            .finish_non_exhaustive()
    }
}

impl PluginGrants {
    /// The start of the plugin's relative paths: the working directory, whether it is granted or
    /// not. `None`: the plugin reaches no files.
    pub fn directory(&self) -> Option<&Path> {
        let reaches = self.files.is_some() || self.process.is_some();
        self.working_directory.as_deref().filter(|_| reaches)
    }
}
