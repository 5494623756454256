//! The transcript of the screen: words and actions as blocks, with scrolling.

use std::collections::VecDeque;

use ratatui::text::Line;
use toolhold_agent::{EndKind, Spent};
use toolhold_core::text::{counted, cut, neutral, neutral_line};

use crate::call::CallBlock;
use crate::layout::{Breaks, text, wrap};
use crate::markdown;
use crate::theme::{Role, Theme};

/// Bytes of text that are kept. Older text is in the record.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Blocks that are kept.
const MAX_BLOCKS: usize = 4000;

/// Laid-out lines that are kept.
const MAX_LINES: usize = 4000;

/// Bytes of one text of the person or of Toolhold that are shown.
const MAX_TEXT: usize = 32 * 1024;

/// Bytes of a part of an answer after which the next paragraph starts a new block, and bytes after
/// which the next line does.
const PART: [usize; 2] = [1024, 4096];

/// Bytes of one thought that are shown: the last ones.
const MAX_THOUGHT: usize = 4096;

/// A part of the transcript.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Person(String),
    Answer(AnswerPart),
    Thinking(String),
    Call(Box<CallBlock>),
    Notice(String),
    /// The message of a person's command.
    Told(String),
    Ended(EndKind, String, Spent),
}

/// A part of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerPart {
    text: String,
    /// The line that began a block of code in an earlier part.
    fence: Option<String>,
    /// The line that began a block of code, for the next part, as far as the text is looked at.
    next_fence: Option<String>,
    looked_at: usize,
    /// Whether the part starts in the middle of a paragraph or a list.
    is_near: bool,
}

#[derive(Debug)]
struct Entry {
    block: Block,
    bytes: usize,
    /// The lines of a width.
    laid: Option<(usize, Vec<Line<'static>>)>,
}

/// The first line that is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Top {
    /// The number of the block since the beginning.
    block: u64,
    line: usize,
}

/// The blocks.
#[derive(Debug)]
pub(crate) struct Transcript {
    entries: VecDeque<Entry>,
    /// Blocks that were dropped.
    dropped: u64,
    bytes: usize,
    /// Whether the last part of an answer grows.
    is_open: bool,
    /// `None`: the end is visible.
    top: Option<Top>,
    /// Whether results are shown at length.
    is_long: bool,
    theme: Theme,
}

