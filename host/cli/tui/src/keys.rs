//! Handles the keys of the screen.

use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use toolhold_agent::RunEvent;

use crate::complete::{self, OFFER_COLUMNS, Popup};
use crate::editor::{Editor, MAX_MESSAGE};
use crate::effect::ScreenEffect;
use crate::question::{QUIET, QuestionReply};
use crate::state::{MAX_HISTORY, MAX_QUEUED, Phase, ScreenState};

/// The lines of a page that stay visible on the next page.
const OVERLAP: usize = 2;

const HELP: &str = "\
Enter sends; Alt-Enter or Ctrl-J starts a new line. Up and Down show earlier messages.
@ completes paths, / completes commands, Tab accepts the suggestion.
Esc or Ctrl-C interrupts the agent; Ctrl-C or Ctrl-D at an empty prompt ends the chat.
PageUp and PageDown scroll. Ctrl-T shows longer results, Ctrl-O the whole conversation on the \
normal screen.
A message that you send while the agent works waits until the agent is done; Up takes it back.
";

impl ScreenState {
    /// Handles input of the terminal, and returns its effects.
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

    /// Checks whether keys answer the first question. Keys belong to the message while the person
    /// types it, and for [`QUIET`] afterwards.
    pub(crate) fn is_answering(&self, now: Duration) -> bool {
        let Some(question) = self.questions.front() else { return false };
        if question.typed().is_some() {
            return true;
        }
        self.editor.is_empty() && self.is_quiet(question.visible_since, now)
    }

    /// Checks whether [`QUIET`] has passed since something became visible, and since the last
    /// typing.
    fn is_quiet(&self, visible_since: Option<Duration>, now: Duration) -> bool {
        self.quiet_from(visible_since).is_some_and(|quiet_from| now >= quiet_from)
    }

    /// Returns the time after which keys aren't meant for a message.
    fn quiet_from(&self, visible_since: Option<Duration>) -> Option<Duration> {
        Some(visible_since?.max(self.wrote_at) + QUIET)
    }

