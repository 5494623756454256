//! Toolhold's own requests: to registries, authorization servers and other origins that the
//! operator configured or named. All other modules of this crate send the requests of plugins.
//!
//! An [`OutboundClient`] checks the host and each address of each request and each redirect. Only
//! an origin that the operator named may be private. Credentials are sent only to their own origin.
//! Each request and each redirect has a record.

mod client;
mod door;
mod error;
mod request;
mod response;
mod rules;

pub use crate::own_requests::{DoorRecord, Recorder};
pub use crate::{Network, Proxy, Resolve};
pub use door::{MAX_REDIRECTS, OutboundClient};
pub use error::{OutboundError, OutboundRemedy};
pub use request::{Credential, Limits, Request};
pub use response::Response;
pub use rules::{check_url, origin, same_origin};
