//! What happens in a session, for whoever shows it.

use berth_models::Part;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ending::{Spent, TaskEnd};

/// An event. `berth run --json` writes each as a line of JSON, in this form; a screen gets the
/// same.
///
/// A session that is replayed gives the same events, except for the parts of answers: it gives each
/// text in one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// A session begins or goes on.
    Session {
        /// Its ID.
        id: String,
        /// The working directory.
        directory: String,
    },
    /// The person set a task.
    Task {
        /// The text.
        text: String,
        /// The table of `[providers]`.
        provider: String,
        /// The model that is asked.
        model: String,
    },
    /// A part of the text that the model is writing.
    TextPart {
        /// The part.
        text: String,
    },
    /// A part of what the model is thinking.
    ThinkingPart {
        /// The part.
        text: String,
    },
    /// The model begins to write a call of this tool.
    CallPart {
        /// The tool's name, as the model writes it.
        tool: String,
    },
    /// The model has answered.
    Answer {
        /// The whole text, without thinking and without calls.
        text: String,
        /// The number of calls in it.
        calls: usize,
        /// What the answer took.
        spent: Spent,
    },
    /// A call begins.
    Call {
        /// The call's ID in this session.
        id: String,
        /// The tool's name, as the model wrote it.
        tool: String,
        /// The arguments.
        arguments: Value,
    },
    /// A call has its result.
    Result {
        /// The call's ID in this session.
        id: String,
        /// The tool's name.
        tool: String,
        /// Whether it failed.
        failed: bool,
        /// The category of a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        /// What the model is told, without images.
        text: String,
    },
    /// Berth did something of its own: it waited, left something out, or pointed something out.
    Notice {
        /// What.
        text: String,
    },
    /// The task ended.
    Ended {
        /// How.
        #[serde(flatten)]
        ending: TaskEnd,
        /// What the task took.
        spent: Spent,
        /// What the whole session has taken so far.
        session: Spent,
    },
}

/// Receives the events of a session. It must not block.
pub trait RunEvents: Send {
    /// An event.
    fn event(&mut self, event: RunEvent);
}

impl<F: FnMut(RunEvent) + Send> RunEvents for F {
    fn event(&mut self, event: RunEvent) {
        self(event);
    }
}

/// The text parts, joined by line ends.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
