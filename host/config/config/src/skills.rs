//! The folders of skills, and the checks of `[skills.env]`.

use std::path::{Path, PathBuf};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, HostError};
use toolhold_policy::commands::is_carried;
use toolhold_policy::files::{FileRules, Grant};

use super::policy::{FileGrants, all_globs};
use super::{Config, Folders, Problem, dotted_name};

/// Most variables of one skill, and most bytes of a variable and its name. Longer values are
/// refused.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 4096;

/// Most bytes of a variable's name in a message. A longer name is cut.
const MAX_SHOWN: usize = 100;

impl Config {
    /// Returns the folders of the user's skills. A folder may be missing.
    pub fn skill_folders(&self, folders: &Folders, working_directory: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for (index, path) in self.values.skills.folders.iter().enumerate() {
            // Without a home directory, `~` would be a folder in the working directory.
            if folders.home.is_none() && path.starts_with('~') {
                continue;
            }
            let key = format!("skills.folders.{index}");
            paths.push(self.beside_its_source(&key, path, folders, working_directory));
        }
        paths
    }

    /// Returns the rules for reading in the folders `readable`. The globs of the file tools apply,
    /// too.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a pattern isn't a valid glob.
    pub fn skill_rules(
        &self,
        readable: &[PathBuf],
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileRules, HostError> {
        let grants = readable.iter().map(|path| self.grant_of_skills(path)).collect();
        let FileGrants { deny_read, allow_read, deny_write, .. } =
            self.file_policy("skills.folders", &[], &all_globs, folders, working_directory)?;
        let rules = FileRules::new(grants, self.own_paths(folders, working_directory));
        Ok(rules.with_globs(deny_read, allow_read, deny_write))
    }

    /// Returns the read-only grant of a folder of skills.
    pub fn grant_of_skills(&self, path: &Path) -> Grant {
        let place = self.origin("skills.folders");
        Grant { path: path.to_owned(), access: Access::Read, place }
    }

    /// Finds the variables of `[skills.env]` that can't be set.
    pub(super) fn skill_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (skill, variables) in &self.values.skills.env {
            let mut messages = Vec::new();
            if variables.len() > MAX_VARIABLES {
                let count = variables.len();
                messages.push(format!("has {count} variables; the limit is {MAX_VARIABLES}"));
            }
            messages
                .extend(variables.iter().filter_map(|(name, value)| variable_problem(name, value)));

            let table = format!("skills.env.{}", dotted_name(skill));
            for message in messages {
                let line = neutral_line(&format!("[{table}] {message}"));
                problems.push(Problem::new(self.source_below(&table), line));
            }
        }
        problems
    }
}

/// Finds a problem of a variable. Returns a phrase that follows the table's name.
fn variable_problem(name: &str, value: &str) -> Option<String> {
    let shown = cut(name, MAX_SHOWN);
    let size = name.len() + value.len();
    if !is_carried(name) || name.starts_with("TOOLHOLD_") {
        Some(format!(
            "sets `{shown}`, but variables that make programs load other code or that control the \
             shell, such as PATH and LD_PRELOAD, can't be set; remove the variable"
        ))
    } else if size > MAX_VARIABLE {
        Some(format!(
            "sets `{shown}`, but the name and the value have {size} bytes; the limit is \
             {MAX_VARIABLE}"
        ))
    } else if value.contains('\0') {
        Some(format!("sets `{shown}` to a value with a NUL byte"))
    } else {
        None
    }
}
