//! The last step before the answer, always in this order: program output becomes what a terminal
//! would show, control characters are neutralised, secrets are redacted, filters leave out noise,
//! secrets are searched again, a long text is cut, and untrusted text is fenced.
//!
//! So characters that hide a secret are removed before the search, no cut leaves an unrecognised
//! part of one, the stored answer is redacted, and the host's notice about a cut is outside of the
//! fence.

mod cut;
mod fence;
mod flagged;
mod marks;
mod redacting_events;
mod shortened;
mod sources;
mod structured;

use std::sync::Arc;
use std::time::Duration;

use berth_catalogue::{Audience, CallContext, Chain, Tool, subjects};
use berth_config::Redaction;
use berth_contract::text::{cut, neutral_json, neutral_line, neutral_owned};
use berth_contract::{
    Body, CancellationToken, Category, Content, Denial, Events, Failure, Outcome, Report,
};
use berth_policy::last_command;
use berth_redaction as redaction;
use serde_json::{Value, json};

use crate::answer::{FilterSummary, Remainder};
use crate::blocking::blocking;
use crate::filters::FilterPipeline;
use crate::filters::terminal::Kind;
use crate::overflow::{OverflowId, OverflowStore, READ_OVERFLOW};
use fence::Fence;
use redacting_events::RedactingEvents;
use sources::Source;
pub use structured::structured_schema;

/// Bytes of a failure's message.
const MAX_MESSAGE: usize = 8192;

/// The longest wait that a tool can ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Bytes of an answer that are processed at once. A longer one would delay the other calls on the
/// thread.
const AT_ONCE: usize = 64 * 1024;

/// Time limit for processing a longer answer. The longest needs a small part of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Additional time if the call was cancelled: its output so far is still worth an answer.
const GRACE: Duration = Duration::from_secs(2);

/// Shapes answers and events before they leave the host.
#[derive(Debug)]
pub struct Shaper {
    /// Largest content in bytes.
    pub result: usize,
    /// The tools in whose answers secrets are searched.
    pub redaction: Redaction,
    /// Characters of text after which an answer is cut for a model. 0: never.
    pub threshold: usize,
    /// Stores the complete text of long answers.
    pub overflow: Arc<OverflowStore>,
    /// Runs the filters.
    pub filtering: FilterPipeline,
}

impl Shaper {
    /// Shapes an outcome. An answer that can't be processed in time is withheld.
    pub async fn shape(
        &self,
        chain: &Chain,
        context: &CallContext,
        report: &Report,
        outcome: Outcome,
        cancel: &CancellationToken,
    ) -> (Outcome, ShapeReport) {
        let mut shape = ShapeReport::default();
        let source = self.redacts(context).then(|| Source::for_call(context));
        let (outcome, truncated) =
            clean_in_time(outcome, source, kind(context), self.result, cancel).await;
        shape.truncated = truncated;
        let (mut outcome, notice) =
            self.filter(chain, context, &mut shape, outcome, source, cancel).await;
        shape.notices = std::mem::take(&mut report.entries().notices);
        if let Some(source) = source {
            shape.notices = shape
                .notices
                .drain(..)
                .map(|notice| redaction::owned(notice, source.keys()))
                .collect();
        }
        if is_untrusted(context) {
            shape.injections = flagged::flag(&mut outcome).await;
        }
        if context.audience == Audience::Model {
            self.for_model(context, &mut shape, &mut outcome).await;
        }
        if let Some(Notice { text, rest }) = notice {
            let content = match &mut outcome {
                Ok(output) => &mut output.content,
                Err(failure) => &mut failure.content,
            };
            content.push(Content::text(bracketed(&text)));
            shape.notices.push(text);
            shape.rest = shape.rest.take().or(rest);
        }
        (outcome, shape)
    }

