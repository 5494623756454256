//! The definition of a tool: its arguments, its promises, and whether a call only reads.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The definition of one tool: the texts for a catalogue, and data for checking a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The name that callers use: `tool` for built-ins and `plugin__tool` for others. A name has at
    /// most 64 characters of `[a-z0-9_-]`.
    pub name: String,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description for models: what the tool does, when to use it, what it returns, and how it
    /// fails.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments, an object.
    pub input_schema: Value,
    /// JSON Schema of [`Output::structured`](crate::Output::structured).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How the tool behaves.
    pub annotations: Annotations,
    /// Whether the tool itself declares that it is destructive. The default is `false`, unlike in
    /// [`Annotations::destructive`]. The declaration applies even if the tool's promises aren't
    /// trusted, because it only makes calls stricter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_destructive: bool,
    /// The arguments that name the things on which a call acts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// The arguments that have a meaning for the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ToolArgument>,
    /// The arguments that describe how a call changes a file. Only used for built-in tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewArguments>,
    /// Whether models read the text of an answer, and only programs read the structured value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_for_models: bool,
    /// The tag of a fenced block with which a model without native tool use calls the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// Other names of this tool, which catalogues don't list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether the tool belongs to a component that wasn't written for Toolhold. Path rules don't
    /// know which paths a call of this tool uses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Whether catalogues omit the tool. A front end calls the tool for an item of another list,
    /// such as a [resource](crate::ResourceOffer).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl Definition {
    /// Returns each alias with the name of its argument. Aliases that equal an argument name are
    /// omitted.
    pub fn argument_aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.arguments.iter().flat_map(|argument| {
            argument.aliases.iter().map(|alias| (alias.as_str(), argument.name.as_str()))
        });
        pairs.filter(|(alias, _)| !self.has_argument(alias))
    }

    /// Returns the arguments with a role.
    pub fn arguments_with(&self, role: Role) -> impl Iterator<Item = &ToolArgument> {
        self.arguments.iter().filter(move |argument| argument.roles.contains(&role))
    }

    /// Returns the argument that gets the whole text of a call without JSON arguments.
    pub fn bare_argument(&self) -> Option<&str> {
        self.arguments_with(Role::Text).next().map(|argument| argument.name.as_str())
    }

    /// Returns each glob argument with the argument for the folder where the glob starts. An
    /// absolute glob starts at its own folder.
    pub fn pattern_bases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.arguments_with(Role::Glob).filter_map(|argument| {
            let base = argument.base.as_deref()?;
            Some((argument.name.as_str(), base))
        })
    }

    /// Returns the shortest time limit in the arguments of a call, in seconds.
    pub fn requested_seconds(&self, arguments: &Value) -> Option<f64> {
        self.arguments_with(Role::Timeout)
            .filter_map(|argument| arguments.get(&argument.name)?.as_f64())
            .min_by(f64::total_cmp)
    }

    /// Checks whether the arguments of a call ask for the network.
    pub fn asks_for_network(&self, arguments: &Value) -> bool {
        self.arguments_with(Role::Network)
            .any(|argument| arguments.get(&argument.name) == Some(&Value::Bool(true)))
    }

    /// Checks whether a call with these arguments only reads, although other calls of the tool
    /// write.
    ///
    /// Each argument with [`ToolArgument::read_only_values`] must have one of these values. A
    /// missing argument has the schema's default. Returns `false` if no argument has read-only
    /// values.
    pub fn is_read_only_call(&self, arguments: &Value) -> bool {
        if !self.has_read_only_calls() {
            return false;
        }
        for argument in self.deciding_arguments() {
            let given = arguments.get(&argument.name);
            let value = given.or_else(|| self.schema_default(&argument.name));
            let only_reads = value.is_some_and(|value| argument.read_only_values.contains(value));
            if !only_reads {
                return false;
            }
        }
        true
    }

    fn schema_default(&self, argument: &str) -> Option<&Value> {
        self.input_schema.get("properties")?.get(argument)?.get("default")
    }

    /// Checks whether calls with certain arguments only read.
    pub fn has_read_only_calls(&self) -> bool {
        self.deciding_arguments().next().is_some()
    }

    /// Declares that all calls only read. Removes the read-only values and schema defaults of
    /// arguments, because they no longer decide.
    pub fn make_read_only(&mut self) {
        self.annotations.read_only = true;
        for argument in &mut self.arguments {
            if argument.read_only_values.is_empty() {
                continue;
            }
            argument.read_only_values.clear();
            let properties = self.input_schema.get_mut("properties");
            let property = properties.and_then(|all| all.get_mut(&argument.name));
            if let Some(property) = property.and_then(Value::as_object_mut) {
                property.remove("default");
            }
        }
    }

    /// Returns the arguments that decide whether a call only reads.
    fn deciding_arguments(&self) -> impl Iterator<Item = &ToolArgument> {
        self.arguments.iter().filter(|argument| !argument.read_only_values.is_empty())
    }

    /// Checks whether a model reads the text of an answer. Tools without a schema for structured
    /// answers always answer in text.
    pub fn answers_in_text(&self) -> bool {
        self.output_schema.is_none() || self.text_for_models
    }

    /// Checks whether an argument takes an attachment: content next to the JSON, written as
    /// `{"$attachment": 0}`.
    pub fn takes_attachments(&self) -> bool {
        self.arguments_with(Role::Attachment).next().is_some()
    }

    /// Checks whether the schema has an argument of this name.
    pub fn has_argument(&self, name: &str) -> bool {
        self.input_schema.get("properties").is_some_and(|arguments| arguments.get(name).is_some())
    }

    /// Creates a tool with the strictest [`Annotations`] and without [`Subject`]s.
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
            says_destructive: false,
            subjects: Vec::new(),
            arguments: Vec::new(),
            preview: None,
            text_for_models: false,
            fence: None,
            aliases: Vec::new(),
            foreign: false,
            unlisted: false,
            meta: None,
        }
    }
}

