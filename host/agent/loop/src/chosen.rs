//! Chooses the tools to offer to a model if there are too many tools. The model finds and calls the
//! other tools with `find_tools` and `call_tool`.

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

/// The tool with which a model finds tools that it wasn't offered.
pub(crate) const FIND_TOOLS: &str = "find_tools";

/// The tool with which a model natively calls tools that it wasn't offered.
pub(crate) const CALL_TOOL: &str = "call_tool";

/// Tools that are found at once.
const MAX_FOUND: usize = 5;

/// The most bytes of the answer of `find_tools`.
const MAX_BYTES: usize = 24 * 1024;

/// Bytes of a description, and of a schema.
const MAX_DESCRIPTION: usize = 2 * 1024;
const MAX_SCHEMA: usize = 8 * 1024;

/// Bytes of a query.
const MAX_QUERY: usize = 2 * 1024;

/// The definition of `find_tools`.
pub(crate) static FIND: LazyLock<Arc<Definition>> = LazyLock::new(|| {
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

/// The definition of `call_tool`.
pub(crate) static CALL: LazyLock<Arc<Definition>> = LazyLock::new(|| {
    Arc::new(Definition::new(
        CALL_TOOL,
        "Calls a tool that `find_tools` found. It passes the same rules as any call.",
        json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The tool's whole name" },
                "arguments": { "type": "object", "description": "Its arguments, as its schema has them" }
            },
            "required": ["name", "arguments"],
            "additionalProperties": false
        }),
    ))
});

/// The tools that are offered at the start of a session.
#[derive(Default)]
pub(crate) struct Choice {
    /// The chosen tools. `None`: all tools are offered.
    pub(crate) tools: Option<Vec<IncludedTool>>,
    /// Notices for the person.
    pub(crate) notices: Vec<String>,
}

/// Chooses tools for a task if the filter is enabled, or if all tools take too much of the context.
pub(crate) async fn choose(
    environment: &AgentEnvironment,
    offered: &[OfferedTool],
    task: &str,
    settings: &AgentSettings,
) -> Choice {
    let filter = &settings.tool_filter;
    let room = room(filter, settings.context_tokens);
    let all: u64 = offered.iter().map(|tool| tokens_of(&tool.definition)).sum();
    if !filter.enabled && all <= room {
        return Choice::default();
    }
    let mut notices = Vec::new();
    let embedder = environment.models.embedder.as_ref();
    let (index, vector) = with_vectors(embedder, index(offered), offered, task, &mut notices).await;
    let room_for_others = room.saturating_sub(tokens_of(&FIND) + tokens_of(&CALL));
    let selection = select(&index, task, vector.as_deref(), &rules(filter, room_for_others));
    if selection.excluded.is_empty() {
        return Choice { tools: None, notices };
    }
    if !filter.enabled {
        let Selection { included, excluded, .. } = &selection;
        notices.push(format!(
            "{} of {} tools are offered, those that fit the task: all tools would take about {all} of the {} tokens that the model reads. The model finds the others with `{FIND_TOOLS}`. `budget_percent` in [agent.tool_filter] is the limit",
            included.len(),
            included.len() + excluded.len(),
            settings.context_tokens,
        ));
    }
    Choice { tools: Some(selection.included), notices }
}

/// Returns the lines of `/status` about the filter. There are no lines if the filter is off and all
/// tools are offered.
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

/// Returns the filter's choice for a task, as if the filter were enabled, and the notices for the
/// person.
pub(crate) async fn choose_enabled(
    embedder: Option<&Embedder>,
    offered: &[OfferedTool],
    task: &str,
    filter: &ToolFilter,
    context_tokens: u64,
) -> (Selection, Vec<String>) {
    let filter = ToolFilter { enabled: true, ..filter.clone() };
    let mut notices = Vec::new();
    let (index, vector) = with_vectors(embedder, index(offered), offered, task, &mut notices).await;
    let rules = rules(&filter, room(&filter, context_tokens));
    (select(&index, task, vector.as_deref(), &rules), notices)
}

/// Returns the maximum number of tokens that the tools may take.
fn room(filter: &ToolFilter, context_tokens: u64) -> u64 {
    context_tokens.saturating_mul(filter.budget_percent.get()) / 100
}

/// Returns the rules of a choice within `room` tokens.
fn rules(filter: &ToolFilter, room: u64) -> SelectionRules {
    SelectionRules {
        top_k: if filter.enabled { to_usize(filter.top_k.get()) } else { 0 },
        min_description_words: to_usize(filter.min_description_words.get()),
        always_on: filter.always_on.clone(),
        max_tokens: room,
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn index(offered: &[OfferedTool]) -> ToolIndex {
    let index = ToolIndex::new(offered.iter().map(|tool| &*tool.definition));
    index.with_boosts(offered.iter().map(|tool| tool.boost))
}

/// Adds the vectors of the tools to an index, and returns the vector of a text. Without a model
/// that makes vectors, or if the model fails, tools are chosen by words alone.
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
        Ok((vectors, own)) => (index.with_vectors(vectors.into_iter().map(Some)), Some(own)),
        Err(why) => {
            notices.push(format!(
                "tools are chosen by words alone: {} made no vectors: {why}. The model is set by `embeddings` in [agent.tool_filter]",
                embedder.name()
            ));
            (index, None)
        }
    }
}

