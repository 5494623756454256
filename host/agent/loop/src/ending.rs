//! How a task ended, and the tokens and costs of the task.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toolhold_core::config::{Amount, Prices};
use toolhold_models::TokenUsage;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// The kind of end.
    pub kind: EndKind,
    /// The reason, for the person. Empty if the model's answer gives the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The IDs of the questions about denied calls that `toolhold approvals` can still answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
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
    /// Returns the kind as a phrase for people.
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
    pub(crate) fn new(kind: EndKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), pending: Vec::new() }
    }
}

/// Tokens and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The number of answers of models.
    pub turns: u64,
    /// Input tokens, except tokens that were read from or written to a provider's cache.
    pub input: u64,
    /// Tokens that were read from a provider's cache.
    pub cache_read: u64,
    /// Tokens that were written to a provider's cache.
    pub cache_written: u64,
    /// Tokens that models wrote.
    pub output: u64,
    /// The costs at the configured prices. 0 is serialised as null, because 0 means that no prices
    /// are configured.
    #[serde(serialize_with = "serialize_cost", deserialize_with = "deserialize_cost")]
    pub cost: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn serialize_cost<S: Serializer>(cost: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *cost > 0.0 { serializer.serialize_some(cost) } else { serializer.serialize_none() }
}

fn deserialize_cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or_default())
}

/// Larger counts of an answer are cut to this number, because servers may report wrong counts.
const MAX_TOKENS: u64 = 1_000_000_000;

impl Spent {
    /// Adds the tokens and the costs of one answer. A count that the server leaves out is 0.
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

    /// Adds the tokens and costs in `other`, for example of a sub-agent.
    pub fn add_all(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.output = self.output.saturating_add(other.output);
        self.cost += other.cost;
    }

    /// Returns the number of all tokens.
    pub fn tokens(&self) -> u64 {
        let parts = [self.input, self.cache_read, self.cache_written, self.output];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the difference from an earlier state.
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

#[expect(clippy::cast_precision_loss, reason = "no answer has 2^53 tokens")]
fn cost(prices: &Prices, parts: [u64; 4]) -> f64 {
    let read = price_or(prices.cache_read, prices.input);
    let write = price_or(prices.cache_write, prices.input);
    let each = [prices.input, read, write, prices.output];
    parts.iter().zip(each).map(|(tokens, price)| *tokens as f64 * price.get() / 1e6).sum()
}

/// Returns `price`, or the usual price if `price` isn't configured.
fn price_or(price: Amount, usual: Amount) -> Amount {
    if price.get() > 0.0 { price } else { usual }
}
