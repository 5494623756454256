//! Recognises the tags, and the lines that begin and end fenced blocks, in which models write
//! calls.

/// Bytes of the longest tag, and of the first line of a fenced block.
pub(super) const MAX_MARK: usize = 300;

/// Tags that mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Call,
    Invoke,
    Tools,
}

/// A tag at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// With the rest of the tag behind its name.
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

/// The tag at the beginning of a text, and its length. `Err(true)`: the tag isn't complete yet.
/// `Err(false)`: there is no tag.
pub(super) fn read_tag(text: &str) -> Result<(Tag<'_>, usize), bool> {
    if !text.starts_with('<') {
        return Err(false);
    }
    let end = text.bytes().take(MAX_MARK).skip(1).position(|byte| b">\n<".contains(&byte));
    let Some(end) = end.map(|end| end + 1) else { return Err(text.len() < MAX_MARK) };
    if text.as_bytes()[end] != b'>' {
        return Err(false);
    }
    let inner = text[1..end].trim_ascii_end();
    let (closes, inner) = match inner.strip_prefix('/') {
        Some(inner) => (true, inner.trim_ascii_start()),
        None => (false, inner),
    };
    let name_end = inner.find(|c: char| c.is_ascii_whitespace()).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(name_end);
    let family = if CALL_TAGS.iter().any(|tag| name.eq_ignore_ascii_case(tag)) {
        Some(Family::Call)
    } else if name.eq_ignore_ascii_case("invoke") {
        Some(Family::Invoke)
    } else if name.eq_ignore_ascii_case("tools") {
        Some(Family::Tools)
    } else {
        None
    };
    let is_thoughts = ["think", "thinking"].iter().any(|tag| name.eq_ignore_ascii_case(tag));
    let tag = match (family, closes) {
        (Some(family), false) => Tag::Open(family, rest.trim()),
        (Some(family), true) => Tag::Close(family),
        (None, closes) if is_thoughts => {
            if closes {
                Tag::EndOfThoughts
            } else {
                Tag::Thoughts
            }
        }
        (None, false) => match QUOTATIONS.iter().find(|tag| name.eq_ignore_ascii_case(tag)) {
            Some(tag) => Tag::Quotation(tag),
            None => Tag::Other(inner),
        },
        (None, true) => Tag::Other(inner),
    };
    Ok((tag, end + 1))
}

/// The run of backticks or tildes at the beginning of a line, without its indentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
}

impl Fence {
    /// A fence at the beginning of a whole line, and what follows it.
    pub(super) fn read(line: &str) -> Option<(Self, &str)> {
        let line = line.trim_end_matches(['\n', '\r']);
        let indented = line.trim_start_matches(' ');
        let mark = indented.chars().next().filter(|c| "`~".contains(*c))?;
        let info = indented.trim_start_matches(mark);
        let length = indented.len() - info.len();
        let fits = line.len() - indented.len() <= 3 && length >= 3;
        (fits && !(mark == '`' && info.contains('`'))).then(|| (Self { mark, length }, info.trim()))
    }

    /// The role of a whole line inside the block that this fence opened.
    pub(super) fn line(self, line: &str) -> Inside {
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

/// Whether an incomplete text may become a closing tag that counts, so that prose with `<` isn't
/// held back.
pub(super) fn may_be_tag(text: &str) -> bool {
    let name = text[1..].trim_start_matches('/').trim_ascii_start();
    let (name, is_complete) = match name.split_once(|c: char| c.is_ascii_whitespace()) {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let names =
        CALL_TAGS.iter().chain(&QUOTATIONS).chain(&["invoke", "think", "thinking", "tools"]);
    names.into_iter().any(|other| {
        let start = if is_complete { Some(*other) } else { other.get(..name.len()) };
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

/// Whether a line without its end has this length or more. Also a line whose end isn't known yet.
pub(super) fn is_longer(line: &str, limit: usize) -> bool {
    line.trim_end_matches('\n').len() >= limit
}
