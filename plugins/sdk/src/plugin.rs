//! Checks a Rust plugin at compile time by the contract's rules, and passes each call to its tool.

use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::{Call, Category, Content, Failure, Output, Preview, Promises, Subject, Tool, schema};

/// Makes a component of tools, of filters, or of both.
///
/// ```
/// # use toolhold_sdk::{Call, Failure, Output, Tool};
/// # struct Count;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Arguments {}
/// # impl Tool for Count {
/// #     const NAME: &str = "count";
/// #     const DESCRIPTION: &str = "Counts.";
/// #     type Arguments = Arguments;
/// #     fn call(_: Arguments, _: &Call) -> Result<Output, Failure> { Ok("1".into()) }
/// # }
/// toolhold_sdk::plugin! {
///     name: "counter",
///     description: "Counts words and lines",
///     capabilities: [
///         files(read) = "to read the files that are counted",
///         search = "to count in many files at once",
///     ],
///     limits: { memory_mib: 64, timeout_secs: 10 },
///     tools: [Count],
/// }
/// ```
///
/// * `name` is `[a-z0-9-]`, a letter first, at most 24 characters.
/// * `capabilities` are those that the plugin asks for, each with the reason that the operator is
///   shown: `files(read)`, `files(read_write)` or the bare name of another. May be left out.
/// * `limits` are the plugin's own limits, lower than the host's. May be left out.
/// * `config_schema` is the JSON Schema of the plugin's [settings](crate::config), as text. The
///   host checks the operator's table against it. May be left out.
/// * `parts` are the pure components that the plugin brings along, each with its SHA-256: `"rust"
///   => "9f86…"`. See [`parts`](crate::parts). May be left out.
/// * `filters` is a type that implements [`Filters`](crate::filter::Filters), after the tools or
///   instead of them. Filters get no capability.
///
/// Version, authors, licence and repository come from the package.
///
/// Code that breaks a rule of the contract doesn't compile:
///
/// ```compile_fail
/// # use toolhold_sdk::{Call, Failure, Output, Tool};
/// # struct Count;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Arguments {}
/// # impl Tool for Count {
/// #     const NAME: &str = "count";
/// #     const DESCRIPTION: &str = "Counts.";
/// #     type Arguments = Arguments;
/// #     fn call(_: Arguments, _: &Call) -> Result<Output, Failure> { Ok("1".into()) }
/// # }
/// toolhold_sdk::plugin! {
///     name: "Word_Count", // a plugin's name is 1 to 24 characters out of a-z, 0-9 and `-`, a letter first
///     description: "Counts words and lines",
///     tools: [Count],
/// }
/// ```
#[macro_export]
macro_rules! plugin {
    (
        name: $name:expr,
        description: $description:expr,
        $(capabilities: [$($capability:ident $(($access:ident))? = $reason:expr),* $(,)?],)?
        $(limits: { $($limit:ident: $amount:expr),* $(,)? },)?
        $(config_schema: $config_schema:expr,)?
        $(parts: [$($part:expr => $digest:expr),* $(,)?],)?
        $(tools: [$($tool:ty),+ $(,)?] $(,)?)?
        $(filters: $filters:ty $(,)?)?
    ) => {
        const _: () = {
            use $crate::private::{Capability, Limits, Manifest, ToolEntry, Plugin, check, render};

            const PLUGIN: Plugin = Plugin { tools: &[$($(ToolEntry::new::<$tool>()),+)?], filters: 0 $(+ $crate::plugin!(@one $filters))? };
            const MANIFEST: Manifest = Manifest {
                name: $name,
                version: ::core::env!("CARGO_PKG_VERSION"),
                description: $description,
                authors: ::core::env!("CARGO_PKG_AUTHORS"),
                license: ::core::env!("CARGO_PKG_LICENSE"),
                repository: ::core::env!("CARGO_PKG_REPOSITORY"),
                capabilities: &[$($($crate::plugin!(@capability $capability $($access)? = $reason)),*)?],
                limits: Limits { $($($limit: Some($amount),)*)? ..Limits::NONE },
                config_schema: $crate::plugin!(@config_schema $($config_schema)?),
                parts: &[$($(($part, $digest)),*)?],
            };
            const { check(&PLUGIN, &MANIFEST) };
            const LENGTH: usize = render::<0>(&MANIFEST).1;

            // The linker makes a custom section of it, so that it can be read without running code.
            #[cfg(target_arch = "wasm32")]
            #[unsafe(link_section = "toolhold:manifest")]
            static SECTION: [u8; LENGTH] = render::<LENGTH>(&MANIFEST).0;
            #[cfg(not(target_arch = "wasm32"))]
            const _: [u8; LENGTH] = render::<LENGTH>(&MANIFEST).0;

            #[cfg(target_arch = "wasm32")]
            struct Component;
            $($crate::plugin!(@tools $($tool)+);)?
            $($crate::plugin!(@filters $filters);)?
        };
    };
    (@tools $($tool:ty)+) => {
        #[cfg(target_arch = "wasm32")]
        impl $crate::private::PluginComponent for Component {
            const PLUGIN: Plugin = PLUGIN;
        }

        #[cfg(target_arch = "wasm32")]
        $crate::private::export_component!(Component with_types_in $crate::private::bindings);
    };
    (@filters $filters:ty) => {
        #[cfg(target_arch = "wasm32")]
        impl $crate::private::FilterComponent for Component {
            type Filters = $filters;
        }

        #[cfg(target_arch = "wasm32")]
        $crate::private::export_filters!(Component with_types_in $crate::private::filter_bindings);
    };
    (@config_schema) => {
        None
    };
    (@config_schema $schema:expr) => {
        Some($schema)
    };
    (@one $filters:ty) => {
        $crate::private::one::<$filters>()
    };
    (@capability files read = $reason:expr) => {
        Capability { name: "files", access: Some("read"), reason: $reason }
    };
    (@capability files read_write = $reason:expr) => {
        Capability { name: "files", access: Some("read-write"), reason: $reason }
    };
    (@capability files $($access:ident)? = $reason:expr) => {
        ::core::compile_error!("`files` needs an access: `files(read)` or `files(read_write)`")
    };
    (@capability $name:ident = $reason:expr) => {
        Capability { name: ::core::stringify!($name), access: None, reason: $reason }
    };
}

