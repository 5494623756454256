//! Tasks at a later time, as the plugin of a call makes them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use berth_config::Loaded;
use berth_contract::{TaskAction, TaskBook, TaskError, TaskOrder, TaskRun, TaskState};
use berth_policy::Trust;
use berth_schedule::{MAX_ARGUMENTS, MAX_TASKS, Maker, Owner, Quotas, Schedule, ScheduleError};
use jiff::Timestamp;

use crate::context::CallContext;
use crate::plugins::Plugins;
use crate::{Tool, validate};

/// What the calls of a host need to make tasks.
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
        config: Arc<Loaded>,
    ) -> Option<Arc<dyn TaskBook>> {
        let policy = tool.plugin.as_ref()?.policy();
        if !policy.schedule {
            return None;
        }
        let plugin = tool.provider.name().to_owned();
        Some(Arc::new(CallTasks {
            schedule: Arc::clone(&self.schedule),
            directory: self.directory.clone(),
            plugins: Arc::clone(plugins),
            config,
            owner: Owner { plugin, principal: principal.unwrap_or(Owner::USER).to_owned() },
            session: context.session.to_string(),
            phase: context.phase.map(|phase| phase.as_str().to_owned()),
            trust: context.trust,
            is_untrusted: is_untrusted(),
            is_sub_agent: context.caller.is_some(),
            is_built_in: tool.is_built_in(),
        }))
    }
}

/// The tasks of one plugin, for the principal of a call.
struct CallTasks {
    schedule: Arc<Schedule>,
    directory: PathBuf,
    plugins: Arc<Plugins>,
    config: Arc<Loaded>,
    owner: Owner,
    session: String,
    phase: Option<String>,
    trust: Trust,
    is_untrusted: bool,
    is_sub_agent: bool,
    is_built_in: bool,
}

impl fmt::Debug for CallTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTasks").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl CallTasks {
    fn check_enabled(&self) -> Result<(), TaskError> {
        if self.config.config.tools.scheduler.enabled {
            return Ok(());
        }
        let lines = self.config.own_table("tools.scheduler").lines("enabled = true");
        Err(TaskError::new("unavailable", format!("tasks are disabled. To enable them, {lines}")))
    }

    /// Whether the call may change tasks.
    fn check(&self) -> Result<(), TaskError> {
        self.check_enabled()?;
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
        Ok(())
    }

    /// Checks what a task does, as far as that can be known before it runs.
    fn check_action(&self, action: &mut TaskAction) -> Result<(), TaskError> {
        let denied = |why: &str| Err(TaskError::new("denied", why));
        let (name, arguments) = match action {
            TaskAction::Prompt(_) if !self.is_built_in => {
                return denied("a plugin of a third party can make tasks of its own tools only");
            }
            TaskAction::Prompt(_) if self.owner.served().is_some() => {
                return denied("a caller of a server can't give the agent a task");
            }
            TaskAction::Prompt(_) if self.trust != Trust::Trusted => {
                return denied("a call of a lower trust can't give the agent a task");
            }
            TaskAction::Prompt(_) => return Ok(()),
            TaskAction::Call { tool, arguments } => (tool, arguments),
        };
        let invalid = |message: String| TaskError::new("invalid", message);
        let catalogue = self.plugins.catalogue();
        let tool = catalogue.resolve(name).map_err(|failure| invalid(failure.message))?;
        if !self.is_built_in && tool.provider.name() != self.owner.plugin {
            return denied("a plugin of a third party can make tasks of its own tools only");
        }
        let makes_tasks = tool.plugin.as_ref().is_some_and(|plugin| plugin.policy().schedule);
        if self.is_built_in && makes_tasks {
            return denied("a task can't change tasks");
        }
        // As in a call, so that a mistake shows now and not at night.
        let mut checked = Arc::new(arguments.take());
        validate::rename(&tool.definition, &mut checked)
            .and_then(|()| validate::arguments(tool, &mut checked, MAX_ARGUMENTS))
            .map_err(|failure| invalid(format!("`{name}`: {}", failure.message)))?;
        name.clone_from(&tool.definition.name);
        *arguments = Arc::unwrap_or_clone(checked);
        Ok(())
    }

    fn quotas(&self) -> Quotas {
        let settings = self.config.config.tools.scheduler;
        let granted = self.config.config.plugins.get(&self.owner.plugin);
        let of_plugin = match self.is_built_in {
            true => MAX_TASKS,
            false => granted.map_or(0, |plugin| plugin.schedule_tasks.get()),
        };
        Quotas {
            of_plugin,
            of_principal: settings.max_tasks.get(),
            interval: settings.min_interval.get(),
        }
    }
}

fn error(error: ScheduleError) -> TaskError {
    match error {
        ScheduleError::Invalid(message) => TaskError::new("invalid", message),
        ScheduleError::Limit(message) => TaskError::new("limit", message),
        ScheduleError::Unavailable { .. } => {
            // The reason names a path of the user's, which a plugin may not know.
            tracing::warn!("{error}");
            TaskError::new("unavailable", "they can't be used; the host's log says why")
        }
        error => TaskError::new("failed", error.to_string()),
    }
}

impl TaskBook for CallTasks {
    fn put(&self, mut order: TaskOrder) -> Result<TaskState, TaskError> {
        self.check()?;
        self.check_action(&mut order.action)?;
        let Some(directory) = self.directory.to_str() else {
            return Err(TaskError::new("invalid", "the working directory's path isn't UTF-8"));
        };
        let bounds = self.config.task_bounds();
        let maker = Maker {
            session: self.session.clone(),
            directory: directory.to_owned(),
            phase: self.phase.clone(),
            trust: self.trust.as_str().to_owned(),
            untrusted: self.is_untrusted,
            bounds: bounds.map_err(|error| TaskError::new("failed", error.to_string()))?,
        };
        self.schedule
            .put(&self.owner, &maker, order, self.quotas(), Timestamp::now())
            .map_err(error)
    }

    fn remove(&self, name: &str) -> Result<bool, TaskError> {
        self.check()?;
        self.schedule.remove(&self.owner, name).map_err(error)
    }

    fn pause(&self, name: &str, paused: bool) -> Result<bool, TaskError> {
        self.check()?;
        self.schedule.pause(&self.owner, name, paused, Timestamp::now()).map_err(error)
    }

    fn run_soon(&self, name: &str) -> Result<bool, TaskError> {
        self.check()?;
        self.schedule.run_soon(&self.owner, name).map_err(error)
    }

    fn tasks(&self) -> Result<Vec<TaskState>, TaskError> {
        self.check_enabled()?;
        let tasks = self.schedule.tasks(Some(&self.owner)).map_err(error)?;
        Ok(tasks.into_iter().map(|listed| listed.state).collect())
    }

    fn runs(&self, name: &str) -> Result<Vec<TaskRun>, TaskError> {
        self.check_enabled()?;
        self.schedule.runs_of(&self.owner, name).map_err(error)
    }
}
