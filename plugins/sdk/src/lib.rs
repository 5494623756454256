//! The SDK for Toolhold plugins in Rust.
//!
//! A plugin is a list of tools, or of [filters](filter) for the output of tools. A tool is a type
//! that implements [`Tool`]. Its arguments are a struct; the JSON Schema and the decoding both come
//! from it. Its work is one function. [`plugin!`] makes a component of it:
//!
//! ```
//! use toolhold_sdk::{Call, Failure, Output, Promises, Tool};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! struct Echo;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Arguments {
//!     /// The text to return.
//!     text: String,
//! }
//!
//! impl Tool for Echo {
//!     const NAME: &str = "echo";
//!     const DESCRIPTION: &str = "Returns the text that it gets. Use it to check that tools work.";
//!     const PROMISES: Promises = Promises::READ_ONLY;
//!     type Arguments = Arguments;
//!
//!     fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
//!         Ok(Output::text(arguments.text))
//!     }
//! }
//!
//! toolhold_sdk::plugin! {
//!     name: "echo",
//!     description: "Returns what it gets",
//!     tools: [Echo],
//! }
//!
//! // A unit test needs no host.
//! let answer = toolhold_sdk::testing::call::<Echo>(serde_json::json!({ "text": "hello" }));
//! assert_eq!(answer.unwrap().joined_text(), "hello");
//! ```
//!
//! The crate is a `cdylib`, built with `cargo build --release --target wasm32-wasip2`.
//!
//! A plugin reads and writes files with [`std::fs`]. It sees only the files that the operator
//! granted.
//!
//! * [`search`] finds files and matches text at native speed.
//! * [`process`] runs programs that the operator granted.
//! * [`service`] has programs that outlive a call.
//! * [`http`] sends requests to servers that the operator granted.
//! * [`config`] has the plugin's own settings.
//! * [`store`] keeps keys and values between calls.
//! * [`index`] keeps documents between calls, and searches in them.
//! * [`embeddings`] has vectors of texts made, by a model that the operator chose.
//! * [`parts`] computes in pure components that the plugin brings along.
//! * [`schedule`] makes tasks at a later time.
//! * [`log`] writes to the operator's log.
//! * [`Call`] knows the time left and shows progress.

/// The code in the readme is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod call;
pub mod config;
mod content;
#[cfg(target_arch = "wasm32")]
mod contract;
pub mod embeddings;
mod environment;
mod failure;
pub mod filter;
#[cfg(target_arch = "wasm32")]
mod guest;
mod host_error;
pub mod http;
pub mod index;
pub mod log;
mod manifest;
mod output;
pub mod parts;
mod plugin;
pub mod process;
pub mod schedule;
pub mod schema;
pub mod search;
pub mod secrets;
pub mod service;
pub mod store;
pub mod testing;
mod tool;

pub use call::{Attachment, Call, Caller};
pub use content::{Body, Content};
pub use environment::working_directory;
pub use failure::{Category, Failure, MAX_MESSAGE};
pub use host_error::HostError;
pub use output::{Output, add_notice};
pub use tool::{Access, Preview, Promises, Subject, SubjectKind, Tool};

/// The items that [`plugin!`] expands to. Don't use them by hand: they change without notice.
#[doc(hidden)]
pub mod private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::contract::{bindings, export_component};
    #[cfg(target_arch = "wasm32")]
    pub use crate::filter::guest::{FilterComponent, bindings as filter_bindings, export_filters};
    #[cfg(target_arch = "wasm32")]
    pub use crate::guest::PluginComponent;
    pub use crate::manifest::{Capability, Limits, Manifest, render};
    pub use crate::plugin::{Plugin, ToolEntry, check};

    /// Counts one filter type. This also checks, in native builds too, that the type implements
    /// [`Filters`](crate::filter::Filters).
    pub const fn one<T: crate::filter::Filters>() -> usize {
        1
    }
}
