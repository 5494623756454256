//! The task that a call of the built-in scheduler would make: whether it could run at all. It is
//! checked before anybody is asked about it, and nobody is there when it runs.

use std::sync::Arc;

use berth_catalogue::{CallContext, Catalogue, validate};
use berth_contract::{CancellationToken, Category, Failure};
use berth_policy::{Decision, Verdict};
use berth_schedule::{When, find_zone};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::host::{Host, Request};
use crate::record::Governance;
use crate::session::Session;

/// The built-in plugin that makes tasks of any tool.
const SCHEDULER: &str = "scheduler";

/// The tool of a task that is a command.
const SHELL: &str = "bash";

/// The names of the scheduler's arguments. It takes those of other programs too.
const CRON: [&str; 6] = ["cron", "expression", "expr", "cron_expr", "cron_expression", "schedule"];
const ONCE: [&str; 5] = ["when", "run_at", "at", "delay", "after"];
const ZONE: [&str; 4] = ["zone", "tz", "timezone", "time_zone"];
const ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];

/// A tool that a task would call, with its arguments.
pub(crate) struct PlannedCall {
    pub(crate) tool: String,
    arguments: Value,
}

/// What a call would have a task do. `None`: it makes no task, or one of the agent.
///
/// # Errors
///
/// The task has no valid time.
pub(crate) fn planned_call(context: &CallContext) -> Result<Option<PlannedCall>, Failure> {
    let makes_tasks = context
        .tool
        .as_deref()
        .is_some_and(|tool| tool.is_built_in() && tool.provider.name() == SCHEDULER);
    let Some(arguments) = context.arguments.as_object().filter(|_| makes_tasks) else {
        return Ok(None);
    };
    let patch = arguments.get("patch").and_then(Value::as_object);
    let tables = [Some(arguments), patch];
    for table in tables.into_iter().flatten() {
        let form = table.get("schedule").and_then(Value::as_object);
        for times in [Some(table), form].into_iter().flatten() {
            check_times(times, text(times, &ZONE).or_else(|| text(table, &ZONE)))?;
        }
    }
    Ok(tables.into_iter().flatten().find_map(|table| {
        let call = |tool: &str, arguments| PlannedCall { tool: tool.to_owned(), arguments };
        let given = ARGUMENTS.iter().find_map(|name| table.get(*name));
        let given = given.filter(|given| !given.is_null()).cloned();
        match (text(table, &["tool"]), text(table, &["command"])) {
            (Some(tool), None) => Some(call(tool, given.unwrap_or_else(|| json!({})))),
            (None, Some(command)) => Some(call(SHELL, json!({ "command": command }))),
            _ => None,
        }
    }))
}

fn text<'t>(table: &'t Map<String, Value>, names: &[&str]) -> Option<&'t str> {
    names.iter().find_map(|name| table.get(*name).and_then(Value::as_str))
}

fn check_times(times: &Map<String, Value>, zone: Option<&str>) -> Result<(), Failure> {
    let invalid = |message: String| Failure::new(Category::InvalidParameters, message);
    find_zone(zone).map_err(invalid)?;
    for (kind, names) in [("cron", &CRON[..]), ("once", &ONCE[..])] {
        if let Some(when) = text(times, names) {
            When::parse(kind, when, zone, Timestamp::now()).map_err(invalid)?;
        }
    }
    Ok(())
}

impl Host {
    /// Checks the task that a call would make. Returns what its reader has to know of it.
    ///
    /// # Errors
    ///
    /// It could never run: its time, its tool or its arguments aren't valid, or a rule of this
    /// moment, which bounds it later too, denies what it does.
    pub(crate) async fn check_planned_task(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        session: &Session,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, Failure> {
        let Some(planned) = planned_call(context)? else { return Ok(None) };
        let catalogue = self.plugins.catalogue_for(&planned.tool, cancel).await;
        let Some(mut call) = self.begin_planned(context, session, planned, &catalogue)? else {
            return Ok(None);
        };
        let Some(tool) = call.tool.clone() else { return Ok(None) };
        let lookup = self.lookups.decide(&tool, &mut call.arguments, &mut call.subjects, cancel);
        if let Err(failure) = lookup.await {
            governance.decision = failure.denial.as_ref().map(Decision::from_grants);
            return Err(failure);
        }
        let decision = self.decide_planned(&call);
        let name = &tool.definition.name;
        match decision.verdict {
            Verdict::Allow => Ok(None),
            Verdict::Ask => Ok(Some(format!(
                "The call of `{name}` needs approval, and nobody is there when the task runs: it is denied then, and waits in `berth approvals`. The rule: {} ({})",
                decision.rule, decision.place
            ))),
            Verdict::Deny => {
                let denial = decision.denial(format!("make a task that calls {name}"));
                governance.decision = Some(decision);
                Err(Failure::denied(denial))
            }
        }
    }

    /// The call of a task, as it would begin. `None`: it is one that makes tasks itself.
    ///
    /// # Errors
    ///
    /// Its tool doesn't exist, or its arguments aren't valid.
    pub(crate) fn begin_planned(
        &self,
        context: &CallContext,
        session: &Session,
        planned: PlannedCall,
        catalogue: &Catalogue,
    ) -> Result<Option<CallContext>, Failure> {
        let PlannedCall { tool: name, arguments } = planned;
        let of_task = |failure: Failure| Failure {
            message: format!("the task can't run: {}", failure.message),
            category: Category::InvalidParameters,
            ..failure
        };
        let tool = catalogue.resolve(&name).map_err(of_task)?;
        if tool.plugin.as_ref().is_some_and(|plugin| plugin.policy().schedule) {
            return Ok(None);
        }
        let (mut call, ..) = self.begin(Request {
            session: Some(session.clone()),
            phase: context.phase,
            trust: context.trust,
            ..Request::new(name, arguments)
        });
        validate::rename(&tool.definition, &mut call.arguments)
            .and_then(|()| validate::arguments(tool, &mut call.arguments, self.settings.arguments))
            .map_err(of_task)?;
        call.tool = Some(Arc::clone(tool));
        Ok(Some(call))
    }

    /// What the gates that ask nobody say of a task's call.
    pub(crate) fn decide_planned(&self, call: &CallContext) -> Decision {
        let provider = call.tool.as_ref().map_or("", |tool| tool.provider.name());
        let off = self.governor.rules().switches.refusal(provider).cloned();
        off.unwrap_or_else(|| self.governor.decide(call, false).0)
    }
}
