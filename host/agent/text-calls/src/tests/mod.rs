//! Which texts are calls.

mod bounds;
mod forms;
mod fuzz;
mod injection;
mod lenient;
mod streaming;

use serde_json::json;

use super::*;
use crate::testing::definitions;

fn offered() -> OfferedTools {
    OfferedTools::new(&definitions())
}

fn found(text: &str) -> FoundCalls {
    find(text, &offered(), &FindOptions::default())
}

fn earlier_texts(texts: &[&str]) -> EarlierTexts {
    let mut earlier = EarlierTexts::default();
    texts.iter().for_each(|text| earlier.add(text));
    earlier
}

/// The calls in short: `name {"arguments"}`, one a line; a name that isn't offered has a `?`.
fn calls(text: &str) -> Vec<String> {
    let found = found(text);
    found
        .calls
        .iter()
        .map(|call| {
            let mark = if call.is_offered { "" } else { "?" };
            format!("{}{mark} {}", call.name, call.arguments)
        })
        .collect()
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(calls(text), expected, "{text}\n{:?}", found(text).rejected);
}

/// Checks that a text has no call, and why: a part of the reason, or nothing if it is prose.
#[track_caller]
fn check_rejected(text: &str, why: &str) {
    let found = found(text);
    assert_eq!(found.calls, [], "{text}");
    let reasons: Vec<_> = found.rejected.iter().map(|rejected| rejected.why.as_str()).collect();
    match why {
        "" => assert!(reasons.is_empty(), "{text}: {reasons:?}"),
        why => {
            assert!(
                !reasons.is_empty() && reasons.iter().all(|reason| reason.contains(why)),
                "{text}: {reasons:?}"
            );
        }
    }
    assert_eq!(found.text_without_calls, text, "refused text stays");
}

/// A tool of somebody else.
fn other(name: &str, fence: Option<&str>, aliases: &[&str]) -> toolhold_core::Definition {
    let mut definition = toolhold_core::Definition::new(
        name,
        "a tool of somebody else",
        json!({ "type": "object", "properties": { "text": { "type": "string" } } }),
    );
    definition.fence = fence.map(str::to_owned);
    definition.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    definition.arguments =
        vec![toolhold_core::ToolArgument::with_role("text", toolhold_core::Role::Text)];
    definition
}
