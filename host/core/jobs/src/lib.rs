//! Jobs: commands that continue after their call has ended.
//!
//! A job belongs to the session of its call, and ends with the session and with the host. All
//! decisions on a command are made before its job starts. This crate has the limits of jobs, their
//! stored output, the tools for jobs, and the shell state that commands of a session share.
//!
//! [`services`] keeps programs of plugins running after a call.

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
