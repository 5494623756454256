//! Shapes an answer before it leaves the host. These steps run in this order:
//!
//! 1. Characters that could hide a secret are removed.
//! 2. The text is redacted. Cuts come later, because a part of a secret isn't recognised.
//! 3. Filters run, and the text is redacted again.
//! 4. The complete text of a long answer is stored, and the answer is cut.
//! 5. Untrusted text is fenced. The host's notice about a cut is outside of the fence.

mod clean;
mod cut;
mod fence;
mod flagged;
mod live_events;
mod marks;
mod media;
mod model_answer;
mod shortened;
mod sources;
mod structured;

use std::io;
use std::sync::{Arc, Once};

use serde_json::{Value, json};
use toolhold_catalogue::{Audience, CallContext, Chain, Tool, subjects};
use toolhold_config::Redaction;
use toolhold_contract::text::counted;
use toolhold_contract::{
    CancellationToken, Category, Content, Definition, Events, Failure, HostError, Outcome, Output,
    Report, Role, SubjectKind, UntrustedText,
};
use toolhold_policy::last_command;
use toolhold_redaction as redaction;

use crate::answer::{FilterSummary, Remainder};
use crate::blocking::blocking;
use crate::filters::{FilterPipeline, SpooledAnswer, Whole};
use crate::overflow::{
    Extent, KeptOutput, LiveOutput, OverflowId, OverflowStore, READ_OVERFLOW, Spool, SpooledOutput,
    TextRules,
};
use crate::terminal::Kind;
use clean::clean_in_time;
pub use fence::{fenced, without_fence_keys};
use live_events::{EventReceiver, LiveEvents};
use sources::Source;
pub use structured::structured_schema;

