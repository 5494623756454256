//! Where requests may go: decisions on names and addresses, without a lookup in the DNS.
//!
//! A request is checked twice: first its [`Target`], before the name is resolved, then each address
//! that the name resolves to. The connection goes to an address that was checked.

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
