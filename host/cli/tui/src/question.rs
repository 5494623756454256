//! Questions on the screen, and the keys that answer them.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Style;
use ratatui::text::Line;
use serde_json::{Map, Value};
use toolhold_agent::WiderApproval;
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{InquiryAnswer, Reply, Scope};
use toolhold_terminal::inquiry::{FormField, form_fields};

use crate::call::diff_role;
use crate::editor::Editor;
use crate::layout::{Breaks, wrap};
use crate::theme::{Role, Theme};

/// A key answers a question only if no other key was typed for this time, because a key right after
/// another key may be meant for a message.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

/// The approver's name in the audit log.
const BY: &str = "terminal";

/// The prefix of a diff's lines.
const BAR: &str = "  │ ";

#[derive(Debug)]
pub(crate) struct OpenQuestion {
    pub(crate) id: String,
    pub(crate) call: String,
    text: String,
    kind: Kind,
    stage: Stage,
    /// The time at which the question became visible.
    pub(crate) visible_since: Option<Duration>,
    scrolled: usize,
}

#[derive(Debug)]
enum Kind {
    Approval {
        /// The rule that a permanent approval writes, if the call can be approved permanently.
        rule: Option<String>,
        /// Approvals that also cover other calls.
        wider_approvals: Vec<WiderApproval>,
    },
    Inquiry {
        /// The tool's unchanged text.
        original: String,
        /// The fields of the answer. If there are none, the tool asks the person to open an
        /// address.
        fields: Vec<FormField>,
    },
}

#[derive(Debug)]
enum Stage {
    Choosing,
    /// Enter approves, and another letter starts a message. A message may start with any letter, so
    /// one key isn't enough for an answer.
    Confirm(Scope, char),
    /// The person types the reason of a denial.
    Reason(Editor),
    Field {
        index: usize,
        /// The values of earlier fields.
        content: Map<String, Value>,
        editor: Editor,
        /// The error of the last answer, or an empty string.
        error: String,
    },
}

#[derive(Debug, PartialEq)]
pub(crate) enum QuestionReply {
    Approval(Reply),
    /// The tool's unchanged text, with the answer. The text identifies the question, because the
    /// asker knows no ID of the question.
    Inquiry(String, InquiryAnswer),
}

impl OpenQuestion {
    /// Makes the question about the approval of a call. A permanent approval writes `rule`. Without
    /// a rule, the call can't be approved permanently.
    pub(crate) fn approval(
        id: String,
        call: String,
        caller: Option<&str>,
        text: &str,
        rule: Option<String>,
    ) -> Self {
        let mut shown = String::new();
        // Most texts already contain the caller's name.
        if let Some(caller) = caller
            && !text.contains(caller)
        {
            shown = format!("asked by {}\n", neutral_line(caller));
        }
        shown += &neutral(text);
        let rule = rule.map(|rule| neutral(&rule).into_owned());
        Self::new(id, call, shown, Kind::Approval { rule, wider_approvals: Vec::new() })
    }

    /// Adds approvals that also cover other calls.
    pub(crate) fn offering(mut self, approvals: Vec<WiderApproval>) -> Self {
        if let Kind::Approval { wider_approvals, .. } = &mut self.kind {
            *wider_approvals = approvals;
        }
        self
    }

    pub(crate) fn inquiry(id: String, call: String, text: String, form: Option<&Value>) -> Self {
        let shown = neutral(&text).into_owned();
        let fields = form.map(form_fields).unwrap_or_default();
        Self::new(id, call, shown, Kind::Inquiry { original: text, fields })
    }

    fn new(id: String, call: String, text: String, kind: Kind) -> Self {
        Self { id, call, text, kind, stage: Stage::Choosing, visible_since: None, scrolled: 0 }
    }

    /// Returns the editor of a reason or a field.
    pub(crate) fn editor(&mut self) -> Option<&mut Editor> {
        match &mut self.stage {
            Stage::Reason(editor) | Stage::Field { editor, .. } => Some(editor),
            Stage::Choosing | Stage::Confirm(..) => None,
        }
    }

