//! Shortens an answer with the filters of plugins, one after the other, and decides what happens if
//! a filter fails.
//!
//! Filters never get a secret, because secrets are removed first. Their output is searched for
//! secrets again, so filters can't restore one. A shortening filter fails open: on any error, the
//! answer doesn't change. A blocking filter fails closed. The omitted text is stored for
//! `read_overflow`, and lines about security are restored.

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

/// Lines that matter for security that are put back, and bytes of each.
const MAX_LINES: usize = 20;
const MAX_LINE: usize = 400;

/// Time limit for shortening one answer. A flood of output takes longer, and the rest of it isn't
/// filtered.
const PATIENCE: Duration = Duration::from_secs(2);

/// Filters answers.
#[derive(Debug)]
pub struct FilterPipeline {
    /// Whether answers are shortened.
    enabled: bool,
    /// Lines that no filter can remove.
    kept: Option<SecurityLines>,
    /// Slots for long answers: one for every two processors, so that floods of output leave
    /// processor time to other calls.
    places: Semaphore,
    /// Figures of each filter.
    pub counts: FilterCountTable,
}

/// The complete text of an answer that filters shortened.
pub(crate) enum Whole {
    Text(String),
    /// The spooled output.
    Spooled,
}

/// The result of filtering an answer.
pub(crate) struct FilterChange {
    pub filtered: FilterSummary,
    /// The complete text before filters omitted something. `None` if they omitted nothing.
    pub whole: Option<Whole>,
    streams: Streams,
    content: Vec<Content>,
    /// The structured answer after the blocking filters.
    structured: Option<Value>,
}

impl FilterChange {
    /// Applies the filters. Their output must be searched for secrets again.
    pub(crate) fn make(self, outcome: &mut Outcome) -> FilterSummary {
        self.streams.replace(self.content, self.structured, outcome);
        self.filtered
    }
}

impl FilterPipeline {
    /// # Errors
    ///
    /// The operator's patterns can't be combined.
    pub fn new(config: &config::Filters) -> Result<Self, HostError> {
        let extra = config.security.extra_patterns.iter().map(|pattern| pattern.as_str());
        let secured = config.security.enabled.then(|| SecurityLines::with(extra));
        let kept = secured.transpose().map_err(|reason| {
            HostError::Config(format!(
                "`extra_patterns` in [tools.filters.security] can't be used together: {reason}"
            ))
        })?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let places = Semaphore::new((processors / 2).max(1));
        Ok(Self { enabled: config.enabled, kept, places, counts: FilterCountTable::default() })
    }

