//! What a Berth plugin in Rust needs.
//!
//! A plugin is a list of tools, or of filters for their output, for which see [`filter`]. A tool is
//! a type that implements [`Tool`]: its arguments are a struct, from which the JSON Schema and the
//! decoding both follow, and its work is one function. [`plugin!`] makes a component of it:
//!
//! ```
//! use berth_sdk::{Annotations, Call, Failure, Output, Tool};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! struct Echo;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Arguments {
//!     /// What to say back.
//!     text: String,
//! }
//!
//! impl Tool for Echo {
//!     const NAME: &str = "echo";
//!     const DESCRIPTION: &str = "Says back what it is told. Use it to see whether tools work.";
//!     const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
//!     type Arguments = Arguments;
//!
//!     fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
//!         Ok(Output::text(arguments.text))
//!     }
//! }
//!
//! berth_sdk::plugin! {
//!     name: "echo",
//!     description: "Says things back",
//!     tools: [Echo],
//! }
//!
//! // A unit test needs no host.
//! let answer = berth_sdk::testing::call::<Echo>(serde_json::json!({ "text": "hello" }));
//! assert_eq!(answer.unwrap().joined_text(), "hello");
//! ```
//!
//! The crate is a `cdylib`, built with `cargo build --release --target wasm32-wasip2`.
//!
//! Files are read and written with [`std::fs`]: what the operator granted is there, the rest is
//! not. [`search`] walks and matches at native speed, [`process`] runs programs that the operator
//! granted, [`http`] asks the servers that the operator granted, [`log`] writes to the operator's
//! log, [`Call`] knows the time left and shows progress.

mod call;
mod environment;
mod failure;
pub mod filter;
#[cfg(target_arch = "wasm32")]
mod guest;
pub mod http;
pub mod log;
mod manifest;
mod output;
mod plugin;
pub mod process;
pub mod schema;
pub mod search;
pub mod secrets;
pub mod testing;
mod tool;

pub use call::{Attachment, Call};
pub use environment::working_directory;
pub use failure::{Category, Failure, MAX_MESSAGE};
pub use output::{Body, Content, Output};
pub use tool::{Access, Annotations, Preview, Subject, SubjectKind, Tool};

/// What [`plugin!`] expands to. Not for use by hand: it changes without notice.
#[doc(hidden)]
pub mod private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::filter::guest::{FilterComponent, bindings as filter_bindings, export_filters};
    #[cfg(target_arch = "wasm32")]
    pub use crate::guest::{PluginComponent, bindings, export_component};
    pub use crate::manifest::{Capability, Limits, Manifest, render};
    pub use crate::plugin::{Plugin, ToolEntry, check, one};
}
