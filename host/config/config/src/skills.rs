//! The folders of skills, and the check of the variables of `[skills.env]`.

use std::path::{Path, PathBuf};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, HostError};
use toolhold_policy::commands::is_carried;
use toolhold_policy::files::{FileRules, Grant};

use super::policy::FileGrants;
use super::{Config, Folders, Problem, dotted_name};

/// Most variables of one skill, and most bytes of one with its name.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE: usize = 4096;

impl Config {
    /// The folders of the user's skills, as they are written. They need not exist.
    pub fn skill_folders(&self, folders: &Folders, working_directory: &Path) -> Vec<PathBuf> {
        let written = self.values.skills.folders.iter().enumerate();
        // Without a home, `~` would be a folder of the working directory.
        let known = written.filter(|(_, path)| folders.home.is_some() || !path.starts_with('~'));
        let paths = known.map(|(index, path)| {
            let key = format!("skills.folders.{index}");
            self.beside_its_source(&key, path, folders, working_directory)
        });
        paths.collect()
    }

    /// The rules for reading in these folders of skills: those of the file tools.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a pattern that isn't a valid glob.
    pub fn skill_rules(
        &self,
        readable: &[PathBuf],
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileRules, HostError> {
        let grants = readable.iter().map(|path| self.grant_of_skills(path)).collect();
        let FileGrants { deny_read, allow_read, deny_write, .. } =
            self.file_policy("skills.folders", &[], &|_| true, folders, working_directory)?;
        let rules = FileRules::new(grants, self.own(folders, working_directory));
        Ok(rules.with_globs(deny_read, allow_read, deny_write))
    }

    /// The grant of a folder of skills: it is read, and never written.
    pub fn grant_of_skills(&self, path: &Path) -> Grant {
        let place = self.origin("skills.folders");
        Grant { path: path.to_owned(), access: Access::Read, place }
    }

    /// Variables that can't be set.
    pub(super) fn skill_problems(&self) -> Vec<Problem> {
        let skills = &self.values.skills.env;
        let problems = skills.iter().flat_map(|(skill, variables)| {
            let table = format!("skills.env.{}", dotted_name(skill));
            let many = (variables.len() > MAX_VARIABLES).then(|| {
                format!("has {} variables; the limit is {MAX_VARIABLES}", variables.len())
            });
            let wrong = variables.iter().filter_map(|(name, value)| variable_problem(name, value));
            let problems = many.into_iter().chain(wrong).map(|message| {
                let message = format!("[{table}] {message}");
                Problem::new(self.source_below(&table), neutral_line(&message))
            });
            problems.collect::<Vec<_>>()
        });
        problems.collect()
    }
}

fn variable_problem(name: &str, value: &str) -> Option<String> {
    let shown = cut(name, 100);
    let size = name.len() + value.len();
    if !is_carried(name) || name.starts_with("TOOLHOLD_") {
        Some(format!(
            "sets `{shown}`: variables that make programs load other code or that steer the shell, \
             such as PATH and LD_PRELOAD, can't be set; remove it"
        ))
    } else if size > MAX_VARIABLE {
        Some(format!(
            "sets `{shown}` to a value that has {size} bytes with its name; the limit is {MAX_VARIABLE}"
        ))
    } else if value.contains('\0') {
        Some(format!("sets `{shown}` to a value with a NUL byte"))
    } else {
        None
    }
}
