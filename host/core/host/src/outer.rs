//! Gives a call that another call makes the session, the origin and the approver of that outer
//! call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toolhold_catalogue::{CallContext, Tool};
use toolhold_contract::CallId;
use toolhold_policy::{Phase, Trust};

use crate::approvals::Approver;
use crate::session::Session;

/// The context for the calls that a running call makes.
#[derive(Clone)]
pub struct ParentCall {
    /// The session of the outer call.
    pub session: Session,
    /// The agent that made the outer call, unless it was the primary agent.
    pub caller: Option<String>,
    /// The part of an agent's work that made the outer call.
    pub phase: Option<Phase>,
    /// The trust in the origin of the outer call.
    pub trust: Trust,
    /// Whether the outer call only reads. In this case its inner calls may only read too.
    pub read_only: bool,
    /// How a person is asked.
    pub approver: Option<Arc<dyn Approver>>,
}

/// The running calls that make others.
#[derive(Default)]
pub(crate) struct OuterCalls(Mutex<HashMap<CallId, ParentCall>>);

/// An entry for a running call. Dropping the entry removes it.
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
    /// Finds a running call that makes other calls.
    pub(crate) fn find(&self, id: &CallId) -> Option<ParentCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Adds an entry for a call that is about to run, if its provider makes calls.
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
        let outer = ParentCall {
            session: session.clone(),
            caller: context.caller.clone(),
            phase: context.phase,
            trust: context.trust,
            read_only: !context.acts(),
            approver: approver.cloned(),
        };
        let id = context.id.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), outer);
        Some(OuterCallEntry { calls: self, id })
    }
}