    /// Returns the text that the person types, and the character that hides a secret.
    pub(crate) fn typed(&self) -> Option<(&Editor, Option<char>)> {
        match (&self.stage, &self.kind) {
            (Stage::Reason(editor), _) => Some((editor, None)),
            (Stage::Field { index, editor, .. }, Kind::Inquiry { fields, .. }) => {
                let is_secret = fields.get(*index).is_some_and(FormField::is_secret);
                let mask = if is_secret { Some('•') } else { None };
                Some((editor, mask))
            }
            _ => None,
        }
    }

    /// Handles a key. Returns the reply if the question is answered.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        match key.code {
            KeyCode::Up if self.editor().is_none() => {
                self.scrolled = self.scrolled.saturating_sub(1);
                None
            }
            KeyCode::Down if self.editor().is_none() => {
                self.scrolled += 1;
                None
            }
            KeyCode::Enter => self.enter(),
            _ => self.choose(key),
        }
    }

    /// Handles Enter, which confirms an approval or sends the typed text. Returns the reply if the
    /// question is answered.
    fn enter(&mut self) -> Option<QuestionReply> {
        match &mut self.stage {
            Stage::Choosing => None,
            Stage::Confirm(scope, _) => {
                let approval = Reply::Yes { scope: *scope, by: BY.to_owned() };
                Some(QuestionReply::Approval(approval))
            }
            Stage::Reason(editor) => {
                let reason = editor.take().trim().to_owned();
                Some(QuestionReply::Approval(Reply::No { by: BY.to_owned(), reason }))
            }
            Stage::Field { index, content, editor, error } => {
                let Kind::Inquiry { fields, .. } = &self.kind else { return None };
                let field = fields.get(*index)?;
                match field.read(editor.text().trim()) {
                    Ok(value) => {
                        let next_index = *index + 1;
                        let mut content = std::mem::take(content);
                        if let Some(value) = value {
                            content.insert(field.name().to_owned(), value);
                        }
                        self.go_to_field(next_index, content)
                    }
                    Err(answer_error) => {
                        *error = answer_error.to_string();
                        None
                    }
                }
            }
        }
    }

    /// Handles Tab, and the letter of an answer. Returns the reply if the question is answered.
    fn choose(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        match &self.stage {
            Stage::Choosing => {}
            // Tab changes to the next wider approval. Any other key goes back.
            Stage::Confirm(scope, letter) => {
                self.stage = match self.scope_after(*scope) {
                    Some(next_scope) if key.code == KeyCode::Tab => {
                        Stage::Confirm(next_scope, *letter)
                    }
                    _ => Stage::Choosing,
                };
                return None;
            }
            Stage::Reason(_) | Stage::Field { .. } => return None,
        }

        let KeyCode::Char(letter) = key.code else { return None };
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return None;
        }
        match (letter.to_ascii_lowercase(), &self.kind) {
            ('y', Kind::Approval { .. }) => self.stage = Stage::Confirm(Scope::Once, 'y'),
            ('s', Kind::Approval { .. }) => self.stage = Stage::Confirm(Scope::Session, 's'),
            ('a', Kind::Approval { rule: Some(_), .. }) => {
                self.stage = Stage::Confirm(Scope::Always, 'a');
            }
            ('n', Kind::Approval { .. }) => self.stage = Stage::Reason(Editor::default()),
            ('y', Kind::Inquiry { .. }) => return self.go_to_field(0, Map::new()),
            ('n', Kind::Inquiry { original, .. }) => {
                let declined = InquiryAnswer::Declined { by: BY.to_owned() };
                return Some(QuestionReply::Inquiry(original.clone(), declined));
            }
            _ => {}
        }
        None
    }

    /// Returns the scope that Tab chooses: the next wider scope or, after the widest, the
    /// narrowest. Returns `None` if there is no other scope.
    fn scope_after(&self, scope: Scope) -> Option<Scope> {
        let first = match scope {
            Scope::Once => return None,
            Scope::Session | Scope::SessionTool | Scope::SessionSource => Scope::Session,
            Scope::Always | Scope::AlwaysTool | Scope::AlwaysSource => Scope::Always,
        };
        let Kind::Approval { wider_approvals, .. } = &self.kind else { return None };
        let mut scopes = vec![first];
        for approval in wider_approvals {
            if approval.scope.is_permanent() == first.is_permanent() {
                scopes.push(approval.scope);
            }
        }
        if scopes.len() == 1 {
            return None;
        }
        let index = scopes.iter().position(|known| *known == scope)?;
        // After the last scope, the first scope follows.
        Some(scopes.get(index + 1).copied().unwrap_or(first))
    }

    /// Describes the calls that an approval covers, or the rule that it writes.
    fn scope_text(&self, scope: Scope) -> Option<&str> {
        let Kind::Approval { wider_approvals, .. } = &self.kind else { return None };
        let approval = wider_approvals.iter().find(|approval| approval.scope == scope)?;
        Some(&approval.text)
    }

    /// Checks whether a key is for the question. All other keys belong to the message.
    pub(crate) fn uses(&self, key: KeyEvent) -> bool {
        let KeyCode::Char(letter) = key.code else {
            let is_scrolling = matches!(key.code, KeyCode::Up | KeyCode::Down);
            return is_scrolling || !self.is_choosing();
        };
        match (&self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { rule, .. }) => match letter.to_ascii_lowercase() {
                'y' | 's' | 'n' => true,
                'a' => rule.is_some(),
                _ => false,
            },
            (Stage::Choosing, Kind::Inquiry { .. }) => {
                matches!(letter.to_ascii_lowercase(), 'y' | 'n')
            }
            // The person confirms an approval or types an answer.
            _ => true,
        }
    }

    fn is_choosing(&self) -> bool {
        matches!(self.stage, Stage::Choosing)
    }

    /// Returns the letter that waits for Enter, and cancels its answer. The letter then becomes the
    /// start of a message.
    pub(crate) fn take_letter(&mut self) -> Option<char> {
        let Stage::Confirm(_, letter) = self.stage else { return None };
        self.stage = Stage::Choosing;
        Some(letter)
    }

    /// Goes back to the first choice. Returns `false` if this is already the first choice.
    pub(crate) fn go_back(&mut self) -> bool {
        if self.is_choosing() {
            return false;
        }
        self.stage = Stage::Choosing;
        true
    }

    /// Asks for the field at `index`, or returns the answer after the last field.
    fn go_to_field(&mut self, index: usize, content: Map<String, Value>) -> Option<QuestionReply> {
        let Kind::Inquiry { original, fields } = &self.kind else { return None };
        if index >= fields.len() {
            let accepted = InquiryAnswer::Accepted { content, by: BY.to_owned() };
            return Some(QuestionReply::Inquiry(original.clone(), accepted));
        }
        let editor = Editor::default();
        let error = String::new();
        self.stage = Stage::Field { index, content, editor, error };
        None
    }

    /// Returns the hint about the keys, and about the number of other questions.
    pub(crate) fn hint(&self, others: usize) -> String {
        let more = match others {
            0 => String::new(),
            others => format!(" · {others} more to answer"),
        };
        let keys = match (&self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { rule: Some(_), .. }) => {
                "y once · s this session · a always · n no, then Enter"
            }
            (Stage::Choosing, Kind::Approval { rule: None, .. }) => {
                "y once · s this session · n no, then Enter"
            }
            (Stage::Choosing, Kind::Inquiry { .. }) => "y answer the question · n no",
            (Stage::Confirm(Scope::Once, _), _) => "Enter approves it once · Esc goes back",
            (Stage::Confirm(Scope::Session, _), _) => {
                "Enter approves the same call for this session · Esc goes back"
            }
            (Stage::Confirm(scope, _), _) if scope.is_permanent() => {
                "Enter writes this rule · Esc goes back"
            }
            (Stage::Confirm(..), _) => "Enter approves these calls · Esc goes back",
            (Stage::Reason(_), _) => "say why, or what to do instead · Enter sends · Esc goes back",
            (Stage::Field { .. }, _) => "Enter answers · Esc goes back",
        };
        let mut tab = "";
        if let Stage::Confirm(scope, _) = self.stage
            && self.scope_after(scope).is_some()
        {
            tab = " · Tab covers more calls";
        }
        format!("{keys}{tab}{more}")
    }

    pub(crate) fn lines(
        &mut self,
        width: usize,
        height: usize,
        theme: Theme,
    ) -> Vec<Line<'static>> {
        let mut lines = self.text_lines(width, theme);
        lines.extend(self.stage_lines(width, theme));
        self.visible_part(lines, height, theme)
    }

    /// Lays out the text of the question. Diffs have colours.
    fn text_lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let mut is_change = false;
        for (index, line) in self.text.lines().enumerate() {
            let after_bar = line.strip_prefix(BAR);
            if line == "  change:" {
                is_change = true;
            } else if after_bar.is_none() {
                is_change = false;
            }
            let role = match after_bar {
                Some(diff_line) if is_change => diff_role(diff_line),
                _ if index == 0 => Role::Warning,
                _ => Role::Plain,
            };
            lines.extend(question_line(line, theme.style(role), width));
        }
        lines
    }

    /// Lays out what Enter approves, or the field of a form.
    fn stage_lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        match (&self.stage, &self.kind) {
            (Stage::Confirm(Scope::Always, _), Kind::Approval { rule: Some(rule), .. }) => {
                for line in rule.lines() {
                    lines.extend(question_line(line, theme.style(Role::Warning), width));
                }
            }
            (Stage::Confirm(scope, _), _) => {
                // An approval of a single call has no text.
                let text = neutral(self.scope_text(*scope).unwrap_or_default());
                for line in text.lines() {
                    lines.extend(question_line(line, theme.style(Role::Warning), width));
                }
            }
            (Stage::Field { index, error, .. }, Kind::Inquiry { fields, .. }) => {
                if let Some(field) = fields.get(*index) {
                    for line in field.lines() {
                        lines.extend(question_line(&line, theme.style(Role::Plain), width));
                    }
                    let style = theme.style(Role::Strong);
                    lines.extend(question_line(&field.question(), style, width));
                }
                if !error.is_empty() {
                    lines.extend(question_line(error, theme.style(Role::Bad), width));
                }
            }
            _ => {}
        }
        lines
    }

    /// Cuts `lines` to `height`. If lines are cut, the last line shows the scroll position.
    fn visible_part(
        &mut self,
        mut lines: Vec<Line<'static>>,
        height: usize,
        theme: Theme,
    ) -> Vec<Line<'static>> {
        let count = lines.len();
        if count <= height {
            self.scrolled = 0;
            return lines;
        }

        // The scroll position takes one line.
        let text_height = height.saturating_sub(1);
        let max_scrolled = count - text_height;
        if self.is_choosing() {
            self.scrolled = self.scrolled.min(max_scrolled);
        } else {
            // After the first choice, the end must be visible, for example the rule.
            self.scrolled = max_scrolled;
        }
        let end = (self.scrolled + text_height).min(count);
        let mut visible: Vec<_> = lines.drain(self.scrolled..end).collect();

        let first = self.scrolled + 1;
        let position = format!("lines {first} to {end} of {count}: Up and Down scroll");
        visible.push(Line::styled(position, theme.style(Role::Selected)));
        visible
    }
}

/// Lays out one line of a question. If the line starts with a bar, each of its rows does.
fn question_line(text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let none = (String::new(), style);
    let bar = (BAR.to_owned(), style);
    let indent = if text.starts_with(BAR) { &bar } else { &none };
    wrap(&[(text.to_owned(), style)], width, &none, indent, Breaks::Anywhere)
}
