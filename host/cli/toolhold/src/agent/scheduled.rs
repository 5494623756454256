//! Runs a scheduled task of the agent in a new session, when no person is present.

use std::sync::Arc;

use toolhold_agent::{RunEvent, TaskEnd};
use toolhold_core::{CancellationToken, Phase};
use toolhold_models::Part;
use toolhold_terminal::error::CommandError;

use crate::agent::run::open;
use crate::agent::{MakeHost, Surroundings};
use crate::arguments::agent::{PhaseName, SessionArguments};

#[derive(Debug)]
pub(crate) struct ScheduledEnd {
    pub(crate) end: TaskEnd,
    pub(crate) session: String,
    pub(crate) answer: String,
}

/// Runs the agent with a prompt in a new session. Returns the last answer that isn't empty.
/// `is_untrusted` says that the prompt may contain untrusted text.
pub(crate) async fn run_scheduled(
    prompt: String,
    is_untrusted: bool,
    phase: Phase,
    around: &Surroundings<'_>,
    cancel: &CancellationToken,
    make_host: impl MakeHost,
) -> Result<ScheduledEnd, CommandError> {
    let arguments = SessionArguments {
        model: None,
        session: None,
        last: false,
        yes: false,
        phase: Some(PhaseName::from(phase)),
        trust_instructions: false,
    };
    let mut opened = open(&arguments, around, Arc::clone(&around.approver), make_host).await?;
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
