//! Shortens or blocks an answer with the filters of plugins.
//!
//! Redaction runs before filters, because filters must get no secret, and also runs on their
//! output, because a filter could put a secret together. A cosmetic filter fails open: on any
//! error, the answer doesn't change. A security filter fails closed: on any error, the answer is
//! withheld. The omitted text is stored for `read_overflow`. Lines about security are put back.

mod counts;
mod pieces;
mod streams;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use toolhold_catalogue::{Audience, CallContext, Chain, Link, subjects};
use toolhold_config as config;
use toolhold_contract::text::cut;
use toolhold_contract::{
    Body, CancellationToken, Category, CommandOutput, Confidence, Content, Failure, FilterInput,
    FilterVerdict, HostError, Outcome, Purpose,
};
use toolhold_policy::{SecurityLines, last_command};

use crate::answer::{FilterSummary, GAIN, SHORT};
use crate::blocking::{AT_ONCE, blocking};
pub(crate) use counts::FilterCountTable;
pub use counts::FilterCounts;
use pieces::FilteredPieces;
pub(crate) use pieces::SpooledAnswer;
use streams::Streams;

/// Maximum number of security lines that are put back, and maximum length of each in bytes.
const MAX_LINES: usize = 20;
const MAX_LINE: usize = 400;

/// Time limit for shortening one answer. Text that isn't filtered in time stays unchanged.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the filters on answers.
#[derive(Debug)]
pub struct FilterPipeline {
    enabled: bool,
    /// Finds lines about security, which are put back if a filter removes them.
    security_lines: Option<SecurityLines>,
    /// Slots for long answers. There are half as many slots as processors, so that other calls also
    /// get processor time.
    slots: Semaphore,
    /// The counts of each filter.
    pub counts: FilterCountTable,
}

/// The complete text of a shortened answer.
pub(crate) enum Whole {
    Text(String),
    Spooled,
}

pub(crate) struct FilterChange {
    pub filtered: FilterSummary,
    /// The complete text. `None` if cosmetic filters omitted nothing.
    pub whole: Option<Whole>,
    streams: Streams,
    content: Vec<Content>,
    /// The structured answer after the security filters.
    structured: Option<Value>,
}

impl FilterChange {
    /// Replaces the output with the filtered output. The caller must redact the output again.
    pub(crate) fn make(self, outcome: &mut Outcome) -> FilterSummary {
        self.streams.replace(self.content, self.structured, outcome);
        self.filtered
    }
}

impl FilterPipeline {
    /// Creates the pipeline with the configured patterns of security lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the configured patterns can't be combined.
    pub fn new(config: &config::Filters) -> Result<Self, HostError> {
        let mut security_lines = None;
        if config.security.enabled {
            let extra = config.security.extra_patterns.iter().map(|pattern| pattern.as_str());
            let configured = SecurityLines::with(extra).map_err(|reason| {
                HostError::Config(format!(
                    "`extra_patterns` in [tools.filters.security] can't be used together: {reason}"
                ))
            })?;
            security_lines = Some(configured);
        }

        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = Semaphore::new((processors / 2).max(1));
        Ok(Self {
            enabled: config.enabled,
            security_lines,
            slots,
            counts: FilterCountTable::default(),
        })
    }

