//! Decides the effect of each key: typing, answering a question, scrolling, interrupting.

use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use toolhold_agent::RunEvent;

use crate::complete::{self, Popup};
use crate::editor::{Editor, MAX_MESSAGE};
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
                self.last_key = now;
                self.wrote_at = now;
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

    /// Checks whether keys answer the first question. While the person types a message, and for a
    /// moment afterwards, keys don't answer.
    pub(crate) fn is_answering(&self, now: Duration) -> bool {
        let Some(question) = self.questions.front() else { return false };
        if question.typed().is_some() {
            return true;
        }
        self.editor.is_empty() && self.is_quiet(question.visible_since, now)
    }

    /// Checks whether the person hasn't typed for a moment since something became visible.
    fn is_quiet(&self, visible_since: Option<Duration>, now: Duration) -> bool {
        self.quiet_from(visible_since).is_some_and(|quiet_from| now >= quiet_from)
    }

    /// Returns the time after which a key isn't meant for a message.
    fn quiet_from(&self, visible_since: Option<Duration>) -> Option<Duration> {
        Some(visible_since?.max(self.wrote_at) + QUIET)
    }

    /// Returns the next time at which the screen changes without input or events.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        if let Some(question) = self.questions.front() {
            // The task's clock is stopped, but the hint changes when keys start to answer.
            if !self.editor.is_empty() {
                return None;
            }
            return self.quiet_from(question.visible_since).filter(|time| *time > now);
        }
        if self.is_busy() { Some(now + Duration::from_secs(1)) } else { None }
    }

    fn key(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let (columns, lines) = self.shown;
        // Two lines of the page before stay visible.
        let page = isize::try_from(lines.saturating_sub(2).max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char('c') if is_control => return self.interrupt_or_leave(),
            KeyCode::Char('o') if is_control => return vec![ScreenEffect::ShowTranscript],
            KeyCode::Char('z') if is_control => return vec![ScreenEffect::Suspend],
            KeyCode::Char('t') if is_control => self.transcript.toggle_length(),
            KeyCode::PageUp => self.transcript.scroll(-page, columns, lines),
            KeyCode::PageDown => self.transcript.scroll(page, columns, lines),
            _ if self.dialog.is_some() => return self.dialog_key(key, now),
            KeyCode::Esc => return self.escape(),
            _ if self.is_answering(now) && self.is_answer(key) => return self.answer(key, now),
            // Any other key is typed text, and so are the next keys.
            _ => {
                self.wrote_at = now;
                return self.write(key);
            }
        }
        Vec::new()
    }

    fn interrupt_or_leave(&mut self) -> Vec<ScreenEffect> {
        if self.dialog.take().is_some() {
            return vec![ScreenEffect::Picked(None)];
        }
        if self.is_busy() {
            return vec![ScreenEffect::Interrupt];
        }
        if self.editor.is_empty() {
            return vec![ScreenEffect::Leave];
        }
        self.editor.take();
        self.popup = Popup::default();
        Vec::new()
    }

    fn escape(&mut self) -> Vec<ScreenEffect> {
        if self.popup.is_open() {
            self.popup.offers.clear();
            self.popup.chosen = 0;
            return Vec::new();
        }
        if let Some(question) = self.questions.front_mut()
            && question.go_back()
        {
            return Vec::new();
        }
        if self.is_busy() { vec![ScreenEffect::Interrupt] } else { Vec::new() }
    }

    fn dialog_key(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let Some(dialog) = &self.dialog else { return Vec::new() };
        // The dialog may have opened while the person typed.
        let takes_keys = !dialog.is_sudden || self.is_quiet(dialog.visible_since, now);
        if !takes_keys && key.code != KeyCode::Esc {
            self.wrote_at = now;
            return Vec::new();
        }

        let Some(dialog) = &mut self.dialog else { return Vec::new() };
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
            KeyCode::Char(letter) => {
                dialog.choose_by_letter(letter);
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
        self.questions.front().is_some_and(|question| question.uses(key))
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
            KeyCode::Up if self.popup.is_open() => self.popup.choose_previous(),
            KeyCode::Down if self.popup.is_open() => self.popup.choose_next(),
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
            self.transcript.push_notice(&format!(
                "the message is too long; the limit is {MAX_MESSAGE} bytes. Put the text into a \
                 file and name the file"
            ));
        }
        self.complete()
    }

    /// Looks for completions of the word before the cursor.
    fn complete(&mut self) -> Vec<ScreenEffect> {
        let Some(word) = complete::word_to_complete(self.editor.before()) else {
            self.popup = Popup::default();
            return Vec::new();
        };
        if word.starts_with('/') {
            self.popup = complete::offer_commands(word);
            return Vec::new();
        }
        let path_start = word.trim_start_matches('@');
        if path_start.is_empty() {
            self.popup = Popup::default();
            return Vec::new();
        }
        // The old offers are shown until new offers arrive.
        vec![ScreenEffect::Complete(path_start.to_owned())]
    }

    /// Offers paths that begin with a text, unless the person has changed the text.
    pub(crate) fn offer(&mut self, path_start: &str, paths: &[String]) {
        let word = format!("@{path_start}");
        if complete::word_to_complete(self.editor.before()) == Some(word.as_str()) {
            self.popup = complete::offer_paths(&word, paths);
        }
    }

    /// Writes the chosen offer instead of the word before the cursor.
    fn accept(&mut self) -> Vec<ScreenEffect> {
        let popup = std::mem::take(&mut self.popup);
        let Some((text, _)) = popup.offers.get(popup.chosen) else { return Vec::new() };
        let Some(word) = complete::word_to_complete(self.editor.before()) else {
            return Vec::new();
        };

        let bytes = word.len();
        let is_command = text.starts_with('/');
        let is_folder = text.ends_with('/');
        let space = if is_command || is_folder { "" } else { " " };
        self.editor.replace_before(bytes, &format!("{text}{space}"));
        if is_folder { self.complete() } else { Vec::new() }
    }

    fn recall_older(&mut self) {
        if self.recalled.is_none()
            && self.editor.is_empty()
            && let Some(text) = self.queued.pop_back()
        {
            self.editor.set(&text);
            return;
        }
        let older = self.recalled.map_or(0, |recalled| recalled + 1);
        let Some(text) = self.about.history.iter().rev().nth(older) else { return };
        if self.recalled.is_none() {
            self.draft = self.editor.take();
        }
        self.recalled = Some(older);
        self.editor.set(text);
    }

    fn recall_newer(&mut self) {
        match self.recalled {
            None => {}
            Some(0) => {
                self.recalled = None;
                let draft = std::mem::take(&mut self.draft);
                self.editor.set(&draft);
            }
            Some(recalled) => {
                let newer = recalled - 1;
                self.recalled = Some(newer);
                if let Some(text) = self.about.history.iter().rev().nth(newer) {
                    self.editor.set(text);
                }
            }
        }
    }

    /// Handles Enter.
    fn send(&mut self) -> Vec<ScreenEffect> {
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if self.is_busy() && self.queued.len() >= MAX_QUEUED {
            self.transcript
                .push_notice(&format!("{MAX_QUEUED} messages already wait, which is the limit"));
            return Vec::new();
        }
        let text = self.editor.take().trim().to_owned();
        self.popup = Popup::default();
        self.recalled = None;
        self.transcript.scroll_to_end();

        // A message that begins with a path isn't a command.
        let word = text.split_whitespace().next().unwrap_or_default();
        let is_single_word = word.len() == text.len();
        if word.starts_with('/') && (is_single_word || complete::is_command(word)) {
            return self.command(&text);
        }

        let mut effects = Vec::new();
        let history = &mut self.about.history;
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
            self.phase = Phase::Starting;
            effects.push(ScreenEffect::Send(text));
        }
        effects
    }

    /// Carries out a command. Only `/model` takes an argument.
    fn command(&mut self, text: &str) -> Vec<ScreenEffect> {
        let mut name = text;
        let mut model = "";
        if let Some((command, argument)) = text.split_once(char::is_whitespace)
            && command == "/model"
        {
            name = command;
            model = argument.trim();
        }
        let effect = match name {
            "/help" => {
                let commands: String = complete::COMMANDS
                    .iter()
                    .map(|(name, meaning)| format!("{name:12} {meaning}\n"))
                    .collect();
                self.transcript.push_output(&format!("{HELP}\n{commands}"));
                return Vec::new();
            }
            "/status" => {
                let status = format!("{}\n{}", self.in_words(), self.about.status);
                self.transcript.push_output(&status);
                return Vec::new();
            }
            "/tools" => {
                let tools = self.about.tools.clone();
                self.transcript.push_output(&tools);
                return Vec::new();
            }
            "/cost" => {
                let cost = self.cost_in_words();
                self.transcript.push_output(&cost);
                return Vec::new();
            }
            "/model" if model.is_empty() => {
                self.transcript.push_notice(
                    "/model NAME asks another model; `toolhold models` lists the models",
                );
                return Vec::new();
            }
            "/model" => ScreenEffect::Model(model.to_owned()),
            "/exit" => return vec![ScreenEffect::Leave],
            "/transcript" => return vec![ScreenEffect::ShowTranscript],
            "/compact" => ScreenEffect::Compact,
            "/clear" => ScreenEffect::Clear,
            "/resume" => ScreenEffect::Resume,
            "/undo" => ScreenEffect::Undo,
            other => {
                let names: Vec<_> = complete::COMMANDS.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                let error = match other.split_once(char::is_whitespace) {
                    Some((name, _)) => format!("{name} takes no arguments"),
                    None => format!("there is no {other}"),
                };
                self.transcript.push_notice(&format!("{error}; the commands are {names}"));
                return Vec::new();
            }
        };
        if self.is_busy() {
            self.transcript.push_notice(&format!(
                "{name} isn't possible while the agent works: press Esc first, or let the task end"
            ));
            return Vec::new();
        }
        self.phase = Phase::Starting;
        vec![effect]
    }
}

/// Handles a key that changes a text.
fn edit(editor: &mut Editor, key: KeyEvent) {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('a') if is_control => editor.home(),
        KeyCode::Char('e') if is_control => editor.end(),
        KeyCode::Char('u') if is_control => editor.delete_to_line_start(),
        KeyCode::Char('k') if is_control => editor.delete_to_line_end(),
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
