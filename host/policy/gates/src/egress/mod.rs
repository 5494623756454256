//! Decides on the names and addresses of requests, without a DNS lookup.
//!
//! A request is checked twice. Its [`Target`] is checked before the name is resolved, and then each
//! address of the name is checked. The connection uses an address that was checked.

mod address;
mod pattern;
mod reach;
mod secret;
mod target;

pub use address::{Forbidden, forbidden};
pub use pattern::{HostPattern, HostPatternError, PrivateHosts, PrivateHostsError};
pub use reach::{Grant, HostGrantError, Missing, Reach, ReachStatus};
pub use secret::{Placement, SecretHost, SecretHostError, SecretMismatch, SecretRule};
pub use target::{Scheme, Target, TargetError, TargetHost};
