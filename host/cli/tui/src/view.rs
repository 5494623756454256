//! Draws the screen: transcript, panel, status line and input.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use toolhold_core::text::neutral_line;

use crate::complete::SHOWN;
use crate::layout::{Breaks, columns, text, wrap};
use crate::state::ScreenState;
use crate::theme::Role;

/// The least columns and lines.
const LEAST: (u16, u16) = (40, 10);

/// The least columns for a panel, and the panel's own columns.
const PANEL: (u16, u16) = (110, 32);

/// Lines of the message that are shown.
const MAX_ROWS: usize = 8;

/// Queued messages that are shown.
const MAX_QUEUED: usize = 3;

/// Draws the state. `now`: see [`ScreenState::apply`].
pub(crate) fn draw(state: &mut ScreenState, frame: &mut Frame<'_>, now: Duration) {
    let area = frame.area();
    state.is_visible = area.width >= LEAST.0 && area.height >= LEAST.1;
    if !state.is_visible {
        let (columns, lines) = LEAST;
        let told =
            format!("The terminal is too small: it needs {columns} columns and {lines} lines.");
        let style = state.theme.style(Role::Plain);
        let told = text(&told, style, usize::from(area.width), "", Breaks::Words);
        put(frame.buffer_mut(), area, &told);
        return;
    }
    let mut main = area;
    let has_panel = area.width >= PANEL.0;
    if has_panel {
        main.width -= PANEL.1;
        let panel = Rect { x: main.width, width: PANEL.1, ..area };
        put_panel(state, frame.buffer_mut(), panel, now);
        // A free column before the bar.
        main.width -= 1;
    }
    let bottom = bottom(state, main, has_panel, now);
    let height = main.height.saturating_sub(bottom.height());
    let width = usize::from(main.width);
    let room = usize::from(height);
    state.shown = (width, room);
    let session = state.session.clone();
    let mut lines = state.transcript.visible(width, room, &session);
    if state.transcript.is_empty() {
        lines = welcome(state, width);
    }
    let buffer = frame.buffer_mut();
    put(buffer, Rect { height, ..main }, &lines);
    let below = Rect { y: main.y + height, height: main.height - height, ..main };
    put(buffer, below, &bottom.lines);
    if let Some((row, column)) = bottom.cursor {
        frame.set_cursor_position((main.x + column, below.y + row));
    }
}

fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'static>]) {
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, row, line, area.width);
    }
}

fn welcome(state: &ScreenState, width: usize) -> Vec<Line<'static>> {
    let strong = state.theme.style(Role::Strong);
    let faint = state.theme.style(Role::Faint);
    let mut lines = vec![Line::default(), Line::styled("Toolhold", strong)];
    let told =
        format!("in {}\nWrite what to do. /help has the keys and commands.", state.directory);
    lines.extend(text(&told, faint, width, "", Breaks::Words));
    lines
}

/// The lines below the transcript.
struct Bottom {
    lines: Vec<Line<'static>>,
    /// Its row and column.
    cursor: Option<(u16, u16)>,
}

impl Bottom {
    fn height(&self) -> u16 {
        u16::try_from(self.lines.len()).unwrap_or(u16::MAX)
    }
}

fn bottom(state: &mut ScreenState, main: Rect, has_panel: bool, now: Duration) -> Bottom {
    let width = usize::from(main.width);
    let height = usize::from(main.height);
    let theme = state.theme;
    let mut lines = Vec::new();
    if !state.transcript.is_at_end() {
        let more = "▼ more below: PageDown";
        lines.push(Line::styled(more, theme.style(Role::Selected)));
    }
    lines.push(Line::styled("─".repeat(width), theme.style(Role::Faint)));
    let is_answering = state.is_answering(now);
    let others = state.questions.len().saturating_sub(1);
    if let Some(dialog) = &state.dialog {
        lines.extend(text(&dialog.text, theme.style(Role::Plain), width, "", Breaks::Words));
        let room = height.saturating_sub(lines.len() + 6).max(2);
        let from = (dialog.chosen + 1).saturating_sub(room);
        for (at, choice) in dialog.choices.iter().enumerate().skip(from).take(room) {
            let is_chosen = at == dialog.chosen;
            let (mark, role) =
                if is_chosen { ("› ", Role::Selected) } else { ("  ", Role::Plain) };
            lines.push(Line::styled(
                format!("{mark}{}", shortened(choice, width - 2)),
                theme.style(role),
            ));
        }
        lines.truncate(height.saturating_sub(4).max(4));
    } else if let Some(question) = state.questions.front_mut() {
        let room = height.saturating_sub(lines.len() + 6).max(2);
        lines.extend(question.lines(width, room, theme));
        let hint = if is_answering {
            question.hint(others)
        } else if state.editor.is_empty() {
            "…".to_owned()
        } else {
            "to answer, first send or delete your text".to_owned()
        };
        let role = if is_answering { Role::Strong } else { Role::Faint };
        lines.push(Line::styled(shortened(&hint, width), theme.style(role)));
    } else if state.popup.is_open() {
        let chosen = state.popup.chosen;
        let from = (chosen + 1).saturating_sub(SHOWN);
        for (at, (offer, meaning)) in state.popup.offers.iter().enumerate().skip(from).take(SHOWN) {
            let is_chosen = at == chosen;
            let (mark, role) =
                if is_chosen { ("› ", Role::Selected) } else { ("  ", Role::Plain) };
            let line = format!("{mark}{offer:12} {meaning}");
            lines.push(Line::styled(shortened(line.trim_end(), width), theme.style(role)));
        }
    }
    for message in state.queued.iter().take(MAX_QUEUED) {
        let line = format!("queued: {}", neutral_line(message));
        lines.push(Line::styled(shortened(&line, width), theme.style(Role::Faint)));
    }
    if state.queued.len() > MAX_QUEUED {
        let more = format!("and {} more", state.queued.len() - MAX_QUEUED);
        lines.push(Line::styled(more, theme.style(Role::Faint)));
    }
    let has_dialog = state.dialog.is_some();
    let question = if has_dialog { None } else { state.questions.front() };
    let (editor, mask) =
        question.and_then(|question| question.typed()).unwrap_or((&state.editor, None));
    let (rows, (row, column)) = editor.rows(width - 2, mask);
    let room = MAX_ROWS.min(height.saturating_sub(lines.len() + 2)).max(1);
    let from = (row + 1).saturating_sub(room);
    let begin = lines.len();
    for (at, text) in rows.iter().enumerate().skip(from).take(room) {
        let mark = if at == 0 { "❯ " } else { "  " };
        lines.push(Line::from_iter([
            Span::styled(mark, theme.style(Role::Person)),
            Span::styled(text.clone(), theme.style(Role::Plain)),
        ]));
    }
    let row = begin + row - from;
    let cursor =
        if has_dialog { None } else { u16::try_from(row).ok().zip(u16::try_from(column + 2).ok()) };
    if !has_panel {
        lines.push(Line::styled(status(state, width, now), theme.style(Role::Faint)));
    }
    Bottom { lines, cursor }
}

