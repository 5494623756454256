//! The transcript: a scrollable list of blocks.

use std::collections::VecDeque;

use ratatui::text::Line;
use toolhold_agent::{EndKind, Spent};
use toolhold_core::text::{counted, cut, neutral, neutral_line};

use crate::call::CallBlock;
use crate::layout::{Breaks, text, wrap};
use crate::markdown;
use crate::theme::{Role, Theme};

/// The most bytes of text. Older blocks are dropped, but stay in the session file.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// The most blocks. Older blocks are dropped.
const MAX_BLOCKS: usize = 4000;

/// The most laid-out lines in memory. Layouts far from the visible part are dropped.
const MAX_LINES: usize = 4000;

/// The most bytes of a text of the person or of Toolhold.
const MAX_TEXT: usize = 32 * 1024;

/// After this number of bytes, a new part of the answer starts at the next paragraph.
const MIN_PART: usize = 1024;

/// After this number of bytes, a new part of the answer starts at the next line.
const MAX_PART: usize = 4096;

/// After this number of bytes, a new part of the answer starts inside the line.
const MAX_LINE_PART: usize = 2 * MAX_PART;

/// The bytes that make a line the fence of a code block.
const FENCE: usize = "```".len();

/// The number of blocks around the visible blocks whose layouts stay in memory.
const NEAR_BLOCKS: usize = 50;

/// The most bytes of the model's thinking. The start of longer thinking is dropped.
const MAX_THOUGHT: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) enum Block {
    Person(String),
    Answer(AnswerPart),
    Thinking(String),
    Call(Box<CallBlock>),
    Notice(String),
    /// The output of a command of the person.
    CommandOutput(String),
    Ended(EndKind, String, Spent),
}

/// A part of an answer. Only the last part grows, so earlier parts are laid out once.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerPart {
    text: String,
    /// The opening line of a code block that continues from an earlier part.
    fence: Option<String>,
    /// The opening line of the code block at the end of the scanned text, if there is one.
    next_fence: Option<String>,
    /// The number of bytes that were searched for fences.
    scanned: usize,
    /// Whether the part continues a paragraph or a list.
    is_continuation: bool,
}

/// The end of a scanned line.
struct LineEnd {
    position: usize,
    is_paragraph_end: bool,
}

#[derive(Debug)]
struct Entry {
    block: Block,
    bytes: usize,
    /// The laid-out lines, or `None` after a change of the block.
    layout: Option<Layout>,
}

#[derive(Debug)]
struct Layout {
    width: usize,
    lines: Vec<Line<'static>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Top {
    /// The number of the block, counted from the start of the chat.
    block: u64,
    line: usize,
}

#[derive(Debug)]
pub(crate) struct Transcript {
    entries: VecDeque<Entry>,
    /// The number of dropped blocks.
    dropped: u64,
    bytes: usize,
    /// Whether the last answer is still incomplete.
    is_open: bool,
    /// The first visible line, or `None` if the end of the transcript is visible.
    top: Option<Top>,
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

