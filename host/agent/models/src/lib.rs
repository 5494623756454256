//! Asks models of providers. A [`Turn`] and its [`ModelAnswer`] don't depend on the provider.
//! [`WireFormat`] has the four common formats, each as two pure functions. One driver asks models
//! in all formats.
//!
//! [`choice`] chooses the configured model.

mod assembly;
mod body;
pub mod choice;
mod driver;
mod embed;
mod endpoint;
mod explain;
mod failure;
mod guard;
mod list;
mod merged;
mod raw;
mod retry;
mod split;
mod turn;
mod wire;
mod wire_types;

pub use driver::{AnswerTimes, ModelClient};
pub use endpoint::{ModelEndpoint, ModelKey, ModelKeyError};
pub use failure::{ModelError, ModelErrorKind};
pub use list::ListedModel;
pub use raw::RawJson;
pub use retry::ModelRetries;
pub use turn::{
    Block, CallResult, FinishReason, ModelAnswer, ModelCall, ModelEvent, ModelTool, OutputSchema,
    Part, ThinkingLevel, TokenUsage, Turn, TurnMessage,
};
pub use wire::Decoder;
pub use wire_types::{
    Caching, ServerError, WireCaps, WireError, WireFormat, WireOptions, WireRequest,
};
