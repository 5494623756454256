//! `Request`: one call of a tool.

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

/// One call of a tool.
#[derive(Clone)]
pub struct Request {
    /// The tool's name or alias.
    pub tool: String,
    /// A JSON object that matches the tool's schema. The default limit is 1 MiB as JSON.
    pub arguments: Value,
    /// Large or binary arguments. The JSON refers to them by index: `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// Metadata for the tool, such as an ID that the caller chose, at most 64 KiB as JSON. Keys
    /// have a prefix: `example.com/trace`. Models don't write the metadata. Rules and approvals
    /// ignore it.
    pub meta: Option<Map<String, Value>>,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub caller: Option<String>,
    /// The session of the call. `None` means the host's own session.
    pub session: Option<Session>,
    /// The phase of the agent's work. Phases may have different rules.
    pub phase: Option<Phase>,
    /// The trust in the origin of the call, such as a skill that nobody has reviewed. The lower of
    /// this trust and the trust in the plugin applies.
    pub trust: Trust,
    /// Whether the agent may not have intended the call, such as a call in the text of a web page.
    /// A doubtful call that acts needs approval even if a rule allows it.
    pub doubtful: bool,
    /// The reader of the answer.
    pub audience: Audience,
    /// Asks a person if the call needs approval. With `None`, a call that needs approval fails.
    pub approver: Option<Arc<dyn Approver>>,
    /// Receives progress and parts of the answer.
    pub events: Arc<dyn Events>,
    /// Cancels the call. A drop of the call's future also ends the call.
    pub cancel: CancellationToken,
}

impl Request {
    /// Creates a call of `tool` with `arguments`, without events.
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

    pub(crate) fn begin(self, own_session: &Session) -> (CallContext, Session, CallInputs) {
        let Self {
            tool,
            arguments,
            attachments,
            meta,
            caller,
            session: requested_session,
            phase,
            trust,
            doubtful,
            audience,
            approver,
            events,
            cancel,
        } = self;
        let session = requested_session.unwrap_or_else(|| own_session.clone());
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
            meta: meta.and_then(without_own_keys).map(Arc::new),
            subjects: Vec::new(),
            carried: ShellState::default(),
            carried_shown: ShellState::default(),
        };
        (context, session, CallInputs { approver, events, cancel })
    }
}

/// Removes the metadata keys that only the host may write. Returns `None` if no key remains.
fn without_own_keys(mut meta: Map<String, Value>) -> Option<Map<String, Value>> {
    meta.retain(|key, _| !key.starts_with("toolhold:"));
    if meta.is_empty() {
        return None;
    }
    Some(meta)
}

/// Returns an ID for a call: a random number for this process, and the number of the call. The
/// random number makes the ID unique among all processes.
fn next_id() -> CallId {
    static PROCESS_PREFIX: LazyLock<String> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, IDs are still unique in this process.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        format!("{:016x}-", u64::from_ne_bytes(bytes))
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = format!("{}{number}", *PROCESS_PREFIX);
    CallId(id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        assert_ne!(next_id(), next_id());
    }
}