impl Transcript {
    pub(crate) fn new(theme: Theme) -> Self {
        Self {
            entries: VecDeque::new(),
            dropped: 0,
            bytes: 0,
            is_open: false,
            top: None,
            is_long: false,
            theme,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn push(&mut self, block: Block) {
        self.is_open = false;
        let bytes = block.bytes();
        self.bytes += bytes;
        self.entries.push_back(Entry { block, bytes, laid: None });
        while self.entries.len() > 1 && (self.bytes > MAX_BYTES || self.entries.len() > MAX_BLOCKS)
        {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= entry.bytes;
                self.dropped += 1;
            }
        }
    }

    pub(crate) fn person(&mut self, text: &str) {
        self.push(Block::Person(bounded(text)));
    }

    pub(crate) fn notice(&mut self, text: &str) {
        self.push(Block::Notice(neutral_line(cut(text, MAX_TEXT))));
    }

    pub(crate) fn push_told(&mut self, text: &str) {
        self.push(Block::Told(bounded(text)));
    }

    pub(crate) fn thinking(&mut self, part: &str) {
        let part = neutral(part);
        if let Some(Entry { block: Block::Thinking(text), bytes, laid }) = self.entries.back_mut() {
            text.push_str(&part);
            if text.len() > 2 * MAX_THOUGHT {
                let from = text.ceil_char_boundary(text.len() - MAX_THOUGHT);
                text.drain(..from);
            }
            self.bytes = self.bytes + text.len() - *bytes;
            (*bytes, *laid) = (text.len(), None);
            return;
        }
        self.push(Block::Thinking(part.into_owned()));
    }

    /// Adds a part of the answer that is being written.
    pub(crate) fn answer(&mut self, part: &str) {
        let part = neutral(part);
        let mut rest: &str = &part;
        while !rest.is_empty() {
            let open = match self.entries.back_mut() {
                Some(entry) if self.is_open => match &mut entry.block {
                    Block::Answer(answer) => Some((answer, &mut entry.bytes, &mut entry.laid)),
                    _ => None,
                },
                _ => None,
            };
            let Some((answer, bytes, laid)) = open else {
                self.push(Block::Answer(AnswerPart::default()));
                self.is_open = true;
                continue;
            };
            // In small steps, so that a part ends soon after it has its size.
            let (now, later) = rest.split_at(rest.ceil_char_boundary(PART[0].min(rest.len())));
            rest = later;
            answer.text.push_str(now);
            let following = answer.split();
            self.bytes = self.bytes + answer.text.len() - *bytes;
            (*bytes, *laid) = (answer.text.len(), None);
            if let Some(following) = following {
                self.push(Block::Answer(following));
                self.is_open = true;
            }
        }
    }

    /// Notes that the answer is complete.
    pub(crate) fn end_answer(&mut self) {
        self.is_open = false;
    }

    /// Changes the last call with this ID. `false`: the call isn't here any more.
    pub(crate) fn change_call(&mut self, id: &str, change: impl FnOnce(&mut CallBlock)) -> bool {
        let found = self.entries.iter_mut().rev().find_map(|entry| match &mut entry.block {
            Block::Call(call) if call.id == id => Some((call, &mut entry.bytes, &mut entry.laid)),
            _ => None,
        });
        let Some((call, bytes, laid)) = found else { return false };
        change(call);
        let now = call.bytes();
        self.bytes = self.bytes + now - *bytes;
        (*bytes, *laid) = (now, None);
        true
    }

    /// Shows results at length, or shortens them again.
    pub(crate) fn turn_length(&mut self) {
        self.is_long = !self.is_long;
        self.entries.iter_mut().for_each(|entry| entry.laid = None);
    }

    /// Scrolls to the end.
    pub(crate) fn scroll_to_end(&mut self) {
        self.top = None;
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.top.is_none()
    }

    fn laid(&mut self, at: usize, width: usize) -> &[Line<'static>] {
        let theme = self.theme;
        let is_long = self.is_long;
        let entry = &mut self.entries[at];
        if entry.laid.as_ref().is_none_or(|(known, _)| *known != width) {
            let lines = entry.block.lines(width, theme, is_long);
            entry.laid = Some((width, lines));
        }
        entry.laid.as_ref().map_or(&[], |(_, lines)| lines)
    }

    /// A line that says that older blocks are gone.
    fn gone(&self, session: &str) -> Option<Line<'static>> {
        (self.dropped > 0).then(|| {
            let text = format!(
                "{} left the screen: `toolhold run sessions show {session}`",
                counted(self.dropped, "older part")
            );
            Line::styled(text, self.theme.style(Role::Faint))
        })
    }

    /// The top from which on the end fits exactly.
    fn last_top(&mut self, width: usize, height: usize) -> Top {
        let mut room = height;
        for at in (0..self.entries.len()).rev() {
            let lines = self.laid(at, width).len();
            if lines >= room {
                return Top { block: self.dropped + at as u64, line: lines - room };
            }
            room -= lines;
        }
        Top { block: self.dropped, line: 0 }
    }

    /// Scrolls by lines: up, if negative.
    pub(crate) fn scroll(&mut self, by: isize, width: usize, height: usize) {
        let last = self.last_top(width, height);
        let mut top = self.top.unwrap_or(last);
        let mut at = usize::try_from(top.block.saturating_sub(self.dropped)).unwrap_or(0);
        if self.entries.is_empty() {
            return;
        }
        at = at.min(self.entries.len() - 1);
        let mut left = by.unsigned_abs();
        while left > 0 {
            if by < 0 {
                let step = left.min(top.line);
                (top.line, left) = (top.line - step, left - step);
                if left == 0 || at == 0 {
                    break;
                }
                at -= 1;
                top.line = self.laid(at, width).len();
            } else {
                let lines = self.laid(at, width).len();
                let step = left.min(lines.saturating_sub(top.line));
                (top.line, left) = (top.line + step, left - step);
                if top.line < lines || at + 1 >= self.entries.len() {
                    break;
                }
                (at, top.line) = (at + 1, 0);
            }
        }
        top.block = self.dropped + at as u64;
        let is_last = (top.block, top.line) >= (last.block, last.line);
        self.top = (!is_last).then_some(top);
    }