    /// Waits for a slot. Returns `None` if the answer is short and needs no slot.
    async fn slot(&self, length: usize) -> Option<SemaphorePermit<'_>> {
        if length <= AT_ONCE {
            return None;
        }
        self.slots.acquire().await.ok()
    }

    /// Runs the matching filters on a redacted outcome.
    ///
    /// Security filters run first, because the complete text is stored and must not contain text
    /// that they remove. `shorten` says whether cosmetic filters run. `output_of` is the earlier
    /// command whose output the answer shows.
    ///
    /// If `spooled` has the whole output, filters get the output in pieces, and security filters
    /// change the stored output, too. An unreadable stored output is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    #[expect(clippy::too_many_arguments, reason = "each is another fact of the one answer")]
    pub(crate) async fn apply(
        &self,
        chain: &Chain,
        context: &CallContext,
        output_of: Option<&CommandOutput>,
        shorten: bool,
        outcome: &Outcome,
        spooled: &mut SpooledAnswer,
        cancel: &CancellationToken,
    ) -> Result<Option<FilterChange>, Failure> {
        let Some(tool) = context.tool.as_deref() else { return Ok(None) };
        let name = output_of.map_or(&*tool.definition.name, |output| &*output.tool);
        let length = content_length(outcome);
        if length == 0 && Streams::structured(outcome).is_none() {
            return Ok(None);
        }
        if let Some((plugin, reason)) = chain.missing() {
            return Err(unfiltered(plugin, reason));
        }
        let is_for_model = context.audience == Audience::Model;
        let shorten = shorten && self.enabled && is_for_model && length >= SHORT;
        if !chain.links().iter().any(|link| shorten || is_for_security(&link)) {
            return Ok(None);
        }

        let own_command = subjects::commands(tool, &context.arguments).next();
        let line = output_of.map(|output| &*output.command).or(own_command);
        let subject = FilterSubject::new(name, line, context);
        let security = subject.security(chain);
        let cosmetic =
            if shorten { chain.cosmetic(name, subject.text.as_deref()) } else { Vec::new() };
        if security.is_empty() && cosmetic.is_empty() {
            return Ok(None);
        }
        let of_shell = own_command.is_some() && tool.is_built_in();
        let streams = Streams::from_outcome(outcome, of_shell);
        let input = FilterInput {
            tool: name.to_owned(),
            subject: subject.text,
            failed: outcome.as_ref().err().map(|failure| failure.category),
            exit_code: Streams::exit_code(outcome),
            among_others: subject.is_among_others,
            content: streams.parts.clone(),
        };
        let end = Instant::now() + PATIENCE;
        let mut run =
            FilterRun { input, session: &context.session, cancel, end, changed_by: Vec::new() };
        let structured = run.run_security(&security, &streams, outcome, &self.counts).await?;
        // `changed_by` starts with security filters. Later entries are cosmetic filters.
        let security_count = run.changed_by.len();
        let safe_content = run.input.content.clone();
        let whole = streams.with_parts(&safe_content).text();
        let (mut content, mut changed_by) =
            self.shorten_answer(run, [&security, &cosmetic], spooled, &whole).await?;

        let [lines_before, bytes_before] = match &spooled.output {
            Some(output) => [output.lines() as u64, output.bytes()],
            None => lines_and_bytes(&whole),
        };
        let [mut lines_after, mut bytes_after] =
            lines_and_bytes(&streams.with_parts(&content).text());
        if changed_by.len() > security_count && bytes_before < bytes_after + GAIN as u64 {
            // Cosmetic filters omitted too little, so only the security filters apply.
            changed_by.truncate(security_count);
            [lines_after, bytes_after] = lines_and_bytes(&whole);
            content = safe_content;
        }
        let Some(confidence) = changed_by.iter().map(|(_, confidence)| *confidence).max() else {
            return Ok(None);
        };
        let filtered = FilterSummary {
            filters: changed_by.iter().map(|(link, _)| link.name.clone()).collect(),
            confidence,
            lines: [lines_before, lines_after],
            bytes: [bytes_before, bytes_after],
        };
        tracing::debug!(target: "toolhold::filters", call = %context.id, filters = filtered.filters.join(","), "{filtered}");
        let shortened_whole = if changed_by.len() == security_count {
            None
        } else if spooled.output.is_some() {
            Some(Whole::Spooled)
        } else {
            Some(Whole::Text(whole))
        };
        Ok(Some(FilterChange { filtered, whole: shortened_whole, streams, content, structured }))
    }

    /// Shortens an answer with the cosmetic filters. The text is the spooled output, or otherwise
    /// `whole`, which has already passed the security filters.
    ///
    /// Returns the shortened text, and all filters that changed something.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    async fn shorten_answer<'a>(
        &self,
        mut run: FilterRun<'a>,
        [security, cosmetic]: [&[&'a Link]; 2],
        spooled: &mut SpooledAnswer,
        whole: &str,
    ) -> Result<(Vec<Content>, Vec<(&'a Link, Confidence)>), Failure> {
        let pieces = self.filter_spooled(&run, [security, cosmetic], spooled).await?;
        if let Some(FilteredPieces { texts, changed_by }) = pieces {
            run.changed_by.extend(changed_by);
            return Ok((texts.into_iter().map(Content::text).collect(), run.changed_by));
        }
        if spooled.output.is_some() {
            return Ok((run.input.content, run.changed_by));
        }

        let count_before = run.changed_by.len();
        run.run_in_time(cosmetic, self).await?;
        let mut content = run.input.content;
        let has_changed = run.changed_by.len() > count_before;
        if let Some(security_lines) = &self.security_lines
            && has_changed
        {
            content = with_security_lines(security_lines, whole, content).await;
        }
        Ok((content, run.changed_by))
    }
}

struct FilterSubject<'a> {
    tool: &'a str,
    line: Option<&'a str>,
    /// The last command of `line`. For other tools, the first subject of the call.
    text: Option<String>,
    is_among_others: bool,
}