    /// The filtered answer with its notices.
    async fn filter(
        &self,
        chain: &Chain,
        context: &CallContext,
        shape: &mut ShapeReport,
        mut outcome: Outcome,
        source: Option<Source>,
        cancel: &CancellationToken,
    ) -> (Outcome, Option<Notice>) {
        // A caller asks for the rest of an answer to see it, so it isn't filtered.
        let shorten =
            self.threshold > 0 && !context.tool.as_deref().is_some_and(reads_stored_answers);
        let mut change = match self.filtering.apply(chain, context, shorten, &outcome, cancel).await
        {
            Ok(Some(change)) => change,
            Ok(None) => return (outcome, None),
            Err(withheld) => return (Err(withheld), None),
        };
        let mut notice = None;
        if let Some(whole) = change.whole.take() {
            let kept = match self.keep(context, whole, is_untrusted(context)).await {
                kept @ Ok(_) => kept,
                Err(error) => {
                    // An answer that can't be stored isn't shortened.
                    tracing::warn!(
                        "an answer is not filtered, since the whole of it can't be kept: {error}"
                    );
                    return (outcome, None);
                }
            };
            let FilterSummary { filters, lines: [before, after], .. } = &change.filtered;
            let text = format!(
                "Filtered by {}: {before} lines -> {after} lines. {}",
                filters.join(", "),
                describe_rest(&kept, 0)
            );
            notice = Some(Notice { text, rest: remainder(&kept, 0) });
            shape.truncated = true;
        }
        let filtered = change.make(&mut outcome);
        flagged::set_meta(&mut outcome, "berth:filtered", json!(filtered));
        shape.filtered = Some(filtered);
        let (outcome, truncated) =
            clean_in_time(outcome, source, Kind::Stored, self.result, cancel).await;
        shape.truncated |= truncated;
        (outcome, notice)
    }

    /// A receiver for the events of a call, which passes them to `events` without secrets.
    pub fn redact_events(&self, context: &CallContext, events: Arc<dyn Events>) -> Arc<dyn Events> {
        if self.redacts(context) {
            Arc::new(RedactingEvents::new(events, Source::for_call(context)))
        } else {
            events
        }
    }

    /// Refuses arguments that hold the mark of a secret.
    ///
    /// # Errors
    ///
    /// [`Category::InvalidParameters`](berth_contract::Category::InvalidParameters).
    pub fn check(&self, context: &CallContext) -> Result<(), Failure> {
        if self.redacts(context) { marks::check(context) } else { Ok(()) }
    }

    fn redacts(&self, context: &CallContext) -> bool {
        let exempt = |name: &String| self.redaction.exempt.contains(name);
        let tool = context.tool.as_ref().map(|tool| &tool.definition);
        self.redaction.enabled
            && !tool.is_some_and(|tool| exempt(&tool.name) || tool.aliases.iter().any(exempt))
    }

