//! What the operator allows a plugin.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::{Denial, PathRules};
use berth_egress::Egress;
use berth_policy::Programs;
use berth_system::files::Grants;
use berth_system::process::Places;

use crate::limits::Limits;

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
    /// Whether it is only looked at, for what it is. What it imports and asks for is there then,
    /// and where nothing of it is granted, refuses.
    pub looked_at: bool,
    /// Whether it stands in for a built-in plugin: its tools have bare names and may have aliases
    /// then.
    pub replaces_built_in: bool,
}

/// What a plugin may start, and how.
pub struct ProcessPolicy {
    /// The programs that it may start, with their arguments.
    pub programs: Programs,
    /// Whether a shell may run the commands that its calls act on.
    pub shell: bool,
    /// Whether its processes reach the network in any case. Otherwise a call's do where that was
    /// decided on.
    pub network: bool,
    /// What its processes see, and how they are confined.
    pub places: Places,
    /// The variables that they get.
    pub environment: Vec<(String, String)>,
    /// Who is asked about single commands.
    pub advisor: Box<dyn CommandAdvisor>,
}

/// Knows what the configuration says of single commands.
pub trait CommandAdvisor: Send + Sync {
    /// Why a command line may not run, whatever is granted.
    fn blocked(&self, line: &str) -> Option<Denial>;

    /// What could help where a command has failed, most likely first.
    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String>;
}

/// A command that has failed, for who knows what could help.
#[derive(Clone, Copy, Debug)]
pub struct FailedCommand<'a> {
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
        f.debug_struct("ProcessPolicy")
            .field("programs", &self.programs)
            .field("shell", &self.shell)
            .finish_non_exhaustive()
    }
}

impl PluginPolicy {
    /// Where the plugin's relative paths start: its working directory, else the first directory
    /// that it is granted.
    pub fn directory(&self) -> Option<&Path> {
        let first = || Some(self.files.as_ref()?.roots().first()?.path.as_path());
        self.working_directory.as_deref().or_else(first)
    }
}