/// The contents of a plugin.
pub struct Plugin {
    /// The tools, in the order of the catalogue.
    pub tools: &'static [ToolEntry],
    /// The number of filter types.
    pub filters: usize,
}

/// A tool with its type erased.
pub struct ToolEntry {
    pub(crate) name: &'static str,
    pub(crate) title: Option<&'static str>,
    pub(crate) description: &'static str,
    pub(crate) promises: Promises,
    pub(crate) subjects: &'static [Subject],
    pub(crate) aliases: &'static [&'static str],
    pub(crate) argument_aliases: &'static [(&'static str, &'static [&'static str])],
    pub(crate) bare_argument: Option<&'static str>,
    pub(crate) pattern_base: Option<(&'static str, &'static str)>,
    pub(crate) timeout_argument: Option<&'static str>,
    pub(crate) network_argument: Option<&'static str>,
    pub(crate) kept_arguments: &'static [&'static str],
    pub(crate) reads_with: &'static [(&'static str, &'static [&'static str])],
    pub(crate) preview: Option<Preview>,
    pub(crate) fence: Option<&'static str>,
    pub(crate) input_schema: fn() -> Schema,
    pub(crate) output_schema: fn() -> Option<Schema>,
    pub(crate) answers_in_text: bool,
    pub(crate) call: fn(Invocation) -> Result<Output, Failure>,
}

/// One call as the host sends it.
pub(crate) struct Invocation {
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) attachments: Vec<Content>,
    /// A JSON object as text.
    pub(crate) meta: Option<String>,
}

impl ToolEntry {
    /// The entry for `T`.
    pub const fn new<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            title: T::TITLE,
            description: T::DESCRIPTION,
            promises: T::PROMISES,
            subjects: T::SUBJECTS,
            aliases: T::ALIASES,
            argument_aliases: T::ARGUMENT_ALIASES,
            bare_argument: T::BARE_ARGUMENT,
            pattern_base: T::PATTERN_BASE,
            timeout_argument: T::TIMEOUT_ARGUMENT,
            network_argument: T::NETWORK_ARGUMENT,
            kept_arguments: T::KEPT_ARGUMENTS,
            reads_with: T::READS_WITH,
            preview: T::PREVIEW,
            fence: T::FENCE,
            input_schema: schema::for_arguments::<T::Arguments>,
            output_schema: T::output_schema,
            answers_in_text: T::ANSWERS_IN_TEXT,
            call: |invocation| {
                let arguments = decode::<T::Arguments>(&invocation.arguments)?;
                T::call(arguments, &Call::new(invocation.attachments, invocation.meta))
            },
        }
    }
}

/// An argument with which the host does more than to pass it on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ArgumentEntry {
    pub(crate) name: String,
    pub(crate) aliases: Vec<&'static str>,
    pub(crate) roles: Vec<&'static str>,
    pub(crate) base: Option<&'static str>,
    pub(crate) reads_with: Vec<Value>,
}

