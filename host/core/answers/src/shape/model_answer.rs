//! Makes an answer short enough for a model, and fences its untrusted text.

use serde_json::{Value, json};
use toolhold_catalogue::CallContext;
use toolhold_contract::{Content, Outcome};

use super::clean::is_longer;
use super::cut::{self, Ends};
use super::fence::Fence;
use super::{
    KeepError, ShapeReport, Shaper, bracketed, content_of, describe_rest, flagged,
    reads_stored_answers, remainder, shortened,
};
use crate::overflow::{Extent, KeptOutput, OverflowId};

/// An answer for a model.
struct ModelAnswer<'a> {
    context: &'a CallContext,
    shape: &'a mut ShapeReport,
    outcome: &'a mut Outcome,
    /// The fence of the untrusted text, if there is any.
    fence: Option<Fence>,
    /// Maximum number of characters of the text and of the structured value.
    threshold: usize,
}

impl Shaper {
    /// Cuts a text that is too long for a model, stores the complete text, and fences untrusted
    /// text. The fence encloses the parts that the tool marked. If the text is cut or is all
    /// untrusted, the fence encloses all of it.
    pub(super) async fn for_model(
        &self,
        context: &CallContext,
        shape: &mut ShapeReport,
        outcome: &mut Outcome,
        spooled: &mut Option<Result<KeptOutput, KeepError>>,
        whole_is_untrusted: bool,
    ) {
        let Some(tool) = &context.tool else { return };
        let fence = shape.untrusted.then(|| Fence::new(&tool.definition.name));
        // The tool for the rest of an answer has its own limit.
        let is_bounded = self.threshold > 0 && !reads_stored_answers(tool);
        let threshold = if is_bounded { self.threshold } else { usize::MAX };
        let mut answer = ModelAnswer { context, shape, outcome, fence, threshold };
        let warning = answer.warn(whole_is_untrusted);
        if !self.leave_out(&mut answer, spooled).await {
            answer.enclose_parts(whole_is_untrusted);
        }
        content_of(answer.outcome).splice(0..0, warning);
    }

    /// Omits the parts that are too long, and stores the whole answer. Returns whether the text was
    /// cut. A cut text is also fenced.
    async fn leave_out(
        &self,
        answer: &mut ModelAnswer<'_>,
        spooled: &mut Option<Result<KeptOutput, KeepError>>,
    ) -> bool {
        let texts = content_of(answer.outcome).iter().filter_map(Content::as_text);
        let is_long = texts.map(str::len).sum::<usize>() > answer.threshold;
        let mut whole = if is_long { answer.text() } else { String::new() };
        let value_offset = answer.shorten_value(&mut whole);
        self.leave_out_value(answer).await;
        let ends = if is_long { cut::ends(&whole, answer.threshold) } else { None };
        // The shown part of a field may end before the shown part of the text.
        let offset = match (value_offset, &ends) {
            (Some(offset), _) => offset,
            (None, Some(ends)) => ends.offset,
            (None, None) => return false,
        };

        let mut total = ends.as_ref().map_or(0, |ends| ends.total);
        let kept = match spooled.take() {
            Some(Ok(output)) => {
                total = output.characters;
                Ok((output.id, output.extent))
            }
            Some(Err(error)) => Err(error),
            None => self.keep(answer.context, whole.clone(), answer.shape.untrusted).await,
        };
        let notice =
            format!("A part of the answer is left out here. {}", describe_rest(&kept, offset));
        answer.shape.notices.push(notice);
        answer.shape.rest = remainder(&kept, offset);
        answer.shape.truncated = true;
        if let Some(ends) = &ends {
            answer.show_ends(ends, total, &kept);
        }
        ends.is_some()
    }

