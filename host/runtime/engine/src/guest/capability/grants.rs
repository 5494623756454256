//! The grants and limits of one plugin, as the runtime gets them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_component::PluginConfig;
use toolhold_policy::{CommandTemplate, OwnTable};
use toolhold_system::files::Grants;

use crate::guest::capability::CapabilityGrants;
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
    /// Whether all of its calls only read, whatever its tools promise: the plugin was granted
    /// nothing to act with.
    pub only_reads: bool,
    /// The grants in addition to files.
    pub capabilities: CapabilityGrants,
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

impl PluginGrants {
    /// Returns the directory where the plugin's relative paths start: the working directory,
    /// whether it is granted or not. Returns `None` if the plugin reaches no files.
    pub fn directory(&self) -> Option<&Path> {
        if self.files.is_some() || self.capabilities.process.is_some() {
            self.working_directory.as_deref()
        } else {
            None
        }
    }
}
