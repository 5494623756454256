//! Decides while a message arrives which text may be shown at once, and holds back text that may be
//! a call.

use super::block::{Block, BlockKind};
use super::offered_tools::OfferedTools;
use super::read::{BlockError, canonical_call, read_block};
use super::scan::{Scanner, Segment};
use super::{
    CallForm, FindOptions, FormHint, FoundCalls, MAX_CALLS, MAX_REJECTED, RejectedText, TextCall,
};

/// Reads one message in any pieces, and holds back text that may be a call until that is clear.
#[derive(Debug)]
pub struct CallSplitter<'a> {
    scanner: Scanner<'a>,
    offered: &'a OfferedTools,
    found: FoundCalls,
    /// The word that marks the form of each call, for the comparison with earlier texts.
    tags: Vec<Option<String>>,
    /// A block of JSON at the beginning, which is a call if nothing follows it.
    held: String,
    /// Whether the last block was refused. If so, its closing tags stay too.
    is_refused: bool,
}

/// The parts of a piece that may be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownText {
    /// All text that was shown until now turned out to be thoughts. This comes before the rest.
    pub was_thoughts: bool,
    /// More text.
    pub text: String,
    /// More thoughts.
    pub thoughts: String,
}

impl<'a> CallSplitter<'a> {
    /// The splitter of one message.
    pub fn new(offered: &'a OfferedTools, is_lenient: bool) -> Self {
        Self {
            scanner: Scanner::new(offered, is_lenient),
            offered,
            found: FoundCalls::default(),
            tags: Vec::new(),
            held: String::new(),
            is_refused: false,
        }
    }

    /// Takes the next piece, and returns the parts that may be shown.
    pub fn push(&mut self, piece: &str) -> ShownText {
        let segments = self.scanner.push(piece);
        self.add(segments)
    }

    /// Takes the end of the message, and returns the rest that may be shown, and the calls.
    pub fn finish(mut self, options: &FindOptions<'_>) -> (ShownText, FoundCalls) {
        let segments = self.scanner.finish();
        let mut shown = self.add(segments);
        if let Some(earlier) = options.earlier {
            for (call, tag) in self.found.calls.iter_mut().zip(&self.tags) {
                call.is_echo = earlier.have(call, tag.as_deref());
            }
        }
        let is_call = self.read_json(options);
        if !is_call {
            shown.text.push_str(&self.held);
            self.found.text_without_calls.push_str(&self.held);
        }
        let found = &mut self.found;
        if found.calls.is_empty() && found.rejected.is_empty() && found.hint.is_none() {
            if self.scanner.has_result {
                found.hint = Some(FormHint::MadeUpResult);
            } else if self.scanner.has_mark_in_line {
                found.hint = Some(FormHint::WithinLine);
            }
        }
        (shown, self.found)
    }

    fn add(&mut self, segments: Vec<Segment>) -> ShownText {
        let mut shown = ShownText::default();
        for segment in segments {
            match segment {
                Segment::Text(text) => self.show(&mut shown, text),
                Segment::Thoughts(thoughts) => {
                    self.found.thoughts.push_str(&thoughts);
                    shown.thoughts.push_str(&thoughts);
                }
                Segment::LeftOver(tag) => {
                    if self.is_refused {
                        self.show(&mut shown, tag);
                    }
                }
                Segment::EndOfThoughts => self.all_was_thoughts(&mut shown),
                Segment::Block(block) => match block.kind {
                    BlockKind::JsonFence if block.is_closed && !block.is_ambiguous => {
                        self.held.push_str(&block.raw);
                    }
                    BlockKind::JsonFence => self.show(&mut shown, block.raw),
                    _ => self.add_block(&mut shown, block),
                },
            }
        }
        shown
    }

    fn show(&mut self, shown: &mut ShownText, text: String) {
        if !self.held.is_empty() {
            if text.trim().is_empty() {
                self.held.push_str(&text);
                return;
            }
            self.release(shown);
        }
        self.found.text_without_calls.push_str(&text);
        shown.text.push_str(&text);
    }

