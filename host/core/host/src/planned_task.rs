//! Checks whether the call of a scheduled task could run at all, before the task needs approval.
//! Nobody can approve calls when the task runs.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use toolhold_catalogue::{CallContext, Catalogue, validate};
use toolhold_config::{Config, Folders, KNOWN_PROVIDERS};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{
    BuiltInGrant, BuiltInPlugin, CancellationToken, Category, Failure, HostError,
};
use toolhold_policy::files::{FileRules, Kind};
use toolhold_policy::{Decision, Verdict};
use toolhold_schedule::{Owner, When, find_zone};

use crate::governor::{Governor, Rules};
use crate::host::Host;
use crate::record::Governance;
use crate::request::Request;
use crate::session::Session;

/// The tool of a task that is a command.
const SHELL: &str = "bash";

/// The names of the scheduler's arguments. The list includes the names that other programs use.
const CRON: [&str; 6] = ["cron", "expression", "expr", "cron_expr", "cron_expression", "schedule"];
const ONCE: [&str; 5] = ["when", "run_at", "at", "delay", "after"];
const ZONE: [&str; 4] = ["zone", "tz", "timezone", "time_zone"];
const ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];

/// The actions of `schedule` on a task that exists. A call without an action runs the named task.
const CHANGES: [&str; 5] = ["run", "pause", "resume", "cancel", "remove"];
const OTHERS: [&str; 5] = ["create", "add", "once", "list", "get"];

/// Most flags that a refusal names.
const MAX_FLAGS: usize = 5;

/// A tool that a task would call, with its arguments.
pub(crate) struct PlannedCall {
    pub(crate) tool: String,
    arguments: Value,
}

/// Returns the arguments of a call of the built-in scheduler, or `None` for another tool.
fn scheduler_arguments(context: &CallContext) -> Option<&Map<String, Value>> {
    let tool = context.tool.as_deref()?;
    let is_scheduler =
        tool.is_built_in() && BuiltInPlugin::has(tool.provider.name(), BuiltInGrant::Tasks);
    if !is_scheduler {
        return None;
    }
    context.arguments.as_object()
}

/// Returns the call that a task would make. Returns `None` if the call makes no task, or if it
/// makes a task of the agent.
///
/// # Errors
///
/// Returns an error if the task has no valid time, or if it is a task of the agent and there is no
/// model.
pub(crate) fn planned_call(
    context: &CallContext,
    config: &Config,
) -> Result<Option<PlannedCall>, Failure> {
    let Some(arguments) = scheduler_arguments(context) else { return Ok(None) };
    if arguments.contains_key("approved") {
        return Err(invalid(
            "`approved` isn't a valid argument: only the user approves".to_owned(),
        ));
    }
    let patch = arguments.get("patch").and_then(Value::as_object);
    for table in std::iter::once(arguments).chain(patch) {
        let zone = text(table, &ZONE);
        check_times(table, zone)?;
        if let Some(form) = table.get("schedule").and_then(Value::as_object) {
            check_form(form, text(form, &ZONE).or(zone))?;
        }
        if text(table, &["prompt"]).is_some() && config.values.providers.is_empty() {
            return Err(no_model(config));
        }
    }
    Ok(std::iter::once(arguments).chain(patch).find_map(call_in))
}

/// Returns the call that a table of the arguments describes.
fn call_in(table: &Map<String, Value>) -> Option<PlannedCall> {
    match (text(table, &["tool"]), text(table, &["command"])) {
        (Some(tool), None) => {
            let arguments = match ARGUMENTS.iter().find_map(|name| table.get(*name)) {
                Some(arguments) if !arguments.is_null() => arguments.clone(),
                _ => json!({}),
            };
            Some(PlannedCall { tool: tool.to_owned(), arguments })
        }
        (None, Some(command)) => {
            let arguments = json!({ "command": command });
            Some(PlannedCall { tool: SHELL.to_owned(), arguments })
        }
        _ => None,
    }
}

fn text<'t>(table: &'t Map<String, Value>, names: &[&str]) -> Option<&'t str> {
    names.iter().find_map(|name| table.get(*name).and_then(Value::as_str))
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::InvalidParameters, message)
}

/// Makes the failure of a task that needs a model, in the words of the agent itself.
fn no_model(config: &Config) -> Failure {
    let [first, ..] = KNOWN_PROVIDERS;
    let suggestion = format!("Write this into {}:\n\n{}", config.own_file(), first.table());
    invalid("the task can't run: no provider of models is configured".to_owned())
        .with_suggestion(suggestion)
}