/// Shapes answers and events before they leave the host.
#[derive(Debug)]
pub struct Shaper {
    /// Maximum length of the content in bytes. Longer content is cut.
    pub result: usize,
    /// The tools whose answers are redacted.
    pub redaction: Redaction,
    /// Number of characters after which an answer for a model is cut. 0 means never.
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
        spool: Option<Arc<Spool>>,
        cancel: &CancellationToken,
    ) -> (Outcome, ShapeReport) {
        let mut shape = ShapeReport::default();
        let source = self.source_of(context);
        let mut spooled = SpooledAnswer {
            store: Arc::clone(&self.overflow),
            keys: source.map(Source::keys),
            output: None,
        };
        let mut stored = None;
        if let Some(spool) = spool
            && shortened::is_truncated(&outcome)
        {
            match blocking(move || spool.finish()).await {
                Ok(output) => spooled.output = Some(Arc::new(output)),
                Err(error) => stored = Some(Err(KeepError::Spool(error))),
            }
        }
        let (outcome, truncated) =
            clean_in_time(outcome, source, kind(context), self.result, cancel).await;
        shape.truncated = truncated;
        let has_marked_part = flagged::has_marked_part(&outcome);

        let (mut outcome, mut notice) =
            self.filter(chain, context, report, &mut shape, outcome, &mut spooled, cancel).await;
        if shape.filtered.is_some() {
            let (cleaned, truncated) =
                clean_in_time(outcome, source, Kind::Stored, self.result, cancel).await;
            outcome = cleaned;
            if truncated {
                shape.truncated = true;
            }
        }
        if let Some(output) = spooled.output.take() {
            stored = Some(self.keep_spooled(context, output).await);
        }
        shape.notices = std::mem::take(&mut report.entries().notices);
        if let Some(source) = source {
            for notice in &mut shape.notices {
                *notice = redaction::owned(std::mem::take(notice), source.keys());
            }
        }

        // A filter may have merged a marked part with other parts, so nothing says any more which
        // part of the answer is untrusted.
        let marked_part_is_joined = has_marked_part && shape.filtered.is_some();
        let mut whole_is_untrusted =
            is_untrusted(context) || report.entries().output_of.is_some() || marked_part_is_joined;
        shape.has_untrusted = whole_is_untrusted || has_marked_part;
        let is_for_model = context.audience == Audience::Model;
        if is_for_model && whole_is_untrusted {
            move_tool_message(context, &mut outcome);
        }
        if shape.has_untrusted || (is_for_model && shows_files(context)) {
            shape.injections = flagged::flag(&mut outcome).await;
        }
        if is_for_model {
            shape.untrusted = shape.has_untrusted;
            // Files of the user's project may contain text of a third party, so an answer that
            // looks like instructions is fenced.
            if !shape.has_untrusted && !shape.injections.is_empty() {
                shape.untrusted = true;
                whole_is_untrusted = true;
            }
            self.for_model(context, &mut shape, &mut outcome, &mut stored, whole_is_untrusted)
                .await;
        }

        if notice.is_none()
            && let Some(result) = stored
        {
            let stored = result.map(|output| (output.id, output.extent));
            let text = format!(
                "The output is too long, so the middle is left out. {}",
                describe_rest(&stored, 0)
            );
            notice = Some(Notice { text, rest: remainder(&stored, 0) });
        }
        if let Some(Notice { text, rest }) = notice {
            content_of(&mut outcome).push(Content::text(bracketed(&text)));
            shape.notices.push(text);
            if shape.rest.is_none() {
                shape.rest = rest;
            }
        }
        (outcome, shape)
    }

    /// Returns the text of a command's output as a model gets it, and the effect of filters.
    /// Nothing is stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    pub async fn preview(
        &self,
        chain: &Chain,
        context: &CallContext,
        output: &str,
        exit_code: i32,
    ) -> Result<(String, Option<FilterSummary>), Failure> {
        let cancel = CancellationToken::new();
        let source = self.source_of(context);
        let envelope =
            json!({ "stdout": output, "stderr": "", "exit_code": exit_code, "truncated": false });
        let content = vec![Content::text(output)];
        let outcome = if exit_code == 0 {
            Ok(Output { content, structured: Some(envelope), ..Output::default() })
        } else {
            let mut failure = Failure::new(Category::PermanentFailure, "");
            failure.content = content;
            failure.structured = Some(envelope);
            Err(failure)
        };
        let (mut outcome, _) =
            clean_in_time(outcome, source, kind(context), self.result, &cancel).await;
        let mut spooled = SpooledAnswer {
            store: Arc::clone(&self.overflow),
            keys: source.map(Source::keys),
            output: None,
        };
        let output_of = None;
        let shorten = true;
        let change = self
            .filtering
            .apply(chain, context, output_of, shorten, &outcome, &mut spooled, &cancel)
            .await?;
        let filtered = change.map(|change| change.make(&mut outcome));
        let (outcome, _) = clean_in_time(outcome, source, Kind::Stored, self.result, &cancel).await;
        let content = match outcome {
            Ok(output) => output.content,
            // This is the failure that stands for the exit code above. It has no code, unlike the
            // failure of a withheld answer.
            Err(failure) if failure.code.is_none() => failure.content,
            Err(withheld) => return Err(withheld),
        };
        Ok((content.iter().filter_map(Content::as_text).collect(), filtered))
    }

    /// Returns the filtered answer, which must be redacted again, and the notice about filtering.
    #[expect(clippy::too_many_arguments, reason = "each is another fact of the one answer")]
    async fn filter(
        &self,
        chain: &Chain,
        context: &CallContext,
        report: &Report,
        shape: &mut ShapeReport,
        mut outcome: Outcome,
        spooled: &mut SpooledAnswer,
        cancel: &CancellationToken,
    ) -> (Outcome, Option<Notice>) {
        let output_of = report.entries().output_of.clone();
        // An answer of `read_overflow` isn't filtered, because the caller wants to see the omitted
        // text.
        let is_stored_answer = context.tool.as_deref().is_some_and(reads_stored_answers);
        let tool_allows_it = match &output_of {
            Some(output) => output.shorten,
            None => true,
        };
        let shorten = self.threshold > 0 && !is_stored_answer && tool_allows_it;
        let untrusted =
            is_untrusted(context) || output_of.is_some() || flagged::has_marked_part(&outcome);
        let result = self
            .filtering
            .apply(chain, context, output_of.as_ref(), shorten, &outcome, spooled, cancel)
            .await;
        let mut change = match result {
            Ok(Some(change)) => change,
            Ok(None) => return (outcome, None),
            Err(withheld) => {
                spooled.output = None;
                return (Err(withheld), None);
            }
        };
        let mut notice = None;
        if let Some(whole) = change.whole.take() {
            let stored = match (whole, spooled.output.take()) {
                (Whole::Spooled, Some(output)) => {
                    self.keep_spooled(context, output).await.map(|kept| (kept.id, kept.extent))
                }
                (Whole::Spooled, None) => Err(KeepError::Gone),
                (Whole::Text(text), _) => self.keep(context, text, untrusted).await,
            };
            if let Err(error) = &stored {
                tracing::warn!(
                    "an answer is not filtered, because storing the whole answer failed: {error}"
                );
                return (outcome, None);
            }
            let FilterSummary { filters, lines: [before, after], .. } = &change.filtered;
            let text = format!(
                "Filtered by {}: {} -> {}. {}",
                filters.join(", "),
                counted(*before, "line"),
                counted(*after, "line"),
                describe_rest(&stored, 0)
            );
            notice = Some(Notice { text, rest: remainder(&stored, 0) });
            shape.truncated = true;
        }
        let filtered = change.make(&mut outcome);
        flagged::set_meta(&mut outcome, "toolhold:filtered", json!(filtered));
        shape.filtered = Some(filtered);
        (outcome, notice)
    }

    /// Returns a receiver that redacts events and passes them on to `events`. The receiver calls
    /// `on_untrusted` before the first event with untrusted text.
    pub fn redact_events(
        &self,
        context: &CallContext,
        events: Arc<dyn Events>,
        on_untrusted: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<dyn Events> {
        let untrusted = is_untrusted(context);
        let receiver = EventReceiver { events, untrusted, on_untrusted, warned: Once::new() };
        Arc::new(LiveEvents::new(receiver, self.rules(context)))
    }

    fn rules(&self, context: &CallContext) -> TextRules {
        TextRules { kind: kind(context), keys: self.source_of(context).map(Source::keys) }
    }

    /// Returns the source of a call's texts. `None` means that they aren't redacted.
    fn source_of(&self, context: &CallContext) -> Option<Source> {
        self.redacts(context).then(|| Source::for_call(context))
    }

    /// Refuses arguments that contain the mark of a redacted secret.
    ///
    /// # Errors
    ///
    /// [`Category::InvalidParameters`](toolhold_contract::Category::InvalidParameters) if the
    /// arguments contain a mark.
    pub fn check(&self, context: &CallContext) -> Result<(), Failure> {
        if self.redacts(context) { marks::check(context) } else { Ok(()) }
    }

    /// Redacts the arguments that the tool stores after the call.
    pub fn redact_kept(&self, context: &mut CallContext) {
        if !self.redacts(context) {
            return;
        }
        let Some(tool) = &context.tool else { return };
        for argument in tool.definition.arguments_with(Role::Kept) {
            let Some(value) = context.arguments.get(&argument.name) else { continue };
            let redacted = redaction::json(value.clone(), redaction::Keys::Text);
            if redacted != *value {
                Arc::make_mut(&mut context.arguments)[&argument.name] = redacted;
            }
        }
    }

    /// Checks whether the texts of the call are redacted.
    pub fn redacts(&self, context: &CallContext) -> bool {
        if !self.redaction.enabled {
            return false;
        }
        let Some(tool) = &context.tool else { return true };
        let Definition { name, aliases, .. } = &*tool.definition;
        let exempt = &self.redaction.exempt;
        let is_exempt = exempt.contains(name) || aliases.iter().any(|alias| exempt.contains(alias));
        !is_exempt
    }

    async fn keep(
        &self,
        context: &CallContext,
        text: String,
        untrusted: bool,
    ) -> Result<(OverflowId, Extent), KeepError> {
        let overflow = Arc::clone(&self.overflow);
        let session = Arc::clone(&context.session);
        blocking(move || {
            let is_whole = text.len() <= overflow.answer_bytes();
            let extent = if is_whole { Extent::Whole } else { Extent::Beginning };
            Ok((overflow.keep(&session, &text, untrusted)?, extent))
        })
        .await
    }

    async fn keep_spooled(
        &self,
        context: &CallContext,
        output: Arc<SpooledOutput>,
    ) -> Result<KeptOutput, KeepError> {
        let session = Arc::clone(&context.session);
        let output = Arc::into_inner(output).ok_or(KeepError::StillRead)?;
        Ok(blocking(move || output.keep(&session)).await?)
    }

    /// Returns the converter for the output of a job.
    pub fn live(&self, context: &CallContext) -> LiveOutput {
        LiveOutput::new(self.rules(context))
    }

    /// Returns the store for the output of the call's command. Returns `None` for calls without a
    /// command, and if answers are never cut.
    pub fn spool(&self, context: &CallContext) -> Option<Arc<Spool>> {
        let tool = context.tool.as_deref()?;
        if self.threshold == 0 || !tool.is_built_in() {
            return None;
        }
        let runs_command = subjects::commands(tool, &context.arguments).next().is_some();
        if !runs_command {
            return None;
        }
        Some(Arc::new(Spool::new(Arc::clone(&self.overflow), self.rules(context))))
    }
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("the stored output no longer exists")]
    Gone,
    #[error("the output is still being read")]
    StillRead,
    #[error(transparent)]
    Spool(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] HostError),
}

