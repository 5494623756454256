//! The limits and switches of an agent, from the configuration.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_core::config::{Prices, ToolFilter, Utility};
use toolhold_models::ThinkingLevel;

/// The settings of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// The name of the provider in `[providers]`.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The model that summarises.
    pub summary_model: String,
    /// The system text, which stays the same for the whole session.
    pub system: String,
    /// The size of the model's context in tokens, including the answer.
    pub context_tokens: u64,
    /// The most tokens of one answer.
    pub max_output: u32,
    /// How much the model may think.
    pub thinking: ThinkingLevel,
    /// Whether the model makes native calls. Other models write calls as text.
    pub native_tools: bool,
    /// Whether the provider is on this machine.
    pub is_local: bool,
    /// Whether an answer that is only JSON may be a call.
    pub lenient_text: bool,
    /// The least complexity of a tool that gets a field for thoughts. `None` if no tool gets one.
    pub thoughts: Option<f64>,
    /// The settings for selecting the offered tools.
    #[serde(default)]
    pub tool_filter: Box<ToolFilter>,
    /// The settings for delaying calls that help little.
    #[serde(default)]
    pub utility: Box<Utility>,
    /// Whether results that were cut are summarised.
    pub summarize_output: bool,
    /// Whether warnings about made-up paths are shown.
    pub hallucination_detection: bool,
    /// The most answers of the model in one task.
    pub max_turns: u64,
    /// The time limit of one task.
    pub max_time: Duration,
    /// The most tokens of one task, or 0 for no limit.
    pub max_tokens: u64,
    /// The maximum cost of one task, or 0 for no limit.
    pub max_cost: f64,
    /// The prices of a million tokens.
    pub prices: Prices,
    /// The prices of the model that summarises.
    pub summary_prices: Prices,
    /// The model that corrects arguments, or `None` if arguments aren't corrected.
    pub corrector: Option<Box<CorrectorSettings>>,
}

/// A model that corrects the arguments of calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CorrectorSettings {
    /// The name of the provider in `[providers]`.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Whether the model makes native calls.
    pub native_tools: bool,
    /// The most tokens of one answer.
    pub max_output: u32,
    /// The time limit of one correction.
    pub budget: Duration,
    /// The prices of a million tokens.
    pub prices: Prices,
}
