//! Runs a scheduled task of the agent in a session of its own, when nobody watches.

use std::sync::Arc;

use toolhold_agent::{EndKind, RunEvent, TaskEnd};
use toolhold_core::{CancellationToken, Phase};
use toolhold_models::Part;
use toolhold_terminal::error::CommandError;

use crate::agent::run::open;
use crate::agent::{MakeHost, Surroundings};
use crate::arguments::agent::{PhaseName, SessionArguments};

/// The result of the agent's work.
#[derive(Debug)]
pub(crate) struct ScheduledEnd {
    /// Its end.
    pub(crate) end: TaskEnd,
    /// The ID of its session, which `toolhold run sessions` knows.
    pub(crate) session: String,
    /// The model's last answer.
    pub(crate) answer: String,
}

impl ScheduledEnd {
    /// Whether a rule ended it.
    pub(crate) fn is_denied(&self) -> bool {
        self.end.kind == EndKind::Denied
    }

    /// Whether the model said that it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.end.kind == EndKind::Done
    }
}

/// Has the agent work on a prompt in a session of its own. `phase`: the phase of its calls.
/// `is_untrusted`: whether the prompt may follow from untrusted text.
///
/// # Errors
///
/// No model is configured, or the session can't be made.
pub(crate) async fn run_scheduled(
    prompt: String,
    is_untrusted: bool,
    phase: Phase,
    around: &Surroundings<'_>,
    cancel: &CancellationToken,
    host: impl MakeHost,
) -> Result<ScheduledEnd, CommandError> {
    let arguments = SessionArguments {
        model: None,
        session: None,
        last: false,
        yes: false,
        phase: Some(PhaseName::from(phase)),
        trust_instructions: false,
    };
    let mut opened = open(&arguments, around, Arc::clone(&around.approver), host).await?;
    if is_untrusted {
        opened.agent.mark_untrusted()?;
    }
    let mut answer = String::new();
    let mut events = |event: RunEvent| {
        if let RunEvent::Answer { text, .. } = event
            && !text.is_empty()
        {
            answer = text;
        }
    };
    let end = opened.agent.run(vec![Part::Text(prompt)], &mut events, cancel).await;
    Ok(ScheduledEnd { end, session: opened.id, answer })
}