/// The effect of shaping on an answer.
#[derive(Debug, Default)]
pub struct ShapeReport {
    /// The effect of filters.
    pub filtered: Option<FilterSummary>,
    /// The injection patterns in untrusted text.
    pub injections: Vec<&'static str>,
    /// Whether a part of the answer was omitted.
    pub truncated: bool,
    /// Whether untrusted text in the answer is fenced for a model.
    pub untrusted: bool,
    /// Whether the answer has untrusted text.
    pub has_untrusted: bool,
    /// The host's notices, which are also in the answer's text.
    pub notices: Vec<String>,
    /// The place where the omitted part can be read.
    pub rest: Option<Remainder>,
}

struct Notice {
    text: String,
    rest: Option<Remainder>,
}

fn content_of(outcome: &mut Outcome) -> &mut Vec<Content> {
    match outcome {
        Ok(output) => &mut output.content,
        Err(failure) => &mut failure.content,
    }
}

fn bracketed(notice: &str) -> String {
    format!("[{notice}]\n")
}

fn remainder(stored: &Result<(OverflowId, Extent), KeepError>, offset: usize) -> Option<Remainder> {
    stored.as_ref().ok().map(|(id, _)| Remainder { id: id.as_str().to_owned(), offset })
}

fn kind(context: &CallContext) -> Kind {
    let Some(tool) = context.tool.as_deref() else { return Kind::Written };
    let last = subjects::commands(tool, &context.arguments).next().and_then(last_command);
    Kind::for_tool(&tool.definition, last.as_ref())
}

