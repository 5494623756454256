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
    /// The granted directories. `None` without a grant for files.
    pub files: Option<Arc<Grants>>,
    /// The directory of relative paths. It may be a directory that isn't granted.
    pub working_directory: Option<PathBuf>,
    /// Whether all directories are read-only, even if their grants allow writing.
    pub read_only: bool,
    /// Whether all calls of the plugin only read, whatever its tools promise. This is true if the
    /// plugin has no grant that can change anything.
    pub only_reads: bool,
    /// The grants besides files.
    pub capabilities: CapabilityGrants,
    /// Whether an instance lives for a session. If not, an instance lives for one call.
    pub session: bool,
    /// The plugin's settings.
    pub config: Arc<PluginConfig>,
    /// The template of a WASI command's arguments. A command without a template isn't offered.
    pub command: Option<Arc<CommandTemplate>>,
    /// The limits of the plugin's calls.
    pub limits: Limits,
    /// The table of the configuration with the grants, which error messages name.
    pub table: Arc<OwnTable>,
    /// Whether the plugin is only inspected. Requested capabilities are then linked without a
    /// grant, and refuse every use.
    pub inspect_only: bool,
    /// Whether the component was named for this run only, and isn't installed. Commands for
    /// installed plugins don't know the component.
    pub only_this_run: bool,
    /// Whether the plugin replaces a built-in plugin. The names of its tools then have no prefix,
    /// and may have aliases.
    pub replaces_built_in: bool,
}

impl PluginGrants {
    /// Returns the directory in which relative paths start. Returns `None` if the plugin may use
    /// neither files nor programs.
    pub fn directory(&self) -> Option<&Path> {
        if self.files.is_some() || self.capabilities.process.is_some() {
            self.working_directory.as_deref()
        } else {
            None
        }
    }
}
