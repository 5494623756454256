//! Decides whether a call may create or change a scheduled task.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use toolhold_config::{Config, TaskBounds};
use toolhold_contract::text::counted;
use toolhold_contract::{TaskAction, TaskBook, TaskError, TaskOrder, TaskRun, TaskState};
use toolhold_policy::{Decision, Trust};
use toolhold_schedule::{
    KeptTask, Listed, MAX_ARGUMENTS, MAX_TASKS, Maker, NO_RUNNER, Owner, Quotas, Schedule,
    ScheduleError, clock_change,
};

use crate::context::CallContext;
use crate::plugins::Plugins;
use crate::{Tool, validate};

/// The keys of a patch that change a task's action.
const ACTION: [&str; 4] = ["command", "prompt", "tool", "arguments"];

/// Maximum number of notices of one call. Further notices are dropped.
const MAX_NOTICES: usize = 8;

/// Maximum number of tasks or keys in a notice. Further tasks or keys are only counted.
const MAX_NAMED: usize = 10;

/// Gives calls access to the scheduled tasks of a user.
#[derive(Debug)]
pub struct Tasks {
    /// The scheduled tasks of this user.
    pub schedule: Arc<Schedule>,
    /// The real path of the working directory.
    pub directory: PathBuf,
}

impl Tasks {
    /// Returns the tasks for a call's plugin, or `None` if the plugin may use no tasks. `principal`
    /// is the caller of a served host, or `None` for the user of this machine. `is_untrusted` says
    /// whether the session has received untrusted text.
    pub fn of_call(
        &self,
        context: &CallContext,
        principal: Option<&str>,
        is_untrusted: impl FnOnce() -> bool,
        tool: &Tool,
        plugins: &Arc<Plugins>,
        config: Arc<Config>,
    ) -> Option<Arc<dyn TaskBook>> {
        let may_use_tasks = tool.plugin.as_ref()?.policy().capabilities.schedule.is_some();
        if !may_use_tasks {
            return None;
        }
        let is_built_in = tool.is_built_in();
        // The argument `patch` of other tools may have another meaning.
        let patch = match context.arguments.get("patch") {
            Some(patch) if is_built_in && patch.is_object() => Some(patch),
            _ => None,
        };
        Some(Arc::new(CallTasks {
            schedule: Arc::clone(&self.schedule),
            plugins: Arc::clone(plugins),
            config,
            plugin: tool.provider.name().to_owned(),
            principal: principal.unwrap_or(Owner::USER).to_owned(),
            directory: self.directory.to_str().map(str::to_owned),
            session: context.session.to_string(),
            phase: context.phase.map(|phase| phase.as_str().to_owned()),
            trust: context.trust,
            is_untrusted: is_untrusted(),
            is_sub_agent: context.caller.is_some(),
            is_built_in,
            is_patch: patch.is_some(),
            keeps_action: patch.is_some_and(changes_no_action),
            notices: Mutex::default(),
        }))
    }
}

fn changes_no_action(patch: &Value) -> bool {
    ACTION.iter().all(|key| matches!(patch.get(*key), None | Some(Value::Null)))
}

struct CallTasks {
    schedule: Arc<Schedule>,
    plugins: Arc<Plugins>,
    config: Arc<Config>,
    plugin: String,
    principal: String,
    /// `None` means that the path isn't UTF-8.
    directory: Option<String>,
    session: String,
    phase: Option<String>,
    trust: Trust,
    is_untrusted: bool,
    is_sub_agent: bool,
    is_built_in: bool,
    /// Whether the call changes an existing task. A change needs no notice about the old task.
    is_patch: bool,
    keeps_action: bool,
    notices: Mutex<Vec<String>>,
}

