//! Questions on the screen: which key answers one, and when a key is still typing.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Style;
use ratatui::text::Line;
use serde_json::{Map, Value};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{InquiryAnswer, Reply, Scope};
use toolhold_terminal::inquiry::{FormField, form_fields};

use crate::editor::Editor;
use crate::layout::{Breaks, wrap};
use crate::theme::{Role, Theme};

/// Time without a key after which a key is an answer. Keys before that were meant for something
/// else.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

/// The name of the answerer.
const BY: &str = "terminal";

/// A question.
#[derive(Debug)]
pub(crate) struct OpenQuestion {
    pub(crate) id: String,
    pub(crate) call: String,
    text: String,
    kind: Kind,
    stage: Stage,
    /// The time from which the person can see the question.
    pub(crate) since: Option<Duration>,
    /// Lines that are scrolled away.
    scrolled: usize,
}

#[derive(Debug)]
enum Kind {
    /// `always`: the rule that a permanent approval would write.
    Approval { always: Option<String> },
    /// The fields of a form. Without fields, the person is to open an address.
    Inquiry { asked: String, fields: Vec<FormField> },
}

#[derive(Debug)]
enum Stage {
    Choosing,
    /// Enter approves; another letter starts a message.
    Confirm(Scope, char),
    /// The person says why not.
    Reason(Editor),
    /// A field of the form.
    Field {
        at: usize,
        content: Map<String, Value>,
        editor: Editor,
        wrong: String,
    },
}

/// An answer of the person.
#[derive(Debug, PartialEq)]
pub(crate) enum QuestionReply {
    Approval(Reply),
    /// With the text of the question, since it has no ID where it is asked.
    Inquiry(String, InquiryAnswer),
}

impl OpenQuestion {
    pub(crate) fn approval(
        id: String,
        call: String,
        caller: Option<&str>,
        text: &str,
        always: Option<String>,
    ) -> Self {
        // The text names the caller, unless it comes from elsewhere.
        let caller = caller
            .filter(|caller| !text.contains(*caller))
            .map_or(String::new(), |it| format!("asked by {}\n", neutral_line(it)));
        let text = format!("{caller}{}", neutral(text));
        let kind = Kind::Approval { always: always.map(|text| neutral(&text).into_owned()) };
        Self { id, call, text, kind, stage: Stage::Choosing, since: None, scrolled: 0 }
    }

    pub(crate) fn inquiry(id: String, call: String, text: String, form: Option<&Value>) -> Self {
        let shown = neutral(&text).into_owned();
        let fields = form.map(form_fields).unwrap_or_default();
        let kind = Kind::Inquiry { asked: text, fields };
        Self { id, call, text: shown, kind, stage: Stage::Choosing, since: None, scrolled: 0 }
    }

    /// The editor that keys go to.
    pub(crate) fn editor(&mut self) -> Option<&mut Editor> {
        match &mut self.stage {
            Stage::Reason(editor) | Stage::Field { editor, .. } => Some(editor),
            Stage::Choosing | Stage::Confirm(..) => None,
        }
    }

    /// The text that the person types, with the mask of its characters.
    pub(crate) fn typed(&self) -> Option<(&Editor, Option<char>)> {
        match (&self.stage, &self.kind) {
            (Stage::Reason(editor), _) => Some((editor, None)),
            (Stage::Field { at, editor, .. }, Kind::Inquiry { fields, .. }) => {
                let is_secret = fields.get(*at).is_some_and(FormField::is_secret);
                Some((editor, is_secret.then_some('•')))
            }
            _ => None,
        }
    }

