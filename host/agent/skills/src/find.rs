//! Finds the skills of the user and of a project. A person must see a project's skills first.

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

/// Further skills are left out.
const MAX_SKILLS: usize = 200;

/// Further entries of a folder are ignored.
const MAX_ENTRIES: usize = 10_000;

/// The folders with a project's skills, below the working directory.
pub(crate) const PROJECT_FOLDERS: [&str; 3] =
    [".agents/skills", ".claude/skills", ".toolhold/skills"];

/// The skills that were found.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    /// The skills that models get, sorted by name.
    pub usable: Vec<Skill>,
    /// The project's skills that no person has seen in their current state. Models don't get them.
    pub untrusted: Vec<Skill>,
    /// Folders and skills that can't be used, with the reasons.
    pub left_out: Vec<String>,
    /// The real paths of the folders from which models get skills.
    pub readable: Vec<PathBuf>,
}

impl Skills {
    /// Finds the skills of the user and of the project, if the configuration enables skills.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted skills can't be read.
    pub fn find(config: &Config, folders: &Folders, directory: &Path) -> Result<Self, HostError> {
        let mut skills = Self::default();
        if !config.values.skills.enabled {
            return Ok(skills);
        }

        // The real paths of the folders that were read, so that a folder isn't read again if two
        // links lead to it.
        let mut roots = Vec::new();
        skills.add_user_skills(&config.skill_folders(folders, directory), &mut roots);
        skills.add_project_skills(folders, directory, &mut roots)?;

        let trusted = skills.usable.iter().filter(|skill| skill.origin == SkillOrigin::Trusted);
        skills.readable.extend(trusted.map(|skill| skill.folder.clone()));
        skills.usable.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(skills)
    }

    /// Adds the skills of the user's folders. Skips folders whose real path is in `roots`, and adds
    /// the paths of the folders that it reads.
    fn add_user_skills(&mut self, folders: &[PathBuf], roots: &mut Vec<PathBuf>) {
        for path in folders {
            let Some(root) = self.resolve(path) else { continue };
            if roots.contains(&root) {
                continue;
            }
            let usable_before = self.usable.len();
            if let Some(folder) = self.open(&root, Owners::User) {
                let trusted = None;
                self.add_all(&folder, trusted);
            }
            // Models may read a folder only if they get one of its skills.
            if self.usable.len() > usable_before {
                self.readable.push(root.clone());
            }
            roots.push(root);
        }
    }

    /// Adds the skills of the project's folders. Skips folders whose real path is in `roots`, and
    /// adds the paths of the folders that it reads. Fails if the list of trusted skills can't be
    /// read.
    fn add_project_skills(
        &mut self,
        folders: &Folders,
        directory: &Path,
        roots: &mut Vec<PathBuf>,
    ) -> Result<(), HostError> {
        let mut trusted = None;
        for name in PROJECT_FOLDERS {
            let Some(root) = self.resolve(&directory.join(name)) else { continue };
            let Ok(directory) = directory.canonicalize() else { continue };
            if roots.contains(&root) {
                continue;
            }
            if !root.starts_with(&directory) {
                self.leave_out(
                    &directory.join(name),
                    "the folder is a link out of the working directory",
                );
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

    /// Returns the real path of a folder. Returns `None` if the folder is missing or can't be used,
    /// and records why it can't be used.
    fn resolve(&mut self, path: &Path) -> Option<PathBuf> {
        // Most of these folders don't exist, so check this first: it takes one system call, while
        // `canonicalize` needs one for each folder of the path.
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

    /// Opens a folder. Returns `None` and records the reason if the folder can't be opened.
    fn open(&mut self, path: &Path, owners: Owners) -> Option<SkillFolder> {
        match SkillFolder::open(path, owners) {
            Ok(folder) => Some(folder),
            Err(error) => {
                self.leave_out(path, error);
                None
            }
        }
    }

    /// Adds the skills of a folder. `trusted` has the digests of the project's skills that a person
    /// has seen, by path. It is `None` for a folder of the user, which needs no trust.
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

            // Unusable skills count too, because reading them takes time.
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
                self.leave_out(&path, "another skill has this name and is used instead");
                continue;
            }
            match read_skill(name, folder, trusted) {
                Ok(skill) if skill.origin.is_usable() => self.usable.push(skill),
                Ok(skill) => self.untrusted.push(skill),
                Err(error) => self.leave_out(&path, error),
            }
        }

        if surplus > 0 || is_truncated {
            let why = format!(
                "the folder has at least {surplus} skills too many; the limit is {MAX_SKILLS}"
            );
            self.leave_out(&root.path, why);
        }
    }
}

/// Reads the skill in a folder. `trusted` has the digests of the project's skills that a person has
/// seen, by path. It is `None` for a folder of the user, which needs no trust.
fn read_skill(
    name: String,
    folder: SkillFolder,
    trusted: Option<&BTreeMap<String, String>>,
) -> Result<Skill, SkillError> {
    let Some(trusted) = trusted else {
        return read_without_digest(name, folder, SkillOrigin::User);
    };
    let trusted_digest = folder.path.to_str().and_then(|path| trusted.get(path));
    let Some(digest) = trusted_digest else {
        return read_without_digest(name, folder, SkillOrigin::Untrusted);
    };
    if let Ok((tree, text)) = read_whole(&folder)
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
    read_without_digest(name, folder, SkillOrigin::Changed)
}

/// Reads only the `SKILL.md` of a skill, and makes no digest.
fn read_without_digest(
    name: String,
    folder: SkillFolder,
    origin: SkillOrigin,
) -> Result<Skill, SkillError> {
    let description = SkillText::read(&folder)?.description;
    Ok(Skill { name, description, folder: folder.path, origin, digest: None })
}

/// Returns the paths of the working directory's skills that a person has trusted. Blocks.
///
/// # Errors
///
/// Fails if the list of trusted skills can't be read.
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