impl<'a> FilterSubject<'a> {
    /// Creates the subject of a call. `line` is the command line, if the call runs a command.
    fn new(tool: &'a str, line: Option<&'a str>, context: &CallContext) -> Self {
        let last = line.and_then(last_command);
        let is_among_others = last.as_ref().is_some_and(|last| !last.alone);
        let text = match line {
            Some(_) => last.map(|last| last.line),
            None => context.subjects.first().map(|subject| subject.text.clone()),
        };
        Self { tool, line, text, is_among_others }
    }

    /// Returns the security filters for the call. A security filter applies if it fits any command
    /// of the line.
    fn security<'c>(&self, chain: &'c Chain) -> Vec<&'c Link> {
        let mut fitting = Vec::new();
        for link in chain.links().iter().filter(is_for_security) {
            let fits = match self.line {
                Some(line) => link.fits_any(self.tool, line),
                None => link.fits(self.tool, self.text.as_deref()),
            };
            if fits {
                fitting.push(link);
            }
        }
        fitting
    }
}

fn lines_and_bytes(text: &str) -> [u64; 2] {
    [text.lines().count() as u64, text.len() as u64]
}

fn is_for_security(link: &&Link) -> bool {
    link.definition.purpose == Purpose::Security
}

struct FilterRun<'a> {
    input: FilterInput,
    session: &'a Arc<str>,
    cancel: &'a CancellationToken,
    /// The time limit for shortening the answer.
    end: Instant,
    changed_by: Vec<(&'a Link, Confidence)>,
}

impl<'a> FilterRun<'a> {
    /// Runs the security filters on the text and on the structured answer. Returns the filtered
    /// structured answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    async fn run_security(
        &mut self,
        links: &[&'a Link],
        streams: &Streams,
        outcome: &Outcome,
        counts: &FilterCountTable,
    ) -> Result<Option<Value>, Failure> {
        if links.is_empty() {
            return Ok(None);
        }
        // The structured answer is filtered as an additional last part.
        self.input.content.extend(streams.value(outcome));
        for link in links {
            self.run_one(link, counts).await?;
        }
        let has_additional_part = self.input.content.len() > streams.parts.len();
        if !has_additional_part {
            return Ok(None);
        }
        let value = self.input.content.pop();
        let text = value.as_ref().and_then(Content::as_text).ok_or_else(invalid_value)?;
        let structured = serde_json::from_str(text).map_err(|_| invalid_value())?;
        Ok(Some(structured))
    }

