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
use crate::folder::{FileTree, Owners, SkillFolder, plain_path};
use crate::listing::describe_skills;
use crate::skill::{MAX_TEXT, SKILL_FILE, Skill, SkillText, read_whole};

/// The tool's name.
const LOAD_SKILL: &str = "load_skill";

/// Another name of the tool.
const INVOKE_SKILL: &str = "invoke_skill";

/// Files of a skill that an answer names.
const MAX_NAMED: usize = 50;

/// Names of skills in an error.
const MAX_NAMES: usize = 30;

const DESCRIPTION: &str = "\
    Loads a skill: instructions for a certain task, written in advance. Returns its text and the path of its folder, which has the scripts and other files that the text names: read them with `file`, or run scripts with bash by their full path. A skill gives no rights: every call keeps the rules. Fails if there is no such skill or file.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    name: String,
    file: Option<String>,
}

/// Offers the tool.
pub struct SkillLoader(Arc<Loader>);

struct Loader {
    skills: Arc<Skills>,
    /// The variables of each skill.
    config: Config,
    /// The rules about files that may be read.
    rules: FileRules,
    tool: Arc<Definition>,
}

impl SkillLoader {
    /// `lists`: whether the tool's description lists the skills, for clients that get no other text
    /// about them. `None`: there is no skill to load.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`]: a pattern of `[tools.file]` isn't a valid glob.
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
    fn load(&self, call: &Call) -> Outcome {
        let arguments = Arguments::deserialize(&*call.arguments)
            .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
        let skill = self.skills.named(&arguments.name).ok_or_else(|| self.unknown(&arguments))?;
        let name = &skill.name;
        let file = arguments.file.as_deref().unwrap_or(SKILL_FILE);
        let shown = neutral_line(cut(file, 200));
        let file = plain_path(file).map_err(|error| unreadable(name, &shown, error))?;
        self.check(call, &skill.folder.join(&file))?;
        let folder = SkillFolder::open(&skill.folder, owners(skill))
            .map_err(|error| unreadable(name, &shown, error))?;
        let tree = match &skill.digest {
            None => None,
            Some(digest) => match read_whole(&folder) {
                Ok((tree, _)) if tree.digest() == *digest => Some(tree),
                _ => return Err(unseen(skill)),
            },
        };
        let read = folder.read(&file, MAX_TEXT).map_err(|error| unreadable(name, &shown, error))?;
        match &tree {
            Some(_) if read.is_cut => {
                let why = format!("it is larger than {MAX_TEXT} bytes, the limit");
                return Err(unreadable(name, &shown, why));
            }
            // The file may have changed since the look at all files.
            Some(tree) if !tree.has(&file, &read.bytes) => return Err(unseen(skill)),
            _ => {}
        }
        if arguments.file.is_some() {
            let text = String::from_utf8(read.bytes).or_else(|error| {
                if read.is_cut && error.utf8_error().error_len().is_none() {
                    let valid = error.utf8_error().valid_up_to();
                    Ok(String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned())
                } else {
                    Err(unreadable(name, &shown, "it isn't text; bash can use it by its path"))
                }
            })?;
            return Ok(Output::text(with_end(neutral_owned(text), read.is_cut)));
        }
        let text = SkillText::parse(read.bytes, read.is_cut)
            .map_err(|error| unreadable(name, &shown, error))?;
        let tree = match tree {
            Some(tree) => Ok(tree),
            None => folder.tree(false),
        };
        if let Some(foreign) = tree.as_ref().ok().and_then(|tree| tree.foreign.first()) {
            let why = format!("a file next to it: {}", neutral_line(foreign));
            return Err(unreadable(name, &shown, why));
        }
        let environment = self.config.values.skills.env.get(name);
        let variables: Vec<(String, String)> = environment
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let head = head(skill, tree.as_ref().ok(), &variables);
        call.report.entries().variables = Some(variables);
        let body = with_end(neutral_owned(text.body), text.is_cut);
        Ok(Output::text(format!("{head}\n\n{}", body.trim_start_matches(['\n', '\r']))))
    }

    /// Checks the rules about files, and the rules about calls.
    fn check(&self, call: &Call, path: &Path) -> Result<(), Failure> {
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
        if let Some(skill) = self.skills.untrusted.iter().find(|it| it.name == arguments.name) {
            return unseen(skill);
        }
        let name = neutral_line(cut(&arguments.name, 80));
        let names: Vec<&str> =
            self.skills.usable.iter().take(MAX_NAMES).map(|skill| skill.name.as_str()).collect();
        let more = self.skills.usable.len() - names.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let known = names.join(", ");
        Failure::new(
            Category::InvalidParameters,
            format!("there is no skill `{name}`; the skills are: {known}{more}"),
        )
    }
}

fn unreadable(skill: &str, file: &str, why: impl Display) -> Failure {
    let message = format!("`{file}` of the skill `{skill}` can't be read: {why}");
    Failure::new(Category::PermanentFailure, message)
}

/// The facts that the model needs with the instructions.
fn head(skill: &Skill, tree: Option<&FileTree>, variables: &[(String, String)]) -> String {
    let path = neutral_line(&skill.folder.display().to_string());
    let mut head = format!(
        "[Skill `{}`, from {path}: paths in its text begin there. It gives no rights: every call keeps the rules.",
        skill.name
    );
    let files = tree.iter().flat_map(|tree| &tree.files).filter(|file| file.path != SKILL_FILE);
    let mut names: Vec<String> =
        files.map(|file| format!("`{}`", neutral_line(&file.path))).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    if !names.is_empty() {
        head += &format!(" Its files: {}", names.join(", "));
        head += &if more > 0 { format!(", and {more} more.") } else { ".".to_owned() };
    }
    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let count = counted(names.len(), "variable");
        head += &format!(" Later commands of this session have {count}: {}.", names.join(", "));
    }
    head + "]"
}

fn owners(skill: &Skill) -> Owners {
    match skill.digest {
        None => Owners::User,
        // The digest covers every byte, whoever wrote it.
        Some(_) => Owners::Any,
    }
}

/// The refusal of a project's skill that nobody has looked at as it is.
fn unseen(skill: &Skill) -> Failure {
    let message = format!(
        "the skill `{}` belongs to the project and isn't trusted as it is now, so it isn't loaded",
        skill.name
    );
    Failure::new(Category::PermanentFailure, message)
        .with_suggestion("Continue without the skill. The user can review it with: toolhold trust")
}

fn with_end(mut text: String, is_cut: bool) -> String {
    if is_cut {
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
