//! `job_output`, `job_list` and `job_stop`: follow the jobs of a session.

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

/// Bytes of output that are shown by default.
const DEFAULT_LIMIT: u64 = 20_000;

/// Most seconds that a call waits.
const MAX_WAIT: u64 = 300;

/// Time limit for a stopped job to end.
const ENDING: Duration = Duration::from_secs(10);

/// Bytes of a command line in a list.
const SHOWN: usize = 200;

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

/// Offers the tools.
#[derive(Debug)]
pub struct JobTools {
    jobs: Arc<Jobs>,
    /// Bytes of an answer.
    most: usize,
    /// The longest that a call waits.
    wait: Duration,
    tools: Vec<Arc<Definition>>,
}

impl JobTools {
    /// Offers tools for `jobs`. `threshold` is the number of characters of the longest answer, or 0
    /// for no limit. `max_call` is the longest time of a call.
    pub fn new(jobs: Arc<Jobs>, threshold: usize, max_call: Duration) -> Self {
        // The limit includes the text around the output, because an answer is never cut.
        let most = if threshold == 0 { usize::MAX } else { threshold.saturating_sub(600).max(1) };
        let wait = max_call.min(Duration::from_secs(MAX_WAIT));
        Self { jobs, most, wait, tools: definitions() }
    }

    fn find(&self, call: &Call, id: &str) -> Result<Arc<Job>, Failure> {
        if let Some(job) = self.jobs.find(&call.session, id) {
            return Ok(job);
        }
        let message = format!("this session has no job with the id {:?}", cut(id, 64));
        Err(Failure::new(Category::PermanentFailure, message)
            .with_code("not-found")
            .with_suggestion("job_list shows the jobs of this session. When there are too many, the oldest finished jobs are removed."))
    }

    async fn output(&self, call: &Call) -> Outcome {
        let arguments: OutputArguments = parse(call)?;
        let job = self.find(call, &arguments.id)?;
        call.report.entries().output_of = Some(CommandOutput {
            tool: job.about.tool.clone(),
            command: job.about.command.clone(),
            shorten: arguments.filtered,
        });

        let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT);
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(self.most);
        let until = Instant::now() + Duration::from_secs(arguments.wait).min(self.wait);
        let mut changes = job.changes();
        loop {
            changes.borrow_and_update();
            // Checked before the output is read, so that the output of an ended job is complete.
            let has_ended = job.has_ended();
            let is_over = has_ended || Instant::now() >= until || call.cancel.is_cancelled();
            if is_over || arguments.until == Until::Output {
                let reader = Arc::clone(&job);
                let offset = arguments.offset;
                let read = tokio::task::spawn_blocking(move || reader.read(offset, most));
                let part = read.await.map_err(read_failure)?.map_err(read_failure)?;
                if is_over || !part.text.is_empty() {
                    return Ok(answer(&job, has_ended, &part));
                }
            }
            let _ = call.cancel.run_until_cancelled(timeout_at(until, changes.changed())).await;
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
                neutral_line(cut(&summary.command, SHOWN)),
            );
            if summary.state != crate::JobState::Running {
                // The reader of the list knows that the job has ended.
                job.mark_told();
            }
            let mut value = serde_json::to_value(&summary).map_err(read_failure)?;
            if let Value::Object(fields) = &mut value {
                fields.remove("session");
            }
            listed.push(value);
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
        let ran = !job.has_ended();
        job.cancel.cancel();
        let until = Instant::now() + ENDING;
        while !job.has_ended() && Instant::now() < until {
            let _ = timeout_at(until, changes.changed()).await;
        }
        let state = job.state();
        if state == crate::JobState::Running {
            let message = format!("job {} is still stopping", job.id);
            return Err(Failure::new(Category::Timeout, message));
        }
        job.mark_told();
        let text = if ran {
            format!("Job {}: {}.\n", job.id, state.describe())
        } else {
            format!("Job {} had ended before: {}.\n", job.id, state.describe())
        };
        Ok(Output { structured: serde_json::to_value(&state).ok(), ..Output::text(text) })
    }
}

/// Returns the answer with a part of the output of a job.
fn answer(job: &Job, has_ended: bool, part: &JobPart) -> Output {
    let JobPart { start, end, total, kept_from, .. } = *part;
    let mut text = part.text.clone();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }

    let is_whole = has_ended && end >= total;
    let id = &job.id;
    let seconds = job.time().as_secs();
    let status = if is_whole {
        job.mark_told();
        format!("Job {id}: {} after {seconds} s. This is the end.", job.state().describe())
    } else if has_ended {
        format!("Job {id} has ended. Continue with offset {end}.")
    } else {
        format!("Job {id} has run for {seconds} s. Continue with offset {end}.")
    };
    let _ = writeln!(text, "[{status} Bytes {start}-{end} of {total}.]");
    if kept_from > 0 {
        let _ = writeln!(text, "[The first {kept_from} bytes are no longer kept.]");
    }
    if let Some(failure) = &part.failure {
        let _ = writeln!(text, "[The output can't be kept: {failure}.]");
    }
    if is_whole {
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

fn read_failure(error: impl std::fmt::Display) -> Failure {
    let message = format!("the output can't be read: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host")
}

fn definitions() -> Vec<Arc<Definition>> {
    let id = json!({ "type": "string" });
    let reads = Annotations {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
        cacheable: false,
    };
    let output = json!({
        "type": "object",
        "properties": {
            "id": id,
            "offset": { "type": "integer", "minimum": 0, "description": "First byte. Default: where the last answer ended." },
            "limit": { "type": "integer", "minimum": 1, "description": "Bytes. Default: 20000." },
            "wait": { "type": "integer", "minimum": 0, "maximum": MAX_WAIT, "description": "Seconds to wait." },
            "until": { "type": "string", "enum": ["output", "end"] },
            "filtered": { "type": "boolean", "description": "Shorten it like the output of a command in the foreground." },
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    let stop = json!({
        "type": "object",
        "properties": { "id": id },
        "required": ["id"],
        "additionalProperties": false,
    });
    let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    vec![
        tool(
            OUTPUT,
            "Read the output of a job",
            "Shows the output of a job (a command that bash started with background = true), and whether it still runs or how it ended.",
            output,
            reads,
        ),
        tool(
            LIST,
            "List the jobs",
            "Lists the jobs of this session: the running ones, and the last ones that ended.",
            none,
            reads,
        ),
        tool(
            STOP,
            "Stop a job",
            "Stops a job and everything that it started, at once. Its output stays readable.",
            stop,
            Annotations { read_only: false, ..reads },
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
