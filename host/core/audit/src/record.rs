//! The fields of each kind of entry in the audit log.

use std::time::Duration;

use serde_json::Value;
use toolhold_contract::{
    Access, BuiltInPlugin, CallId, Category, Confidence, Content, Definition, Failure, Outcome,
    Report, RequestRecord, SubjectKind,
};
use toolhold_policy::egress::Target;
use toolhold_policy::{Decision, Gate, Phase, ResolvedSubject, Trust, Verdict};

use super::chain::Key;
use super::kind::Kind;
use super::line::Line;
use super::origin::EntryOrigin;

/// Maximum lengths in bytes. Longer strings are cut.
const MAX_NAME: usize = 128;
const MAX_RULE: usize = 512;
const MAX_TEXT: usize = 512;
const MAX_SUBJECT: usize = 256;

/// Maximum length of a URL in bytes. Longer URLs are cut.
const MAX_URL: usize = 2048;

/// Maximum number of listed subjects. The arguments contain all subjects.
const LISTED_SUBJECTS: usize = 8;

/// Data about a call for its entries.
pub struct CallRecord<'a> {
    /// The unique ID of the call.
    pub id: &'a CallId,
    /// The requested tool name.
    pub requested_tool: &'a str,
    /// The tool. `None` means that no tool has the requested name.
    pub tool: Option<ToolRecord<'a>>,
    /// The arguments, converted to the tool's schema if possible.
    pub arguments: &'a Value,
    /// The paths, commands and URLs of the call.
    pub subjects: &'a [ResolvedSubject],
    /// Number of attachments.
    pub attachments: usize,
    /// The decision of the rules. `None` means that the call failed before this step.
    pub decision: Option<&'a Decision>,
    /// The approver of the call, and how long the approval is valid.
    pub approval: Option<(&'a str, &'a str)>,
    /// The result of a review by a model: `allow`, `deny: REASON` or `error: MESSAGE`. `None` means
    /// that no model reviewed the call.
    pub review: Option<&'a str>,
    /// The session's name.
    pub session: &'a str,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub caller: Option<&'a str>,
    /// The phase of the agent's work.
    pub phase: Option<Phase>,
    /// How far the origin of the call is trusted.
    pub trust: Trust,
}

/// The tool of a call.
pub struct ToolRecord<'a> {
    /// The tool's annotations.
    pub definition: &'a Definition,
    /// The source of the tool.
    pub provider: SourceRecord<'a>,
}

/// The source of a tool.
pub enum SourceRecord<'a> {
    /// A plugin.
    Plugin {
        /// The plugin's name.
        name: &'a str,
        /// The SHA-256 of the plugin's component.
        digest: &'a str,
    },
    /// Another source.
    Other {
        /// The source's name.
        name: &'a str,
        /// The name and version of the program that runs the source's tools.
        version: Option<String>,
        /// Whether the source is an MCP server.
        is_server: bool,
    },
}

/// A tool's own question to the person, or the answer to it.
pub struct InquiryRecord<'a> {
    /// The call's ID.
    pub call: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The tool's source.
    pub provider: &'a str,
    /// The requested kind of answer: `form` or `address`.
    pub wanted: &'a str,
    /// `accepted`, `declined` or `unanswered`, with the person or the reason. `None` means that the
    /// question is asked now. The values of a form aren't recorded.
    pub answer: Option<(&'a str, &'a str)>,
    /// The session's name.
    pub session: &'a str,
}

/// The outcome of a call.
pub struct OutcomeRecord<'a> {
    /// The call.
    pub call: CallRecord<'a>,
    /// The answer of the call.
    pub outcome: &'a Outcome,
    /// The duration of the call.
    pub duration: Duration,
    /// Time spent waiting for a person.
    pub waited: Duration,
    /// The number of runs of the tool.
    pub attempts: u32,
    /// Whether the call can change something or reach another machine.
    pub acts: bool,
    /// Whether the answer came from the cache.
    pub cached: bool,
    /// Whether a part of the answer was omitted.
    pub truncated: bool,
    /// The effect of filters.
    pub filtered: Option<FilteredRecord<'a>>,
    /// The injection patterns found in untrusted text.
    pub injections: &'a [&'static str],
    /// Details about the call that its outcome doesn't contain.
    pub report: &'a Report,
    /// The amount of data that was saved for undo.
    pub snapshot: Option<SnapshotRecord>,
}

