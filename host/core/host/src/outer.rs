//! Gives calls that are made in the course of another call its session, its origin and its way to
//! the person.

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
    /// Its session.
    pub session: Session,
    /// The agent that made it, unless it was the primary one.
    pub caller: Option<String>,
    /// The part of an agent's work that made it.
    pub phase: Option<Phase>,
    /// How far its origin is trusted.
    pub trust: Trust,
    /// Whether it only reads. Then nothing that it makes may act.
    pub read_only: bool,
    /// How a person is asked.
    pub approver: Option<Arc<dyn Approver>>,
}

/// The running calls that make others.
#[derive(Default)]
pub(crate) struct OuterCalls(Mutex<HashMap<CallId, ParentCall>>);

/// A running call among them, until it is dropped.
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

    /// Enters a call that is about to run, if its provider makes calls.
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