    /// Omits a structured value that is too long, and stores it.
    async fn leave_out_value(&self, answer: &mut ModelAnswer<'_>) {
        let ModelAnswer { context, shape, outcome, threshold, .. } = answer;
        let Some(value) = value_of(outcome).take_if(|value| is_longer(value, *threshold)) else {
            return;
        };
        let whole = value.to_string();
        let total = whole.chars().count();
        let kept = self.keep(context, whole, shape.untrusted).await;
        let notice = format!(
            "The structured answer of {total} characters is left out. {}",
            describe_rest(&kept, 0)
        );
        content_of(outcome).push(Content::text(bracketed(&notice)));
        shape.notices.push(notice);
        shape.rest = remainder(&kept, 0);
        shape.truncated = true;
    }
}

impl ModelAnswer<'_> {
    /// Marks untrusted text in the metadata, and fences notices about it. Returns the warning about
    /// injection patterns, which comes before the fence.
    fn warn(&mut self, whole_is_untrusted: bool) -> Option<Content> {
        if let Some(fence) = &self.fence {
            flagged::set_meta(self.outcome, "toolhold:untrusted", json!(true));
            if whole_is_untrusted {
                // Notices contain the names of files and hosts, and are also in the fenced text.
                for notice in &mut self.shape.notices {
                    *notice = fence.wrap(notice);
                }
            }
        }
        let warning = flagged::warning(&self.shape.injections)?;
        let content = Content::text(bracketed(&warning));
        self.shape.notices.push(warning);
        Some(content)
    }

    /// Returns the text of all parts.
    fn text(&mut self) -> String {
        let texts = content_of(self.outcome).iter().filter_map(Content::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Shortens a structured value that is too long, if shortening is possible. Returns the offset
    /// of the part that isn't shown. If `whole` is empty, it becomes the text of the complete
    /// value.
    fn shorten_value(&mut self, whole: &mut String) -> Option<usize> {
        let threshold = self.threshold;
        if !value_of(self.outcome).as_ref().is_some_and(|value| is_longer(value, threshold)) {
            return None;
        }
        if whole.is_empty() {
            *whole = self.text();
        }
        let value = value_of(self.outcome).as_mut()?;
        if whole.is_empty() {
            *whole = value.to_string();
        }
        shortened::shorten(value, threshold)
    }

    /// Replaces the text with its two ends and a notice between them.
    fn show_ends(
        &mut self,
        ends: &Ends<'_>,
        total: usize,
        kept: &Result<(OverflowId, Extent), KeepError>,
    ) {
        let left_out = total.saturating_sub(ends.total - ends.left_out);
        let notice = format!(
            "[{left_out} of {total} characters are left out here. {}]\n",
            describe_rest(kept, ends.offset)
        );
        let content = content_of(self.outcome);
        content.retain(|part| part.as_text().is_none());
        let text = match &self.fence {
            Some(fence) => {
                content.iter_mut().for_each(|part| fence.enclose(part));
                format!("{}{notice}{}", fence.wrap(ends.head), fence.wrap(ends.tail))
            }
            None => {
                let is_at_line_start = ends.head.is_empty() || ends.head.ends_with('\n');
                let line_end = if is_at_line_start { "" } else { "\n" };
                format!("{}{line_end}{notice}{}", ends.head, ends.tail)
            }
        };
        content.insert(0, Content::text(text));
        let id = kept.as_ref().ok().map(|(id, _)| id.as_str());
        flagged::set_meta(
            self.outcome,
            "toolhold:overflow",
            json!({ "id": id, "offset": ends.offset, "left_out": left_out, "total": total }),
        );
    }

    /// Fences the untrusted parts.
    fn enclose_parts(&mut self, whole_is_untrusted: bool) {
        let Some(fence) = &self.fence else { return };
        for part in content_of(self.outcome) {
            if whole_is_untrusted || part.is_untrusted() {
                fence.enclose(part);
            }
        }
    }
}

/// Returns the structured value of an outcome.
fn value_of(outcome: &mut Outcome) -> &mut Option<Value> {
    match outcome {
        Ok(output) => &mut output.structured,
        Err(failure) => &mut failure.structured,
    }
}
