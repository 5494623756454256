//! Chooses the tools to offer if there are too many tools. The model finds and calls the remaining
//! tools with `find_tools` and `call_tool`.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use toolhold_core::config::ToolFilter;
use toolhold_core::text::{cut, neutral, neutral_line};
use toolhold_core::{Definition, HostError, OfferedTool};

use crate::environment::AgentEnvironment;
use crate::selection::{
    IncludedTool, Selection, SelectionRules, ToolIndex, embedded_text, select, tokens_of,
};
use crate::settings::AgentSettings;
use crate::vectors::Embedder;

pub(crate) const FIND_TOOLS: &str = "find_tools";

pub(crate) const CALL_TOOL: &str = "call_tool";

/// Most tools in one answer of `find_tools`.
const MAX_FOUND: usize = 5;

/// The number of ranked tools that `find_tools` considers. These are more than [`MAX_FOUND`],
/// because the model may already have many of them.
const MAX_RANKED: usize = 4 * MAX_FOUND;

const MAX_ANSWER_BYTES: usize = 24 * 1024;

/// Most bytes of a tool's description and schema in the answer of `find_tools`.
const MAX_DESCRIPTION: usize = 2 * 1024;
const MAX_SCHEMA: usize = 8 * 1024;

const MAX_QUERY: usize = 2 * 1024;

pub(crate) static FIND_DEFINITION: LazyLock<Arc<Definition>> = LazyLock::new(|| {
    Arc::new(Definition::new(
        FIND_TOOLS,
        "Finds tools that aren't in your list, by what they do. Your list has only some of all tools: search before you say that something can't be done.",
        json!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What the tool should do, in a few words" }
            },
            "required": ["query"],
            "additionalProperties": false
        }),
    ))
});

pub(crate) static CALL_DEFINITION: LazyLock<Arc<Definition>> = LazyLock::new(|| {
    Arc::new(Definition::new(
        CALL_TOOL,
        "Calls a tool that `find_tools` found. The same rules apply as to any call.",
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The tool's whole name" },
                "arguments": { "type": "object", "description": "The arguments, in the form of the tool's schema" }
            },
            "required": ["name", "arguments"],
            "additionalProperties": false
        }),
    ))
});

#[derive(Default)]
pub(crate) struct Choice {
    /// The chosen tools, or `None` if all tools are offered.
    pub(crate) tools: Option<Vec<IncludedTool>>,
    pub(crate) notices: Vec<String>,
}

/// Chooses tools for a task if the filter is enabled, or if all tools take too much of the context.
/// Offers all tools if there is no reason to choose.
pub(crate) async fn choose(
    environment: &AgentEnvironment,
    offered: &[OfferedTool],
    task: &str,
    settings: &AgentSettings,
) -> Choice {
    let filter = &settings.tool_filter;
    let max_tokens = max_tool_tokens(filter, settings.context_tokens);
    let all_tokens: u64 = offered.iter().map(|tool| tokens_of(&tool.definition)).sum();
    if !filter.enabled && all_tokens <= max_tokens {
        return Choice::default();
    }
    let mut notices = Vec::new();
    let embedder = environment.models.embedder.as_ref();
    let (index, vector) =
        with_vectors(embedder, word_index(offered), offered, task, &mut notices).await;
    // With a selection, the model also gets `find_tools` and `call_tool`, which use up some of the
    // limit.
    let finding_tokens = tokens_of(&FIND_DEFINITION) + tokens_of(&CALL_DEFINITION);
    let rules = selection_rules(filter, max_tokens.saturating_sub(finding_tokens));
    let selection = select(&index, task, vector.as_deref(), &rules);
    if selection.excluded.is_empty() {
        return Choice { tools: None, notices };
    }
    if !filter.enabled {
        notices.push(selection_notice(&selection, all_tokens, settings.context_tokens));
    }
    Choice { tools: Some(selection.included), notices }
}

/// Returns the notice that the model gets a selection although the filter is off.
fn selection_notice(selection: &Selection, all_tokens: u64, context_tokens: u64) -> String {
    let included = selection.included.len();
    let all = included + selection.excluded.len();
    format!(
        "the model gets the {included} of {all} tools that fit the task, because all tools would \
         take about {all_tokens} of the {context_tokens} tokens of its context. The model finds \
         other tools with `{FIND_TOOLS}`. `budget_percent` in [agent.tool_filter] sets the limit"
    )
}

