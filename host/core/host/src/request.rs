//! `Request`: one call for the host, and how the call begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use toolhold_catalogue::{Audience, CallContext};
use toolhold_contract::{CallId, CancellationToken, Content, Events, NoEvents};
use toolhold_policy::commands::ShellState;
use toolhold_policy::{Phase, Trust};

use crate::approvals::Approver;
use crate::call_inputs::CallInputs;
use crate::session::Session;

/// One call for the host: the tool, its arguments, its session, and where its events go.
#[derive(Clone)]
pub struct Request {
    /// A tool's name or alias.
    pub tool: String,
    /// A JSON object that matches the tool's schema. At most 1 MiB as JSON text.
    pub arguments: Value,
    /// Larger or binary arguments. The JSON refers to them as `{"$attachment": 0}`, by their index
    /// here.
    pub attachments: Vec<Content>,
    /// The metadata for the tool next to the arguments, such as an ID of the caller's own. At most
    /// 64 KiB as JSON text. Keys have a prefix: `example.com/trace`. Models don't write it, and
    /// rules and approvals don't see it.
    pub meta: Option<Map<String, Value>>,
    /// The agent that calls, unless it is the primary one.
    pub caller: Option<String>,
    /// The session that the call belongs to. `None`: the host's own session.
    pub session: Option<Session>,
    /// The part of an agent's work that makes the call; rules may differ between parts.
    pub phase: Option<Phase>,
    /// How far the origin of the call is trusted, such as a skill that nobody has reviewed. A lower
    /// trust of the plugin counts too.
    pub trust: Trust,
    /// Whether the caller doubts that the agent meant the call, such as a call that is written in
    /// a page that it read. If it acts, it needs approval, whatever else allows it.
    pub doubtful: bool,
    /// The reader of the answer.
    pub audience: Audience,
    /// How a person is asked if the rules want approval. `None`: nobody is asked.
    pub approver: Option<Arc<dyn Approver>>,
    /// Where progress and partial output go.
    pub events: Arc<dyn Events>,
    /// The program cancels it to end the call. Dropping the call's future ends it too.
    pub cancel: CancellationToken,
}

impl Request {
    /// Makes a call of `tool` with `arguments`, without events.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self {
            tool: tool.into(),
            arguments,
            attachments: Vec::new(),
            meta: None,
            caller: None,
            session: None,
            phase: None,
            trust: Trust::default(),
            doubtful: false,
            audience: Audience::default(),
            approver: None,
            events: Arc::new(NoEvents),
            cancel: CancellationToken::new(),
        }
    }

    /// Returns the call at its beginning, its session, and the other inputs of its journey.
    /// `own_session`: the session of calls that name no session.
    pub(crate) fn begin(self, own_session: &Session) -> (CallContext, Session, CallInputs) {
        let Self {
            tool,
            arguments,
            attachments,
            meta,
            caller,
            session,
            phase,
            trust,
            doubtful,
            audience,
            approver,
            events,
            cancel,
        } = self;
        let session = session.unwrap_or_else(|| own_session.clone());
        let meta = meta.and_then(without_own_keys).map(Arc::new);
        let context = CallContext {
            id: next_id(),
            requested_tool: tool,
            session: Arc::clone(session.name()),
            caller,
            phase,
            trust,
            doubtful,
            audience,
            started_at: SystemTime::now(),
            started: Instant::now(),
            tool: None,
            arguments: Arc::new(arguments),
            attachments,
            meta,
            subjects: Vec::new(),
            carried: ShellState::default(),
            carried_shown: ShellState::default(),
        };
        (context, session, CallInputs { approver, events, cancel })
    }
}

/// Removes the keys that only the host may write from the metadata of the caller. Returns `None` if
/// nothing is left.
fn without_own_keys(mut meta: Map<String, Value>) -> Option<Map<String, Value>> {
    meta.retain(|key, _| !key.starts_with("toolhold:"));
    if meta.is_empty() {
        return None;
    }
    Some(meta)
}

/// Makes a unique ID: random bytes of this process and a number.
fn next_id() -> CallId {
    static PROCESS: LazyLock<String> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, IDs are still unique in this process.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        format!("{:016x}-", u64::from_ne_bytes(bytes))
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    CallId((PROCESS.clone() + &number).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        assert_ne!(next_id(), next_id());
    }
}
