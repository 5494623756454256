//! Checks before approval whether the call of a scheduled task can run, because nobody can approve
//! calls when the task runs.

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

const SHELL: &str = "bash";

/// The names of the scheduler's arguments, including names that other programs use.
const CRON_NAMES: [&str; 6] =
    ["cron", "expression", "expr", "cron_expr", "cron_expression", "schedule"];
const ONCE_NAMES: [&str; 5] = ["when", "run_at", "at", "delay", "after"];
const ZONE_NAMES: [&str; 4] = ["zone", "tz", "timezone", "time_zone"];
const ARGUMENTS_NAMES: [&str; 3] = ["arguments", "args", "input"];

/// The actions of `schedule` on an existing task.
const CHANGES: [&str; 5] = ["run", "pause", "resume", "cancel", "remove"];

/// The actions of `schedule` that don't change an existing task.
const OTHER_ACTIONS: [&str; 5] = ["create", "add", "once", "list", "get"];

const MILLIS_PER_SECOND: u64 = 1000;

/// Maximum number of flags that a message lists.
const MAX_FLAGS: usize = 5;

/// Maximum length of the agent's text in a message in bytes. A longer text is cut.
const MAX_QUOTED: usize = 100;

pub(crate) struct PlannedCall {
    pub(crate) tool: String,
    arguments: Value,
}

/// Returns the arguments of a call of the built-in scheduler, or `None` for other calls.
fn scheduler_arguments(context: &CallContext) -> Option<&Map<String, Value>> {
    let tool = context.tool.as_deref()?;
    let is_scheduler =
        tool.is_built_in() && BuiltInPlugin::has(tool.provider.name(), BuiltInGrant::Tasks);
    if !is_scheduler {
        return None;
    }
    context.arguments.as_object()
}

/// Returns the call that a new task makes. Returns `None` if the call creates no task, or a task
/// with a prompt.
///
/// # Errors
///
/// Returns an error if the arguments contain `approved` or an invalid time, or a prompt without a
/// configured model.
pub(crate) fn planned_call(
    context: &CallContext,
    config: &Config,
) -> Result<Option<PlannedCall>, Failure> {
    let Some(arguments) = scheduler_arguments(context) else { return Ok(None) };
    if arguments.contains_key("approved") {
        return Err(invalid(
            "`approved` isn't a valid argument, because only the user can approve".to_owned(),
        ));
    }
    let mut tables = vec![arguments];
    // A change of an existing task has its new values in `patch`.
    tables.extend(arguments.get("patch").and_then(Value::as_object));
    for table in &tables {
        let zone = text(table, &ZONE_NAMES);
        check_times(table, zone)?;
        if let Some(form) = table.get("schedule").and_then(Value::as_object) {
            let zone_of_form = text(form, &ZONE_NAMES).or(zone);
            check_form(form, zone_of_form)?;
        }
        let has_prompt = text(table, &["prompt"]).is_some();
        if has_prompt && config.values.providers.is_empty() {
            return Err(no_model(config));
        }
    }
    Ok(tables.into_iter().find_map(call_in))
}

/// Returns the call that `table` describes with either a tool or a command. Otherwise returns
/// `None`.
fn call_in(table: &Map<String, Value>) -> Option<PlannedCall> {
    match (text(table, &["tool"]), text(table, &["command"])) {
        (Some(tool), None) => {
            let given = ARGUMENTS_NAMES.iter().find_map(|name| table.get(*name));
            let arguments = match given {
                None | Some(Value::Null) => json!({}),
                Some(arguments) => arguments.clone(),
            };
            Some(PlannedCall { tool: tool.to_owned(), arguments })
        }
        (None, Some(command)) => {
            let arguments = json!({ "command": command });
            Some(PlannedCall { tool: SHELL.to_owned(), arguments })
        }
        (None, None) | (Some(_), Some(_)) => None,
    }
}

fn text<'t>(table: &'t Map<String, Value>, names: &[&str]) -> Option<&'t str> {
    names.iter().find_map(|name| table.get(*name).and_then(Value::as_str))
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::InvalidParameters, message)
}

