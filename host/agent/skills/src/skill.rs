//! Reads and checks a `SKILL.md`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use toolhold_core::text::{cut, neutral_line};

use crate::folder::{FileTree, FolderError, MAX_FILES, SkillFolder};
use crate::front_matter::{self, FrontMatter, FrontMatterError};

/// The name of the file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// The rest of a longer file isn't read.
pub(crate) const MAX_TEXT: u64 = 256 * 1024;

const MAX_NAME: usize = 64;

/// Longer descriptions are cut.
pub(crate) const MAX_DESCRIPTION: usize = 1024;

/// Most bytes of a skill's name in a message.
pub(crate) const MAX_SHOWN_NAME: usize = 80;

/// Most bytes of a path in a message.
pub(crate) const MAX_SHOWN_PATH: usize = 200;

/// Most bytes of a file's error in a message.
const MAX_SHOWN_ERROR: usize = 300;

/// The documented limit of `compatibility`.
const MAX_COMPATIBILITY: usize = 500;

/// The documented recommendation for the lines of the instructions.
const MAX_LINES: usize = 500;

/// The origin of a skill, which decides whether models get the skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillOrigin {
    /// The skill is in a folder of `folders` in `[skills]`.
    User,
    /// The skill is in the working directory, and a person has seen its current state.
    Trusted,
    /// The skill is in the working directory, and no person has seen it.
    Untrusted,
    /// The skill is in the working directory, and has changed since a person saw it.
    Changed,
}

impl SkillOrigin {
    /// Checks whether models get the skill.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::User | Self::Trusted)
    }

    /// Returns the origin as a phrase for a person.
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
    /// The purpose of the skill, on one line and without control characters.
    pub description: String,
    /// The real path of the skill's folder.
    pub folder: PathBuf,
    /// The skill's origin, and whether models can load it.
    pub origin: SkillOrigin,
    /// The digest of the files that a person has seen. `None` unless the origin is
    /// [`SkillOrigin::Trusted`].
    #[serde(skip)]
    pub(crate) digest: Option<String>,
}

/// A fault of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillFinding {
    /// Whether the skill can't be used because of the fault.
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

/// The reason why a skill can't be read.
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
    /// The skill's folder has a link or another entry that isn't a regular file.
    #[error("`{0}` is a link or not a regular file; replace the entry with a file")]
    NotAFile(String),
    /// The `SKILL.md` that was read isn't the one that the digest covers.
    #[error(
        "{SKILL_FILE} is larger than {MAX_TEXT} bytes, the limit, or changed while Toolhold read \
         the file"
    )]
    Unsettled,
}

/// A fault of a `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkillTextError {
    /// The file isn't text.
    #[error("the file isn't UTF-8")]
    NotUtf8,
    /// The front matter is missing or invalid.
    #[error(transparent)]
    FrontMatter(#[from] FrontMatterError),
    /// The front matter has no description.
    #[error("the `description` is missing; models choose skills by their description")]
    NoDescription,
}

/// Checks whether a folder's name can be the name of a skill. Few characters are allowed, because
/// terminals and models get the name unescaped.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

pub(crate) fn name_problem(name: &str) -> String {
    let shown = neutral_line(cut(name, MAX_SHOWN_NAME));
    format!(
        "`{shown}` can't be a skill's name: at most {MAX_NAME} of a-z, 0-9 and `-`; rename the folder"
    )
}

/// Returns a text as one line without control characters, cut to `max_chars` characters. A cut text
/// ends with `…`.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = neutral_line(&line);
    match line.char_indices().nth(max_chars) {
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
    /// The content of the file, cut at the limit.
    pub bytes: Vec<u8>,
    /// Whether the file has more bytes.
    pub is_truncated: bool,
}

impl SkillText {
    /// Reads `SKILL.md`.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or if it isn't valid for a skill.
    pub fn read(folder: &SkillFolder) -> Result<Self, SkillError> {
        let file = folder.read(SKILL_FILE, MAX_TEXT).map_err(SkillError::File)?;
        Self::parse(file.bytes, file.is_truncated).map_err(SkillError::Text)
    }

