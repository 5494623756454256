use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The definition of one tool: what a catalogue shows, and what the host needs to check a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The name that callers use: bare for built-ins, `plugin__tool` for others; at most 64 of
    /// `[a-z0-9_-]`.
    pub name: String,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, when to use it, what it returns, how it fails.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments, an object.
    pub input_schema: Value,
    /// JSON Schema of [`Output::structured`](crate::Output::structured).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How the tool behaves.
    pub annotations: Annotations,
    /// The arguments that name what a call acts on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// The tag under which a model without native tool use may call it in a fenced block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// Other names of this tool, which aren't listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether it belongs to a component that doesn't know Berth. Then it declares nothing about
    /// its calls, and rules about paths don't see what a call acts on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// The meta key for other names of arguments.
const MAX_ALIASES: usize = 16;

impl Definition {
    /// The other names that the tool asks for: `berth:aliases` in the meta, a list.
    pub fn own_aliases(&self) -> Vec<String> {
        let names = self.meta.as_ref().and_then(|meta| meta.get("berth:aliases"));
        let names = names.and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Other names of arguments, with the argument that each stands for: `berth:argument-aliases`
    /// in the meta, an object of lists of names. An argument's own name always means that argument.
    pub fn argument_aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let properties = self.input_schema.get("properties").and_then(Value::as_object);
        let is_argument =
            move |name: &str| properties.is_some_and(|properties| properties.contains_key(name));
        let aliases = self
            .meta
            .as_ref()
            .and_then(|meta| meta.get("berth:argument-aliases"))
            .and_then(Value::as_object);
        let lists = aliases
            .into_iter()
            .flatten()
            .take(MAX_ALIASES)
            .filter(move |(argument, _)| is_argument(argument));
        let pairs = lists.flat_map(|(argument, names)| {
            names
                .as_array()
                .into_iter()
                .flatten()
                .take(MAX_ALIASES)
                .filter_map(move |name| Some((name.as_str()?, argument.as_str())))
        });
        pairs.filter(move |(name, _)| !is_argument(name))
    }

    /// The argument that a single text stands for if it is given in place of all arguments:
    /// `berth:bare-argument` in the meta.
    pub fn bare_argument(&self) -> Option<&str> {
        let argument = self.meta.as_ref()?.get("berth:bare-argument")?.as_str()?;
        self.input_schema.get("properties")?.get(argument)?;
        Some(argument)
    }

    /// The argument that takes a glob over paths, and the one that names the folder where it
    /// starts: `berth:pattern-base` in the meta, an object of the two. If the glob is absolute, its
    /// folder is what the call acts on.
    pub fn pattern_base(&self) -> Option<(&str, &str)> {
        let (pattern, folder) =
            self.meta.as_ref()?.get("berth:pattern-base")?.as_object()?.iter().next()?;
        let (properties, folder) = (self.input_schema.get("properties")?, folder.as_str()?);
        (properties.get(pattern).is_some() && properties.get(folder).is_some())
            .then_some((pattern, folder))
    }

    /// Whether a call with these arguments only reads, even if others may act: `berth:reads-when`
    /// in the meta, an object of pointers into the arguments, each with the values that mean
    /// reading. A missing value is the schema's default.
    pub fn reads_with(&self, arguments: &Value) -> bool {
        let value = |pointer: &str| {
            let default = || {
                self.input_schema.get("properties")?.get(pointer.strip_prefix('/')?)?.get("default")
            };
            arguments.pointer(pointer).or_else(default)
        };
        self.reads_when().is_some_and(|when| {
            when.iter().all(|(pointer, values)| {
                value(pointer)
                    .is_some_and(|value| values.as_array().is_some_and(|all| all.contains(value)))
            })
        })
    }

    /// Whether a model should read the text of an answer: `berth:answers-in` in the meta is `text`,
    /// or there is no schema for structured answers.
    pub fn answers_in_text(&self) -> bool {
        let says = |meta: &Value| meta.get("berth:answers-in").is_some_and(|form| form == "text");
        self.output_schema.is_none() || self.meta.as_ref().is_some_and(says)
    }

    /// The values of arguments in calls that only read, if the tool declares them.
    pub fn reads_when(&self) -> Option<&Map<String, Value>> {
        let when = self.meta.as_ref()?.get("berth:reads-when")?.as_object()?;
        (!when.is_empty()).then_some(when)
    }

    /// Whether an argument takes content that travels beside the JSON, as `{"$attachment": 0}`.
    pub fn takes_attachments(&self) -> bool {
        self.input_schema.to_string().contains("\"$attachment\"")
    }

    /// A tool with a name, a description and the schema of its arguments. Its behaviour isn't
    /// known: the strictest [`Annotations`] and no [`Subject`].
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema,
            output_schema: None,
            annotations: Annotations::default(),
            subjects: Vec::new(),
            fence: None,
            aliases: Vec::new(),
            foreign: false,
            meta: None,
        }
    }
}

/// How a tool behaves, with the meanings of MCP's tool annotations.
///
/// The default is the strictest: a tool that declares nothing acts, destroys and reaches the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Annotations {
    /// Changes nothing. Enforced: every directory of such a call is read-only.
    pub read_only: bool,
    /// May destroy what is there.
    pub destructive: bool,
    /// A second call with the same arguments changes nothing more.
    pub idempotent: bool,
    /// Reaches things outside the machine.
    pub open_world: bool,
    /// The answer may be used again while nothing that it was made of has changed.
    pub cacheable: bool,
}

impl Default for Annotations {
    fn default() -> Self {
        Self {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
            cacheable: false,
        }
    }
}

/// An argument that names what a call acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// RFC 6901 pointer into the arguments, to a string or an array of strings.
    pub pointer: String,
    /// What the argument names.
    pub kind: SubjectKind,
    /// What is done to it.
    pub access: Access,
}

/// What a subject names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// A file or directory.
    Path,
    /// A file or directory; a link means the link itself, not its target.
    Name,
    /// A URL.
    Url,
    /// A shell command.
    Command,
    /// Any other text, and kinds that this host doesn't know.
    Text,
}

impl SubjectKind {
    /// Whether it names something in the file system.
    pub const fn is_path(self) -> bool {
        matches!(self, Self::Path | Self::Name)
    }
}

/// What is done to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It is read.
    Read,
    /// It is created, changed, moved or removed.
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aliases_belong_to_one_argument_and_shadow_none() {
        let schema = json!({ "type": "object", "properties": { "command": {}, "shell": {} } });
        let mut definition = Definition::new("bash", "runs", schema);
        assert_eq!((definition.argument_aliases().count(), definition.bare_argument()), (0, None));
        let aliases =
            json!({ "command": ["cmd", "shell", 5, "sh"], "nothing": ["other"], "shell": "sh" });
        definition.meta =
            Some(json!({ "berth:argument-aliases": aliases, "berth:bare-argument": "command" }));
        assert_eq!(
            definition.argument_aliases().collect::<Vec<_>>(),
            [("cmd", "command"), ("sh", "command")]
        );
        assert_eq!(definition.bare_argument(), Some("command"));
        definition.meta = Some(
            json!({ "berth:argument-aliases": ["command"], "berth:bare-argument": "nothing" }),
        );
        assert_eq!((definition.argument_aliases().count(), definition.bare_argument()), (0, None));
        let many: Vec<String> = (0..1000).map(|number| format!("name{number}")).collect();
        definition.meta = Some(json!({ "berth:argument-aliases": { "command": many } }));
        assert_eq!(definition.argument_aliases().count(), MAX_ALIASES);
    }
}
