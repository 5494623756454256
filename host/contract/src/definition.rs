//! The definition of a tool: its arguments with their roles, its promises, and whether a call with
//! given arguments only reads.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The definition of one tool. It contains what a catalogue shows, and what the host needs to check
/// a call.
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
    /// Whether the tool itself says that it may destroy what is there. Unlike
    /// [`Annotations::destructive`], a tool that says nothing doesn't count. The claim only makes
    /// calls stricter, so it applies whether the claims of the tool are trusted or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_destructive: bool,
    /// The arguments that name what a call acts on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// The arguments that have a meaning for the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ToolArgument>,
    /// The arguments that say how a call changes a file. Only used for built-in tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewArguments>,
    /// Whether models should read the text of an answer, and only programs the structured value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_for_models: bool,
    /// The tag of a fenced block with which a model without native tool use calls the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// Other names of this tool, which catalogues don't list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether the tool belongs to a component that doesn't know Toolhold. The tool then declares
    /// nothing about its calls, and rules about paths don't know which paths a call uses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Whether catalogues don't list the tool. A front end calls it for something that is listed in
    /// another form, such as a [resource](crate::ResourceOffer).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl Definition {
    /// Returns the aliases of arguments, each with the argument that it replaces. An alias that is
    /// also the name of an argument is omitted.
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

    /// Returns the argument that gets the text of a call that has only one text instead of
    /// arguments.
    pub fn bare_argument(&self) -> Option<&str> {
        self.arguments_with(Role::Text).next().map(|argument| argument.name.as_str())
    }

    /// Returns the arguments that take a glob over paths, each with the argument for the folder
    /// where the glob starts. A call with an absolute glob uses the glob's folder.
    pub fn pattern_bases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.arguments_with(Role::Glob).filter_map(|argument| {
            let base = argument.base.as_deref()?;
            Some((argument.name.as_str(), base))
        })
    }

    /// Returns the time limit in seconds that the arguments of a call set.
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

    /// Checks whether a call with these arguments only reads, even if other calls may act.
    ///
    /// Each argument that decides this must have a value with which a call only reads. A missing
    /// argument has the default of the schema.
    pub fn reads_with(&self, arguments: &Value) -> bool {
        if !self.reads_with_some() {
            return false;
        }
        self.deciding_arguments().all(|argument| {
            let given = arguments.get(&argument.name);
            let value = given.or_else(|| self.schema_default(&argument.name));
            value.is_some_and(|value| argument.reads_with.contains(value))
        })
    }

    fn schema_default(&self, argument: &str) -> Option<&Value> {
        self.input_schema.get("properties")?.get(argument)?.get("default")
    }

    /// Checks whether some arguments make a call read-only.
    pub fn reads_with_some(&self) -> bool {
        self.deciding_arguments().next().is_some()
    }

    /// Declares that all calls only read. Arguments then no longer decide this, so the defaults of
    /// the deciding arguments are removed from the schema.
    pub fn make_read_only(&mut self) {
        self.annotations.read_only = true;
        for argument in &mut self.arguments {
            if argument.reads_with.is_empty() {
                continue;
            }
            argument.reads_with.clear();
            let properties = self.input_schema.get_mut("properties");
            let property = properties.and_then(|all| all.get_mut(&argument.name));
            if let Some(property) = property.and_then(Value::as_object_mut) {
                property.remove("default");
            }
        }
    }

    fn deciding_arguments(&self) -> impl Iterator<Item = &ToolArgument> {
        self.arguments.iter().filter(|argument| !argument.reads_with.is_empty())
    }

    /// Checks whether a model should read the text of an answer. This is true if the tool says so,
    /// or if there is no schema for structured answers.
    pub fn answers_in_text(&self) -> bool {
        self.output_schema.is_none() || self.text_for_models
    }

    /// Checks whether an argument takes content that is passed outside of the JSON, as
    /// `{"$attachment": 0}`.
    pub fn takes_attachments(&self) -> bool {
        self.arguments_with(Role::Attachment).next().is_some()
    }

    /// Checks whether the schema has an argument of this name.
    pub fn has_argument(&self, name: &str) -> bool {
        self.input_schema.get("properties").is_some_and(|arguments| arguments.get(name).is_some())
    }

    /// Creates a tool with a name, a description and the schema of its arguments. Its behaviour is
    /// unknown, so it has the strictest [`Annotations`] and no [`Subject`].
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

/// The treatment of an argument by the host, next to the check against the schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolArgument {
    /// A property of the input schema.
    pub name: String,
    /// Other names of the argument. The host replaces them with its name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The uses that the host makes of the argument.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
    /// The argument with the folder where a [`Role::Glob`] starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The values with which a call only reads. If empty, the argument doesn't decide whether a
    /// call only reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads_with: Vec<Value>,
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
    /// The argument takes content that travels next to the JSON.
    Attachment,
    /// The argument that gets the text if the arguments are one text instead of an object.
    Text,
    /// A glob over paths, which starts at [`ToolArgument::base`].
    Glob,
    /// An argument that the tool stores after the call. Secrets in it are redacted before the tool
    /// gets it.
    Kept,
}

impl Role {
    /// Returns the role with this name in the contract, or `None` if this host doesn't know the
    /// role.
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

/// The names of the arguments that say what a call changes in a file.
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
    /// A part is replaced by another.
    Part {
        /// The argument with the part that is replaced.
        old: String,
        /// The argument with the replacement.
        new: String,
        /// The argument that says whether all occurrences are replaced. With `None`, only one is
        /// replaced.
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
    /// Reaches things outside the machine.
    pub open_world: bool,
    /// Whether the answer may be used again until one of its sources changes.
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
            reads_with: values.as_array().cloned().unwrap_or_default(),
            ..ToolArgument::default()
        };
        let one = definition(vec![deciding("method", json!(["GET", "HEAD"]))]);
        assert!(one.reads_with_some());
        for (arguments, reads) in [
            (json!({}), true),
            (json!({ "method": "HEAD" }), true),
            (json!({ "method": "POST" }), false),
            (json!({ "method": null }), false),
        ] {
            assert_eq!(one.reads_with(&arguments), reads, "{arguments}");
        }
        let two = definition(vec![
            deciding("method", json!(["GET"])),
            deciding("command", json!(["ls"])),
        ]);
        assert!(!two.reads_with(&json!({})), "a missing value without a default doesn't read");
        assert!(two.reads_with(&json!({ "command": "ls" })));
        assert!(!definition(Vec::new()).reads_with(&json!({})));
    }

    #[test]
    fn definition_that_only_reads_needs_no_deciding_argument() {
        let deciding = ToolArgument {
            name: "method".to_owned(),
            reads_with: vec![json!("GET")],
            ..ToolArgument::default()
        };
        let mut reading = definition(vec![deciding]);
        reading.make_read_only();
        assert!(reading.annotations.read_only && !reading.reads_with_some());
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
