//! Makes an answer short enough for a model, and fences untrusted text.

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

struct ModelAnswer<'a> {
    context: &'a CallContext,
    shape: &'a mut ShapeReport,
    outcome: &'a mut Outcome,
    fence: Option<Fence>,
    /// Maximum number of characters of the text, and also of the structured value.
    threshold: usize,
}

impl Shaper {
    /// Cuts a long text, stores the complete text, and fences untrusted text. The fence encloses
    /// the whole text if the text is cut or completely untrusted, and only marked parts otherwise.
    pub(super) async fn for_model(
        &self,
        context: &CallContext,
        shape: &mut ShapeReport,
        outcome: &mut Outcome,
        spooled: &mut Option<Result<KeptOutput, KeepError>>,
        whole_is_untrusted: bool,
    ) {
        let Some(tool) = &context.tool else { return };
        let fence = if shape.untrusted { Some(Fence::new(&tool.definition.name)) } else { None };
        let is_bounded = self.threshold > 0 && !reads_stored_answers(tool);
        let threshold = if is_bounded { self.threshold } else { usize::MAX };
        let mut answer = ModelAnswer { context, shape, outcome, fence, threshold };
        let warning = answer.mark_and_warn(whole_is_untrusted);
        let is_text_cut = self.leave_out(&mut answer, spooled).await;
        if !is_text_cut {
            answer.enclose_parts(whole_is_untrusted);
        }
        content_of(answer.outcome).splice(0..0, warning);
    }

    /// Omits long text and long structured values, and stores the whole answer. Returns whether the
    /// text was cut. A cut text of an untrusted answer is already fenced.
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
        // Prefer the offset of the structured value, because its shown part may be shorter than the
        // shown part of the text.
        let offset = if let Some(offset) = value_offset {
            offset
        } else if let Some(ends) = &ends {
            ends.offset
        } else {
            return false;
        };

        let mut total = ends.as_ref().map_or(0, |ends| ends.total);
        let stored = match spooled.take() {
            Some(Ok(output)) => {
                total = output.characters;
                Ok((output.id, output.extent))
            }
            Some(Err(error)) => Err(error),
            None => self.keep(answer.context, whole.clone(), answer.shape.untrusted).await,
        };
        let notice =
            format!("A part of the answer is left out here. {}", describe_rest(&stored, offset));
        answer.shape.notices.push(notice);
        answer.shape.rest = remainder(&stored, offset);
        answer.shape.truncated = true;
        if let Some(ends) = &ends {
            answer.show_ends(ends, total, &stored);
        }
        ends.is_some()
    }

    /// Removes a structured answer that is still too long, and stores the whole value.
    async fn leave_out_value(&self, answer: &mut ModelAnswer<'_>) {
        let ModelAnswer { context, shape, outcome, threshold, .. } = answer;
        let too_long = value_of(outcome).take_if(|value| is_longer(value, *threshold));
        let Some(value) = too_long else { return };
        let whole = value.to_string();
        let total = whole.chars().count();
        let stored = self.keep(context, whole, shape.untrusted).await;
        let offset = 0;
        let notice = format!(
            "The structured answer of {total} characters is left out. {}",
            describe_rest(&stored, offset)
        );
        content_of(outcome).push(Content::text(bracketed(&notice)));
        shape.notices.push(notice);
        shape.rest = remainder(&stored, offset);
        shape.truncated = true;
    }
}

impl ModelAnswer<'_> {
    /// Marks the answer as untrusted in the metadata, and fences the notices. Returns the warning
    /// about injection patterns, which is the first part.
    fn mark_and_warn(&mut self, whole_is_untrusted: bool) -> Option<Content> {
        if let Some(fence) = &self.fence {
            flagged::set_meta(self.outcome, "toolhold:untrusted", json!(true));
            if whole_is_untrusted {
                // Notices contain names of files and hosts, which third parties may have chosen.
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

    fn text(&mut self) -> String {
        let texts = content_of(self.outcome).iter().filter_map(Content::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Shortens a long structured value that has the field `truncated`. Returns the offset of the
    /// first omitted character, or `None` if nothing was omitted. Replaces an empty `whole` with
    /// the complete text.
    fn shorten_value(&mut self, whole: &mut String) -> Option<usize> {
        let threshold = self.threshold;
        let value = value_of(self.outcome).as_ref()?;
        if !is_longer(value, threshold) {
            return None;
        }
        if whole.is_empty() {
            *whole = self.text();
        }
        let value = value_of(self.outcome).as_mut()?;
        // An answer without any text is stored as JSON.
        if whole.is_empty() {
            *whole = value.to_string();
        }
        shortened::shorten(value, threshold)
    }

    /// Replaces the text of the answer with its two ends and a notice between them.
    fn show_ends(
        &mut self,
        ends: &Ends<'_>,
        total: usize,
        stored: &Result<(OverflowId, Extent), KeepError>,
    ) {
        // `total` counts the stored text, which can be longer than the cut text.
        let shown = ends.total - ends.left_out;
        let left_out = total.saturating_sub(shown);
        let notice = format!(
            "[{left_out} of {total} characters are left out here. {}]\n",
            describe_rest(stored, ends.offset)
        );
        let content = content_of(self.outcome);
        content.retain(|part| part.as_text().is_none());
        if let Some(fence) = &self.fence {
            content.iter_mut().for_each(|part| fence.enclose(part));
        }
        content.insert(0, Content::text(join_ends(ends, &notice, self.fence.as_ref())));
        let id = stored.as_ref().ok().map(|(id, _)| id.as_str());
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

fn join_ends(ends: &Ends<'_>, notice: &str, fence: Option<&Fence>) -> String {
    if let Some(fence) = fence {
        return format!("{}{notice}{}", fence.wrap(ends.head), fence.wrap(ends.tail));
    }
    let is_at_line_start = ends.head.is_empty() || ends.head.ends_with('\n');
    let line_end = if is_at_line_start { "" } else { "\n" };
    format!("{}{line_end}{notice}{}", ends.head, ends.tail)
}

fn value_of(outcome: &mut Outcome) -> &mut Option<Value> {
    match outcome {
        Ok(output) => &mut output.structured,
        Err(failure) => &mut failure.structured,
    }
}
