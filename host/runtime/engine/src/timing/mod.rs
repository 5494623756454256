//! Decides when calls of plugins start and when they are stopped.
//!
//! [`Admission`] gives slots to calls. A [`CallWatch`] measures elapsed and processor time of a
//! call.

mod admission;
mod stop;
mod watch;

pub use admission::{Admission, CallPlace};
pub use stop::{StopReason, busy, host_failed, limit_suggestion};
pub use watch::{CallBounds, CallWatch, Meter, WatchCheck};
