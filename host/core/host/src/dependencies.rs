//! Denies calls of tools that are blocked by their dependencies, and lists the tools for a session.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use toolhold_catalogue::{CallContext, Catalogue};
use toolhold_contract::{Category, Definition, Failure, HostError, Outcome};
use toolhold_policy::{Decision, Dependencies, Gate, Verdict};

use crate::governor::Rules;
use crate::session::Session;

const REMEDY: &str = "`toolhold doctor` shows the fix. Earlier calls matter only if \
                    [tools.dependencies] is enabled.";

/// A tool that is offered to a session.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    /// The tool.
    pub definition: Arc<Definition>,
    /// How much `[tools.dependencies]` raises the tool's rank after calls of preferred tools, from
    /// 0 to 1.
    pub boost: f64,
}

/// Lists the enabled tools. Omits unlisted tools, and tools that the rules always deny.
pub(crate) fn listed(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let mut tools = reachable(rules, catalogue);
    tools.retain(|tool| !tool.unlisted);
    tools
}

/// Lists the enabled tools, including unlisted tools. Omits tools that the rules always deny.
pub(crate) fn reachable(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let mut tools = Vec::new();
    for tool in catalogue.tools() {
        let switched_off = rules.switches.refusal(tool.provider.name(), &tool.definition.name);
        if switched_off.is_none() && !rules.always_deny(tool) {
            tools.push(Arc::clone(&tool.definition));
        }
    }
    tools
}

/// Returns the denial if a tool is blocked by its dependencies, or else `None`.
///
/// # Errors
///
/// [`HostError::Io`] if the session can't be read.
pub(crate) fn check(
    rules: &Rules,
    catalogue: &Catalogue,
    context: &CallContext,
    session: &Session,
) -> Result<Option<Decision>, HostError> {
    let (Some(dependencies), Some(tool)) = (&rules.dependencies, &context.tool) else {
        return Ok(None);
    };
    let tool_name = &tool.definition.name;
    let has_dependencies = dependencies.concern(tool_name);
    if !has_dependencies {
        return Ok(None);
    }
    session.read(|state| {
        let denial = dependencies.decide(tool_name, &state.completed).err()?;
        // If every tool waits for another tool, no dependency applies.
        if is_deadlocked(dependencies, rules, catalogue, &state.completed) {
            return None;
        }
        Some(denial)
    })
}

/// Creates the failure of a call whose session can't be read.
pub(crate) fn unreadable_failure(error: &HostError) -> Failure {
    let message =
        format!("The call was not run, because reading the earlier calls failed: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host").with_suggestion(REMEDY)
}

/// Creates the denial of a call whose session can't be read.
pub(crate) fn unreadable_decision(error: &HostError) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Dependencies,
        rule: Cow::Borrowed("calls are denied while the state of dependencies is unreadable"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Owned(format!("{error}. {REMEDY}")),
    }
}

/// Checks whether every tool is blocked, and logs a warning in this case.
fn is_deadlocked(
    dependencies: &Dependencies,
    rules: &Rules,
    catalogue: &Catalogue,
    completed: &BTreeSet<String>,
) -> bool {
    let tools = listed(rules, catalogue);
    let deadlocked = dependencies.deadlocked(tools.iter().map(|tool| &*tool.name), completed);
    if deadlocked {
        tracing::warn!("[tools.dependencies] is ignored: every tool would wait for another tool");
    }
    deadlocked
}

/// Stores the success of a call, if another tool depends on the call's tool.
pub(crate) fn record_completion(
    rules: &Rules,
    context: &CallContext,
    session: &Session,
    outcome: &Outcome,
) {
    if outcome.is_err() {
        return;
    }
    let (Some(dependencies), Some(tool)) = (&rules.dependencies, &context.tool) else { return };
    let tool_name = &tool.definition.name;
    if !dependencies.is_awaited(tool_name) {
        return;
    }
    let stored = session.read(|state| state.completed.contains(tool_name));
    if let Ok(true) = stored {
        return;
    }
    if let Err(error) = session.change(|state| state.completed.insert(tool_name.clone())) {
        tracing::warn!("storing the success of `{tool_name}` failed: {error}");
    }
}