    /// Adds a block, and drops the oldest blocks above the limits.
    pub(crate) fn push(&mut self, block: Block) {
        self.is_open = false;
        let bytes = block.bytes();
        self.bytes += bytes;
        self.entries.push_back(Entry { block, bytes, layout: None });
        while self.is_too_large()
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= entry.bytes;
            self.dropped += 1;
        }
    }

    /// Checks whether the oldest block must be dropped. The last block is never dropped.
    fn is_too_large(&self) -> bool {
        let is_over_limit = self.bytes > MAX_BYTES || self.entries.len() > MAX_BLOCKS;
        is_over_limit && self.entries.len() > 1
    }

    pub(crate) fn push_person(&mut self, text: &str) {
        self.push(Block::Person(bounded(text)));
    }

    pub(crate) fn push_notice(&mut self, text: &str) {
        self.push(Block::Notice(neutral_line(cut(text, MAX_TEXT))));
    }

    pub(crate) fn push_output(&mut self, text: &str) {
        self.push(Block::CommandOutput(bounded(text)));
    }

    /// Adds a part of the model's thinking to the last block, or to a new block. Keeps only the end
    /// of long thinking.
    pub(crate) fn add_thinking(&mut self, part: &str) {
        let part = neutral(part);
        if let Some(entry) = self.entries.back_mut()
            && let Block::Thinking(text) = &mut entry.block
        {
            text.push_str(&part);
            // Cut the text only at twice the length, because this moves the text less often.
            if text.len() > 2 * MAX_THOUGHT {
                let start = text.ceil_char_boundary(text.len() - MAX_THOUGHT);
                text.drain(..start);
            }
            entry.note_change(&mut self.bytes);
        } else {
            self.push(Block::Thinking(part.into_owned()));
        }
    }

    pub(crate) fn add_answer(&mut self, part: &str) {
        let part = neutral(part);
        let mut remaining: &str = &part;
        while !remaining.is_empty() {
            // Add the text in small steps, so that a part ends soon after it has reached its size.
            let step = remaining.ceil_char_boundary(MIN_PART.min(remaining.len()));
            let (text, later) = remaining.split_at(step);
            remaining = later;
            self.add_to_answer(text);
        }
    }

    /// Adds text to the last part of the answer, or to a new part if the last part is full.
    fn add_to_answer(&mut self, text: &str) {
        if !self.is_open {
            self.push_answer(AnswerPart::default());
        }
        let Some(entry) = self.entries.back_mut() else { return };
        let Block::Answer(answer) = &mut entry.block else { return };
        answer.text.push_str(text);
        let next_part = answer.split();
        entry.note_change(&mut self.bytes);
        if let Some(next_part) = next_part {
            self.push_answer(next_part);
        }
    }

    fn push_answer(&mut self, part: AnswerPart) {
        self.push(Block::Answer(part));
        self.is_open = true;
    }

    pub(crate) fn end_answer(&mut self) {
        self.is_open = false;
    }

    /// Changes the last call with this ID, unless the call was dropped.
    pub(crate) fn change_call(&mut self, id: &str, change: impl FnOnce(&mut CallBlock)) {
        for entry in self.entries.iter_mut().rev() {
            if let Block::Call(call) = &mut entry.block
                && call.id == id
            {
                change(call);
                entry.note_change(&mut self.bytes);
                return;
            }
        }
    }

    pub(crate) fn toggle_length(&mut self) {
        self.is_long = !self.is_long;
        for entry in &mut self.entries {
            entry.layout = None;
        }
    }

    pub(crate) fn scroll_to_end(&mut self) {
        self.top = None;
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.top.is_none()
    }

    /// Returns the lines of an entry. A valid layout isn't made again.
    fn entry_lines(&mut self, index: usize, width: usize) -> &[Line<'static>] {
        let entry = &mut self.entries[index];
        if entry.layout.as_ref().is_some_and(|layout| layout.width != width) {
            entry.layout = None;
        }
        let layout = entry.layout.get_or_insert_with(|| {
            let lines = entry.block.lines(width, self.theme, self.is_long);
            Layout { width, lines }
        });
        &layout.lines
    }

    /// Returns the line about dropped blocks, if blocks were dropped.
    fn dropped_note(&self, session: &str) -> Option<Line<'static>> {
        if self.dropped == 0 {
            return None;
        }
        let parts = counted(self.dropped, "older part");
        let text =
            format!("{parts} no longer on the screen: `toolhold run sessions show {session}`");
        Some(Line::styled(text, self.theme.style(Role::Faint)))
    }

    /// Returns the scroll position at which the transcript's end is at the bottom.
    fn last_top(&mut self, width: usize, height: usize) -> Top {
        let mut lines_left = height;
        for index in (0..self.entries.len()).rev() {
            let lines = self.entry_lines(index, width).len();
            if lines >= lines_left {
                return Top { block: self.dropped + index as u64, line: lines - lines_left };
            }
            lines_left -= lines;
        }
        Top { block: self.dropped, line: 0 }
    }

    /// Scrolls down by a number of lines. A negative number scrolls up.
    pub(crate) fn scroll(&mut self, by: isize, width: usize, height: usize) {
        if self.entries.is_empty() {
            return;
        }
        let last = self.last_top(width, height);
        let current = self.top.unwrap_or(last);
        let distance = by.unsigned_abs();
        let new = if by < 0 {
            self.top_above(current, distance, width)
        } else {
            self.top_below(current, distance, width)
        };
        let is_at_end = (new.block, new.line) >= (last.block, last.line);
        self.top = if is_at_end { None } else { Some(new) };
    }

    /// Returns the index of the entry at `top`, or 0 if the entry was dropped.
    fn entry_index(&self, top: Top) -> usize {
        // The number always fits, because so many blocks are in memory.
        let index = usize::try_from(top.block.saturating_sub(self.dropped)).unwrap_or(0);
        index.min(self.entries.len() - 1)
    }

    /// Returns the scroll position `distance` lines above `top`.
    fn top_above(&mut self, top: Top, distance: usize, width: usize) -> Top {
        let mut index = self.entry_index(top);
        let mut line = top.line;
        let mut remaining = distance;
        while remaining > line && index > 0 {
            remaining -= line;
            index -= 1;
            line = self.entry_lines(index, width).len();
        }
        Top { block: self.dropped + index as u64, line: line.saturating_sub(remaining) }
    }

    /// Returns the scroll position `distance` lines below `top`.
    fn top_below(&mut self, top: Top, distance: usize, width: usize) -> Top {
        let mut index = self.entry_index(top);
        let mut line = top.line;
        let mut remaining = distance;
        while remaining > 0 {
            let lines = self.entry_lines(index, width).len();
            let step = remaining.min(lines.saturating_sub(line));
            line += step;
            remaining -= step;
            if line < lines || index + 1 >= self.entries.len() {
                break;
            }
            index += 1;
            line = 0;
        }
        Top { block: self.dropped + index as u64, line }
    }

    /// Returns the visible lines. The note about dropped blocks names the session's ID, `session`.
    pub(crate) fn visible(
        &mut self,
        width: usize,
        height: usize,
        session: &str,
    ) -> Vec<Line<'static>> {
        let top = match self.top {
            Some(top) if top.block >= self.dropped => top,
            // The top block was dropped.
            Some(_) => Top { block: self.dropped, line: 0 },
            None => self.last_top(width, height),
        };
        let mut lines = Vec::new();
        // The number always fits, because so many blocks are in memory.
        let first = usize::try_from(top.block - self.dropped).unwrap_or(0);
        if first == 0 && top.line == 0 {
            lines.extend(self.dropped_note(session));
        }

        // Only the first visible block can have hidden lines above.
        let mut hidden_lines = top.line;
        for index in first..self.entries.len() {
            let lines_left = height.saturating_sub(lines.len());
            let entry_lines = self.entry_lines(index, width);
            lines.extend(entry_lines.iter().skip(hidden_lines).take(lines_left).cloned());
            hidden_lines = 0;
            if lines.len() >= height {
                break;
            }
        }
        self.drop_layouts_far_from(first);

        // The end is more important than the note about dropped blocks.
        if self.top.is_none() && lines.len() > height {
            lines.drain(..lines.len() - height);
        }
        lines
    }

    /// Drops the layouts far from the first visible block if too many lines are in memory.
    fn drop_layouts_far_from(&mut self, visible: usize) {
        let layouts = self.entries.iter().filter_map(|entry| entry.layout.as_ref());
        let line_count: usize = layouts.map(|layout| layout.lines.len()).sum();
        if line_count <= MAX_LINES {
            return;
        }
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if index.abs_diff(visible) > NEAR_BLOCKS {
                entry.layout = None;
            }
        }
    }

    /// Returns the transcript without colours for the normal screen.
    pub(crate) fn to_text(&self, width: usize, session: &str) -> String {
        let plain = Theme::new(false);
        let mut text = String::new();
        if let Some(note) = self.dropped_note(session) {
            text = format!("{note}\n");
        }
        for entry in &self.entries {
            for line in entry.block.lines(width, plain, self.is_long) {
                text.push_str(line.to_string().trim_end());
                text.push('\n');
            }
        }
        text
    }
}