    /// Cuts a text that is too long for a model, stores the complete text, and fences untrusted
    /// text.
    async fn for_model(
        &self,
        context: &CallContext,
        shape: &mut ShapeReport,
        outcome: &mut Outcome,
    ) {
        let Some(tool) = &context.tool else { return };
        let (rest, untrusted) = (reads_stored_answers(tool), is_untrusted(context));
        if untrusted {
            flagged::set_meta(outcome, "berth:untrusted", json!(true));
        }
        shape.untrusted = untrusted;
        let warning = flagged::warning(&shape.injections);
        let before = warning.as_deref().map(|warning| Content::text(bracketed(warning)));
        shape.notices.extend(warning);
        let (content, structured, meta) = match outcome {
            Ok(output) => (&mut output.content, &mut output.structured, &mut output.meta),
            Err(failure) => (&mut failure.content, &mut failure.structured, &mut failure.meta),
        };
        let fence = untrusted.then(|| Fence::new(&tool.definition.name));
        let around =
            |text: &str| fence.as_ref().map_or_else(|| text.to_owned(), |fence| fence.wrap(text));
        // The rest of an answer has its own limit.
        let threshold = if self.threshold == 0 || rest { usize::MAX } else { self.threshold };
        let is_long = content.iter().map(|part| part.as_text().map_or(0, str::len)).sum::<usize>()
            > threshold;
        let long_value = structured.as_mut().filter(|value| is_longer(value, threshold));
        let mut whole = String::new();
        if is_long || long_value.is_some() {
            whole = content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
        }
        let shortened = long_value.and_then(|value| {
            if whole.is_empty() {
                whole = value.to_string();
            }
            shortened::shorten(value, threshold)
        });
        if structured.as_ref().is_some_and(|value| is_longer(value, threshold)) {
            let whole = structured.take().unwrap_or_default().to_string();
            let (total, kept) = (whole.chars().count(), self.keep(context, whole, untrusted).await);
            let notice = format!(
                "The structured answer of {total} characters is left out. {}",
                describe_rest(&kept, 0)
            );
            content.push(Content::text(bracketed(&notice)));
            shape.notices.push(notice);
            shape.rest = remainder(&kept, 0);
            shape.truncated = true;
        }
        let ends = if is_long { cut::ends(&whole, threshold) } else { None };
        if ends.is_some() || shortened.is_some() {
            let kept = self.keep(context, whole.clone(), untrusted).await;
            // The shown part of a field may end before the shown part of the text.
            let offset = shortened.or(ends.as_ref().map(|ends| ends.offset)).unwrap_or_default();
            shape.notices.push(format!(
                "A part of the answer is left out here. {}",
                describe_rest(&kept, offset)
            ));
            shape.rest = remainder(&kept, offset);
            shape.truncated = true;
            if let Some(ends) = ends {
                let notice = format!(
                    "[{} of {} characters are left out here. {}]\n",
                    ends.left_out,
                    ends.total,
                    describe_rest(&kept, ends.offset)
                );
                let break_line = if ends.head.is_empty() || ends.head.ends_with('\n') || untrusted {
                    ""
                } else {
                    "\n"
                };
                let text =
                    format!("{}{break_line}{notice}{}", around(ends.head), around(ends.tail));
                content.retain(|part| part.as_text().is_none());
                content.insert(0, Content::text(text));
                content.splice(0..0, before);
                let id = kept.as_ref().ok().map(|(id, _)| id.as_str());
                let told = json!({ "id": id, "offset": ends.offset, "left_out": ends.left_out, "total": ends.total });
                match meta {
                    Some(Value::Object(fields)) => {
                        drop(fields.insert("berth:overflow".to_owned(), told));
                    }
                    meta => *meta = Some(json!({ "berth:overflow": told })),
                }
                return;
            }
        }
        if fence.is_some() {
            for part in content.iter_mut() {
                if let Body::Text(text) = &mut part.body {
                    *text = around(text);
                }
            }
        }
        content.splice(0..0, before);
    }

    /// Stores an answer for `read_overflow`. Returns the ID and whether everything is stored, or
    /// the reason why not.
    async fn keep(
        &self,
        context: &CallContext,
        text: String,
        untrusted: bool,
    ) -> Result<(OverflowId, bool), String> {
        let (overflow, session) = (Arc::clone(&self.overflow), Arc::clone(&context.session));
        let keep = move || {
            let whole = text.len() <= overflow.answer_bytes();
            overflow
                .keep(&session, &text, untrusted)
                .map(|id| (id, whole))
                .map_err(|error| error.to_string())
        };
        blocking(keep).await
    }
}

/// What shaping did to an answer.
#[derive(Debug, Default)]
pub struct ShapeReport {
    /// What filters left out.
    pub filtered: Option<FilterSummary>,
    /// The injection patterns in untrusted text.
    pub injections: Vec<&'static str>,
    /// Whether a part was left out.
    pub truncated: bool,
    /// Whether it is untrusted text for a model.
    pub untrusted: bool,
    /// The host's notices, which are in its text too.
    pub notices: Vec<String>,
    /// Where to read the part that was left out.
    pub rest: Option<Remainder>,
}

/// The host's notices after an answer.
struct Notice {
    text: String,
    rest: Option<Remainder>,
}

/// A notice in the form of the text.
fn bracketed(notice: &str) -> String {
    format!("[{notice}]\n")
}

/// Where to read on from `offset`.
fn remainder(kept: &Result<(OverflowId, bool), String>, offset: usize) -> Option<Remainder> {
    kept.as_ref().ok().map(|(id, _)| Remainder { id: id.as_str().to_owned(), offset })
}

/// The kind of a call's texts for a terminal.
fn kind(context: &CallContext) -> Kind {
    let Some(tool) = context.tool.as_deref() else { return Kind::Written };
    let last = subjects::commands(tool, &context.arguments).next().and_then(last_command);
    Kind::for_tool(&tool.definition, last.as_ref())
}

/// Whether a tool reads a stored answer.
fn reads_stored_answers(tool: &Tool) -> bool {
    tool.definition.name == READ_OVERFLOW && tool.is_built_in()
}

