//! Finds the end of a block that starts with a tag.

use super::super::marks::{NoTag, Tag, TagFamily, may_be_tag, read_tag};
use super::{Scanner, Segment, State, Step};

const MAX_NESTED: usize = 4;

#[derive(Debug)]
pub(super) struct Tagged {
    open: Vec<TagFamily>,
    /// Whether the innermost tag contains a call.
    has_call: bool,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// Before a value or a tag.
    Between,
    Json {
        depth: usize,
        in_string: bool,
        escaped: bool,
    },
    /// Any text, until the innermost tag is closed.
    Content,
    /// In a block that can't be read.
    Unreadable,
}

impl Scanner<'_> {
    /// Reads a piece of a tagged block, depending on the block's mode.
    pub(super) fn read_tagged_block(&mut self, is_end: bool) -> Step {
        let State::TaggedBlock(mut tagged) = std::mem::replace(&mut self.state, State::Prose)
        else {
            return Step::Done;
        };
        let progress = match tagged.mode {
            Mode::Between => self.read_between_values(&mut tagged, is_end),
            Mode::Json { .. } => self.read_json(&mut tagged),
            Mode::Content => self.read_content(&mut tagged, is_end),
            Mode::Unreadable => {
                self.take_into_block(self.rest().len());
                Progress::Continue
            }
        };
        match progress {
            Progress::End => {
                self.block.body_end = self.block.raw.len();
                let is_closed = true;
                let block = self.take_block(is_closed);
                self.segments.push(Segment::Block(block));
                self.state = State::Start { after_block: true };
                Step::Done
            }
            Progress::NeedsMore => {
                self.state = State::TaggedBlock(tagged);
                Step::NeedsMore
            }
            Progress::Continue => {
                self.state = State::TaggedBlock(tagged);
                Step::Done
            }
        }
    }

    /// Reads white space, a tag, or the start of a JSON value.
    fn read_between_values(&mut self, tagged: &mut Tagged, is_end: bool) -> Progress {
        let rest = self.rest();
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            self.take_into_block(space);
            return Progress::Continue;
        }
        if rest.starts_with(['{', '[']) {
            tagged.mode = Mode::Json { depth: 0, in_string: false, escaped: false };
            return Progress::Continue;
        }
        match read_tag(rest) {
            Err(NoTag::Incomplete) if !is_end => Progress::NeedsMore,
            Ok((Tag::Open(family @ (TagFamily::Call | TagFamily::Invoke), attributes), length)) => {
                let mode = Tagged::first_mode(family, attributes);
                self.take_into_block(length);
                tagged.open_tag(family, mode);
                self.block.is_too_deep = matches!(tagged.mode, Mode::Unreadable);
                Progress::Continue
            }
            Ok((Tag::Close(family), length)) if tagged.open.contains(&family) => {
                self.take_into_block(length);
                tagged.close_tag(family)
            }
            // Other text follows, so the call is complete although its tag isn't closed.
            _ if tagged.has_call => Progress::End,
            _ => {
                tagged.mode = Mode::Content;
                Progress::Continue
            }
        }
    }

    /// Reads a JSON value up to its end, or up to the end of the buffer. To find the end, only
    /// counts the brackets outside of strings, and doesn't parse the value.
    fn read_json(&mut self, tagged: &mut Tagged) -> Progress {
        let Mode::Json { mut depth, mut in_string, mut escaped } = tagged.mode else {
            return Progress::Continue;
        };
        let mut length = 0;
        let mut next_mode = None;
        for byte in self.rest().bytes() {
            length += 1;
            match byte {
                // A JSON string contains no line end, so this value isn't JSON.
                b'\n' if in_string => {
                    next_mode = Some(Mode::Content);
                    break;
                }
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        tagged.has_call = true;
                        next_mode = Some(Mode::Between);
                        break;
                    }
                }
                _ => {}
            }
        }
        self.take_into_block(length);
        tagged.mode = next_mode.unwrap_or(Mode::Json { depth, in_string, escaped });
        Progress::Continue
    }

    /// Reads text up to a tag, or reads the tag. The closing tag of the innermost tag ends the
    /// text.
    fn read_content(&mut self, tagged: &mut Tagged, is_end: bool) -> Progress {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take_into_block(length);
            return Progress::Continue;
        }
        match read_tag(self.rest()) {
            Ok((Tag::Close(family), length)) if tagged.open.last() == Some(&family) => {
                self.take_into_block(length);
                tagged.close_tag(family)
            }
            Err(NoTag::Incomplete) if !is_end && may_be_tag(self.rest()) => Progress::NeedsMore,
            _ => {
                self.take_into_block("<".len());
                Progress::Continue
            }
        }
    }
}

enum Progress {
    Continue,
    NeedsMore,
    End,
}

impl Tagged {
    pub(super) fn new(family: TagFamily, attributes: &str) -> Self {
        Self { open: vec![family], has_call: false, mode: Self::first_mode(family, attributes) }
    }

    fn first_mode(family: TagFamily, attributes: &str) -> Mode {
        match family {
            TagFamily::Call => Mode::Between,
            TagFamily::Invoke if attributes.is_empty() => Mode::Between,
            TagFamily::Invoke | TagFamily::Tools => Mode::Content,
        }
    }

    /// Opens a tag. A block with too many nested tags is refused.
    fn open_tag(&mut self, family: TagFamily, mode: Mode) {
        if self.has_call {
            // The innermost tag isn't closed, but its call is complete, so the new tag follows it.
            self.open.pop();
        }
        self.open.push(family);
        self.has_call = false;
        self.mode = if self.open.len() > MAX_NESTED { Mode::Unreadable } else { mode };
    }

    fn close_tag(&mut self, family: TagFamily) -> Progress {
        let innermost = self.open.iter().rposition(|open| *open == family);
        self.open.truncate(innermost.unwrap_or(0));
        self.has_call = false;
        self.mode = Mode::Between;
        if self.open.is_empty() { Progress::End } else { Progress::Continue }
    }
}
