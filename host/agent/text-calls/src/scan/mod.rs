//! Divides a model's text into prose, thoughts and blocks that may be calls, in one pass, in any
//! pieces in which it arrives.
//!
//! A block begins only at the beginning of a line, indented by at most three spaces, or right
//! behind another block. Inside a code block of another language, a quotation or thoughts, nothing
//! begins. No byte is looked at again after it was decided on, but for a short mark that isn't
//! complete yet.

mod tagged;

use super::block::{Block, BlockKind};
use super::marks::{Fence, Inside, MAX_MARK, Tag, is_longer, may_be_tag, read_tag};
use super::offered_tools::OfferedTools;
use tagged::Tagged;

/// Bytes of the longest call on one line.
const MAX_LINE: usize = 16 * 1024;

/// A part of a model's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Prose, and code that is no call.
    Text(String),
    /// Thoughts.
    Thoughts(String),
    /// An end of thoughts without a beginning: all of the text before it was thoughts.
    EndOfThoughts,
    /// A block that may be a call.
    Block(Block),
    /// Closing tags that are left over behind a block.
    LeftOver(String),
}

/// The place of the scanner in the text.
#[derive(Debug)]
enum State {
    /// At a place where a block may begin. Behind another block, closing tags are left over.
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
    /// In a block. It takes whole lines.
    FencedBlock(Fence),
    TaggedBlock(Tagged),
}

/// The scanner of one message.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    offered: &'a OfferedTools,
    holds_json: bool,
    buffer: String,
    /// How much of the buffer is decided on.
    at: usize,
    /// How far the buffer was searched for the end of a line.
    searched: usize,
    state: State,
    block: Block,
    is_ambiguous: bool,
    /// Whether the last line was quoted with `>`. Lines that follow belong to the quotation until
    /// one is empty.
    is_quoted: bool,
    has_blocks: bool,
    has_content: bool,
    segments: Vec<Segment>,
    /// Whether a tag of calls is at a place where no call may begin.
    pub(crate) has_mark_in_line: bool,
    /// Whether the model wrote a text that looks like a result.
    pub(crate) has_result: bool,
    /// Bytes that were looked at: tests see that it grows with the text and no faster.
    pub(crate) work: usize,
}

/// The outcome of a step.
enum Step {
    Done,
    /// The step can't decide before it sees more.
    NeedsMore,
}

impl<'a> Scanner<'a> {
    /// `holds_json`: a fenced block of JSON at the beginning of the message may be a call.
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

    /// The next line, with its end. `None`: the line isn't complete yet.
    fn line(&mut self, is_end: bool) -> Option<usize> {
        let from = self.searched.max(self.at);
        let found = self.buffer.as_bytes()[from..].iter().position(|byte| *byte == b'\n');
        self.work += found.unwrap_or(self.buffer.len() - from);
        self.searched = found.map_or(self.buffer.len(), |found| from + found);
        match found {
            Some(found) => Some(from + found + 1 - self.at),
            None => is_end.then(|| self.buffer.len() - self.at),
        }
    }

    /// Moves on by `length` bytes, which are prose.
    fn text(&mut self, length: usize) {
        let text = &self.buffer[self.at..self.at + length];
        self.has_content |= !text.trim().is_empty();
        self.work += length;
        self.at += length;
        if let Some(Segment::Text(last)) = self.segments.last_mut() {
            last.push_str(text);
        } else if length > 0 {
            self.segments.push(Segment::Text(text.to_owned()));
        }
    }

