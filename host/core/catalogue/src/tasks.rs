//! Decides whether the plugin of a call may make or change a scheduled task: whether tasks are
//! enabled, the task's action, and the quotas.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use toolhold_config::{Config, TaskBounds};
use toolhold_contract::text::counted;
use toolhold_contract::{TaskAction, TaskBook, TaskError, TaskOrder, TaskRun, TaskState};
use toolhold_policy::Trust;
use toolhold_schedule::{
    KeptTask, Listed, MAX_ARGUMENTS, MAX_TASKS, Maker, NO_RUNNER, Owner, Quotas, Schedule,
    ScheduleError, clock_change,
};

use crate::context::CallContext;
use crate::plugins::Plugins;
use crate::{Tool, validate};

/// The keys of a patch that say what a task does.
const ACTION: [&str; 4] = ["command", "prompt", "tool", "arguments"];

/// Most notices of one call.
const MAX_NOTICES: usize = 8;

/// Most tasks or keys that a notice names.
const MAX_NAMED: usize = 10;

/// Makes tasks for the calls of a host.
#[derive(Debug)]
pub struct Tasks {
    /// The tasks of this user.
    pub schedule: Arc<Schedule>,
    /// The real path of the working directory.
    pub directory: PathBuf,
}

impl Tasks {
    /// The tasks of a call's plugin, for a principal (`None`: the user of this machine).
    /// `is_untrusted`: whether the session was given untrusted text. `None`: it may make none.
    pub fn of_call(
        &self,
        context: &CallContext,
        principal: Option<&str>,
        is_untrusted: impl FnOnce() -> bool,
        tool: &Tool,
        plugins: &Arc<Plugins>,
        config: Arc<Config>,
    ) -> Option<Arc<dyn TaskBook>> {
        let policy = tool.plugin.as_ref()?.policy();
        policy.capabilities.schedule?;
        let plugin = tool.provider.name().to_owned();
        let patch =
            context.arguments.get("patch").filter(|patch| tool.is_built_in() && patch.is_object());
        Some(Arc::new(CallTasks {
            schedule: Arc::clone(&self.schedule),
            plugins: Arc::clone(plugins),
            config,
            plugin,
            principal: principal.unwrap_or(Owner::USER).to_owned(),
            directory: self.directory.to_str().map(str::to_owned),
            session: context.session.to_string(),
            phase: context.phase.map(|phase| phase.as_str().to_owned()),
            trust: context.trust,
            is_untrusted: is_untrusted(),
            is_sub_agent: context.caller.is_some(),
            is_built_in: tool.is_built_in(),
            is_patch: patch.is_some(),
            keeps_action: patch.is_some_and(leaves_action_out),
            notices: Mutex::default(),
        }))
    }
}

fn leaves_action_out(patch: &Value) -> bool {
    ACTION.iter().all(|key| patch.get(*key).is_none_or(Value::is_null))
}

/// The tasks of one plugin, for the principal and the directory of a call.
struct CallTasks {
    schedule: Arc<Schedule>,
    plugins: Arc<Plugins>,
    config: Arc<Config>,
    plugin: String,
    principal: String,
    /// `None`: its path isn't UTF-8.
    directory: Option<String>,
    session: String,
    phase: Option<String>,
    trust: Trust,
    is_untrusted: bool,
    is_sub_agent: bool,
    is_built_in: bool,
    /// Whether it changes a task that exists, and may not say that it replaces it.
    is_patch: bool,
    /// Whether it changes a task without saying what the task does.
    keeps_action: bool,
    notices: Mutex<Vec<String>>,
}