/// Returns the lines of `/status` about the filter and the chosen tools. Returns no lines if the
/// filter is off and all tools are offered.
pub(crate) fn status(settings: &AgentSettings, chosen: Option<&[IncludedTool]>) -> Vec<String> {
    let filter = &settings.tool_filter;
    let mut lines = Vec::new();
    if filter.enabled {
        let embeddings = if filter.embeddings.is_empty() { "off" } else { &*filter.embeddings };
        lines.push(format!(
            "Filter: top_k={}, always_on={}, embeddings={embeddings}",
            filter.top_k.get(),
            filter.always_on.join(", "),
        ));
    }
    for tool in chosen.unwrap_or_default() {
        lines.push(format!("  {}: {}", tool.name, tool.reason.as_str()));
    }
    lines
}

/// Selects tools for a task, even if the filter is off. Also returns notices for the person.
pub(crate) async fn choose_enabled(
    embedder: Option<&Embedder>,
    offered: &[OfferedTool],
    task: &str,
    filter: &ToolFilter,
    context_tokens: u64,
) -> (Selection, Vec<String>) {
    let filter = ToolFilter { enabled: true, ..filter.clone() };
    let mut notices = Vec::new();
    let (index, vector) =
        with_vectors(embedder, word_index(offered), offered, task, &mut notices).await;
    let rules = selection_rules(&filter, max_tool_tokens(&filter, context_tokens));
    (select(&index, task, vector.as_deref(), &rules), notices)
}

fn max_tool_tokens(filter: &ToolFilter, context_tokens: u64) -> u64 {
    context_tokens.saturating_mul(filter.budget_percent.get()) / 100
}

