//! The skills of a host, for whoever builds it.

use std::path::Path;
use std::sync::Arc;

use toolhold_core::config::{self, Folders, Loaded};
use toolhold_core::text::counted;
use toolhold_core::{HostError, Provider};
use toolhold_terminal::style::note;

use crate::find::Skills;
use crate::tool::SkillLoader;

/// Skills that a notice names.
const MAX_NAMED: usize = 4;

/// The skills of a host.
pub struct OfferedSkills {
    /// Those that there are.
    pub skills: Arc<Skills>,
    /// Whether the tool that loads them lists them.
    pub are_listed: bool,
}

impl OfferedSkills {
    /// Those that there are, for clients that get no other text about them. Blocks.
    ///
    /// # Errors
    ///
    /// What a person has trusted can't be read.
    pub fn find(loaded: &Loaded, folders: &Folders) -> Result<Self, HostError> {
        let skills = Skills::find(loaded, folders, &config::working_directory()?)?;
        Ok(Self { skills: Arc::new(skills), are_listed: true })
    }

    /// The provider of the tool that loads them. `None`: there is no skill to load.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`]: a pattern of `[tools.file]` isn't a valid glob.
    pub fn provider(
        &self,
        loaded: &Loaded,
        folders: &Folders,
        directory: &Path,
    ) -> Result<Option<Arc<dyn Provider>>, HostError> {
        let skills = Arc::clone(&self.skills);
        let loader = SkillLoader::new(skills, loaded, folders, directory, self.are_listed)?;
        Ok(loader.map(|loader| Arc::new(loader) as _))
    }

    /// Says on stderr which skills of the project don't count, and that others were left out.
    ///
    /// # Errors
    ///
    /// It can't be written.
    pub fn tell(&self) -> std::io::Result<()> {
        let names: Vec<&str> =
            self.skills.untrusted.iter().map(|skill| skill.name.as_str()).collect();
        if !names.is_empty() {
            let more = names.len().saturating_sub(MAX_NAMED);
            let shown = names[..names.len() - more].join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            note(&format!(
                "{} of the project {} left out, since nobody has looked at {}: {shown}{more}; `toolhold trust` shows {}",
                counted(names.len(), "skill"),
                if names.len() == 1 { "is" } else { "are" },
                if names.len() == 1 { "it as it is" } else { "them as they are" },
                if names.len() == 1 { "it" } else { "them" },
            ))?;
        }
        let left_out = self.skills.left_out.len();
        if left_out > 0 {
            let folders = counted(left_out, "folder");
            let are = if left_out == 1 { "is" } else { "are" };
            note(&format!("{folders} of skills {are} left out; `toolhold skills list` says why"))?;
        }
        Ok(())
    }
}
