//! Draws the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use toolhold_core::text::neutral_line;

use crate::complete::{OFFER_COLUMNS, Popup, SHOWN};
use crate::layout::{Breaks, columns, text, wrap};
use crate::state::{Dialog, ScreenState};
use crate::theme::{Role, Theme};

/// The fewest columns for the screen. A smaller terminal shows only a message.
const MIN_COLUMNS: u16 = 40;

const MIN_LINES: u16 = 10;

/// The fewest columns for the panel. A narrower terminal has a status line instead.
const MIN_COLUMNS_WITH_PANEL: u16 = 110;

const PANEL_COLUMNS: u16 = 32;

/// The most visible lines of the typed message.
const MAX_ROWS: usize = 8;

/// The free lines below a dialog or question, for the hint and the message.
const LINES_BELOW_QUESTION: usize = 6;

/// The fewest lines of a dialog's choices or of a question.
const MIN_QUESTION_LINES: usize = 2;

/// The lines for the message below a dialog.
const LINES_BELOW_DIALOG: usize = 4;

/// The fewest lines to which a dialog is cut.
const MIN_DIALOG_LINES: usize = 4;

/// The lines besides the message that stay free.
const LINES_BESIDES_MESSAGE: usize = 2;

/// The columns of the mark before a choice or a row of the message.
const MARK: usize = 2;

/// The columns of the panel's left bar and the space after it.
const PANEL_BAR: u16 = 2;

/// The columns of a fact's name.
const LABEL_COLUMNS: usize = 9;

/// The most visible messages that wait.
const MAX_QUEUED: usize = 3;

/// Draws the state at the time `now` of the clock that [`ScreenState::apply`] uses.
pub(crate) fn draw(state: &mut ScreenState, frame: &mut Frame<'_>, now: Duration) {
    let area = frame.area();
    state.is_visible = area.width >= MIN_COLUMNS && area.height >= MIN_LINES;
    if !state.is_visible {
        let message = format!(
            "The terminal is too small: it needs {MIN_COLUMNS} columns and {MIN_LINES} lines."
        );
        let style = state.theme.style(Role::Plain);
        let lines = text(&message, style, usize::from(area.width), "", Breaks::Words);
        put(frame.buffer_mut(), area, &lines);
        return;
    }

    let mut main = area;
    let has_panel = area.width >= MIN_COLUMNS_WITH_PANEL;
    if has_panel {
        main.width -= PANEL_COLUMNS;
        let panel = Rect { x: main.width, width: PANEL_COLUMNS, ..area };
        put_panel(state, frame.buffer_mut(), panel, now);
        // Leave one column between the panel and the conversation empty.
        main.width -= 1;
    }

    let bottom = bottom(state, main, has_panel, now);
    let bottom_height = bottom.height().min(main.height);
    let top_area = Rect { height: main.height - bottom_height, ..main };
    let bottom_area = Rect { y: main.y + top_area.height, height: bottom_height, ..main };

    let width = usize::from(main.width);
    let height = usize::from(top_area.height);
    state.shown = (width, height);
    let session = state.session.clone();
    let mut lines = state.transcript.visible(width, height, &session);
    if state.transcript.is_empty() {
        lines = welcome(state, width);
    }

    let buffer = frame.buffer_mut();
    put(buffer, top_area, &lines);
    put(buffer, bottom_area, &bottom.lines);
    if let Some(Cursor { row, column }) = bottom.cursor {
        frame.set_cursor_position((main.x + column, bottom_area.y + row));
    }
}

fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'static>]) {
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, row, line, area.width);
    }
}

/// Returns the lines of an empty chat.
fn welcome(state: &ScreenState, width: usize) -> Vec<Line<'static>> {
    let strong = state.theme.style(Role::Strong);
    let faint = state.theme.style(Role::Faint);
    let mut lines = vec![Line::default(), Line::styled("Toolhold", strong)];
    let mut message = format!("in {}\n", state.directory);
    if !state.model.is_empty() {
        message += &format!("with {}\n", state.model);
    }
    message.push_str("Write what to do. /help has the keys and commands.");
    lines.extend(text(&message, faint, width, "", Breaks::Words));
    lines
}

struct Bottom {
    lines: Vec<Line<'static>>,
    cursor: Option<Cursor>,
}

/// A position in [`Bottom::lines`].
struct Cursor {
    row: u16,
    column: u16,
}

impl Bottom {
    fn height(&self) -> u16 {
        u16::try_from(self.lines.len()).unwrap_or(u16::MAX)
    }
}