impl fmt::Debug for CallTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTasks").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl CallTasks {
    /// Returns an error if the configuration disables tasks.
    fn check_enabled(&self) -> Result<(), TaskError> {
        if self.config.values.tools.scheduler.enabled {
            return Ok(());
        }
        let Decision { rule, place, remedy, .. } = self.config.disabled("tools.scheduler.enabled");
        let message = format!("tasks are disabled: {rule} ({place}). {remedy}");
        Err(TaskError::new("unavailable", message))
    }

    /// Returns the owner of the visible tasks. Tasks of other directories stay hidden, because
    /// their results reveal information about other projects.
    fn owner(&self) -> Result<Owner, TaskError> {
        self.check_enabled()?;
        let Some(directory) = self.directory.clone() else {
            return Err(TaskError::new("invalid", "the working directory's path isn't UTF-8"));
        };
        let plugin = self.plugin.clone();
        let principal = self.principal.clone();
        Ok(Owner { plugin, principal, directory })
    }

    fn check_runner(&self) {
        // Errors are reported when the task is stored.
        if let Ok(None) = self.schedule.runner() {
            self.add_notice(NO_RUNNER.to_owned());
        }
    }

    /// Adds a notice about finished tasks that were removed to make room. Names of tasks in other
    /// directories are hidden from the caller, so these tasks are only counted.
    fn report_removed(&self, owner: &Owner, removed: &[Listed]) {
        if removed.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        let mut removed_elsewhere: usize = 0;
        for task in removed {
            if task.owner.directory == owner.directory {
                parts.push(format!("`{}`", task.state.order.name));
            } else {
                removed_elsewhere += 1;
            }
        }
        let unnamed = parts.len().saturating_sub(MAX_NAMED);
        parts.truncate(MAX_NAMED);
        if unnamed > 0 {
            parts.push(format!("{unnamed} more"));
        }
        if removed_elsewhere > 0 {
            parts.push(format!("{removed_elsewhere} in other directories"));
        }
        self.add_notice(format!(
            "The limit of tasks was reached, so these finished tasks were removed, together with \
             their results: {}.",
            parts.join(", ")
        ));
    }

    /// Adds a notice about the keys that flags of this command have set.
    fn report_flags(&self, by_flags: &[String]) {
        if by_flags.is_empty() {
            return;
        }
        let mut keys: Vec<String> =
            by_flags.iter().take(MAX_NAMED).map(|key| format!("`{key}`")).collect();
        if by_flags.len() > MAX_NAMED {
            keys.push(counted(by_flags.len() - MAX_NAMED, "other key"));
        }
        self.add_notice(format!(
            "Flags of this command don't apply to the task: {}. The task runs under the \
             configuration without these flags.",
            keys.join(", ")
        ));
    }

    fn add_notice(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
            notices.push(notice);
        }
    }

    /// Returns the owner of the tasks that this call may change.
    ///
    /// # Errors
    ///
    /// Returns an error if the call may not change tasks.
    fn owner_for_change(&self) -> Result<Owner, TaskError> {
        let owner = self.owner()?;
        if self.config.is_of_task() {
            // Otherwise, a task could create tasks forever.
            return Err(TaskError::new("denied", "a task can't change tasks"));
        }
        if self.is_sub_agent {
            // A sub-agent may only use its own list of tools, but its task could use any tool.
            return Err(TaskError::new(
                "denied",
                "a sub-agent can't change tasks; only the main agent can",
            ));
        }
        Ok(owner)
    }

    fn check_action(&self, owner: &Owner, action: &mut TaskAction) -> Result<(), TaskError> {
        match action {
            TaskAction::Prompt(_) => self.check_prompt(owner),
            TaskAction::Call { tool, arguments } => self.check_call(tool, arguments),
        }
    }

    /// Returns an error if the call may not create a task for the agent.
    fn check_prompt(&self, owner: &Owner) -> Result<(), TaskError> {
        if !self.is_built_in {
            return Err(denied("a third-party plugin can only create tasks for its own tools"));
        }
        if owner.served().is_some() {
            return Err(denied("a client of a server can't create a task for the agent"));
        }
        if self.trust != Trust::Trusted {
            return Err(denied("a call with lower trust can't create a task for the agent"));
        }
        Ok(())
    }

    /// Returns an error if the call may not create a task that calls the tool `name`. Replaces
    /// `name` with the tool's full name, and converts the arguments to the tool's schema.
    fn check_call(&self, name: &mut String, arguments: &mut Value) -> Result<(), TaskError> {
        let catalogue = self.plugins.catalogue();
        let tool = catalogue
            .resolve(name)
            .map_err(|failure| TaskError::new("invalid", failure.message))?;
        if !self.is_built_in && tool.provider.name() != self.plugin {
            return Err(denied("a third-party plugin can only create tasks for its own tools"));
        }
        if self.is_built_in
            && let Some(plugin) = &tool.plugin
            && plugin.policy().capabilities.schedule.is_some()
        {
            return Err(denied("a task can't change tasks"));
        }
        // The arguments are checked as in a call, so that a mistake is reported now.
        let mut checked = Arc::new(arguments.take());
        let result = validate::normalize(&tool.definition, &mut checked)
            .and_then(|()| validate::arguments(tool, &mut checked, MAX_ARGUMENTS));
        if let Err(failure) = result {
            return Err(TaskError::new("invalid", format!("`{name}`: {}", failure.message)));
        }
        name.clone_from(&tool.definition.name);
        *arguments = Arc::unwrap_or_clone(checked);
        Ok(())
    }

    /// Returns the quotas for a task, and a note for denials.
    ///
    /// A task outlasts this command, so flags of the command may lower the quotas, but not raise
    /// them. The note is empty unless the flags allow more. Blocks.
    fn lasting_quotas(&self) -> Result<(Quotas, String), TaskError> {
        let with_flags = self.quotas(&self.config);
        let config_without_flags = self
            .config
            .without_flags()
            .map_err(|error| TaskError::new("failed", error.to_string()))?;
        let Some(config_without_flags) = config_without_flags else {
            return Ok((with_flags, String::new()));
        };
        let without_flags = self.quotas(&config_without_flags);

        let quotas = stricter(with_flags, without_flags);
        if quotas == with_flags {
            return Ok((quotas, String::new()));
        }
        let mut flag_names = Vec::new();
        for flag in self.config.flags().into_iter().take(MAX_NAMED) {
            flag_names.push(format!("`{flag}`"));
        }
        let flags = flag_names.join(", ");
        Ok((quotas, format!(". Flags of this command don't apply to tasks: {flags}")))
    }

    /// Returns the limits for tasks in a configuration.
    fn quotas(&self, config: &Config) -> Quotas {
        let settings = config.values.tools.scheduler;
        let of_plugin = if self.is_built_in {
            MAX_TASKS
        } else {
            let table = config.values.plugins.get(&self.plugin);
            table.map_or(0, |plugin| plugin.schedule_tasks.get())
        };
        Quotas {
            of_plugin,
            of_principal: settings.max_tasks.get(),
            interval: settings.min_interval.get(),
        }
    }
}

