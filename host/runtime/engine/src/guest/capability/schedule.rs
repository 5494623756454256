//! `toolhold:host/schedule`: makes, lists and removes scheduled tasks of the plugin.

use std::sync::Arc;

use toolhold_contract::{
    Access, Denial, TaskAction, TaskBook, TaskError, TaskOrder, TaskRun, TaskState,
};
use wasmtime::component::Linker;

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::schedule as wit;
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::convert::host_error;
use crate::guest::{CallState, HasState};

/// The grant for scheduled tasks. The task store limits their number and kind.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleGrant;

/// The state of this capability in a call.
pub(crate) struct Tasks {
    book: Arc<dyn TaskBook>,
    read_only: bool,
}

impl CallCapability for Option<Tasks> {
    type Grant = ScheduleGrant;

    fn begin(_: &ScheduleGrant, facts: &CallFacts<'_>) -> Self {
        let book = facts.call.tasks.clone()?;
        Some(Tasks { book, read_only: facts.only_reads })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl CallState {
    /// Runs an operation on a thread that may block. A read-only call that requests
    /// [`Access::Write`] is denied.
    async fn in_tasks<T>(
        &mut self,
        access: Access,
        operation: impl FnOnce(&dyn TaskBook) -> Result<T, TaskError>,
    ) -> Result<T, Error> {
        let Some(tasks) = &self.capabilities.schedule else {
            // The instance has no call yet, or the plugin is only inspected.
            return Err(host_error("denied", "no scheduled tasks are granted to this plugin"));
        };
        if access == Access::Write && tasks.read_only {
            let denial = Box::new(Denial {
                capability: "schedule".to_owned(),
                action: "change tasks".to_owned(),
                rule: "read-only tools can't change tasks".to_owned(),
                place: "the tool's annotations".to_owned(),
                remedy: "The tool's author has to remove `read-only`.".to_owned(),
            });
            let message = denial.to_string();
            self.files.denials().remember(denial);
            return Err(host_error("denied", message));
        }
        let book = Arc::clone(&tasks.book);
        self.call.watch.may_block().await;
        operation(&*book).map_err(|TaskError { code, message }| host_error(code, message))
    }
}

fn convert_task(task: wit::Task) -> Result<TaskOrder, TaskError> {
    let wit::Task { name, kind, when, zone, missed, action, meta: _ } = task;
    let action = match action {
        wit::Action::Prompt(text) => TaskAction::Prompt(text),
        wit::Action::Call(wit::ToolCall { tool, arguments: json }) => {
            let arguments = serde_json::from_str(&json).map_err(|error| {
                TaskError::new("invalid", format!("the arguments aren't valid JSON: {error}"))
            })?;
            TaskAction::Call { tool, arguments }
        }
    };
    Ok(TaskOrder { name, kind, when, zone, missed, action })
}

fn state_for_guest(state: TaskState) -> wit::State {
    let TaskState { order, next, paused, last } = state;
    let TaskOrder { name, kind, when, zone, missed, action } = order;
    let action = match action {
        TaskAction::Prompt(text) => wit::Action::Prompt(text),
        TaskAction::Call { tool, arguments } => {
            wit::Action::Call(wit::ToolCall { tool, arguments: arguments.to_string() })
        }
    };
    let task = wit::Task { name, kind, when, zone, missed, action, meta: None };
    wit::State { task, next, paused, last: last.map(run_for_guest), meta: None }
}

fn run_for_guest(run: TaskRun) -> wit::Run {
    let TaskRun { due, started, ended, state, missed, output } = run;
    wit::Run { due, started, ended, state, missed, output, meta: None }
}

impl wit::Host for &mut CallState {
    async fn put(&mut self, task: wit::Task) -> wasmtime::Result<Result<wit::State, Error>> {
        let state = self.in_tasks(Access::Write, |tasks| tasks.put(convert_task(task)?)).await;
        Ok(state.map(state_for_guest))
    }

    async fn remove(&mut self, name: String) -> wasmtime::Result<Result<bool, Error>> {
        Ok(self.in_tasks(Access::Write, |tasks| tasks.remove(&name)).await)
    }

    async fn pause(&mut self, name: String, paused: bool) -> wasmtime::Result<Result<bool, Error>> {
        Ok(self.in_tasks(Access::Write, |tasks| tasks.pause(&name, paused)).await)
    }

    async fn run_soon(&mut self, name: String) -> wasmtime::Result<Result<bool, Error>> {
        Ok(self.in_tasks(Access::Write, |tasks| tasks.run_soon(&name)).await)
    }

    async fn tasks(&mut self) -> wasmtime::Result<Result<Vec<wit::State>, Error>> {
        let tasks = self.in_tasks(Access::Read, |tasks| tasks.tasks()).await;
        Ok(tasks.map(|tasks| tasks.into_iter().map(state_for_guest).collect()))
    }

    async fn runs(&mut self, name: String) -> wasmtime::Result<Result<Vec<wit::Run>, Error>> {
        let runs = self.in_tasks(Access::Read, |tasks| tasks.runs(&name)).await;
        Ok(runs.map(|runs| runs.into_iter().map(run_for_guest).collect()))
    }
}