    /// The visible lines.
    pub(crate) fn visible(
        &mut self,
        width: usize,
        height: usize,
        session: &str,
    ) -> Vec<Line<'static>> {
        let top = match self.top {
            Some(top) if top.block >= self.dropped => top,
            Some(_) => Top { block: self.dropped, line: 0 },
            None => self.last_top(width, height),
        };
        let mut lines = Vec::new();
        let first = usize::try_from(top.block - self.dropped).unwrap_or(0);
        if first == 0 && top.line == 0 {
            lines.extend(self.gone(session));
        }
        let mut skip = top.line;
        for at in first..self.entries.len() {
            let laid = self.laid(at, width);
            let room = height.saturating_sub(lines.len());
            let shown: Vec<_> = laid.iter().skip(skip).take(room).cloned().collect();
            lines.extend(shown);
            skip = 0;
            if lines.len() >= height {
                break;
            }
        }
        self.forget_lines(first);
        // The end matters more than the note on older parts.
        if self.top.is_none() && lines.len() > height {
            lines.drain(..lines.len() - height);
        }
        lines
    }

    /// Drops laid-out lines far from the visible ones, if there are many.
    fn forget_lines(&mut self, visible: usize) {
        let laid = self.entries.iter().filter_map(|entry| entry.laid.as_ref());
        if laid.map(|(_, lines)| lines.len()).sum::<usize>() <= MAX_LINES {
            return;
        }
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if at.abs_diff(visible) > 50 {
                entry.laid = None;
            }
        }
    }

    /// The whole transcript as text, for a screen without this program.
    pub(crate) fn to_text(&self, width: usize, session: &str) -> String {
        let plain = Theme::new(false);
        let mut text = self.gone(session).map(|line| format!("{line}\n")).unwrap_or_default();
        for entry in &self.entries {
            for line in entry.block.lines(width, plain, self.is_long) {
                text.push_str(line.to_string().trim_end());
                text.push('\n');
            }
        }
        text
    }
}

/// A text that is shown.
fn bounded(text: &str) -> String {
    let shown = cut(text, MAX_TEXT);
    let more = match text.len() - shown.len() {
        0 => String::new(),
        more => format!("\n[{} more]", counted(more, "byte")),
    };
    format!("{}{more}", neutral(shown))
}

impl AnswerPart {
    /// Ends this part if it is long enough. Returns the next part.
    fn split(&mut self) -> Option<Self> {
        let mut end = None;
        let mut is_near = true;
        while let Some(length) = self.text[self.looked_at..].find('\n') {
            let line = &self.text[self.looked_at..self.looked_at + length];
            let fence = line.trim_start();
            let is_fence = fence.starts_with("```") || fence.starts_with("~~~");
            match &self.next_fence {
                None if is_fence => self.next_fence = Some(line.to_owned()),
                Some(open) if is_fence && fence.starts_with(&open.trim_start()[..3]) => {
                    self.next_fence = None;
                }
                _ => {}
            }
            self.looked_at += length + 1;
            let is_gap = line.trim().is_empty() && self.next_fence.is_none();
            let most = if is_gap { PART[0] } else { PART[1] };
            if self.looked_at >= most {
                (end, is_near) = (Some(self.looked_at), !is_gap);
                break;
            }
        }
        if end.is_none() && self.text.len() >= 2 * PART[1] {
            end = Some(self.text.ceil_char_boundary(2 * PART[1]));
            self.looked_at = self.looked_at.max(end.unwrap_or_default());
        }
        let end = end.filter(|end| *end < self.text.len())?;
        let rest = self.text.split_off(end);
        let fence = self.next_fence.clone();
        Some(Self { text: rest, fence: fence.clone(), next_fence: fence, looked_at: 0, is_near })
    }
}

impl Block {
    fn bytes(&self) -> usize {
        match self {
            Self::Person(text) | Self::Thinking(text) | Self::Notice(text) | Self::Told(text) => {
                text.len()
            }
            Self::Answer(answer) => answer.text.len(),
            Self::Call(call) => call.bytes(),
            Self::Ended(_, reason, _) => reason.len(),
        }
    }