/// The amount of data that was saved before a call changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Paths that were changed.
    pub paths: u64,
    /// Bytes that were saved.
    pub bytes: u64,
    /// The number of paths whose state could not be saved.
    pub lost: u64,
}

/// An undo of a call.
#[derive(Clone, Copy, Debug)]
pub struct RollbackRecord<'a> {
    /// The call's ID.
    pub call: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The session of the call.
    pub session: &'a str,
    /// The person or program that undid the call.
    pub by: &'a str,
    /// The reason why the undo failed. `None` means that it succeeded.
    pub error: Option<&'a str>,
}

/// The start or the end of a job: a command that continues after its call.
#[derive(Clone, Copy, Debug)]
pub struct JobRecord<'a> {
    /// The job's ID.
    pub job: &'a str,
    /// The ID of the call that started the job.
    pub call: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The session of the call.
    pub session: &'a str,
    /// The exit code, the reason for the end, and the duration. `None` means that the job starts.
    pub end: Option<(Option<i32>, &'a str, Duration)>,
}

/// A network request of Toolhold itself. Each redirect is a separate request.
#[derive(Clone, Copy, Debug)]
pub struct OwnRequestRecord<'a> {
    /// The purpose of the request.
    pub purpose: &'a str,
    /// The start of the request, as time since the Unix epoch.
    pub began: Duration,
    /// The method of the request.
    pub method: &'a str,
    /// The URL of the request, without the query.
    pub url: &'a str,
    /// The number of redirects before this request.
    pub hop: u64,
    /// The address of the connection.
    pub address: Option<std::net::IpAddr>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Bytes of the response body as received.
    pub received: u64,
    /// Bytes that a program sent over its connection. 0 for requests.
    pub sent: u64,
    /// The program of the connection. `None` for Toolhold's own requests.
    pub program: Option<&'a str>,
    /// The names of the secrets that were put in place of their placeholders.
    pub secrets: &'a [String],
    /// The duration of the request.
    pub time: Duration,
    /// Whether a rule denied the request.
    pub refused: bool,
    /// The rule that denied the request, or the error message.
    pub failed: Option<&'a str>,
}

/// The effect of filters on an answer.
pub struct FilteredRecord<'a> {
    /// The filters' names.
    pub filters: &'a [String],
    /// The lowest confidence among the filters.
    pub confidence: Confidence,
    /// Number of lines before and after filtering.
    pub lines: [u64; 2],
    /// Number of bytes before and after filtering.
    pub bytes: [u64; 2],
}

/// The answer to a stored request for approval.
pub struct AnswerRecord<'a> {
    /// The call's ID.
    pub id: &'a CallId,
    /// The tool's name.
    pub tool: &'a str,
    /// The tool's source.
    pub provider: &'a str,
    /// The arguments.
    pub arguments: &'a Value,
    /// The paths, commands and URLs of the call.
    pub subjects: &'a [ResolvedSubject],
    /// The decision that required approval.
    pub decision: &'a Decision,
    /// The session's name.
    pub session: &'a str,
    /// The name of the agent that made the call. `None` means the primary agent.
    pub caller: Option<&'a str>,
    /// The person who answered.
    pub by: &'a str,
    /// `yes` or `no`.
    pub answer: &'a str,
    /// How long an approval is valid.
    pub scope: Option<&'a str>,
}

pub(super) fn intent(key: &Key, record: &CallRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let mut line = Line::new(Kind::Intent, key);
    call(&mut line, record, origin);
    line.into_bytes()
}

/// Returns the entry of a command that the call's tool `chosen_by` chose.
pub(super) fn command(
    key: &Key,
    record: &CallRecord<'_>,
    origin: &EntryOrigin,
    chosen_by: &str,
    is_allowed: bool,
) -> Vec<u8> {
    let mut line = Line::new(Kind::Command, key);
    call(&mut line, record, origin);
    line.plain("chosen_by", chosen_by, MAX_NAME);
    line.word("result", if is_allowed { "allowed" } else { "blocked" });
    line.into_bytes()
}

