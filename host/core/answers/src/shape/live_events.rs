//! Redacts the events of a running call and marks untrusted events.

use std::fmt;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_contract::{Body, Content, Events, OutputRecorder, OutputStream, Progress};
use toolhold_redaction as redaction;

use crate::overflow::{LiveOutput, RedactedText, TextRules};

/// Minimum time between two parts of a command's output.
const INTERVAL: Duration = Duration::from_millis(100);

/// Redacts events and passes them on.
///
/// The first pieces of a secret may be passed on before the secret is recognised. Its later pieces
/// are removed.
pub(super) struct LiveEvents {
    receiver: Arc<EventReceiver>,
    rules: TextRules,
    /// The emitted parts.
    emitted_text: Mutex<RedactedText>,
    /// The messages, each as a line.
    message_text: Mutex<RedactedText>,
}

pub(super) struct EventReceiver {
    pub(super) events: Arc<dyn Events>,
    /// Whether all text of the call is untrusted.
    pub(super) untrusted: bool,
    /// Called once, before the first untrusted text is passed on.
    pub(super) on_untrusted: Box<dyn Fn() + Send + Sync>,
    pub(super) warned: Once,
}

impl EventReceiver {
    fn emitted(&self, mut part: Content) {
        if self.untrusted || part.is_untrusted() {
            self.warned.call_once(&*self.on_untrusted);
            match &mut part.meta {
                Some(Value::Object(meta)) => {
                    meta.insert(Content::UNTRUSTED.into(), true.into());
                }
                meta => *meta = Some(json!({ (Content::UNTRUSTED): true })),
            }
        }
        self.events.emitted(&part);
    }

    fn progress(&self, progress: Progress) {
        let untrusted = self.untrusted || progress.untrusted;
        if untrusted {
            self.warned.call_once(&*self.on_untrusted);
        }
        self.events.progress(Progress { untrusted, ..progress });
    }
}

impl LiveEvents {
    pub(super) fn new(receiver: EventReceiver, rules: TextRules) -> Self {
        Self {
            receiver: Arc::new(receiver),
            rules,
            emitted_text: Mutex::default(),
            message_text: Mutex::default(),
        }
    }

    fn redact_piece(&self, text: &Mutex<RedactedText>, piece: String) -> String {
        let piece = self.rules.shown(piece);
        let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
        text.push(&piece);
        text.take_all(self.rules.keys)
    }
}

impl Events for LiveEvents {
    fn progress(&self, progress: Progress) {
        let mut message = self.redact_piece(&self.message_text, progress.message + "\n");
        message.truncate(message.trim_end_matches('\n').len());
        self.receiver.progress(Progress { message, ..progress });
    }

    fn emitted(&self, part: &Content) {
        let mut part = part.clone();
        if let Body::Text(text) = &mut part.body {
            *text = self.redact_piece(&self.emitted_text, std::mem::take(text));
        }
        let mut part = part.neutralised();
        if let Some(keys) = self.rules.keys {
            part = redaction::content(part, keys);
        }
        self.receiver.emitted(part);
    }

    fn command(&self) -> Option<Box<dyn OutputRecorder>> {
        let streams = [LiveOutput::new(self.rules), LiveOutput::new(self.rules)];
        let shown = Mutex::new(ShownOutput { streams, last_sent: Instant::now() });
        Some(Box::new(ShownCommand { receiver: Arc::clone(&self.receiver), shown }))
    }
}

struct ShownCommand {
    receiver: Arc<EventReceiver>,
    shown: Mutex<ShownOutput>,
}

struct ShownOutput {
    /// Standard output and standard error have separate redaction, because a line of one output
    /// must not split a secret in the other output.
    streams: [LiveOutput; 2],
    last_sent: Instant,
}

impl fmt::Debug for ShownCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownCommand").finish_non_exhaustive()
    }
}

impl ShownCommand {
    fn send(&self, text: String) {
        if !text.is_empty() {
            self.receiver.emitted(Content::text(text));
        }
    }
}

impl OutputRecorder for ShownCommand {
    fn write(&self, stream: OutputStream, bytes: &[u8]) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let ShownOutput { streams: [stdout, stderr], last_sent } = &mut *shown;
        let mut text = match stream {
            OutputStream::Stdout => stdout.push(stream, bytes),
            OutputStream::Stderr => stderr.push(stream, bytes),
        };
        // `push` holds back the last lines. Send them at regular intervals, too.
        if last_sent.elapsed() >= INTERVAL {
            *last_sent = Instant::now();
            text += &stdout.lines();
            text += &stderr.lines();
        }
        drop(shown);
        self.send(text);
    }
}