    /// Its lines, with a free one above it.
    fn lines(&self, width: usize, theme: Theme, is_long: bool) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        match self {
            Self::Person(said) => {
                let mark = ("❯ ".to_owned(), theme.style(Role::Person));
                let rest = ("  ".to_owned(), theme.style(Role::Person));
                let piece = (said.trim_end().to_owned(), theme.style(Role::Strong));
                lines.extend(wrap(&[piece], width, &mark, &rest, Breaks::Words));
            }
            Self::Answer(answer) => {
                if answer.is_near {
                    lines.clear();
                }
                if answer.text.trim().is_empty() && answer.fence.is_none() {
                    return Vec::new();
                }
                lines.extend(markdown::lines(&answer.text, answer.fence.as_deref(), width, theme));
            }
            Self::Thinking(thought) => {
                let faint = theme.style(Role::Faint);
                lines.extend(text(thought.trim(), faint, width, "  ", Breaks::Words));
            }
            Self::Call(call) => {
                lines.extend(call.lines(width, theme, is_long));
            }
            Self::Notice(notice) => {
                let mark = ("note: ".to_owned(), theme.style(Role::Warning));
                let rest = ("  ".to_owned(), theme.style(Role::Plain));
                let piece = (notice.clone(), theme.style(Role::Plain));
                lines.extend(wrap(&[piece], width, &mark, &rest, Breaks::Words));
            }
            Self::Told(told) => {
                lines.extend(text(told, theme.style(Role::Plain), width, "  ", Breaks::Words));
            }
            Self::Ended(kind, reason, spent) => {
                let role = match kind {
                    EndKind::Done => Role::Good,
                    EndKind::Cancelled => Role::Warning,
                    _ => Role::Bad,
                };
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let spent = format!(
                    "{reason} · {}, {} read, {} written",
                    counted(spent.turns, "answer"),
                    counted(spent.tokens().saturating_sub(spent.output), "token"),
                    spent.output
                );
                let pieces = [
                    (kind.in_words().to_owned(), theme.style(role)),
                    (spent, theme.style(Role::Faint)),
                ];
                let none = (String::new(), theme.style(Role::Plain));
                lines.extend(wrap(&pieces, width, &none, &none, Breaks::Words));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        Transcript::new(Theme::new(false))
    }

    fn visible(transcript: &mut Transcript, height: usize) -> Vec<String> {
        let lines = transcript.visible(40, height, "id");
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ten_megabytes_without_a_line_end_are_bounded() {
        let mut transcript = transcript();
        for _ in 0..160 {
            transcript.answer(&"word ".repeat(13 * 1024));
        }
        assert!(transcript.bytes <= MAX_BYTES && transcript.entries.len() <= MAX_BLOCKS);
        let longest = transcript.entries.iter().map(|entry| entry.bytes).max();
        assert!(longest.is_some_and(|bytes| bytes <= 2 * PART[1] + PART[0]), "{longest:?}");
        assert_eq!(visible(&mut transcript, 5).len(), 5);
        transcript.scroll(-10_000_000, 40, 5);
        let first = visible(&mut transcript, 5);
        assert!(first[0].contains("`toolhold run sessions show id`"), "{first:?}");
        let laid = transcript.entries.iter().filter(|entry| entry.laid.is_some()).count();
        assert!(laid < 200, "{laid} blocks keep their lines");
    }

    #[test]
    fn code_over_several_parts_stays_code() {
        let mut transcript = transcript();
        transcript.answer("```rust\n");
        (0..600).for_each(|number| transcript.answer(&format!("let x{number} = *a * *b;\n")));
        transcript.answer("```\n\n");
        transcript.answer(&"text\n\n".repeat(300));
        transcript.end_answer();
        let text = transcript.to_text(60, "id");
        assert_eq!(text.matches("= *a * *b;").count(), 600, "{text}");
        assert!(text.contains("\ntext\n") && !text.contains("  text"), "the code ended");
    }

    #[test]
    fn scrolled_up_the_same_lines_stay_while_more_comes() {
        let mut transcript = transcript();
        (0..50).for_each(|number| transcript.notice(&format!("{number}")));
        transcript.scroll(-30, 40, 10);
        let before = visible(&mut transcript, 10);
        (50..90).for_each(|number| transcript.notice(&format!("{number}")));
        assert_eq!(visible(&mut transcript, 10), before);
        transcript.scroll(1000, 40, 10);
        assert!(transcript.is_at_end());
        assert_eq!(visible(&mut transcript, 10).last().map(String::as_str), Some("note: 89"));
    }
}
