//! Filters a long output piece by piece.

use std::io;
use std::sync::Arc;

use tokio::time::Instant;
use toolhold_catalogue::Link;
use toolhold_contract::text::neutral_owned;
use toolhold_contract::{Body, Confidence, Content, Failure, FilterInput};
use toolhold_redaction::{self as redaction, Keys};

use super::{FilterPipeline, FilterRun, with_security_lines};
use crate::answer::SHORT;
use crate::blocking::blocking;
use crate::overflow::{OverflowStore, Rewriting, SpooledOutput};

/// Maximum number of bytes that stay from the beginning and from the end of a filtered output.
const BEGINNING: usize = 1 << 20;
const END: usize = 1 << 20;

/// Maximum number of unfiltered bytes from the end of an output after the time limit for filters.
const LATE_END: u64 = 16 << 10;

/// The whole output of a command, stored because it is too long for the answer.
pub(crate) struct SpooledAnswer {
    pub(crate) store: Arc<OverflowStore>,
    /// How strictly the text is redacted. `None` if redaction is disabled.
    pub(crate) keys: Option<Keys>,
    pub(crate) output: Option<Arc<SpooledOutput>>,
}

pub(super) struct FilteredPieces<'a> {
    pub(super) texts: Vec<String>,
    pub(super) changed_by: Vec<(&'a Link, Confidence)>,
}

/// The beginning and the end of a long output, without its middle.
#[derive(Default)]
struct Bounded {
    beginning: String,
    end: String,
    /// The number of omitted bytes between `beginning` and `end`.
    left_out: usize,
}

impl FilterPipeline {
    /// Filters all of a spooled output. Returns `None` if the filters omit nothing.
    ///
    /// After the time limit, the rest of the output isn't filtered. If security filters must check
    /// the output, the stored output is dropped instead.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is withheld.
    pub(super) async fn filter_spooled<'a>(
        &self,
        answer_run: &FilterRun<'a>,
        [security, cosmetic]: [&[&'a Link]; 2],
        answer: &mut SpooledAnswer,
    ) -> Result<Option<FilteredPieces<'a>>, Failure> {
        let Some(output) = answer.output.clone() else { return Ok(None) };
        let mut rewriting = (!security.is_empty()).then(|| Rewriting::new(&output, &answer.store));
        let mut run = FilterRun {
            input: FilterInput { content: Vec::new(), ..answer_run.input.clone() },
            changed_by: Vec::new(),
            ..*answer_run
        };
        let mut shown = [Bounded::default(), Bounded::default()];
        for (stream, shown) in shown.iter_mut().enumerate() {
            let mut offset = 0;
            loop {
                let is_late = Instant::now() >= run.end;
                if is_late && !security.is_empty() {
                    return Ok(drop_stored(answer, &late()));
                }
                let output = Arc::clone(&output);
                if is_late {
                    match blocking(move || output.end(stream, offset, LATE_END)).await {
                        Ok((left_out, text)) => shown.finish(left_out, text),
                        Err(error) => return Ok(drop_stored(answer, &error)),
                    }
                    break;
                }
                let piece = blocking(move || output.piece(stream, offset)).await;
                let text = match piece {
                    Ok(text) if text.is_empty() => break,
                    Ok(text) => text,
                    Err(error) => return Ok(drop_stored(answer, &error)),
                };
                offset += text.len() as u64;
                run.input.content = vec![Content::text(text)];
                if !security.is_empty() && !run.run_in_time(security, self).await? {
                    return Ok(drop_stored(answer, &late()));
                }
                if let Some(rewritten) = rewriting.take() {
                    match rewrite_piece(rewritten, stream, run.text(), answer.keys).await {
                        Ok(rewritten) => rewriting = Some(rewritten),
                        Err(error) => return Ok(drop_stored(answer, &error)),
                    }
                }
                self.shorten(&mut run, cosmetic).await?;
                shown.push(&run.text());
            }
        }
        if let Some(rewriting) = rewriting {
            match blocking(move || rewriting.finish()).await {
                Ok(output) => answer.output = Some(Arc::new(output)),
                Err(error) => return Ok(drop_stored(answer, &error)),
            }
        }

        // The caller has already recorded the security filters, so return only the cosmetic ones.
        run.changed_by.retain(|(link, _)| cosmetic.iter().any(|other| std::ptr::eq(*other, *link)));
        let mut texts = Vec::new();
        for (stream, shown) in shown.into_iter().enumerate() {
            if !output.has(stream) {
                continue;
            }
            let is_whole = shown.left_out == 0;
            let text = shown.into_text();
            // So far, the filters have only seen pieces. A filter may need the whole text, for
            // example to use a summary at its end, so run the filters on the whole text, too.
            run.input.content = vec![Content::text(text)];
            if is_whole && !run.changed_by.is_empty() {
                self.shorten(&mut run, cosmetic).await?;
            }
            texts.push(run.text());
        }
        let changed_by = merge_by_filter(run.changed_by);
        if changed_by.is_empty() {
            Ok(None)
        } else {
            Ok(Some(FilteredPieces { texts, changed_by }))
        }
    }