/// Returns the rules of a selection. All selected tools together have at most `max_tokens` tokens.
fn selection_rules(filter: &ToolFilter, max_tokens: u64) -> SelectionRules {
    SelectionRules {
        // 0 means that only `max_tokens` limits the selection.
        top_k: if filter.enabled { to_usize(filter.top_k.get()) } else { 0 },
        min_description_words: to_usize(filter.min_description_words.get()),
        always_on: filter.always_on.clone(),
        max_tokens,
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn word_index(offered: &[OfferedTool]) -> ToolIndex {
    let index = ToolIndex::new(offered.iter().map(|tool| &*tool.definition));
    index.with_boosts(offered.iter().map(|tool| tool.boost))
}

/// Adds vectors to an index, and returns the index with the vector of `text`. If there is no
/// embedder or the embedder fails, the index stays unchanged and compares only words.
async fn with_vectors(
    embedder: Option<&Embedder>,
    index: ToolIndex,
    offered: &[OfferedTool],
    text: &str,
    notices: &mut Vec<String>,
) -> (ToolIndex, Option<Vec<f32>>) {
    let Some(embedder) = embedder else { return (index, None) };
    let texts = offered.iter().map(|tool| embedded_text(&tool.definition)).collect();
    match embedder.vectors(texts, cut(text, MAX_QUERY)).await {
        Ok((tool_vectors, text_vector)) => {
            (index.with_vectors(tool_vectors.into_iter().map(Some)), Some(text_vector))
        }
        Err(why) => {
            notices.push(format!(
                "tools are chosen only by words, because {} made no vectors: {why}. `embeddings` \
                 in [agent.tool_filter] sets the embedding model",
                embedder.name()
            ));
            (index, None)
        }
    }
}

pub(crate) fn keep_chosen(
    mut tools: Vec<Arc<Definition>>,
    chosen: &[IncludedTool],
) -> Vec<Arc<Definition>> {
    tools.retain(|tool| chosen.iter().any(|included| included.name == tool.name));
    tools
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("`query` is missing: describe in a few words what the tool should do")]
    NoQuery,
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Answers a call of `find_tools`. Also returns notices for the person. The model already has the
/// tools in `current`.
pub(crate) async fn find(
    environment: &AgentEnvironment,
    current: &[Arc<Definition>],
    is_native: bool,
    arguments: &Value,
) -> (Result<String, FindError>, Vec<String>) {
    let mut notices = Vec::new();
    let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default().trim();
    if query.is_empty() {
        return (Err(FindError::NoQuery), notices);
    }
    let query = cut(query, MAX_QUERY);
    let offered = match environment.offered() {
        Ok(offered) => offered,
        Err(error) => return (Err(error.into()), notices),
    };

    let embedder = environment.models.embedder.as_ref();
    let (index, vector) =
        with_vectors(embedder, word_index(&offered), &offered, query, &mut notices).await;
    let ranked = index.ranked(query, vector.as_deref());
    let mut known: Vec<&Definition> = Vec::new();
    let mut others: Vec<&Definition> = Vec::new();
    for position in ranked.into_iter().take(MAX_RANKED) {
        let tool = &*offered[position].definition;
        if current.iter().any(|current_tool| current_tool.name == tool.name) {
            known.push(tool);
        } else {
            others.push(tool);
        }
    }
    (Ok(found_text(&known, &others, is_native)), notices)
}

/// Writes the result of `find_tools`. Of the found tools, the model already has those in `known`.
fn found_text(known: &[&Definition], others: &[&Definition], is_native: bool) -> String {
    let mut text = String::new();
    if others.is_empty() {
        text.push_str("No other tool fits. Try other words, or use the tools of your list.");
    } else if is_native {
        text.push_str(
            "Call one of these tools with `call_tool`, by its whole name and with its arguments.",
        );
    } else {
        // Don't write `tool_call` here. Otherwise, a later call of the model could look like a copy
        // of this text.
        text.push_str("Call one of these tools like the tools of your list.");
    }
    for tool in others.iter().take(MAX_FOUND) {
        let description = describe(tool);
        if text.len() + description.len() > MAX_ANSWER_BYTES {
            break;
        }
        text.push_str(&description);
    }
    let names: Vec<&str> = known.iter().take(MAX_FOUND).map(|tool| &*tool.name).collect();
    if !names.is_empty() {
        let _ = write!(text, "\n\nThese tools of your list fit best: {}.", names.join(", "));
    }
    text
}

/// Describes a found tool for the model. A schema that is too long is replaced by the names of its
/// properties.
fn describe(tool: &Definition) -> String {
    let schema = tool.input_schema.to_string();
    let description = tool.description.trim();
    let shown = neutral(cut(description, MAX_DESCRIPTION));
    let more = if description.len() > MAX_DESCRIPTION { " […]" } else { "" };
    let schema = if schema.len() <= MAX_SCHEMA {
        neutral(&schema).into_owned()
    } else {
        let mut names: Vec<&str> = Vec::new();
        if let Some(Value::Object(properties)) = tool.input_schema.get("properties") {
            names.extend(properties.keys().map(String::as_str));
        }
        let names = neutral_line(cut(&names.join(", "), MAX_DESCRIPTION));
        format!("an object with some of: {names} (the schema is too long)")
    };
    format!("\n\n## {}\n{shown}{more}\narguments: {schema}", tool.name)
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum WrappedCallError {
    #[error("`name` is missing: the whole name of a tool")]
    NoName,
    #[error("`{0}` can't be called by `{CALL_TOOL}`: call `{0}` directly")]
    OwnTool(String),
    #[error("`arguments` is a string, not an object")]
    Text,
    #[error("`arguments` isn't an object")]
    NotAnObject,
}

/// Returns the name and the arguments of the call inside a call of `call_tool`.
pub(crate) fn inner_call(arguments: &Value) -> Result<(String, Value), WrappedCallError> {
    let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(WrappedCallError::NoName);
    }
    if [FIND_TOOLS, CALL_TOOL, crate::context::COMPRESS_TOOL].contains(&name) {
        return Err(WrappedCallError::OwnTool(name.to_owned()));
    }
    let inner = match arguments.get("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(value @ Value::Object(_)) => value.clone(),
        // Some models write the object as a string.
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => value,
            _ => return Err(WrappedCallError::Text),
        },
        Some(_) => return Err(WrappedCallError::NotAnObject),
    };
    Ok((name.to_owned(), inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_tool_is_the_call_of_the_tool_in_it() {
        let call = json!({ "name": "a__b", "arguments": { "x": 1 } });
        assert_eq!(inner_call(&call), Ok(("a__b".to_owned(), json!({ "x": 1 }))));
        assert_eq!(inner_call(&json!({ "name": "a" })), Ok(("a".to_owned(), json!({}))));
        let text = json!({ "name": "a", "arguments": "{\"x\": 1}" });
        assert_eq!(inner_call(&text), Ok(("a".to_owned(), json!({ "x": 1 }))));
    }

    #[test]
    fn call_tool_reaches_no_tool_of_the_loop() {
        for name in [FIND_TOOLS, CALL_TOOL, "compress_context"] {
            let error = inner_call(&json!({ "name": name, "arguments": {} })).unwrap_err();
            assert!(error.to_string().contains("directly"), "{error}");
        }
        for call in [
            json!({}),
            json!({ "name": 1 }),
            json!({ "name": "a", "arguments": [1] }),
            json!({ "name": "a", "arguments": "rm" }),
        ] {
            inner_call(&call).unwrap_err();
        }
    }

    #[test]
    fn description_of_a_found_tool_is_bounded_and_neutral() {
        let long = format!("\u{1b}[2J\u{202e}{}", "é".repeat(500_000));
        let mut tool = Definition::new("evil__t", long, json!({ "type": "object" }));
        let text = describe(&tool);
        assert!(text.len() < 3 * MAX_DESCRIPTION, "{}", text.len());
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
        tool.input_schema =
            json!({ "properties": { "one": { "description": "x".repeat(10_000) } } });
        assert!(describe(&tool).contains("an object with some of: one"));
    }
}
