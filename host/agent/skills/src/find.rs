//! Finds the skills of the user and of a project, and checks which of a project's skills are
//! trusted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toolhold_core::HostError;
use toolhold_core::config::{self, Config, Folders};
use toolhold_core::text::neutral_line;

use crate::folder::{Owners, SkillFolder};
use crate::skill::{
    SKILL_FILE, Skill, SkillError, SkillOrigin, SkillText, is_name, name_problem, read_whole,
};

/// Most skills that are offered.
const MAX_SKILLS: usize = 200;

/// Most entries of a folder of skills that are read.
const MAX_ENTRIES: usize = 10_000;

/// The folders of a project's skills, below the working directory.
pub(crate) const PROJECT_FOLDERS: [&str; 3] =
    [".agents/skills", ".claude/skills", ".toolhold/skills"];

/// The skills that were found.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    /// The skills that models get, in order of their names.
    pub usable: Vec<Skill>,
    /// The project's skills that models don't get yet.
    pub untrusted: Vec<Skill>,
    /// Folders that aren't skills, and skills that aren't used, each with the reason.
    pub left_out: Vec<String>,
    /// The real paths of folders with skills that models get.
    pub readable: Vec<PathBuf>,
}

impl Skills {
    /// Finds the skills. Blocks.
    ///
    /// # Errors
    ///
    /// The list of trusted skills can't be read.
    pub fn find(config: &Config, folders: &Folders, directory: &Path) -> Result<Self, HostError> {
        let mut skills = Self::default();
        if !config.values.skills.enabled {
            return Ok(skills);
        }

        // The real paths of all folders so far. A folder is read once, even if several links lead
        // to it.
        let mut roots = Vec::new();
        skills.add_user_skills(&config.skill_folders(folders, directory), &mut roots);
        skills.add_project_skills(folders, directory, &mut roots)?;

        let trusted = skills.usable.iter().filter(|skill| skill.origin == SkillOrigin::Trusted);
        skills.readable.extend(trusted.map(|skill| skill.folder.clone()));
        skills.usable.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(skills)
    }

    /// Adds the skills in the folders of the configuration.
    fn add_user_skills(&mut self, folders: &[PathBuf], roots: &mut Vec<PathBuf>) {
        for path in folders {
            let Some(root) = self.resolve(path) else { continue };
            if roots.contains(&root) {
                continue;
            }
            let usable_before = self.usable.len();
            if let Some(folder) = self.open(&root, Owners::User) {
                self.add_all(&folder, None);
            }
            if self.usable.len() > usable_before {
                self.readable.push(root.clone());
            }
            roots.push(root);
        }
    }

    /// Adds the skills in the folders of the working directory.
    ///
    /// # Errors
    ///
    /// The list of trusted skills can't be read.
    fn add_project_skills(
        &mut self,
        folders: &Folders,
        directory: &Path,
        roots: &mut Vec<PathBuf>,
    ) -> Result<(), HostError> {
        // The list is read once, and only if the project has a folder of skills.
        let mut trusted = None;
        for name in PROJECT_FOLDERS {
            let Some(root) = self.resolve(&directory.join(name)) else { continue };
            let Ok(directory) = directory.canonicalize() else { continue };
            if roots.contains(&root) {
                continue;
            }
            if !root.starts_with(&directory) {
                self.leave_out(&directory.join(name), "it is a link out of the working directory");
                continue;
            }
            if let Some(folder) = self.open(&root, Owners::Any) {
                if trusted.is_none() {
                    trusted = Some(config::trusted(folders)?);
                }
                self.add_all(&folder, trusted.as_ref());
            }
            roots.push(root);
        }
        Ok(())
    }

    /// Returns the skill with this name, if models can load it.
    pub(crate) fn named(&self, name: &str) -> Option<&Skill> {
        self.usable.iter().find(|skill| skill.name == name)
    }

    fn leave_out(&mut self, path: &Path, why: impl Display) {
        if self.left_out.len() < MAX_SKILLS {
            let path = neutral_line(&path.display().to_string());
            let why = neutral_line(&why.to_string());
            self.left_out.push(format!("{path} is left out: {why}"));
        }
    }

