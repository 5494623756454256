//! Filters an output that is too long for an answer, piece by piece.

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

/// Bytes that are shown of a filtered output: of its beginning, and of its end.
const BEGINNING: usize = 1 << 20;
const END: usize = 1 << 20;

/// Bytes of the end that are shown unfiltered, if there was no time for it.
const LATE_END: u64 = 16 << 10;

/// The whole output of the command of a call, if it is too long for its answer.
pub(crate) struct SpooledAnswer {
    pub(crate) store: Arc<OverflowStore>,
    /// Which secrets are removed from what filters leave; `None`: none are.
    pub(crate) keys: Option<Keys>,
    pub(crate) output: Option<Arc<SpooledOutput>>,
}

/// The parts of a spooled output that filters left.
pub(super) struct FilteredPieces<'a> {
    /// The text of each output that isn't empty.
    pub(super) texts: Vec<String>,
    /// Each filter that left something out.
    pub(super) by: Vec<(&'a Link, Confidence)>,
}

/// A text whose middle is dropped when it gets too long.
#[derive(Default)]
struct Bounded {
    beginning: String,
    end: String,
    left_out: usize,
}

impl FilterPipeline {
    /// Filters all of a spooled output. `links`: for security, and others. `None` if nothing is
    /// left out for brevity. When there is no more time, the end of the output stays as it is; if
    /// filters for security have to see it too, the output isn't kept.
    ///
    /// # Errors
    ///
    /// The answer is withheld.
    pub(super) async fn filter_spooled<'a>(
        &self,
        asked: &FilterRun<'a>,
        [security, cosmetic]: [&[&'a Link]; 2],
        answer: &mut SpooledAnswer,
    ) -> Result<Option<FilteredPieces<'a>>, Failure> {
        let Some(output) = answer.output.clone() else { return Ok(None) };
        let mut rewriting = (!security.is_empty()).then(|| Rewriting::new(&output, &answer.store));
        let mut run = FilterRun {
            input: FilterInput { content: Vec::new(), ..asked.input.clone() },
            by: Vec::new(),
            ..*asked
        };
        let mut shown = [Bounded::default(), Bounded::default()];
        for (stream, shown) in shown.iter_mut().enumerate() {
            let mut offset = 0;
            loop {
                let is_late = Instant::now() >= run.end;
                if is_late && !security.is_empty() {
                    return Ok(lose(answer, &late()));
                }
                let output = Arc::clone(&output);
                if is_late {
                    match blocking(move || output.end(stream, offset, LATE_END)).await {
                        Ok((left_out, text)) => shown.finish(left_out, text),
                        Err(error) => return Ok(lose(answer, &error)),
                    }
                    break;
                }
                let piece = blocking(move || output.piece(stream, offset)).await;
                let text = match piece {
                    Ok(text) if text.is_empty() => break,
                    Ok(text) => text,
                    Err(error) => return Ok(lose(answer, &error)),
                };
                offset += text.len() as u64;
                run.input.content = vec![Content::text(text)];
                if !security.is_empty() && !run.ask_in_time(security, self).await? {
                    return Ok(lose(answer, &late()));
                }
                if let Some(mut begun) = rewriting.take() {
                    let text = neutral_owned(run.text());
                    let keys = answer.keys;
                    let written = blocking(move || {
                        let text = match keys {
                            Some(keys) => redaction::owned(text, keys),
                            None => text,
                        };
                        begun.push(stream, &text).map(|()| begun)
                    })
                    .await;
                    match written {
                        Ok(begun) => rewriting = Some(begun),
                        Err(error) => return Ok(lose(answer, &error)),
                    }
                }
                self.shorten(&mut run, cosmetic).await?;
                shown.push(&run.text());
            }
        }
        if let Some(rewriting) = rewriting {
            match blocking(move || rewriting.finish()).await {
                Ok(output) => answer.output = Some(Arc::new(output)),
                Err(error) => return Ok(lose(answer, &error)),
            }
        }
        run.by.retain(|(link, _)| cosmetic.iter().any(|other| std::ptr::eq(*other, *link)));
        let mut texts = Vec::new();
        let shown = shown.into_iter().enumerate().filter(|(stream, _)| output.has(*stream));
        for (_, shown) in shown {
            let is_whole = shown.left_out == 0;
            let text = shown.into_text();
            // A filter may know something only from the whole, such as a summary in another piece.
            run.input.content = vec![Content::text(text)];
            if is_whole && !run.by.is_empty() {
                self.shorten(&mut run, cosmetic).await?;
            }
            texts.push(run.text());
        }
        let mut by: Vec<(&Link, Confidence)> = Vec::new();
        for (link, confidence) in run.by {
            match by.iter_mut().find(|(other, _)| std::ptr::eq(*other, link)) {
                Some((_, least)) => *least = confidence.max(*least),
                None => by.push((link, confidence)),
            }
        }
        Ok((!by.is_empty()).then_some(FilteredPieces { texts, by }))
    }

    /// Runs the filters that make a text shorter.
    async fn shorten<'a>(
        &self,
        run: &mut FilterRun<'a>,
        cosmetic: &[&'a Link],
    ) -> Result<(), Failure> {
        let before = run.by.len();
        let whole = run.text();
        if whole.len() < SHORT {
            return Ok(());
        }
        run.ask_in_time(cosmetic, self).await?;
        if let Some(kept) = &self.kept
            && run.by.len() > before
        {
            let content = std::mem::take(&mut run.input.content);
            run.input.content = with_security_lines(kept, &whole, content).await;
        }
        Ok(())
    }
}

/// Why an output is dropped that filters for security can't see in time.
fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the security filters take too long")
}

/// Drops an output that can't be read or written.
fn lose<'a>(answer: &mut SpooledAnswer, error: &io::Error) -> Option<FilteredPieces<'a>> {
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
    fn push(&mut self, text: &str) {
        let room = BEGINNING.saturating_sub(self.beginning.len());
        let split = match (self.end.is_empty(), text.len() > room) {
            (true, false) => text.len(),
            (true, true) => {
                text[..text.floor_char_boundary(room)].rfind('\n').map_or(0, |at| at + 1)
            }
            (false, _) => 0,
        };
        let (beginning, rest) = text.split_at(split);
        self.beginning.push_str(beginning);
        self.end.push_str(rest);
        if self.end.len() > 2 * END {
            let from = self.end.ceil_char_boundary(self.end.len() - END);
            let from = self.end[from..].find('\n').map_or(from, |at| from + at + 1);
            self.left_out += from;
            self.end.drain(..from);
        }
    }

    /// Adds the end of the text. `left_out`: bytes before it that are dropped.
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