impl fmt::Debug for CallTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTasks").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl CallTasks {
    fn check_enabled(&self) -> Result<(), TaskError> {
        if self.config.values.tools.scheduler.enabled {
            return Ok(());
        }
        let off = self.config.disabled("tools.scheduler.enabled");
        let message = format!("tasks are disabled: {} ({}). {}", off.rule, off.place, off.remedy);
        Err(TaskError::new("unavailable", message))
    }

    /// Whose tasks the call sees: those of the directory that it is made in, since what they do is
    /// said in them and what came of it, and another project's agent has no business there.
    fn owner(&self) -> Result<Owner, TaskError> {
        self.check_enabled()?;
        let Some(directory) = self.directory.clone() else {
            return Err(TaskError::new("invalid", "the working directory's path isn't UTF-8"));
        };
        let plugin = self.plugin.clone();
        let principal = self.principal.clone();
        Ok(Owner { plugin, principal, directory })
    }

    /// Notes that no process runs tasks, where that is so.
    fn look_for_runner(&self) {
        // Whether it can't be looked up is seen where tasks are kept and run.
        if let Ok(None) = self.schedule.runner() {
            self.notice(NO_RUNNER.to_owned());
        }
    }

    /// Notes which finished tasks gave way to a new one. The names of other directories are theirs.
    fn tell_of_removed(&self, owner: &Owner, gave_way: &[Listed]) {
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            gave_way.iter().partition(|task| task.owner.directory == owner.directory);
        let mut removed: Vec<String> = here
            .iter()
            .take(MAX_NAMED)
            .map(|task| format!("`{}`", task.state.order.name))
            .collect();
        if here.len() > MAX_NAMED {
            removed.push(format!("{} more", here.len() - MAX_NAMED));
        }
        if !elsewhere.is_empty() {
            removed.push(format!("{} of other directories", elsewhere.len()));
        }
        if !removed.is_empty() {
            self.notice(format!(
                "The limit of tasks was reached, so finished tasks were removed with their results: {}.",
                removed.join(", ")
            ));
        }
    }

    fn notice(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
            notices.push(notice);
        }
    }

    /// Whose tasks the call may change.
    fn changed_owner(&self) -> Result<Owner, TaskError> {
        let owner = self.owner()?;
        if self.config.is_of_task() {
            // A task that makes tasks has no end.
            return Err(TaskError::new("denied", "a task can't change tasks"));
        }
        if self.is_sub_agent {
            // Its tools are bounded by its own list, which a task wouldn't have.
            return Err(TaskError::new(
                "denied",
                "a sub-agent can't change tasks; the main agent can",
            ));
        }
        Ok(owner)
    }

    /// Checks what a task does, as far as that can be known before it runs.
    fn check_action(&self, owner: &Owner, action: &mut TaskAction) -> Result<(), TaskError> {
        let (name, arguments) = match action {
            TaskAction::Prompt(_) if !self.is_built_in => {
                return Err(denied("a third-party plugin can only make tasks of its own tools"));
            }
            TaskAction::Prompt(_) if owner.served().is_some() => {
                return Err(denied("a caller of a server can't give the agent a task"));
            }
            TaskAction::Prompt(_) if self.trust != Trust::Trusted => {
                return Err(denied("a call with lower trust can't give the agent a task"));
            }
            TaskAction::Prompt(_) => return Ok(()),
            TaskAction::Call { tool, arguments } => (tool, arguments),
        };
        let catalogue = self.plugins.catalogue();
        let tool = catalogue
            .resolve(name)
            .map_err(|failure| TaskError::new("invalid", failure.message))?;
        if !self.is_built_in && tool.provider.name() != self.plugin {
            return Err(denied("a third-party plugin can only make tasks of its own tools"));
        }
        let schedule = tool.plugin.as_ref().map(|plugin| plugin.policy().capabilities.schedule);
        let makes_tasks = schedule.flatten().is_some();
        if self.is_built_in && makes_tasks {
            return Err(denied("a task can't change tasks"));
        }
        // As in a call, so that a mistake shows now and not at night.
        let mut checked = Arc::new(arguments.take());
        validate::rename(&tool.definition, &mut checked)
            .and_then(|()| validate::arguments(tool, &mut checked, MAX_ARGUMENTS))
            .map_err(|failure| {
                TaskError::new("invalid", format!("`{name}`: {}", failure.message))
            })?;
        name.clone_from(&tool.definition.name);
        *arguments = Arc::unwrap_or_clone(checked);
        Ok(())
    }

    /// The quotas of the configuration, and what to add to a refusal if they are so only without
    /// the flags of this command, which would outlast it. Blocks.
    fn lasting_quotas(&self) -> Result<(Quotas, String), TaskError> {
        let with = self.quotas(&self.config);
        let without = self
            .config
            .without_flags()
            .map_err(|error| TaskError::new("failed", error.to_string()))?;
        let Some(without) = without.map(|config| self.quotas(&config)) else {
            return Ok((with, String::new()));
        };
        let both = Quotas {
            // Whether a plugin may make tasks is a grant, as what else it may.
            of_plugin: match without.of_plugin {
                0 => with.of_plugin,
                lasting => with.of_plugin.min(lasting),
            },
            of_principal: with.of_principal.min(without.of_principal),
            interval: with.interval.max(without.interval),
        };
        if both == with {
            return Ok((both, String::new()));
        }
        let named: Vec<String> = self
            .config
            .flags()
            .into_iter()
            .take(MAX_NAMED)
            .map(|flag| format!("`{flag}`"))
            .collect();
        let flags = named.join(", ");
        Ok((both, format!(". Flags of this command don't apply to tasks: {flags}")))
    }

    fn quotas(&self, config: &Config) -> Quotas {
        let settings = config.values.tools.scheduler;
        let granted = config.values.plugins.get(&self.plugin);
        let of_plugin = if self.is_built_in {
            MAX_TASKS
        } else {
            granted.map_or(0, |plugin| plugin.schedule_tasks.get())
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

/// `note`: what to add to a refusal by a limit.
fn refused(failed: ScheduleError, note: &str) -> TaskError {
    match failed {
        ScheduleError::Limit(limit) => TaskError::new("limit", format!("{limit}{note}")),
        failed => error(failed),
    }
}

fn error(error: ScheduleError) -> TaskError {
    match error {
        ScheduleError::Invalid(_)
        | ScheduleError::Removed
        | ScheduleError::RemovedMeanwhile
        | ScheduleError::Alarm(_) => TaskError::new("invalid", error.to_string()),
        ScheduleError::Limit(limit) => TaskError::new("limit", limit.to_string()),
        ScheduleError::Unavailable { .. } => {
            // The reason names a path of the user's, which a plugin may not know.
            tracing::warn!("{error}");
            TaskError::new("unavailable", "the tasks can't be used; see the host's log")
        }
        ScheduleError::Busy => TaskError::new("busy", error.to_string()),
        ScheduleError::Sqlite(_) => TaskError::new("failed", error.to_string()),
    }
}

impl TaskBook for CallTasks {
    fn put(&self, mut order: TaskOrder) -> Result<TaskState, TaskError> {
        let owner = self.changed_owner()?;
        let change = clock_change(&order.kind, &order.when, order.zone.as_deref());
        let (quotas, note) = self.lasting_quotas()?;
        let now = Timestamp::now();
        if self.keeps_action {
            // No person saw what the task does, so it gets no rights of this call.
            let state = self
                .schedule
                .change_times(&owner, order, quotas, now)
                .map_err(|failed| refused(failed, &note))?;
            change.into_iter().for_each(|change| self.notice(change));
            self.look_for_runner();
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
        let KeptTask { state, has_replaced, gave_way } = self
            .schedule
            .put(&owner, &maker, order, quotas, now)
            .map_err(|failed| refused(failed, &note))?;
        if has_replaced && !self.is_patch {
            self.notice("The task replaces the earlier task with this name.".to_owned());
        }
        self.tell_of_removed(&owner, &gave_way);
        change.into_iter().for_each(|change| self.notice(change));
        if !by_flags.is_empty() {
            let mut keys: Vec<String> =
                by_flags.iter().take(MAX_NAMED).map(|key| format!("`{key}`")).collect();
            if by_flags.len() > MAX_NAMED {
                keys.push(counted(by_flags.len() - MAX_NAMED, "other key"));
            }
            self.notice(format!(
                "Flags of this command don't apply to the task: {}. The task may do what the configuration allows without them.",
                keys.join(", ")
            ));
        }
        self.look_for_runner();
        Ok(state)
    }

    fn remove(&self, name: &str) -> Result<bool, TaskError> {
        self.schedule.remove(&self.changed_owner()?, name).map_err(error)
    }

    fn pause(&self, name: &str, paused: bool) -> Result<bool, TaskError> {
        let owner = self.changed_owner()?;
        let is_known =
            self.schedule.pause(&owner, name, paused, Timestamp::now()).map_err(error)?;
        if is_known && !paused {
            self.look_for_runner();
        }
        Ok(is_known)
    }

    fn run_soon(&self, name: &str) -> Result<bool, TaskError> {
        let is_known = self.schedule.run_soon(&self.changed_owner()?, name).map_err(error)?;
        if is_known {
            self.look_for_runner();
        }
        Ok(is_known)
    }

    fn tasks(&self) -> Result<Vec<TaskState>, TaskError> {
        let tasks = self.schedule.tasks(Some(&self.owner()?)).map_err(error)?;
        if tasks.iter().any(Listed::is_waiting) {
            self.look_for_runner();
        }
        Ok(tasks.into_iter().map(|listed| listed.state).collect())
    }

    fn runs(&self, name: &str) -> Result<Vec<TaskRun>, TaskError> {
        self.schedule.runs_of(&self.owner()?, name).map_err(error)
    }

    fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