    fn release(&mut self, shown: &mut ShownText) {
        let held = std::mem::take(&mut self.held);
        self.found.text_without_calls.push_str(&held);
        shown.text.push_str(&held);
    }

    fn add_block(&mut self, shown: &mut ShownText, block: Block) {
        self.release(shown);
        let calls = read_block(&block, self.offered).and_then(|calls| {
            let is_too_many = self.found.calls.len() + calls.len() > MAX_CALLS;
            if is_too_many { Err(BlockError::TooManyCallsInMessage) } else { Ok(calls) }
        });
        self.is_refused = calls.is_err();
        match calls {
            Ok(calls) => {
                self.tags.extend(calls.iter().map(|call| mark(call, &block.kind)));
                self.found.calls.extend(calls);
            }
            Err(error) => {
                self.reject(&error.to_string(), &block.raw);
                self.show(shown, block.raw);
            }
        }
    }

    fn reject(&mut self, why: &str, raw: &str) {
        if self.found.rejected.len() < MAX_REJECTED {
            self.found.rejected.push(RejectedText::new(why, raw));
        }
    }

    /// The beginning of the thoughts is missing, as some servers leave it out.
    fn all_was_thoughts(&mut self, shown: &mut ShownText) {
        self.release(shown);
        let text = std::mem::take(&mut self.found.text_without_calls);
        self.found.thoughts.push_str(&text);
        let thoughts = std::mem::take(&mut shown.thoughts) + &std::mem::take(&mut shown.text);
        *shown = ShownText { was_thoughts: true, text: String::new(), thoughts };
        self.found.rejected.clear();
        self.tags.clear();
        if !self.found.calls.is_empty() {
            self.found.calls.clear();
            self.reject("it is in your thoughts, before </think>: write the call after them", "");
        }
    }

    /// Looks whether the message is a block of JSON that names an offered tool, and makes it a call
    /// if that is allowed. Otherwise there is a hint or a refusal.
    fn read_json(&mut self, options: &FindOptions<'_>) -> bool {
        let whole = if self.held.is_empty() { &self.found.text_without_calls } else { &self.held };
        if !self.found.calls.is_empty() || !self.found.rejected.is_empty() {
            return false;
        }
        let Some(json) = json_block(whole) else {
            // Without a mark, the block is no call in any mode. The model is told so, because
            // otherwise the task would end with the block as the answer.
            if let Some(call) = canonical_call(whole.trim(), self.offered) {
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
        // Without the earlier texts, the call may be a quotation.
        if options.earlier.is_none_or(|earlier| earlier.have(&call, None)) {
            let why = "it is also in an earlier result, file or message, and may be a quotation: write it as a block ```tool_call";
            self.found.rejected.push(RejectedText::new(why, whole));
            return false;
        }
        self.found.calls.push(call);
        true
    }
}

/// The word that marks the form of a call, if its tool isn't named by a field or an attribute.
fn mark(call: &TextCall, kind: &BlockKind) -> Option<String> {
    match (call.form, kind) {
        (CallForm::Fence, BlockKind::Fence(tag)) => Some(tag.clone()),
        (CallForm::Line, _) => Some(call.name.clone()),
        (CallForm::ToolFence, BlockKind::Fence(info)) if info != "tool_call" => {
            Some(call.name.clone())
        }
        _ => None,
    }
}

/// The JSON in a text that is one fenced block of JSON.
fn json_block(text: &str) -> Option<&str> {
    let text = text.trim();
    let opening = text.trim_start_matches('`');
    let fence = &text[..text.len() - opening.len()];
    let rest = opening.strip_prefix("json")?.trim_start_matches([' ', '\t', '\r']);
    let body = rest.strip_prefix('\n')?.trim_end_matches('`');
    let closing = text.len() - text.trim_end_matches('`').len();
    let is_block = fence.len() >= 3 && closing >= fence.len() && body.ends_with('\n');
    is_block.then_some(body)
}
