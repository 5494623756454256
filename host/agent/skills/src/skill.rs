//! Checks a `SKILL.md`: the skill's name, description and length, and whether models may load the
//! skill.

use std::path::{Path, PathBuf};

use serde::Serialize;
use toolhold_core::text::{cut, neutral_line};

use crate::folder::{FileTree, FolderError, MAX_FILES, SkillFolder};
use crate::front_matter::{self, FrontMatter, FrontMatterError};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// Most bytes of this file that are read.
pub(crate) const MAX_TEXT: u64 = 256 * 1024;

/// Characters of a skill's name.
const MAX_NAME: usize = 64;

/// The most characters of a description that are shown.
pub(crate) const MAX_DESCRIPTION: usize = 1024;

/// The most characters of `compatibility` in the documented format.
const MAX_COMPATIBILITY: usize = 500;

/// Lines that the format recommends at most.
const MAX_LINES: usize = 500;

/// The origin of a skill, and whether models get the skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillOrigin {
    /// A folder of `[skills] folders`.
    User,
    /// The working directory. A person has seen the skill in its current state.
    Trusted,
    /// The working directory. Nobody has seen the skill.
    Untrusted,
    /// The working directory. The skill has changed since a person saw it.
    Changed,
}

impl SkillOrigin {
    /// Checks whether models get the skill.
    pub fn counts(self) -> bool {
        matches!(self, Self::User | Self::Trusted)
    }

    /// Returns the words for the origin, for a person.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::User => "yours",
            Self::Trusted => "of the project, trusted",
            Self::Untrusted => "of the project, not trusted",
            Self::Changed => "of the project, changed since it was trusted",
        }
    }
}

/// A skill.
#[derive(Clone, Debug, Serialize)]
pub struct Skill {
    /// The name of the skill's folder.
    pub name: String,
    /// The purpose of the skill: one line without control characters.
    pub description: String,
    /// The real path of the skill's folder.
    pub folder: PathBuf,
    /// The skill's origin, and whether models can load it.
    pub origin: SkillOrigin,
    /// The digest of the skill's files that a person has seen.
    #[serde(skip)]
    pub(crate) digest: Option<String>,
}

/// A fault of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillFinding {
    /// Whether the skill isn't used because of the fault.
    pub is_error: bool,
    /// The fault and the remedy.
    pub message: String,
}

impl SkillFinding {
    fn error(message: &str) -> Self {
        Self { is_error: true, message: neutral_line(message) }
    }

    fn warning(message: &str) -> Self {
        Self { is_error: false, message: neutral_line(message) }
    }
}

/// The obstacle to reading a skill.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// The skill's folder can't be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The skill's `SKILL.md` can't be read.
    #[error("{SKILL_FILE}: {0}")]
    File(FolderError),
    /// The skill's `SKILL.md` isn't valid.
    #[error("{SKILL_FILE}: {0}")]
    Text(SkillTextError),
    /// The skill's folder has an entry that a digest can't cover, such as this link.
    #[error("`{0}` is a link or no regular file; replace it with a file")]
    NotAFile(String),
    /// The digest doesn't cover the `SKILL.md` that was read.
    #[error("{SKILL_FILE} is larger than {MAX_TEXT} bytes, the limit, or is being changed")]
    Unsettled,
}

/// A fault of a `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkillTextError {
    /// The file isn't text.
    #[error("it isn't UTF-8")]
    NotUtf8,
    /// The front matter is missing or invalid.
    #[error(transparent)]
    FrontMatter(#[from] FrontMatterError),
    /// The front matter has no description.
    #[error("it has no `description`, by which a model finds it; add one")]
    NoDescription,
}

/// Checks whether a folder's name can be the name of a skill. Terminals and models get the name
/// unchanged.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Returns the reason why a folder's name can't be the name of a skill.
pub(crate) fn name_problem(name: &str) -> String {
    let shown = neutral_line(cut(name, 80));
    format!(
        "`{shown}` can't be a skill's name: at most {MAX_NAME} of a-z, 0-9 and `-`; rename the folder"
    )
}

