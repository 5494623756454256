//! Shapes an answer before it leaves the host, in a fixed order. The text is converted to what a
//! terminal shows, neutralised, redacted, filtered, searched for secrets again, cut, and fenced.
//!
//! Because of this order, characters that hide a secret are removed before the search, a cut never
//! hides a part of a secret from the search, the stored answer is redacted, and the host's notice
//! about a cut is outside of the fence.

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
    /// Largest content in bytes.
    pub result: usize,
    /// The tools whose answers are searched for secrets.
    pub redaction: Redaction,
    /// Number of characters after which an answer is cut for a model. 0 means never.
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
        let mut kept = None;
        if let Some(spool) = spool
            && shortened::is_truncated(&outcome)
        {
            match blocking(move || spool.finish()).await {
                Ok(output) => spooled.output = Some(Arc::new(output)),
                Err(error) => kept = Some(Err(KeepError::Spool(error))),
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
            kept = Some(self.keep_spooled(context, output).await);
        }
        shape.notices = std::mem::take(&mut report.entries().notices);
        if let Some(source) = source {
            for notice in &mut shape.notices {
                *notice = redaction::owned(std::mem::take(notice), source.keys());
            }
        }

        // A filter may have merged a part that the tool marked with other parts.
        let marked_part_is_joined = has_marked_part && shape.filtered.is_some();
        let mut whole_is_untrusted =
            is_untrusted(context) || report.entries().output_of.is_some() || marked_part_is_joined;
        shape.has_untrusted = whole_is_untrusted || has_marked_part;
        let is_for_model = context.audience == Audience::Model;
        if is_for_model && whole_is_untrusted {
            enclose_words(context, &mut outcome);
        }
        if shape.has_untrusted || (is_for_model && shows_files(context)) {
            shape.injections = flagged::flag(&mut outcome).await;
        }
        if is_for_model {
            shape.untrusted = shape.has_untrusted;
            // Files of the project belong to the user, but a third party may have written them.
            // Text that looks like instructions is fenced.
            if !shape.has_untrusted && !shape.injections.is_empty() {
                shape.untrusted = true;
                whole_is_untrusted = true;
            }
            self.for_model(context, &mut shape, &mut outcome, &mut kept, whole_is_untrusted).await;
        }

        if notice.is_none()
            && let Some(result) = kept
        {
            let kept = result.map(|output| (output.id, output.extent));
            let text = format!(
                "The output is too long, so its middle is left out. {}",
                describe_rest(&kept, 0)
            );
            notice = Some(Notice { text, rest: remainder(&kept, 0) });
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

    /// Returns the text that a model would get for the output of a command, and the effect of the
    /// filters. Nothing is stored.
    ///
    /// # Errors
    ///
    /// The answer is withheld.
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
        let change = self
            .filtering
            .apply(chain, context, None, true, &outcome, &mut spooled, &cancel)
            .await?;
        let filtered = change.map(|change| change.make(&mut outcome));
        let (outcome, _) = clean_in_time(outcome, source, Kind::Stored, self.result, &cancel).await;
        let content = match outcome {
            Ok(output) => output.content,
            // Filters leave the content of a failure.
            Err(failure) if failure.code.is_none() => failure.content,
            Err(withheld) => return Err(withheld),
        };
        Ok((content.iter().filter_map(Content::as_text).collect(), filtered))
    }

    /// Returns the filtered answer with its notices. The answer must be searched for secrets again.
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
        // A caller requests the rest of an answer to see all of it, so the rest isn't filtered.
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
            let kept = match (whole, spooled.output.take()) {
                (Whole::Spooled, Some(output)) => {
                    self.keep_spooled(context, output).await.map(|kept| (kept.id, kept.extent))
                }
                (Whole::Spooled, None) => Err(KeepError::Gone),
                (Whole::Text(text), _) => self.keep(context, text, untrusted).await,
            };
            if let Err(error) = &kept {
                // An answer that can't be stored isn't shortened.
                tracing::warn!(
                    "an answer is not filtered, because storing all of it failed: {error}"
                );
                return (outcome, None);
            }
            let FilterSummary { filters, lines: [before, after], .. } = &change.filtered;
            let text = format!(
                "Filtered by {}: {} -> {}. {}",
                filters.join(", "),
                counted(*before, "line"),
                counted(*after, "line"),
                describe_rest(&kept, 0)
            );
            notice = Some(Notice { text, rest: remainder(&kept, 0) });
            shape.truncated = true;
        }
        let filtered = change.make(&mut outcome);
        flagged::set_meta(&mut outcome, "toolhold:filtered", json!(filtered));
        shape.filtered = Some(filtered);
        (outcome, notice)
    }

    /// Returns a receiver for the events of a call. It removes secrets and passes the events on to
    /// `events`. It calls `on_untrusted` before the first event with untrusted text.
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

    /// Returns the rules that convert a text of a call to a text that may leave the host.
    fn rules(&self, context: &CallContext) -> TextRules {
        TextRules { kind: kind(context), keys: self.source_of(context).map(Source::keys) }
    }

    /// Returns the source of a call's texts. Returns `None` if these texts aren't searched for
    /// secrets.
    fn source_of(&self, context: &CallContext) -> Option<Source> {
        self.redacts(context).then(|| Source::for_call(context))
    }

    /// Refuses arguments that contain the mark of a secret.
    ///
    /// # Errors
    ///
    /// [`Category::InvalidParameters`](toolhold_contract::Category::InvalidParameters) if the
    /// arguments contain a mark.
    pub fn check(&self, context: &CallContext) -> Result<(), Failure> {
        if self.redacts(context) { marks::check(context) } else { Ok(()) }
    }

    /// Removes secrets from the arguments that the tool stores after the call.
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

    /// Checks whether secrets are searched in the texts of the call.
    pub fn redacts(&self, context: &CallContext) -> bool {
        if !self.redaction.enabled {
            return false;
        }
        let Some(tool) = &context.tool else { return true };
        let Definition { name, aliases, .. } = &*tool.definition;
        let exempt = &self.redaction.exempt;
        !exempt.contains(name) && !aliases.iter().any(|alias| exempt.contains(alias))
    }

    /// Stores an answer for `read_overflow`. Returns the ID and whether everything is stored, or
    /// the reason why not.
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

    /// Gives a spooled output its ID, so that it is stored.
    async fn keep_spooled(
        &self,
        context: &CallContext,
        output: Arc<SpooledOutput>,
    ) -> Result<KeptOutput, KeepError> {
        let session = Arc::clone(&context.session);
        let output = Arc::into_inner(output).ok_or(KeepError::StillRead)?;
        Ok(blocking(move || output.keep(&session)).await?)
    }

    /// Returns the converter for the output of a command that continues after its call.
    pub fn live(&self, context: &CallContext) -> LiveOutput {
        LiveOutput::new(self.rules(context))
    }

    /// Returns the store for the whole output of a call's command. Returns `None` if there is no
    /// command, or if no output is stored.
    pub fn spool(&self, context: &CallContext) -> Option<Arc<Spool>> {
        let tool = context.tool.as_deref()?;
        if self.threshold == 0 || !tool.is_built_in() {
            return None;
        }
        // A call without a command needs no store.
        subjects::commands(tool, &context.arguments).next()?;
        Some(Arc::new(Spool::new(Arc::clone(&self.overflow), self.rules(context))))
    }
}

