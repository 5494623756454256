//! The built-in plugin of the tools that make, list and cancel scheduled tasks.

mod action;
mod answer;
mod cancel_task;
mod list_tasks;
mod made;
mod schedule;
mod schedule_deferred;
mod schedule_periodic;
mod times;

toolhold_sdk::plugin! {
    name: "scheduler",
    description: "Makes tasks that run at a later time",
    capabilities: [schedule = "to keep the tasks that calls make"],
    tools: [
        schedule_periodic::SchedulePeriodic,
        schedule_deferred::ScheduleDeferred,
        list_tasks::ListTasks,
        schedule::Schedule,
        cancel_task::CancelTask,
    ],
}
