//! Questions on the screen. Decides which key answers a question, and whether a key belongs to a
//! message.

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

/// How long no key must have been typed before a key is an answer. Earlier keys were meant for
/// something else.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

/// The name of the answerer.
const BY: &str = "terminal";

/// The start of each line of a change.
const BAR: &str = "  │ ";

/// A question.
#[derive(Debug)]
pub(crate) struct OpenQuestion {
    pub(crate) id: String,
    pub(crate) call: String,
    text: String,
    kind: Kind,
    stage: Stage,
    /// The time from which the person can see the question.
    pub(crate) visible_since: Option<Duration>,
    /// Lines that are scrolled away.
    scrolled: usize,
}

#[derive(Debug)]
enum Kind {
    /// `rule` is the rule that a permanent approval would write.
    /// `wider` has the approvals of more calls.
    Approval { rule: Option<String>, wider: Vec<WiderApproval> },
    /// The fields of a form. Without fields, the person has to open an address. `original`: the
    /// text as the tool asked it.
    Inquiry { original: String, fields: Vec<FormField> },
}

#[derive(Debug)]
enum Stage {
    Choosing,
    /// Enter approves, and any other letter starts a message. An answer needs two keys, because a
    /// message can begin with any letter.
    Confirm(Scope, char),
    /// The person gives the reason for a refusal.
    Reason(Editor),
    /// A field of the form.
    Field {
        index: usize,
        /// The values of the fields before.
        content: Map<String, Value>,
        editor: Editor,
        /// The error in the last answer, or an empty string.
        error: String,
    },
}

/// An answer of the person.
#[derive(Debug, PartialEq)]
pub(crate) enum QuestionReply {
    Approval(Reply),
    /// The text of the question, and its answer. The asker doesn't know the question's ID.
    Inquiry(String, InquiryAnswer),
}

impl OpenQuestion {
    pub(crate) fn approval(
        id: String,
        call: String,
        caller: Option<&str>,
        text: &str,
        rule: Option<String>,
    ) -> Self {
        let mut shown = String::new();
        // Most texts name the caller already.
        if let Some(caller) = caller
            && !text.contains(caller)
        {
            shown = format!("asked by {}\n", neutral_line(caller));
        }
        shown += &neutral(text);
        let rule = rule.map(|rule| neutral(&rule).into_owned());
        Self::new(id, call, shown, Kind::Approval { rule, wider: Vec::new() })
    }

