//! Records the start and the end of each job. Lists and stops the jobs of all running hosts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_audit::{Audit, JobRecord};
use toolhold_catalogue::CallContext;
use toolhold_catalogue::plugins::control::ask_each;
use toolhold_config::{Config, Folders};
use toolhold_contract::{Failure, HostError, JobEnd};
use toolhold_jobs::services::Services;
use toolhold_jobs::{Finisher, JobAbout, JobBounds, JobObserver, JobSettings, Jobs};
pub use toolhold_jobs::{JobState, JobSummary};

/// Time limit for the answer of a host.
const PATIENCE: Duration = Duration::from_secs(2);

/// Interval between checks of a job that is being stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum length of a job's ID in bytes.
const MAX_ID: usize = 39;

/// The question of another process about the jobs.
const LIST: &str = "jobs";

/// The start of the question that stops a job. The job's ID follows.
const STOP: &str = "stop ";

/// Lists the jobs of this user's running hosts that watch their plugins, such as `toolhold serve`,
/// with the process IDs of the hosts. Omits hosts with an unreadable answer. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if other users can write to the folder of the sockets.
pub fn list_running(folders: &Folders) -> Result<Vec<(u32, Vec<JobSummary>)>, HostError> {
    let mut known_ids = BTreeSet::new();
    let mut hosts = Vec::new();
    for (pid, answer) in ask_each(folders, LIST, PATIENCE)? {
        let Ok(mut jobs) = serde_json::from_slice::<Vec<JobSummary>>(&answer) else { continue };
        // A replaced host lists the same jobs as its successor.
        jobs.retain(|job| known_ids.insert(job.id.clone()));
        hosts.push((pid, jobs));
    }
    Ok(hosts)
}

/// Stops the job with this ID in any host, and waits up to two seconds for its end. Returns `false`
/// if no running job has this ID. Blocks.
///
/// # Errors
///
/// Returns the same errors as [`list_running`].
pub fn stop(folders: &Folders, id: &str) -> Result<bool, HostError> {
    let is_id = id.len() <= MAX_ID && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    // Refuse any other text, because a line end in it would end the question early.
    if !is_id {
        return Ok(false);
    }
    let answers = ask_each(folders, &format!("{STOP}{id}"), PATIENCE)?;
    let is_stopping = answers.iter().any(|(_pid, answer)| answer == b"true");
    if !is_stopping {
        return Ok(false);
    }
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && is_running(folders, id)? {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

fn is_running(folders: &Folders, id: &str) -> Result<bool, HostError> {
    for (_pid, jobs) in list_running(folders)? {
        if jobs.iter().any(|job| job.id == id && job.state == JobState::Running) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Answers a question of another process about jobs. Returns `None` for other questions.
pub(crate) fn answer(jobs: &Jobs, question: &str) -> Option<Vec<u8>> {
    if let Some(id) = question.strip_prefix(STOP) {
        return serde_json::to_vec(&jobs.stop(id)).ok();
    }
    if question != LIST {
        return None;
    }
    serde_json::to_vec(&jobs.list()).ok()
}

use crate::undo::{CallJournal, Undo};

pub(crate) struct JobAudit(pub(crate) Arc<Audit>);

impl std::fmt::Debug for JobAudit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobAudit")
    }
}

fn record<'a>(id: &'a str, about: &'a JobAbout) -> JobRecord<'a> {
    let JobAbout { call, tool, session, .. } = about;
    JobRecord { job: id, call, tool, session, end: None }
}

impl JobObserver for JobAudit {
    fn begin(&self, id: &str, about: &JobAbout) -> Result<(), Failure> {
        self.0.job(&record(id, about))
    }

    fn end(&self, id: &str, about: &JobAbout, end: &JobEnd, time: Duration) {
        let end = Some((end.exit_code, end.ending, time));
        if let Err(failure) = self.0.job(&JobRecord { end, ..record(id, about) }) {
            tracing::error!(job = id, "recording the end of a job failed: {}", failure.message);
        }
    }
}

/// The jobs and services of a host and of the hosts that replace it. They end with the last of
/// these hosts.
#[derive(Debug)]
pub(crate) struct HostJobs {
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) services: Services,
}

impl Drop for HostJobs {
    fn drop(&mut self) {
        self.jobs.end();
    }
}

const MIB: u64 = 1024 * 1024;

/// Returns the settings for jobs. Without shell commands, no job may run.
pub(crate) fn settings(config: &Config, audit: &Arc<Audit>) -> JobSettings {
    let shell = &config.values.tools.shell;
    let max_running = if shell.enabled { shell.jobs.running.get() } else { 0 };
    let bounds = JobBounds {
        running: usize::try_from(max_running).unwrap_or(usize::MAX),
        time: Duration::from_secs(shell.jobs.max_secs.get()),
        output: shell.jobs.output_mib.get() * MIB,
    };
    let key = format!("`running` in {}", config.own_table("tools.shell.jobs"));
    JobSettings { bounds, key, observer: Arc::new(JobAudit(Arc::clone(audit))) }
}

/// Returns a function that finishes the undo journal of a job after the job's command has ended.
/// The function records an automatic undo, and returns notices for the caller.
pub(crate) fn finisher(
    undo: Option<Arc<Undo>>,
    audit: Arc<Audit>,
    context: &CallContext,
    journal: Option<CallJournal>,
) -> Finisher {
    let call = context.id.to_string();
    let tool = context.requested_tool.clone();
    let session = Arc::clone(&context.session);
    Box::new(move |end: &JobEnd| {
        let (Some(undo), Some(journal)) = (undo, journal) else { return Vec::new() };
        let changes = undo.finish_job(journal.for_job(), end.exit_code);
        if let Some(rollback) = changes.rollback_record(&call, &tool, &session)
            && let Err(failure) = audit.rollback_now(&rollback)
        {
            tracing::error!(
                call = &*call,
                "recording the undo of a job failed: {}",
                failure.message
            );
        }
        changes.notices(Some(&undo))
    })
}