impl ToolEntry {
    /// The arguments with which the host does more than to pass them on, in the order of the
    /// schema.
    ///
    /// # Errors
    ///
    /// One isn't an argument: the host would silently never do it.
    pub(crate) fn arguments(&self, schema: &Schema) -> Result<Vec<ArgumentEntry>, Failure> {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut entries: Vec<ArgumentEntry> = properties
            .iter()
            .map(|(name, property)| {
                // The schema of an `Attachment`, or of a type with one in it.
                let attaches = property.to_string().contains("\"$attachment\"");
                let roles = if attaches { vec!["attachment"] } else { Vec::new() };
                ArgumentEntry { name: name.clone(), roles, ..ArgumentEntry::default() }
            })
            .collect();
        for (name, aliases) in self.argument_aliases {
            self.find(&mut entries, name)?.aliases.extend_from_slice(aliases);
        }
        let roles = [
            (self.timeout_argument, "timeout"),
            (self.network_argument, "network"),
            (self.bare_argument, "text"),
        ];
        for (name, role) in roles {
            if let Some(name) = name {
                self.find(&mut entries, name)?.roles.push(role);
            }
        }
        for name in self.kept_arguments {
            self.find(&mut entries, name)?.roles.push("kept");
        }
        if let Some((pattern, folder)) = self.pattern_base {
            self.find(&mut entries, folder)?;
            let entry = self.find(&mut entries, pattern)?;
            entry.roles.push("glob");
            entry.base = Some(folder);
        }
        for (name, values) in self.reads_with {
            self.find(&mut entries, name)?.reads_with =
                values.iter().map(|value| json!(value)).collect();
        }
        entries.retain(|entry| {
            !(entry.aliases.is_empty() && entry.roles.is_empty() && entry.reads_with.is_empty())
        });
        Ok(entries)
    }

    fn find<'e>(
        &self,
        entries: &'e mut [ArgumentEntry],
        name: &str,
    ) -> Result<&'e mut ArgumentEntry, Failure> {
        entries.iter_mut().find(|entry| entry.name == name).ok_or_else(|| {
            let message = format!("tool {}: {name:?} isn't one of the arguments", self.name);
            Failure::permanent("argument", message)
        })
    }

    /// The schema of the arguments. Fails if a subject isn't one of them: the operator's rules
    /// would silently never be checked on it.
    pub(crate) fn checked_schema(&self) -> Result<Schema, Failure> {
        let schema = (self.input_schema)();
        for subject in self.subjects {
            let name = subject.pointer[1..]
                .split('/')
                .next()
                .unwrap_or_default()
                .replace("~1", "/")
                .replace("~0", "~");
            if schema.get("properties").and_then(|properties| properties.get(&name)).is_none() {
                let message = format!(
                    "tool {}: the subject {:?} isn't one of the arguments",
                    self.name, subject.pointer
                );
                return Err(Failure::permanent("subject", message));
            }
        }
        Ok(schema)
    }
}

impl Plugin {
    /// Runs a call.
    pub(crate) fn call(&self, invocation: Invocation) -> Result<Output, Failure> {
        let Some(tool) = self.tools.iter().find(|tool| tool.name == invocation.tool) else {
            return Err(Failure::permanent(
                "unknown-tool",
                format!("the plugin has no tool {:?}", invocation.tool),
            ));
        };
        (tool.call)(invocation)
    }
}

/// Checks the rules of the contract that the types don't enforce. It runs at compile time, so that
/// a plugin that breaks a rule isn't built.
pub const fn check(plugin: &Plugin, manifest: &crate::manifest::Manifest) {
    assert!(
        is_plugin_name(manifest.name),
        "a plugin's name is 1 to 24 characters out of a-z, 0-9 and `-`, a letter first"
    );
    assert!(!manifest.description.is_empty(), "a plugin needs a description");
    assert!(
        crate::manifest::render::<0>(manifest).1 <= 64 * 1024,
        "a manifest has at most 64 KiB; shorten the descriptions and reasons"
    );
    assert!(!plugin.tools.is_empty() || plugin.filters > 0, "a plugin needs `tools` or `filters`");
    assert!(plugin.tools.len() <= 128, "a plugin has at most 128 tools");
    let mut index = 0;
    while index < plugin.tools.len() {
        let tool = &plugin.tools[index];
        assert!(
            is_tool_name(tool.name),
            "a tool's name is 1 to 38 characters out of a-z, 0-9, `_` and `-`"
        );
        assert!(
            !tool.description.is_empty() && tool.description.len() <= 4096,
            "a tool's description has 1 to 4,096 bytes"
        );
        let mut subject = 0;
        while subject < tool.subjects.len() {
            let pointer = tool.subjects[subject].pointer.as_bytes();
            assert!(
                !pointer.is_empty() && pointer[0] == b'/',
                "a subject's pointer begins with `/`: `/path`"
            );
            subject += 1;
        }
        let mut other = 0;
        while other < index {
            assert!(
                !same(tool.name, plugin.tools[other].name),
                "two tools of the plugin have the same name"
            );
            other += 1;
        }
        index += 1;
    }
}

