//! `load_skill`: returns the instructions and files of a skill to a model.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{counted, cut, neutral_line, neutral_owned};
use toolhold_core::{
    Access, Annotations, BoxFuture, Call, Category, Definition, Failure, HostError, Outcome,
    Output, ToolSource,
};
use toolhold_policy::files::{FileRules, Kind};

use crate::find::Skills;
use crate::folder::{FileBytes, FileTree, Owners, SkillFolder, plain_path};
use crate::listing::describe_skills;
use crate::skill::{
    MAX_SHOWN_NAME, MAX_SHOWN_PATH, MAX_TEXT, SKILL_FILE, Skill, SkillText, read_whole,
};

const LOAD_SKILL: &str = "load_skill";

/// An alias of the tool.
const INVOKE_SKILL: &str = "invoke_skill";

/// An answer names at most this number of files of a skill.
const MAX_NAMED_FILES: usize = 50;

/// An error names at most this number of skills.
const MAX_NAMED_SKILLS: usize = 30;

const DESCRIPTION: &str = "Loads a skill: instructions for a certain task, written in advance. \
                           Returns the skill's text and the path of its folder. The folder has the \
                           scripts and other files that the text names: read a file with `file`, \
                           or run a script with bash by its full path. A skill gives no rights: \
                           the rules apply to every call. Fails if the skill or the file doesn't \
                           exist.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    name: String,
    file: Option<String>,
}

/// The tool source of `load_skill`.
pub struct SkillLoader(Arc<Loader>);

struct Loader {
    skills: Arc<Skills>,
    /// Contains the variables of each skill.
    config: Config,
    rules: FileRules,
    tool: Arc<Definition>,
}

impl SkillLoader {
    /// Makes the source of the tool, or returns `None` if there are no skills. If `lists` is set,
    /// the tool's description lists the skills.
    ///
    /// # Errors
    ///
    /// Fails with [`HostError::Config`] if a pattern of `[tools.file]` isn't a valid glob.
    pub fn new(
        skills: Arc<Skills>,
        config: &Config,
        folders: &Folders,
        directory: &Path,
        lists: bool,
    ) -> Result<Option<Self>, HostError> {
        if skills.usable.is_empty() {
            return Ok(None);
        }
        let readable: Vec<_> = skills.usable.iter().map(|skill| skill.folder.clone()).collect();
        let rules = config.skill_rules(&readable, folders, directory)?;
        let description = if lists {
            format!("{DESCRIPTION}\n\n{}", describe_skills(&skills))
        } else {
            DESCRIPTION.to_owned()
        };
        let file = "A file of the skill's folder to show in place of the instructions, such as `references/forms.md`.";
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The skill's name." },
                "file": { "type": "string", "description": file },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let annotations = Annotations {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
            cacheable: false,
        };
        let tool = Arc::new(Definition {
            title: Some("Load a skill".to_owned()),
            annotations,
            aliases: vec![INVOKE_SKILL.to_owned()],
            ..Definition::new(LOAD_SKILL, description, schema)
        });
        Ok(Some(Self(Arc::new(Loader { skills, config: config.clone(), rules, tool }))))
    }
}

impl Loader {
    /// Answers a call with the instructions or another file of a skill. Fails if a project's skill
    /// has changed since a person saw it.
    fn load(&self, call: &Call) -> Outcome {
        let arguments = Arguments::deserialize(&*call.arguments)
            .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
        let skill =
            self.skills.named(&arguments.name).ok_or_else(|| self.unknown_skill(&arguments))?;
        let path = arguments.file.as_deref().unwrap_or(SKILL_FILE);
        let shown = neutral_line(cut(path, MAX_SHOWN_PATH));
        let path = plain_path(path).map_err(|error| unreadable_error(skill, &shown, error))?;
        self.check_rules(call, &skill.folder.join(&path))?;

        let folder = SkillFolder::open(&skill.folder, allowed_owners(skill))
            .map_err(|error| unreadable_error(skill, &shown, error))?;
        let trusted_tree = match &skill.digest {
            None => None,
            Some(digest) => match read_whole(&folder) {
                Ok((tree, _)) if tree.digest() == *digest => Some(tree),
                _ => return Err(untrusted_error(skill)),
            },
        };
        let file =
            folder.read(&path, MAX_TEXT).map_err(|error| unreadable_error(skill, &shown, error))?;
        if let Some(tree) = &trusted_tree {
            if file.is_truncated {
                let why = format!("the file is larger than {MAX_TEXT} bytes, the limit");
                return Err(unreadable_error(skill, &shown, why));
            }
            // The file may have changed since the tree was read.
            if !tree.has(&path, &file.bytes) {
                return Err(untrusted_error(skill));
            }
        }

        if arguments.file.is_some() {
            return show_file(skill, &shown, file);
        }
        let text = SkillText::parse(file.bytes, file.is_truncated)
            .map_err(|error| unreadable_error(skill, &shown, error))?;
        let tree = match trusted_tree {
            Some(tree) => Some(tree),
            None => {
                let reads_files = false;
                // If the files can't be listed, the model still gets the instructions.
                folder.tree(reads_files).ok()
            }
        };
        self.show_instructions(call, skill, text, tree.as_ref())
    }

