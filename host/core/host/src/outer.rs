//! Passes the session, the origin and the approver of an outer call on to its inner calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toolhold_catalogue::{CallContext, Tool};
use toolhold_contract::CallId;
use toolhold_policy::{Phase, Trust};

use crate::approvals::Approver;
use crate::session::Session;

/// The data that inner calls inherit from a running call.
#[derive(Clone)]
pub struct ParentCall {
    /// The session of the outer call.
    pub session: Session,
    /// The name of the agent that made the outer call. `None` means the primary agent.
    pub caller: Option<String>,
    /// The phase of the agent's work.
    pub phase: Option<Phase>,
    /// The trust in the origin of the outer call.
    pub trust: Trust,
    /// Whether the outer call and its inner calls may only read.
    pub read_only: bool,
    /// Asks a person for approvals.
    pub approver: Option<Arc<dyn Approver>>,
}

/// The running calls that can make inner calls.
#[derive(Default)]
pub(crate) struct OuterCalls(Mutex<HashMap<CallId, ParentCall>>);

/// The entry of a running call. A drop removes the entry.
pub(crate) struct OuterCallEntry<'a> {
    calls: &'a OuterCalls,
    id: CallId,
}

impl Drop for OuterCallEntry<'_> {
    fn drop(&mut self) {
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl OuterCalls {
    pub(crate) fn find(&self, id: &CallId) -> Option<ParentCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Adds an entry for a call that is about to run. Returns `None` for sources without inner
    /// calls.
    pub(crate) fn enter(
        &self,
        context: &CallContext,
        tool: &Tool,
        session: &Session,
        approver: Option<&Arc<dyn Approver>>,
    ) -> Option<OuterCallEntry<'_>> {
        if !tool.provider.makes_calls() {
            return None;
        }
        let parent = ParentCall {
            session: session.clone(),
            caller: context.caller.clone(),
            phase: context.phase,
            trust: context.trust,
            read_only: !context.acts(),
            approver: approver.cloned(),
        };
        let id = context.id.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), parent);
        Some(OuterCallEntry { calls: self, id })
    }
}
