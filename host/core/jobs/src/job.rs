//! One job of a session: its state, its output and its end.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toolhold_answers::LiveOutput;
use toolhold_contract::{CancellationToken, JobEnd, OutputRecorder, OutputStream};

use crate::ring::Ring;

/// The origin of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAbout {
    /// The ID of the call.
    pub call: String,
    /// The tool's name.
    pub tool: String,
    /// The session's name.
    pub session: String,
    /// The command line.
    pub command: String,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The ID of the job.
    pub id: String,
    /// The name of the job's session.
    pub session: String,
    /// The ID of the call that started the job.
    pub call: String,
    /// The command line.
    pub command: String,
    /// The start time, in seconds of Unix time.
    pub started: u64,
    /// The run time in seconds.
    pub seconds: u64,
    /// The length of the output in bytes.
    pub output_bytes: u64,
    /// The state of the job.
    #[serde(flatten)]
    pub state: JobState,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobState {
    /// The job runs.
    Running,
    /// The job has ended.
    Ended {
        /// The exit code, or 128 plus the signal that ended the job. `None` means that Toolhold
        /// ended the job.
        exit_code: Option<i32>,
        /// The reason for the end, such as `exited`, `timeout` or `cancelled`.
        ending: String,
    },
}

impl JobState {
    /// Returns the state in words, such as `ended with exit code 1`.
    pub fn describe(&self) -> String {
        match self {
            Self::Running => "running".to_owned(),
            Self::Ended { exit_code: Some(code), .. } => format!("ended with exit code {code}"),
            Self::Ended { ending, .. } => match ending.as_str() {
                "cancelled" => "stopped".to_owned(),
                "timeout" => "stopped at the time limit".to_owned(),
                "memory" => "stopped at the memory limit".to_owned(),
                "processes" => "stopped at the limit of processes".to_owned(),
                "processor" => "stopped at the CPU time limit".to_owned(),
                "output" => "stopped at the output limit".to_owned(),
                _ => "stopped".to_owned(),
            },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) about: JobAbout,
    pub(crate) cancel: CancellationToken,
    /// The ancestor of all processes of the job. Set when the job runs.
    pub(crate) process: OnceLock<i32>,
    started: Instant,
    started_at: SystemTime,
    /// The end of the job. Set when the job has ended.
    finished: OnceLock<FinishedJob>,
    /// Whether the session was notified that the job has ended.
    is_reported: AtomicBool,
    bytes: AtomicU64,
    /// The output. The lock is held while output is redacted and written, so async tasks must not
    /// take the lock.
    data: Mutex<JobData>,
    /// Notifies receivers of new output and of the end.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct FinishedJob {
    end: JobEnd,
    run_time: Duration,
    notices: Vec<String>,
}

#[derive(Debug)]
struct JobData {
    live: LiveOutput,
    kept: Ring,
    /// The offset at which the last answer about the job ended.
    cursor: u64,
}

#[derive(Debug)]
pub(crate) struct JobPart {
    pub(crate) text: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The length of the whole output so far, in bytes.
    pub(crate) total: u64,
    /// The offset of the first stored byte.
    pub(crate) kept_from: u64,
    pub(crate) failure: Option<String>,
}

impl Job {
    pub(crate) fn new(id: String, about: JobAbout, live: LiveOutput, kept: Ring) -> Self {
        Self {
            id,
            about,
            cancel: CancellationToken::new(),
            process: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            finished: OnceLock::new(),
            is_reported: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            data: Mutex::new(JobData { live, kept, cursor: 0 }),
            changed: watch::channel(()).0,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.finished.get().is_some()
    }

    pub(crate) fn state(&self) -> JobState {
        let Some(finished) = self.finished.get() else { return JobState::Running };
        let JobEnd { exit_code, ending } = &finished.end;
        JobState::Ended { exit_code: *exit_code, ending: (*ending).to_owned() }
    }

    pub(crate) fn time(&self) -> Duration {
        match self.finished.get() {
            Some(finished) => finished.run_time,
            None => self.started.elapsed(),
        }
    }

    pub(crate) fn notices(&self) -> &[String] {
        self.finished.get().map_or(&[], |finished| &finished.notices)
    }

    pub(crate) fn summary(&self) -> JobSummary {
        // With a clock before 1970, the start is shown as 1970.
        let started = self.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        JobSummary {
            id: self.id.clone(),
            session: self.about.session.clone(),
            call: self.about.call.clone(),
            command: self.about.command.clone(),
            started: started.as_secs(),
            seconds: self.time().as_secs(),
            output_bytes: self.bytes.load(Ordering::Relaxed),
            state: self.state(),
        }
    }

    /// Changes the output. May wait for the disk.
    fn change<R>(&self, change: impl FnOnce(&mut JobData) -> R) -> R {
        let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut data);
        self.bytes.store(data.kept.end(), Ordering::Relaxed);
        result
    }

    /// Records the end of the job. The output must be complete.
    pub(crate) fn finish(&self, end: JobEnd, notices: Vec<String>) {
        self.change(|data| {
            let rest = data.live.finish();
            data.kept.push(&rest);
        });
        let run_time = self.started.elapsed();
        let _ = self.finished.set(FinishedJob { end, run_time, notices });
        self.changed.send_replace(());
    }

    /// Records that the session was notified of the job's end. Returns `false` if the job still
    /// runs, or if the session was notified before.
    pub(crate) fn mark_reported(&self) -> bool {
        if !self.has_ended() {
            return false;
        }
        let was_reported = self.is_reported.swap(true, Ordering::Relaxed);
        !was_reported
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads at most `most` bytes of the output from `offset`. Without an offset, the part starts
    /// where the last answer ended. May wait for the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn read(&self, offset: Option<u64>, most: usize) -> io::Result<JobPart> {
        self.change(|data| {
            let new_lines = data.live.lines();
            data.kept.push(&new_lines);
            let (start, text) = data.kept.read(offset.unwrap_or(data.cursor), most)?;
            let end = start + text.len() as u64;
            if !text.is_empty() {
                data.cursor = end;
            }
            Ok(JobPart {
                text,
                start,
                end,
                total: data.kept.end(),
                kept_from: data.kept.start(),
                failure: data.kept.failure().map(io::Error::to_string),
            })
        })
    }
}

#[derive(Debug)]
pub(crate) struct JobOutput(pub(crate) Arc<Job>);

impl OutputRecorder for JobOutput {
    fn write(&self, stream: OutputStream, bytes: &[u8]) {
        self.0.change(|data| {
            let text = data.live.push(stream, bytes);
            data.kept.push(&text);
        });
        self.0.changed.send_replace(());
    }
}