/// Checks the object of `schedule`.
fn check_form(form: &Map<String, Value>, zone: Option<&str>) -> Result<(), Failure> {
    find_zone(zone).map_err(|error| invalid(error.to_string()))?;
    let (kind, when, example) = match text(form, &["kind"]) {
        Some("cron") => {
            let when = text(form, &["expr", "expression"]).map(str::to_owned);
            ("cron", when, r#""cron", "expr": "30 9 * * 1-5""#)
        }
        Some("at") => {
            let when = text(form, &["at"]).map(str::to_owned);
            ("once", when, r#""at", "at": "2030-05-01T09:00:00Z""#)
        }
        Some("after") => {
            let seconds = form.get("seconds").and_then(Value::as_u64);
            let when = seconds.map(|seconds| format!("PT{seconds}S"));
            ("once", when, r#""after", "seconds": 900"#)
        }
        Some("every") => {
            let period = form.get("every_ms").and_then(Value::as_u64);
            let whole = period.filter(|period| period % 1000 == 0);
            let when = whole.map(|period| (period / 1000).to_string());
            ("every", when, r#""every", "every_ms": 3600000"#)
        }
        _ => {
            return Err(invalid(
                "`schedule` has an unknown kind: use cron, at, after or every".to_owned(),
            ));
        }
    };
    let when = when.ok_or_else(|| {
        let whole = if kind == "every" { ", in whole seconds" } else { "" };
        invalid(format!("`schedule` is incomplete: write it as {{\"kind\": {example}}}{whole}"))
    })?;
    When::parse(kind, &when, zone, Timestamp::now()).map_err(|error| invalid(error.to_string()))?;
    Ok(())
}

fn check_times(times: &Map<String, Value>, zone: Option<&str>) -> Result<(), Failure> {
    find_zone(zone).map_err(|error| invalid(error.to_string()))?;
    for (kind, names) in [("cron", &CRON[..]), ("once", &ONCE[..])] {
        if let Some(when) = text(times, names) {
            When::parse(kind, when, zone, Timestamp::now())
                .map_err(|error| invalid(error.to_string()))?;
        }
    }
    Ok(())
}

/// Checks the task that a call would make. Returns a notice about the task for the reader.
///
/// # Errors
///
/// Returns an error if the task could never run. Either its time, its tool or its arguments aren't
/// valid, or a current rule denies its call. Current rules limit the task later too.
pub(crate) async fn check(
    host: &Host,
    governance: &mut Governance,
    context: &CallContext,
    session: &Session,
    cancel: &CancellationToken,
) -> Result<Option<String>, Failure> {
    let config = host.asking.config();
    let planned = planned_call(context, &config)?;
    check_changed(host, context, session).await?;
    let Some(planned) = planned else { return Ok(None) };
    let catalogue = host.plugins.catalogue_for(&planned.tool, cancel).await;
    let Some(mut call) = begin(host, context, session, planned, &catalogue)? else {
        return Ok(None);
    };
    let Some(tool) = call.tool.clone() else { return Ok(None) };
    let lookup = host.lookups.decide(&tool, &mut call.arguments, &mut call.subjects, cancel);
    if let Err(failure) = lookup.await {
        governance.decision = failure.denial.as_ref().map(Decision::from_grants);
        return Err(failure);
    }
    let folders = host.asking.folders.clone();
    let directory = host.tasks.directory.clone();
    let table = tool.plugin.as_ref().map(|plugin| plugin.policy().table.name.clone());
    let lasting = tokio::task::spawn_blocking(move || {
        LastingRules::load(&config, table.as_deref(), &folders, &directory)
    })
    .await
    .map_err(|error| {
        Failure::new(
            Category::PermanentFailure,
            format!("reading the rules for tasks failed: {error}"),
        )
    })??;
    let (decision, without) = decide_planned(&host.governor, &call, lasting.as_ref());
    let name = &tool.definition.name;
    match decision.verdict {
        Verdict::Allow => Ok(None),
        Verdict::Ask => Ok(Some(format!(
            "The call of `{name}` needs approval, which nobody can give while the task runs: the call is denied then, and waits in `toolhold approvals`. The rule: {} ({})",
            decision.rule, decision.place
        ))),
        Verdict::Deny => {
            let denial = decision.denial(format!("make a task that calls {name}{without}"));
            governance.decision = Some(decision);
            Err(Failure::denied(denial))
        }
    }
}

/// Makes the call of a task in the form in which the task would start it. Returns `None` if the
/// call makes tasks itself.
///
/// # Errors
///
/// Returns an error if the tool doesn't exist, or if its arguments aren't valid.
pub(crate) fn begin(
    host: &Host,
    context: &CallContext,
    session: &Session,
    planned: PlannedCall,
    catalogue: &Catalogue,
) -> Result<Option<CallContext>, Failure> {
    let PlannedCall { tool: name, arguments } = planned;
    let tool = catalogue.resolve(&name).map_err(task_failure)?;
    if let Some(plugin) = &tool.plugin
        && plugin.policy().capabilities.schedule.is_some()
    {
        return Ok(None);
    }
    let request = Request {
        session: Some(session.clone()),
        phase: context.phase,
        trust: context.trust,
        ..Request::new(name, arguments)
    };
    let (mut call, ..) = request.begin(&host.session);
    validate::rename(&tool.definition, &mut call.arguments)
        .and_then(|()| validate::arguments(tool, &mut call.arguments, host.settings.max_arguments))
        .map_err(task_failure)?;
    call.tool = Some(Arc::clone(tool));
    Ok(Some(call))
}

fn task_failure(failure: Failure) -> Failure {
    Failure {
        message: format!("the task can't run: {}", failure.message),
        category: Category::InvalidParameters,
        ..failure
    }
}

/// Checks that the task that a call changes exists.
///
/// # Errors
///
/// Returns an error if there is no such task, or if the call has no known action.
async fn check_changed(
    host: &Host,
    context: &CallContext,
    session: &Session,
) -> Result<(), Failure> {
    let (Some(arguments), Some(tool)) = (scheduler_arguments(context), &context.tool) else {
        return Ok(());
    };
    let is_change = match (&*tool.definition.name, text(arguments, &["action"])) {
        ("cancel_task", _) => true,
        ("schedule", None) => arguments.keys().all(|key| key == "name" || key == "patch"),
        ("schedule", Some(action)) if CHANGES.contains(&action) => true,
        ("schedule", Some(action)) if !OTHERS.contains(&action) => {
            let action = neutral_line(cut(action, 100));
            let message = format!(
                "`{action}` isn't an action: use run, pause, resume, list or cancel; create, add or once make a task"
            );
            return Err(invalid(message));
        }
        _ => false,
    };
    if !is_change {
        return Ok(());
    }
    let Some(name) = text(arguments, &["name"]) else { return Ok(()) };
    let Some(directory) = host.tasks.directory.to_str().map(str::to_owned) else {
        return Ok(());
    };
    let principal = session.principal().unwrap_or(Owner::USER).to_owned();
    let plugin = tool.provider.name().to_owned();
    let owner = Owner { plugin, principal, directory };
    let schedule = Arc::clone(&host.tasks.schedule);
    let tasks = tokio::task::spawn_blocking(move || schedule.tasks(Some(&owner))).await;
    // If the tasks can't be read, the call itself says why.
    let Ok(Ok(tasks)) = tasks else { return Ok(()) };
    if tasks.iter().any(|task| task.state.order.name == name) {
        return Ok(());
    }
    let name = neutral_line(cut(name, 100));
    Err(invalid(format!("there is no task \"{name}\""))
        .with_suggestion("list_tasks lists the tasks."))
}

/// Returns the decision on a task's call, of the gates that ask nobody. The text is added to the
/// denied action if only the rules without the flags deny the call.
pub(crate) fn decide_planned(
    governor: &Governor,
    call: &CallContext,
    lasting: Option<&LastingRules>,
) -> (Decision, String) {
    let now = decide(governor, call);
    if let Some(rules) = lasting {
        let later = rules.decide(call);
        if later.verdict > now.verdict {
            return (later, format!(" and goes without {}", rules.flags));
        }
    }
    (now, String::new())
}

fn invalid_rules(error: HostError) -> Failure {
    invalid(error.to_string())
}

fn decide(governor: &Governor, call: &CallContext) -> Decision {
    let off = call.tool.as_ref().and_then(|tool| {
        let rules = governor.rules();
        rules.switches.refusal(tool.provider.name(), &tool.definition.name).cloned()
    });
    off.unwrap_or_else(|| governor.decide(call, false).0)
}

/// The rules without the flags of this command. These flags don't apply to tasks.
pub(crate) struct LastingRules {
    governor: Governor,
    /// The path rules with the flags and without them. `None` if the call's paths are paths of its
    /// server.
    files: Option<[FileRules; 2]>,
    /// The flags, for people.
    flags: String,
}

impl LastingRules {
    /// Loads the rules for calls of a plugin that has grants in this table of the configuration, or
    /// for calls of a server. Blocks. Returns `None` if the command has no flags.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration isn't valid without the flags.
    pub(crate) fn load(
        config: &Config,
        table: Option<&str>,
        folders: &Folders,
        directory: &Path,
    ) -> Result<Option<Self>, Failure> {
        let Some(without) = config.without_flags().map_err(invalid_rules)? else { return Ok(None) };
        let mut flags: Vec<String> =
            config.flags().into_iter().map(|flag| format!("`{flag}`")).collect();
        if flags.len() > MAX_FLAGS {
            flags.truncate(MAX_FLAGS);
            flags.push("others".to_owned());
        }
        let governor = Governor::new(Rules::from_config(&without).map_err(invalid_rules)?);
        let files = match table {
            Some(table) => Some([
                config.file_rules(table, folders, directory).map_err(invalid_rules)?,
                without.file_rules(table, folders, directory).map_err(invalid_rules)?,
            ]),
            None => None,
        };
        Ok(Some(Self { governor, files, flags: flags.join(", ") }))
    }

    fn decide(&self, call: &CallContext) -> Decision {
        let Some([with_flags, without]) = &self.files else { return decide(&self.governor, call) };
        for subject in call.subjects.iter().filter(|subject| subject.kind.is_path()) {
            let path = Path::new(&subject.text);
            let kind = if path.is_dir() { Kind::Directory } else { Kind::Other };
            let refusal = without.decide(path, kind, subject.access).err();
            // A path that is denied even with the flags was denied before, or these rules don't
            // apply to it.
            let is_by_flags = with_flags.decide(path, kind, subject.access).is_ok();
            if let Some(refusal) = refusal
                && is_by_flags
            {
                return Decision::from_grants(&without.explain(refusal, path, subject.access));
            }
        }
        decide(&self.governor, call)
    }
}
