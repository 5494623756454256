//! Decides which text of an arriving message can be shown.

use super::block::{Block, BlockKind};
use super::marks::MIN_FENCE;
use super::offered_tools::OfferedTools;
use super::read::{BlockError, canonical_call, read_block};
use super::scan::{Scanner, Segment};
use super::{
    CallForm, FindOptions, FormHint, FoundCalls, MAX_CALLS, MAX_REJECTED, RejectedText, TextCall,
};

/// Reads one message in pieces of any size. Text that may be a call is held back.
#[derive(Debug)]
pub struct CallSplitter<'a> {
    scanner: Scanner<'a>,
    offered: &'a OfferedTools,
    found: FoundCalls,
    /// The word that starts each call, for the comparison with earlier texts.
    tags: Vec<Option<String>>,
    /// A block of JSON at the start of the message, which is a call if no text follows.
    held_back: String,
    /// Whether the last block was refused. Closing tags after a refused block are shown.
    is_refused: bool,
}

/// Parts of a message that may be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownText {
    /// Whether all earlier text of the message was thoughts. Apply this field first.
    pub was_thoughts: bool,
    /// More text.
    pub text: String,
    /// More thoughts.
    pub thoughts: String,
}

impl<'a> CallSplitter<'a> {
    /// Makes the splitter of one message. If `is_lenient` is set, a message that is one block of
    /// JSON may be a call.
    pub fn new(offered: &'a OfferedTools, is_lenient: bool) -> Self {
        Self {
            scanner: Scanner::new(offered, is_lenient),
            offered,
            found: FoundCalls::default(),
            tags: Vec::new(),
            held_back: String::new(),
            is_refused: false,
        }
    }

    /// Adds a piece, and returns the parts that may be shown.
    pub fn push(&mut self, piece: &str) -> ShownText {
        let segments = self.scanner.push(piece);
        self.handle_segments(segments)
    }

    /// Ends the message. Returns the last parts that may be shown, and the calls. If there are no
    /// calls, also returns a hint about text that looks like a call.
    pub fn finish(mut self, options: &FindOptions<'_>) -> (ShownText, FoundCalls) {
        let segments = self.scanner.finish();
        let mut shown = self.handle_segments(segments);
        if let Some(earlier) = options.earlier {
            for (call, tag) in self.found.calls.iter_mut().zip(&self.tags) {
                call.is_echo = earlier.contain(call, tag.as_deref());
            }
        }

        let is_json_call = self.read_json(options);
        if !is_json_call {
            self.release(&mut shown);
        }

        let found = &mut self.found;
        let has_reason = !found.rejected.is_empty() || found.hint.is_some();
        if found.calls.is_empty() && !has_reason {
            if self.scanner.has_result {
                found.hint = Some(FormHint::MadeUpResult);
            } else if self.scanner.has_tag_in_line {
                found.hint = Some(FormHint::WithinLine);
            }
        }
        (shown, self.found)
    }

    fn handle_segments(&mut self, segments: Vec<Segment>) -> ShownText {
        let mut shown = ShownText::default();
        for segment in segments {
            match segment {
                Segment::Text(text) => self.show(&mut shown, text),
                Segment::Thoughts(thoughts) => {
                    self.found.thoughts.push_str(&thoughts);
                    shown.thoughts.push_str(&thoughts);
                }
                // After a refused block, closing tags are shown like the block.
                Segment::SurplusClosingTag(tag) if self.is_refused => self.show(&mut shown, tag),
                Segment::SurplusClosingTag(_) => {}
                Segment::EndOfThoughts => self.turn_into_thoughts(&mut shown),
                Segment::Block(block) => match block.kind {
                    BlockKind::JsonFence if block.is_closed && !block.is_ambiguous => {
                        self.held_back.push_str(&block.raw);
                    }
                    BlockKind::JsonFence => self.show(&mut shown, block.raw),
                    BlockKind::Fence(_) | BlockKind::Tag(_) | BlockKind::Line => {
                        self.add_block(&mut shown, block);
                    }
                },
            }
        }
        shown
    }

    /// Shows text. If a block of JSON is held back, white space is held back too. Any other text
    /// shows that the block isn't a call, so the block is shown first.
    fn show(&mut self, shown: &mut ShownText, text: String) {
        if !self.held_back.is_empty() {
            if text.trim().is_empty() {
                self.held_back.push_str(&text);
                return;
            }
            self.release(shown);
        }
        self.found.text_without_calls.push_str(&text);
        shown.text.push_str(&text);
    }

    /// Shows the block that was held back.
    fn release(&mut self, shown: &mut ShownText) {
        let held = std::mem::take(&mut self.held_back);
        self.found.text_without_calls.push_str(&held);
        shown.text.push_str(&held);
    }