pub(super) fn approval(
    key: &Key,
    record: &CallRecord<'_>,
    origin: &EntryOrigin,
    by: &str,
    answer: &str,
    scope: Option<&str>,
) -> Vec<u8> {
    let mut line = Line::new(Kind::Approval, key);
    call(&mut line, record, origin);
    answered(&mut line, by, answer, scope);
    line.into_bytes()
}

pub(super) fn answer(key: &Key, record: &AnswerRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let mut line = Line::new(Kind::Approval, key);
    // `Trail::of_call` expects the ID directly after the kind.
    line.plain("call", &record.id.0, MAX_NAME);
    answered(&mut line, record.by, record.answer, record.scope);
    line.plain("tool", record.tool, MAX_NAME);
    line.plain("provider", record.provider, MAX_NAME);
    line.arguments("arguments", record.arguments);
    subjects(&mut line, record.subjects);
    let Decision { verdict, gate, rule, place, .. } = record.decision;
    decision(&mut line, *verdict, *gate, rule, place);
    line.text("session", record.session, MAX_NAME);
    if let Some(caller) = record.caller {
        line.text("caller_id", caller, MAX_NAME);
    }
    origin.write(&mut line);
    line.into_bytes()
}

pub(super) fn rollback(key: &Key, record: &RollbackRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let mut line = Line::new(Kind::Rollback, key);
    line.plain("call", record.call, MAX_NAME);
    line.plain("tool", record.tool, MAX_NAME);
    line.plain("by", record.by, MAX_NAME);
    line.word("result", if record.error.is_none() { "success" } else { "error" });
    if let Some(error) = record.error {
        line.text("error", error, MAX_TEXT);
    }
    line.text("session", record.session, MAX_NAME);
    origin.write(&mut line);
    line.into_bytes()
}

pub(super) fn inquiry(key: &Key, record: &InquiryRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let mut line = Line::new(Kind::Inquiry, key);
    line.plain("call", record.call, MAX_NAME);
    line.plain("tool", record.tool, MAX_NAME);
    line.plain("provider", record.provider, MAX_NAME);
    line.word("wanted", record.wanted);
    match record.answer {
        Some((answer @ "unanswered", reason)) => {
            line.word("answer", answer);
            line.text("reason", reason, MAX_TEXT);
        }
        Some((answer, by)) => {
            line.word("answer", answer);
            line.plain("answered_by", by, MAX_NAME);
        }
        None => {}
    }
    line.text("session", record.session, MAX_NAME);
    origin.write(&mut line);
    line.into_bytes()
}

pub(super) fn job(key: &Key, record: &JobRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let kind = if record.end.is_none() { Kind::JobBegin } else { Kind::JobEnd };
    let mut line = Line::new(kind, key);
    line.plain("job", record.job, MAX_NAME);
    line.plain("call", record.call, MAX_NAME);
    line.plain("tool", record.tool, MAX_NAME);
    if let Some((code, ending, duration)) = record.end {
        line.word("result", if code == Some(0) { "success" } else { "error" });
        line.code("exit_code", code.unwrap_or(NO_EXIT_CODE));
        line.plain("ending", ending, MAX_NAME);
        line.time("duration_ms", duration);
    }
    line.text("session", record.session, MAX_NAME);
    origin.write(&mut line);
    line.into_bytes()
}

pub(super) fn own_request(
    key: &Key,
    record: &OwnRequestRecord<'_>,
    origin: &EntryOrigin,
) -> Vec<u8> {
    let mut line = Line::new(Kind::Request, key);
    line.plain("purpose", record.purpose, MAX_NAME);
    line.moment("began", record.began);
    line.plain("method", record.method, MAX_NAME);
    line.text("url", record.url, MAX_URL);
    if let Ok(target) = Target::parse(record.url) {
        line.plain("host", &target.host.to_string(), MAX_RULE);
    }
    if record.hop > 0 {
        line.number("hop", record.hop);
    }
    if let Some(address) = record.address {
        line.plain("address", &address.to_string(), MAX_NAME);
    }
    if let Some(status) = record.status {
        line.number("status", status.into());
    }
    line.word("result", request_result(record.refused, record.failed.is_some()));
    if let Some(reason) = record.failed {
        line.text("reason", reason, MAX_TEXT);
    }
    secrets(&mut line, record.secrets);
    connection(&mut line, record.program, record.sent);
    line.number("response_bytes", record.received);
    line.time("duration_ms", record.time);
    origin.write(&mut line);
    line.into_bytes()
}

