//! A project's skill, before it counts: what a person is shown, and trusts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use berth_core::HostError;
use berth_core::config::{self, Folders};
use berth_core::text::{counted, neutral_line};

use crate::find::PROJECT_FOLDERS;
use crate::folder::{Owners, SkillFolder};
use crate::skill::{Skill, read_whole};

/// A project's skill as it is at the moment.
#[derive(Debug)]
pub struct SkillInspection {
    folder: PathBuf,
    text: String,
    files: Vec<String>,
    digest: String,
}

impl SkillInspection {
    /// Reads all files of a skill. Blocks.
    ///
    /// # Errors
    ///
    /// Why it can't be trusted as it is.
    pub fn new(skill: &Skill) -> Result<Self, String> {
        let folder = SkillFolder::open(&skill.folder, Owners::Any)?;
        let (tree, text) = read_whole(&folder)?;
        let line = |file: &crate::folder::TreeFile| {
            let executable = if file.is_executable { ", executable" } else { "" };
            let path = neutral_line(&file.path);
            format!("{path} ({}{executable})", counted(file.size, "byte"))
        };
        Ok(Self {
            folder: skill.folder.clone(),
            text: String::from_utf8_lossy(&text.bytes).into_owned(),
            files: tree.files.iter().map(line).collect(),
            digest: tree.digest(),
        })
    }

    /// Its text and its files, for a terminal.
    pub fn describe(&self) -> String {
        let mut shown = String::new();
        for line in self.text.lines() {
            let _ = writeln!(shown, "  {}", neutral_line(line));
        }
        let _ = writeln!(shown, "\nIts files:");
        for file in &self.files {
            let _ = writeln!(shown, "  {file}");
        }
        let _ = writeln!(
            shown,
            "\nA model follows its text, and may run its scripts under your rules. It has the digest {}.",
            self.digest
        );
        shown
    }

    /// Lets it count, as long as no file of it changes. Blocks.
    ///
    /// # Errors
    ///
    /// The list of what is trusted can't be written.
    pub fn trust(&self, folders: &Folders) -> Result<(), HostError> {
        config::add_trust(folders, &self.folder, &self.digest)
    }
}

/// The paths of the trusted skills of a working directory. Blocks.
///
/// # Errors
///
/// The list of what is trusted can't be read.
pub fn trusted_skills(directory: &Path, folders: &Folders) -> Result<Vec<PathBuf>, HostError> {
    let trusted = config::trusted(folders)?.into_keys().map(PathBuf::from);
    let is_below = |path: &PathBuf| {
        let parent = path.parent();
        PROJECT_FOLDERS.iter().any(|folder| parent == Some(&directory.join(folder)))
    };
    Ok(trusted.filter(is_below).collect())
}