fn denied(why: &str) -> TaskError {
    TaskError::new("denied", why)
}

/// Returns the stricter of both values for each quota. As an exception, a flag may grant tasks to a
/// plugin that has none in the configuration.
fn stricter(with_flags: Quotas, without_flags: Quotas) -> Quotas {
    let of_plugin = if without_flags.of_plugin == 0 {
        with_flags.of_plugin
    } else {
        with_flags.of_plugin.min(without_flags.of_plugin)
    };
    Quotas {
        of_plugin,
        of_principal: with_flags.of_principal.min(without_flags.of_principal),
        interval: with_flags.interval.max(without_flags.interval),
    }
}

/// Converts an error for the plugin. `note` is added to denials by a limit.
fn to_task_error_with(note: &str, error: ScheduleError) -> TaskError {
    match error {
        ScheduleError::Limit(limit) => TaskError::new("limit", format!("{limit}{note}")),
        other => to_task_error(other),
    }
}

fn to_task_error(error: ScheduleError) -> TaskError {
    match error {
        ScheduleError::Invalid(_)
        | ScheduleError::Removed
        | ScheduleError::RemovedMeanwhile
        | ScheduleError::Alarm(_) => TaskError::new("invalid", error.to_string()),
        ScheduleError::Limit(limit) => TaskError::new("limit", limit.to_string()),
        ScheduleError::Unavailable { .. } => {
            // The reason contains a path of the user, which a plugin may not see.
            tracing::warn!("{error}");
            TaskError::new("unavailable", "the tasks can't be used; see the host's log")
        }
        ScheduleError::Busy => TaskError::new("busy", error.to_string()),
        ScheduleError::Sqlite(_) => TaskError::new("failed", error.to_string()),
    }
}

