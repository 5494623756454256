//! Decides what each key does: typing, answering a question, scrolling, interrupting.

use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use toolhold_agent::RunEvent;

use crate::complete::{self, Popup};
use crate::effect::ScreenEffect;
use crate::question::{QUIET, QuestionReply};
use crate::state::{MAX_HISTORY, MAX_QUEUED, Phase, ScreenState};

const HELP: &str = "\
Enter sends; Alt-Enter or Ctrl-J starts a new line. Up and Down show earlier messages.
@ completes paths, / completes commands, Tab accepts the suggestion.
Esc interrupts the agent, and so does Ctrl-C; Ctrl-C or Ctrl-D at an empty prompt leaves.
PageUp and PageDown scroll. Ctrl-T shows longer results, Ctrl-O the whole conversation on the \
normal screen.
A message that you send while the agent works waits until the agent is done; Up takes it back.
";

impl ScreenState {
    /// Handles input of the terminal. Returns the effects.
    pub fn input(&mut self, event: Event, now: Duration) -> Vec<ScreenEffect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.last_key = now;
                self.key(key, now)
            }
            Event::Paste(text) => {
                (self.last_key, self.wrote_at) = (now, now);
                self.insert(&text)
            }
            Event::FocusGained => {
                self.has_focus = Some(true);
                Vec::new()
            }
            Event::FocusLost => {
                self.has_focus = Some(false);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Whether keys answer the first question. They don't while the person types a message or has
    /// just typed one.
    pub(crate) fn is_answering(&self, now: Duration) -> bool {
        self.questions.front().is_some_and(|question| {
            let is_quiet =
                question.since.is_some_and(|since| now >= since.max(self.wrote_at) + QUIET);
            question.typed().is_some() || self.editor.is_empty() && is_quiet
        })
    }

    /// The next time at which the picture changes by itself.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        let question = if self.editor.is_empty() { self.questions.front() } else { None };
        let answering = question
            .and_then(|question| Some(question.since?.max(self.wrote_at) + QUIET))
            .filter(|at| *at > now);
        // The clock of a task, which stands still while the person is asked.
        let is_running = self.is_busy() && self.questions.is_empty();
        let second = is_running.then(|| now + Duration::from_secs(1));
        answering.into_iter().chain(second).min()
    }

    fn key(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let half = isize::try_from(self.shown.1.saturating_sub(2).max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char('c') if is_control => return self.interrupt_or_leave(),
            KeyCode::Char('o') if is_control => return vec![ScreenEffect::ShowTranscript],
            KeyCode::Char('z') if is_control => return vec![ScreenEffect::Suspend],
            KeyCode::Char('t') if is_control => self.transcript.turn_length(),
            KeyCode::PageUp => self.transcript.scroll(-half, self.shown.0, self.shown.1),
            KeyCode::PageDown => self.transcript.scroll(half, self.shown.0, self.shown.1),
            _ if self.dialog.is_some() => return self.dialog_key(key, now),
            KeyCode::Esc => return self.escape(),
            _ if self.is_answering(now) && self.is_answer(key) => return self.answer(key, now),
            // Any other key is typing, and so are the keys after it.
            _ => {
                self.wrote_at = now;
                return self.write(key);
            }
        }
        Vec::new()
    }

    fn interrupt_or_leave(&mut self) -> Vec<ScreenEffect> {
        match () {
            () if self.dialog.take().is_some() => vec![ScreenEffect::Picked(None)],
            () if self.is_busy() => vec![ScreenEffect::Interrupt],
            () if self.editor.is_empty() => vec![ScreenEffect::Leave],
            () => {
                self.editor.take();
                self.popup = Popup::default();
                Vec::new()
            }
        }
    }

    fn escape(&mut self) -> Vec<ScreenEffect> {
        if self.popup.is_open() {
            self.popup = Popup { word: self.popup.word.clone(), ..Popup::default() };
            return Vec::new();
        }
        if self.questions.front_mut().is_some_and(crate::question::OpenQuestion::back) {
            return Vec::new();
        }
        if self.is_busy() { vec![ScreenEffect::Interrupt] } else { Vec::new() }
    }

    fn dialog_key(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let Some(dialog) = &mut self.dialog else { return Vec::new() };
        // The dialog may have opened while the person typed.
        let is_quiet = dialog.since.is_some_and(|since| now >= since.max(self.wrote_at) + QUIET);
        if dialog.is_sudden && !is_quiet && key.code != KeyCode::Esc {
            self.wrote_at = now;
            return Vec::new();
        }
        let last = dialog.choices.len().saturating_sub(1);
        let picked = match key.code {
            KeyCode::Up => {
                dialog.chosen = dialog.chosen.saturating_sub(1);
                return Vec::new();
            }
            KeyCode::Down => {
                dialog.chosen = (dialog.chosen + 1).min(last);
                return Vec::new();
            }
            KeyCode::Enter => Some(dialog.chosen),
            KeyCode::Esc => None,
            _ => return Vec::new(),
        };
        self.dialog = None;
        vec![ScreenEffect::Picked(picked)]
    }

    fn is_answer(&self, key: KeyEvent) -> bool {
        self.questions.front().is_some_and(|question| question.takes(key))
    }

    fn answer(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let Some(question) = self.questions.front_mut() else { return Vec::new() };
        if let KeyCode::Char(letter) = key.code
            && let Some(first) = question.take_letter()
        {
            // The person writes a message.
            self.wrote_at = now;
            return self.insert(&format!("{first}{letter}"));
        }
        if key.code != KeyCode::Enter
            && let Some(editor) = question.editor()
        {
            edit(editor, key);
            return Vec::new();
        }
        match question.key(key) {
            Some(QuestionReply::Approval(reply)) => {
                vec![ScreenEffect::Reply(question.id.clone(), reply)]
            }
            Some(QuestionReply::Inquiry(text, answer)) => vec![ScreenEffect::Inform(text, answer)],
            None => Vec::new(),
        }
    }

    /// Handles a key in the message.
    fn write(&mut self, key: KeyEvent) -> Vec<ScreenEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_new_line = key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if is_new_line => return self.insert("\n"),
            KeyCode::Char('j') if is_control => return self.insert("\n"),
            KeyCode::Tab if self.popup.is_open() => return self.accept(),
            KeyCode::Enter if self.popup.is_open() && self.popup.word.starts_with('/') => {
                let mut effects = self.accept();
                effects.extend(self.send());
                return effects;
            }
            KeyCode::Enter if self.popup.is_open() => return self.accept(),
            KeyCode::Enter => return self.send(),
            KeyCode::Up if self.popup.is_open() => self.popup.step(-1),
            KeyCode::Down if self.popup.is_open() => self.popup.step(1),
            KeyCode::Up => {
                if !self.editor.up() {
                    self.recall_older();
                }
            }
            KeyCode::Down => {
                if !self.editor.down() {
                    self.recall_newer();
                }
            }
            KeyCode::Char('d') if is_control && self.editor.is_empty() => {
                return if self.is_busy() { Vec::new() } else { vec![ScreenEffect::Leave] };
            }
            KeyCode::Char(letter) if !is_control && !key.modifiers.contains(KeyModifiers::ALT) => {
                return self.insert(letter.encode_utf8(&mut [0; 4]));
            }
            _ => {
                edit(&mut self.editor, key);
                return self.complete();
            }
        }
        Vec::new()
    }

    fn insert(&mut self, text: &str) -> Vec<ScreenEffect> {
        if let Some(editor) = self.questions.front_mut().and_then(|question| question.editor()) {
            editor.insert(text);
            return Vec::new();
        }
        if !self.editor.insert(text) {
            let limit = crate::editor::MAX_MESSAGE;
            self.transcript.notice(&format!(
                "the message is too long; the limit is {limit} bytes. Put the text into a file and \
                 name the file"
            ));
        }
        self.complete()
    }

    /// Looks for completions of the word before the cursor.
    fn complete(&mut self) -> Vec<ScreenEffect> {
        let Some(word) = complete::word(self.editor.before()) else {
            self.popup = Popup::default();
            return Vec::new();
        };
        if word.starts_with('/') {
            self.popup = complete::commands(word);
            return Vec::new();
        }
        let wanted = word.trim_start_matches('@').to_owned();
        // The old offers stay until there are new ones.
        if wanted.is_empty() {
            self.popup = Popup::default();
        } else {
            return vec![ScreenEffect::Complete(wanted)];
        }
        Vec::new()
    }

    /// Takes the paths for the wanted text.
    pub(crate) fn offer(&mut self, wanted: &str, paths: &[String]) {
        let word = complete::word(self.editor.before());
        if word.and_then(|word| word.strip_prefix('@')) == Some(wanted) {
            self.popup = complete::paths(&format!("@{wanted}"), paths);
        }
    }

    /// Takes the offer that is chosen.
    fn accept(&mut self) -> Vec<ScreenEffect> {
        let popup = std::mem::take(&mut self.popup);
        if let Some((text, _)) = popup.offers.get(popup.chosen)
            && let Some(word) = complete::word(self.editor.before())
        {
            let bytes = word.len();
            let space = if text.starts_with('/') || text.ends_with('/') { "" } else { " " };
            self.editor.replace_before(bytes, &format!("{text}{space}"));
            if text.ends_with('/') {
                return self.complete();
            }
        }
        Vec::new()
    }

    fn recall_older(&mut self) {
        if self.recalled.is_none()
            && self.editor.is_empty()
            && let Some(text) = self.queued.pop_back()
        {
            self.editor.set(&text);
            return;
        }
        let at = self.recalled.map_or(0, |at| at + 1);
        let history = &self.about.history;
        let Some(text) = history.len().checked_sub(at + 1).and_then(|at| history.get(at)) else {
            return;
        };
        let text = text.clone();
        if self.recalled.is_none() {
            self.draft = self.editor.take();
        }
        self.recalled = Some(at);
        self.editor.set(&text);
    }

    fn recall_newer(&mut self) {
        let Some(at) = self.recalled else { return };
        let draft = std::mem::take(&mut self.draft);
        let Some(newer) = at.checked_sub(1) else {
            self.recalled = None;
            self.editor.set(&draft);
            return;
        };
        (self.recalled, self.draft) = (Some(newer), draft);
        let history = &self.about.history;
        let text = history[history.len() - 1 - newer].clone();
        self.editor.set(&text);
    }

    /// Handles Enter.
    fn send(&mut self) -> Vec<ScreenEffect> {
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if self.is_busy() && self.queued.len() >= MAX_QUEUED {
            self.transcript
                .notice(&format!("{MAX_QUEUED} messages already wait, which is the limit"));
            return Vec::new();
        }
        let text = self.editor.take().trim().to_owned();
        (self.popup, self.recalled) = (Popup::default(), None);
        self.transcript.scroll_to_end();
        // A path isn't a command.
        let word = text.split_whitespace().next().unwrap_or_default();
        if word.starts_with('/') && (word.len() == text.len() || complete::is_command(word)) {
            return self.command(&text);
        }
        let history = &mut self.about.history;
        let mut effects = Vec::new();
        if history.last() != Some(&text) {
            history.push(text.clone());
            if history.len() > MAX_HISTORY {
                history.remove(0);
            }
            effects.push(ScreenEffect::Remember(text.clone()));
        }
        if self.is_busy() {
            effects.extend(self.apply(RunEvent::Queued { text }, self.last_key));
        } else {
            self.phase = Phase::Begins;
            effects.push(ScreenEffect::Send(text));
        }
        effects
    }

    fn command(&mut self, name: &str) -> Vec<ScreenEffect> {
        let effect = match name {
            "/help" => {
                let commands: String = complete::COMMANDS
                    .iter()
                    .map(|(name, does)| format!("{name:12} {does}\n"))
                    .collect();
                self.transcript.push_told(&format!("{HELP}\n{commands}"));
                return Vec::new();
            }
            "/status" => {
                let told = format!("{}\n{}", self.in_words(), self.about.status);
                self.transcript.push_told(&told);
                return Vec::new();
            }
            "/tools" => {
                let tools = self.about.tools.clone();
                self.transcript.push_told(&tools);
                return Vec::new();
            }
            "/exit" => return vec![ScreenEffect::Leave],
            "/transcript" => return vec![ScreenEffect::ShowTranscript],
            "/compact" => ScreenEffect::Compact,
            "/clear" => ScreenEffect::Clear,
            "/resume" => ScreenEffect::Resume,
            "/undo" => ScreenEffect::Undo,
            other => {
                let all: Vec<_> = complete::COMMANDS.iter().map(|(name, _)| *name).collect();
                let names = all.join(", ");
                let what = match other.split_once(char::is_whitespace) {
                    Some((name, _)) => format!("{name} takes no arguments"),
                    None => format!("there is no {other}"),
                };
                self.transcript.notice(&format!("{what}; the commands are {names}"));
                return Vec::new();
            }
        };
        if self.is_busy() {
            self.transcript.notice(&format!(
                "{name} isn't possible while the agent works: press Esc first, or let the task end"
            ));
            return Vec::new();
        }
        self.phase = Phase::Begins;
        vec![effect]
    }
}

/// Handles a key that changes a text.
fn edit(editor: &mut crate::editor::Editor, key: KeyEvent) {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('a') if is_control => editor.home(),
        KeyCode::Char('e') if is_control => editor.end(),
        KeyCode::Char('u') if is_control => editor.delete_to_begin(),
        KeyCode::Char('k') if is_control => editor.delete_to_end(),
        KeyCode::Char('w') if is_control => editor.delete_word(),
        KeyCode::Char('d') if is_control => editor.delete(),
        KeyCode::Char('h') if is_control => editor.backspace(),
        KeyCode::Char('b') if is_alt => editor.word_left(),
        KeyCode::Char('f') if is_alt => editor.word_right(),
        KeyCode::Char(letter) if !is_control && !is_alt => {
            editor.insert(letter.encode_utf8(&mut [0; 4]));
        }
        KeyCode::Backspace if is_control || is_alt => editor.delete_word(),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        KeyCode::Left if is_control || is_alt => editor.word_left(),
        KeyCode::Right if is_control || is_alt => editor.word_right(),
        KeyCode::Left => editor.left(),
        KeyCode::Right => editor.right(),
        KeyCode::Home => editor.home(),
        KeyCode::End => editor.end(),
        _ => {}
    }
}