/// The facts of the panel, on one line: those that fit.
fn status(state: &ScreenState, width: usize, now: Duration) -> String {
    let mut line = String::new();
    for (name, value) in facts(state, now) {
        let fact = match name {
            "model" | "phase" => value,
            name => format!("{name} {value}"),
        };
        let gap = if line.is_empty() { "" } else { " · " };
        if columns(&line) + columns(gap) + columns(&fact) <= width {
            line.push_str(gap);
            line.push_str(&fact);
        }
    }
    line
}

/// The facts of the session, the most important first.
fn facts(state: &ScreenState, now: Duration) -> Vec<(&'static str, String)> {
    let spent = &state.spent;
    let mut facts = vec![("phase", state.phase_in_words())];
    if !state.model.is_empty() {
        facts.push(("model", state.model.clone()));
    }
    let seconds = state.time(now).as_secs();
    facts.push(("time", format!("{}:{:02}", seconds / 60, seconds % 60)));
    if let Some(fill) = state.fill() {
        facts.push(("context", format!("{fill}%")));
    }
    let read = spent.tokens().saturating_sub(spent.output);
    facts.push(("tokens", format!("{} in, {} out", short(read), short(spent.output))));
    if let Some(hits) = state.cache_hits() {
        facts.push(("cache", format!("{hits}%")));
    }
    if spent.cost > 0.0 {
        facts.push(("cost", format!("{:.4}", spent.cost)));
    }
    facts.push(("turns", state.turns().to_string()));
    let [full, partial, fallback] = state.filtered;
    facts.push(("filters", format!("F{full} P{partial} B{fallback}")));
    facts
}

/// A number in a few digits.
fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

fn put_panel(state: &ScreenState, buffer: &mut Buffer, area: Rect, now: Duration) {
    let theme = state.theme;
    let faint = theme.style(Role::Faint);
    let plain = theme.style(Role::Plain);
    for row in area.y..area.bottom() {
        buffer.set_string(area.x, row, "│", faint);
    }
    let inner = Rect { x: area.x + 2, width: area.width - 2, ..area };
    let width = usize::from(inner.width);
    let mut lines = vec![Line::styled("Toolhold", theme.style(Role::Strong)), Line::default()];
    for (name, value) in facts(state, now) {
        let first = (format!("{name:9}"), faint);
        let rest = (" ".repeat(9), faint);
        lines.extend(wrap(&[(value, plain)], width, &first, &rest, Breaks::Anywhere));
    }
    lines.push(Line::default());
    lines.extend(text(&state.directory, faint, width, "", Breaks::Anywhere));
    lines.extend(text(&state.session, faint, width, "", Breaks::Anywhere));
    put(buffer, inner, &lines);
}

/// The text, cut to the columns.
fn shortened(text: &str, width: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation;
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut column = 0;
    for grapheme in text.graphemes(true) {
        column += columns(grapheme);
        if column + 1 > width {
            break;
        }
        shown.push_str(grapheme);
    }
    format!("{shown}…")
}

impl ScreenState {
    /// The facts of the panel, each on a line.
    pub(crate) fn in_words(&self) -> String {
        let facts = facts(self, self.last_key);
        facts.iter().map(|(name, value)| format!("{name:9} {value}\n")).collect()
    }
}
