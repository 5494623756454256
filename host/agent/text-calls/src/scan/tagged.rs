//! Finds the end of a block that begins with a tag.

use super::super::marks::{Family, Tag, may_be_tag, read_tag};
use super::{Scanner, Segment, State, Step};

/// The most nested tags.
const MAX_NESTED: usize = 4;

/// The place of the scanner in a block of tags.
#[derive(Debug)]
pub(super) struct Tagged {
    open: Vec<Family>,
    /// Whether the innermost tag already has a call.
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
    /// Anything until the innermost tag is closed.
    Other,
    /// In a block that can't be read, up to its end.
    Lost,
}

impl Scanner<'_> {
    /// Takes the next part of a block of tags.
    pub(super) fn tagged_block(&mut self, is_end: bool) -> Step {
        let State::TaggedBlock(mut tagged) = std::mem::replace(&mut self.state, State::Prose)
        else {
            return Step::Done;
        };
        let outcome = match tagged.mode {
            Mode::Between => self.between_values(&mut tagged, is_end),
            Mode::Json { .. } => self.json(&mut tagged),
            Mode::Other => self.other(&mut tagged, is_end),
            Mode::Lost => {
                self.take(self.rest().len());
                Within::Inside
            }
        };
        if let Within::End = outcome {
            self.block.body_end = self.block.raw.len();
            let block = self.take_block(true);
            self.segments.push(Segment::Block(block));
            self.state = State::Start { behind_block: true };
            return Step::Done;
        }
        self.state = State::TaggedBlock(tagged);
        if let Within::NeedsMore = outcome { Step::NeedsMore } else { Step::Done }
    }

    fn between_values(&mut self, tagged: &mut Tagged, is_end: bool) -> Within {
        let rest = self.rest();
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            self.take(space);
            return Within::Inside;
        }
        if rest.starts_with(['{', '[']) {
            tagged.mode = Mode::Json { depth: 0, in_string: false, escaped: false };
            return Within::Inside;
        }
        match read_tag(rest) {
            Err(true) if !is_end => Within::NeedsMore,
            Ok((Tag::Open(family @ (Family::Call | Family::Invoke), attributes), length)) => {
                let mode = Tagged::first_mode(family, attributes);
                self.take(length);
                tagged.open_tag(family, mode);
                self.block.is_too_deep = matches!(tagged.mode, Mode::Lost);
                Within::Inside
            }
            Ok((Tag::Close(family), length)) if tagged.open.contains(&family) => {
                self.take(length);
                tagged.close_tag(family)
            }
            // The call is complete, and its tag isn't closed.
            _ if tagged.has_call => Within::End,
            _ => {
                tagged.mode = Mode::Other;
                Within::Inside
            }
        }
    }

    /// Finds the end of a JSON value. The value is parsed later.
    fn json(&mut self, tagged: &mut Tagged) -> Within {
        let Mode::Json { mut depth, mut in_string, mut escaped } = tagged.mode else {
            return Within::Inside;
        };
        let mut length = 0;
        let mut next_mode = None;
        for byte in self.rest().bytes() {
            length += 1;
            match byte {
                // A JSON string has no line end.
                b'\n' if in_string => {
                    next_mode = Some(Mode::Other);
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
        self.take(length);
        tagged.mode = next_mode.unwrap_or(Mode::Json { depth, in_string, escaped });
        Within::Inside
    }

    /// Looks for the closing tag of the innermost tag.
    fn other(&mut self, tagged: &mut Tagged, is_end: bool) -> Within {
        let rest = self.rest().as_bytes();
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if length > 0 {
            self.take(length);
            return Within::Inside;
        }
        match read_tag(self.rest()) {
            Ok((Tag::Close(family), length)) if tagged.open.last() == Some(&family) => {
                self.take(length);
                tagged.close_tag(family)
            }
            Err(true) if !is_end && may_be_tag(self.rest()) => Within::NeedsMore,
            _ => {
                self.take(1);
                Within::Inside
            }
        }
    }
}

/// The outcome of a step inside a block of tags.
enum Within {
    Inside,
    NeedsMore,
    End,
}

impl Tagged {
    pub(super) fn new(family: Family, attributes: &str) -> Self {
        Self { open: vec![family], has_call: false, mode: Self::first_mode(family, attributes) }
    }

    /// Returns the mode at the beginning of a tag's body.
    fn first_mode(family: Family, attributes: &str) -> Mode {
        match family {
            Family::Call => Mode::Between,
            Family::Invoke if attributes.is_empty() => Mode::Between,
            Family::Invoke | Family::Tools => Mode::Other,
        }
    }

    /// Opens a tag. A block whose tags are nested too deeply can't be read.
    fn open_tag(&mut self, family: Family, mode: Mode) {
        if self.has_call {
            // The last tag wasn't closed.
            self.open.pop();
        }
        self.open.push(family);
        self.has_call = false;
        self.mode = if self.open.len() > MAX_NESTED { Mode::Lost } else { mode };
    }

    /// Closes the innermost tag of this family, and the tags inside it.
    fn close_tag(&mut self, family: Family) -> Within {
        let innermost = self.open.iter().rposition(|open| *open == family);
        self.open.truncate(innermost.unwrap_or(0));
        self.has_call = false;
        self.mode = Mode::Between;
        if self.open.is_empty() { Within::End } else { Within::Inside }
    }
}
