//! The interface that starts a job: a command that goes on after its call.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::{OutputRecorder, SessionNetwork};

/// Starts jobs: commands that go on when their call has its answer. A call has one only if it may
/// start jobs.
pub trait JobStarter: fmt::Debug + Send + Sync + 'static {
    /// Returns the network that the session's jobs and commands share, once a job needs it.
    fn network(&self) -> &SessionNetwork;

    /// Reserves a place for a job that runs for `time`. Without a `time`, the job runs as long as a
    /// job may.
    ///
    /// # Errors
    ///
    /// Why there is no place, and what to do.
    fn reserve(&self, time: Option<Duration>) -> Result<Box<dyn JobPlace>, JobPlaceError>;
}

/// A reason why there is no place for a job, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum JobPlaceError {
    /// The call has started a job.
    #[error("a call can start one job, and has started it")]
    Started,
    /// There is no ID for it.
    #[error("there are no random numbers: {0}")]
    Id(#[source] std::io::Error),
    /// The session has its most running jobs.
    #[error(
        "{running} jobs of this session run; the limit is {limit} ({key}). Stop one with job_stop, or wait for its end with job_output"
    )]
    Session {
        /// Running jobs of the session.
        running: usize,
        /// The limit.
        limit: usize,
        /// Where the configuration sets the limit.
        key: String,
    },
    /// All sessions together have their most running jobs.
    #[error("{0} jobs of all sessions run, which is the limit. Try again when one has ended")]
    Host(usize),
    /// The host ends.
    #[error("the host ends")]
    Ended,
}

/// The place of a job. If it is dropped, the place is free again.
pub trait JobPlace: Send + 'static {
    /// Returns the job's ID.
    fn id(&self) -> &str;

    /// Returns the time at which the job has to end.
    fn end(&self) -> Instant;

    /// Returns a token that is cancelled when the job has to end.
    fn cancel(&self) -> CancellationToken;

    /// Returns the recorder of the output of the job's command.
    fn output(&self) -> Arc<dyn OutputRecorder>;

    /// Waits for the end of the job's command, on a thread of its own. `process` is the parent of
    /// all processes of the command.
    ///
    /// # Errors
    ///
    /// The thread can't be started. The command has ended then.
    fn run(self: Box<Self>, process: i32, command: JobCommand) -> std::io::Result<()>;
}

/// A running command of a job: waits for its end. If it is dropped, the command ends.
pub type JobCommand = Box<dyn FnOnce() -> JobEnd + Send>;

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// The exit code of its command; 128 plus the signal if a signal ended it. `None`: Toolhold
    /// ended it.
    pub exit_code: Option<i32>,
    /// Why it ended: `exited`, `timeout`, `cancelled`, `memory`, `processes`, `processor`,
    /// `output`.
    pub ending: &'static str,
}
