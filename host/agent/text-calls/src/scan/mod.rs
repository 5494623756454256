//! Divides a model's text into prose, thoughts and blocks that may be calls. The text is scanned
//! once and may arrive in pieces of any size.
//!
//! A block begins only at the beginning of a line, with at most three spaces before it, or directly
//! after another block. Blocks never begin inside a code block of another language, a quotation or
//! thoughts. Each byte is scanned once, except for a short mark that isn't complete yet.

mod tagged;

use super::block::{Block, BlockKind};
use super::marks::{Fence, Inside, MAX_MARK, Tag, is_longer, may_be_tag, read_tag};
use super::offered_tools::OfferedTools;
use super::read::read_line;
use tagged::Tagged;

/// The most bytes of a call on one line.
const MAX_LINE: usize = 16 * 1024;

/// A part of a model's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Prose, and code that is no call.
    Text(String),
    /// Thoughts.
    Thoughts(String),
    /// A closing tag of thoughts without an opening tag. All text before it is thoughts.
    EndOfThoughts,
    /// A block that may be a call.
    Block(Block),
    /// Surplus closing tags after a block.
    LeftOver(String),
}

/// The place of the scanner in the text.
#[derive(Debug)]
enum State {
    /// At a place where a block may begin. After another block, closing tags are surplus.
    Start {
        behind_block: bool,
    },
    /// In a line of prose.
    Prose,
    Thoughts,
    /// In code that is no call, at the beginning of a line or not.
    Code {
        fence: Fence,
        at_line: bool,
    },
    Quotation(&'static str),
    /// In a fenced block that may be a call. The block is read in whole lines.
    FencedBlock(Fence),
    TaggedBlock(Tagged),
}

/// The scanner of one message.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    offered: &'a OfferedTools,
    holds_json: bool,
    buffer: String,
    /// The offset in the buffer of the text that isn't decided on.
    at: usize,
    /// The offset up to which the buffer has been searched for a line end.
    searched: usize,
    state: State,
    block: Block,
    is_ambiguous: bool,
    /// Whether the last line was quoted with `>`. The next lines belong to the quotation too, up to
    /// an empty line.
    is_quoted: bool,
    has_blocks: bool,
    has_content: bool,
    segments: Vec<Segment>,
    /// Whether a call tag is at a place where no call may begin.
    pub(crate) has_mark_in_line: bool,
    /// Whether the model wrote a text that looks like a result.
    pub(crate) has_result: bool,
    /// The number of scanned bytes. Tests check that it grows linearly with the text.
    pub(crate) work: usize,
}

/// The outcome of a step.
enum Step {
    Done,
    /// The step needs more text.
    NeedsMore,
}

impl<'a> Scanner<'a> {
    /// Makes the scanner of one message. `holds_json`: whether a fenced block of JSON at the
    /// beginning of the message may be a call.
    pub(crate) fn new(offered: &'a OfferedTools, holds_json: bool) -> Self {
        Self {
            offered,
            holds_json,
            buffer: String::new(),
            at: 0,
            searched: 0,
            state: State::Start { behind_block: false },
            block: Block::new(BlockKind::Line),
            is_ambiguous: false,
            is_quoted: false,
            has_blocks: false,
            has_content: false,
            segments: Vec::new(),
            has_mark_in_line: false,
            has_result: false,
            work: 0,
        }
    }

