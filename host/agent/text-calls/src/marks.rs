//! Detects the tags of calls, and the fences of code blocks.

/// The most bytes of a tag or of a fenced block's first line.
pub(super) const MAX_TAG_OR_FENCE: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagFamily {
    Call,
    Invoke,
    Tools,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// An opening tag, and the text after the tag's name.
    Open(TagFamily, &'a str),
    Close(TagFamily),
    Thoughts,
    EndOfThoughts,
    Quotation(&'static str),
    Other(&'a str),
}

pub(super) const CALL_TAGS: [&str; 6] =
    ["tool_call", "tool_calls", "toolcall", "tool-call", "minimax:tool_call", "minimax:toolcall"];

const QUOTATION_TAGS: [&str; 4] = ["tool_result", "external-data", "blockquote", "pre"];

/// The reason why no complete tag is at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTag {
    /// The text ends inside the tag.
    Incomplete,
    Missing,
}

/// Reads the tag at the start of a text. Also returns the tag's length, including the brackets.
pub(super) fn read_tag(text: &str) -> Result<(Tag<'_>, usize), NoTag> {
    let Some(after_bracket) = text.strip_prefix('<') else { return Err(NoTag::Missing) };
    let mut bytes = after_bracket.bytes().take(MAX_TAG_OR_FENCE - "<".len());
    let Some(length) = bytes.position(|byte| b">\n<".contains(&byte)) else {
        let may_continue = text.len() < MAX_TAG_OR_FENCE;
        let reason = if may_continue { NoTag::Incomplete } else { NoTag::Missing };
        return Err(reason);
    };
    if after_bracket.as_bytes()[length] != b'>' {
        return Err(NoTag::Missing);
    }

    let inner = after_bracket[..length].trim_ascii_end();
    let tag = match inner.strip_prefix('/') {
        Some(inner) => closing_tag(inner.trim_ascii_start()),
        None => opening_tag(inner),
    };
    Ok((tag, length + "<>".len()))
}

/// Reads an opening tag. `inner` is the text between `<` and `>`.
fn opening_tag(inner: &str) -> Tag<'_> {
    let (name, attributes) = inner.split_at(name_length(inner));
    if let Some(family) = family_of(name) {
        return Tag::Open(family, attributes.trim());
    }
    if is_thoughts(name) {
        return Tag::Thoughts;
    }
    match QUOTATION_TAGS.iter().find(|tag| name.eq_ignore_ascii_case(tag)) {
        Some(tag) => Tag::Quotation(tag),
        None => Tag::Other(inner),
    }
}

fn closing_tag(inner: &str) -> Tag<'_> {
    let name = &inner[..name_length(inner)];
    match family_of(name) {
        Some(family) => Tag::Close(family),
        None if is_thoughts(name) => Tag::EndOfThoughts,
        None => Tag::Other(inner),
    }
}

fn name_length(inner: &str) -> usize {
    inner.find(|c: char| c.is_ascii_whitespace()).unwrap_or(inner.len())
}

/// Returns the family of a tag's name, or `None` for other tags.
fn family_of(name: &str) -> Option<TagFamily> {
    if CALL_TAGS.iter().any(|tag| name.eq_ignore_ascii_case(tag)) {
        Some(TagFamily::Call)
    } else if name.eq_ignore_ascii_case("invoke") {
        Some(TagFamily::Invoke)
    } else if name.eq_ignore_ascii_case("tools") {
        Some(TagFamily::Tools)
    } else {
        None
    }
}

fn is_thoughts(name: &str) -> bool {
    ["think", "thinking"].iter().any(|tag| name.eq_ignore_ascii_case(tag))
}

/// The most spaces before a fence or tag. Markdown treats a line with more indentation as code.
pub(super) const MAX_INDENTATION: usize = 3;

/// The least number of backticks or tildes in a fence.
pub(super) const MIN_FENCE: usize = 3;

/// Backticks or tildes at the start of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
}

impl Fence {
    /// Reads the fence at the start of a complete line, as in Markdown. Also returns the text after
    /// the fence.
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
        if indentation > MAX_INDENTATION || length < MIN_FENCE {
            return None;
        }
        // In Markdown, a line with more backticks after the first ones is inline code.
        if mark == '`' && info.contains('`') {
            return None;
        }
        Some((Self { mark, length }, info.trim()))
    }

    /// Returns the role of a complete line inside the block that this fence opened.
    pub(super) fn role(self, line: &str) -> LineRole {
        let Some((other, info)) = Self::read(line) else { return LineRole::Content };
        if other.mark != self.mark || other.length < self.length {
            return LineRole::Content;
        }
        // In Markdown, a closing fence has no text after it.
        if info.is_empty() { LineRole::End } else { LineRole::Opening }
    }
}

pub(super) enum LineRole {
    Content,
    /// The line would open another block, so that the ends of both blocks are unclear.
    Opening,
    End,
}

/// Checks whether an incomplete tag may become a known tag. If not, the text can be shown at once.
/// `text` starts with `<`.
pub(super) fn may_be_tag(text: &str) -> bool {
    let inner = text[1..].trim_start_matches('/').trim_ascii_start();
    let name = &inner[..name_length(inner)];
    let is_name_complete = name.len() < inner.len();
    let mut known =
        CALL_TAGS.iter().chain(&QUOTATION_TAGS).chain(&["invoke", "think", "thinking", "tools"]);
    if is_name_complete {
        known.any(|tag| tag.eq_ignore_ascii_case(name))
    } else {
        known.any(|tag| has_prefix(tag, name))
    }
}

pub(super) fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Checks whether a line has at least `limit` bytes without its line end.
pub(super) fn reaches_limit(line: &str, limit: usize) -> bool {
    line.trim_end_matches('\n').len() >= limit
}