/// Properties of an argument that the JSON Schema can't express.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolArgument {
    /// A property of the input schema.
    pub name: String,
    /// Other names of the argument. The host replaces them with `name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// How the host uses the argument.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
    /// For a [`Role::Glob`], the argument with the folder where the glob starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The values with which a call only reads. An empty list means that the argument doesn't
    /// matter.
    #[serde(rename = "reads_with", default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_values: Vec<Value>,
}

impl ToolArgument {
    /// Creates an argument with one role.
    pub fn with_role(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), roles: BTreeSet::from([role]), ..Self::default() }
    }
}

/// A meaning of an argument that the host knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A number of seconds, which sets the deadline of the call.
    Timeout,
    /// A boolean that says whether the commands of the call need the network.
    Network,
    /// Content next to the JSON.
    Attachment,
    /// The whole text of a call without JSON arguments.
    Text,
    /// A glob over paths. It starts at [`ToolArgument::base`].
    Glob,
    /// An argument that the tool stores after the call. The host redacts secrets in it.
    Kept,
}

impl Role {
    /// Returns the role with this name, or `None` if this host doesn't know the name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "timeout" => Self::Timeout,
            "network" => Self::Network,
            "attachment" => Self::Attachment,
            "text" => Self::Text,
            "glob" => Self::Glob,
            "kept" => Self::Kept,
            _ => return None,
        })
    }
}

/// The names of the arguments that describe a change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewArguments {
    /// The file.
    pub file: String,
    /// The arguments that describe the change.
    pub change: ChangeArguments,
}

/// How a call changes its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeArguments {
    /// The argument with the new content of the whole file.
    Whole(String),
    /// Replaces a part of the file.
    Part {
        /// The argument with the part that is replaced.
        old: String,
        /// The argument with the replacement.
        new: String,
        /// The argument that says whether all occurrences are replaced. With `None`, only one
        /// occurrence is replaced.
        all: Option<String>,
    },
}

/// The behaviour of a tool, with the meanings of MCP's tool annotations.
///
/// The default is the strictest: a tool that declares nothing acts, destroys and uses the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Annotations {
    /// Whether a call changes nothing. The host enforces this: all directories of the call are
    /// read-only.
    pub read_only: bool,
    /// Whether a call may destroy existing data.
    pub destructive: bool,
    /// Whether a second call with the same arguments changes nothing more.
    pub idempotent: bool,
    /// Whether a call reaches things outside the machine.
    pub open_world: bool,
    /// Whether the answer may be reused until one of its sources changes.
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