impl Drop for ShownCommand {
    fn drop(&mut self) {
        let shown = self.shown.get_mut().unwrap_or_else(PoisonError::into_inner);
        let text = shown.streams.iter_mut().map(LiveOutput::finish).collect();
        self.send(text);
    }
}

#[cfg(test)]
mod tests {
    use toolhold_redaction::Keys;

    use super::*;
    use crate::terminal::Kind;

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Events for Seen {
        fn progress(&self, progress: Progress) {
            self.0.lock().expect("nobody panics").push(progress.message);
        }

        fn emitted(&self, part: &Content) {
            let text = part.as_text().unwrap_or_default();
            self.0.lock().expect("nobody panics").push(text.to_owned());
        }
    }

    /// All that leaves of what `say` says.
    fn seen(say: impl FnOnce(&LiveEvents)) -> String {
        seen_by(TextRules { kind: Kind::Written, keys: Some(Keys::Text) }, say)
    }

    fn seen_by(rules: TextRules, say: impl FnOnce(&LiveEvents)) -> String {
        let seen = Arc::new(Seen::default());
        let receiver = EventReceiver {
            events: Arc::clone(&seen) as _,
            untrusted: false,
            on_untrusted: Box::new(|| ()),
            warned: Once::new(),
        };
        say(&LiveEvents::new(receiver, rules));
        let texts = seen.0.lock().expect("nobody panics");
        texts.join("")
    }

    fn progress(message: &str) -> Progress {
        Progress { fraction: None, message: message.to_owned(), untrusted: false }
    }

    const COLOURED: &str = "gh\u{1b}[31mp_0123456789a\u{1b}[0mbcdefghijklmnopqrstuvwxyz";

    #[test]
    fn colour_hides_no_secret_in_any_event() {
        let text = seen(|events| {
            events.emitted(&Content::text(COLOURED));
            events.progress(progress(COLOURED));
            let command = events.command().expect("it is shown");
            command.write(OutputStream::Stdout, COLOURED.as_bytes());
        });
        assert_eq!(text, "[REDACTED:github-token ghp_…]".repeat(3));
    }

    #[test]
    fn key_is_hidden_that_comes_in_many_events() {
        let line = |number: usize| format!("{number:0>6}{}", "QUJDabc0".repeat(8));
        let lines: Vec<String> = std::iter::once("-----BEGIN PRIVATE KEY-----".to_owned())
            .chain((0..600).map(line))
            .collect();
        let text = seen(|events| lines.iter().for_each(|line| events.progress(progress(line))));
        assert!(!text.contains("QUJD") && text.starts_with(&lines[0]), "{text}");
        let emit = |line: &String| Content::text(format!("{line}\n"));
        let text = seen(|events| lines.iter().for_each(|line| events.emitted(&emit(line))));
        assert!(!text.contains("QUJD") && text.starts_with(&lines[0]), "{text}");
    }

    #[test]
    fn lines_of_the_other_output_hide_no_secret() {
        let lines: Vec<String> = std::iter::once("-----BEGIN PRIVATE KEY-----\n".to_owned())
            .chain((0..9).map(|number| format!("{number}{}\n", "QUJDabc0".repeat(8))))
            .collect();
        let text = seen(|events| {
            let command = events.command().expect("it is shown");
            for line in &lines {
                command.write(OutputStream::Stdout, line.as_bytes());
                command.write(OutputStream::Stderr, b"one\ntwo\nthree\nfour\n");
            }
        });
        assert!(!text.contains("QUJD") && text.matches("four").count() == 10, "{text}");
    }

    #[test]
    fn what_steers_leaves_in_no_event_without_redaction() {
        let text = seen_by(TextRules { kind: Kind::Stored, keys: None }, |events| {
            events.emitted(&Content::text("\u{1b}[2Ja"));
            events.command().expect("it is shown").write(OutputStream::Stderr, b"\x1b[2Jb\x07");
        });
        assert_eq!(text, "\u{fffd}[2Ja\u{fffd}[2Jb\u{fffd}");
    }
}
