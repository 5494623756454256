//! Divides a model's text into prose, thoughts and blocks that may be calls. The text arrives in
//! pieces of any size. Each byte is scanned once, except bytes of incomplete marks.
//!
//! A block starts at the start of a line, after at most three spaces, or directly after another
//! block. No block starts inside code, a quotation or thoughts.

mod tagged;

use super::block::{Block, BlockKind};
use super::marks::{
    Fence, LineRole, MAX_INDENTATION, MAX_TAG_OR_FENCE, MIN_FENCE, NoTag, Tag, may_be_tag,
    reaches_limit, read_tag,
};
use super::offered_tools::OfferedTools;
use super::read::read_line;
use tagged::Tagged;

/// The most bytes of a tool's name.
const MAX_TOOL_NAME: usize = 64;

/// The most bytes of a call on one line. A longer line is prose.
const MAX_LINE: usize = 16 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Prose, and code that isn't a call.
    Text(String),
    Thoughts(String),
    /// A closing tag without an opening tag. All text before the tag was thoughts.
    EndOfThoughts,
    Block(Block),
    /// Surplus closing tags after a block.
    SurplusClosingTag(String),
}

#[derive(Debug)]
enum State {
    /// A block may start here. Closing tags after a block are surplus.
    Start {
        after_block: bool,
    },
    Prose,
    Thoughts,
    /// Code that isn't a call.
    Code {
        fence: Fence,
        at_line_start: bool,
    },
    Quotation(&'static str),
    /// A fenced block that may be a call. The block is read in whole lines.
    FencedBlock(Fence),
    TaggedBlock(Tagged),
}

#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    offered: &'a OfferedTools,
    allows_json: bool,
    buffer: String,
    /// The start of the text that isn't classified yet.
    position: usize,
    /// The end of the text in which line ends were searched.
    searched: usize,
    state: State,
    block: Block,
    is_ambiguous: bool,
    /// Whether the current lines are quoted: after a line with `>`, up to an empty line.
    is_quoted: bool,
    has_blocks: bool,
    has_content: bool,
    segments: Vec<Segment>,
    /// Whether a call's tag is at a place where no call may start.
    pub(crate) has_tag_in_line: bool,
    /// Whether the text has a tag of a tool's result.
    pub(crate) has_result: bool,
    /// For tests, which check that this number grows linearly with the text.
    pub(crate) scanned_bytes: usize,
}

enum Step {
    Done,
    NeedsMore,
}