    /// Runs filters until the time limit. Returns whether all filters ran in time.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    async fn run_in_time(
        &mut self,
        links: &[&'a Link],
        pipeline: &FilterPipeline,
    ) -> Result<bool, Failure> {
        let end = self.end;
        let run = async {
            // Holds the slot for a long answer until all filters have run.
            let _slot = pipeline.slot(size(&self.input.content)).await;
            for link in links {
                self.run_one(link, &pipeline.counts).await?;
            }
            Ok(())
        };
        match timeout_at(end, run).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Ok(false),
        }
    }

    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    async fn run_one(&mut self, link: &'a Link, counts: &FilterCountTable) -> Result<(), Failure> {
        let security = link.definition.purpose == Purpose::Security;
        let before = size(&self.input.content);
        let verdict = link
            .plugin
            .filter(&link.definition, self.session, self.input.clone(), self.cancel)
            .await;
        let problem = match verdict {
            Ok(FilterVerdict::Keep) => {
                counts.count_unchanged(&link.name);
                return Ok(());
            }
            Ok(FilterVerdict::Replace { content, confidence, .. }) => {
                match rejection_reason(&self.input.content, &content, security) {
                    None => {
                        counts.count_change(&link.name, before, size(&content), confidence);
                        self.changed_by.push((link, confidence));
                        self.input.content = content;
                        return Ok(());
                    }
                    Some(reason) => reason.to_owned(),
                }
            }
            Ok(FilterVerdict::Block(reason)) if security => {
                counts.count_unchanged(&link.name);
                return Err(withheld(link, &reason));
            }
            Ok(FilterVerdict::Block(_)) => {
                "only a security filter may withhold an answer".to_owned()
            }
            Err(failure) => failure.message,
        };
        counts.count_failure(&link.name);
        let plugin = &link.plugin.info().manifest.name;
        let name = &link.definition.name;
        if security {
            tracing::warn!(target: "toolhold::filters", plugin, filter = name, "{problem}; the answer is withheld");
            return Err(withheld(link, "the filter failed; see the log"));
        }
        tracing::warn!(target: "toolhold::filters", plugin, filter = name, "{problem}; the answer stays unchanged");
        Ok(())
    }
}

/// Returns the failure that replaces an answer whose filters can't run.
fn unfiltered(plugin: &str, reason: &str) -> Failure {
    let message = format!(
        "the answer is withheld: the filters of the plugin `{plugin}` aren't available: {reason}"
    );
    Failure::new(Category::PermanentFailure, message + "; the tool's effects remain")
        .with_code("withheld")
        .with_suggestion(format!(
            "Fix the plugin (`toolhold plugin list` shows its state), or remove `{plugin}` from \
             `chain` in [tools.filters]."
        ))
}

fn invalid_value() -> Failure {
    let message = "the answer is withheld, because a security filter turned the structured value \
                   into invalid JSON; the tool's effects remain";
    Failure::new(Category::PermanentFailure, message).with_code("withheld")
}

fn withheld(link: &Link, reason: &str) -> Failure {
    let message = format!(
        "the answer is withheld by the filter `{}`: {reason}; the tool's effects remain",
        link.name
    );
    Failure::new(Category::PermanentFailure, message).with_code("withheld").with_suggestion(
        format!(
            "The filter belongs to the plugin `{}`, which is in `chain` in [tools.filters].",
            link.plugin.info().manifest.name
        ),
    )
}

/// Returns the reason why the replacement `after` is rejected, or `None` if it is accepted.
fn rejection_reason(
    before: &[Content],
    after: &[Content],
    is_security: bool,
) -> Option<&'static str> {
    // A security filter may remove the whole answer.
    if is_security {
        return None;
    }
    if has_text(before) && !has_text(after) {
        return Some("the filter would drop the whole answer");
    }
    if size(after) > size(before) {
        return Some("the filter would make the answer longer");
    }
    None
}

fn has_text(parts: &[Content]) -> bool {
    parts.iter().filter_map(Content::as_text).any(|text| !text.trim().is_empty())
}