/// Whether the answer of a call is untrusted.
fn is_untrusted(context: &CallContext) -> bool {
    context.tool.as_ref().is_some_and(|tool| match reads_stored_answers(tool) {
        true => context.arguments["id"]
            .as_str()
            .and_then(OverflowId::parse)
            .is_some_and(|id| id.is_untrusted()),
        false => tool.definition.annotations.open_world,
    })
}

/// [`clean()`] on this thread, for short answers.
async fn clean_in_time(
    outcome: Outcome,
    source: Option<Source>,
    kind: Kind,
    limit: usize,
    cancel: &CancellationToken,
) -> (Outcome, bool) {
    if !is_long(&outcome) {
        return clean(outcome, source, kind, limit);
    }
    let cleaned =
        run_in_time(move || clean(outcome, source, kind, limit), PATIENCE, GRACE, cancel).await;
    cleaned.unwrap_or_else(|withheld| (Err(withheld), false))
}

/// [`blocking()`] with a time limit. A later result is dropped.
async fn run_in_time<R: Send + 'static>(
    run: impl FnOnce() -> R + Send + 'static,
    patience: Duration,
    grace: Duration,
    cancel: &CancellationToken,
) -> Result<R, Failure> {
    let mut running = std::pin::pin!(blocking(run));
    let waited = tokio::time::timeout(patience, cancel.run_until_cancelled(running.as_mut()));
    let (category, why) = match waited.await {
        Ok(Some(result)) => return Ok(result),
        Ok(None) => match tokio::time::timeout(grace, running).await {
            Ok(result) => return Ok(result),
            Err(_) => (
                Category::Cancelled,
                "the call was cancelled before its answer was looked through for secrets",
            ),
        },
        Err(_) => (Category::Timeout, "its answer could not be looked through for secrets in time"),
    };
    let message = format!("{why}, so the answer is withheld; what the tool did is done");
    Err(Failure::new(category, message)
        .with_code("withheld")
        .with_suggestion("Ask for less at once."))
}

/// Whether an outcome has more text than is processed at once. Doesn't serialise it to find out.
fn is_long(outcome: &Outcome) -> bool {
    let (content, values, texts) = match outcome {
        Ok(output) => (&output.content, [&output.structured, &output.meta], 0),
        Err(failure) => {
            let texts =
                [Some(&failure.message), failure.suggestion.as_ref(), failure.code.as_ref()];
            let denial = failure
                .denial
                .as_ref()
                .map_or(0, |denial| denial.action.len() + denial.rule.len() + denial.remedy.len());
            let texts = texts.into_iter().flatten().map(String::len).sum::<usize>() + denial;
            (&failure.content, [&failure.structured, &failure.meta], texts)
        }
    };
    let length = texts
        + content
            .iter()
            .map(|part| part.len() + part.media_type.as_ref().map_or(0, String::len))
            .sum::<usize>();
    let values = values.into_iter().chain(content.iter().map(|part| &part.meta)).flatten();
    length > AT_ONCE || values.into_iter().any(|value| is_longer(value, AT_ONCE))
}

/// How to read the part that was left out.
fn describe_rest(kept: &Result<(OverflowId, bool), String>, offset: usize) -> String {
    match kept {
        Ok((id, true)) => format!(
            "To see more, call {READ_OVERFLOW} with id \"{}\" and offset {offset}.",
            id.as_str()
        ),
        Ok((id, false)) => {
            format!(
                "Its beginning is kept: to see more, call {READ_OVERFLOW} with id \"{}\" and offset {offset}.",
                id.as_str()
            )
        }
        Err(error) => format!("It could not be kept: {error}. Ask for less at once."),
    }
}

/// Whether a value has more characters as JSON. Doesn't serialise it to find out.
fn is_longer(value: &Value, threshold: usize) -> bool {
    fn length(value: &Value, left: usize) -> Option<usize> {
        match value {
            Value::String(text) => left.checked_sub(text.chars().count() + 2),
            Value::Array(items) => items
                .iter()
                .try_fold(left.checked_sub(2)?, |left, item| length(item, left)?.checked_sub(1)),
            Value::Object(fields) => {
                fields.iter().try_fold(left.checked_sub(2)?, |left, (key, value)| {
                    length(value, left)?.checked_sub(key.chars().count() + 4)
                })
            }
            _ => left.checked_sub(5),
        }
    }
    threshold != usize::MAX && length(value, threshold).is_none()
}