fn reads_stored_answers(tool: &Tool) -> bool {
    tool.definition.name == READ_OVERFLOW && tool.is_built_in()
}

/// Checks whether all text of the call's answer is untrusted.
fn is_untrusted(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    if reads_stored_answers(tool) {
        // The ID of a stored answer says whether its text is untrusted.
        let id = context.arguments["id"].as_str().and_then(OverflowId::parse);
        return id.is_some_and(|id| id.is_untrusted());
    }
    tool.definition.annotations.open_world
}

/// Moves the failure message of a third-party tool into the parts, which are fenced. The host's own
/// message takes its place. Denials already have a message of the host.
fn move_tool_message(context: &CallContext, outcome: &mut Outcome) {
    let (Some(tool), Err(failure)) = (&context.tool, outcome) else { return };
    let is_by_third_party = failure.by_tool && !tool.is_built_in();
    if !is_by_third_party || failure.denial.is_some() {
        return;
    }
    let message = format!("`{}` failed", tool.definition.name);
    let mut tool_text = std::mem::replace(&mut failure.message, message);
    if let Some(suggestion) = failure.suggestion.take() {
        tool_text.push('\n');
        tool_text.push_str(&suggestion);
    }
    failure.content.insert(0, Content::untrusted(&UntrustedText::new(tool_text)));
}

fn shows_files(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    let Definition { annotations, subjects, .. } = &*tool.definition;
    annotations.read_only && subjects.iter().any(|subject| subject.kind == SubjectKind::Path)
}

/// Checks whether a string contains a secret.
pub fn holds_secret(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    redaction::text(text, redaction::Keys::Text) != text
}

/// Describes how a model gets the omitted text, which starts at `offset`.
fn describe_rest(stored: &Result<(OverflowId, Extent), KeepError>, offset: usize) -> String {
    match stored {
        Ok((id, Extent::Whole)) => format!(
            "To see more, call {READ_OVERFLOW} with id \"{}\" and offset {offset}.",
            id.as_str()
        ),
        Ok((id, extent)) => {
            let part = match extent {
                Extent::Ends => "The start and the end of the output are",
                _ => "The start of the output is",
            };
            format!(
                "{part} stored: to see more, call {READ_OVERFLOW} with id \"{}\" and offset \
                 {offset}.",
                id.as_str()
            )
        }
        Err(error) => format!("Storing the output failed: {error}. Ask for less at once."),
    }
}
