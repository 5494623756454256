//! The span of a call. It contains no text of the arguments, the answer or a plugin.

use std::time::{Duration, SystemTime};

use toolhold_core::audit::User;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Answer, CallId, HOST_CODES, ObservedCall, Step, Verdict};

use crate::machine::short_hash;
use crate::names;
use crate::otlp::encoding::{Message, Value};
use crate::otlp::traces::Span;
use crate::otlp::{attribute, text, texts};

/// The most bytes of a name.
const MAX_NAME: usize = 128;

/// The most groups of a user.
const MAX_GROUPS: usize = 64;

/// The bytes of a trace's ID and of a span's ID.
const TRACE_ID: usize = 16;
const SPAN_ID: usize = 8;

/// The random bytes for a span.
pub(super) const RANDOM_BYTES: usize = TRACE_ID + SPAN_ID;

/// Facts about a call, which are copied on the call's thread.
pub(super) struct Call {
    id: CallId,
    tool: Option<String>,
    provider: Option<String>,
    session: String,
    user: Option<User>,
    /// The caller's trace and span.
    parent: Option<([u8; TRACE_ID], [u8; SPAN_ID])>,
    start: SystemTime,
    took: Duration,
    waited: Duration,
    attempts: u32,
    error: Option<&'static str>,
    code: Option<&'static str>,
    cached: bool,
    truncated: bool,
    verdict: Option<Verdict>,
    refusal: Option<Refusal>,
    approval: Option<(String, &'static str)>,
    steps: Vec<Step>,
}

pub(super) struct Refusal {
    pub(super) gate: &'static str,
    pub(super) rule: String,
    count: u64,
}

impl Refusal {
    /// Returns the refusal of the whole call, or else the first denial of a grant.
    pub(super) fn first_of(answer: &Answer) -> Option<Self> {
        if let Some(decision) = &answer.decision
            && decision.verdict == Verdict::Deny
        {
            let gate = decision.gate.as_str();
            return Some(Self { gate, rule: rule_name(&decision.rule), count: 1 });
        }
        let report = answer.report.entries();
        let failure = answer.outcome.as_ref().err();
        let call_denial = failure.and_then(|failure| failure.denial.as_ref());
        let denial = report.denial.as_ref().or(call_denial)?;
        // If the denial is only in the failure, the report hasn't counted it.
        let count = report.denials.max(1);
        Some(Self { gate: "grants", rule: rule_name(&denial.rule), count })
    }
}

/// The starts of built-in rules that are sentences. Only these starts are sent, because the rest of
/// a sentence, and other sentences, may contain a part of the call.
const SENTENCES: [&str; 6] = [
    "a call that can't be counted is denied",
    "directories need a grant",
    "private addresses are blocked",
    "read-only tools can't write to the store",
    "requests to addresses where Toolhold listens are blocked",
    "the blocked command",
];

/// Returns a rule without its value, for example `deny_read` for `deny_read = "**/.env"`. The value
/// may be secret, or come from the call.
fn rule_name(rule: &str) -> String {
    if let Some(sentence) = SENTENCES.iter().find(|sentence| rule.starts_with(**sentence)) {
        return (*sentence).to_owned();
    }
    if let Some((key, _)) = rule.split_once('=')
        && is_key(key.trim())
    {
        return key.trim().to_owned();
    }
    // Otherwise, the rule may be only the name of a key, which the underscore shows.
    if rule.contains('_') && rule.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
        return rule.to_owned();
    }
    // Other rules may contain a part of the call, so they aren't sent.
    names::OTHER.to_owned()
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

pub(super) fn outcome(answer: &Answer) -> Option<&'static str> {
    answer.outcome.as_ref().err().map(|failure| failure.category.as_str())
}

impl Call {
    pub(super) fn new(call: &ObservedCall<'_>) -> Self {
        let answer = call.answer;
        let failure = answer.outcome.as_ref().err();
        let code = failure.and_then(|failure| failure.code.as_deref());
        // Codes of plugins may contain a part of the call, so only the host's codes are used.
        let host_code = HOST_CODES.iter().copied().find(|known| Some(*known) == code);
        let parent = call.meta.and_then(|meta| meta.get(names::TRACE_PARENT)?.as_str());
        let approval = answer.approval.as_ref();
        Self {
            id: answer.id.clone(),
            tool: answer.tool.clone(),
            provider: answer.provider.clone(),
            session: call.session.to_owned(),
            user: call.user.cloned(),
            parent: parent.and_then(parse_parent),
            start: call.started_at,
            took: call.took,
            waited: call.waited,
            attempts: call.attempts,
            error: outcome(answer),
            code: host_code,
            cached: answer.cached,
            truncated: answer.truncated,
            verdict: answer.decision.as_ref().map(|decision| decision.verdict),
            refusal: Refusal::first_of(answer),
            approval: approval.map(|approval| (approval.by.clone(), approval.scope.as_str())),
            steps: answer.steps.clone(),
        }
    }

