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
    /// Whether all calls of the plugin only read, regardless of the promises of its tools. True if
    /// the plugin has no grant that can change anything.
    pub only_reads: bool,
    /// The grants in addition to files.
    pub capabilities: CapabilityGrants,
    /// Whether an instance lives for a whole session, not for one call.
    pub session: bool,
    /// The plugin's settings.
    pub config: Arc<PluginConfig>,
    /// The template of the arguments for a WASI command. `None` if the host doesn't offer the
    /// command.
    pub command: Option<Arc<CommandTemplate>>,
    /// The limits of the plugin's calls.
    pub limits: Limits,
    /// The table of the configuration that grants, for remedies.
    pub table: Arc<OwnTable>,
    /// Whether the plugin is only inspected. The capabilities that the plugin requests are then
    /// linked without a grant, and refuse every use.
    pub inspect_only: bool,
    /// Whether the plugin replaces a built-in plugin. The names of its tools then have no prefix,
    /// and its tools may have aliases.
    pub replaces_built_in: bool,
}

impl PluginGrants {
    /// Returns the base directory for the plugin's relative paths. This is the working directory,
    /// even if it isn't granted. Returns `None` if the plugin has no access to files.
    pub fn directory(&self) -> Option<&Path> {
        if self.files.is_some() || self.capabilities.process.is_some() {
            self.working_directory.as_deref()
        } else {
            None
        }
    }
}
