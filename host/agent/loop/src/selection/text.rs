//! The texts by which a tool is ranked, with length limits.

use serde_json::Value;
use toolhold_contract::Definition;
use toolhold_contract::text::cut;

/// The most bytes of a description that are ranked.
const MAX_DESCRIPTION: usize = 4 * 1024;

/// The most bytes of a parameter's description that are ranked.
const MAX_PARAMETER: usize = 300;

/// Further parameters of a tool are ignored.
const MAX_PARAMETERS: usize = 40;

/// Longer texts are cut.
const MAX_EMBEDDED: usize = 2 * 1024;

pub(crate) struct ToolTexts<'a> {
    pub(crate) server: &'a str,
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> ToolTexts<'a> {
    pub(crate) fn new(tool: &'a Definition) -> Self {
        let (server, name) = split(&tool.name);
        let mut parameters = Vec::new();
        if let Some(Value::Object(properties)) = tool.input_schema.get("properties") {
            for (parameter, schema) in properties.iter().take(MAX_PARAMETERS) {
                parameters.push((parameter.as_str(), description(schema)));
            }
        }
        Self {
            server,
            name,
            title: tool.title.as_deref().map_or("", |title| cut(title, MAX_PARAMETER)),
            description: cut(&tool.description, MAX_DESCRIPTION),
            parameters,
        }
    }
}

fn description(parameter: &Value) -> &str {
    let text = parameter.get("description").and_then(Value::as_str).unwrap_or_default();
    cut(text, MAX_PARAMETER)
}

/// Splits a full name into the server or plugin and the tool's own name. Built-in tools have no
/// server.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once("__").unwrap_or(("", name))
}

/// Returns the text for a tool's vector: the server, name and description, in at most 2 KiB.
pub fn embedded_text(tool: &Definition) -> String {
    let texts = ToolTexts::new(tool);
    let server = texts.server.replace(['_', '-'], " ");
    let name = texts.name.replace(['_', '-'], " ");
    let text = format!("{server} {name}: {}", texts.description.trim());
    cut(&text, MAX_EMBEDDED).trim().to_owned()
}

/// Checks whether a text in lower case contains the full name or the own name of a tool. An own
/// name of a single word must be in backticks.
pub(crate) fn is_named(text: &str, tool: &str) -> bool {
    let tool = tool.to_ascii_lowercase();
    let (server, short_name) = split(&tool);
    if has_word(text, &tool) {
        return true;
    }
    if server.is_empty() {
        return false;
    }
    let is_single_word = !short_name.contains(['_', '-']);
    if is_single_word {
        text.contains(&format!("`{short_name}`"))
    } else {
        has_word(text, short_name)
    }
}

/// Checks whether a text contains a whole word, without a letter, digit, `_` or `-` next to it. The
/// text and the word must be in lower case.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return false;
    }
    text.match_indices(word).any(|(at, _)| {
        let before = &text[..at];
        let after = &text[at + word.len()..];
        !before.ends_with(is_word_char) && !after.starts_with(is_word_char)
    })
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// Checks whether a text names a tool. The case of letters doesn't matter.
pub fn names_tool(text: &str, tool: &str) -> bool {
    is_named(&text.to_ascii_lowercase(), tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_named_as_a_word() {
        for (text, tool, named) in [
            ("call github__create_issue now", "github__create_issue", true),
            ("call Create_Issue now", "github__create_issue", true),
            ("recreate_issues", "github__create_issue", false),
            ("search the web", "web__search", false),
            ("call `search`", "web__search", true),
            ("use web__search", "web__search", true),
            ("read a file", "read", true),
            ("reading a file", "read", false),
            ("use bash-like quoting", "bash", false),
            ("", "read", false),
            ("é read é", "read", true),
        ] {
            assert_eq!(names_tool(text, tool), named, "{text} {tool}");
        }
    }
}