fn bounded(text: &str) -> String {
    let shown = cut(text, MAX_TEXT);
    let more = match text.len() - shown.len() {
        0 => String::new(),
        bytes => format!("\n[{} more]", counted(bytes, "byte")),
    };
    format!("{}{more}", neutral(shown))
}

impl Entry {
    /// Updates the size of the block after a change, and the size of all blocks, `total`.
    fn note_change(&mut self, total: &mut usize) {
        let bytes = self.block.bytes();
        *total = *total + bytes - self.bytes;
        self.bytes = bytes;
        self.layout = None;
    }
}

impl AnswerPart {
    /// Splits a long part after a paragraph, after a line, or inside a very long line. Returns the
    /// next part if the part was split.
    fn split(&mut self) -> Option<Self> {
        let (end, is_continuation) = match self.scan_lines() {
            Some(line_end) => (line_end.position, !line_end.is_paragraph_end),
            // A very long line is split inside.
            None if self.text.len() >= MAX_LINE_PART => {
                let middle = self.text.ceil_char_boundary(MAX_LINE_PART);
                self.scanned = self.scanned.max(middle);
                (middle, true)
            }
            None => return None,
        };
        if end == self.text.len() {
            return None;
        }
        Some(Self {
            text: self.text.split_off(end),
            fence: self.next_fence.clone(),
            next_fence: self.next_fence.clone(),
            scanned: 0,
            is_continuation,
        })
    }

    /// Scans whole new lines. Returns the first line end at which the part is long enough.
    fn scan_lines(&mut self) -> Option<LineEnd> {
        while let Some(length) = self.text[self.scanned..].find('\n') {
            let line = &self.text[self.scanned..self.scanned + length];
            let is_blank = line.trim().is_empty();
            self.next_fence = fence_after(line, self.next_fence.take());
            self.scanned += length + 1;

            let is_paragraph_end = is_blank && self.next_fence.is_none();
            let limit = if is_paragraph_end { MIN_PART } else { MAX_PART };
            if self.scanned >= limit {
                return Some(LineEnd { position: self.scanned, is_paragraph_end });
            }
        }
        None
    }
}