/// Decodes the arguments. Hosts check them against the schema first, so only rules that a schema
/// can't express fail here.
fn decode<T: serde::de::DeserializeOwned>(arguments: &str) -> Result<T, Failure> {
    let mut deserializer = serde_json::Deserializer::from_str(arguments);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let reason = without_position(&error.inner().to_string());
        let category = if reason.starts_with("invalid type") {
            Category::TypeMismatch
        } else {
            Category::InvalidParameters
        };
        // The path `.` means the whole object.
        let message = if path == "." { reason } else { format!("`{path}`: {reason}") };
        Failure::new(category, message).with_code("arguments")
    })
}

/// The message without line and column, which mean nothing in generated JSON.
fn without_position(message: &str) -> String {
    message.rfind(" at line ").map_or(message, |at| &message[..at]).to_owned()
}

const fn is_plugin_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 24
        && bytes[0].is_ascii_lowercase()
        && consists_of_name_characters(bytes, false)
}

const fn is_tool_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty() && bytes.len() <= 38 && consists_of_name_characters(bytes, true)
}

const fn consists_of_name_characters(bytes: &[u8], underscores: bool) -> bool {
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        if !(byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || byte == b'-'
            || byte == b'_' && underscores)
        {
            return false;
        }
        index += 1;
    }
    true
}

const fn same(a: &str, b: &str) -> bool {
    let a = a.as_bytes();
    let b = b.as_bytes();
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the tests only check whether it decodes")]
    struct Arguments {
        path: String,
        lines: Option<Vec<u32>>,
    }

    #[track_caller]
    fn assert_argument_error(arguments: &str, category: Category, message: &str) {
        let failure = decode::<Arguments>(arguments).unwrap_err();
        assert_eq!(
            (failure.category, failure.message.as_str()),
            (category, message),
            "{arguments}"
        );
    }

    #[test]
    fn argument_error_names_the_field() {
        assert_argument_error("{}", Category::InvalidParameters, "missing field `path`");
        assert_argument_error(
            r#"{"path": 3}"#,
            Category::TypeMismatch,
            "`path`: invalid type: integer `3`, expected a string",
        );
        assert_argument_error(
            r#"{"path": "a", "lines": [1, "b"]}"#,
            Category::TypeMismatch,
            "`lines[1]`: invalid type: string \"b\", expected u32",
        );
        assert_argument_error(
            r#"{"path": "a", "lines": [-1]}"#,
            Category::InvalidParameters,
            "`lines[0]`: invalid value: integer `-1`, expected u32",
        );
        assert_argument_error(
            r#"{"pth": "a"}"#,
            Category::InvalidParameters,
            "`pth`: unknown field `pth`, expected `path` or `lines`",
        );
        assert_argument_error("[", Category::InvalidParameters, "EOF while parsing a list");
    }

    struct Wrong;

    #[derive(Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    impl Tool for Wrong {
        const NAME: &'static str = "wrong";
        const DESCRIPTION: &'static str = "Has a subject that isn't an argument.";
        const SUBJECTS: &'static [Subject] = &[Subject::reads_path("/pth")];
        type Arguments = Nothing;

        fn call(_: Nothing, _: &Call) -> Result<Output, Failure> {
            Ok(Output::default())
        }
    }

    #[test]
    fn subject_has_to_be_an_argument() {
        let failure = ToolEntry::new::<Wrong>().checked_schema().unwrap_err();
        assert_eq!(failure.message, "tool wrong: the subject \"/pth\" isn't one of the arguments");
    }

    #[test]
    fn unknown_tool_is_refused() {
        let plugin = Plugin { tools: const { &[ToolEntry::new::<Wrong>()] }, filters: 0 };
        let call = |tool: &str| {
            plugin.call(Invocation {
                tool: tool.into(),
                arguments: "{}".into(),
                attachments: Vec::new(),
                meta: None,
            })
        };
        assert_eq!(call("right").unwrap_err().code.as_deref(), Some("unknown-tool"));
        assert!(call("wrong").is_ok());
    }

    #[test]
    fn names_are_checked_by_character_and_length() {
        let long = "a".repeat(39);
        for good in ["a", "read", "word_count-2", "2fast", &long[..38]] {
            assert!(is_tool_name(good), "{good}");
        }
        for bad in ["", "Read", "a b", "ä", &long] {
            assert!(!is_tool_name(bad), "{bad}");
        }
        assert!(is_plugin_name("word-count2") && is_plugin_name(&long[..24]));
        // `__` separates a plugin's name from a tool's, so the plugin's name has no underscore.
        for bad in ["", "word_count", "2fast", "-a", &long[..25]] {
            assert!(!is_plugin_name(bad), "{bad}");
        }
        assert!(same("read", "read"));
        assert!(!same("read", "reads"));
    }
}