    /// Adds the calls of a block. A refused block is shown as text.
    fn add_block(&mut self, shown: &mut ShownText, block: Block) {
        self.release(shown);
        let result = self.read_calls(&block);
        self.is_refused = result.is_err();
        match result {
            Ok(calls) => {
                self.tags.extend(calls.iter().map(|call| marking_word(call, &block.kind)));
                self.found.calls.extend(calls);
            }
            Err(error) => {
                self.reject(&error.to_string(), &block.raw);
                self.show(shown, block.raw);
            }
        }
    }

    fn read_calls(&self, block: &Block) -> Result<Vec<TextCall>, BlockError> {
        let calls = read_block(block, self.offered)?;
        if self.found.calls.len() + calls.len() > MAX_CALLS {
            return Err(BlockError::TooManyCallsInMessage);
        }
        Ok(calls)
    }

    fn reject(&mut self, why: &str, raw: &str) {
        if self.found.rejected.len() < MAX_REJECTED {
            self.found.rejected.push(RejectedText::new(why, raw));
        }
    }

    /// Turns all earlier text into thoughts, because some servers leave out the opening tag of
    /// thoughts. Calls in the text are rejected with one message.
    fn turn_into_thoughts(&mut self, shown: &mut ShownText) {
        self.release(shown);
        let text = std::mem::take(&mut self.found.text_without_calls);
        self.found.thoughts.push_str(&text);
        let thoughts = std::mem::take(&mut shown.thoughts) + &std::mem::take(&mut shown.text);
        *shown = ShownText { was_thoughts: true, text: String::new(), thoughts };
        self.found.rejected.clear();
        self.tags.clear();
        if !self.found.calls.is_empty() {
            self.found.calls.clear();
            let no_excerpt = "";
            self.reject(
                "the call is in your thoughts, before </think>: write the call after </think>",
                no_excerpt,
            );
        }
    }

    /// Adds the call of a message that is one block of JSON, or else a hint or a refusal. Returns
    /// whether a call was added.
    fn read_json(&mut self, options: &FindOptions<'_>) -> bool {
        if !self.found.calls.is_empty() || !self.found.rejected.is_empty() {
            return false;
        }
        let message = if self.held_back.is_empty() {
            &self.found.text_without_calls
        } else {
            &self.held_back
        };
        let Some(json) = json_block(message) else {
            // Add a hint, because otherwise the task ends after this message without calls.
            if let Some(call) = canonical_call(message.trim(), self.offered) {
                let hint = FormHint::Json { tool: call.name, lenient_helps: false };
                self.found.hint = Some(hint);
            }
            return false;
        };
        let Some(call) = canonical_call(json, self.offered) else { return false };

        let lenient_helps = options.is_loopback && !options.used_native_calls;
        if !options.is_lenient || !lenient_helps {
            self.found.hint = Some(FormHint::Json { tool: call.name, lenient_helps });
            return false;
        }

        // If some earlier texts are unknown, the call may be a quotation.
        let may_be_quotation = match options.earlier {
            Some(earlier) => earlier.contain(&call, None),
            None => true,
        };
        if may_be_quotation {
            let why = "the same text is in an earlier result, file or message, so the call may be \
                       a quotation: write the call as a block ```tool_call";
            self.found.rejected.push(RejectedText::new(why, message));
            return false;
        }
        self.found.calls.push(call);
        true
    }
}

/// Returns the word that starts a call, such as a fence tag. Returns `None` if a field or attribute
/// names the tool.
fn marking_word(call: &TextCall, kind: &BlockKind) -> Option<String> {
    match (call.form, kind) {
        (CallForm::Fence, BlockKind::Fence(tag)) => Some(tag.clone()),
        (CallForm::Line, _) => Some(call.name.clone()),
        // The block is `tool NAME`.
        (CallForm::ToolFence, BlockKind::Fence(info)) if info != "tool_call" => {
            Some(call.name.clone())
        }
        _ => None,
    }
}

/// Returns the tool of the first fenced block of JSON that looks like a call. Toolhold doesn't make
/// these calls, because models show examples in this form.
pub fn shown_call(text: &str, offered: &OfferedTools) -> Option<String> {
    // The JSON of the current block.
    let mut body: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        let Some(json) = &mut body else {
            if trimmed == "```json" {
                body = Some(String::new());
            }
            continue;
        };
        if trimmed != "```" {
            json.push_str(line);
            json.push('\n');
            continue;
        }
        if let Some(call) = canonical_call(json.trim(), offered) {
            return Some(call.name);
        }
        body = None;
    }
    None
}

/// Returns the JSON of a text that is one fenced block of JSON.
fn json_block(text: &str) -> Option<&str> {
    let text = text.trim();
    let after_fence = text.trim_start_matches('`');
    let opening_length = text.len() - after_fence.len();
    let closing_length = text.len() - text.trim_end_matches('`').len();

    let after_word = after_fence.strip_prefix("json")?.trim_start_matches([' ', '\t', '\r']);
    let body = after_word.strip_prefix('\n')?.trim_end_matches('`');
    let is_closed = closing_length >= opening_length && body.ends_with('\n');
    if opening_length >= MIN_FENCE && is_closed { Some(body) } else { None }
}