/// Returns the opening line of the code block that is open at the end of `line`. `opening` is the
/// opening line of the code block that is open at its start.
fn fence_after(line: &str, opening: Option<String>) -> Option<String> {
    let start = line.trim_start();
    let is_fence = start.starts_with("```") || start.starts_with("~~~");
    if !is_fence {
        return opening;
    }
    match opening {
        None => Some(line.to_owned()),
        // Only a fence of the same characters ends the code block.
        Some(opening) if start.starts_with(&opening.trim_start()[..FENCE]) => None,
        Some(opening) => Some(opening),
    }
}

impl Block {
    fn bytes(&self) -> usize {
        match self {
            Self::Person(text)
            | Self::Thinking(text)
            | Self::Notice(text)
            | Self::CommandOutput(text) => text.len(),
            Self::Answer(answer) => answer.text.len(),
            Self::Call(call) => call.bytes(),
            Self::Ended(_, reason, _) => reason.len(),
        }
    }

    /// Lays out the block. The first line is empty, unless the block continues an answer.
    fn lines(&self, width: usize, theme: Theme, is_long: bool) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        match self {
            Self::Person(message) => {
                let mark = ("❯ ".to_owned(), theme.style(Role::Person));
                let indent = ("  ".to_owned(), theme.style(Role::Person));
                let piece = (message.trim_end().to_owned(), theme.style(Role::Strong));
                lines.extend(wrap(&[piece], width, &mark, &indent, Breaks::Words));
            }
            Self::Answer(answer) => {
                if answer.is_continuation {
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
                let indent = ("  ".to_owned(), theme.style(Role::Plain));
                let piece = (notice.clone(), theme.style(Role::Plain));
                lines.extend(wrap(&[piece], width, &mark, &indent, Breaks::Words));
            }
            Self::CommandOutput(output) => {
                lines.extend(text(output, theme.style(Role::Plain), width, "  ", Breaks::Words));
            }
            Self::Ended(kind, reason, spent) => {
                let role = match kind {
                    EndKind::Done => Role::Good,
                    EndKind::Cancelled => Role::Warning,
                    _ => Role::Bad,
                };
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let answers = counted(spent.turns, "answer");
                let read = counted(spent.tokens().saturating_sub(spent.output), "token");
                let written = spent.output;
                let mut cost = String::new();
                if spent.cost > 0.0 {
                    cost = format!(", cost {:.4}", spent.cost);
                }
                let details = format!("{reason} · {answers}, {read} read, {written} written{cost}");
                let pieces = [
                    (kind.in_words().to_owned(), theme.style(role)),
                    (details, theme.style(Role::Faint)),
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
            transcript.add_answer(&"word ".repeat(13 * 1024));
        }
        assert!(transcript.bytes <= MAX_BYTES && transcript.entries.len() <= MAX_BLOCKS);
        let longest = transcript.entries.iter().map(|entry| entry.bytes).max();
        assert!(longest.is_some_and(|bytes| bytes <= 2 * MAX_PART + MIN_PART), "{longest:?}");
        assert_eq!(visible(&mut transcript, 5).len(), 5);
        transcript.scroll(-10_000_000, 40, 5);
        let first = visible(&mut transcript, 5);
        assert!(first[0].contains("`toolhold run sessions show id`"), "{first:?}");
        let layouts = transcript.entries.iter().filter(|entry| entry.layout.is_some()).count();
        assert!(layouts < 200, "{layouts} blocks keep their lines");
    }

    #[test]
    fn code_over_several_parts_stays_code() {
        let mut transcript = transcript();
        transcript.add_answer("```rust\n");
        (0..600).for_each(|number| transcript.add_answer(&format!("let x{number} = *a * *b;\n")));
        transcript.add_answer("```\n\n");
        transcript.add_answer(&"text\n\n".repeat(300));
        transcript.end_answer();
        let text = transcript.to_text(60, "id");
        assert_eq!(text.matches("= *a * *b;").count(), 600, "{text}");
        assert!(text.contains("\ntext\n") && !text.contains("  text"), "the code ended");
    }

    #[test]
    fn scrolled_up_the_same_lines_stay_while_more_comes() {
        let mut transcript = transcript();
        (0..50).for_each(|number| transcript.push_notice(&format!("{number}")));
        transcript.scroll(-30, 40, 10);
        let before = visible(&mut transcript, 10);
        (50..90).for_each(|number| transcript.push_notice(&format!("{number}")));
        assert_eq!(visible(&mut transcript, 10), before);
        transcript.scroll(1000, 40, 10);
        assert!(transcript.is_at_end());
        assert_eq!(visible(&mut transcript, 10).last().map(String::as_str), Some("note: 89"));
    }
}
