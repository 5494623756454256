//! The Berth host: offers the tools of plugins and other providers, and governs each call of one.
//!
//! ```no_run
//! use berth_host::{Host, Request};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), berth_host::HostError> {
//! let host = Host::builder().plugin_file("word-count.wasm").build().await?;
//! let answer = host.call(Request::new("word-count__count", json!({ "path": "README.md" }))).await;
//! match answer.outcome {
//!     Ok(output) => println!("{}", output.joined_text()),
//!     Err(failure) => eprintln!("{}", failure.message),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A front end builds a [`Host`] with [`Host::builder`] and calls [`Host::call`]: there is no other way to a tool, so no front end can
//! leave out a check that another makes.

mod builder;
mod catalogue;
pub mod config;
pub mod doctor;
mod host;
mod journey;
mod plugins;
mod shape;
pub mod state;
mod subjects;
mod validate;

pub use berth_contract::{
    Access, Annotations, Body, BoxFuture, Call, CallId, CancellationToken, Category, Content, Definition, Denial, Events, Failure,
    HostError, NoEvents, Outcome, Output, Progress, Provider, Subject, SubjectKind, text,
};
pub use berth_runtime::{Builtin, Candidate, Limits, Manifest, Origin, PluginInfo, Request as CapabilityRequest, helper_hook};
pub use builder::HostBuilder;
pub use host::{Answer, Host, Request, Step};
pub use plugins::control::{Ask, HostPlugins, ask_hosts};
pub use plugins::{Approvals, Approved, Change, Difference, Inspected, PluginPlace, PluginState, ToolChange, Waiting, candidate};