impl<'a> Scanner<'a> {
    /// Makes the scanner of one message. If `allows_json` is set, a fenced block of JSON at the
    /// message's start may be a call.
    pub(crate) fn new(offered: &'a OfferedTools, allows_json: bool) -> Self {
        Self {
            offered,
            allows_json,
            buffer: String::new(),
            position: 0,
            searched: 0,
            state: State::Start { after_block: false },
            block: Block::new(BlockKind::Line),
            is_ambiguous: false,
            is_quoted: false,
            has_blocks: false,
            has_content: false,
            segments: Vec::new(),
            has_tag_in_line: false,
            has_result: false,
            scanned_bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, piece: &str) -> Vec<Segment> {
        self.buffer.push_str(piece);
        let is_end = false;
        self.run(is_end)
    }

    /// Ends the text, and returns the last segments, including a block without an end.
    pub(crate) fn finish(&mut self) -> Vec<Segment> {
        let is_end = true;
        let mut segments = self.run(is_end);
        if matches!(self.state, State::FencedBlock(_) | State::TaggedBlock(_)) {
            self.block.body_end = self.block.raw.len();
            let is_closed = false;
            segments.push(Segment::Block(self.take_block(is_closed)));
            self.state = State::Prose;
        }
        segments
    }

    /// Reads the buffer, as far as possible. `is_end` tells that the message is complete.
    fn run(&mut self, is_end: bool) -> Vec<Segment> {
        while self.position < self.buffer.len() {
            if let Step::NeedsMore = self.step(is_end) {
                break;
            }
        }
        self.buffer.drain(..self.position);
        self.searched = self.searched.saturating_sub(self.position);
        self.position = 0;
        std::mem::take(&mut self.segments)
    }

    /// Reads the next part of the text. `is_end` tells that the message is complete.
    fn step(&mut self, is_end: bool) -> Step {
        match self.state {
            State::Start { after_block } => self.read_start(after_block, is_end),
            State::Prose => self.read_prose(is_end),
            State::Thoughts => self.read_thoughts(is_end),
            State::Code { fence, at_line_start } => self.read_code(fence, at_line_start, is_end),
            State::Quotation(name) => self.read_quotation(name, is_end),
            State::FencedBlock(fence) => self.read_fenced_block(fence, is_end),
            State::TaggedBlock(_) => self.read_tagged_block(is_end),
        }
    }

    fn rest(&self) -> &str {
        &self.buffer[self.position..]
    }

    /// Returns the length of the next line with its line end, or `None` if the line is incomplete.
    /// Bytes that were already searched for a line end are skipped.
    fn line_length(&mut self, is_end: bool) -> Option<usize> {
        let search_start = self.searched.max(self.position);
        let unsearched = &self.buffer.as_bytes()[search_start..];
        let newline = unsearched.iter().position(|byte| *byte == b'\n');
        let search_end = search_start + newline.unwrap_or(unsearched.len());
        self.scanned_bytes += search_end - search_start;
        self.searched = search_end;

        let length = search_end - self.position;
        match newline {
            Some(_) => Some(length + "\n".len()),
            None if is_end => Some(length),
            None => None,
        }
    }

    fn advance(&mut self, length: usize) {
        self.position += length;
        self.scanned_bytes += length;
    }

    fn take_text(&mut self, length: usize) {
        let text = &self.buffer[self.position..self.position + length];
        if !text.trim().is_empty() {
            self.has_content = true;
        }
        self.scanned_bytes += length;
        self.position += length;
        if let Some(Segment::Text(last)) = self.segments.last_mut() {
            last.push_str(text);
        } else if length > 0 {
            self.segments.push(Segment::Text(text.to_owned()));
        }
    }

    /// Reads the start of a line, or the text after a block: a fence, a tag, a call on one line, or
    /// prose.
    fn read_start(&mut self, after_block: bool, is_end: bool) -> Step {
        let rest = self.rest();
        let unindented = rest.trim_start_matches([' ', '\t']);
        let indentation = rest.len() - unindented.len();
        let is_deep = indentation > MAX_INDENTATION || rest[..indentation].contains('\t');
        let first = unindented.chars().next();
        self.scanned_bytes += indentation.min(MAX_TAG_OR_FENCE) + 1;

        // White space is read again when more text arrives, so its length needs a limit.
        if indentation > MAX_TAG_OR_FENCE {
            return self.begin_prose(indentation);
        }
        let Some(first) = first else {
            return if is_end { self.begin_prose(indentation) } else { Step::NeedsMore };
        };

        // In Markdown, a line with this indentation is code.
        let is_code = is_deep && !after_block;
        if first == '>' && !is_code {
            self.is_quoted = true;
        }
        match first {
            '\n' => {
                // An empty line ends a quotation.
                self.is_quoted = false;
                self.take_text(indentation + "\n".len());
                self.state = State::Start { after_block: false };
                Step::Done
            }
            _ if is_code => self.begin_prose(indentation),
            '`' | '~' if !after_block => self.start_fence(indentation, is_end),
            '<' => self.start_tag(indentation, after_block, is_end),
            _ if first.is_ascii_alphanumeric() && !after_block => {
                self.start_line(indentation, is_end)
            }
            _ => self.begin_prose(indentation),
        }
    }

    fn begin_prose(&mut self, indentation: usize) -> Step {
        self.take_text(indentation);
        self.state = State::Prose;
        Step::Done
    }

    /// Starts a fenced block, which is a call or other code. A line without a valid fence is prose.
    fn start_fence(&mut self, indentation: usize, is_end: bool) -> Step {
        let length = match self.line_length(is_end) {
            Some(length) => length,
            None if self.rest().len() < MAX_TAG_OR_FENCE => return Step::NeedsMore,
            // The line is already too long for a call, so its end doesn't matter.
            None => self.rest().len(),
        };
        let line = &self.rest()[..length];
        if reaches_limit(line, MAX_TAG_OR_FENCE) {
            return self.start_long_fence(indentation);
        }

        let Some((fence, info)) = Fence::read(line) else {
            return self.begin_prose(indentation);
        };
        match self.block_kind(info) {
            Some(kind) => {
                self.begin_block(kind, length);
                self.state = State::FencedBlock(fence);
            }
            None => {
                self.take_text(length);
                self.state = State::Code { fence, at_line_start: true };
            }
        }
        Step::Done
    }

    /// Starts a fenced block of other code: its first line is too long for a call.
    fn start_long_fence(&mut self, indentation: usize) -> Step {
        let unindented = &self.rest().as_bytes()[indentation..];
        let mark = unindented[0];
        let marks = unindented.iter().take(MAX_TAG_OR_FENCE).take_while(|byte| **byte == mark);
        let fence_length = marks.count();
        if fence_length < MIN_FENCE {
            return self.begin_prose(indentation);
        }
        let fence = Fence { mark: char::from(mark), length: fence_length };
        self.state = State::Code { fence, at_line_start: false };
        Step::Done
    }

    /// Returns the kind of a fenced block that may be a call, or `None` for other code. `info` is
    /// the text after the fence.
    fn block_kind(&self, info: &str) -> Option<BlockKind> {
        let names_tool =
            info.strip_prefix("tool").is_some_and(|name| name.starts_with([' ', '\t']));
        if info == "tool_call" || names_tool || self.offered.fenced(info).is_some() {
            return Some(BlockKind::Fence(info.to_owned()));
        }
        let is_first = !self.has_content && !self.has_blocks;
        if self.allows_json && is_first && info == "json" {
            return Some(BlockKind::JsonFence);
        }
        None
    }

    /// Reads a tag at the start of a line or after a block. Text without a known tag is prose.
    fn start_tag(&mut self, indentation: usize, after_block: bool, is_end: bool) -> Step {
        let text = &self.rest()[indentation..];
        let (tag, length) = match read_tag(text) {
            Ok(tag) => tag,
            Err(NoTag::Incomplete) if !is_end && may_be_tag(text) => return Step::NeedsMore,
            Err(_) => return self.begin_prose(indentation),
        };
        let total = indentation + length;
        match tag {
            Tag::Open(family, attributes) => {
                let tagged = Tagged::new(family, attributes);
                self.begin_block(BlockKind::Tag(family), total);
                self.state = State::TaggedBlock(tagged);
            }
            Tag::Close(_) if after_block => {
                let tag = self.rest()[..total].to_owned();
                self.segments.push(Segment::SurplusClosingTag(tag));
                self.advance(total);
            }
            Tag::Thoughts => {
                self.advance(total);
                self.state = State::Thoughts;
            }
            Tag::Quotation(name) => {
                if name == "tool_result" {
                    self.has_result = true;
                }
                self.take_text(total);
                self.state = State::Quotation(name);
            }
            Tag::EndOfThoughts if indentation == 0 || after_block => {
                // `read_prose` reads the tag. If there is white space before it, `read_prose` reads
                // only this white space, and the next step reads the tag.
                self.read_prose(is_end);
                self.state = State::Start { after_block: true };
            }
            Tag::EndOfThoughts | Tag::Close(_) | Tag::Other(_) => {
                return self.begin_prose(indentation);
            }
        }
        Step::Done
    }

    /// Reads a call `tool/argument>value` or `tool/{…}` on one line. After a block in any other
    /// form, such a line is prose.
    fn start_line(&mut self, indentation: usize, is_end: bool) -> Step {
        let may_be_call = !self.has_blocks && !self.is_quoted;
        if !may_be_call || !self.offered.allows_lines() {
            return self.begin_prose(indentation);
        }
        let (name, after_name) = split_tool_name(&self.rest()[indentation..]);
        if after_name.is_empty() && !is_end && self.offered.has_name_with_prefix(name) {
            return Step::NeedsMore;
        }
        if !after_name.starts_with('/') || self.offered.named(name).is_none() {
            return self.begin_prose(indentation);
        }

        let Some(length) = self.line_length(is_end) else {
            if self.rest().len() < MAX_LINE {
                return Step::NeedsMore;
            }
            return self.begin_prose(indentation);
        };
        let line = &self.rest()[..length];
        if reaches_limit(line, MAX_LINE) || read_line(line.trim(), self.offered).is_none() {
            return self.begin_prose(indentation);
        }
        self.begin_block(BlockKind::Line, length);
        self.block.body_end = self.block.raw.len();
        let is_closed = true;
        let block = self.take_block(is_closed);
        self.segments.push(Segment::Block(block));
        // Don't count this call as a block, so that more calls on one line may follow it.
        self.has_blocks = false;
        self.state = State::Start { after_block: false };
        Step::Done
    }

    /// Reads prose up to a line end or tag, or reads the line end or tag.
    fn read_prose(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| b"\n<".contains(byte)).unwrap_or(rest.len());
        if length > 0 {
            self.take_text(length);
            return Step::Done;
        }
        if rest[0] == b'\n' {
            self.take_text("\n".len());
            self.state = State::Start { after_block: false };
            return Step::Done;
        }
        match read_tag(self.rest()) {
            // All text before the tag was thoughts, so calls and results in this text don't count.
            // The rest of the line is prose, because the tag may be quoted.
            Ok((Tag::EndOfThoughts, length)) => {
                self.position += length;
                self.segments.push(Segment::EndOfThoughts);
                self.has_content = false;
                self.has_blocks = false;
                self.has_tag_in_line = false;
                self.has_result = false;
            }
            Ok((Tag::Open(..), length)) => {
                self.has_tag_in_line = true;
                self.take_text(length);
            }
            Err(NoTag::Incomplete) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_text("<".len()),
        }
        Step::Done
    }