/// Neutralises, redacts and bounds an outcome, in this order. Returns whether something was left
/// out.
fn clean(outcome: Outcome, source: Option<Source>, kind: Kind, limit: usize) -> (Outcome, bool) {
    let mut truncated = false;
    let keys = source.map(Source::keys);
    let json = |value: Value| {
        let value = neutral_json(shown(value, kind));
        match keys {
            Some(keys) => redaction::json(value, keys),
            None => value,
        }
    };
    let redacted = |text: String| match keys {
        Some(keys) => redaction::owned(text, keys),
        None => text,
    };
    let outcome = match outcome {
        Ok(mut output) => {
            output.content = bounded(contents(output.content, source, kind), limit, &mut truncated);
            output.structured = output.structured.map(json);
            output.meta = output.meta.map(json);
            Ok(output)
        }
        Err(mut failure) => {
            let text = |text: String| redacted(neutral_owned(text));
            failure.message = shortened(text(failure.message));
            failure.suggestion = failure.suggestion.map(text);
            failure.code = failure.code.map(text);
            failure.content =
                bounded(contents(failure.content, source, kind), limit, &mut truncated);
            failure.structured = failure.structured.map(json);
            failure.meta = failure.meta.map(json);
            failure.retry_after = failure.retry_after.map(|wait| wait.min(MAX_WAIT));
            failure.denial = failure.denial.map(|denial| {
                let line = |text: String| shortened(redacted(neutral_line(&text)));
                Denial {
                    capability: line(denial.capability),
                    action: line(denial.action),
                    rule: line(denial.rule),
                    place: line(denial.place),
                    // It may name lines to add to a file.
                    remedy: shortened(text(denial.remedy)),
                }
            });
            Err(failure)
        }
    };
    (outcome, truncated)
}

/// The texts of a value in the form that a terminal would show.
fn shown(value: Value, kind: Kind) -> Value {
    match value {
        Value::String(text) => Value::String(kind.shown(text)),
        Value::Array(items) if kind == Kind::Lines => {
            Value::Array(items.into_iter().map(|item| shown(item, kind)).collect())
        }
        Value::Object(fields) if kind == Kind::Lines => Value::Object(
            fields.into_iter().map(|(name, field)| (name, shown(field, kind))).collect(),
        ),
        value => value,
    }
}

fn shortened(mut text: String) -> String {
    text.truncate(cut(&text, MAX_MESSAGE).len());
    text
}

/// Neutralises and redacts the parts, also secrets that begin in one part and end in the next.
fn contents(parts: Vec<Content>, source: Option<Source>, kind: Kind) -> Vec<Content> {
    let parts = parts.into_iter().map(|part| match part.body {
        Body::Text(text) => Content { body: Body::Text(kind.shown(text)), ..part }.neutralised(),
        _ => part.neutralised(),
    });
    let Some(source) = source else { return parts.collect() };
    let mut parts: Vec<Content> = parts.map(|part| source.part(part)).collect();
    let texts = parts
        .iter_mut()
        .filter_map(|part| if let Body::Text(text) = &mut part.body { Some(text) } else { None });
    redaction::across(&mut texts.collect::<Vec<_>>(), source.keys());
    parts
}

fn bounded(parts: Vec<Content>, limit: usize, truncated: &mut bool) -> Vec<Content> {
    let mut left = limit;
    let mut shaped = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter();
    for part in parts.by_ref() {
        if part.len() > left {
            *truncated = true;
            shaped.extend(cut_part(part, left, parts.len()));
            break;
        }
        left -= part.len();
        shaped.push(part);
    }
    shaped
}