/// The reason why the complete text of an answer isn't stored.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("it is gone")]
    Gone,
    #[error("it is still read")]
    StillRead,
    #[error(transparent)]
    Spool(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] HostError),
}

/// The effect of shaping on an answer.
#[derive(Debug, Default)]
pub struct ShapeReport {
    /// The part that filters omitted.
    pub filtered: Option<FilterSummary>,
    /// The injection patterns in untrusted text.
    pub injections: Vec<&'static str>,
    /// Whether a part was omitted.
    pub truncated: bool,
    /// Whether the answer is untrusted text for a model.
    pub untrusted: bool,
    /// Whether the answer has untrusted text, for any reader.
    pub has_untrusted: bool,
    /// The host's notices, which are also in the answer's text.
    pub notices: Vec<String>,
    /// The position where the omitted part can be read.
    pub rest: Option<Remainder>,
}

/// The host's notices after an answer.
struct Notice {
    text: String,
    rest: Option<Remainder>,
}

/// Returns the parts of an outcome.
fn content_of(outcome: &mut Outcome) -> &mut Vec<Content> {
    match outcome {
        Ok(output) => &mut output.content,
        Err(failure) => &mut failure.content,
    }
}

/// Returns a notice in the form of the text.
fn bracketed(notice: &str) -> String {
    format!("[{notice}]\n")
}

