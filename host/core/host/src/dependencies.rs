//! Denies calls of tools that are blocked by their dependencies, and lists the tools that a session
//! is offered.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use toolhold_catalogue::{CallContext, Catalogue};
use toolhold_contract::{Category, Definition, Failure, HostError, Outcome};
use toolhold_policy::{Decision, Dependencies, Gate, Verdict};

use crate::governor::Rules;
use crate::session::Session;

/// The remedy for a session that can't be read.
const MEND: &str = "`toolhold doctor` says how to fix it. Earlier calls matter only if [tools.dependencies] is enabled.";

/// A tool that is offered to a session.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    /// The tool.
    pub definition: Arc<Definition>,
    /// The increase of the tool's rank by `[tools.dependencies]`, from 0 to 1, because tools that
    /// it prefers have succeeded.
    pub boost: f64,
}

/// Lists the tools that are enabled and that the rules don't deny altogether, without the tools
/// that are never listed.
pub(crate) fn listed(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let mut tools = reachable(rules, catalogue);
    tools.retain(|tool| !tool.unlisted);
    tools
}

/// Lists the tools like [`listed`], with the tools that are never listed.
pub(crate) fn reachable(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let mut tools = Vec::new();
    for tool in catalogue.tools() {
        let switched_off = rules.switches.refusal(tool.provider.name(), &tool.definition.name);
        if switched_off.is_none() && !rules.hide(tool) {
            tools.push(Arc::clone(&tool.definition));
        }
    }
    tools
}

/// Returns the denial of a call if its tool is blocked by its dependencies. Returns `None` if it
/// isn't blocked.
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
    let tool = &tool.definition.name;
    if !dependencies.concern(tool) {
        return Ok(None);
    }
    session.look(|state| {
        let refusal = dependencies.decide(tool, &state.completed).err()?;
        if is_deadlocked(dependencies, rules, catalogue, &state.completed) {
            return None;
        }
        Some(refusal)
    })
}

/// Creates the failure of a call whose dependency state can't be read. This check fails closed.
pub(crate) fn unknown(error: &HostError) -> Failure {
    let message = format!("The call was not run, since the earlier calls are unknown: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host").with_suggestion(MEND)
}

/// Creates the decision on a call whose dependency state can't be read.
pub(crate) fn unknown_decision(error: &HostError) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Dependencies,
        rule: Cow::Borrowed("fails closed: dependency state is unreadable"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Owned(format!("{error}. {MEND}")),
    }
}

/// Checks whether every tool would wait for another tool, and warns about that.
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

/// Stores that a tool has succeeded, if another tool depends on it.
pub(crate) fn record_completion(
    rules: &Rules,
    context: &CallContext,
    session: &Session,
    outcome: &Outcome,
) {
    let (Some(dependencies), Some(tool), Ok(_)) = (&rules.dependencies, &context.tool, outcome)
    else {
        return;
    };
    let tool = &tool.definition.name;
    if !dependencies.is_awaited(tool) {
        return;
    }
    let is_recorded = session.look(|state| state.completed.contains(tool)).unwrap_or(false);
    if is_recorded {
        return;
    }
    if let Err(error) = session.change(|state| state.completed.insert(tool.clone())) {
        tracing::warn!("storing the success of `{tool}` failed: {error}");
    }
}
