//! The limits of turns, tokens and time of a task. An agent shares these limits with its
//! sub-agents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_core::config::Prices;
use toolhold_models::TokenUsage;

use crate::ending::Spent;
use crate::settings::AgentSettings;

/// The limits of a task, and the amounts that are used so far.
#[derive(Debug)]
pub(crate) struct TaskBudget {
    max_turns: u64,
    max_tokens: u64,
    max_cost: f64,
    taken: Mutex<Spent>,
    /// Models that are asked right now.
    asked: AtomicU64,
}

/// A request to a model that has no answer yet. The request ends when this value is dropped.
pub(crate) struct AskedModel<'a>(&'a TaskBudget);

impl Drop for AskedModel<'_> {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TaskBudget {
    /// Makes the budget of a task that begins.
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        Self {
            max_turns: settings.max_turns,
            max_tokens: settings.max_tokens,
            max_cost: settings.max_cost,
            taken: Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// Reserves an answer of a model. Returns `None` if the number of answers would exceed the
    /// limit. This number includes the answers that other agents are waiting for.
    pub(crate) fn ask(&self) -> Option<AskedModel<'_>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.asked.load(Ordering::Relaxed);
        if taken.turns.saturating_add(asked) >= self.max_turns {
            return None;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(AskedModel(self))
    }

    /// Adds the tokens and the cost of an answer.
    pub(crate) fn take(&self, usage: &TokenUsage, prices: &Prices) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).add(usage, prices);
    }

    /// Returns the part of the tokens that is used, from 0 to 1. Without a limit, the part is 0.
    pub(crate) fn used(&self) -> f64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).tokens();
        if self.max_tokens == 0 { 0.0 } else { taken as f64 / self.max_tokens as f64 }
    }

    /// Returns the message that the model has answered as often as the limit allows.
    pub(crate) fn all_turns(&self) -> String {
        format!(
            "the model has answered {} times, the limit: `max_turns` in [agent]",
            self.max_turns
        )
    }

    /// Returns a message about the limit that is reached, or `None` if no limit is reached.
    pub(crate) fn reached(&self) -> Option<String> {
        let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.turns >= self.max_turns {
            return Some(self.all_turns());
        }
        if self.max_tokens > 0 && taken.tokens() >= self.max_tokens {
            let tokens = taken.tokens();
            return Some(format!(
                "the task has used {tokens} tokens, the limit: `max_tokens` in [agent]"
            ));
        }
        if self.max_cost > 0.0 && taken.cost >= self.max_cost {
            let cost = taken.cost;
            return Some(format!("the task has cost {cost:.4}, the limit: `max_cost` in [agent]"));
        }
        None
    }
}

/// The time of a task. The clock stops while a person is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskClock {
    began: Instant,
    max: Duration,
    /// How long a person had been asked before.
    waited: Duration,
}

impl TaskClock {
    /// Starts the clock of a task. `waited`: how long people have been asked so far.
    pub(crate) fn start(max: Duration, waited: Duration) -> Self {
        Self { began: Instant::now(), max, waited }
    }

    /// Returns the time that is left, or `None` if no time is left. `waited`: how long people have
    /// been asked so far.
    pub(crate) fn left(&self, waited: Duration) -> Option<Duration> {
        let waited_in_task = waited.saturating_sub(self.waited);
        let used = self.began.elapsed().saturating_sub(waited_in_task);
        let left = self.max.saturating_sub(used);
        if left.is_zero() { None } else { Some(left) }
    }
}
