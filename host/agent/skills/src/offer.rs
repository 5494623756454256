//! Finds the skills of a host, and makes the tool that loads them.

use std::path::Path;
use std::sync::Arc;

use toolhold_core::config::{self, Config, Folders};
use toolhold_core::{HostError, ToolSource};

use crate::find::Skills;
use crate::tool::SkillLoader;

/// The skills of a host.
pub struct OfferedSkills {
    /// The skills that were found.
    pub skills: Arc<Skills>,
    /// Whether the tool's description lists the skills.
    pub are_listed: bool,
}

impl OfferedSkills {
    /// Finds the skills for the working directory, which the tool's description then lists. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted skills can't be read.
    pub fn find(loaded: &Config, folders: &Folders) -> Result<Self, HostError> {
        let skills = Skills::find(loaded, folders, &config::working_directory()?)?;
        Ok(Self { skills: Arc::new(skills), are_listed: true })
    }

    /// Returns the source of the tool that loads skills, or `None` if there are no skills.
    ///
    /// # Errors
    ///
    /// Fails with [`HostError::Config`] if a pattern of `[tools.file]` isn't a valid glob.
    pub fn provider(
        &self,
        loaded: &Config,
        folders: &Folders,
        directory: &Path,
    ) -> Result<Option<Arc<dyn ToolSource>>, HostError> {
        let skills = Arc::clone(&self.skills);
        let loader = SkillLoader::new(skills, loaded, folders, directory, self.are_listed)?;
        let Some(loader) = loader else { return Ok(None) };
        Ok(Some(Arc::new(loader)))
    }
}
