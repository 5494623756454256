//! The requests of Toolhold itself: to registries, authorization servers and every other place that
//! the operator configured or named. The rest of this crate sends those of plugins.
//!
//! All of them leave by a [`OutboundClient`]. Before each hop it decides on the host, and on each address
//! that a name has: only the origin that the operator named may be private. Redirects are followed
//! here, so each is decided on like the first hop; credentials go to their own origin alone. Each
//! hop has a record.

mod client;
mod door;
mod error;
mod record;
mod request;
mod response;
mod rules;

pub use crate::{Network, Proxy, Resolve};
pub use door::{MAX_REDIRECTS, OutboundClient};
pub use error::{OutboundError, OutboundRemedy};
pub use record::{DoorRecord, Recorder};
pub use request::{Credential, Limits, Request};
pub use response::Response;
pub use rules::{check_url, origin, same_origin};