/// An argument that names a thing on which a call acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// RFC 6901 pointer into the arguments, to a string or an array of strings.
    pub pointer: String,
    /// The kind of thing that the argument names.
    pub kind: SubjectKind,
    /// The access to the thing.
    pub access: Access,
}

/// The kind of thing that a subject names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// A file or directory.
    Path,
    /// A file or directory. A link means the link itself, not its target.
    Name,
    /// A URL.
    Url,
    /// A shell command.
    Command,
    /// Any other text, and kinds that this host doesn't know.
    Text,
}

impl SubjectKind {
    /// Checks whether the subject is in the file system.
    pub const fn is_path(self) -> bool {
        matches!(self, Self::Path | Self::Name)
    }
}

/// The access to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The call reads the subject.
    Read,
    /// The call creates, changes, moves or removes the subject.
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(arguments: Vec<ToolArgument>) -> Definition {
        let schema = json!({
            "type": "object",
            "properties": { "command": {}, "shell": {}, "method": { "default": "GET" } },
        });
        Definition { arguments, ..Definition::new("bash", "runs", schema) }
    }

    #[test]
    fn aliases_shadow_no_argument() {
        let aliases = ["cmd", "shell", "sh"].map(str::to_owned).to_vec();
        let argument = ToolArgument { aliases, ..ToolArgument::with_role("command", Role::Text) };
        let definition = definition(vec![argument]);
        assert_eq!(
            definition.argument_aliases().collect::<Vec<_>>(),
            [("cmd", "command"), ("sh", "command")]
        );
        assert_eq!(definition.bare_argument(), Some("command"));
    }

    #[test]
    fn call_only_reads_if_each_deciding_argument_says_so() {
        let deciding = |name: &str, values: Value| ToolArgument {
            name: name.to_owned(),
            read_only_values: values.as_array().cloned().unwrap_or_default(),
            ..ToolArgument::default()
        };
        let one = definition(vec![deciding("method", json!(["GET", "HEAD"]))]);
        assert!(one.has_read_only_calls());
        for (arguments, reads) in [
            (json!({}), true),
            (json!({ "method": "HEAD" }), true),
            (json!({ "method": "POST" }), false),
            (json!({ "method": null }), false),
        ] {
            assert_eq!(one.is_read_only_call(&arguments), reads, "{arguments}");
        }
        let two = definition(vec![
            deciding("method", json!(["GET"])),
            deciding("command", json!(["ls"])),
        ]);
        assert!(
            !two.is_read_only_call(&json!({})),
            "a missing value without a default doesn't read"
        );
        assert!(two.is_read_only_call(&json!({ "command": "ls" })));
        assert!(!definition(Vec::new()).is_read_only_call(&json!({})));
    }

    #[test]
    fn definition_that_only_reads_needs_no_deciding_argument() {
        let deciding = ToolArgument {
            name: "method".to_owned(),
            read_only_values: vec![json!("GET")],
            ..ToolArgument::default()
        };
        let mut reading = definition(vec![deciding]);
        reading.make_read_only();
        assert!(reading.annotations.read_only && !reading.has_read_only_calls());
        assert_eq!(reading.input_schema["properties"]["method"], json!({}));
    }

    #[test]
    fn only_arguments_with_a_role_set_the_time_and_the_network() {
        let arguments = json!({ "command": 3, "shell": true, "timeout": 1, "network": true });
        let plain = definition(Vec::new());
        assert_eq!(plain.requested_seconds(&arguments), None);
        assert!(!plain.asks_for_network(&arguments) && !plain.takes_attachments());
        let roles = definition(vec![
            ToolArgument::with_role("command", Role::Timeout),
            ToolArgument::with_role("shell", Role::Network),
        ]);
        assert_eq!(roles.requested_seconds(&arguments), Some(3.0));
        assert!(roles.asks_for_network(&arguments));
        assert!(!roles.asks_for_network(&json!({ "shell": "yes" })));
    }
}
