//! `load_skill`: gives a model the instructions and files of a skill.

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
use crate::skill::{MAX_TEXT, SKILL_FILE, Skill, SkillText, read_whole};

/// The tool's name.
const LOAD_SKILL: &str = "load_skill";

/// Another name of the tool.
const INVOKE_SKILL: &str = "invoke_skill";

/// Most files of a skill that an answer names.
const MAX_NAMED: usize = 50;

/// Most names of skills in an error.
const MAX_NAMES: usize = 30;

const DESCRIPTION: &str = "\
    Loads a skill: instructions for a certain task, written in advance. Returns its text and the path of its folder, which has the scripts and other files that the text names: read them with `file`, or run scripts with bash by their full path. A skill gives no rights: every call keeps the rules. Fails if there is no such skill or file.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    name: String,
    file: Option<String>,
}

/// The source of the tool.
pub struct SkillLoader(Arc<Loader>);

struct Loader {
    skills: Arc<Skills>,
    /// The variables of each skill.
    config: Config,
    /// The rules for reading files.
    rules: FileRules,
    tool: Arc<Definition>,
}

impl SkillLoader {
    /// Makes the source of the tool. Returns `None` if there are no skills.
    ///
    /// `lists`: whether the tool's description lists the skills, for clients that get no other text
    /// about skills.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a pattern of `[tools.file]` isn't a valid glob.
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
    /// Answers a call with the instructions of a skill, or with a file of its folder.
    fn load(&self, call: &Call) -> Outcome {
        let arguments = Arguments::deserialize(&*call.arguments)
            .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
        let skill = self.skills.named(&arguments.name).ok_or_else(|| self.unknown(&arguments))?;
        let path = arguments.file.as_deref().unwrap_or(SKILL_FILE);
        let shown = neutral_line(cut(path, 200));
        let path = plain_path(path).map_err(|error| unreadable(skill, &shown, error))?;
        self.check_rules(call, &skill.folder.join(&path))?;

        let folder = SkillFolder::open(&skill.folder, owners(skill))
            .map_err(|error| unreadable(skill, &shown, error))?;
        let trusted_tree = match &skill.digest {
            None => None,
            Some(digest) => match read_whole(&folder) {
                Ok((tree, _)) if tree.digest() == *digest => Some(tree),
                _ => return Err(unseen(skill)),
            },
        };
        let file =
            folder.read(&path, MAX_TEXT).map_err(|error| unreadable(skill, &shown, error))?;
        if let Some(tree) = &trusted_tree {
            if file.is_truncated {
                let why = format!("it is larger than {MAX_TEXT} bytes, the limit");
                return Err(unreadable(skill, &shown, why));
            }
            // The file may have changed after all files were read.
            if !tree.has(&path, &file.bytes) {
                return Err(unseen(skill));
            }
        }

        if arguments.file.is_some() {
            return show_file(skill, &shown, file);
        }
        let text = SkillText::parse(file.bytes, file.is_truncated)
            .map_err(|error| unreadable(skill, &shown, error))?;
        let tree = match trusted_tree {
            Some(tree) => Some(tree),
            None => folder.tree(false).ok(),
        };
        self.show_instructions(call, skill, text, tree.as_ref())
    }

    /// Returns the instructions of a skill, and gives the variables of the skill to later commands.
    fn show_instructions(
        &self,
        call: &Call,
        skill: &Skill,
        text: SkillText,
        tree: Option<&FileTree>,
    ) -> Outcome {
        if let Some(foreign) = tree.and_then(|tree| tree.foreign.first()) {
            let why = format!("a file next to it: {}", neutral_line(foreign));
            return Err(unreadable(skill, SKILL_FILE, why));
        }
        let environment = self.config.values.skills.env.get(&skill.name);
        let variables: Vec<(String, String)> = environment
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let head = write_head(skill, tree, &variables);
        call.report.entries().variables = Some(variables);
        let body = with_end(neutral_owned(text.body), text.is_truncated);
        Ok(Output::text(format!("{head}\n\n{}", body.trim_start_matches(['\n', '\r']))))
    }

