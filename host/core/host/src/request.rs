//! `Request`: one call for the host, and the start of the call.

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
    /// Larger or binary arguments. The JSON refers to each by its index in this list:
    /// `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// Metadata for the tool in addition to the arguments, such as an ID that the caller chose. At
    /// most 64 KiB as JSON text. Keys have a prefix: `example.com/trace`. Models don't write the
    /// metadata, and rules and approvals don't see it.
    pub meta: Option<Map<String, Value>>,
    /// The agent that calls, unless it is the primary agent.
    pub caller: Option<String>,
    /// The session of the call. `None` means the host's own session.
    pub session: Option<Session>,
    /// The part of an agent's work that makes the call. Parts may have different rules.
    pub phase: Option<Phase>,
    /// The trust in the origin of the call. An example of an untrusted origin is a skill that
    /// nobody has reviewed. If the trust in the plugin is lower, the lower trust applies.
    pub trust: Trust,
    /// Whether the caller doubts that the agent intended the call. An example is a call in the text
    /// of a page that the agent read. If a doubtful call acts, it needs approval even if a rule
    /// allows it.
    pub doubtful: bool,
    /// The reader of the answer.
    pub audience: Audience,
    /// The way to ask a person if the rules require approval. `None` means that nobody is asked.
    pub approver: Option<Arc<dyn Approver>>,
    /// Where progress and partial output go.
    pub events: Arc<dyn Events>,
    /// The token with which the program cancels the call. Dropping the call's future also ends the
    /// call.
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

    /// Returns the context of the call at its start, its session, and its other inputs.
    /// `own_session` is the session of calls that name no session.
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

/// Removes the keys that only the host may write from the caller's metadata. Returns `None` if no
/// keys remain.
fn without_own_keys(mut meta: Map<String, Value>) -> Option<Map<String, Value>> {
    meta.retain(|key, _| !key.starts_with("toolhold:"));
    if meta.is_empty() {
        return None;
    }
    Some(meta)
}

/// Makes a unique ID from random bytes of this process and a number.
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