/// Returns a text as one line of at most `most` characters, without control characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = neutral_line(&line);
    match line.char_indices().nth(most) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// The text of a skill: its front matter and its instructions.
pub struct SkillText {
    /// The front matter.
    pub matter: FrontMatter,
    /// The description, on one line.
    pub description: String,
    /// The instructions.
    pub body: String,
    /// The content of the file, up to its limit.
    pub bytes: Vec<u8>,
    /// Whether the file has more bytes.
    pub is_truncated: bool,
}

impl SkillText {
    /// Reads `SKILL.md`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, or if it isn't valid for a skill.
    pub fn read(folder: &SkillFolder) -> Result<Self, SkillError> {
        let file = folder.read(SKILL_FILE, MAX_TEXT).map_err(SkillError::File)?;
        Self::parse(file.bytes, file.is_truncated).map_err(SkillError::Text)
    }

    pub(crate) fn parse(bytes: Vec<u8>, is_truncated: bool) -> Result<Self, SkillTextError> {
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // The text may be truncated within a character.
            Err(error) if is_truncated && error.error_len().is_none() => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return Err(SkillTextError::NotUtf8),
        };
        let (yaml, body) = front_matter::split(text)?;
        let matter = front_matter::parse(yaml)?;
        let description = matter.description.as_ref().ok_or(SkillTextError::NoDescription)?;
        let description = one_line(description, MAX_DESCRIPTION);
        let body = body.to_owned();
        Ok(Self { description, matter, body, bytes, is_truncated })
    }

    /// Lists the deviations from the documented format, and the exceeded limits. `name`: the name
    /// of the skill's folder.
    fn findings(&self, name: &str) -> Vec<String> {
        let mut findings = self.matter_findings(name);
        if self.body.trim().is_empty() {
            findings.push("it has no instructions after the front matter".to_owned());
        }
        if self.is_truncated {
            findings.push(format!(
                "{SKILL_FILE} is larger than {MAX_TEXT} bytes, the limit; the rest isn't read"
            ));
        }
        let lines = self.body.lines().count();
        if lines > MAX_LINES {
            findings.push(format!(
                "{SKILL_FILE} has {lines} lines; the format recommends at most {MAX_LINES}: move details \
                 into `references/`"
            ));
        }
        findings
    }

    /// Lists the faults of the front matter. `name`: the name of the skill's folder.
    fn matter_findings(&self, name: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let matter = &self.matter;
        if let Some(mistake) = &matter.mistake {
            findings.push(format!(
                "its front matter isn't valid YAML: {mistake}; Toolhold reads it anyway, but other agents may not: put the value in quotes"
            ));
        }
        match &matter.name {
            None => findings.push(format!("it has no `name`; add `name: {name}`")),
            Some(own) if own != name => findings.push(format!(
                "its `name` is `{}`, but the name of its folder is used, `{name}`; use one name",
                one_line(own, 80)
            )),
            Some(_) => {}
        }
        let has_only_allowed = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        let has_stray_hyphen = name.ends_with('-') || name.contains("--");
        if !has_only_allowed || has_stray_hyphen {
            findings.push(format!(
                "`{name}` has other characters than a-z, 0-9 and single `-`; other agents may not accept the name"
            ));
        }
        let description = matter.description.as_ref();
        let consequence = ", and the rest isn't shown";
        findings.extend(check_length("description", description, MAX_DESCRIPTION, consequence));
        let compatibility = matter.compatibility.as_ref();
        findings.extend(check_length("compatibility", compatibility, MAX_COMPATIBILITY, ""));
        if matter.names_tools {
            findings.push(
                "`allowed-tools` approves nothing here: every call keeps your rules".to_owned(),
            );
        }
        findings
    }
}

/// Returns the finding for a value that is too long. `consequence`: the end of its message.
fn check_length(
    key: &str,
    value: Option<&String>,
    most: usize,
    consequence: &str,
) -> Option<String> {
    let count = value?.trim().chars().count();
    if count <= most {
        return None;
    }
    Some(format!("`{key}` has {count} characters; the limit is {most}{consequence}"))
}

