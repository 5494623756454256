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

/// A job, for a list.
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
    /// The run time so far, in seconds.
    pub seconds: u64,
    /// The size of the output, in bytes.
    pub output_bytes: u64,
    /// Whether the job runs, or how it ended.
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
        /// The exit code. If a signal ended the job, the code is 128 plus the signal. `None` if
        /// Toolhold ended the job.
        exit_code: Option<i32>,
        /// The reason for the end of the job.
        ending: String,
    },
}

impl JobState {
    /// Returns the state in words, for a reader.
    pub fn describe(&self) -> String {
        match self {
            Self::Running => "running".to_owned(),
            Self::Ended { exit_code: Some(code), .. } => format!("ended with exit code {code}"),
            Self::Ended { ending, .. } => match ending.as_str() {
                "cancelled" => "stopped".to_owned(),
                "timeout" => "stopped at its time limit".to_owned(),
                "memory" => "stopped at the limit of memory".to_owned(),
                "processes" => "stopped at the limit of processes".to_owned(),
                "processor" => "stopped at the limit of processor time".to_owned(),
                "output" => "stopped at the limit of output".to_owned(),
                _ => "stopped".to_owned(),
            },
        }
    }
}

/// A job of a session.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) about: JobAbout,
    pub(crate) cancel: CancellationToken,
    /// The process that is the ancestor of all processes of the job. Set once the job runs.
    pub(crate) process: OnceLock<i32>,
    started: Instant,
    started_at: SystemTime,
    /// The end of the job, its run time, and the notices for its reader.
    end: OnceLock<(JobEnd, Duration, Vec<String>)>,
    /// Whether the session was notified that the job has ended.
    is_told: AtomicBool,
    /// The size of the output, in bytes.
    bytes: AtomicU64,
    /// The output. Locked while a part of it is searched for secrets and written, so it must not be
    /// locked on the reactor.
    data: Mutex<JobData>,
    /// Notifies receivers of each output and of the end.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct JobData {
    live: LiveOutput,
    kept: Ring,
    /// The offset at which the last answer about the job ended.
    cursor: u64,
}

/// A part of a job's output.
#[derive(Debug)]
pub(crate) struct JobPart {
    pub(crate) text: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The size of the whole output so far, in bytes.
    pub(crate) total: u64,
    /// The offset of the first stored byte.
    pub(crate) kept_from: u64,
    /// The reason why no output is stored.
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
            end: OnceLock::new(),
            is_told: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            data: Mutex::new(JobData { live, kept, cursor: 0 }),
            changed: watch::channel(()).0,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    pub(crate) fn state(&self) -> JobState {
        match self.end.get() {
            None => JobState::Running,
            Some((JobEnd { exit_code, ending }, ..)) => {
                JobState::Ended { exit_code: *exit_code, ending: (*ending).to_owned() }
            }
        }
    }

    /// Returns the run time so far.
    pub(crate) fn time(&self) -> Duration {
        match self.end.get() {
            Some((_, time, _)) => *time,
            None => self.started.elapsed(),
        }
    }

    pub(crate) fn notices(&self) -> &[String] {
        self.end.get().map_or(&[], |(.., notices)| notices)
    }

    pub(crate) fn summary(&self) -> JobSummary {
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
        let _ = self.end.set((end, self.started.elapsed(), notices));
        self.changed.send_replace(());
    }

    /// Records that the session was notified of the job's end. Returns false if the job still runs,
    /// or if the session was notified before.
    pub(crate) fn mark_told(&self) -> bool {
        self.has_ended() && !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// Returns a receiver of the next changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads at most `most` bytes of the output from `offset`, or from the end of the last answer.
    /// May wait for the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn read(&self, offset: Option<u64>, most: usize) -> io::Result<JobPart> {
        self.change(|data| {
            let lines = data.live.lines();
            data.kept.push(&lines);
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

/// A recorder that keeps the output of a job.
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
