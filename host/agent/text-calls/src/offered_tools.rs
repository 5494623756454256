//! The names, aliases and tags by which a model may call the offered tools in its text.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::Definition;

/// Tags of fenced blocks that no tool may have: they stand for calls of any tool, or for code that
/// models show without meaning a call.
const RESERVED: [&str; 8] =
    ["tool_call", "tool", "tool_result", "json", "text", "markdown", "md", "diff"];

/// The tools that a model was offered.
#[derive(Clone, Debug)]
pub struct OfferedTools {
    tools: Vec<OfferedTool>,
    by_name: BTreeMap<String, usize>,
    by_fence: BTreeMap<String, usize>,
    has_lines: bool,
}

/// One tool, as far as reading its calls needs it.
#[derive(Clone, Debug)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) description: String,
    bare_argument: Option<String>,
    schema: Value,
    argument_aliases: BTreeMap<String, String>,
}

impl OfferedTools {
    /// The tools with these definitions. An alias that is another tool's name or alias means
    /// nothing, so a call never reaches a tool that it doesn't name. If two tools want the same
    /// fence, the tool with a bare name has it, which is a built-in tool; of equal tools, no tool
    /// has it.
    pub fn new<'a>(definitions: impl IntoIterator<Item = &'a Definition>) -> Self {
        let definitions: Vec<&Definition> =
            definitions.into_iter().filter(|definition| !definition.unlisted).collect();
        let by_name = definitions
            .iter()
            .enumerate()
            .map(|(index, definition)| (definition.name.clone(), index))
            .collect();
        let mut offered =
            Self { tools: Vec::new(), by_name, by_fence: BTreeMap::new(), has_lines: true };
        let mut aliases = Claims::default();
        let mut fences = Claims::default();
        for (index, definition) in definitions.iter().enumerate() {
            for alias in &definition.aliases {
                aliases.claim(alias, index, definition);
            }
            if let Some(fence) = &definition.fence {
                fences.claim(fence, index, definition);
            }
        }
        for (alias, index) in aliases.settled() {
            offered.by_name.entry(alias.to_owned()).or_insert(index);
        }
        for (fence, index) in fences.settled() {
            let is_word = !fence.is_empty()
                && fence
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-.+".contains(&byte));
            if is_word && !RESERVED.contains(&fence) {
                offered.by_fence.insert(fence.to_owned(), index);
            }
        }
        offered.tools = definitions.into_iter().map(OfferedTool::new).collect();
        offered
    }

    /// Leaves only the forms that stand for nothing but a call: tags and blocks `tool_call` and
    /// `tool NAME`. This is for a model that was offered the tools natively too: it shows commands
    /// in fenced blocks such as `bash`, and means no call.
    #[must_use]
    pub fn marked_only(mut self) -> Self {
        self.by_fence.clear();
        self.has_lines = false;
        self
    }

    /// Whether `tool/argument>value` is a call.
    pub(super) fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// The tool with this name or alias.
    pub(super) fn named(&self, name: &str) -> Option<&OfferedTool> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    /// The tool that is called by a block with this tag.
    pub(super) fn fenced(&self, tag: &str) -> Option<&OfferedTool> {
        self.by_fence.get(tag).map(|index| &self.tools[*index])
    }

    pub(super) fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// The tag of a fenced block that calls the tool with this name.
    pub(super) fn fence_of(&self, name: &str) -> Option<&str> {
        let mut fences = self.by_fence.iter();
        fences.find(|(_, index)| self.tools[**index].name == name).map(|(fence, _)| fence.as_str())
    }

    /// Whether a name or alias begins with this text.
    pub(super) fn may_begin(&self, start: &str) -> bool {
        let from = (std::ops::Bound::Included(start), std::ops::Bound::Unbounded);
        self.by_name.range::<str, _>(from).next().is_some_and(|(name, _)| name.starts_with(start))
    }
}

impl OfferedTool {
    fn new(definition: &Definition) -> Self {
        let aliases = definition.argument_aliases();
        Self {
            name: definition.name.clone(),
            description: definition.description.clone(),
            bare_argument: definition.bare_argument().map(str::to_owned),
            schema: definition.input_schema.clone(),
            argument_aliases: aliases
                .map(|(alias, argument)| (alias.to_owned(), argument.to_owned()))
                .collect(),
        }
    }

    /// The argument that a text without a name is given to.
    pub(super) fn bare_argument(&self) -> Option<&str> {
        self.bare_argument.as_deref()
    }

    /// Whether this is the name or an alias of an argument.
    pub(super) fn has_argument(&self, name: &str) -> bool {
        self.argument_aliases.contains_key(name) || self.property(name).is_some()
    }

    pub(super) fn schema(&self) -> &Value {
        &self.schema
    }

    pub(super) fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    pub(super) fn requires(&self, argument: &str) -> bool {
        let required = self.schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|name| name == argument))
    }

    fn property(&self, name: &str) -> Option<&Value> {
        let name = self.argument_aliases.get(name).map_or(name, String::as_str);
        self.schema.get("properties")?.get(name)
    }

    /// The value of an argument that was written as text between tags. It is JSON if the schema
    /// doesn't want a text.
    pub(super) fn value(&self, argument: &str, text: &str) -> Value {
        let types = self.property(argument).and_then(|property| property.get("type"));
        let wants_json = match types {
            Some(Value::String(name)) => name != "string",
            Some(Value::Array(names)) => !names.iter().any(|name| name == "string"),
            _ => text.trim_start().starts_with(['{', '[']),
        };
        let json = wants_json.then(|| serde_json::from_str(text.trim()).ok()).flatten();
        json.unwrap_or_else(|| Value::from(text))
    }
}

/// The tools that claim a name. Names of third-party tools have a prefix.
#[derive(Default)]
struct Claims<'a>(BTreeMap<&'a str, Vec<(bool, usize)>>);

impl<'a> Claims<'a> {
    fn claim(&mut self, name: &'a str, index: usize, definition: &Definition) {
        let is_bare = !definition.name.contains("__");
        self.0.entry(name).or_default().push((is_bare, index));
    }

    /// Each name with the tool that has it.
    fn settled(&self) -> impl Iterator<Item = (&'a str, usize)> {
        self.0.iter().filter_map(|(name, claims)| {
            let bare: Vec<_> = claims.iter().filter(|(is_bare, _)| *is_bare).collect();
            match (bare.as_slice(), claims.as_slice()) {
                ([(_, index)], _) | ([], [(_, index)]) => Some((*name, *index)),
                _ => None,
            }
        })
    }
}
