//! The requests of Toolhold itself: to registries, authorization servers and other origins that the
//! operator configured or named. The rest of this crate sends the requests of plugins.
//!
//! All of these requests use an [`OutboundClient`]. Before each hop, the client checks the host and
//! each address of the host's name. Only the origin that the operator named may be private. The
//! client follows redirects itself, so that each hop is checked like the first one. Credentials are
//! only sent to their own origin. Each hop has a record.

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