    /// Parses the content of a `SKILL.md`. `is_truncated` tells whether `bytes` lack the end of the
    /// file, and may thus end within a character.
    pub(crate) fn parse(bytes: Vec<u8>, is_truncated: bool) -> Result<Self, SkillTextError> {
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // `error_len` is `None` if the only fault is that the last character is cut. Leave this
            // character out.
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

    /// Returns warnings about the skill, whose folder has the name `name`.
    fn findings(&self, name: &str) -> Vec<String> {
        let mut findings = self.matter_findings(name);
        if self.body.trim().is_empty() {
            findings.push("the file has no instructions after the front matter".to_owned());
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

    fn matter_findings(&self, name: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let matter = &self.matter;
        if let Some(mistake) = &matter.mistake {
            findings.push(format!(
                "the front matter isn't valid YAML: {mistake}; Toolhold accepts the front matter, \
                 but other agents may not: put the value in quotes"
            ));
        }
        match &matter.name {
            None => findings.push(format!("the `name` is missing; add `name: {name}`")),
            Some(own) if own != name => findings.push(format!(
                "the `name` is `{}`, but Toolhold uses the name of the folder, `{name}`; use the \
                 same name",
                one_line(own, MAX_SHOWN_NAME)
            )),
            Some(_) => {}
        }
        let has_other_character = name
            .bytes()
            .any(|byte| !byte.is_ascii_lowercase() && !byte.is_ascii_digit() && byte != b'-');
        let has_stray_hyphen = name.ends_with('-') || name.contains("--");
        if has_other_character || has_stray_hyphen {
            findings.push(format!(
                "the name `{name}` has characters other than a-z, 0-9 and single `-`; other agents \
                 may not accept the name"
            ));
        }
        let description = matter.description.as_ref();
        let consequence = ", and the rest isn't shown";
        findings.extend(check_length("description", description, MAX_DESCRIPTION, consequence));
        let compatibility = matter.compatibility.as_ref();
        let no_consequence = "";
        findings.extend(check_length(
            "compatibility",
            compatibility,
            MAX_COMPATIBILITY,
            no_consequence,
        ));
        if matter.names_tools {
            findings.push(
                "Toolhold ignores `allowed-tools`: your rules apply to every call".to_owned(),
            );
        }
        findings
    }
}

/// Returns a finding if a value has more than `max_chars` characters. The message ends with
/// `consequence`.
fn check_length(
    key: &str,
    value: Option<&String>,
    max_chars: usize,
    consequence: &str,
) -> Option<String> {
    let count = value?.trim().chars().count();
    if count <= max_chars {
        return None;
    }
    Some(format!("`{key}` has {count} characters; the limit is {max_chars}{consequence}"))
}

/// Reads all files of a skill, and its `SKILL.md`. The digest of the returned tree covers every
/// byte of the files and of the returned text.
///
/// # Errors
///
/// Fails if the folder has an entry that isn't a regular file, or if the folder changed during the
/// reading.
pub fn read_whole(folder: &SkillFolder) -> Result<(FileTree, SkillText), SkillError> {
    let reads_files = true;
    let tree = folder.tree(reads_files)?;
    if let Some(other) = tree.others.first() {
        return Err(SkillError::NotAFile(neutral_line(cut(other, MAX_SHOWN_PATH))));
    }
    let text = SkillText::read(folder)?;
    if !tree.has(SKILL_FILE, &text.bytes) {
        return Err(SkillError::Unsettled);
    }
    Ok((tree, text))
}

/// Checks the skill in a folder with the name `name`. Returns its faults and its files.
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

    let tree = check_tree(folder, &mut findings);
    debug_assert!(tree.files.len() <= MAX_FILES, "the walk is bounded");
    (findings, tree)
}

/// Lists the files of a skill, and adds faults to `findings`. Returns an empty list if the files
/// can't be listed.
fn check_tree(folder: &SkillFolder, findings: &mut Vec<SkillFinding>) -> FileTree {
    let reads_files = true;
    let tree = match folder.tree(reads_files) {
        Ok(tree) => tree,
        Err(error) => {
            let message = format!("the skill can't be trusted as a skill of a project: {error}");
            findings.push(SkillFinding::warning(&message));
            return FileTree::default();
        }
    };
    if let Some(first) = tree.foreign.first() {
        findings.push(SkillFinding::error(cut(first, MAX_SHOWN_ERROR)));
    }
    if let Some(first) = tree.others.first() {
        let shown = neutral_line(cut(first, MAX_SHOWN_PATH));
        let count = tree.others.len();
        findings.push(SkillFinding::warning(&format!(
            "`{shown}` is a link or not a regular file ({count} in all), so `load_skill` doesn't \
             show the entry; the skill can't be trusted as a skill of a project"
        )));
    }
    tree
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
            ("description: a", "b", "`name` is missing"),
            ("name: other\ndescription: a", "b", "uses the name of the folder, `pdf`"),
            ("name: pdf\ndescription: a: b", "b", "isn't valid YAML"),
            (&format!("name: pdf\ndescription: {long}"), "b", "has 1025 characters"),
            (&format!("name: pdf\ndescription: a\ncompatibility: {long}"), "b", "the limit is 500"),
            ("name: pdf\ndescription: a\nallowed-tools: Bash", "b", "ignores `allowed-tools`"),
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
