//! Where requests may go: names and addresses, decided without asking a resolver.
//!
//! A request is looked at twice: its [`Target`] before its name is resolved, and each address that
//! the name turns out to have. The connection goes to an address that was looked at.

mod address;
mod pattern;
mod reach;
mod secret;
mod target;

pub use address::{Forbidden, forbidden};
pub use pattern::{HostPattern, PrivateHosts};
pub use reach::{Grant, Missing, Reach, ReachStatus};
pub use secret::{Placement, SecretHost, SecretRule};
pub use target::{Scheme, Target, TargetHost};
