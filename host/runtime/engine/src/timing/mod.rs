//! Which calls of plugins run, which wait, and when a running one is stopped.
//!
//! Nothing here knows what runs: [`Admission`] gives places to calls, and a [`CallWatch`] knows the
//! time and the processor time of one call.

mod admission;
mod stop;
mod watch;

pub use admission::{Admission, CallPlace};
pub use stop::{StopReason, busy, host_failed, less_or_more};
pub use watch::{CallBounds, CallWatch, Meter, WatchCheck};