/// Lays out everything below the transcript. If there is no panel, the last line is the status.
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

    if let Some(dialog) = &state.dialog {
        push_dialog(&mut lines, dialog, width, height, theme);
    } else if !state.questions.is_empty() {
        push_question(&mut lines, state, width, height, now);
    } else if state.popup.is_open() {
        push_popup(&mut lines, &state.popup, width, theme);
    }

    for message in state.queued.iter().take(MAX_QUEUED) {
        let line = format!("queued: {}", neutral_line(message));
        lines.push(Line::styled(shortened(&line, width), theme.style(Role::Faint)));
    }
    if state.queued.len() > MAX_QUEUED {
        let more = format!("and {} more", state.queued.len() - MAX_QUEUED);
        lines.push(Line::styled(more, theme.style(Role::Faint)));
    }

    let cursor = push_input(&mut lines, state, width, height);
    if !has_panel {
        lines.push(Line::styled(status(state, width, now), theme.style(Role::Faint)));
    }
    Bottom { lines, cursor }
}

fn push_dialog(
    lines: &mut Vec<Line<'static>>,
    dialog: &Dialog,
    width: usize,
    height: usize,
    theme: Theme,
) {
    lines.extend(text(&dialog.text, theme.style(Role::Plain), width, "", Breaks::Words));
    let max_choices =
        height.saturating_sub(lines.len() + LINES_BELOW_QUESTION).max(MIN_QUESTION_LINES);
    // The choices are scrolled so that the chosen choice is visible.
    let first = (dialog.chosen + 1).saturating_sub(max_choices);
    for (index, choice) in dialog.choices.iter().enumerate().skip(first).take(max_choices) {
        let (mark, role) = choice_look(index == dialog.chosen);
        let line = format!("{mark}{}", shortened(choice, width - MARK));
        lines.push(Line::styled(line, theme.style(role)));
    }
    // The message stays visible below the dialog.
    lines.truncate(height.saturating_sub(LINES_BELOW_DIALOG).max(MIN_DIALOG_LINES));
}

fn choice_look(is_chosen: bool) -> (&'static str, Role) {
    if is_chosen { ("› ", Role::Selected) } else { ("  ", Role::Plain) }
}

/// Adds the first question and the hint about its keys.
fn push_question(
    lines: &mut Vec<Line<'static>>,
    state: &mut ScreenState,
    width: usize,
    height: usize,
    now: Duration,
) {
    let theme = state.theme;
    let is_answering = state.is_answering(now);
    let others = state.questions.len().saturating_sub(1);
    let Some(question) = state.questions.front_mut() else { return };

    let question_lines =
        height.saturating_sub(lines.len() + LINES_BELOW_QUESTION).max(MIN_QUESTION_LINES);
    lines.extend(question.lines(width, question_lines, theme));
    let hint = if is_answering {
        question.hint(others)
    } else if state.editor.is_empty() {
        "…".to_owned()
    } else {
        "to answer, first send or delete your text".to_owned()
    };
    let role = if is_answering { Role::Strong } else { Role::Faint };
    lines.push(Line::styled(shortened(&hint, width), theme.style(role)));
}

/// Adds the visible completions, including the chosen completion.
fn push_popup(lines: &mut Vec<Line<'static>>, popup: &Popup, width: usize, theme: Theme) {
    // The completions are scrolled so that the chosen completion is visible.
    let first = (popup.chosen + 1).saturating_sub(SHOWN);
    for (index, (offer, meaning)) in popup.offers.iter().enumerate().skip(first).take(SHOWN) {
        let (mark, role) = choice_look(index == popup.chosen);
        let line = format!("{mark}{offer:OFFER_COLUMNS$} {meaning}");
        lines.push(Line::styled(shortened(line.trim_end(), width), theme.style(role)));
    }
}

/// Adds the typed text. Returns the cursor, or `None` if no text can be typed.
fn push_input(
    lines: &mut Vec<Line<'static>>,
    state: &ScreenState,
    width: usize,
    height: usize,
) -> Option<Cursor> {
    let theme = state.theme;
    let has_dialog = state.dialog.is_some();
    let question = if has_dialog { None } else { state.questions.front() };
    let answer = question.and_then(|question| question.typed());
    let (editor, mask) = answer.unwrap_or((&state.editor, None));

    let rows = editor.rows(width - MARK, mask);
    let free_lines = height.saturating_sub(lines.len() + LINES_BESIDES_MESSAGE);
    let max_rows = MAX_ROWS.min(free_lines).max(1);
    // The rows are scrolled so that the cursor is visible.
    let first = (rows.cursor_row + 1).saturating_sub(max_rows);
    let cursor_row = lines.len() + rows.cursor_row - first;
    for (index, text) in rows.texts.into_iter().enumerate().skip(first).take(max_rows) {
        let mark = if index == 0 { "❯ " } else { "  " };
        lines.push(Line::from_iter([
            Span::styled(mark, theme.style(Role::Person)),
            Span::styled(text, theme.style(Role::Plain)),
        ]));
    }

    if has_dialog {
        return None;
    }
    let row = u16::try_from(cursor_row).ok()?;
    let column = u16::try_from(MARK + rows.cursor_column).ok()?;
    Some(Cursor { row, column })
}