/// Returns the chosen tools among all tools that are offered now.
pub(crate) fn keep_chosen(
    mut tools: Vec<Arc<Definition>>,
    chosen: &[IncludedTool],
) -> Vec<Arc<Definition>> {
    tools.retain(|tool| chosen.iter().any(|included| included.name == tool.name));
    tools
}

/// The obstacle to finding tools, for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error("query is missing: say in a few words what the tool should do")]
    NoQuery,
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Answers a call of `find_tools`, and returns notices for the person. `own`: the tools that the
/// model has.
pub(crate) async fn find(
    environment: &AgentEnvironment,
    own: &[Arc<Definition>],
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
        with_vectors(embedder, index(&offered), &offered, query, &mut notices).await;
    let ranked = index.ranked(query, vector.as_deref());
    let best = ranked.into_iter().take(4 * MAX_FOUND).map(|at| &*offered[at].definition);
    let (known, others): (Vec<&Definition>, Vec<&Definition>) =
        best.partition(|tool| own.iter().any(|known| known.name == tool.name));
    (Ok(found_text(&known, &others, is_native)), notices)
}

/// Describes the tools that were found. `known`: the tools that the model has.
fn found_text(known: &[&Definition], others: &[&Definition], is_native: bool) -> String {
    let mut text = String::new();
    if others.is_empty() {
        text.push_str("No other tool fits. Try other words, or do it with the tools of your list.");
    } else if is_native {
        text.push_str("Call one of these with `call_tool`, with its whole name and its arguments.");
    } else {
        // No word here marks a call. Otherwise the next call would be an echo of this text.
        text.push_str("Call one of these like the tools of your list.");
    }
    for tool in others.iter().take(MAX_FOUND) {
        let description = describe(tool);
        if text.len() + description.len() > MAX_BYTES {
            break;
        }
        text.push_str(&description);
    }
    let names: Vec<&str> = known.iter().take(MAX_FOUND).map(|tool| &*tool.name).collect();
    if !names.is_empty() {
        let _ = write!(text, "\n\nOf your list, these fit best: {}.", names.join(", "));
    }
    text
}

fn describe(tool: &Definition) -> String {
    let schema = tool.input_schema.to_string();
    let description = tool.description.trim();
    let shown = neutral(cut(description, MAX_DESCRIPTION));
    let more = if description.len() > MAX_DESCRIPTION { " […]" } else { "" };
    let schema = if schema.len() <= MAX_SCHEMA {
        neutral(&schema).into_owned()
    } else {
        let properties = tool.input_schema.get("properties").and_then(Value::as_object);
        let all: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| &**name).collect();
        let names = neutral_line(cut(&all.join(", "), MAX_DESCRIPTION));
        format!("an object with some of: {names} (the schema is too long)")
    };
    format!("\n\n## {}\n{shown}{more}\narguments: {schema}", tool.name)
}

/// A fault of a call of `call_tool`.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum WrappedCallError {
    #[error("`name` is missing: the whole name of a tool")]
    NoName,
    #[error("`{0}` can't be called by `{CALL_TOOL}`: call it itself")]
    OwnTool(String),
    #[error("`arguments` is a string, not an object")]
    Text,
    #[error("`arguments` isn't an object")]
    NotAnObject,
}

/// Returns the name and the arguments of the call in a call of `call_tool`.
pub(crate) fn unwrapped(arguments: &Value) -> Result<(String, Value), WrappedCallError> {
    let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(WrappedCallError::NoName);
    }
    if [FIND_TOOLS, CALL_TOOL, crate::context::COMPRESS].contains(&name) {
        return Err(WrappedCallError::OwnTool(name.to_owned()));
    }
    let inner = match arguments.get("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(value @ Value::Object(_)) => value.clone(),
        // Some models write an object as a text.
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
        assert_eq!(unwrapped(&call), Ok(("a__b".to_owned(), json!({ "x": 1 }))));
        assert_eq!(unwrapped(&json!({ "name": "a" })), Ok(("a".to_owned(), json!({}))));
        let text = json!({ "name": "a", "arguments": "{\"x\": 1}" });
        assert_eq!(unwrapped(&text), Ok(("a".to_owned(), json!({ "x": 1 }))));
    }

    #[test]
    fn call_tool_reaches_no_tool_of_the_loop() {
        for name in [FIND_TOOLS, CALL_TOOL, "compress_context"] {
            let error = unwrapped(&json!({ "name": name, "arguments": {} })).unwrap_err();
            assert!(error.to_string().contains("call it itself"), "{error}");
        }
        for call in [
            json!({}),
            json!({ "name": 1 }),
            json!({ "name": "a", "arguments": [1] }),
            json!({ "name": "a", "arguments": "rm" }),
        ] {
            unwrapped(&call).unwrap_err();
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