    /// Makes the span of the call. The bytes of `random` become the span's ID and, unless the
    /// caller has named its own trace, the trace's ID.
    pub(super) fn span(self, random: &[u8; RANDOM_BYTES]) -> Span {
        let mut trace = [0; TRACE_ID];
        trace.copy_from_slice(&random[..TRACE_ID]);
        let mut id = [0; SPAN_ID];
        id.copy_from_slice(&random[TRACE_ID..]);
        let mut parent = None;
        if let Some((parent_trace, parent_span)) = self.parent {
            trace = parent_trace;
            parent = Some(parent_span);
        }

        let tool = name(self.tool.as_deref().unwrap_or(names::OTHER));
        let mut attributes = vec![
            text(names::OPERATION, names::EXECUTE_TOOL),
            text(names::TOOL, &*tool),
            text(names::CALL_ID, &*self.id.0),
            // The name of a session may contain a path, so only its hash is sent.
            text(names::CONVERSATION, short_hash(&self.session)),
            attribute(names::ATTEMPTS, Value::Int(self.attempts.into())),
        ];
        if let Some(user) = self.user {
            attributes.push(text(names::USER, name(&user.name)));
            if !user.groups.is_empty() {
                let groups = user.groups.iter().take(MAX_GROUPS).map(|group| name(group));
                attributes.push(texts(names::GROUPS, groups));
            }
        }
        attributes.extend(self.provider.map(|provider| text(names::PROVIDER, name(&provider))));
        attributes.extend(self.error.map(|error| text(names::ERROR_TYPE, error)));
        attributes.extend(self.code.map(|code| text(names::ERROR_CODE, code)));
        attributes.extend(self.verdict.map(|verdict| text(names::VERDICT, verdict.as_str())));
        for (name, flag) in [(names::CACHED, self.cached), (names::TRUNCATED, self.truncated)] {
            if flag {
                attributes.push(attribute(name, Value::Bool(true)));
            }
        }
        if !self.waited.is_zero() {
            attributes.push(millis(names::WAITED, self.waited));
        }
        for step in &self.steps {
            attributes.push(millis(&format!("{}{}", names::STEP, step.name), step.time));
        }

        let mut events = Vec::new();
        if let Some((by, scope)) = self.approval {
            let approval =
                vec![text(names::APPROVED_BY, name(&by)), text(names::APPROVAL_SCOPE, scope)];
            events.push((names::APPROVAL_EVENT, approval));
        }
        if let Some(refusal) = self.refusal {
            let count = i64::try_from(refusal.count).unwrap_or(i64::MAX);
            let denial = vec![
                text(names::GATE, refusal.gate),
                text(names::RULE, refusal.rule),
                attribute(names::DENIALS, Value::Int(count)),
            ];
            events.push((names::DENIAL_EVENT, denial));
        }

        Span {
            trace,
            id,
            parent,
            name: format!("{} {tool}", names::EXECUTE_TOOL),
            start: self.start,
            took: self.took,
            attributes,
            events,
            failed: self.error.is_some(),
        }
    }
}

fn name(name: &str) -> String {
    neutral_line(cut(name, MAX_NAME))
}

fn millis(name: &str, time: Duration) -> Message {
    attribute(name, Value::Double(time.as_secs_f64() * 1000.0))
}

/// Reads the trace and the span in a W3C `traceparent`: `00-TRACE-SPAN-FLAGS`.
fn parse_parent(text: &str) -> Option<([u8; TRACE_ID], [u8; SPAN_ID])> {
    let mut parts = text.split('-');
    let version = parts.next()?;
    let trace = parts.next()?;
    let span = parts.next()?;
    let flags = parts.next()?;
    if version != "00" || parts.next().is_some() {
        return None;
    }
    let trace_id: [u8; TRACE_ID] = parse_hex(trace)?;
    let span_id: [u8; SPAN_ID] = parse_hex(span)?;
    // The flags are only checked.
    let _flags: [u8; 1] = parse_hex(flags)?;
    // Zero isn't a valid ID.
    if trace_id == [0; TRACE_ID] || span_id == [0; SPAN_ID] {
        return None;
    }
    Some((trace_id, span_id))
}

/// Parses the hexadecimal digits of exactly `N` bytes.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = 16 * digit(digits[0])? + digit(digits[1])?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_told_without_its_object() {
        for (rule, expected) in [
            ("deny_read = \"**/.env\"", "deny_read"),
            ("the blocked command `rm -rf /secret`", "the blocked command"),
            ("strict_parse = true: it has \"secret\"", "strict_parse"),
            ("private addresses are blocked: 10.1.2.3 is private", "private addresses are blocked"),
            ("secret.example is not allowed", names::OTHER),
            ("secret.example", names::OTHER),
            ("allowed_paths", "allowed_paths"),
            ("\"secret\" is refused", names::OTHER),
            ("/home/u", names::OTHER),
            ("", names::OTHER),
            (&*"x".repeat(1000), names::OTHER),
        ] {
            assert_eq!(rule_name(rule), expected, "{rule}");
        }
    }

    #[test]
    fn parent_is_taken_only_if_it_is_valid() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let (read, parent) = parse_parent(&format!("00-{trace}-{span}-01")).expect("it is valid");
        assert_eq!((read[0], read[15], parent[1]), (0x4b, 0x36, 0xf0));
        for wrong in [
            String::new(),
            format!("01-{trace}-{span}-01"),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-x"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            "é".repeat(55),
        ] {
            assert_eq!(parse_parent(&wrong), None, "{wrong}");
        }
    }
}
