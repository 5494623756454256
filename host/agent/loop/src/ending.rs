//! How a task ended (done, gave up, denied, a limit, an error, interrupted), and the tokens and
//! costs of the task.

use serde::{Deserialize, Serialize};
use toolhold_core::config::{Amount, Prices};
use toolhold_models::TokenUsage;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// The kind.
    pub kind: EndKind,
    /// The reason of the end, for the person. Empty: the model's answer has the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The kind of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// The model answered without another call.
    #[default]
    Done,
    /// The model repeated itself, refused, or said nothing.
    GaveUp,
    /// Calls that the task needed were denied, and the model had no alternative.
    Denied,
    /// A limit of turns, time, tokens or cost was reached.
    Budget,
    /// The model can't be asked, or the session can't be written.
    Error,
    /// The person interrupted the task.
    Cancelled,
}

impl EndKind {
    /// How the task ended, for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::GaveUp => "gave up",
            Self::Denied => "denied",
            Self::Budget => "stopped at a limit",
            Self::Error => "failed",
            Self::Cancelled => "interrupted",
        }
    }
}

impl TaskEnd {
    /// An end with its reason.
    pub(crate) fn new(kind: EndKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// Tokens and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Answers of models.
    pub turns: u64,
    /// Input tokens, without the tokens that were read from a provider's cache or written to the
    /// cache.
    pub input: u64,
    /// Tokens that came from a provider's cache.
    pub cache_read: u64,
    /// Tokens that were written to a provider's cache.
    pub cache_written: u64,
    /// Tokens that models wrote.
    pub output: u64,
    /// The costs, by the prices of the configuration.
    pub cost: f64,
}

/// The most tokens of one answer. A server that reports a larger number is wrong.
const MAX_TOKENS: u64 = 1_000_000_000;

impl Spent {
    /// Adds the tokens and the cost of an answer.
    pub(crate) fn add(&mut self, usage: &TokenUsage, prices: &Prices) {
        let [input, cache_read, cache_written, output] =
            [usage.input, usage.cache_read, usage.cache_written, usage.output]
                .map(|tokens| tokens.unwrap_or_default().min(MAX_TOKENS));
        self.turns = self.turns.saturating_add(1);
        self.input = self.input.saturating_add(input);
        self.cache_read = self.cache_read.saturating_add(cache_read);
        self.cache_written = self.cache_written.saturating_add(cache_written);
        self.output = self.output.saturating_add(output);
        self.cost += cost(prices, [input, cache_read, cache_written, output]);
    }

    /// Adds other tokens and costs, such as those of a sub-agent.
    pub fn add_all(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.output = self.output.saturating_add(other.output);
        self.cost += other.cost;
    }

    /// All tokens.
    pub fn tokens(&self) -> u64 {
        let parts = [self.input, self.cache_read, self.cache_written, self.output];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// The tokens and costs since `earlier`.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            turns: self.turns.saturating_sub(earlier.turns),
            input: self.input.saturating_sub(earlier.input),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_written: self.cache_written.saturating_sub(earlier.cache_written),
            output: self.output.saturating_sub(earlier.output),
            cost: self.cost - earlier.cost,
        }
    }
}

/// The costs of an answer.
#[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
fn cost(prices: &Prices, parts: [u64; 4]) -> f64 {
    let read = price_or(prices.cache_read, prices.input);
    let write = price_or(prices.cache_write, prices.input);
    let each = [prices.input, read, write, prices.output];
    parts.iter().zip(each).map(|(tokens, price)| *tokens as f64 * price.get() / 1e6).sum()
}

fn price_or(price: Amount, usual: Amount) -> Amount {
    if price.get() > 0.0 { price } else { usual }
}
