//! The agents that may delegate work now, and the number of sub-agents that may run at the same
//! time.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::budget::{TaskBudget, TaskClock};
use crate::environment::AgentEnvironment;
use crate::record::Delegated;
use crate::settings::AgentSettings;

/// The data of a working agent that its sub-agents use.
pub(crate) struct ParentAgent {
    pub(crate) environment: Arc<AgentEnvironment>,
    pub(crate) settings: AgentSettings,
    pub(crate) tools: BTreeSet<String>,
    pub(crate) budget: Arc<TaskBudget>,
    pub(crate) clock: TaskClock,
    /// Each running sub-agent holds one permit.
    pub(crate) permits: Arc<Semaphore>,
    finished: Mutex<Vec<Delegated>>,
}

impl ParentAgent {
    pub(crate) fn new(
        environment: Arc<AgentEnvironment>,
        settings: AgentSettings,
        tools: BTreeSet<String>,
        budget: Arc<TaskBudget>,
        clock: TaskClock,
        permits: Arc<Semaphore>,
    ) -> Self {
        Self { environment, settings, tools, budget, clock, permits, finished: Mutex::default() }
    }

    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.clock.left(self.environment.waited())
    }

    pub(crate) fn finish(&self, delegated: Delegated) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(delegated);
    }

    /// Returns the finished work of sub-agents since the last call of this function.
    pub(crate) fn take_finished(&self) -> Vec<Delegated> {
        std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The name of a session, and the name of an agent in it. The name is `None` for the primary agent.
type Key = (String, Option<String>);

pub(crate) struct DelegateRegistry {
    /// The number of sub-agents that may work for one agent at the same time.
    at_once: usize,
    /// The permits of clients, which call `delegate` without an agent of their own, by session.
    clients: Mutex<HashMap<String, Weak<Semaphore>>>,
    agents: Mutex<HashMap<Key, Arc<ParentAgent>>>,
}

/// The registry entry of an agent. Dropping this value removes the entry.
pub(crate) struct RegistryEntry {
    registry: Arc<DelegateRegistry>,
    key: Key,
}

impl DelegateRegistry {
    pub(crate) fn new(at_once: u64) -> Self {
        let at_once = usize::try_from(at_once).unwrap_or(1);
        Self { at_once, clients: Mutex::default(), agents: Mutex::default() }
    }

    pub(crate) fn permits(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.at_once))
    }

    /// Returns the semaphore that all running calls of a client share. The semaphore is dropped
    /// with the client's last call.
    pub(crate) fn permits_of_client(&self, session: &str) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|_, permits| permits.strong_count() > 0);
        if let Some(permits) = clients.get(session).and_then(Weak::upgrade) {
            return permits;
        }
        let permits = self.permits();
        clients.insert(session.to_owned(), Arc::downgrade(&permits));
        permits
    }

    pub(crate) fn register(self: &Arc<Self>, delegator: &Arc<ParentAgent>) -> RegistryEntry {
        let AgentEnvironment { session, caller, .. } = &*delegator.environment;
        let key = (session.name().to_string(), caller.clone());
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.insert(key.clone(), Arc::clone(delegator));
        RegistryEntry { registry: Arc::clone(self), key }
    }

    pub(crate) fn find(&self, session: &str, caller: Option<&str>) -> Option<Arc<ParentAgent>> {
        let key = (session.to_owned(), caller.map(str::to_owned));
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        self.registry.agents.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