/// Shortens a part that is too large to its beginning and a note.
fn cut_part(part: Content, left: usize, more: usize) -> Vec<Content> {
    let size = part.len();
    let note = match more {
        0 => format!("[cut: this part had {size} bytes]"),
        _ => format!("[cut: this part had {size} bytes, and {more} more parts followed]"),
    };
    match part.body {
        Body::Text(text) => vec![
            Content { body: Body::Text(cut(&text, left).to_owned()), ..part },
            Content::text(note),
        ],
        Body::Bytes(_) | Body::Link(_) => vec![Content::text(note)],
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use berth_contract::Output;
    use berth_redaction::Keys;

    fn clean_output(output: Output, limit: usize) -> (Output, bool) {
        let (shaped, truncated) =
            clean(Ok(output), Some(Source::One(Keys::Text)), Kind::Stored, limit);
        (shaped.expect("is an output"), truncated)
    }

    #[test]
    fn length_counts_all_parts_of_an_answer() {
        let long = "x".repeat(AT_ONCE);
        assert!(!is_long(&Ok(Output::text("x".repeat(AT_ONCE)))));
        assert!(is_long(&Ok(Output::text(format!("{long}x")))));
        assert!(is_long(&Ok(Output { structured: Some(json!([long])), ..Output::default() })));
        assert!(is_long(&Ok(Output { meta: Some(json!({ "a": long })), ..Output::default() })));
        let part = Content { meta: Some(json!([long])), ..Content::text("") };
        assert!(is_long(&Ok(Output { content: vec![part], ..Output::default() })));
        assert!(is_long(&Err(Failure::new(Category::Timeout, format!("{long}x")))));
    }

    #[test]
    fn slow_shaping_withholds_the_answer_and_delays_no_call() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let cancel = CancellationToken::new();
            for (text, at_once) in
                [("token=hunter22\n".to_owned(), true), ("token=hunter22\n".repeat(10_000), false)]
            {
                let mut cleaning = std::pin::pin!(clean_in_time(
                    Ok(Output::text(text)),
                    Some(Source::One(Keys::Text)),
                    Kind::Stored,
                    usize::MAX,
                    &cancel
                ));
                let polled = cleaning.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled.is_ready(), at_once, "others may run meanwhile");
                if !at_once {
                    let (outcome, _) = cleaning.await;
                    assert!(
                        !outcome.expect("it is done in time").joined_text().contains("hunter22")
                    );
                }
            }
            // Nothing is sent before the end, so neither finishes.
            for (patience, cancelled, category) in
                [(Duration::ZERO, false, Category::Timeout), (PATIENCE, true, Category::Cancelled)]
            {
                let (send, receive) = std::sync::mpsc::channel::<()>();
                let cancel = CancellationToken::new();
                if cancelled {
                    cancel.cancel();
                }
                let run = move || receive.recv().is_ok();
                let withheld = run_in_time(run, patience, Duration::ZERO, &cancel)
                    .await
                    .expect_err("it isn't done");
                assert_eq!(
                    (withheld.category, withheld.code.as_deref()),
                    (category, Some("withheld")),
                    "{withheld:?}"
                );
                drop(send);
            }
            // A cancelled call still returns its output so far.
            let cancel = CancellationToken::new();
            cancel.cancel();
            assert_eq!(
                run_in_time(|| 1, PATIENCE, GRACE, &cancel).await.expect("it is done in time"),
                1
            );
        });
    }

    #[test]
    fn answer_is_bounded_with_a_notice() {
        let content = vec![Content::text("abc"), Content::text("defgh"), Content::text("i")];
        let (shaped, truncated) = clean_output(Output { content, ..Output::default() }, 5);
        assert_eq!(
            shaped.joined_text(),
            "abc\nde\n[cut: this part had 5 bytes, and 1 more parts followed]"
        );
        assert!(truncated);
    }

    #[test]
    fn answers_never_steer_a_terminal() {
        let output = Output {
            structured: Some(json!({ "a\u{1b}": ["\u{202e}x"] })),
            ..Output::text("\u{1b}]0;x\u{7}")
        };
        let (shaped, truncated) = clean_output(output, 100);
        assert_eq!(shaped.joined_text(), "\u{fffd}]0;x\u{fffd}");
        assert_eq!(shaped.structured, Some(json!({ "a\u{fffd}": ["\u{fffd}x"] })));
        assert!(!truncated);
    }

    #[test]
    fn length_of_a_value_is_about_that_of_its_text() {
        let value = json!({ "a": ["x".repeat(100), 1, null, true], "b": {} });
        let length = value.to_string().len();
        assert!(
            is_longer(&value, length - 20)
                && !is_longer(&value, length + 20)
                && !is_longer(&value, usize::MAX)
        );
    }
}