fn request_result(refused: bool, failed: bool) -> &'static str {
    if refused {
        "blocked"
    } else if failed {
        "error"
    } else {
        "success"
    }
}

pub(super) fn outcome(key: &Key, record: &OutcomeRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    let mut line = Line::new(Kind::Outcome, key);
    call(&mut line, &record.call, origin);
    let failure = record.outcome.as_ref().err();
    line.word("result", result(failure));
    if let Some(failure) = failure {
        line.word("error_category", failure.category.as_str());
        line.optional("error_code", failure.code.as_deref(), MAX_NAME);
        line.text("error", &failure.message, MAX_TEXT);
    }
    // If there is a denial but the rules made no decision, the grants denied the call.
    if let Some(failure) = failure
        && let Some(denial) = &failure.denial
        && record.call.decision.is_none()
    {
        decision(&mut line, Verdict::Deny, Gate::Grants, &denial.rule, &denial.place);
    }
    let parts = match record.outcome {
        Ok(output) => &output.content,
        Err(failure) => &failure.content,
    };
    line.number("bytes", parts.iter().map(Content::len).sum::<usize>() as u64);
    line.time("duration_ms", record.duration);
    if !record.waited.is_zero() {
        line.time("waited_ms", record.waited);
    }
    if record.attempts > 1 {
        line.number("attempts", record.attempts.into());
    }
    line.flag("cached", record.cached);
    line.flag("truncated", record.truncated);
    if let Some(filtered) = &record.filtered {
        line.plain("filtered_by", &filtered.filters.join(","), MAX_RULE);
        line.word("filter_confidence", filtered.confidence.as_str());
        let [whole_lines, shown_lines] = filtered.lines;
        let [whole_bytes, shown_bytes] = filtered.bytes;
        line.number("whole_lines", whole_lines);
        line.number("shown_lines", shown_lines);
        line.number("whole_bytes", whole_bytes);
        line.number("shown_bytes", shown_bytes);
    }
    line.words("injection_flagged", record.injections.iter().copied(), MAX_NAME);
    if let Some(SnapshotRecord { paths, bytes, lost }) = record.snapshot {
        line.number("snapshot_paths", paths);
        line.number("snapshot_bytes", bytes);
        if lost > 0 {
            line.number("snapshot_lost", lost);
        }
    }
    reported(&mut line, record);
    line.into_bytes()
}

/// Returns an entry for each request of a call, and one entry with the number `more` of further
/// requests.
pub(super) fn requests(
    key: &Key,
    call: &CallRecord<'_>,
    origin: &EntryOrigin,
    requests: &[RequestRecord],
    more: u64,
) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for request_record in requests {
        records.push(request(key, call, origin, request_record));
    }
    if more > 0 {
        let mut line = start_request(key, call);
        line.number("more_requests", more);
        records.push(end_request(line, call, origin));
    }
    records
}

/// Adds the names of the secrets that were put into a request.
fn secrets(line: &mut Line<'_>, names: &[String]) {
    if !names.is_empty() {
        line.plain("secrets", &names.join(", "), MAX_RULE);
    }
}

/// Adds the program of a connection, and the bytes that the program sent.
fn connection(line: &mut Line<'_>, program: Option<&str>, sent: u64) {
    if let Some(program) = program {
        line.text("program", program, MAX_NAME);
        line.number("request_bytes", sent);
    }
}

