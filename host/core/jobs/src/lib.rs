//! Jobs: commands that go on when their call has its answer. They belong to the session of the
//! call, and end with it and with the host. Everything that decides on a command has decided before
//! a job begins; here are the bounds, the kept output, and the tools that follow a job. What the
//! commands of a session hand on to each other is here too.
//!
//! [`services`] decides which programs of plugins outlive a call.

mod job;
mod jobs;
mod ring;
mod servers;
pub mod services;
mod shell;
mod starter;
mod tools;

pub use job::{JobAbout, JobState, JobSummary};
pub use jobs::{JobBounds, JobObserver, JobSettings, Jobs, SessionJobs};
pub use shell::{CallShell, SessionShell};
pub use starter::{Finisher, JobStart};
pub use tools::JobTools;