/// Puts removed security lines back into the answer. A long text is processed on another thread.
async fn with_security_lines(
    security_lines: &SecurityLines,
    whole: &str,
    mut content: Vec<Content>,
) -> Vec<Content> {
    if whole.len() <= AT_ONCE {
        put_back(security_lines, whole, &mut content);
        return content;
    }
    let security_lines = security_lines.clone();
    let whole = whole.to_owned();
    blocking(move || {
        put_back(&security_lines, &whole, &mut content);
        content
    })
    .await
}

/// Appends removed security lines of `whole` to the last text.
fn put_back(security_lines: &SecurityLines, whole: &str, content: &mut [Content]) {
    let lines = removed_lines(security_lines, whole, content);
    if lines.is_empty() {
        return;
    }
    let mut texts = content.iter_mut().rev().filter_map(|part| match &mut part.body {
        Body::Text(text) => Some(text),
        _ => None,
    });
    let Some(last_text) = texts.next() else { return };
    if !last_text.is_empty() && !last_text.ends_with('\n') {
        last_text.push('\n');
    }
    last_text.push_str("--- security-relevant lines, left out above ---\n");
    last_text.push_str(&lines);
}

/// Returns the first security lines of `whole` that are missing in `content`, and the number of
/// further missing lines. Returns an empty text if no security line is missing.
fn removed_lines(security_lines: &SecurityLines, whole: &str, content: &[Content]) -> String {
    let shown_texts = content.iter().filter_map(Content::as_text);
    let shown_lines: HashSet<&str> = shown_texts.flat_map(str::lines).map(str::trim).collect();
    let mut missing_lines = HashSet::new();
    let mut unlisted = 0;
    let mut lines = String::new();
    for range in security_lines.find(whole) {
        let line = whole[range].trim();
        if shown_lines.contains(line) {
            continue;
        }
        let is_repeated = !missing_lines.insert(line);
        if is_repeated {
            continue;
        }
        if missing_lines.len() > MAX_LINES {
            unlisted += 1;
            continue;
        }
        lines.push_str(cut(line, MAX_LINE));
        lines.push('\n');
    }
    if unlisted > 0 {
        lines.push_str(&format!("... and {unlisted} more\n"));
    }
    lines
}

fn size(parts: &[Content]) -> usize {
    parts.iter().map(Content::len).sum()
}

fn content_length(outcome: &Outcome) -> usize {
    match outcome {
        Ok(output) => size(&output.content),
        Err(failure) => size(&failure.content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_summary_states_the_saving() {
        let filtered = FilterSummary {
            filters: vec!["x".into()],
            confidence: Confidence::Full,
            lines: [342, 28],
            bytes: [4000, 400],
        };
        assert_eq!(filtered.to_string(), "342 lines -> 28 lines, 91.8% filtered");
        assert_eq!(filtered.tokens_saved(), 900);
    }

    #[test]
    fn security_lines_are_put_back_once_and_bounded() {
        let security_lines = SecurityLines::default();
        let whole = "a\n401 Unauthorized\n  401 Unauthorized\nb\npermission denied: x\n";
        let mut content = [Content::text("b\npermission denied: x")];
        put_back(&security_lines, whole, &mut content);
        let text = content[0].as_text().expect("is text");
        assert_eq!(
            text,
            "b\npermission denied: x\n--- security-relevant lines, left out above ---\n401 Unauthorized\n"
        );
        let many: String = (0..30).map(|number| format!("permission denied: {number}\n")).collect();
        let mut content = [Content::text("x")];
        put_back(&security_lines, &many, &mut content);
        assert!(
            content[0]
                .as_text()
                .expect("is text")
                .ends_with("permission denied: 19\n... and 10 more\n")
        );
    }

    #[test]
    fn replacement_that_empties_or_grows_is_refused() {
        let text = |text: &str| vec![Content::text(text)];
        assert!(
            rejection_reason(&text("a"), &text(" \n"), false).is_some()
                && rejection_reason(&text("a"), &text("ab"), false).is_some()
        );
        assert!(
            rejection_reason(&text("ab"), &text("a"), false).is_none()
                && rejection_reason(&text("a"), &text(""), true).is_none()
        );
    }
}
