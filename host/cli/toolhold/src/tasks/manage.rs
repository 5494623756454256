//! `toolhold tasks`: shows and changes the user's tasks.

use std::io::Write;

use anstyle::Style;
use jiff::Timestamp;
use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::text::{counted, cut, neutral_json, neutral_line};
use toolhold_core::{HostError, TaskAction, TaskRun, TaskState};
use toolhold_schedule::{
    Listed, MAX_MISSED, NO_RUNNER, Owner, RunnerProcess, Schedule, ScheduleError, hide_secrets,
    hide_secrets_of_run, zone_name,
};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{BAD, FAINT, GOOD, STRONG, WARNING};
use toolhold_terminal::table::Table;

use crate::arguments::tasks::TasksCommand;

/// The most characters of an output, a prompt, or a call's arguments.
const SHOWN: usize = 500;

/// The most bytes of a task's name in an error.
const MAX_NAME: usize = 100;

/// The most missed runs that are counted.
const MAX_COUNTED: u32 = MAX_MISSED as u32 - 1;

/// Runs a subcommand about tasks. `enabled` says whether the configuration enables tasks. Blocks.
pub(crate) fn tasks(
    command: &TasksCommand,
    folders: &Folders,
    enabled: bool,
) -> Result<Exit, CommandError> {
    let schedule = Schedule::in_data(&folders.data);
    let mut all = schedule.tasks(None).map_err(failed)?;
    all.iter_mut().for_each(hide_secrets);
    let mut out = anstream::stdout().lock();
    match command {
        TasksCommand::List { json } => {
            let runner = schedule.runner().map_err(failed)?;
            list(&mut out, &all, enabled, runner, *json)?;
        }
        TasksCommand::Show { task, json } => {
            let task = find(&all, task)?;
            if *json {
                writeln!(out, "{:#}", neutral_json(json!(task)))?;
            } else {
                show(&mut out, task, enabled)?;
            }
        }
        TasksCommand::Results { task, json } => {
            let task = find(&all, task)?;
            let mut runs = schedule.runs_of(&task.owner, &task.state.order.name).map_err(failed)?;
            runs.iter_mut().for_each(hide_secrets_of_run);
            if *json {
                let object = json!({ "task": task.state.order.name, "runs": runs });
                writeln!(out, "{:#}", neutral_json(object))?;
                return Ok(Exit::Success);
            }
            if runs.is_empty() {
                writeln!(out, "The task has not run yet.")?;
            }
            for run in &runs {
                print_run(&mut out, "", run)?;
            }
        }
        TasksCommand::Run { task } => {
            let task = find(&all, task)?;
            let exists = schedule.run_soon(&task.owner, &task.state.order.name).map_err(failed)?;
            report_change(exists, "runs as soon as possible", task)?;
            say_if_no_runner(&schedule, &mut out)?;
        }
        TasksCommand::Pause { task } => {
            let task = find(&all, task)?;
            let name = &task.state.order.name;
            let is_paused = true;
            let exists =
                schedule.pause(&task.owner, name, is_paused, Timestamp::now()).map_err(failed)?;
            report_change(exists, "is paused", task)?;
        }
        TasksCommand::Resume { task } => {
            let task = find(&all, task)?;
            let name = &task.state.order.name;
            let is_paused = false;
            let exists =
                schedule.pause(&task.owner, name, is_paused, Timestamp::now()).map_err(failed)?;
            report_change(exists, "is resumed", task)?;
            say_if_no_runner(&schedule, &mut out)?;
        }
        TasksCommand::Remove { task } => {
            let task = find(&all, task)?;
            let exists = schedule.remove(&task.owner, &task.state.order.name).map_err(failed)?;
            report_change(exists, "is removed", task)?;
        }
    }
    Ok(Exit::Success)
}

/// Prints the change of a task. If the task was removed in the meantime, so that `exists` is
/// `false`, fails instead.
fn report_change(exists: bool, change: &str, task: &Listed) -> Result<(), CommandError> {
    let name = &task.state.order.name;
    if !exists {
        return Err(CommandError::Usage(format!("the task {name} was removed in the meantime")));
    }
    writeln!(anstream::stdout(), "The task {name} {change}.")?;
    Ok(())
}

fn failed(error: ScheduleError) -> CommandError {
    CommandError::Host(HostError::Config(error.to_string()))
}

fn say_if_no_runner(schedule: &Schedule, out: &mut impl Write) -> Result<(), CommandError> {
    if schedule.runner().map_err(failed)?.is_none() {
        writeln!(out, "{NO_RUNNER}")?;
    }
    Ok(())
}

/// Finds a task by its name or number. Tasks of different plugins and directories may have the same
/// name. In this case, the error lists their numbers.
fn find<'t>(all: &'t [Listed], name_or_number: &str) -> Result<&'t Listed, CommandError> {
    let named: Vec<&Listed> =
        all.iter().filter(|task| task.state.order.name == name_or_number).collect();
    let shown = neutral_line(cut(name_or_number, MAX_NAME));
    match named[..] {
        [task] => Ok(task),
        [] => all.iter().find(|task| task.id.to_string() == name_or_number).ok_or_else(|| {
            CommandError::Usage(format!(
                "there is no task `{shown}`; `toolhold tasks list` lists all tasks"
            ))
        }),
        _ => {
            let mut numbers = Vec::new();
            for task in &named {
                let Owner { plugin, principal, directory } = &task.owner;
                let by = format!("by {plugin} for {principal}, in {directory}");
                numbers.push(format!("{} ({})", task.id, neutral_line(cut(&by, SHOWN))));
            }
            Err(CommandError::Usage(format!(
                "{} tasks have the name `{shown}`; use the number of a task: {}",
                named.len(),
                numbers.join("; ")
            )))
        }
    }
}