    /// Takes the next piece of the text, and returns the parts that are decided on.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<Segment> {
        self.buffer.push_str(piece);
        self.run(false)
    }

    /// Takes the end of the text.
    pub(crate) fn finish(&mut self) -> Vec<Segment> {
        let mut segments = self.run(true);
        if matches!(self.state, State::FencedBlock(_) | State::TaggedBlock(_)) {
            self.block.body_end = self.block.raw.len();
            segments.push(Segment::Block(self.take_block(false)));
            self.state = State::Prose;
        }
        segments
    }

    fn run(&mut self, is_end: bool) -> Vec<Segment> {
        while self.at < self.buffer.len() {
            if let Step::NeedsMore = self.step(is_end) {
                break;
            }
        }
        self.buffer.drain(..self.at);
        self.searched -= self.at.min(self.searched);
        self.at = 0;
        std::mem::take(&mut self.segments)
    }

    fn step(&mut self, is_end: bool) -> Step {
        match self.state {
            State::Start { behind_block } => self.start(behind_block, is_end),
            State::Prose => self.prose(is_end),
            State::Thoughts => self.thoughts(is_end),
            State::Code { fence, at_line } => self.code(fence, at_line, is_end),
            State::Quotation(name) => self.quotation(name, is_end),
            State::FencedBlock(fence) => self.fenced_block(fence, is_end),
            State::TaggedBlock(_) => self.tagged_block(is_end),
        }
    }

    fn rest(&self) -> &str {
        &self.buffer[self.at..]
    }

    /// Returns the length of the next line, including its line end. Returns `None` if the line
    /// isn't complete.
    fn line_length(&mut self, is_end: bool) -> Option<usize> {
        // No byte is searched twice.
        let from = self.searched.max(self.at);
        let unsearched = &self.buffer.as_bytes()[from..];
        let newline = unsearched.iter().position(|byte| *byte == b'\n');
        let end = from + newline.unwrap_or(unsearched.len());
        self.work += end - from;
        self.searched = end;

        let length = end - self.at;
        match newline {
            Some(_) => Some(length + 1),
            None if is_end => Some(length),
            None => None,
        }
    }

    /// Moves on by `length` bytes.
    fn advance(&mut self, length: usize) {
        self.at += length;
        self.work += length;
    }

    /// Advances by `length` bytes of prose.
    fn take_text(&mut self, length: usize) {
        let text = &self.buffer[self.at..self.at + length];
        if !text.trim().is_empty() {
            self.has_content = true;
        }
        self.work += length;
        self.at += length;
        if let Some(Segment::Text(last)) = self.segments.last_mut() {
            last.push_str(text);
        } else if length > 0 {
            self.segments.push(Segment::Text(text.to_owned()));
        }
    }

    /// Begins a line, or the text behind a block.
    fn start(&mut self, behind_block: bool, is_end: bool) -> Step {
        let rest = self.rest();
        let unindented = rest.trim_start_matches([' ', '\t']);
        let indentation = rest.len() - unindented.len();
        let is_deep = indentation > 3 || rest[..indentation].contains('\t');
        let first = unindented.chars().next();
        self.work += indentation.min(MAX_MARK) + 1;

        // Text with so much indentation can't be a mark.
        if indentation > MAX_MARK {
            return self.begin_prose(indentation);
        }
        let Some(first) = first else {
            return if is_end { self.begin_prose(indentation) } else { Step::NeedsMore };
        };

        let is_code = is_deep && !behind_block;
        match first {
            '\n' => self.is_quoted = false,
            '>' if !is_code => self.is_quoted = true,
            _ => {}
        }
        match first {
            '\n' => {
                self.take_text(indentation + 1);
                self.state = State::Start { behind_block: false };
                Step::Done
            }
            _ if is_code => self.begin_prose(indentation),
            '`' | '~' if !behind_block => self.start_fence(indentation, is_end),
            '<' => self.start_tag(indentation, behind_block, is_end),
            _ if first.is_ascii_alphanumeric() && !behind_block => {
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

    fn start_fence(&mut self, indentation: usize, is_end: bool) -> Step {
        let length = match self.line_length(is_end) {
            Some(length) => length,
            None if self.rest().len() < MAX_MARK => return Step::NeedsMore,
            None => self.rest().len(),
        };
        let line = &self.rest()[..length];
        if is_longer(line, MAX_MARK) {
            // The first line of a call is never so long, so this block isn't a call.
            let marks = &line.as_bytes()[indentation..];
            let fence_length =
                marks.iter().take(MAX_MARK).take_while(|byte| **byte == marks[0]).count();
            if fence_length < 3 {
                return self.begin_prose(indentation);
            }
            let fence = Fence { mark: char::from(marks[0]), length: fence_length };
            self.state = State::Code { fence, at_line: false };
            return Step::Done;
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
                self.state = State::Code { fence, at_line: true };
            }
        }
        Step::Done
    }

    /// Returns the kind of a fenced block. `info`: the text after the fence. Returns `None` if the
    /// block isn't a call.
    fn block_kind(&self, info: &str) -> Option<BlockKind> {
        let names_tool =
            info.strip_prefix("tool").is_some_and(|name| name.starts_with([' ', '\t']));
        if info == "tool_call" || names_tool || self.offered.fenced(info).is_some() {
            return Some(BlockKind::Fence(info.to_owned()));
        }
        let is_first = !self.has_content && !self.has_blocks;
        if self.holds_json && is_first && info == "json" {
            return Some(BlockKind::JsonFence);
        }
        None
    }

    fn start_tag(&mut self, indentation: usize, behind_block: bool, is_end: bool) -> Step {
        let text = &self.rest()[indentation..];
        let (tag, length) = match read_tag(text) {
            Ok(tag) => tag,
            Err(true) if !is_end && may_be_tag(text) => return Step::NeedsMore,
            Err(_) => return self.begin_prose(indentation),
        };
        let total = indentation + length;
        match tag {
            Tag::Open(family, attributes) => {
                let tagged = Tagged::new(family, attributes);
                self.begin_block(BlockKind::Tag(family), total);
                self.state = State::TaggedBlock(tagged);
            }
            Tag::Close(_) if behind_block => {
                let tag = self.rest()[..total].to_owned();
                self.segments.push(Segment::LeftOver(tag));
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
            Tag::EndOfThoughts if indentation == 0 || behind_block => {
                self.prose(is_end);
                self.state = State::Start { behind_block: true };
            }
            Tag::EndOfThoughts | Tag::Close(_) | Tag::Other(_) => {
                return self.begin_prose(indentation);
            }
        }
        Step::Done
    }

    /// Begins a call `tool/argument>value` or `tool/{…}`, if no other form was seen before.
    fn start_line(&mut self, indentation: usize, is_end: bool) -> Step {
        if self.has_blocks || self.is_quoted || !self.offered.has_lines() {
            return self.begin_prose(indentation);
        }
        let text = &self.rest()[indentation..];
        let name_length = text
            .bytes()
            .take(65)
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte))
            .count();
        let (name, after_name) = text.split_at(name_length);
        if after_name.is_empty() && !is_end && self.offered.may_begin(name) {
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
        if is_longer(line, MAX_LINE) || read_line(line.trim(), self.offered).is_none() {
            return self.begin_prose(indentation);
        }
        self.begin_block(BlockKind::Line, length);
        self.block.body_end = self.block.raw.len();
        let block = self.take_block(true);
        self.segments.push(Segment::Block(block));
        // More calls in this form may follow. Only a block in another form would prevent them.
        self.has_blocks = false;
        self.state = State::Start { behind_block: false };
        Step::Done
    }

    fn prose(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| b"\n<".contains(byte)).unwrap_or(rest.len());
        if length > 0 {
            self.take_text(length);
            return Step::Done;
        }
        if rest[0] == b'\n' {
            self.take_text(1);
            self.state = State::Start { behind_block: false };
            return Step::Done;
        }
        match read_tag(self.rest()) {
            // The rest of the line is prose, because the line may be a quotation.
            Ok((Tag::EndOfThoughts, length)) => {
                self.at += length;
                self.segments.push(Segment::EndOfThoughts);
                self.has_content = false;
                self.has_blocks = false;
                self.has_mark_in_line = false;
                self.has_result = false;
            }
            Ok((Tag::Open(..), length)) => {
                self.has_mark_in_line = true;
                self.take_text(length);
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_text(1),
        }
        Step::Done
    }

    fn thoughts(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take_thoughts(length);
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::EndOfThoughts, length)) => {
                self.advance(length);
                self.state = State::Start { behind_block: true };
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_thoughts(1),
        }
        Step::Done
    }

    /// Advances by `length` bytes of thoughts.
    fn take_thoughts(&mut self, length: usize) {
        let thoughts = &self.buffer[self.at..self.at + length];
        self.work += length;
        self.at += length;
        if let Some(Segment::Thoughts(last)) = self.segments.last_mut() {
            last.push_str(thoughts);
        } else {
            self.segments.push(Segment::Thoughts(thoughts.to_owned()));
        }
    }

    fn code(&mut self, fence: Fence, at_line: bool, is_end: bool) -> Step {
        let first = self.rest().trim_start_matches(' ').chars().next();
        let may_be_fence = at_line && first.is_none_or(|first| first == fence.mark);
        let Some(length) = self.line_length(is_end) else {
            // A line that may end the block must be complete. Other lines are shown immediately.
            if may_be_fence && self.rest().len() < MAX_MARK {
                return Step::NeedsMore;
            }
            self.take_text(self.rest().len());
            self.state = State::Code { fence, at_line: false };
            return Step::Done;
        };

        let line = &self.rest()[..length];
        let is_whole_line = at_line && !is_longer(line, MAX_MARK);
        let role = if is_whole_line { fence.role(line) } else { Inside::Content };
        self.take_text(length);
        self.state = State::Code { fence, at_line: true };
        match role {
            Inside::End => self.state = State::Start { behind_block: false },
            Inside::Opening => self.is_ambiguous = true,
            Inside::Content => {}
        }
        Step::Done
    }

    fn quotation(&mut self, name: &'static str, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take_text(length);
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::Other(inner), length)) => {
                let tag_name = inner.split_whitespace().next().unwrap_or_default();
                let closes = self.rest().starts_with("</") && tag_name.eq_ignore_ascii_case(name);
                self.take_text(length);
                if closes {
                    self.state = State::Start { behind_block: false };
                }
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.take_text(1),
        }
        Step::Done
    }

    fn begin_block(&mut self, kind: BlockKind, length: usize) {
        self.block = Block::new(kind);
        self.block.raw = self.rest()[..length].to_owned();
        self.block.body = length;
        self.block.body_end = length;
        self.block.is_quoted = self.is_quoted;
        self.advance(length);
    }

    /// Advances by `length` bytes of the block.
    fn take(&mut self, length: usize) {
        self.block.raw.push_str(&self.buffer[self.at..self.at + length]);
        self.advance(length);
    }

    /// Ends the block, and returns it.
    fn take_block(&mut self, is_closed: bool) -> Block {
        self.has_blocks = true;
        self.has_content = true;
        let mut block = std::mem::replace(&mut self.block, Block::new(BlockKind::Line));
        block.is_closed = is_closed;
        block.is_ambiguous = self.is_ambiguous;
        block
    }

    fn fenced_block(&mut self, fence: Fence, is_end: bool) -> Step {
        let Some(length) = self.line_length(is_end) else { return Step::NeedsMore };
        let role = fence.role(&self.rest()[..length]);
        self.take(length);
        if let Inside::End = role {
            let block = self.take_block(true);
            self.segments.push(Segment::Block(block));
            self.state = State::Start { behind_block: false };
            return Step::Done;
        }
        if let Inside::Opening = role {
            self.is_ambiguous = true;
        }
        self.block.body_end = self.block.raw.len();
        Step::Done
    }
}

impl Block {
    fn new(kind: BlockKind) -> Self {
        Self {
            kind,
            raw: String::new(),
            body: 0,
            body_end: 0,
            is_closed: false,
            is_ambiguous: false,
            is_quoted: false,
            is_too_deep: false,
        }
    }
}