/// Reads all files of a skill and its `SKILL.md`. A digest then covers every byte of them.
///
/// # Errors
///
/// Returns an error if a digest can't cover an entry of the folder, or if the folder changed while
/// it was read.
pub fn read_whole(folder: &SkillFolder) -> Result<(FileTree, SkillText), SkillError> {
    let tree = folder.tree(true)?;
    if let Some(other) = tree.others.first() {
        return Err(SkillError::NotAFile(neutral_line(cut(other, 200))));
    }
    let text = SkillText::read(folder)?;
    if !tree.has(SKILL_FILE, &text.bytes) {
        return Err(SkillError::Unsettled);
    }
    Ok((tree, text))
}

/// Checks the skill of a folder. Returns the faults and the files.
pub fn check(folder: &SkillFolder, name: &str) -> (Vec<SkillFinding>, FileTree) {
    let mut findings = Vec::new();
    if !is_name(name) {
        findings.push(SkillFinding::error(&name_problem(name)));
    }
    match SkillText::read(folder) {
        Ok(text) => {
            let messages = text.findings(name);
            findings.extend(messages.iter().map(|message| SkillFinding::warning(message)));
        }
        Err(error) => findings.push(SkillFinding::error(&error.to_string())),
    }

    let tree = match folder.tree(true) {
        Ok(tree) => tree,
        Err(error) => {
            let message = format!("as a project's skill, it can't be trusted: {error}");
            findings.push(SkillFinding::warning(&message));
            FileTree::default()
        }
    };
    if let Some(first) = tree.foreign.first() {
        findings.push(SkillFinding::error(cut(first, 300)));
    }
    if let Some(first) = tree.others.first() {
        let shown = neutral_line(cut(first, 200));
        let count = tree.others.len();
        findings.push(SkillFinding::warning(&format!(
            "`{shown}` is a link or no regular file ({count} in all), which `load_skill` doesn't show; as a \
             project's skill, it can't be trusted"
        )));
    }
    debug_assert!(tree.files.len() <= MAX_FILES, "the walk is bounded");
    (findings, tree)
}

/// Returns the name of a skill's folder, or an empty string if the name isn't UTF-8.
pub fn folder_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let text = SkillText::parse(text.as_bytes().to_vec(), false).expect("it is a skill");
        text.findings("pdf")
    }

    #[test]
    fn documented_skill_has_no_finding() {
        let text = "---\nname: pdf\ndescription: Reads PDFs.\nlicense: MIT\nmetadata:\n  a: b\n---\nDo it.\n";
        assert_eq!(findings(text), Vec::<String>::new());
    }

    #[test]
    fn each_mistake_is_named() {
        let long = "x".repeat(MAX_DESCRIPTION + 1);
        let lines = "x\n".repeat(MAX_LINES + 1);
        for (matter, body, expected) in [
            ("description: a", "b", "has no `name`"),
            ("name: other\ndescription: a", "b", "name of its folder is used, `pdf`"),
            ("name: pdf\ndescription: a: b", "b", "isn't valid YAML"),
            (&format!("name: pdf\ndescription: {long}"), "b", "has 1025 characters"),
            (&format!("name: pdf\ndescription: a\ncompatibility: {long}"), "b", "the limit is 500"),
            ("name: pdf\ndescription: a\nallowed-tools: Bash", "b", "approves nothing"),
            ("name: pdf\ndescription: a", " \n", "no instructions"),
            ("name: pdf\ndescription: a", &lines, "recommends"),
        ] {
            let found = findings(&format!("---\n{matter}\n---\n{body}"));
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn description_is_one_line_without_control_characters() {
        let line = one_line("a\n\n- b: \u{202e}evil\u{1b}[2J  c", 100);
        assert!(
            !line.contains(['\n', '\u{202e}', '\u{1b}']) && line.starts_with("a - b: "),
            "{line}"
        );
        assert_eq!(one_line("größe", 3), "grö…");
    }

    #[test]
    fn names_are_safe_to_show() {
        for name in ["pdf", "a-1", "My_Skill", "v1.2"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for name in ["", ".", "..", ".git", "-rf", "a b", "a\u{1b}", "ä", "a/b", &long] {
            assert!(!is_name(name), "{name}");
        }
    }
}
