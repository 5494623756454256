//! The limits of turns, tokens and time of a task. An agent shares these limits with its
//! sub-agents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_core::config::Prices;
use toolhold_core::text::counted;
use toolhold_models::TokenUsage;

use crate::ending::Spent;
use crate::settings::AgentSettings;

/// The name of the limit of turns in messages, if the configuration sets the limit.
pub(crate) const CONFIGURED_TURNS: &str = "`max_turns` in [agent]";

#[derive(Debug)]
pub(crate) struct TaskBudget {
    max_turns: u64,
    /// The key or the option that sets `max_turns`, for messages.
    turns_setting: &'static str,
    max_tokens: u64,
    max_cost: f64,
    spent: Mutex<Spent>,
    /// The number of requests that have no answer yet.
    open_requests: AtomicU64,
}

/// An open request to a model. The request ends when this value is dropped.
pub(crate) struct ReservedAnswer<'a>(&'a TaskBudget);

impl Drop for ReservedAnswer<'_> {
    fn drop(&mut self) {
        self.0.open_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TaskBudget {
    pub(crate) fn new(settings: &AgentSettings, turns_setting: &'static str) -> Self {
        Self {
            max_turns: settings.max_turns,
            turns_setting,
            max_tokens: settings.max_tokens,
            max_cost: settings.max_cost,
            spent: Mutex::default(),
            open_requests: AtomicU64::new(0),
        }
    }

    /// Reserves one answer of a model until the returned value is dropped. Returns `None` if used
    /// and reserved answers together reach the limit.
    pub(crate) fn reserve_answer(&self) -> Option<ReservedAnswer<'_>> {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let open_requests = self.open_requests.load(Ordering::Relaxed);
        if spent.turns.saturating_add(open_requests) >= self.max_turns {
            return None;
        }
        self.open_requests.fetch_add(1, Ordering::Relaxed);
        Some(ReservedAnswer(self))
    }

    pub(crate) fn spend(&self, usage: &TokenUsage, prices: &Prices) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).add(usage, prices);
    }

    /// Returns the used part of the tokens, from 0 to 1. Returns 0 if there is no limit.
    pub(crate) fn used(&self) -> f64 {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner).tokens();
        if self.max_tokens == 0 { 0.0 } else { spent as f64 / self.max_tokens as f64 }
    }

    pub(crate) fn turns_message(&self) -> String {
        let times = counted(self.max_turns, "time");
        format!("the model has answered {times}, the limit: {}", self.turns_setting)
    }

    /// Returns a message about the first reached limit: answers, tokens or costs. A limit of 0
    /// tokens or costs means no limit.
    pub(crate) fn reached_limit(&self) -> Option<String> {
        let spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.turns >= self.max_turns {
            return Some(self.turns_message());
        }
        if self.max_tokens > 0 && spent.tokens() >= self.max_tokens {
            let tokens = spent.tokens();
            return Some(format!(
                "the task has used {tokens} tokens, the limit (`max_tokens` in [agent])"
            ));
        }
        if self.max_cost > 0.0 && spent.cost >= self.max_cost {
            let cost = spent.cost;
            return Some(format!("the task has cost {cost:.4}, the limit (`max_cost` in [agent])"));
        }
        None
    }
}

/// The time of a task. The clock stops while a person is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskClock {
    began: Instant,
    max: Duration,
    /// The total time of questions to people at the start of the task.
    waited: Duration,
}

impl TaskClock {
    /// Starts the clock. `waited` is the total time of questions to people so far, before the task.
    pub(crate) fn start(max: Duration, waited: Duration) -> Self {
        Self { began: Instant::now(), max, waited }
    }

    /// Returns the time that is left, or `None` if no time is left. `waited` is the total time of
    /// questions to people so far. Questions during the task don't use up its time.
    pub(crate) fn left(&self, waited: Duration) -> Option<Duration> {
        let waited_in_task = waited.saturating_sub(self.waited);
        let used = self.began.elapsed().saturating_sub(waited_in_task);
        let time_left = self.max.saturating_sub(used);
        if time_left.is_zero() { None } else { Some(time_left) }
    }
}
