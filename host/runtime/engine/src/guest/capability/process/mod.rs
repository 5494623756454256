//! The processes that a plugin may start.

mod check;
pub(crate) mod child;
mod functions;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::{CallCommands, Denial, PathRules, Report, SessionNetwork};
use toolhold_net::HostAccess;
use toolhold_policy::{OwnTable, Programs};
use toolhold_system::process::Places;
use wasmtime::component::Linker;

use crate::guest::capability::bindings::toolhold::host::process as wit;
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::{CallState, HasState};

pub(crate) use functions::{CheckedCommand, ending_name, not_started, time_after};

/// The processes that a plugin may start.
pub struct PluginProcesses {
    /// The programs that the plugin may start, with their arguments.
    pub programs: Programs,
    /// Whether other programs may be started if the rules allow them as commands of `bash`.
    pub judged: bool,
    /// Whether commands of calls may run in a shell.
    pub shell: bool,
    /// Whether processes always have the network. If not, the decision on a call determines whether
    /// they have the network.
    pub network: bool,
    /// The hosts that processes without the network can reach. `None` means no host.
    pub hosts: Option<Arc<HostAccess>>,
    /// The sandbox.
    pub places: Places,
    /// The environment variables.
    pub environment: Vec<(String, String)>,
    /// The table of the configuration with the grants, which error messages name.
    pub table: Arc<OwnTable>,
    /// The advisor for commands.
    pub advisor: Box<dyn CommandAdvisor>,
}

/// Applies the configuration to a command.
pub trait CommandAdvisor: Send + Sync {
    /// Returns the denial if a rule denies the command line. Rules apply to granted commands too.
    fn blocked(&self, line: &str) -> Option<Denial>;

    /// Returns advice after a failed command. The most likely advice comes first.
    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String>;
}

/// A failed command.
#[derive(Clone, Copy, Debug)]
pub struct FailedCommand<'a> {
    /// The exit code. `None` if the host ended the command.
    pub code: Option<i32>,
    /// The end of the standard output.
    pub stdout: &'a str,
    /// The end of the standard error.
    pub stderr: &'a str,
    /// Whether the command had the network.
    pub network: bool,
    /// The call's rules for paths.
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

/// The state of this capability in a call.
pub(crate) struct Processes {
    pub(crate) policy: Arc<PluginProcesses>,
    pub(super) directory: Option<PathBuf>,
    /// The call's rights and settings for commands.
    pub(super) commands: CallCommands,
    pub(super) path_rules: Option<Arc<dyn PathRules>>,
    /// Whether the call may only read files.
    pub(super) read_only: bool,
    /// Counts running processes. Each running process and this field hold one reference.
    pub(super) running: Arc<()>,
    /// The network of the call's commands, if the session has no network.
    pub(super) network: SessionNetwork,
    pub(crate) report: Arc<Report>,
}

impl CallCapability for Option<Processes> {
    type Grant = Arc<PluginProcesses>;

    fn begin(grant: &Arc<PluginProcesses>, facts: &CallFacts<'_>) -> Self {
        let call = facts.call;
        Some(Processes {
            policy: Arc::clone(grant),
            directory: facts.grants.directory().map(Path::to_owned),
            commands: call.commands.clone(),
            path_rules: call.path_rules.clone(),
            read_only: facts.reads_files_only(),
            running: Arc::new(()),
            network: SessionNetwork::default(),
            report: Arc::clone(&call.report),
        })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}
