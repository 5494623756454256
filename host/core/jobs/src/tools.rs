//! The tools `job_output`, `job_list` and `job_stop`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{
    Annotations, BoxFuture, Call, Category, CommandOutput, Definition, Failure, Outcome, Output,
    ToolSource,
};

use crate::job::{Job, JobPart};
use crate::jobs::Jobs;

const OUTPUT: &str = "job_output";
const LIST: &str = "job_list";
const STOP: &str = "job_stop";

/// Number of bytes of output in an answer by default.
const DEFAULT_LIMIT: u64 = 20_000;

/// Maximum number of seconds that a call waits.
const MAX_WAIT: u64 = 300;

/// Time limit for a stopped job to end.
const MAX_STOPPING: Duration = Duration::from_secs(10);

/// Maximum length of a command line in a list, in bytes. A longer line is cut.
const MAX_LISTED_COMMAND: usize = 200;

/// Maximum length of an unknown job's ID in a message, in bytes.
const MAX_SHOWN_ID: usize = 64;

/// Number of characters that are reserved for the text around the output in an answer.
const FRAME: usize = 600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputArguments {
    id: String,
    offset: Option<u64>,
    limit: Option<u64>,
    #[serde(default)]
    wait: u64,
    #[serde(default)]
    until: Until,
    #[serde(default)]
    filtered: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Until {
    #[default]
    Output,
    End,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopArguments {
    id: String,
}

/// The source of the tools.
#[derive(Debug)]
pub struct JobTools {
    jobs: Arc<Jobs>,
    /// Maximum length of the output in an answer, in bytes.
    max_output: usize,
    max_wait: Duration,
    tools: Vec<Arc<Definition>>,
}

impl JobTools {
    /// Creates the tools. `threshold` is the maximum number of characters of an answer, or 0 for no
    /// limit. `max_call` is the maximum time of a call.
    pub fn new(jobs: Arc<Jobs>, threshold: usize, max_call: Duration) -> Self {
        let max_output = if threshold == 0 {
            usize::MAX
        } else {
            // Even a very small threshold leaves at least one byte of output, so that repeated
            // calls can read the whole output.
            threshold.saturating_sub(FRAME).max(1)
        };
        let max_wait = max_call.min(Duration::from_secs(MAX_WAIT));
        Self { jobs, max_output, max_wait, tools: definitions() }
    }

    fn find(&self, call: &Call, id: &str) -> Result<Arc<Job>, Failure> {
        if let Some(job) = self.jobs.find(&call.session, id) {
            return Ok(job);
        }
        let shown_id = cut(id, MAX_SHOWN_ID);
        let message = format!("this session has no job with the id {shown_id:?}");
        Err(Failure::new(Category::PermanentFailure, message)
            .with_code("not-found")
            .with_suggestion(
                "job_list shows the jobs of this session. If the session has too many jobs, the \
                 oldest finished jobs are removed.",
            ))
    }

    /// Returns the output of a job when there is new output, when the job has ended, or after the
    /// requested time.
    async fn output(&self, call: &Call) -> Outcome {
        let arguments: OutputArguments = parse(call)?;
        let job = self.find(call, &arguments.id)?;
        call.report.entries().output_of = Some(CommandOutput {
            tool: job.about.tool.clone(),
            command: job.about.command.clone(),
            shorten: arguments.filtered,
        });

        let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT);
        let max_output = usize::try_from(limit).unwrap_or(usize::MAX).min(self.max_output);
        let wait = Duration::from_secs(arguments.wait).min(self.max_wait);
        let deadline = Instant::now() + wait;
        let mut changes = job.changes();
        loop {
            // Marks earlier changes as seen, so that only later changes end the wait.
            changes.borrow_and_update();
            // The check comes before the read, so the last read never misses output.
            let has_ended = job.has_ended();
            let is_late = Instant::now() >= deadline;
            let is_last_read = has_ended || is_late || call.cancel.is_cancelled();
            if is_last_read || arguments.until == Until::Output {
                let part = read_part(&job, arguments.offset, max_output).await?;
                if is_last_read || !part.text.is_empty() {
                    return Ok(answer(&job, has_ended, &part));
                }
            }
            let change = timeout_at(deadline, changes.changed());
            // A change, the deadline and a cancelled call end the wait.
            let _ = call.cancel.run_until_cancelled(change).await;
        }
    }

    fn list(&self, call: &Call) -> Outcome {
        let session = self.jobs.find_session(&call.session);
        let jobs: Vec<Arc<Job>> = session.map(|session| session.jobs().clone()).unwrap_or_default();
        let mut text = String::new();
        let mut listed = Vec::new();
        for job in &jobs {
            let summary = job.summary();
            let _ = writeln!(
                text,
                "{}  {}, {} s, {} bytes of output: {}",
                summary.id,
                summary.state.describe(),
                summary.seconds,
                summary.output_bytes,
                neutral_line(cut(&summary.command, MAX_LISTED_COMMAND)),
            );
            if summary.state != crate::JobState::Running {
                // The list also tells the caller that the job has ended.
                job.mark_reported();
            }
            let mut entry = serde_json::to_value(&summary).map_err(read_failure)?;
            if let Value::Object(fields) = &mut entry {
                fields.remove("session");
            }
            listed.push(entry);
        }
        if jobs.is_empty() {
            text.push_str("This session has no jobs.\n");
        }
        Ok(Output { structured: Some(json!({ "jobs": listed })), ..Output::text(text) })
    }

    async fn stop(&self, call: &Call) -> Outcome {
        let arguments: StopArguments = parse(call)?;
        let job = self.find(call, &arguments.id)?;
        let mut changes = job.changes();
        let was_running = !job.has_ended();
        job.cancel.cancel();
        let deadline = Instant::now() + MAX_STOPPING;
        while !job.has_ended() && Instant::now() < deadline {
            let _ = timeout_at(deadline, changes.changed()).await;
        }
        let state = job.state();
        if state == crate::JobState::Running {
            let message = format!("job {} is still stopping", job.id);
            return Err(Failure::new(Category::Timeout, message));
        }
        job.mark_reported();
        let text = if was_running {
            format!("Job {}: {}.\n", job.id, state.describe())
        } else {
            format!("Job {} had already ended: {}.\n", job.id, state.describe())
        };
        Ok(Output { structured: serde_json::to_value(&state).ok(), ..Output::text(text) })
    }
}

/// Formats a part of a job's output for the caller.
fn answer(job: &Job, has_ended: bool, part: &JobPart) -> Output {
    let JobPart { start, end, total, kept_from, .. } = *part;
    let mut text = part.text.clone();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }

    let is_at_end = has_ended && end >= total;
    let id = &job.id;
    let seconds = job.time().as_secs();
    let status = if is_at_end {
        job.mark_reported();
        format!("Job {id}: {} after {seconds} s. This is the end.", job.state().describe())
    } else if has_ended {
        format!("Job {id} has ended. Continue with offset {end}.")
    } else {
        format!("Job {id} has run for {seconds} s. Continue with offset {end}.")
    };
    let _ = writeln!(text, "[{status} Bytes {start}-{end} of {total}.]");
    if kept_from > 0 {
        let _ = writeln!(text, "[The first {kept_from} bytes are no longer stored.]");
    }
    if let Some(failure) = &part.failure {
        let _ = writeln!(text, "[The output can't be stored: {failure}.]");
    }
    if is_at_end {
        for notice in job.notices() {
            let _ = writeln!(text, "[{notice}]");
        }
    }

    let mut value =
        json!({ "id": id, "start": start, "end": end, "total": total, "kept_from": kept_from });
    if let (Value::Object(fields), Ok(Value::Object(state))) =
        (&mut value, serde_json::to_value(job.state()))
    {
        fields.extend(state);
    }
    Output { structured: Some(value), ..Output::text(text) }
}