    /// Checks the rules about files, and the rules about calls.
    fn check_rules(&self, call: &Call, path: &Path) -> Result<(), Failure> {
        if let Err(refusal) = self.rules.decide(path, Kind::Other, Access::Read) {
            return Err(Failure::denied(self.rules.explain(refusal, path, Access::Read)));
        }
        match &call.path_rules {
            Some(rules) => rules
                .decide(path, Access::Read)
                .map_err(|refusal| Failure::denied(rules.explain(refusal, path, Access::Read))),
            None => Ok(()),
        }
    }

    fn unknown(&self, arguments: &Arguments) -> Failure {
        let mut untrusted = self.skills.untrusted.iter();
        if let Some(skill) = untrusted.find(|skill| skill.name == arguments.name) {
            return unseen(skill);
        }
        let name = neutral_line(cut(&arguments.name, 80));
        let usable = &self.skills.usable;
        let names: Vec<&str> =
            usable.iter().take(MAX_NAMES).map(|skill| skill.name.as_str()).collect();
        let known = names.join(", ");
        let unnamed = usable.len() - names.len();
        let more = if unnamed > 0 { format!(", and {unnamed} more") } else { String::new() };
        let message = format!("there is no skill `{name}`; the skills are: {known}{more}");
        Failure::new(Category::InvalidParameters, message)
    }
}

/// Returns the text of a file that a call requests. `shown`: the path of the file, for errors.
fn show_file(skill: &Skill, shown: &str, file: FileBytes) -> Outcome {
    let is_truncated = file.is_truncated;
    let text = match String::from_utf8(file.bytes) {
        Ok(text) => text,
        // The text is truncated within a character.
        Err(error) if is_truncated && error.utf8_error().error_len().is_none() => {
            let valid = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned()
        }
        Err(_) => {
            return Err(unreadable(skill, shown, "it isn't text; bash can use it by its path"));
        }
    };
    Ok(Output::text(with_end(neutral_owned(text), is_truncated)))
}

fn unreadable(skill: &Skill, file: &str, why: impl Display) -> Failure {
    let message = format!("`{file}` of the skill `{}` can't be read: {why}", skill.name);
    Failure::new(Category::PermanentFailure, message)
}

/// Returns the first paragraph of an answer. It has the skill's folder and files, and the variables
/// that later commands get.
fn write_head(skill: &Skill, tree: Option<&FileTree>, variables: &[(String, String)]) -> String {
    let path = neutral_line(&skill.folder.display().to_string());
    let mut head = format!(
        "[Skill `{}`, from {path}: paths in its text begin there. It gives no rights: every call keeps the rules.",
        skill.name
    );

    let all_files = tree.into_iter().flat_map(|tree| &tree.files);
    let other_files = all_files.filter(|file| file.path != SKILL_FILE);
    let mut files: Vec<String> =
        other_files.map(|file| format!("`{}`", neutral_line(&file.path))).collect();
    let unnamed = files.len().saturating_sub(MAX_NAMED);
    files.truncate(MAX_NAMED);
    if !files.is_empty() {
        head += &format!(" Its files: {}", files.join(", "));
        if unnamed > 0 {
            head += &format!(", and {unnamed} more");
        }
        head += ".";
    }

    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let count = counted(names.len(), "variable");
        head += &format!(" Later commands of this session have {count}: {}.", names.join(", "));
    }
    head + "]"
}

/// Returns the users who are allowed to own the files of a skill.
fn owners(skill: &Skill) -> Owners {
    match skill.digest {
        None => Owners::User,
        // The digest covers every byte, so the owner doesn't matter.
        Some(_) => Owners::Any,
    }
}

/// Returns the error for a project's skill that nobody has trusted in its present state.
fn unseen(skill: &Skill) -> Failure {
    let message = format!(
        "the skill `{}` belongs to the project and isn't trusted as it is now, so it isn't loaded",
        skill.name
    );
    Failure::new(Category::PermanentFailure, message)
        .with_suggestion("Continue without the skill. The user can review it with: toolhold trust")
}

/// Adds a notice if the text is truncated.
fn with_end(mut text: String, is_truncated: bool) -> String {
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
