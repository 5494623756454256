//! The interface that starts a job: a command that goes on after its call.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::{OutputRecorder, SessionNetwork};

/// Starts jobs: commands that go on when their call has its answer. A call has one only if it may
/// start jobs.
pub trait JobStarter: fmt::Debug + Send + Sync + 'static {
    /// The network that the session's jobs and commands share, once a job needs it.
    fn network(&self) -> &SessionNetwork;

    /// Reserves a place for a job that runs for `time`; `None`: for as long as a job may.
    ///
    /// # Errors
    ///
    /// Why there is no place, and what to do.
    fn reserve(&self, time: Option<Duration>) -> Result<Box<dyn JobPlace>, String>;
}

/// The place of a job. If it is dropped, the place is free again.
pub trait JobPlace: Send + 'static {
    /// The job's ID.
    fn id(&self) -> &str;

    /// When its time is over.
    fn end(&self) -> Instant;

    /// Is cancelled when the job has to end.
    fn cancel(&self) -> CancellationToken;

    /// Keeps what its command writes.
    fn output(&self) -> Arc<dyn OutputRecorder>;

    /// Waits for the end of the job's command, on a thread of its own. `process`: the process above
    /// all of the command's.
    ///
    /// # Errors
    ///
    /// There is no thread for it. The command has ended then.
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
