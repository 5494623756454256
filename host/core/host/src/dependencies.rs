//! Refuses tools that are blocked by their dependencies, and lists the tools that a session is
//! offered.

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
    /// The boost of its rank from `[tools.dependencies]`, from 0 to 1: tools that it prefers have
    /// succeeded.
    pub boost: f64,
}

/// The tools that are enabled and that the rules don't deny altogether, as far as they are listed.
pub(crate) fn listed(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let mut tools = reachable(rules, catalogue);
    tools.retain(|tool| !tool.unlisted);
    tools
}

/// The same with those that are never listed.
pub(crate) fn reachable(rules: &Rules, catalogue: &Catalogue) -> Vec<Arc<Definition>> {
    let on = catalogue
        .tools()
        .iter()
        .filter(|tool| rules.switches.refusal(tool.provider.name()).is_none() && !rules.hide(tool));
    on.map(|tool| Arc::clone(&tool.definition)).collect()
}

/// The refusal of a call whose tool is blocked by its dependencies.
///
/// # Errors
///
/// [`HostError::Io`]: the session can't be read.
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
        (!is_deadlocked(dependencies, rules, catalogue, &state.completed)).then_some(refusal)
    })
}

/// The failure of a call whose dependency state is unreadable: it fails closed.
pub(crate) fn unknown(error: &HostError) -> Failure {
    let message = format!("The call was not run, since the earlier calls are unknown: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host").with_suggestion(MEND)
}

/// The same as a decision.
pub(crate) fn unknown_decision(error: &HostError) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Dependencies,
        rule: Cow::Borrowed("fails closed: dependency state is unreadable"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Owned(format!("{error}. {MEND}")),
    }
}

fn is_deadlocked(
    dependencies: &Dependencies,
    rules: &Rules,
    catalogue: &Catalogue,
    completed: &BTreeSet<String>,
) -> bool {
    let listed = listed(rules, catalogue);
    let deadlocked = dependencies.deadlocked(listed.iter().map(|tool| &*tool.name), completed);
    if deadlocked {
        tracing::warn!("[tools.dependencies] is ignored: every tool would wait for another tool");
    }
    deadlocked
}

/// Remembers that a tool has succeeded, if another tool depends on it.
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
    if !dependencies.is_awaited(tool)
        || session.look(|state| state.completed.contains(tool)).unwrap_or(false)
    {
        return;
    }
    if let Err(error) = session.change(|state| state.completed.insert(tool.clone())) {
        tracing::warn!("storing the success of `{tool}` failed: {error}");
    }
}