    /// Returns the real path of a folder, or `None` if the folder can't be used.
    fn resolve(&mut self, path: &Path) -> Option<PathBuf> {
        // `canonicalize` makes a system call for each folder above, and mostly the path doesn't
        // exist.
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return None;
        }
        match path.canonicalize() {
            Ok(real) => Some(real),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                self.leave_out(path, error);
                None
            }
        }
    }

    /// Opens a folder. Returns `None` if the folder must be left out.
    fn open(&mut self, path: &Path, owners: Owners) -> Option<SkillFolder> {
        match SkillFolder::open(path, owners) {
            Ok(folder) => Some(folder),
            Err(error) => {
                self.leave_out(path, error);
                None
            }
        }
    }

    /// Adds the skills of a folder. `trusted`: for a folder of a project, the digests of the skills
    /// that a person has seen, by path.
    fn add_all(&mut self, root: &SkillFolder, trusted: Option<&BTreeMap<String, String>>) {
        let (names, is_truncated) = match root.names(MAX_ENTRIES) {
            Ok(names) => names,
            Err(error) => return self.leave_out(&root.path, error),
        };

        let mut candidates = 0;
        let mut surplus = 0;
        for name in names {
            let path = root.path.join(&name);
            let folder = match root.folder(&name) {
                None => continue,
                Some(Ok(folder)) if folder.has(SKILL_FILE) => folder,
                Some(Ok(_)) => continue,
                Some(Err(error)) => {
                    self.leave_out(&path, error);
                    continue;
                }
            };

            // Reading an unusable skill takes time too, so it is part of the limit.
            candidates += 1;
            if self.usable.len() + self.untrusted.len() >= MAX_SKILLS || candidates > MAX_SKILLS {
                surplus += 1;
                continue;
            }

            if !is_name(&name) {
                self.leave_out(&path, name_problem(&name));
                continue;
            }
            if self.usable.iter().chain(&self.untrusted).any(|known| known.name == name) {
                self.leave_out(&path, "another skill with that name is used instead");
                continue;
            }
            match read_skill(name, folder, trusted) {
                Ok(skill) if skill.origin.counts() => self.usable.push(skill),
                Ok(skill) => self.untrusted.push(skill),
                Err(error) => self.leave_out(&path, error),
            }
        }

        if surplus > 0 || is_truncated {
            let why =
                format!("it has {surplus} or more skills too many; the limit is {MAX_SKILLS}");
            self.leave_out(&root.path, why);
        }
    }
}

/// Reads the skill in a folder. `trusted`: for a folder of a project, the digests of the skills
/// that a person has seen, by path.
fn read_skill(
    name: String,
    folder: SkillFolder,
    trusted: Option<&BTreeMap<String, String>>,
) -> Result<Skill, SkillError> {
    let path = folder.path.to_str();
    let trusted_digest = path.and_then(|path| trusted?.get(path));
    if let Some(digest) = trusted_digest
        && let Ok((tree, text)) = read_whole(&folder)
        && tree.digest() == *digest
    {
        return Ok(Skill {
            name,
            description: text.description,
            folder: folder.path,
            origin: SkillOrigin::Trusted,
            digest: Some(digest.clone()),
        });
    }

    let origin = if trusted.is_none() {
        SkillOrigin::User
    } else if trusted_digest.is_some() {
        SkillOrigin::Changed
    } else {
        SkillOrigin::Untrusted
    };
    let description = SkillText::read(&folder)?.description;
    Ok(Skill { name, description, folder: folder.path, origin, digest: None })
}

/// Returns the paths of the trusted skills of a working directory. Blocks.
///
/// # Errors
///
/// The list of trusted skills can't be read.
pub fn trusted_skills(directory: &Path, folders: &Folders) -> Result<Vec<PathBuf>, HostError> {
    let roots = PROJECT_FOLDERS.map(|folder| directory.join(folder));
    let mut paths = Vec::new();
    for path in config::trusted(folders)?.into_keys().map(PathBuf::from) {
        if roots.iter().any(|root| path.parent() == Some(root.as_path())) {
            paths.push(path);
        }
    }
    Ok(paths)
}
