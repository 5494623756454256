//! Finds the end of a block that begins with a tag.

use super::super::marks::{Family, Tag, may_be_tag, read_tag};
use super::{Scanner, Segment, State, Step};

/// Tags inside one another.
const MAX_NESTED: usize = 4;

/// The place of the scanner in a block of tags.
#[derive(Debug)]
pub(super) struct Tagged {
    open: Vec<Family>,
    /// Whether the innermost tag has had its call.
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
    /// Anything until the end: this block can't be read.
    Lost,
}

impl Scanner<'_> {
    pub(super) fn tagged_block(&mut self, is_end: bool) -> Step {
        let State::TaggedBlock(mut tagged) = std::mem::replace(&mut self.state, State::Prose)
        else {
            return Step::Done;
        };
        let outcome = match tagged.mode {
            Mode::Between => self.between(&mut tagged, is_end),
            Mode::Json { .. } => self.json(&mut tagged),
            Mode::Other => self.other(&mut tagged, is_end),
            Mode::Lost => {
                self.take(self.buffer.len() - self.at);
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

    fn between(&mut self, tagged: &mut Tagged, is_end: bool) -> Within {
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
        let (tag, length) = match rest.starts_with('<').then(|| read_tag(rest)) {
            Some(Err(true)) if !is_end => return Within::NeedsMore,
            Some(Ok((Tag::Open(family @ (Family::Call | Family::Invoke), attributes), length))) => {
                (Ok((family, Tagged::mode(family, attributes))), length)
            }
            Some(Ok((Tag::Close(family), length))) if tagged.open.contains(&family) => {
                (Err(family), length)
            }
            // A complete call whose tag isn't closed.
            _ if tagged.has_call => return Within::End,
            _ => {
                tagged.mode = Mode::Other;
                return Within::Inside;
            }
        };
        self.take(length);
        let (family, mode) = match tag {
            Ok(opened) => opened,
            Err(family) => return tagged.close(family),
        };
        if tagged.has_call {
            // The last tag wasn't closed.
            tagged.open.pop();
        }
        tagged.open.push(family);
        tagged.has_call = false;
        self.block.is_too_deep = tagged.open.len() > MAX_NESTED;
        tagged.mode = if self.block.is_too_deep { Mode::Lost } else { mode };
        Within::Inside
    }

    /// Finds the end of a JSON value, which is checked later.
    fn json(&mut self, tagged: &mut Tagged) -> Within {
        let Mode::Json { mut depth, mut in_string, mut escaped } = tagged.mode else {
            return Within::Inside;
        };
        let mut length = 0;
        let mut mode = None;
        for byte in self.rest().bytes() {
            length += 1;
            match byte {
                b'\n' if in_string => mode = Some(Mode::Other),
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        tagged.has_call = true;
                        mode = Some(Mode::Between);
                    }
                }
                _ => {}
            }
            if mode.is_some() {
                break;
            }
        }
        self.take(length);
        tagged.mode = mode.unwrap_or(Mode::Json { depth, in_string, escaped });
        Within::Inside
    }

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
                tagged.close(family)
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
        Self { open: vec![family], has_call: false, mode: Self::mode(family, attributes) }
    }

    /// How the body of a tag begins.
    fn mode(family: Family, attributes: &str) -> Mode {
        match family {
            Family::Call => Mode::Between,
            Family::Invoke if attributes.is_empty() => Mode::Between,
            Family::Invoke | Family::Tools => Mode::Other,
        }
    }

    /// Closes the innermost tag of this family, and those inside it.
    fn close(&mut self, family: Family) -> Within {
        while self.open.pop().is_some_and(|open| open != family) {}
        self.has_call = false;
        self.mode = Mode::Between;
        if self.open.is_empty() { Within::End } else { Within::Inside }
    }
}
