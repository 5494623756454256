//! Third-party plugins: their sources ([`Source`]), fetching ([`fetch`]) and publishing
//! ([`publish`]).
//!
//! A source is a file, a folder with a built component, a URL, or an artifact in an OCI registry.
//! Nothing is installed or run here. The result is the component with its digest, its exact source
//! and its signatures. Every digest and length that a server states is compared with its answer.
//! All requests are sent by `toolhold-net`.
//!
//! [`bundle`] is a file of plugins for machines without a network.

mod bounded;
pub mod bundle;
mod challenge;
mod credentials;
mod error;
mod fetch;
mod fetched;
mod files;
mod manifest;
mod oci;
mod publish;
mod reference;
mod source;

pub use credentials::Credentials;
pub use error::FetchError;
pub use fetch::{fetch, tags};
pub use fetched::{FetchOptions, Fetched, MAX_SIGNATURE, MAX_SIGNATURES, Tags};
pub use manifest::media_types;
pub use publish::{Publication, Published, publish};
pub use reference::{Reference, ReferenceError};
pub use source::Source;
