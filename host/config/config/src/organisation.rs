//! The approvals that an organisation gives for every user of a machine. Only root can write their
//! files.

use std::path::PathBuf;

use super::{Config, Problem, Source, file};

/// Most bytes of a server's approval, as in the user's data folder.
const MAX_APPROVAL: u64 = 4 << 20;

impl Config {
    /// Checks whether the organisation's file pins this component of the plugin `name`, by `digest`
    /// in its table. Such a component needs no approval.
    pub fn is_pinned(&self, name: &str, digest: &str) -> bool {
        let Some(plugin) = self.values.plugins.get(name) else { return false };
        let Source::File { path, .. } = self.source(&format!("plugins.{name}.digest")) else {
            return false;
        };
        self.defaults.as_ref() == Some(&path) && plugin.digest.as_str() == digest
    }

    /// Reads the organisation's approval of the MCP server `name`, a file in `servers` next to the
    /// organisation's file. Returns its path and text, or `None` if the file doesn't exist. Blocks.
    ///
    /// # Errors
    ///
    /// Returns a problem if a user other than root can change or replace the file, or if the file
    /// can't be read.
    pub fn organisation_approval(&self, name: &str) -> Result<Option<(PathBuf, String)>, Problem> {
        let Some((_, inputs)) = &self.read_from else { return Ok(None) };
        let Some(folder) = inputs.organisation_servers() else { return Ok(None) };
        let path = folder.join(format!("{name}.json"));
        let text = file::read_organisation_file(&path, MAX_APPROVAL)?;
        Ok(text.map(|text| (path, text.text)))
    }
}
