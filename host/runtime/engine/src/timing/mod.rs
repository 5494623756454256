//! Decides which calls of plugins run, which calls wait, and when a running call is stopped.
//!
//! This module is independent of the guest's code: [`Admission`] gives places to calls, and a
//! [`CallWatch`] measures the time and the processor time of one call.

mod admission;
mod stop;
mod watch;

pub use admission::{Admission, CallPlace};
pub use stop::{StopReason, busy, host_failed, less_or_more};
pub use watch::{CallBounds, CallWatch, Meter, WatchCheck};
