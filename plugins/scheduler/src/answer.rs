//! Describes tasks and runs in answers. Kept texts are untrusted.

use std::fmt::Write;

use toolhold_sdk::schedule::{Action, Run, TaskState};
use toolhold_sdk::{Content, Output};

/// Bytes of a call's arguments, of a prompt and of an output that a list shows.
const SHOWN: usize = 500;

/// Missed times of a run that are counted for certain; there may be more.
const ALL_COUNTED: u32 = 99;

/// An answer of kept texts. A run's output may be a page, and a prompt may be the text of a model
/// that has read a page. So the answer must not look like the host's or the user's words.
pub(crate) fn stored(text: String) -> Output {
    Output::from(Content::untrusted(text))
}

/// A task in some lines.
pub(crate) fn task(state: &TaskState) -> String {
    let task = &state.task;
    let mut text = format!("{}: {}", task.name, task.kind);
    // The host leaves the zone out if the machine's has no name.
    let zone = task.zone.as_deref().unwrap_or("the machine's zone");
    let _ = match &*task.kind {
        "every" => write!(text, " {} s", task.when),
        // When it runs next is the same moment.
        "once" if state.next.is_some() && !state.paused => write!(text, " ({zone})"),
        _ => write!(text, " {} ({zone})", task.when),
    };
    match (state.paused, &state.next) {
        (true, _) => text.push_str(", paused"),
        (false, Some(next)) => {
            let _ = write!(text, ", next at {next}");
        }
        (false, None) => text.push_str(", never again"),
    }
    match &task.action {
        Action::Call { tool, arguments } => {
            let _ = write!(text, "\n  calls {tool} {}", cut(&arguments.to_string()));
        }
        Action::Prompt(prompt) => {
            let _ = write!(text, "\n  has the agent do: {}", cut(prompt));
        }
    }
    if let Some(last) = &state.last {
        let _ = write!(text, "\n  last: {}", run(last));
    }
    text.push('\n');
    text
}

/// A run in a line or two.
pub(crate) fn run(run: &Run) -> String {
    let mut text = format!("{} for {}", run.state, run.due);
    let _ = match run.missed {
        0 => Ok(()),
        1 => write!(text, " and 1 missed time before it"),
        ALL_COUNTED.. => write!(text, " and {ALL_COUNTED} or more missed times before it"),
        missed => write!(text, " and {missed} missed times before it"),
    };
    if !run.output.is_empty() {
        let _ = write!(text, ": {}", cut(run.output.trim_end()));
    }
    text
}

fn cut(text: &str) -> String {
    match text.get(..text.floor_char_boundary(SHOWN)) {
        Some(start) if start.len() < text.len() => format!("{start}…"),
        _ => text.to_owned(),
    }
}