    /// Returns the time of the picture's next change without input.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        if let Some(question) = self.questions.front() {
            // The task's clock stands still during a question. Only the hint changes, at the time
            // from which keys answer the question.
            if !self.editor.is_empty() {
                return None;
            }
            let quiet_from = self.quiet_from(question.visible_since)?;
            return if quiet_from > now { Some(quiet_from) } else { None };
        }
        // While a task runs, its time in seconds is shown, and changes every second.
        if self.is_busy() { Some(now + Duration::from_secs(1)) } else { None }
    }

    fn key(&mut self, key: KeyEvent, now: Duration) -> Vec<ScreenEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let (columns, lines) = self.shown;
        // The number of lines always fits, because a terminal has few lines.
        let page = isize::try_from(lines.saturating_sub(OVERLAP).max(1)).unwrap_or(1);
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
            // All other keys belong to the message.
            _ => {
                self.wrote_at = now;
                return self.write(key);
            }
        }
        Vec::new()
    }

    /// Handles Ctrl-C: closes a dialog, interrupts a task, deletes the typed message, or ends the
    /// chat.
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

    /// Handles Esc: closes the completions, goes back in a question, or interrupts a task.
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
        // If the dialog opened while the person typed a message, the key may belong to the message.
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
        // Only Enter confirms the answer of a letter. A second letter shows that the person is
        // writing a message, so insert both letters into the message.
        if let KeyCode::Char(letter) = key.code
            && let Some(answer_letter) = question.take_letter()
        {
            self.wrote_at = now;
            return self.insert(&format!("{answer_letter}{letter}"));
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

    fn write(&mut self, key: KeyEvent) -> Vec<ScreenEffect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_new_line = key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if is_new_line => return self.insert("\n"),
            KeyCode::Char('j') if is_control => return self.insert("\n"),
            KeyCode::Tab if self.popup.is_open() => return self.accept(),
            // Enter completes and sends a command, but only completes a path.
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

    /// Inserts text into the typed answer to a question, or into the message.
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

    /// Offers completions for the word before the cursor.
    fn complete(&mut self) -> Vec<ScreenEffect> {
        let Some(word) = complete::word_to_complete(self.editor.before()) else {
            self.popup = Popup::default();
            return Vec::new();
        };
        if word.starts_with('/') {
            self.popup = complete::offer_commands(word, &self.about.commands);
            return Vec::new();
        }
        let path_start = word.trim_start_matches('@');
        if path_start.is_empty() {
            self.popup = Popup::default();
            return Vec::new();
        }
        // The old completions stay until new completions arrive.
        vec![ScreenEffect::Complete(path_start.to_owned())]
    }

    /// Shows completions, unless the person has changed the word.
    pub(crate) fn offer(&mut self, path_start: &str, paths: &[String]) {
        let word = format!("@{path_start}");
        if complete::word_to_complete(self.editor.before()) == Some(word.as_str()) {
            self.popup = complete::offer_paths(&word, paths);
        }
    }

    /// Replaces the word before the cursor by the chosen completion.
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
        // After a folder, offer the paths in it.
        if is_folder { self.complete() } else { Vec::new() }
    }

    /// Takes back the last waiting message, or shows an older message of the history. Index 0 is
    /// the newest message of the history.
    fn recall_older(&mut self) {
        let has_typed_nothing = self.recalled.is_none() && self.editor.is_empty();
        if has_typed_nothing && let Some(text) = self.queued.pop_back() {
            self.editor.set(&text);
            return;
        }
        let older = match self.recalled {
            Some(index) => index + 1,
            None => 0,
        };
        let Some(text) = self.about.history.iter().rev().nth(older) else { return };
        if self.recalled.is_none() {
            self.draft = self.editor.take();
        }
        self.recalled = Some(older);
        self.editor.set(text);
    }

    /// Shows a newer message of the history, or the person's draft after the newest message. Index
    /// 0 is the newest message of the history.
    fn recall_newer(&mut self) {
        match self.recalled {
            None => {}
            Some(0) => {
                self.recalled = None;
                let draft = std::mem::take(&mut self.draft);
                self.editor.set(&draft);
            }
            Some(index) => {
                let newer = index - 1;
                self.recalled = Some(newer);
                if let Some(text) = self.about.history.iter().rev().nth(newer) {
                    self.editor.set(text);
                }
            }
        }
    }

    /// Sends the message, or runs the command in it.
    fn send(&mut self) -> Vec<ScreenEffect> {
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if self.is_busy() && self.queued.len() >= MAX_QUEUED {
            self.transcript.push_notice(&format!("{MAX_QUEUED} messages already wait, the limit"));
            return Vec::new();
        }
        let text = self.editor.take().trim().to_owned();
        self.popup = Popup::default();
        self.recalled = None;
        self.transcript.scroll_to_end();

        let expanded = match self.about.commands.expand(&text) {
            Ok(expanded) => expanded,
            Err(error) => {
                self.transcript.push_notice(&error.to_string());
                self.editor.set(&text);
                return Vec::new();
            }
        };
        // A message may start with a path, so text with several words is a command only if the
        // first word is a known command.
        let word = text.split_whitespace().next().unwrap_or_default();
        let is_single_word = word.len() == text.len();
        let is_command = word.starts_with('/') && (is_single_word || complete::is_command(word));
        if is_command && expanded.is_none() {
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

        let message = expanded.unwrap_or(text);
        if self.is_busy() {
            effects.extend(self.apply(RunEvent::Queued { text: message }, self.last_key));
        } else {
            self.phase = Phase::Starting;
            effects.push(ScreenEffect::Send(message));
        }
        effects
    }

    /// Runs a command of the chat. Only `/model` takes an argument.
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
                let commands = self.commands_in_words();
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
            "/rewind" => ScreenEffect::Rewind,
            other => {
                let names = self.command_names().join(", ");
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
                "{name} isn't possible while the agent works: press Esc first, or wait for the end \
                 of the task"
            ));
            return Vec::new();
        }
        self.phase = Phase::Starting;
        vec![effect]
    }

    /// Lists all commands with their meanings, one per line.
    fn commands_in_words(&self) -> String {
        let mut text = String::new();
        for (name, meaning) in complete::COMMANDS {
            text.push_str(&format!("{name:OFFER_COLUMNS$} {meaning}\n"));
        }
        for command in &self.about.commands.found {
            let name = format!("/{}", command.name);
            let meaning = if command.origin.is_usable() {
                command.description.as_str()
            } else {
                command.origin.in_words()
            };
            text.push_str(&format!("{name:OFFER_COLUMNS$} {meaning}\n"));
        }
        text
    }

    /// Returns the names of all usable commands.
    fn command_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (name, _) in complete::COMMANDS {
            names.push(name.to_owned());
        }
        names.extend(self.about.commands.usable().map(|command| format!("/{}", command.name)));
        names
    }
}

/// Handles a key that changes the text or moves the cursor.
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