    /// Waits for a slot for an answer of this length. Returns `None` if the answer is short and
    /// needs no slot.
    async fn place(&self, length: usize) -> Option<SemaphorePermit<'_>> {
        if length <= AT_ONCE {
            return None;
        }
        // The semaphore is never closed.
        self.places.acquire().await.ok()
    }

    /// Runs the matching filters on an outcome without secrets.
    ///
    /// Security filters run first, so the stored complete text doesn't contain text that they
    /// remove. `shorten` is `true` if the omitted part can be read later. `output_of` is the
    /// earlier command whose output the answer shows.
    ///
    /// If `spooled` has the whole output, filters get all of it in pieces, and security filters
    /// change the spooled output, too. A spooled output that can't be read is dropped.
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
        let mut run = FilterRun { input, session: &context.session, cancel, end, by: Vec::new() };
        let structured = run.run_security(&security, &streams, outcome, &self.counts).await?;
        // The first entries of `by` are security filters. The entries after them shorten the
        // answer.
        let security_count = run.by.len();
        let safe_content = run.input.content.clone();
        let whole = streams.with_parts(&safe_content).text();
        let (mut content, mut by) =
            self.shorten_answer(run, [&security, &cosmetic], spooled, &whole).await?;

        let [lines_before, bytes_before] = match &spooled.output {
            Some(output) => [output.lines() as u64, output.bytes()],
            None => lines_and_bytes(&whole),
        };
        let [mut lines_after, mut bytes_after] =
            lines_and_bytes(&streams.with_parts(&content).text());
        if by.len() > security_count && bytes_before < bytes_after + GAIN as u64 {
            // The filters omitted too little, so only the security filters apply.
            by.truncate(security_count);
            [lines_after, bytes_after] = lines_and_bytes(&whole);
            content = safe_content;
        }
        let Some(confidence) = by.iter().map(|(_, confidence)| *confidence).max() else {
            return Ok(None);
        };
        let filtered = FilterSummary {
            filters: by.iter().map(|(link, _)| link.name.clone()).collect(),
            confidence,
            lines: [lines_before, lines_after],
            bytes: [bytes_before, bytes_after],
        };
        tracing::debug!(target: "toolhold::filters", call = %context.id, filters = filtered.filters.join(","), "{filtered}");
        let left_out = if by.len() == security_count {
            None
        } else if spooled.output.is_some() {
            Some(Whole::Spooled)
        } else {
            Some(Whole::Text(whole))
        };
        Ok(Some(FilterChange { filtered, whole: left_out, streams, content, structured }))
    }

    /// Shortens an answer: the spooled output if there is one, otherwise `whole`, which is the text
    /// after the security filters.
    ///
    /// Returns the shortened text, and all filters that changed something. `links` has the security
    /// filters and the others.
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
        if let Some(FilteredPieces { texts, by }) = pieces {
            run.by.extend(by);
            return Ok((texts.into_iter().map(Content::text).collect(), run.by));
        }
        if spooled.output.is_some() {
            return Ok((run.input.content, run.by));
        }
        let security_count = run.by.len();
        run.run_in_time(cosmetic, self).await?;
        let mut content = run.input.content;
        if let Some(kept) = &self.kept
            && run.by.len() > security_count
        {
            content = with_security_lines(kept, whole, content).await;
        }
        Ok((content, run.by))
    }
}

/// The subject that selects the filters for an answer.
struct FilterSubject<'a> {
    tool: &'a str,
    /// The command line of the call.
    line: Option<&'a str>,
    /// The last command of the line, or the first other subject of the call.
    text: Option<String>,
    /// Whether the line has other commands before the last one.
    is_among_others: bool,
}

impl<'a> FilterSubject<'a> {
    fn new(tool: &'a str, line: Option<&'a str>, context: &CallContext) -> Self {
        let last = line.and_then(last_command);
        let is_among_others = last.as_ref().is_some_and(|last| !last.alone);
        let text = match line {
            Some(_) => last.map(|last| last.line),
            None => context.subjects.first().map(|subject| subject.text.clone()),
        };
        Self { tool, line, text, is_among_others }
    }

    /// Returns the filters for security.
    fn security<'c>(&self, chain: &'c Chain) -> Vec<&'c Link> {
        let links = chain.links().iter().filter(is_for_security);
        links
            .filter(|link| match self.line {
                Some(line) => link.fits_any(self.tool, line),
                None => link.fits(self.tool, self.text.as_deref()),
            })
            .collect()
    }
}

/// Returns the numbers of lines and of bytes.
fn lines_and_bytes(text: &str) -> [u64; 2] {
    [text.lines().count() as u64, text.len() as u64]
}

fn is_for_security(link: &&Link) -> bool {
    link.definition.purpose == Purpose::Security
}

/// The texts of an answer while filters run.
struct FilterRun<'a> {
    input: FilterInput,
    session: &'a Arc<str>,
    cancel: &'a CancellationToken,
    /// The end of the time for making the answer shorter.
    end: Instant,
    /// The filters that replaced something, each with its confidence.
    by: Vec<(&'a Link, Confidence)>,
}

impl<'a> FilterRun<'a> {
    /// Runs the security filters, also on a structured answer. Returns the filtered structured
    /// answer.
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
        self.input.content.extend(streams.value(outcome));
        for link in links {
            self.run_one(link, counts).await?;
        }
        if self.input.content.len() <= streams.parts.len() {
            return Ok(None);
        }
        let value = self.input.content.pop();
        let text = value.as_ref().and_then(Content::as_text).ok_or_else(invalid_value)?;
        let structured = serde_json::from_str(text).map_err(|_| invalid_value())?;
        Ok(Some(structured))
    }

    /// Runs filters until the time limit for shortening the answer. Returns whether all filters ran
    /// in time.
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
            let _place = pipeline.place(size(&self.input.content)).await;
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

    /// Runs one filter.
    ///
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
                match refused(&self.input.content, &content, security) {
                    None => {
                        counts.count_change(&link.name, before, size(&content), confidence);
                        self.by.push((link, confidence));
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
        tracing::warn!(target: "toolhold::filters", plugin, filter = name, "{problem}; the answer stays as it was");
        Ok(())
    }
}