    fn start(&mut self, behind_block: bool, is_end: bool) -> Step {
        let rest = self.rest();
        let inner = rest.trim_start_matches([' ', '\t']);
        let indentation = rest.len() - inner.len();
        self.work += indentation.min(MAX_MARK) + 1;
        // A text this far to the right is no mark, however much of it has arrived.
        if indentation > MAX_MARK {
            return self.begin_prose(indentation);
        }
        let Some(first) = self.buffer[self.at + indentation..].chars().next() else {
            return if is_end { self.begin_prose(indentation) } else { Step::NeedsMore };
        };
        let is_code =
            !behind_block && (indentation > 3 || self.rest()[..indentation].contains('\t'));
        self.is_quoted = match first {
            '>' => !is_code || self.is_quoted,
            '\n' => false,
            _ => self.is_quoted,
        };
        match first {
            '\n' => {
                self.text(indentation + 1);
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
        self.text(indentation);
        self.state = State::Prose;
        Step::Done
    }

    fn start_fence(&mut self, indentation: usize, is_end: bool) -> Step {
        let length = self.line(is_end);
        if length.is_none() && self.rest().len() < MAX_MARK {
            return Step::NeedsMore;
        }
        let line = &self.buffer[self.at..self.at + length.unwrap_or(self.rest().len())];
        if is_longer(line, MAX_MARK) {
            // The first line of a call is shorter. Whatever this is, nothing in it is a call.
            let head = &line.as_bytes()[indentation..];
            let run = head.iter().take(MAX_MARK).take_while(|byte| **byte == head[0]).count();
            if run < 3 {
                return self.begin_prose(indentation);
            }
            let fence = Fence { mark: char::from(head[0]), length: run };
            self.state = State::Code { fence, at_line: false };
            return Step::Done;
        }
        let Some((fence, info)) = Fence::read(line) else {
            return self.begin_prose(indentation);
        };
        let length = line.len();
        let is_call = info == "tool_call"
            || info.strip_prefix("tool").is_some_and(|name| name.starts_with([' ', '\t']))
            || self.offered.fenced(info).is_some();
        let is_first = !self.has_content && !self.has_blocks;
        let kind = if is_call {
            BlockKind::Fence(info.to_owned())
        } else if self.holds_json && is_first && info == "json" {
            BlockKind::JsonFence
        } else {
            self.text(length);
            self.state = State::Code { fence, at_line: true };
            return Step::Done;
        };
        self.begin_block(kind, length);
        self.state = State::FencedBlock(fence);
        Step::Done
    }

    fn start_tag(&mut self, indentation: usize, behind_block: bool, is_end: bool) -> Step {
        let (tag, length) = match read_tag(&self.rest()[indentation..]) {
            Ok(found) => found,
            Err(true) if !is_end && may_be_tag(&self.rest()[indentation..]) => {
                return Step::NeedsMore;
            }
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
                let tag = self.buffer[self.at..self.at + total].to_owned();
                self.segments.push(Segment::LeftOver(tag));
                self.at += total;
                self.work += total;
            }
            Tag::Thoughts => {
                self.at += total;
                self.work += total;
                self.state = State::Thoughts;
            }
            Tag::Quotation(name) => {
                self.has_result |= name == "tool_result";
                self.text(total);
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

    /// `tool/argument>value` or `tool/{…}`, once no other form was seen.
    fn start_line(&mut self, indentation: usize, is_end: bool) -> Step {
        let rest = &self.rest()[indentation..];
        let length = rest
            .bytes()
            .take(65)
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte))
            .count();
        let (name, after) = rest.split_at(length);
        if self.has_blocks || self.is_quoted || !self.offered.has_lines() {
            return self.begin_prose(indentation);
        }
        if after.is_empty() && !is_end && self.offered.may_begin(name) {
            return Step::NeedsMore;
        }
        if !after.starts_with('/') || self.offered.named(name).is_none() {
            return self.begin_prose(indentation);
        }
        let Some(length) = self.line(is_end) else {
            if self.rest().len() < MAX_LINE {
                return Step::NeedsMore;
            }
            return self.begin_prose(indentation);
        };
        let line = &self.buffer[self.at..self.at + length];
        if is_longer(line, MAX_LINE) || super::read::read_line(line.trim(), self.offered).is_none()
        {
            return self.begin_prose(indentation);
        }
        self.begin_block(BlockKind::Line, length);
        self.block.body_end = self.block.raw.len();
        let block = self.take_block(true);
        self.segments.push(Segment::Block(block));
        // Other lines may follow: only other forms end this one.
        self.has_blocks = false;
        self.state = State::Start { behind_block: false };
        Step::Done
    }

    fn prose(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let Some(next) = rest.iter().position(|byte| b"\n<".contains(byte)) else {
            self.text(rest.len());
            return Step::Done;
        };
        if next > 0 {
            self.text(next);
            return Step::Done;
        }
        if rest[0] == b'\n' {
            self.text(1);
            self.state = State::Start { behind_block: false };
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::EndOfThoughts, length)) => {
                self.at += length;
                self.segments.push(Segment::EndOfThoughts);
                (self.has_content, self.has_blocks) = (false, false);
                (self.has_mark_in_line, self.has_result) = (false, false);
                // The rest of the line may be a quotation, which isn't the model's own line.
            }
            Ok((Tag::Open(..), length)) => {
                self.has_mark_in_line = true;
                self.text(length);
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.text(1),
        }
        Step::Done
    }

    fn thoughts(&mut self, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let mut length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length == 0 {
            match read_tag(self.rest()) {
                Ok((Tag::EndOfThoughts, length)) => {
                    self.at += length;
                    self.work += length;
                    self.state = State::Start { behind_block: true };
                    return Step::Done;
                }
                Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
                _ => length = 1,
            }
        }
        let thoughts = &self.buffer[self.at..self.at + length];
        self.work += length;
        self.at += length;
        if let Some(Segment::Thoughts(last)) = self.segments.last_mut() {
            last.push_str(thoughts);
        } else {
            self.segments.push(Segment::Thoughts(thoughts.to_owned()));
        }
        Step::Done
    }

    fn code(&mut self, fence: Fence, at_line: bool, is_end: bool) -> Step {
        let first = self.rest().trim_start_matches(' ').chars().next();
        let may_be_fence = at_line && first.is_none_or(|first| first == fence.mark);
        let Some(length) = self.line(is_end) else {
            // A line that may end the block is decided on as a whole; others are shown at once.
            if may_be_fence && self.rest().len() < MAX_MARK {
                return Step::NeedsMore;
            }
            let length = self.rest().len();
            self.text(length);
            self.state = State::Code { fence, at_line: false };
            return Step::Done;
        };
        let line = &self.buffer[self.at..self.at + length];
        let inside =
            if at_line && !is_longer(line, MAX_MARK) { fence.line(line) } else { Inside::Content };
        self.text(length);
        self.is_ambiguous |= matches!(inside, Inside::Opening);
        self.state = match inside {
            Inside::End => State::Start { behind_block: false },
            Inside::Opening | Inside::Content => State::Code { fence, at_line: true },
        };
        Step::Done
    }

    fn quotation(&mut self, name: &'static str, is_end: bool) -> Step {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.text(length);
            return Step::Done;
        }
        match read_tag(self.rest()) {
            Ok((Tag::Other(inner), length)) => {
                let closes = self.rest().starts_with("</")
                    && inner
                        .split_whitespace()
                        .next()
                        .is_some_and(|tag| tag.eq_ignore_ascii_case(name));
                self.text(length);
                if closes {
                    self.state = State::Start { behind_block: false };
                }
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => return Step::NeedsMore,
            _ => self.text(1),
        }
        Step::Done
    }

    fn begin_block(&mut self, kind: BlockKind, length: usize) {
        let raw = self.buffer[self.at..self.at + length].to_owned();
        let body = raw.len();
        let is_quoted = self.is_quoted;
        self.block = Block { body, body_end: body, raw, is_quoted, ..Block::new(kind) };
        self.at += length;
        self.work += length;
    }

    /// Moves on by `length` bytes, which belong to the block.
    fn take(&mut self, length: usize) {
        self.block.raw.push_str(&self.buffer[self.at..self.at + length]);
        self.at += length;
        self.work += length;
    }

    fn take_block(&mut self, is_closed: bool) -> Block {
        self.has_blocks = true;
        self.has_content = true;
        let block = std::mem::replace(&mut self.block, Block::new(BlockKind::Line));
        Block { is_closed, is_ambiguous: block.is_ambiguous || self.is_ambiguous, ..block }
    }

    fn fenced_block(&mut self, fence: Fence, is_end: bool) -> Step {
        let Some(length) = self.line(is_end) else { return Step::NeedsMore };
        let inside = fence.line(&self.buffer[self.at..self.at + length]);
        self.take(length);
        match inside {
            Inside::End => {
                let block = self.take_block(true);
                self.segments.push(Segment::Block(block));
                self.state = State::Start { behind_block: false };
            }
            Inside::Opening => self.is_ambiguous = true,
            Inside::Content => {}
        }
        if !matches!(inside, Inside::End) {
            self.block.body_end = self.block.raw.len();
        }
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
