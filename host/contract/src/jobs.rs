//! The interface that starts a job: a command that continues after its call.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::{OutputRecorder, SessionNetwork};

/// Starts jobs: commands that continue after their call.
pub trait JobStarter: fmt::Debug + Send + Sync + 'static {
    /// Returns the network that the session's jobs and commands share.
    fn network(&self) -> &SessionNetwork;

    /// Reserves a slot for a job that runs for `time`. With `None`, the job gets the maximum time.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no slot, and the remedy.
    fn reserve(&self, time: Option<Duration>) -> Result<Box<dyn JobPlace>, JobPlaceError>;
}

/// The reason why there is no slot for a job, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum JobPlaceError {
    /// The call has already started a job.
    #[error("the call has already started a job; the limit is one job for each call")]
    Started,
    /// No random ID can be created for the job.
    #[error("the system has no random numbers: {0}")]
    Id(#[source] std::io::Error),
    /// The session has reached its limit of running jobs.
    #[error(
        "{running} jobs of this session are running; the limit is {limit} ({key}). Stop a job with \
         job_stop, or wait for the end of a job with job_output"
    )]
    Session {
        /// Running jobs of the session.
        running: usize,
        /// The limit.
        limit: usize,
        /// Where the configuration sets the limit.
        key: String,
    },
    /// All sessions together have reached the limit of running jobs.
    #[error("{0} jobs of all sessions are running, the limit. Try again when a job has ended")]
    Host(usize),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Ended,
}

/// The slot of a job. Dropping it frees the slot.
pub trait JobPlace: Send + 'static {
    /// Returns the job's ID.
    fn id(&self) -> &str;

    /// Returns the time at which the job must end.
    fn end(&self) -> Instant;

    /// Returns a token that is cancelled when the job must end.
    fn cancel(&self) -> CancellationToken;

    /// Returns the recorder for the output of the job's command.
    fn output(&self) -> Arc<dyn OutputRecorder>;

    /// Waits for the end of the command on a separate thread. `process` is the parent of all
    /// processes of the command.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread can't be started. The command is then ended.
    fn run(self: Box<Self>, process: i32, command: JobCommand) -> std::io::Result<()>;
}

/// A running command of a job. Calling the function waits for the end of the command. Dropping the
/// function ends the command.
pub type JobCommand = Box<dyn FnOnce() -> JobEnd + Send>;

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// The exit code of the command, or 128 plus the signal that ended it. `None` means that
    /// Toolhold ended the command.
    pub exit_code: Option<i32>,
    /// The reason for the end: `exited`, `timeout`, `cancelled`, `memory`, `processes`,
    /// `processor`, `output`.
    pub ending: &'static str,
}