/// Returns the failure for a model if a blocking filter failed.
fn unfiltered(plugin: &str, reason: &str) -> Failure {
    let message = format!(
        "the answer is withheld: the filters of the plugin `{plugin}` aren't available: {reason}"
    );
    Failure::new(Category::PermanentFailure, message + "; the tool's effects remain").with_code("withheld").with_suggestion(format!(
        "Fix the plugin (`toolhold plugin list` shows its state), or take `{plugin}` out of `chain` in [tools.filters]."
    ))
}

/// Returns the failure for a model if a blocking filter made a structured answer invalid JSON.
fn invalid_value() -> Failure {
    let message = "the answer is withheld: a security filter turned its structured value into invalid JSON; the tool's effects remain";
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

/// Returns the reason why a replacement is rejected, or `None` if it is accepted.
fn refused(before: &[Content], after: &[Content], security: bool) -> Option<&'static str> {
    if security {
        return None;
    }
    if has_text(before) && !has_text(after) {
        return Some("it would drop everything");
    }
    if size(after) > size(before) {
        return Some("it would make the answer longer");
    }
    None
}

fn has_text(parts: &[Content]) -> bool {
    parts.iter().filter_map(Content::as_text).any(|text| !text.trim().is_empty())
}

/// Calls [`put_back`]. A long text is processed on another thread, so that other calls aren't
/// delayed.
async fn with_security_lines(
    kept: &SecurityLines,
    whole: &str,
    mut content: Vec<Content>,
) -> Vec<Content> {
    if whole.len() <= AT_ONCE {
        put_back(kept, whole, &mut content);
        return content;
    }
    let kept = kept.clone();
    let whole = whole.to_owned();
    blocking(move || {
        put_back(&kept, &whole, &mut content);
        content
    })
    .await
}

/// Puts back lines that matter for security, after the last text.
fn put_back(kept: &SecurityLines, whole: &str, content: &mut [Content]) {
    let shown_texts = content.iter().filter_map(Content::as_text);
    let shown_lines: HashSet<&str> = shown_texts.flat_map(str::lines).map(str::trim).collect();
    let mut seen = HashSet::new();
    let mut more = 0;
    let mut lines = String::new();
    for range in kept.find(whole) {
        let line = whole[range].trim();
        if shown_lines.contains(line) || !seen.insert(line) {
            continue;
        }
        if seen.len() > MAX_LINES {
            more += 1;
            continue;
        }
        lines.push_str(cut(line, MAX_LINE));
        lines.push('\n');
    }
    if lines.is_empty() {
        return;
    }
    let mut texts = content.iter_mut().rev().filter_map(|part| match &mut part.body {
        Body::Text(text) => Some(text),
        _ => None,
    });
    let Some(text) = texts.next() else { return };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("--- security-relevant lines, left out above ---\n");
    text.push_str(&lines);
    if more > 0 {
        text.push_str(&format!("... and {more} more\n"));
    }
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
        let kept = SecurityLines::default();
        let whole = "a\n401 Unauthorized\n  401 Unauthorized\nb\npermission denied: x\n";
        let mut content = [Content::text("b\npermission denied: x")];
        put_back(&kept, whole, &mut content);
        let text = content[0].as_text().expect("is text");
        assert_eq!(
            text,
            "b\npermission denied: x\n--- security-relevant lines, left out above ---\n401 Unauthorized\n"
        );
        let many: String = (0..30).map(|number| format!("permission denied: {number}\n")).collect();
        let mut content = [Content::text("x")];
        put_back(&kept, &many, &mut content);
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
            refused(&text("a"), &text(" \n"), false).is_some()
                && refused(&text("a"), &text("ab"), false).is_some()
        );
        assert!(
            refused(&text("ab"), &text("a"), false).is_none()
                && refused(&text("a"), &text(""), true).is_none()
        );
    }
}