/// Creates the failure of a task with a prompt if no model is configured.
fn no_model(config: &Config) -> Failure {
    let [example, ..] = KNOWN_PROVIDERS;
    let suggestion = format!("Write this into {}:\n\n{}", config.own_file(), example.table());
    invalid("the task can't run: no model provider is configured".to_owned())
        .with_suggestion(suggestion)
}

/// Checks the time of a task in the form of an object with a `kind`.
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
            let millis = form.get("every_ms").and_then(Value::as_u64);
            let when = match millis {
                Some(millis) if millis % MILLIS_PER_SECOND == 0 => {
                    Some((millis / MILLIS_PER_SECOND).to_string())
                }
                _ => None,
            };
            ("every", when, r#""every", "every_ms": 3600000"#)
        }
        _ => {
            return Err(invalid(
                "`schedule` has an unknown kind: use cron, at, after or every".to_owned(),
            ));
        }
    };
    let Some(when) = when else {
        let unit = if kind == "every" { ", in whole seconds" } else { "" };
        return Err(invalid(format!(
            "`schedule` is incomplete: write {{\"kind\": {example}}}{unit}"
        )));
    };
    When::parse(kind, &when, zone, Timestamp::now()).map_err(|error| invalid(error.to_string()))?;
    Ok(())
}

/// Checks a task's time zone, and its separate arguments `cron` and `once`.
fn check_times(times: &Map<String, Value>, zone: Option<&str>) -> Result<(), Failure> {
    find_zone(zone).map_err(|error| invalid(error.to_string()))?;
    for (kind, names) in [("cron", &CRON_NAMES[..]), ("once", &ONCE_NAMES[..])] {
        if let Some(when) = text(times, names) {
            When::parse(kind, when, zone, Timestamp::now())
                .map_err(|error| invalid(error.to_string()))?;
        }
    }
    Ok(())
}

/// Checks the task that a call creates. Returns a notice about the task.
///
/// # Errors
///
/// Returns an error if the task can never run, because its time, tool or arguments are invalid, or
/// because a rule denies its call.
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
    let lookup = host.lookups.resolve(&tool, &mut call.arguments, &mut call.subjects, cancel);
    if let Err(failure) = lookup.await {
        governance.decision = failure.denial.as_ref().map(Decision::from_grants);
        return Err(failure);
    }
    let folders = host.asking.folders.clone();
    let directory = host.tasks.directory.clone();
    let table = tool.plugin.as_ref().map(|plugin| plugin.policy().table.name.clone());
    let loading = tokio::task::spawn_blocking(move || {
        LastingRules::load(&config, table.as_deref(), &folders, &directory)
    });
    let loaded = loading.await.map_err(|error| {
        Failure::new(
            Category::PermanentFailure,
            format!("reading the rules for tasks failed: {error}"),
        )
    })?;
    let lasting = loaded?;
    let (decision, note) = decide_planned(&host.governor, &call, lasting.as_ref());
    let name = &tool.definition.name;
    match decision.verdict {
        Verdict::Allow => Ok(None),
        Verdict::Ask => Ok(Some(format!(
            "The call of `{name}` needs approval, but nobody can approve calls while the task \
             runs. Each run of the task will deny the call and list it in `toolhold approvals`. \
             The rule: {} ({})",
            decision.rule, decision.place
        ))),
        Verdict::Deny => {
            let denial = decision.denial(format!("create a task that calls {name}{note}"));
            governance.decision = Some(decision);
            Err(Failure::denied(denial))
        }
    }
}

/// Creates the call as the task makes it. Returns `None` for a task that calls the scheduler,
/// because the scheduler itself denies this.
///
/// # Errors
///
/// Returns an error if the tool doesn't exist, or if its arguments are invalid.
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
    validate::normalize(&tool.definition, &mut call.arguments).map_err(task_failure)?;
    validate::arguments(tool, &mut call.arguments, host.settings.max_arguments)
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