fn request(
    key: &Key,
    call: &CallRecord<'_>,
    origin: &EntryOrigin,
    request: &RequestRecord,
) -> Vec<u8> {
    let mut line = start_request(key, call);
    line.moment("began", request.began);
    line.plain("method", &request.method, MAX_NAME);
    // The sender has removed the secrets that it inserted into the URL. Other strings that look
    // like secrets are removed here.
    line.text("url", &request.url, MAX_URL);
    if let Ok(target) = Target::parse(&request.url) {
        line.plain("host", &target.host.to_string(), MAX_RULE);
    }
    if request.hop > 0 {
        line.number("hop", request.hop.into());
    }
    if let Some(address) = request.address {
        line.plain("address", &address.to_string(), MAX_NAME);
    }
    if let Some(job) = &request.job {
        line.plain("job", job, MAX_NAME);
    }
    if let Some(status) = request.status {
        line.number("status", status.into());
    }
    line.word("result", request_result(request.refused, request.failed.is_some()));
    if let Some(reason) = &request.failed {
        line.text("reason", reason, MAX_TEXT);
    }
    secrets(&mut line, &request.secrets);
    connection(&mut line, request.program.as_deref(), request.sent);
    line.number("response_bytes", request.received);
    line.time("duration_ms", request.time);
    end_request(line, call, origin)
}

fn start_request<'k>(key: &'k Key, call: &CallRecord<'_>) -> Line<'k> {
    let mut line = Line::new(Kind::Egress, key);
    line.word("call", &call.id.0);
    tool(&mut line, call);
    line
}

fn end_request(mut line: Line<'_>, call: &CallRecord<'_>, origin: &EntryOrigin) -> Vec<u8> {
    line.text("session", call.session, MAX_NAME);
    if let Some(caller) = call.caller {
        line.text("caller_id", caller, MAX_NAME);
    }
    origin.write(&mut line);
    line.into_bytes()
}

fn call(line: &mut Line<'_>, record: &CallRecord<'_>, origin: &EntryOrigin) {
    line.word("call", &record.id.0);
    tool(line, record);
    if let Some(source) = claim_source(record) {
        line.word("claim_source", source);
    }
    line.arguments("arguments", record.arguments);
    subjects(line, record.subjects);
    if record.attachments > 0 {
        line.number("attachments", record.attachments as u64);
    }
    if let Some(Decision { verdict, gate, rule, place, .. }) = record.decision {
        decision(line, *verdict, *gate, rule, place);
    }
    if let Some((by, scope)) = record.approval {
        line.plain("approved_by", by, MAX_NAME);
        line.word("approval_scope", scope);
    }
    if let Some(review) = record.review {
        line.text("adversarial_policy_decision", review, MAX_TEXT);
    }
    line.text("session", record.session, MAX_NAME);
    if let Some(caller) = record.caller {
        line.text("caller_id", caller, MAX_NAME);
    }
    line.optional("phase", record.phase.map(Phase::as_str), MAX_NAME);
    line.word("trust", record.trust.as_str());
    origin.write(line);
}

/// Writes the tool and its source, or the requested name if no tool has the name.
fn tool(line: &mut Line<'_>, record: &CallRecord<'_>) {
    match &record.tool {
        Some(tool) => {
            line.plain("tool", &tool.definition.name, MAX_NAME);
            match tool.provider {
                SourceRecord::Plugin { name, digest } => {
                    line.plain("plugin", name, MAX_NAME);
                    line.word("digest", digest);
                }
                SourceRecord::Other { name, ref version, .. } => {
                    line.plain("provider", name, MAX_NAME);
                    line.optional("provider_version", version.as_deref(), MAX_NAME);
                }
            }
        }
        None => line.text("asked", record.requested_tool, MAX_NAME),
    }
}

fn answered(line: &mut Line<'_>, by: &str, answer: &str, scope: Option<&str>) {
    line.word("answer", answer);
    line.plain("approved_by", by, MAX_NAME);
    line.optional("approval_scope", scope, MAX_NAME);
}

fn subjects(line: &mut Line<'_>, subjects: &[ResolvedSubject]) {
    let listed = subjects
        .iter()
        .take(LISTED_SUBJECTS)
        .map(|subject| (kind(subject.kind), access(subject.access), subject.text.as_str()));
    line.list("subjects", ["kind", "access", "text"], listed, MAX_SUBJECT);
}

fn decision(line: &mut Line<'_>, verdict: Verdict, gate: Gate, rule: &str, place: &str) {
    line.word("verdict", verdict.as_str());
    line.word("gate", gate.as_str());
    // The object of a rule may contain a secret, so the rule is redacted.
    line.text("rule", rule, MAX_RULE);
    line.plain("place", place, MAX_RULE);
}

/// The recorded exit code of a command that a signal ended or that never ran.
const NO_EXIT_CODE: i32 = -1;