impl TaskBook for CallTasks {
    fn put(&self, mut order: TaskOrder) -> Result<TaskState, TaskError> {
        let owner = self.owner_for_change()?;
        let clock_notice = clock_change(&order.kind, &order.when, order.zone.as_deref());
        let (quotas, note) = self.lasting_quotas()?;
        let now = Timestamp::now();
        if self.keeps_action {
            // Nobody has approved the action again, so the task keeps its earlier rights.
            let state = self
                .schedule
                .change_times(&owner, order, quotas, now)
                .map_err(|error| to_task_error_with(&note, error))?;
            if let Some(notice) = clock_notice {
                self.add_notice(notice);
            }
            self.check_runner();
            return Ok(state);
        }
        self.check_action(&owner, &mut order.action)?;
        let TaskBounds { texts, by_flags } = self
            .config
            .task_bounds()
            .map_err(|error| TaskError::new("failed", error.to_string()))?;
        let maker = Maker {
            session: self.session.clone(),
            phase: self.phase.clone(),
            trust: self.trust.as_str().to_owned(),
            untrusted: self.is_untrusted,
            bounds: texts,
        };
        let KeptTask { state, has_replaced, gave_way: removed } = self
            .schedule
            .put(&owner, &maker, order, quotas, now)
            .map_err(|error| to_task_error_with(&note, error))?;
        if has_replaced && !self.is_patch {
            self.add_notice("The task replaces the earlier task with this name.".to_owned());
        }
        self.report_removed(&owner, &removed);
        if let Some(notice) = clock_notice {
            self.add_notice(notice);
        }
        self.report_flags(&by_flags);
        self.check_runner();
        Ok(state)
    }

    fn remove(&self, name: &str) -> Result<bool, TaskError> {
        self.schedule.remove(&self.owner_for_change()?, name).map_err(to_task_error)
    }

    fn pause(&self, name: &str, paused: bool) -> Result<bool, TaskError> {
        let owner = self.owner_for_change()?;
        let now = Timestamp::now();
        let is_known = self.schedule.pause(&owner, name, paused, now).map_err(to_task_error)?;
        if is_known && !paused {
            self.check_runner();
        }
        Ok(is_known)
    }

    fn run_soon(&self, name: &str) -> Result<bool, TaskError> {
        let is_known =
            self.schedule.run_soon(&self.owner_for_change()?, name).map_err(to_task_error)?;
        if is_known {
            self.check_runner();
        }
        Ok(is_known)
    }

    fn tasks(&self) -> Result<Vec<TaskState>, TaskError> {
        let tasks = self.schedule.tasks(Some(&self.owner()?)).map_err(to_task_error)?;
        if tasks.iter().any(Listed::is_waiting) {
            self.check_runner();
        }
        Ok(tasks.into_iter().map(|listed| listed.state).collect())
    }

    fn runs(&self, name: &str) -> Result<Vec<TaskRun>, TaskError> {
        self.schedule.runs_of(&self.owner()?, name).map_err(to_task_error)
    }

    fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