    /// Adds the approvals of more calls than this one.
    pub(crate) fn offering(mut self, approvals: Vec<WiderApproval>) -> Self {
        if let Kind::Approval { wider, .. } = &mut self.kind {
            *wider = approvals;
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

    /// Returns the editor that keys go to, or `None` if no text can be typed.
    pub(crate) fn editor(&mut self) -> Option<&mut Editor> {
        match &mut self.stage {
            Stage::Reason(editor) | Stage::Field { editor, .. } => Some(editor),
            Stage::Choosing | Stage::Confirm(..) => None,
        }
    }

    /// Returns the text that the person types, and the character that hides each character of a
    /// secret.
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

    /// Handles a key. Returns `None` if the question isn't answered yet.
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

    /// Handles Enter, which completes a stage.
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
                        let next = *index + 1;
                        let mut content = std::mem::take(content);
                        if let Some(value) = value {
                            content.insert(field.name().to_owned(), value);
                        }
                        self.go_to_field(next, content)
                    }
                    Err(answer_error) => {
                        *error = answer_error.to_string();
                        None
                    }
                }
            }
        }
    }

    /// Handles a key that isn't Enter: a letter chooses an answer.
    fn choose(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        match &self.stage {
            Stage::Choosing => {}
            Stage::Confirm(scope, letter) => {
                let next = if key.code == KeyCode::Tab { self.next_wider(*scope) } else { None };
                self.stage = match next {
                    Some(next) => Stage::Confirm(next, *letter),
                    None => Stage::Choosing,
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

    /// Returns the approval that Tab goes on to: the next one that lasts as long and covers more, or
    /// again the narrowest one. Returns `None` if the question offers only one.
    fn next_wider(&self, scope: Scope) -> Option<Scope> {
        let first = match scope {
            Scope::Once => return None,
            Scope::Session | Scope::SessionTool | Scope::SessionSource => Scope::Session,
            Scope::Always | Scope::AlwaysTool | Scope::AlwaysSource => Scope::Always,
        };
        let Kind::Approval { wider, .. } = &self.kind else { return None };
        let mut scopes = vec![first];
        for approval in wider {
            if approval.scope.is_permanent() == first.is_permanent() {
                scopes.push(approval.scope);
            }
        }
        if scopes.len() == 1 {
            return None;
        }
        let at = scopes.iter().position(|known| *known == scope)?;
        Some(scopes[(at + 1) % scopes.len()])
    }

    /// Returns what a wider approval covers, or the rule that it writes.
    fn wider_text(&self, scope: Scope) -> Option<&str> {
        let Kind::Approval { wider, .. } = &self.kind else { return None };
        wider.iter().find(|approval| approval.scope == scope).map(|approval| &*approval.text)
    }

    /// Checks whether a key is for the question. Any other key writes a message.
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
            _ => true,
        }
    }

    fn is_choosing(&self) -> bool {
        matches!(self.stage, Stage::Choosing)
    }

    /// Takes back the letter that waits for Enter. If another letter follows, both start a message.
    pub(crate) fn take_letter(&mut self) -> Option<char> {
        let Stage::Confirm(_, letter) = self.stage else { return None };
        self.stage = Stage::Choosing;
        Some(letter)
    }

    /// Goes back to the choice. Returns `false` if the person is choosing already.
    pub(crate) fn go_back(&mut self) -> bool {
        if self.is_choosing() {
            return false;
        }
        self.stage = Stage::Choosing;
        true
    }

    /// Asks for a field. If there are no more fields, returns the answer.
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

    /// Describes the keys that answer the question. `others` is the number of further questions.
    pub(crate) fn hint(&self, others: usize) -> String {
        let more = match others {
            0 => String::new(),
            others => format!(" · {others} more to answer"),
        };
        let keys = match (&self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { rule: Some(_), .. }) => {
                "y once · s this session · a always, then Enter · n no"
            }
            (Stage::Choosing, Kind::Approval { rule: None, .. }) => {
                "y once · s this session, then Enter · n no"
            }
            (Stage::Choosing, Kind::Inquiry { .. }) => "y answer it · n no",
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
        let widens = match self.stage {
            Stage::Confirm(scope, _) => self.next_wider(scope).is_some(),
            _ => false,
        };
        let tab = if widens { " · Tab covers more calls" } else { "" };
        format!("{keys}{tab}{more}")
    }

    /// Lays out the question in at most `height` lines.
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

    /// Lays out the rule that Enter would write, or the field that the person fills in.
    fn stage_lines(&self, width: usize, theme: Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        match (&self.stage, &self.kind) {
            (Stage::Confirm(Scope::Always, _), Kind::Approval { rule: Some(rule), .. }) => {
                let style = theme.style(Role::Warning);
                lines.extend(rule.lines().flat_map(|line| question_line(line, style, width)));
            }
            (Stage::Confirm(scope, _), _) => {
                let style = theme.style(Role::Warning);
                let text = neutral(self.wider_text(*scope).unwrap_or_default());
                lines.extend(text.lines().flat_map(|line| question_line(line, style, width)));
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

    /// Returns the visible lines. A last line has the scroll position.
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

        let room = height.saturating_sub(1);
        let max_scrolled = count - height + 1;
        // A later stage adds its lines at the end, and the person must see them.
        self.scrolled =
            if self.is_choosing() { self.scrolled.min(max_scrolled) } else { max_scrolled };
        let end = (self.scrolled + room).min(count);
        let mut visible: Vec<_> = lines.drain(self.scrolled..end).collect();

        let first = self.scrolled + 1;
        let position = format!("lines {first} to {end} of {count}: Up and Down scroll");
        visible.push(Line::styled(position, theme.style(Role::Selected)));
        visible
    }
}

/// Lays out one line of a text. If the line begins with a bar, all its rows begin with a bar.
fn question_line(text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let none = (String::new(), style);
    let bar = (BAR.to_owned(), style);
    let indent = if text.starts_with(BAR) { &bar } else { &none };
    wrap(&[(text.to_owned(), style)], width, &none, indent, Breaks::Anywhere)
}