    /// Reads thoughts up to a tag, or reads the tag.
    fn read_thoughts(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take_thoughts(length);
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::EndOfThoughts, length)) => {
                self.advance(length);
                self.state = State::Start { after_block: true };
            }
            Err(NoTag::Incomplete) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_thoughts("<".len()),
        }
        Step::Done
    }

    fn take_thoughts(&mut self, length: usize) {
        let thoughts = &self.buffer[self.position..self.position + length];
        self.scanned_bytes += length;
        self.position += length;
        if let Some(Segment::Thoughts(last)) = self.segments.last_mut() {
            last.push_str(thoughts);
        } else {
            self.segments.push(Segment::Thoughts(thoughts.to_owned()));
        }
    }

    /// Reads a line, or a part of a line, of other code.
    fn read_code(&mut self, fence: Fence, at_line_start: bool, is_end: bool) -> Step {
        let first = self.rest().trim_start_matches(' ').chars().next();
        let may_be_fence = at_line_start && first.is_none_or(|first| first == fence.mark);
        let Some(length) = self.line_length(is_end) else {
            // Only a line that may end the block must be complete.
            if may_be_fence && self.rest().len() < MAX_TAG_OR_FENCE {
                return Step::NeedsMore;
            }
            self.take_text(self.rest().len());
            self.state = State::Code { fence, at_line_start: false };
            return Step::Done;
        };

        let line = &self.rest()[..length];
        let is_whole_line = at_line_start && !reaches_limit(line, MAX_TAG_OR_FENCE);
        let role = if is_whole_line { fence.role(line) } else { LineRole::Content };
        self.take_text(length);
        self.state = State::Code { fence, at_line_start: true };
        match role {
            LineRole::End => self.state = State::Start { after_block: false },
            LineRole::Opening => self.is_ambiguous = true,
            LineRole::Content => {}
        }
        Step::Done
    }

    /// Reads a quotation up to a tag, or reads the tag. The closing tag `name` ends the quotation.
    fn read_quotation(&mut self, name: &'static str, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take_text(length);
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::Other(inner), length)) => {
                let tag_name = inner.split_whitespace().next().unwrap_or_default();
                let is_closing_tag =
                    self.rest().starts_with("</") && tag_name.eq_ignore_ascii_case(name);
                self.take_text(length);
                if is_closing_tag {
                    self.state = State::Start { after_block: false };
                }
            }
            Err(NoTag::Incomplete) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_text("<".len()),
        }
        Step::Done
    }

    fn begin_block(&mut self, kind: BlockKind, length: usize) {
        self.block = Block::new(kind);
        self.block.raw = self.rest()[..length].to_owned();
        self.block.body_start = length;
        self.block.body_end = length;
        self.block.is_quoted = self.is_quoted;
        self.advance(length);
    }

    fn take_into_block(&mut self, length: usize) {
        self.block.raw.push_str(&self.buffer[self.position..self.position + length]);
        self.advance(length);
    }

    fn take_block(&mut self, is_closed: bool) -> Block {
        self.has_blocks = true;
        self.has_content = true;
        let unused_block = Block::new(BlockKind::Line);
        let mut block = std::mem::replace(&mut self.block, unused_block);
        block.is_closed = is_closed;
        block.is_ambiguous = self.is_ambiguous;
        block
    }

    fn read_fenced_block(&mut self, fence: Fence, is_end: bool) -> Step {
        let Some(length) = self.line_length(is_end) else { return Step::NeedsMore };
        let role = fence.role(&self.rest()[..length]);
        self.take_into_block(length);
        match role {
            LineRole::End => {
                let is_closed = true;
                let block = self.take_block(is_closed);
                self.segments.push(Segment::Block(block));
                self.state = State::Start { after_block: false };
                return Step::Done;
            }
            LineRole::Opening => self.is_ambiguous = true,
            LineRole::Content => {}
        }
        self.block.body_end = self.block.raw.len();
        Step::Done
    }
}

/// Splits a text after the characters that may be a tool's name. At most one character more than
/// [`MAX_TOOL_NAME`] is read.
fn split_tool_name(text: &str) -> (&str, &str) {
    let start = text.bytes().take(MAX_TOOL_NAME + 1);
    let name_bytes = start.take_while(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
    text.split_at(name_bytes.count())
}

impl Block {
    fn new(kind: BlockKind) -> Self {
        Self {
            kind,
            raw: String::new(),
            body_start: 0,
            body_end: 0,
            is_closed: false,
            is_ambiguous: false,
            is_quoted: false,
            is_too_deep: false,
        }
    }
}