/// Returns facts on one line. Cost and turns are always shown. Other facts are left out if they
/// don't fit, the least important first.
fn status(state: &ScreenState, width: usize, now: Duration) -> String {
    const GAP: &str = " · ";
    let mut line_facts = Vec::new();
    for (name, value) in facts(state, now) {
        let fact = match name {
            "model" | "phase" => value,
            name => format!("{name} {value}"),
        };
        let comes_first = matches!(name, "cost" | "turns");
        line_facts.push((fact, comes_first));
    }

    // Each fact is counted with the gap after it, but the last fact needs no gap.
    let max_columns = width + columns(GAP);
    let mut used = 0;
    let mut is_shown = vec![false; line_facts.len()];
    // The first pass is for cost and turns.
    for is_first_pass in [true, false] {
        for (index, (fact, comes_first)) in line_facts.iter().enumerate() {
            let needed = columns(fact) + columns(GAP);
            if *comes_first == is_first_pass && used + needed <= max_columns {
                used += needed;
                is_shown[index] = true;
            }
        }
    }

    let mut shown = Vec::new();
    for (index, (fact, _)) in line_facts.iter().enumerate() {
        if is_shown[index] {
            shown.push(fact.as_str());
        }
    }
    shown.join(GAP)
}

/// Returns facts about the chat with their names, the most important first.
fn facts(state: &ScreenState, now: Duration) -> Vec<(&'static str, String)> {
    let spent = &state.spent;
    let mut facts = vec![("phase", state.phase_in_words())];
    if !state.model.is_empty() {
        facts.push(("model", state.model.clone()));
    }
    let seconds = state.time(now).as_secs();
    facts.push(("time", format!("{}:{:02}", seconds / 60, seconds % 60)));
    if let Some(fill) = state.context_fill() {
        facts.push(("context", format!("{fill}%")));
    }
    let read = short(spent.tokens().saturating_sub(spent.output));
    let written = short(spent.output);
    facts.push(("tokens", format!("{read} in, {written} out")));
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

fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// Draws the panel on the right.
fn put_panel(state: &ScreenState, buffer: &mut Buffer, area: Rect, now: Duration) {
    let theme = state.theme;
    let faint = theme.style(Role::Faint);
    let plain = theme.style(Role::Plain);
    for row in area.y..area.bottom() {
        buffer.set_string(area.x, row, "│", faint);
    }
    let inner = Rect { x: area.x + PANEL_BAR, width: area.width - PANEL_BAR, ..area };
    let width = usize::from(inner.width);
    let mut lines = vec![Line::styled("Toolhold", theme.style(Role::Strong)), Line::default()];
    for (name, value) in facts(state, now) {
        let label = format!("{name:LABEL_COLUMNS$}");
        let indent = " ".repeat(columns(&label));
        let pieces = [(value, plain)];
        lines.extend(wrap(&pieces, width, &(label, faint), &(indent, faint), Breaks::Words));
    }
    lines.push(Line::default());
    lines.extend(text(&state.directory, faint, width, "", Breaks::Anywhere));
    lines.extend(text(&state.session, faint, width, "", Breaks::Anywhere));
    put(buffer, inner, &lines);
}

/// Cuts a text to `width` columns, with an ellipsis at the end of a cut text.
fn shortened(text: &str, width: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation;
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut column = 0;
    for grapheme in text.graphemes(true) {
        column += columns(grapheme);
        // One column is for the ellipsis.
        if column + 1 > width {
            break;
        }
        shown.push_str(grapheme);
    }
    format!("{shown}…")
}

impl ScreenState {
    pub(crate) fn in_words(&self) -> String {
        let facts = facts(self, self.last_key);
        facts.iter().map(|(name, value)| format!("{name:LABEL_COLUMNS$} {value}\n")).collect()
    }

    pub(crate) fn cost_in_words(&self) -> String {
        let mut text = String::new();
        // Any time will do, because the time only matters for facts that are left out here.
        for (name, value) in facts(self, self.last_key) {
            if matches!(name, "tokens" | "cache" | "cost" | "turns") {
                text.push_str(&format!("{name:LABEL_COLUMNS$} {value}\n"));
            }
        }
        let has_cost = self.spent.cost > 0.0;
        if !has_cost {
            text.push_str("cost      no prices: set the prices in [providers.NAME.prices]\n");
        }
        text
    }
}