    /// Runs the cosmetic filters on the text of `run`, unless the text is short. Removed security
    /// lines are put back.
    async fn shorten<'a>(
        &self,
        run: &mut FilterRun<'a>,
        cosmetic: &[&'a Link],
    ) -> Result<(), Failure> {
        let count_before = run.changed_by.len();
        let whole = run.text();
        if whole.len() < SHORT {
            return Ok(());
        }
        run.run_in_time(cosmetic, self).await?;
        if let Some(security_lines) = &self.security_lines
            && run.changed_by.len() > count_before
        {
            let content = std::mem::take(&mut run.input.content);
            run.input.content = with_security_lines(security_lines, &whole, content).await;
        }
        Ok(())
    }
}

/// Neutralises and redacts a filtered piece, and adds it to the new stored output.
async fn rewrite_piece(
    mut rewriting: Rewriting,
    stream: usize,
    text: String,
    keys: Option<Keys>,
) -> io::Result<Rewriting> {
    blocking(move || {
        let mut safe_text = neutral_owned(text);
        if let Some(keys) = keys {
            safe_text = redaction::owned(safe_text, keys);
        }
        rewriting.push(stream, &safe_text)?;
        Ok(rewriting)
    })
    .await
}

/// Merges the entries of each filter into one with the lowest confidence.
fn merge_by_filter(entries: Vec<(&Link, Confidence)>) -> Vec<(&Link, Confidence)> {
    let mut merged: Vec<(&Link, Confidence)> = Vec::new();
    for (link, confidence) in entries {
        match merged.iter_mut().find(|(other, _)| std::ptr::eq(*other, link)) {
            Some((_, least_sure)) => *least_sure = confidence.max(*least_sure),
            None => merged.push((link, confidence)),
        }
    }
    merged
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the security filters take too long")
}

/// Drops the stored output because of an error. Returns `None`: there are no filtered pieces then.
fn drop_stored<'a>(answer: &mut SpooledAnswer, error: &io::Error) -> Option<FilteredPieces<'a>> {
    tracing::warn!("storing the whole output of a command failed: {error}");
    answer.output = None;
    None
}

impl FilterRun<'_> {
    fn text(&self) -> String {
        let text = self.input.content.iter().find_map(|part| match &part.body {
            Body::Text(text) => Some(text.clone()),
            _ => None,
        });
        text.unwrap_or_default()
    }
}

impl Bounded {
    /// Adds text to the beginning until it is full, and then to the end. A long end loses its
    /// oldest lines.
    fn push(&mut self, text: &str) {
        let beginning_left = BEGINNING.saturating_sub(self.beginning.len());
        let split = if !self.end.is_empty() {
            0
        } else if text.len() <= beginning_left {
            text.len()
        } else {
            // Cut the text so that the beginning ends with a whole line.
            let fitting = &text[..text.floor_char_boundary(beginning_left)];
            match fitting.rfind('\n') {
                Some(newline) => newline + 1,
                None => 0,
            }
        };
        let (beginning, remainder) = text.split_at(split);
        self.beginning.push_str(beginning);
        self.end.push_str(remainder);

        // Cutting moves all bytes of the end, so the end is cut only after it has doubled.
        if self.end.len() > 2 * END {
            let mut end_start = self.end.ceil_char_boundary(self.end.len() - END);
            if let Some(newline) = self.end[end_start..].find('\n') {
                end_start += newline + 1;
            }
            self.left_out += end_start;
            self.end.drain(..end_start);
        }
    }

    fn finish(&mut self, left_out: u64, text: String) {
        if left_out == 0 {
            return self.push(&text);
        }
        self.left_out += self.end.len() + usize::try_from(left_out).unwrap_or(usize::MAX);
        self.end = text;
    }

    fn into_text(self) -> String {
        let Self { mut beginning, end, left_out } = self;
        if left_out > 0 {
            beginning.push_str(&format!("[… {left_out} bytes are left out here …]\n"));
        }
        beginning + &end
    }
}
