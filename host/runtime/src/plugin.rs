//! A loaded plugin: immutable, shared by the calls that run on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::{CancellationToken, Definition, Denial, Failure, FilterDefinition, FilterInput, FilterVerdict, PathRules};
use berth_egress::Egress;
use berth_policy::Programs;
use berth_system::files::Grants;
use berth_system::process::Places;
use serde::Serialize;
use wasmtime::component::InstancePre;

use crate::bindings::PluginIndices;
use crate::compiled::Precompiled;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::manifest::Manifest;
use crate::ready::Waiting;
use crate::state::CallState;
use crate::{Runtime, filter};

/// Where a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// A file that the operator named.
    File(PathBuf),
}

/// A plugin that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The plugin's name, as in its manifest.
    pub name: &'static str,
    /// The component, at most 64 MiB: from `include_bytes!`, or read from a file and leaked.
    pub wasm: &'static [u8],
    /// Its code, where the build compiled it ahead of time; otherwise `None`, and it is compiled at its first use.
    pub compiled: Option<Precompiled>,
}

/// What the operator allows a plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginPolicy {
    /// The granted directories. None: no files.
    pub files: Option<Arc<Grants>>,
    /// The directory that the guest is told it works in. None: the first that is granted.
    pub working_directory: Option<PathBuf>,
    /// Whether none of them may be written, whatever their grants say.
    pub read_only: bool,
    /// What it may start. None: nothing.
    pub process: Option<Arc<ProcessPolicy>>,
    /// Where its requests may go. None: nowhere.
    pub egress: Option<Arc<Egress>>,
    /// What the operator wrote for filters, where this plugin is the one to read it.
    pub filter_rules: Option<Arc<str>>,
    /// The bounds of its calls.
    pub limits: Limits,
    /// Whether it is only looked at, for what it is. What it imports and asks for is there then, and where nothing of it is granted, refuses.
    pub looked_at: bool,
    /// Whether it stands in for a built-in plugin: its tools have bare names and may have aliases then.
    pub replaces_built_in: bool,
}

/// What a plugin may start, and how.
pub struct ProcessPolicy {
    /// The programs that it may start, with their arguments.
    pub programs: Programs,
    /// Whether a shell may run the commands that its calls act on.
    pub shell: bool,
    /// Whether its processes reach the network in any case. Otherwise a call's do where that was decided on.
    pub network: bool,
    /// What its processes see, and how they are confined.
    pub places: Places,
    /// The variables that they get.
    pub environment: Vec<(String, String)>,
    /// Who is asked about single commands.
    pub counsel: Box<dyn Counsel>,
}

/// Knows what the configuration says of single commands.
pub trait Counsel: Send + Sync {
    /// Why a command line may not run, whatever is granted.
    fn blocked(&self, line: &str) -> Option<Denial>;

    /// What could help where a command has failed, most likely first.
    fn advice(&self, failed: &Failed<'_>) -> Vec<String>;
}

/// A command that has failed, for who knows what could help.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// Its exit code. None where it was ended.
    pub code: Option<i32>,
    /// The end of what it wrote to its standard output.
    pub stdout: &'a str,
    /// The end of what it wrote to its standard error.
    pub stderr: &'a str,
    /// Whether it had the network.
    pub network: bool,
    /// What the rules about calls said of the paths that it reached.
    pub path_rules: Option<&'a dyn PathRules>,
}

impl fmt::Debug for ProcessPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessPolicy").field("programs", &self.programs).field("shell", &self.shell).finish_non_exhaustive()
    }
}

impl PluginPolicy {
    /// Where the plugin's relative paths start: its working directory, else the first directory that it is granted.
    pub fn directory(&self) -> Option<&Path> {
        let first = || Some(self.files.as_ref()?.roots().first()?.path.as_path());
        self.working_directory.as_deref().or_else(first)
    }
}

/// What is known of a plugin without running it.
#[derive(Clone, Debug, Serialize)]
pub struct PluginInfo {
    /// What it says about itself.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// Where it comes from.
    pub origin: Origin,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Bytes of the component.
    pub size: usize,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
}

/// A plugin that can be called: one version of it, whole and unchanging. Cheap to share.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<Loaded>);

impl Plugin {
    /// What is known of it.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// What it may do: what it asked for and was granted, both.
    pub fn policy(&self) -> &PluginPolicy {
        &self.0.policy
    }

    /// Its filters, in the order in which they are applied.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.definitions)
    }

    /// What is wrong with the operator's rules for its filters: each that is left out, and why.
    pub fn filter_problems(&self) -> &[String] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.problems)
    }

    /// Asks a filter what to make of an output. Outputs of one `session` may be looked at by the same instance, one after the other.
    ///
    /// # Errors
    ///
    /// Where the filter fails, traps or takes more than it may.
    pub async fn filter(
        &self,
        filter: &FilterDefinition,
        session: &Arc<str>,
        input: FilterInput,
        cancel: &CancellationToken,
    ) -> Result<FilterVerdict, Failure> {
        filter::apply(&self.0, filter, session, input, cancel).await
    }

    /// How many fresh instances wait for its next calls.
    pub fn ready(&self) -> usize {
        self.0.waiting.count()
    }
}

/// What stands behind a [`Plugin`], shared by the calls that run on it.
pub(crate) struct Loaded {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) policy: PluginPolicy,
    /// Where its exports for tools are. None: it has none.
    pub(crate) exports: Option<PluginIndices>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Option<Filters>,
    /// Instances that wait for its calls.
    pub(crate) waiting: Waiting,
}

/// A tool of a plugin.
pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    /// The name that the guest knows.
    pub(crate) guest_name: String,
}
