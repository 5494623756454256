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

/// Skills that count.
const MAX_SKILLS: usize = 200;

/// Entries of a folder of skills that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The folders of a project's skills, below the working directory.
pub(crate) const PROJECT_FOLDERS: [&str; 3] =
    [".agents/skills", ".claude/skills", ".toolhold/skills"];

/// The skills that were found at one moment.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    /// The skills that models get, in order of their names.
    pub usable: Vec<Skill>,
    /// The project's skills that models don't get yet.
    pub untrusted: Vec<Skill>,
    /// Folders that are no skills, and skills that don't count, each with the reason.
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
        let mut found = Self::default();
        if !config.values.skills.enabled {
            return Ok(found);
        }
        let mut roots = Vec::new();
        for root in config.skill_folders(folders, directory) {
            let Some(real) = found.real(&root) else { continue };
            if roots.contains(&real) {
                continue;
            }
            let before = found.usable.len();
            if let Some(folder) = found.open(&real, Owners::User) {
                found.add_all(&folder, None);
            }
            if found.usable.len() > before {
                found.readable.push(real.clone());
            }
            roots.push(real);
        }
        let mut trusted: Option<BTreeMap<String, String>> = None;
        for name in PROJECT_FOLDERS {
            let Some(real) = found.real(&directory.join(name)) else { continue };
            let Ok(directory) = directory.canonicalize() else { continue };
            if roots.contains(&real) {
                continue;
            }
            if !real.starts_with(&directory) {
                found.leave_out(&directory.join(name), "it is a link out of the working directory");
                continue;
            }
            if let Some(folder) = found.open(&real, Owners::Any) {
                let trusted = match &trusted {
                    Some(trusted) => trusted,
                    None => trusted.insert(config::trusted(folders)?),
                };
                found.add_all(&folder, Some(trusted));
            }
            roots.push(real);
        }
        Ok(found.sorted())
    }

    /// The skill of a name that models get.
    pub(crate) fn named(&self, name: &str) -> Option<&Skill> {
        self.usable.iter().find(|skill| skill.name == name)
    }

    fn sorted(mut self) -> Self {
        let trusted = self.usable.iter().filter(|skill| skill.origin == SkillOrigin::Trusted);
        self.readable.extend(trusted.map(|skill| skill.folder.clone()));
        self.usable.sort_by(|one, other| one.name.cmp(&other.name));
        self
    }

    fn leave_out(&mut self, path: &Path, why: impl Display) {
        if self.left_out.len() < MAX_SKILLS {
            let path = neutral_line(&path.display().to_string());
            let why = neutral_line(&why.to_string());
            self.left_out.push(format!("{path} is left out: {why}"));
        }
    }

    /// The real path of a folder. `None`: the folder doesn't exist.
    fn real(&mut self, path: &Path) -> Option<PathBuf> {
        // Each folder above takes a system call of its own, and mostly the path doesn't exist.
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

    fn open(&mut self, path: &Path, owners: Owners) -> Option<SkillFolder> {
        SkillFolder::open(path, owners).map_err(|error| self.leave_out(path, error)).ok()
    }

    /// Adds the skills of a folder. `trusted`: the skills that a person has seen, if the folder is
    /// a project's.
    fn add_all(&mut self, root: &SkillFolder, trusted: Option<&BTreeMap<String, String>>) {
        let (names, is_cut) = match root.names(MAX_ENTRIES) {
            Ok(names) => names,
            Err(error) => return self.leave_out(&root.path, error),
        };
        let mut more = 0;
        let mut looked_at = 0;
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
            looked_at += 1;
            // Skills that models don't get take time too, and a project's skills may all be such.
            if self.usable.len() + self.untrusted.len() >= MAX_SKILLS || looked_at > MAX_SKILLS {
                more += 1;
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
            let (origin, digest, text) = match read(&folder, trusted) {
                Ok(read) => read,
                Err(error) => {
                    self.leave_out(&path, error);
                    continue;
                }
            };
            let description = text.description;
            let skill = Skill { name, description, folder: folder.path, origin, digest };
            if skill.origin.counts() {
                self.usable.push(skill);
            } else {
                self.untrusted.push(skill);
            }
        }
        if more > 0 || is_cut {
            let why = format!("it has {more} or more skills too many; the limit is {MAX_SKILLS}");
            self.leave_out(&root.path, why);
        }
    }
}

/// The origin of a skill, the digest of its files if they are trusted, and its text.
fn read(
    folder: &SkillFolder,
    trusted: Option<&BTreeMap<String, String>>,
) -> Result<(SkillOrigin, Option<String>, SkillText), SkillError> {
    let (origin, known) = match trusted {
        None => (SkillOrigin::User, None),
        Some(trusted) => {
            (SkillOrigin::Untrusted, folder.path.to_str().and_then(|path| trusted.get(path)))
        }
    };
    let Some(known) = known else { return Ok((origin, None, SkillText::read(folder)?)) };
    match read_whole(folder) {
        Ok((tree, text)) if tree.digest() == *known => {
            Ok((SkillOrigin::Trusted, Some(known.clone()), text))
        }
        _ => Ok((SkillOrigin::Changed, None, SkillText::read(folder)?)),
    }
}

/// The paths of the trusted skills of a working directory. Blocks.
///
/// # Errors
///
/// The list of trusted skills can't be read.
pub fn trusted_skills(directory: &Path, folders: &Folders) -> Result<Vec<PathBuf>, HostError> {
    let trusted = config::trusted(folders)?.into_keys().map(PathBuf::from);
    let below = trusted.filter(|path| {
        let parent = path.parent();
        PROJECT_FOLDERS.iter().any(|folder| parent == Some(&directory.join(folder)))
    });
    Ok(below.collect())
}