    /// Takes a key. `None`: the question isn't answered yet.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<QuestionReply> {
        match key.code {
            KeyCode::Up if self.editor().is_none() => {
                self.scrolled = self.scrolled.saturating_sub(1);
                return None;
            }
            KeyCode::Down if self.editor().is_none() => {
                self.scrolled += 1;
                return None;
            }
            _ => {}
        }
        let letter = match key.code {
            KeyCode::Char(letter)
                if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                Some(letter.to_ascii_lowercase())
            }
            _ => None,
        };
        match (&mut self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { always }) => match letter? {
                'y' => self.stage = Stage::Confirm(Scope::Once, 'y'),
                's' => self.stage = Stage::Confirm(Scope::Session, 's'),
                'a' if always.is_some() => self.stage = Stage::Confirm(Scope::Always, 'a'),
                'n' => self.stage = Stage::Reason(Editor::default()),
                _ => {}
            },
            (Stage::Choosing, Kind::Inquiry { asked, .. }) => match letter? {
                'y' => return self.next_field(0, Map::new()),
                'n' => {
                    let declined = InquiryAnswer::Declined { by: BY.to_owned() };
                    return Some(QuestionReply::Inquiry(asked.clone(), declined));
                }
                _ => {}
            },
            // A message can begin with any letter, so one key isn't enough.
            (Stage::Confirm(scope, _), _) => match key.code {
                KeyCode::Enter => return Some(yes(*scope)),
                _ => self.stage = Stage::Choosing,
            },
            (Stage::Reason(editor), _) if key.code == KeyCode::Enter => {
                let reason = editor.take().trim().to_owned();
                return Some(QuestionReply::Approval(Reply::No { by: BY.to_owned(), reason }));
            }
            (Stage::Field { at, content, editor, wrong }, Kind::Inquiry { fields, .. })
                if key.code == KeyCode::Enter =>
            {
                let field = fields.get(*at)?;
                match field.read(editor.text().trim()) {
                    Ok(value) => {
                        let next = *at + 1;
                        let mut content = std::mem::take(content);
                        if let Some(value) = value {
                            content.insert(field.name().to_owned(), value);
                        }
                        return self.next_field(next, content);
                    }
                    Err(error) => *wrong = error.to_string(),
                }
            }
            _ => {}
        }
        None
    }

    /// Whether the question uses a key. Any other key is typing.
    pub(crate) fn takes(&self, key: KeyEvent) -> bool {
        let letter = match key.code {
            KeyCode::Char(letter) => letter.to_ascii_lowercase(),
            code => {
                return !matches!(self.stage, Stage::Choosing)
                    || matches!(code, KeyCode::Up | KeyCode::Down);
            }
        };
        match (&self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { always }) => {
                matches!(letter, 'y' | 's' | 'n') || letter == 'a' && always.is_some()
            }
            (Stage::Choosing, Kind::Inquiry { .. }) => matches!(letter, 'y' | 'n'),
            _ => true,
        }
    }

    /// The letter that waits for Enter. If another letter comes, both start a message.
    pub(crate) fn take_letter(&mut self) -> Option<char> {
        let Stage::Confirm(_, letter) = self.stage else { return None };
        self.stage = Stage::Choosing;
        Some(letter)
    }

    /// Goes back to the choice. `false`: the question is there already.
    pub(crate) fn back(&mut self) -> bool {
        let is_deeper = !matches!(self.stage, Stage::Choosing);
        self.stage = Stage::Choosing;
        is_deeper
    }

    fn next_field(&mut self, at: usize, content: Map<String, Value>) -> Option<QuestionReply> {
        let Kind::Inquiry { asked, fields } = &self.kind else { return None };
        if at >= fields.len() {
            let accepted = InquiryAnswer::Accepted { content, by: BY.to_owned() };
            return Some(QuestionReply::Inquiry(asked.clone(), accepted));
        }
        let editor = Editor::default();
        let wrong = String::new();
        self.stage = Stage::Field { at, content, editor, wrong };
        None
    }

    /// A description of the keys.
    pub(crate) fn hint(&self, others: usize) -> String {
        let more = match others {
            0 => String::new(),
            others => format!(" · {others} more to answer"),
        };
        let keys = match (&self.stage, &self.kind) {
            (Stage::Choosing, Kind::Approval { always: Some(_) }) => {
                "y once · s this session · a always, then Enter · n no"
            }
            (Stage::Choosing, Kind::Approval { always: None }) => {
                "y once · s this session, then Enter · n no"
            }
            (Stage::Choosing, Kind::Inquiry { .. }) => "y answer it · n no",
            (Stage::Confirm(Scope::Once, _), _) => "Enter approves it once · Esc goes back",
            (Stage::Confirm(Scope::Session, _), _) => {
                "Enter approves the same call for this session · Esc goes back"
            }
            (Stage::Confirm(Scope::Always, _), _) => "Enter writes this rule · Esc goes back",
            (Stage::Reason(_), _) => "say why, or what to do instead · Enter sends · Esc goes back",
            (Stage::Field { .. }, _) => "Enter answers · Esc goes back",
        };
        format!("{keys}{more}")
    }

    /// Its lines: at most `height`.
    pub(crate) fn lines(
        &mut self,
        width: usize,
        height: usize,
        theme: Theme,
    ) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let mut is_change = false;
        let mut is_first = true;
        for line in self.text.lines() {
            is_change = line == "  change:" || is_change && line.starts_with("  │ ");
            let sign = if is_change { line.strip_prefix("  │ ") } else { None };
            let role = match sign.and_then(|line| line.as_bytes().first()) {
                Some(b'+') => Role::Added,
                Some(b'-') => Role::Removed,
                Some(b'@') => Role::Faint,
                _ if is_first => Role::Warning,
                _ => Role::Plain,
            };
            lines.extend(question_line(line, theme.style(role), width));
            is_first = false;
        }
        match (&self.stage, &self.kind) {
            (Stage::Confirm(Scope::Always, _), Kind::Approval { always: Some(rule) }) => {
                let style = theme.style(Role::Warning);
                lines.extend(rule.lines().flat_map(|line| question_line(line, style, width)));
            }
            (Stage::Field { at, wrong, .. }, Kind::Inquiry { fields, .. }) => {
                if let Some(field) = fields.get(*at) {
                    for line in field.lines() {
                        lines.extend(question_line(&line, theme.style(Role::Plain), width));
                    }
                    let style = theme.style(Role::Strong);
                    lines.extend(question_line(&field.question(), style, width));
                }
                if !wrong.is_empty() {
                    lines.extend(question_line(wrong, theme.style(Role::Bad), width));
                }
            }
            _ => {}
        }
        let is_deeper = !matches!(self.stage, Stage::Choosing);
        let Some(over) = lines.len().checked_sub(height).filter(|over| *over > 0) else {
            self.scrolled = 0;
            return lines;
        };
        // A line says that there is more.
        let room = height.saturating_sub(1);
        self.scrolled = if is_deeper { over + 1 } else { self.scrolled.min(over + 1) };
        let all = lines.len();
        let mut shown: Vec<_> =
            lines.drain(self.scrolled..(self.scrolled + room).min(all)).collect();
        let until = self.scrolled + shown.len();
        let more = format!("lines {} to {until} of {all}: Up and Down scroll", self.scrolled + 1);
        shown.push(Line::styled(more, theme.style(Role::Selected)));
        shown
    }
}

/// The lines for one line of a text. Below a line of a change, the bar goes on.
fn question_line(text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let none = (String::new(), style);
    let bar = ("  │ ".to_owned(), style);
    let hang = if text.starts_with("  │ ") { &bar } else { &none };
    wrap(&[(text.to_owned(), style)], width, &none, hang, Breaks::Anywhere)
}

fn yes(scope: Scope) -> QuestionReply {
    QuestionReply::Approval(Reply::Yes { scope, by: BY.to_owned() })
}
