//! Detects the tags with which models write calls, and the lines that begin and end fenced blocks.

/// Bytes of the longest tag, and of the first line of a fenced block.
pub(super) const MAX_MARK: usize = 300;

/// A group of tags with the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Call,
    Invoke,
    Tools,
}

/// A tag at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// An opening tag, with the text after the tag's name.
    Open(Family, &'a str),
    Close(Family),
    Thoughts,
    EndOfThoughts,
    /// The name of a quotation.
    Quotation(&'static str),
    Other(&'a str),
}

pub(super) const CALL_TAGS: [&str; 6] =
    ["tool_call", "tool_calls", "toolcall", "tool-call", "minimax:tool_call", "minimax:toolcall"];

const QUOTATIONS: [&str; 4] = ["tool_result", "external-data", "blockquote", "pre"];

/// Reads the tag at the beginning of a text. Returns the tag and its length, `Err(true)` if the tag
/// isn't complete yet, and `Err(false)` if there is no tag.
pub(super) fn read_tag(text: &str) -> Result<(Tag<'_>, usize), bool> {
    let Some(after_bracket) = text.strip_prefix('<') else { return Err(false) };
    let mut bytes = after_bracket.bytes().take(MAX_MARK - 1);
    let Some(length) = bytes.position(|byte| b">\n<".contains(&byte)) else {
        return Err(text.len() < MAX_MARK);
    };
    if after_bracket.as_bytes()[length] != b'>' {
        return Err(false);
    }

    let inner = after_bracket[..length].trim_ascii_end();
    let tag = match inner.strip_prefix('/') {
        Some(inner) => closing_tag(inner.trim_ascii_start()),
        None => opening_tag(inner),
    };
    // The brackets are part of the tag.
    Ok((tag, length + 2))
}

/// Returns the opening tag. `inner`: the text between the brackets.
fn opening_tag(inner: &str) -> Tag<'_> {
    let (name, attributes) = inner.split_at(name_length(inner));
    if let Some(family) = family_of(name) {
        return Tag::Open(family, attributes.trim());
    }
    if is_thoughts(name) {
        return Tag::Thoughts;
    }
    match QUOTATIONS.iter().find(|tag| name.eq_ignore_ascii_case(tag)) {
        Some(tag) => Tag::Quotation(tag),
        None => Tag::Other(inner),
    }
}

/// Returns the closing tag. `inner`: the text after the slash.
fn closing_tag(inner: &str) -> Tag<'_> {
    let name = &inner[..name_length(inner)];
    match family_of(name) {
        Some(family) => Tag::Close(family),
        None if is_thoughts(name) => Tag::EndOfThoughts,
        None => Tag::Other(inner),
    }
}

/// Returns the length of the name that a tag begins with.
fn name_length(inner: &str) -> usize {
    inner.find(|c: char| c.is_ascii_whitespace()).unwrap_or(inner.len())
}

/// Returns the family of the tags with this name, or `None` if such tags aren't used for calls.
fn family_of(name: &str) -> Option<Family> {
    if CALL_TAGS.iter().any(|tag| name.eq_ignore_ascii_case(tag)) {
        Some(Family::Call)
    } else if name.eq_ignore_ascii_case("invoke") {
        Some(Family::Invoke)
    } else if name.eq_ignore_ascii_case("tools") {
        Some(Family::Tools)
    } else {
        None
    }
}

fn is_thoughts(name: &str) -> bool {
    ["think", "thinking"].iter().any(|tag| name.eq_ignore_ascii_case(tag))
}

/// The run of backticks or tildes at the beginning of a line, without its indentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
}

impl Fence {
    /// Reads the fence at the beginning of a complete line, and the text after the fence. Returns
    /// `None` if the line has no fence.
    pub(super) fn read(line: &str) -> Option<(Self, &str)> {
        let line = line.trim_end_matches(['\n', '\r']);
        let unindented = line.trim_start_matches(' ');
        let indentation = line.len() - unindented.len();
        let mark = unindented.chars().next()?;
        if !"`~".contains(mark) {
            return None;
        }
        let info = unindented.trim_start_matches(mark);
        let length = unindented.len() - info.len();
        if indentation > 3 || length < 3 {
            return None;
        }
        // In Markdown, such a line is inline code.
        if mark == '`' && info.contains('`') {
            return None;
        }
        Some((Self { mark, length }, info.trim()))
    }

    /// Returns the role of a whole line inside the block that this fence opened.
    pub(super) fn role(self, line: &str) -> Inside {
        match Self::read(line) {
            Some((other, info)) if other.mark == self.mark && other.length >= self.length => {
                if info.is_empty() { Inside::End } else { Inside::Opening }
            }
            _ => Inside::Content,
        }
    }
}

/// The role of a line inside a fenced block.
pub(super) enum Inside {
    Content,
    /// The line would open another block, so it is unclear which end belongs to which block.
    Opening,
    End,
}

/// Checks whether an incomplete tag may become a tag that is used for calls. Any other text after
/// `<` is shown immediately.
pub(super) fn may_be_tag(text: &str) -> bool {
    let inner = text[1..].trim_start_matches('/').trim_ascii_start();
    let name = &inner[..name_length(inner)];
    let is_name_complete = name.len() < inner.len();
    let mut known =
        CALL_TAGS.iter().chain(&QUOTATIONS).chain(&["invoke", "think", "thinking", "tools"]);
    if is_name_complete {
        known.any(|tag| tag.eq_ignore_ascii_case(name))
    } else {
        known.any(|tag| has_prefix(tag, name))
    }
}

/// Checks whether a text begins with a prefix, in upper or lower case.
pub(super) fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Checks whether a line is longer than `limit`, without its line end. The line may be incomplete.
pub(super) fn is_longer(line: &str, limit: usize) -> bool {
    line.trim_end_matches('\n').len() >= limit
}
