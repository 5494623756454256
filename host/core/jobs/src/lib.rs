//! Jobs: commands that continue after their call has its answer. A job belongs to the session of
//! its call, and ends with the session and with the host. All decisions on a command are made
//! before its job starts. This crate contains the limits of jobs, their stored output, and the
//! tools that follow a job. It also contains the shell state that the commands of a session share.
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
