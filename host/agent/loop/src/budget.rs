//! The limits of turns, tokens and time of a task, which its agent shares with those that it hands
//! work to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_core::config::Prices;
use toolhold_models::TokenUsage;

use crate::ending::Spent;
use crate::settings::AgentSettings;

/// The limits of a task, and what was taken of them so far.
#[derive(Debug)]
pub(crate) struct TaskBudget {
    max_turns: u64,
    max_tokens: u64,
    max_cost: f64,
    taken: Mutex<Spent>,
    /// Models that are asked right now.
    asked: AtomicU64,
}

/// A model that is asked, until it is dropped.
pub(crate) struct AskedModel<'a>(&'a TaskBudget);

impl Drop for AskedModel<'_> {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TaskBudget {
    /// The budget of a task that begins.
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        Self {
            max_turns: settings.max_turns,
            max_tokens: settings.max_tokens,
            max_cost: settings.max_cost,
            taken: Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// Reserves an answer of a model. `None`: with the answers that other agents wait for, there
    /// would be more than the limit.
    pub(crate) fn ask(&self) -> Option<AskedModel<'_>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.asked.load(Ordering::Relaxed);
        if taken.turns.saturating_add(asked) >= self.max_turns {
            return None;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(AskedModel(self))
    }

    /// Counts an answer of a model.
    pub(crate) fn take(&self, usage: &TokenUsage, prices: &Prices) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).add(usage, prices);
    }

    /// The part of the tokens that is used, from 0 to 1. 0 without a limit.
    pub(crate) fn used(&self) -> f64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).tokens();
        if self.max_tokens == 0 { 0.0 } else { taken as f64 / self.max_tokens as f64 }
    }

    /// The reason why no model is asked any more.
    pub(crate) fn all_turns(&self) -> String {
        format!(
            "the model has answered {} times, the limit: `max_turns` in [agent]",
            self.max_turns
        )
    }

    /// The limit that is reached.
    pub(crate) fn reached(&self) -> Option<String> {
        let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.turns >= self.max_turns {
            return Some(self.all_turns());
        }
        let (what, key) = if self.max_tokens > 0 && taken.tokens() >= self.max_tokens {
            (format!("the task has used {} tokens", taken.tokens()), "max_tokens")
        } else if self.max_cost > 0.0 && taken.cost >= self.max_cost {
            (format!("the task has cost {:.4}", taken.cost), "max_cost")
        } else {
            return None;
        };
        Some(format!("{what}, the limit: `{key}` in [agent]"))
    }
}

/// The time of a task. It stands still while a person is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskClock {
    began: Instant,
    max: Duration,
    /// How long a person had been asked before.
    waited: Duration,
}

impl TaskClock {
    /// The clock of a task that begins now. `waited`: how long a person has been asked so far.
    pub(crate) fn start(max: Duration, waited: Duration) -> Self {
        Self { began: Instant::now(), max, waited }
    }

    /// The time that is left. `None`: the time is over. `waited`: how long a person has been asked
    /// so far.
    pub(crate) fn left(&self, waited: Duration) -> Option<Duration> {
        let waited = waited.saturating_sub(self.waited);
        let used = self.began.elapsed().saturating_sub(waited);
        self.max.checked_sub(used).filter(|left| !left.is_zero())
    }
}
