//! Decides on the names and addresses of requests, without a DNS lookup.
//!
//! A request is checked twice: its [`Target`] before the name is resolved, and then each address of
//! the name. The connection uses an address that was checked.

mod address;
mod path;
mod pattern;
mod program_target;
mod reach;
mod secret;
mod target;

pub use address::{Forbidden, forbidden};
pub use path::{PathPattern, PathPatternError};
pub use pattern::{HostPattern, HostPatternError, PrivateHosts, PrivateHostsError};
pub use program_target::ProgramTarget;
pub use reach::{Grant, HostGrantError, JOB, Missing, Reach, ReachStatus};
pub use secret::{Placement, SecretHost, SecretHostError, SecretMismatch, SecretRule};
pub use target::{Scheme, Target, TargetError, TargetHost};
