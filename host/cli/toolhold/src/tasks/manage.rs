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

/// Characters of an output, a prompt and of arguments that are shown.
const SHOWN: usize = 500;

/// The least number of missed runs that may be larger, because counting stops here.
const MAX_COUNTED: u32 = MAX_MISSED as u32 - 1;

/// Runs the command. `enabled`: whether the configuration enables tasks. Blocks.
///
/// # Errors
///
/// Returns an error if the task doesn't exist, or if the tasks can't be read or changed.
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
            let exists =
                schedule.pause(&task.owner, name, true, Timestamp::now()).map_err(failed)?;
            report_change(exists, "is paused", task)?;
        }
        TasksCommand::Resume { task } => {
            let task = find(&all, task)?;
            let name = &task.state.order.name;
            let exists =
                schedule.pause(&task.owner, name, false, Timestamp::now()).map_err(failed)?;
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

/// Prints the change of a task, unless the task doesn't exist any more.
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

/// Returns the task with a name or a number. A name may be ambiguous, because tasks of other
/// plugins or other directories can have the same name.
fn find<'t>(all: &'t [Listed], word: &str) -> Result<&'t Listed, CommandError> {
    let named: Vec<&Listed> = all.iter().filter(|task| task.state.order.name == word).collect();
    let shown = neutral_line(cut(word, 100));
    match named[..] {
        [task] => Ok(task),
        [] => all.iter().find(|task| task.id.to_string() == word).ok_or_else(|| {
            CommandError::Usage(format!(
                "there is no task `{shown}`; `toolhold tasks list` lists all tasks"
            ))
        }),
        _ => {
            let numbers: Vec<String> = named
                .iter()
                .map(|task| {
                    let Owner { plugin, principal, directory } = &task.owner;
                    let by = format!("by {plugin} for {principal}, in {directory}");
                    format!("{} ({})", task.id, neutral_line(cut(&by, SHOWN)))
                })
                .collect();
            Err(CommandError::Usage(format!(
                "there are {} tasks `{shown}`; use the number of one: {}",
                named.len(),
                numbers.join("; ")
            )))
        }
    }
}

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
    for task in all {
        let when = format!("{}, {}", describe_times(task), describe_next(task, enabled));
        let directory = cut(&task.owner.directory, SHOWN).to_owned();
        let last = task.state.last.as_ref();
        let state = last.map_or_else(|| "-".to_owned(), |run| run.state.to_string());
        table.row([task.state.order.name.clone(), when, state, directory]);
        if let Some(last) = last {
            table.colour(2, style_of(last));
            table.detail(&describe_run(last));
            for line in shown_output(last).lines() {
                table.detail(&format!("  {line}"));
            }
        }
    }
    table.print(out)?;
    match runner {
        _ if !enabled => Ok(()),
        Some(runner) => writeln!(out, "The tasks are run by {runner}."),
        None => writeln!(out, "{WARNING}{NO_RUNNER}{WARNING:#}"),
    }
}

/// Describes the times at which a task runs, with the time zone if the zone matters.
fn describe_times(task: &Listed) -> String {
    let TaskState { order, next, paused, .. } = &task.state;
    let shown = match &*order.kind {
        "every" => format!("every {} s", order.when),
        // The next run is shown too, and there is no other run.
        "once" if next.is_some() && !paused => {
            format!("once ({})", zone_name(order.zone.as_deref()))
        }
        kind => format!("{kind} {} ({})", order.when, zone_name(order.zone.as_deref())),
    };
    neutral_line(cut(&shown, SHOWN))
}

/// Describes the next run of a task.
fn describe_next(task: &Listed, enabled: bool) -> String {
    match (task.state.paused, &task.state.next) {
        (true, _) => "paused".to_owned(),
        (false, Some(_)) if !enabled => "not run, because tasks are disabled".to_owned(),
        (false, Some(next)) => format!("next at {next}"),
        (false, None) => "never again".to_owned(),
    }
}

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

fn print_run(out: &mut impl Write, before: &str, run: &TaskRun) -> std::io::Result<()> {
    let style = style_of(run);
    writeln!(out, "{before}{style}{}{style:#}", describe_run(run))?;
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

/// Describes the result and the time of a run.
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
