//! The limits and switches of an agent, as the configuration sets them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_core::config::{Prices, ToolFilter, Utility};
use toolhold_models::ThinkingLevel;

/// The settings of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// The table of `[providers]` whose model is asked.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The model that summarises.
    pub summary_model: String,
    /// The system text. It stays as it is for the whole session.
    pub system: String,
    /// Tokens that the model reads at once, its answer included.
    pub context_tokens: u64,
    /// The most tokens that the model may write at once.
    pub max_output: u32,
    /// How much the model thinks.
    pub thinking: ThinkingLevel,
    /// Whether the model calls tools by the provider's own means.
    pub native_tools: bool,
    /// Whether the provider is on this machine.
    pub is_local: bool,
    /// Whether a JSON text that is a whole answer may be a call.
    pub lenient_text: bool,
    /// The complexity from which on a tool gets a field for thoughts. `None`: no tool gets the
    /// field.
    pub thoughts: Option<f64>,
    /// Which tools are offered.
    #[serde(default)]
    pub tool_filter: Box<ToolFilter>,
    /// Which calls are put off.
    #[serde(default)]
    pub utility: Box<Utility>,
    /// Whether results that were cut are summarised.
    pub summarize_output: bool,
    /// Whether paths that the model may have made up are pointed out.
    pub hallucination_detection: bool,
    /// Answers of the model in one task.
    pub max_turns: u64,
    /// The time of one task.
    pub max_time: Duration,
    /// Tokens of one task. 0: any number.
    pub max_tokens: u64,
    /// The cost of one task. 0: any.
    pub max_cost: f64,
    /// The prices of a million tokens.
    pub prices: Prices,
    /// The prices of the model that summarises.
    pub summary_prices: Prices,
    /// The model that corrects arguments. `None`: arguments aren't corrected.
    pub corrector: Option<Box<CorrectorSettings>>,
}

/// A model that corrects the arguments of calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CorrectorSettings {
    /// Its table of `[providers]`.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Whether it calls tools by the provider's own means.
    pub native_tools: bool,
    /// The most tokens that it may write.
    pub max_output: u32,
    /// The time for one correction.
    pub budget: Duration,
    /// The prices of a million tokens.
    pub prices: Prices,
}
