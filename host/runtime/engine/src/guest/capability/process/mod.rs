//! `process`: the programs that a plugin may start, and the programs of one call.

mod check;
pub(crate) mod child;
mod functions;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::{CallCommands, Denial, PathRules, Report};
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
    /// Whether the plugin may also start other programs, if they are allowed as commands of `bash`.
    pub judged: bool,
    /// Whether the commands of calls may run in a shell.
    pub shell: bool,
    /// Whether the plugin's processes always have the network. If not, the decision on a call says
    /// whether the call's processes have it.
    pub network: bool,
    /// The sandbox of the plugin's processes.
    pub places: Places,
    /// The environment variables of the plugin's processes.
    pub environment: Vec<(String, String)>,
    /// The table of the configuration that grants, for remedies.
    pub table: Arc<OwnTable>,
    /// The advisor for single commands.
    pub advisor: Box<dyn CommandAdvisor>,
}

/// Applies the configuration to single commands.
pub trait CommandAdvisor: Send + Sync {
    /// Returns the denial of a command line, or `None` if the command isn't denied. A denial also
    /// applies to a granted command.
    fn blocked(&self, line: &str) -> Option<Denial>;

    /// Returns advice after a failed command, the most likely first.
    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String>;
}

/// A failed command, for the advisor.
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
    /// The call's rules about the paths that the command accessed.
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

/// The processes that a call may start.
pub(crate) struct Processes {
    pub(crate) policy: Arc<PluginProcesses>,
    /// The default working directory of a process.
    pub(super) directory: Option<PathBuf>,
    /// Records the commands of the call and their results.
    pub(super) commands: CallCommands,
    /// The call's rules about the paths that its processes access.
    pub(super) path_rules: Option<Arc<dyn PathRules>>,
    /// Whether the tool claims to be read-only.
    pub(super) read_only: bool,
    /// The counter of running processes: the reference count is one more than their number.
    pub(super) running: Arc<()>,
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
            report: Arc::clone(&call.report),
        })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}