/// Returns the position at which `read_overflow` continues, or `None` if the answer isn't stored.
fn remainder(kept: &Result<(OverflowId, Extent), KeepError>, offset: usize) -> Option<Remainder> {
    kept.as_ref().ok().map(|(id, _)| Remainder { id: id.as_str().to_owned(), offset })
}

/// Returns the kind of a call's texts for a terminal.
fn kind(context: &CallContext) -> Kind {
    let Some(tool) = context.tool.as_deref() else { return Kind::Written };
    let last = subjects::commands(tool, &context.arguments).next().and_then(last_command);
    Kind::for_tool(&tool.definition, last.as_ref())
}

/// Checks whether a tool reads a stored answer.
fn reads_stored_answers(tool: &Tool) -> bool {
    tool.definition.name == READ_OVERFLOW && tool.is_built_in()
}

/// Checks whether the answer of a call is untrusted.
fn is_untrusted(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    if reads_stored_answers(tool) {
        let id = context.arguments["id"].as_str().and_then(OverflowId::parse);
        return id.is_some_and(|id| id.is_untrusted());
    }
    tool.definition.annotations.open_world
}

/// Moves the failure message of a third-party tool into the answer's parts, which are fenced. A
/// message of the host replaces it.
fn enclose_words(context: &CallContext, outcome: &mut Outcome) {
    let (Some(tool), Err(failure)) = (&context.tool, outcome) else { return };
    if tool.is_built_in() || !failure.by_tool || failure.denial.is_some() {
        return;
    }
    let message = format!("`{}` failed", tool.definition.name);
    let mut words = std::mem::replace(&mut failure.message, message);
    if let Some(suggestion) = failure.suggestion.take() {
        words.push('\n');
        words.push_str(&suggestion);
    }
    failure.content.insert(0, Content::untrusted(&UntrustedText::new(words)));
}

/// Checks whether the answer of a call shows the content of files, which means that its tool reads
/// paths.
fn shows_files(context: &CallContext) -> bool {
    let Some(tool) = &context.tool else { return false };
    let Definition { annotations, subjects, .. } = &*tool.definition;
    annotations.read_only && subjects.iter().any(|subject| subject.kind == SubjectKind::Path)
}

/// Checks whether a value that a person gives to a tool's provider contains a secret.
pub fn holds_secret(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    redaction::text(text, redaction::Keys::Text) != text
}

/// Describes how to read the omitted part.
fn describe_rest(kept: &Result<(OverflowId, Extent), KeepError>, offset: usize) -> String {
    match kept {
        Ok((id, Extent::Whole)) => format!(
            "To see more, call {READ_OVERFLOW} with id \"{}\" and offset {offset}.",
            id.as_str()
        ),
        Ok((id, extent)) => {
            let part = match extent {
                Extent::Ends => "Its beginning and its end are",
                _ => "Its beginning is",
            };
            format!(
                "{part} kept: to see more, call {READ_OVERFLOW} with id \"{}\" and offset {offset}.",
                id.as_str()
            )
        }
        Err(error) => format!("Storing the output failed: {error}. Ask for less at once."),
    }
}
