//! What a yes for good writes into the user's configuration.

use std::path::PathBuf;

use berth_contract::HostError;
use berth_policy::Decision;
use serde::{Deserialize, Serialize};

use super::Always;
use crate::config::{Folders, insert};
use crate::facts::Facts;

/// A rule for the user's configuration that allows exactly what was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The tool that it is for.
    pub tool: String,
    /// What it allows, without a wildcard.
    pub pattern: String,
}

/// The rule that would allow this call and nothing else, or why there is none.
pub(super) fn proposal(_facts: &Facts, _decision: &Decision) -> Always {
    Always::Unavailable("no rule says exactly this".to_owned())
}

impl Proposal {
    /// The rule as it is written.
    pub fn text(&self) -> String {
        insert::rule(&self.tool, &self.pattern)
    }

    /// Writes the rule into the user's `berth.toml`, before the other rules of its tool; nothing where it stands there already. Returns the
    /// file. It blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`] where the file can't be changed, with what to write there.
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        insert::permission(folders, &self.tool, &self.pattern)
    }
}