    /// Returns the instructions of a skill. Also reports the skill's variables, which later
    /// commands of the session get.
    fn show_instructions(
        &self,
        call: &Call,
        skill: &Skill,
        text: SkillText,
        tree: Option<&FileTree>,
    ) -> Outcome {
        // If another user may have written one of the files, don't show the instructions, because
        // the model may use this file when it follows them.
        if let Some(foreign) = tree.and_then(|tree| tree.foreign.first()) {
            let why = format!("a file next to {SKILL_FILE}: {}", neutral_line(foreign));
            return Err(unreadable_error(skill, SKILL_FILE, why));
        }
        let mut variables: Vec<(String, String)> = Vec::new();
        if let Some(environment) = self.config.values.skills.env.get(&skill.name) {
            for (name, value) in environment {
                variables.push((name.clone(), value.clone()));
            }
        }
        let head = describe_skill(skill, tree, &variables);
        call.report.entries().variables = Some(variables);
        let body = with_truncation_note(neutral_owned(text.body), text.is_truncated);
        Ok(Output::text(format!("{head}\n\n{}", body.trim_start_matches(['\n', '\r']))))
    }

    /// Fails if the rules of `[tools.file]` or the path rules of the call deny reading a file.
    fn check_rules(&self, call: &Call, path: &Path) -> Result<(), Failure> {
        if let Err(refusal) = self.rules.decide(path, Kind::Other, Access::Read) {
            return Err(Failure::denied(self.rules.explain(refusal, path, Access::Read)));
        }
        if let Some(rules) = &call.path_rules
            && let Err(refusal) = rules.decide(path, Access::Read)
        {
            return Err(Failure::denied(rules.explain(refusal, path, Access::Read)));
        }
        Ok(())
    }

    /// Returns the error for a call that names no usable skill. The skill isn't trusted or doesn't
    /// exist.
    fn unknown_skill(&self, arguments: &Arguments) -> Failure {
        let mut untrusted = self.skills.untrusted.iter();
        if let Some(skill) = untrusted.find(|skill| skill.name == arguments.name) {
            return untrusted_error(skill);
        }
        let name = neutral_line(cut(&arguments.name, MAX_SHOWN_NAME));
        let usable = &self.skills.usable;
        let mut names = Vec::new();
        for skill in usable.iter().take(MAX_NAMED_SKILLS) {
            names.push(skill.name.as_str());
        }
        let unnamed = usable.len() - names.len();
        let known = names.join(", ");
        let more = if unnamed > 0 { format!(", and {unnamed} more") } else { String::new() };
        let message = format!("there is no skill `{name}`; the skills are: {known}{more}");
        Failure::new(Category::InvalidParameters, message)
    }
}

/// Returns the text of a skill's file. Errors name the file by the path `shown`.
fn show_file(skill: &Skill, shown: &str, file: FileBytes) -> Outcome {
    let is_truncated = file.is_truncated;
    let text = match String::from_utf8(file.bytes) {
        Ok(text) => text,
        // `error_len` is `None` if the only fault is that the last character is cut. Leave this
        // character out.
        Err(error) if is_truncated && error.utf8_error().error_len().is_none() => {
            let valid = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned()
        }
        Err(_) => {
            return Err(unreadable_error(
                skill,
                shown,
                "the file isn't UTF-8; bash can use the file by its path",
            ));
        }
    };
    Ok(Output::text(with_truncation_note(neutral_owned(text), is_truncated)))
}

fn unreadable_error(skill: &Skill, file: &str, why: impl Display) -> Failure {
    let message = format!("`{file}` of the skill `{}` can't be read: {why}", skill.name);
    Failure::new(Category::PermanentFailure, message)
}

/// Returns the first paragraph of an answer: the skill's folder and files, and the names of the
/// skill's variables.
fn describe_skill(
    skill: &Skill,
    tree: Option<&FileTree>,
    variables: &[(String, String)],
) -> String {
    let path = neutral_line(&skill.folder.display().to_string());
    let mut head = format!(
        "[Skill `{}`, from {path}: relative paths in the text start at this folder. The skill \
         gives no rights: the rules apply to every call.",
        skill.name
    );

    if let Some(tree) = tree {
        head += &describe_files(tree);
    }
    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let count = counted(names.len(), "variable");
        head += &format!(" Later commands of this session have {count}: {}.", names.join(", "));
    }
    head + "]"
}

/// Returns a sentence about the files of a skill, or an empty string if `SKILL.md` is the only
/// file.
fn describe_files(tree: &FileTree) -> String {
    let mut files: Vec<String> = Vec::new();
    for file in &tree.files {
        if file.path != SKILL_FILE {
            files.push(format!("`{}`", neutral_line(&file.path)));
        }
    }
    if files.is_empty() {
        return String::new();
    }
    let unnamed = files.len().saturating_sub(MAX_NAMED_FILES);
    files.truncate(MAX_NAMED_FILES);
    let more = if unnamed > 0 { format!(", and {unnamed} more") } else { String::new() };
    format!(" The skill's files: {}{more}.", files.join(", "))
}

fn allowed_owners(skill: &Skill) -> Owners {
    match skill.digest {
        None => Owners::User,
        // The digest covers every byte, so it doesn't matter who can write the files.
        Some(_) => Owners::Any,
    }
}

fn untrusted_error(skill: &Skill) -> Failure {
    let message = format!(
        "the skill `{}` belongs to the project and isn't trusted in its current version, so the \
         skill isn't loaded",
        skill.name
    );
    Failure::new(Category::PermanentFailure, message).with_suggestion(
        "Continue without the skill. The user can review the skill with: toolhold trust",
    )
}

fn with_truncation_note(mut text: String, is_truncated: bool) -> String {
    if is_truncated {
        text += &format!("\n[The file is larger than {MAX_TEXT} bytes; the rest isn't read.]\n");
    }
    text
}

impl ToolSource for SkillLoader {
    fn name(&self) -> &str {
        "skills"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.0.tool)]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let loader = Arc::clone(&self.0);
        Box::pin(async move {
            let loaded = tokio::task::spawn_blocking(move || loader.load(&call)).await;
            loaded.unwrap_or_else(|error| {
                Err(Failure::new(Category::PermanentFailure, error.to_string()).with_code("host"))
            })
        })
    }
}