fn reported(line: &mut Line<'_>, record: &OutcomeRecord<'_>) {
    let report = record.report.entries();
    let runs_commands =
        record.call.subjects.iter().any(|subject| subject.kind == SubjectKind::Command);
    line.optional("job", report.job.as_deref(), MAX_NAME);
    match report.exit_code {
        Some(code) if runs_commands => line.code("exit_code", code),
        // Entries of commands always have this field, except for commands that continue as a job.
        None if runs_commands && report.job.is_none() => line.code("exit_code", NO_EXIT_CODE),
        _ => {}
    }
    if let Some(denial) = &report.denial {
        line.number("denials", report.denials);
        line.text("denied", &denial.action, MAX_TEXT);
        line.text("denied_by", &denial.rule, MAX_RULE);
        line.plain("denied_at", &denial.place, MAX_RULE);
    }
}

/// Returns the word for the outcome of a call. `None` means success.
fn result(failure: Option<&Failure>) -> &'static str {
    let Some(failure) = failure else { return "success" };
    match failure.category {
        Category::PolicyBlocked | Category::ConfirmationRequired => "blocked",
        // Only a limit of the host comes with a denial. A server's limit is an ordinary error.
        Category::RateLimited if failure.denial.is_some() => "blocked",
        Category::Timeout => "timeout",
        Category::Cancelled => "cancelled",
        _ => "error",
    }
}

/// Returns where the statements in the answer come from. The tool's source decides, or otherwise
/// the kinds of the tool's subjects. Returns `None` if neither says anything about the origin.
fn claim_source(record: &CallRecord<'_>) -> Option<&'static str> {
    let tool = record.tool.as_ref()?;
    match tool.provider {
        SourceRecord::Other { is_server: true, .. } => return Some("mcp"),
        SourceRecord::Plugin { name, .. } => {
            if let Some(claims) = BuiltInPlugin::named(name).and_then(|plugin| plugin.claims) {
                return Some(claims);
            }
        }
        _ => {}
    }
    let subjects = &tool.definition.subjects;
    if subjects.iter().any(|subject| subject.kind == SubjectKind::Command) {
        Some("shell")
    } else if subjects.iter().any(|subject| subject.kind == SubjectKind::Url) {
        Some("web_scrape")
    } else if subjects.iter().any(|subject| subject.kind.is_path()) {
        Some("file_system")
    } else {
        None
    }
}

fn kind(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Path => "path",
        SubjectKind::Name => "name",
        SubjectKind::Url => "url",
        SubjectKind::Command => "command",
        SubjectKind::Text => "text",
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn request_of_toolhold_is_recorded_without_secrets_and_control_characters() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        let url = format!("https://a.example:8443/{token}/\u{202e}");
        let secrets = ["github", "npm"].map(str::to_owned);
        let record = OwnRequestRecord {
            purpose: "plugin",
            began: Duration::from_secs(1),
            method: "GET",
            url: &url,
            hop: 1,
            address: Some([192, 0, 2, 1].into()),
            status: None,
            received: 7,
            sent: 0,
            program: None,
            secrets: &secrets,
            time: Duration::from_millis(3),
            refused: true,
            failed: Some("a rule\u{1b}"),
        };
        let origin = EntryOrigin { front_end: "toolhold test".into(), user: None };
        let mut bytes = own_request(&Key::new(&[7; 32]), &record, &origin);
        bytes.push(b'}');
        let found: Value = serde_json::from_slice(&bytes).expect("it is JSON");
        for (key, value) in [
            ("kind", json!("request")),
            ("purpose", json!("plugin")),
            ("began", json!("1970-01-01T00:00:01.000000Z")),
            ("host", json!("a.example")),
            ("hop", json!(1)),
            ("address", json!("192.0.2.1")),
            ("result", json!("blocked")),
            ("reason", json!("a rule\u{fffd}")),
            ("secrets", json!("github, npm")),
            ("response_bytes", json!(7)),
            ("front_end", json!("toolhold test")),
        ] {
            assert_eq!(found[key], value, "{key}: {found}");
        }
        let text = found.to_string();
        assert!(!text.contains(&token[4..]) && !text.contains('\u{202e}'), "{text}");
    }
}