fn parse<T: for<'de> Deserialize<'de>>(call: &Call) -> Result<T, Failure> {
    T::deserialize(&*call.arguments)
        .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))
}

async fn read_part(job: &Arc<Job>, offset: Option<u64>, most: usize) -> Result<JobPart, Failure> {
    let job = Arc::clone(job);
    let reading = tokio::task::spawn_blocking(move || job.read(offset, most));
    reading.await.map_err(read_failure)?.map_err(read_failure)
}

fn read_failure(error: impl std::fmt::Display) -> Failure {
    let message = format!("the output can't be read: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host")
}

fn definitions() -> Vec<Arc<Definition>> {
    let id = json!({ "type": "string" });
    let read_annotations = Annotations {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
        cacheable: false,
    };
    let output_schema = json!({
        "type": "object",
        "properties": {
            "id": id,
            "offset": { "type": "integer", "minimum": 0, "description": "The first byte. Default: the end of the last answer." },
            "limit": { "type": "integer", "minimum": 1, "description": "Bytes. Default: 20000." },
            "wait": { "type": "integer", "minimum": 0, "maximum": MAX_WAIT, "description": "Seconds to wait." },
            "until": { "type": "string", "enum": ["output", "end"] },
            "filtered": { "type": "boolean", "description": "Shorten the output like the output of a command in the foreground." },
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    let stop_schema = json!({
        "type": "object",
        "properties": { "id": id },
        "required": ["id"],
        "additionalProperties": false,
    });
    let no_arguments = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    vec![
        tool(
            OUTPUT,
            "Read the output of a job",
            "Shows the output of a job (a command that bash started with background = true), and whether it still runs or how it ended.",
            output_schema,
            read_annotations,
        ),
        tool(
            LIST,
            "List the jobs",
            "Lists the jobs of this session: the running ones, and the last ones that ended.",
            no_arguments,
            read_annotations,
        ),
        tool(
            STOP,
            "Stop a job",
            "Stops a job and everything that it started, at once. Its output stays readable.",
            stop_schema,
            Annotations { read_only: false, ..read_annotations },
        ),
    ]
}

fn tool(
    name: &str,
    title: &str,
    description: &str,
    schema: Value,
    annotations: Annotations,
) -> Arc<Definition> {
    let title = Some(title.to_owned());
    Arc::new(Definition { title, annotations, ..Definition::new(name, description, schema) })
}

impl ToolSource for JobTools {
    fn name(&self) -> &str {
        "jobs"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        self.tools.clone()
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            match call.tool.as_str() {
                OUTPUT => self.output(&call).await,
                LIST => self.list(&call),
                _ => self.stop(&call).await,
            }
        })
    }
}