/// If a call changes an existing task, checks that the task exists.
///
/// # Errors
///
/// Returns an error if the task doesn't exist, or if the action is unknown.
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
        ("schedule", Some(action)) if !OTHER_ACTIONS.contains(&action) => {
            let action = neutral_line(cut(action, MAX_QUOTED));
            let message = format!(
                "`{action}` isn't an action: use run, pause, resume, list or cancel, or create a \
                 task with create, add or once"
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
    // Ignore an error here, because the call itself reports that the tasks can't be read.
    let Ok(Ok(tasks)) = tasks else { return Ok(()) };
    if tasks.iter().any(|task| task.state.order.name == name) {
        return Ok(());
    }
    let name = neutral_line(cut(name, MAX_QUOTED));
    Err(invalid(format!("there is no task \"{name}\""))
        .with_suggestion("list_tasks lists the tasks."))
}

/// Returns the decision on a task's call, and a note about the flags of this command. Asks nobody.
/// The decision without the flags applies if it is more severe. Otherwise, the note is empty.
pub(crate) fn decide_planned(
    governor: &Governor,
    call: &CallContext,
    lasting: Option<&LastingRules>,
) -> (Decision, String) {
    let with_flags = decide(governor, call);
    if let Some(rules) = lasting {
        let without_flags = rules.decide(call);
        if without_flags.verdict > with_flags.verdict {
            return (without_flags, format!(" without the flags {}", rules.flags));
        }
    }
    (with_flags, String::new())
}

fn invalid_rules(error: HostError) -> Failure {
    invalid(error.to_string())
}

fn decide(governor: &Governor, call: &CallContext) -> Decision {
    let rules = governor.rules();
    if let Some(tool) = &call.tool
        && let Some(disabled) = rules.switches.refusal(tool.provider.name(), &tool.definition.name)
    {
        return disabled.clone();
    }
    let is_approved = false;
    let (decision, _path_rules) = governor.decide(call, is_approved);
    decision
}

/// The rules without the flags of this command, because flags don't apply to tasks.
pub(crate) struct LastingRules {
    governor: Governor,
    /// The path rules with the flags and without them. `None` for calls of a server.
    file_rules: Option<FileRulesByFlags>,
    /// The names of the flags.
    flags: String,
}

struct FileRulesByFlags {
    with_flags: FileRules,
    without_flags: FileRules,
}

impl LastingRules {
    /// Loads the rules without the flags of this command. `table` is the plugin's table, or `None`
    /// without a plugin. Returns `None` if the command has no flags. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration without the flags is invalid.
    pub(crate) fn load(
        config: &Config,
        table: Option<&str>,
        folders: &Folders,
        directory: &Path,
    ) -> Result<Option<Self>, Failure> {
        let Some(config_without_flags) = config.without_flags().map_err(invalid_rules)? else {
            return Ok(None);
        };
        let rules = Rules::from_config(&config_without_flags).map_err(invalid_rules)?;
        let mut file_rules = None;
        if let Some(table) = table {
            let with_flags = config.file_rules(table, folders, directory).map_err(invalid_rules)?;
            let without_flags = config_without_flags
                .file_rules(table, folders, directory)
                .map_err(invalid_rules)?;
            file_rules = Some(FileRulesByFlags { with_flags, without_flags });
        }
        Ok(Some(Self { governor: Governor::new(rules), file_rules, flags: list_flags(config) }))
    }

    /// Decides on a task's call by the rules without the flags of this command.
    fn decide(&self, call: &CallContext) -> Decision {
        let Some(FileRulesByFlags { with_flags, without_flags }) = &self.file_rules else {
            return decide(&self.governor, call);
        };
        for subject in call.subjects.iter().filter(|subject| subject.kind.is_path()) {
            let path = Path::new(&subject.text);
            let kind = if path.is_dir() { Kind::Directory } else { Kind::Other };
            let access = subject.access;
            let Err(refusal) = without_flags.decide(path, kind, access) else { continue };
            // A path that the rules deny even with the flags doesn't depend on the flags, so other
            // checks decide on it.
            let is_allowed_by_flags = with_flags.decide(path, kind, access).is_ok();
            if is_allowed_by_flags {
                let denial = without_flags.explain(refusal, path, access);
                return Decision::from_grants(&denial);
            }
        }
        decide(&self.governor, call)
    }
}

fn list_flags(config: &Config) -> String {
    let mut names: Vec<String> =
        config.flags().into_iter().map(|flag| format!("`{flag}`")).collect();
    if names.len() > MAX_FLAGS {
        names.truncate(MAX_FLAGS);
        names.push("others".to_owned());
    }
    names.join(", ")
}
