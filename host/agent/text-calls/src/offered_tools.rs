//! The names, aliases and fence tags of the offered tools.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::Definition;

/// Fence tags that no tool gets, because they mark calls of any tool, or other content.
const RESERVED_TAGS: [&str; 8] =
    ["tool_call", "tool", "tool_result", "json", "text", "markdown", "md", "diff"];

/// The tools that a model was offered.
#[derive(Clone, Debug)]
pub struct OfferedTools {
    tools: Vec<OfferedTool>,
    by_name: BTreeMap<String, usize>,
    by_fence: BTreeMap<String, usize>,
    allows_lines: bool,
}

#[derive(Clone, Debug)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) description: String,
    bare_argument: Option<String>,
    schema: Value,
    argument_aliases: BTreeMap<String, String>,
}

impl OfferedTools {
    /// Makes the list of these tools.
    ///
    /// An alias that is also a tool's name is ignored. If several tools want the same alias or
    /// fence tag, the built-in tool gets it. If several built-in tools or only third-party tools
    /// want it, no tool gets it.
    pub fn new<'a>(definitions: impl IntoIterator<Item = &'a Definition>) -> Self {
        let definitions: Vec<&Definition> =
            definitions.into_iter().filter(|definition| !definition.unlisted).collect();
        let mut by_name = BTreeMap::new();
        let mut aliases = Claims::default();
        let mut fences = Claims::default();
        for (index, definition) in definitions.iter().enumerate() {
            by_name.insert(definition.name.clone(), index);
            for alias in &definition.aliases {
                aliases.claim(alias, index, definition);
            }
            if let Some(fence) = &definition.fence {
                fences.claim(fence, index, definition);
            }
        }
        for (alias, index) in aliases.settled() {
            by_name.entry(alias.to_owned()).or_insert(index);
        }
        let mut by_fence = BTreeMap::new();
        for (fence, index) in fences.settled() {
            if is_word(fence) && !RESERVED_TAGS.contains(&fence) {
                by_fence.insert(fence.to_owned(), index);
            }
        }
        let tools = definitions.into_iter().map(OfferedTool::new).collect();
        Self { tools, by_name, by_fence, allows_lines: true }
    }

    /// Removes the forms of calls that models also write as examples. Tags and the blocks
    /// `tool_call` and `tool NAME` remain.
    #[must_use]
    pub fn explicit_only(mut self) -> Self {
        self.by_fence.clear();
        self.allows_lines = false;
        self
    }

    pub(super) fn allows_lines(&self) -> bool {
        self.allows_lines
    }

    pub(super) fn named(&self, name: &str) -> Option<&OfferedTool> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    pub(super) fn fenced(&self, tag: &str) -> Option<&OfferedTool> {
        self.by_fence.get(tag).map(|index| &self.tools[*index])
    }

    pub(super) fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    pub(super) fn fence_of(&self, name: &str) -> Option<&str> {
        let mut fences = self.by_fence.iter();
        let (fence, _) = fences.find(|(_, index)| self.tools[**index].name == name)?;
        Some(fence)
    }

    /// Checks whether a name or an alias starts with `prefix`.
    pub(super) fn has_name_with_prefix(&self, prefix: &str) -> bool {
        // The map is sorted, so the first name that isn't less than `prefix` decides.
        let not_less = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        let first_name = self.by_name.range::<str, _>(not_less).next();
        first_name.is_some_and(|(name, _)| name.starts_with(prefix))
    }
}

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

    pub(super) fn bare_argument(&self) -> Option<&str> {
        self.bare_argument.as_deref()
    }

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

    /// Returns the value of an argument that was written as text. The text is parsed as JSON if the
    /// schema allows no string, or if the schema has no type and the text looks like JSON.
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

#[derive(Default)]
struct Claims<'a>(BTreeMap<&'a str, Claimants>);

#[derive(Default)]
struct Claimants {
    built_in: Vec<usize>,
    third_party: Vec<usize>,
}

impl<'a> Claims<'a> {
    /// Records that a tool wants a name.
    fn claim(&mut self, name: &'a str, index: usize, definition: &Definition) {
        let claimants = self.0.entry(name).or_default();
        // Built-in tools have no `__` in their names.
        let is_third_party = definition.name.contains("__");
        if is_third_party {
            claimants.third_party.push(index);
        } else {
            claimants.built_in.push(index);
        }
    }

    /// Returns each claimed name that one tool gets, with the tool's index: the only built-in tool
    /// or, without a built-in tool, the only third-party tool.
    fn settled(&self) -> impl Iterator<Item = (&'a str, usize)> {
        self.0.iter().filter_map(|(name, claimants)| {
            match (claimants.built_in.as_slice(), claimants.third_party.as_slice()) {
                ([index], _) | ([], [index]) => Some((*name, *index)),
                _ => None,
            }
        })
    }
}