/// Lists the tasks. `enabled` says whether tasks are enabled, and `runner` is the process that runs
/// them.
fn list(
    out: &mut impl Write,
    all: &[Listed],
    enabled: bool,
    runner: Option<RunnerProcess>,
    as_json: bool,
) -> std::io::Result<()> {
    if as_json {
        let runner = runner.map(|runner| runner.id);
        let all = json!({ "enabled": enabled, "runner": runner, "tasks": all });
        return writeln!(out, "{:#}", neutral_json(all));
    }
    if all.is_empty() {
        return writeln!(out, "There are no tasks.");
    }
    let mut table = Table::new(["NAME", "WHEN", "LAST RUN", "DIRECTORY"], &[]);
    let last_run_column = 2;
    for task in all {
        let when = format!("{}, {}", describe_times(task), describe_next(task, enabled));
        let directory = cut(&task.owner.directory, SHOWN).to_owned();
        let last = task.state.last.as_ref();
        let state = match last {
            Some(run) => run.state.to_string(),
            None => "-".to_owned(),
        };
        table.row([task.state.order.name.clone(), when, state, directory]);
        if let Some(last) = last {
            table.colour(last_run_column, style_of(last));
            table.detail(&describe_run(last));
            for line in shown_output(last).lines() {
                table.detail(&format!("  {line}"));
            }
        }
    }
    table.print(out)?;
    // If tasks are disabled, the caller prints a note about that.
    if !enabled {
        return Ok(());
    }
    match runner {
        Some(runner) => writeln!(out, "The tasks are run by {runner}."),
        None => writeln!(out, "{WARNING}{NO_RUNNER}{WARNING:#}"),
    }
}

/// Describes a task's schedule with the time zone.
fn describe_times(task: &Listed) -> String {
    let TaskState { order, next, paused, .. } = &task.state;
    let shown = match &*order.kind {
        "every" => format!("every {} s", order.when),
        // The time of a single run is already shown as the next run.
        "once" if next.is_some() && !paused => {
            format!("once ({})", zone_name(order.zone.as_deref()))
        }
        kind => format!("{kind} {} ({})", order.when, zone_name(order.zone.as_deref())),
    };
    neutral_line(cut(&shown, SHOWN))
}

/// Describes a task's next run. `enabled` says whether tasks are enabled.
fn describe_next(task: &Listed, enabled: bool) -> String {
    if task.state.paused {
        return "paused".to_owned();
    }
    let Some(next) = &task.state.next else { return "never again".to_owned() };
    if enabled {
        format!("next at {next}")
    } else {
        "not run, because tasks are disabled".to_owned()
    }
}

/// Shows a task. `enabled` says whether tasks are enabled.
fn show(out: &mut impl Write, task: &Listed, enabled: bool) -> std::io::Result<()> {
    let order = &task.state.order;
    writeln!(out, "{STRONG}{}{STRONG:#}, task {}", order.name, task.id)?;
    writeln!(out, "when: {}, {}", describe_times(task), describe_next(task, enabled))?;
    writeln!(out, "missed runs: {}", order.missed)?;
    match &order.action {
        TaskAction::Call { tool, arguments } => {
            writeln!(out, "calls: {} {}", line(tool), line(&arguments.to_string()))?;
        }
        TaskAction::Prompt(prompt) => writeln!(out, "prompt for the agent: {}", line(prompt))?,
    }
    let Owner { plugin, principal, directory } = &task.owner;
    writeln!(out, "in: {}", line(directory))?;
    writeln!(out, "made by: the plugin {}, for {}", line(plugin), line(principal))?;
    match &task.state.last {
        Some(last) => print_run(out, "last run: ", last),
        None => writeln!(out, "The task has not run yet."),
    }
}

fn line(text: &str) -> String {
    neutral_line(cut(text, SHOWN))
}

/// Prints a run, with `label` before it.
fn print_run(out: &mut impl Write, label: &str, run: &TaskRun) -> std::io::Result<()> {
    let style = style_of(run);
    writeln!(out, "{label}{style}{}{style:#}", describe_run(run))?;
    for line in shown_output(run).lines() {
        writeln!(out, "    {}", neutral_line(line))?;
    }
    Ok(())
}

fn style_of(run: &TaskRun) -> Style {
    match &*run.state {
        "done" => GOOD,
        "failed" | "denied" | "interrupted" => BAD,
        "skipped" => WARNING,
        _ => FAINT,
    }
}

/// Describes the state and time of a run, and the missed runs before it.
fn describe_run(run: &TaskRun) -> String {
    let missed = match run.missed {
        0 => String::new(),
        MAX_COUNTED.. => format!(", after {MAX_COUNTED} or more missed runs"),
        missed => format!(", after {}", counted(missed, "missed run")),
    };
    format!("{} for {}{missed}", run.state, run.due)
}

fn shown_output(run: &TaskRun) -> String {
    run.output.chars().take(SHOWN).collect()
}
