//! The names, aliases and tags with which a model can call the offered tools in its text.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::Definition;

/// Tags of fenced blocks that no tool can have. Some of them mark calls of any tool, and models use
/// the others for code that isn't a call.
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

/// The data of one tool that is needed for reading its calls.
#[derive(Clone, Debug)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) description: String,
    bare_argument: Option<String>,
    schema: Value,
    argument_aliases: BTreeMap<String, String>,
}

impl OfferedTools {
    /// Makes the list of the tools with these definitions.
    ///
    /// An alias is ignored if it is another tool's name or alias, so a call never reaches a tool
    /// that it doesn't name. If two tools have the same fence tag, the tag belongs to the built-in
    /// tool. If both tools are built-in or neither is, the tag belongs to no tool.
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
            if is_word(fence) && !RESERVED.contains(&fence) {
                offered.by_fence.insert(fence.to_owned(), index);
            }
        }
        offered.tools = definitions.into_iter().map(OfferedTool::new).collect();
        offered
    }

    /// Removes the forms that a model also writes without meaning a call. Only tags and the blocks
    /// `tool_call` and `tool NAME` remain. A model with native tool use also shows commands in
    /// fenced blocks such as `bash`.
    #[must_use]
    pub fn marked_only(mut self) -> Self {
        self.by_fence.clear();
        self.has_lines = false;
        self
    }

    /// Checks whether a line `tool/argument>value` is a call.
    pub(super) fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// Returns the tool with this name or alias.
    pub(super) fn named(&self, name: &str) -> Option<&OfferedTool> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    /// Returns the tool that a block with this tag calls.
    pub(super) fn fenced(&self, tag: &str) -> Option<&OfferedTool> {
        self.by_fence.get(tag).map(|index| &self.tools[*index])
    }

    pub(super) fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// Returns the tag of a fenced block that calls the tool with this name.
    pub(super) fn fence_of(&self, name: &str) -> Option<&str> {
        let mut fences = self.by_fence.iter();
        let (fence, _) = fences.find(|(_, index)| self.tools[**index].name == name)?;
        Some(fence)
    }

    /// Checks whether a name or alias begins with this text.
    pub(super) fn may_begin(&self, start: &str) -> bool {
        // Names with this beginning are the first names that don't sort before the text.
        let at_or_after = (std::ops::Bound::Included(start), std::ops::Bound::Unbounded);
        let next = self.by_name.range::<str, _>(at_or_after).next();
        next.is_some_and(|(name, _)| name.starts_with(start))
    }
}

/// Checks whether a text can be the tag of a fenced block.
fn is_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-.+".contains(&byte))
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

    /// Returns the argument that takes a text without a name.
    pub(super) fn bare_argument(&self) -> Option<&str> {
        self.bare_argument.as_deref()
    }

    /// Checks whether this is the name or an alias of an argument.
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

    /// Returns the value of an argument that was written as text between tags. The text is read as
    /// JSON if the schema doesn't allow a string.
    pub(super) fn value(&self, argument: &str, text: &str) -> Value {
        let types = self.property(argument).and_then(|property| property.get("type"));
        let is_json = match types {
            Some(Value::String(name)) => name != "string",
            Some(Value::Array(names)) => !names.iter().any(|name| name == "string"),
            _ => text.trim_start().starts_with(['{', '[']),
        };
        if is_json && let Ok(value) = serde_json::from_str(text.trim()) {
            return value;
        }
        Value::from(text)
    }
}

/// The tools that claim each name.
#[derive(Default)]
struct Claims<'a>(BTreeMap<&'a str, Claimants>);

/// The indices of the tools that claim a name.
#[derive(Default)]
struct Claimants {
    built_in: Vec<usize>,
    third_party: Vec<usize>,
}

impl<'a> Claims<'a> {
    fn claim(&mut self, name: &'a str, index: usize, definition: &Definition) {
        let claimants = self.0.entry(name).or_default();
        // Names of third-party tools have a prefix.
        let is_third_party = definition.name.contains("__");
        if is_third_party {
            claimants.third_party.push(index);
        } else {
            claimants.built_in.push(index);
        }
    }

    /// Returns each name that belongs to one tool, with the index of the tool.
    fn settled(&self) -> impl Iterator<Item = (&'a str, usize)> {
        self.0.iter().filter_map(|(name, claimants)| {
            match (claimants.built_in.as_slice(), claimants.third_party.as_slice()) {
                ([index], _) | ([], [index]) => Some((*name, *index)),
                _ => None,
            }
        })
    }
}
