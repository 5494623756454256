//! Prints the output and progress of a running call on stderr.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{Content, Events, Progress};

use crate::style::FAINT;

/// The most lines that wait for a slow terminal. Other lines are dropped.
const MAX_WAITING: usize = 256;

/// The most bytes of stored shown text. The largest output of a command is smaller.
const MAX_SHOWN: usize = 4 << 20;

/// Prints events on stderr from a separate thread, so that a slow terminal doesn't delay the call.
/// Dropping this value prints the waiting lines.
#[derive(Debug)]
pub struct Live {
    lines: Option<SyncSender<String>>,
    printer: Option<JoinHandle<()>>,
    shown: Arc<Mutex<Shown>>,
}

/// The text that was printed during a call.
#[derive(Debug, Default)]
pub struct Shown {
    text: String,
    /// Whether a part of the output was dropped.
    has_gaps: bool,
}

impl Live {
    /// Starts the printing thread. Returns `None` if stderr isn't a terminal, or if no thread can
    /// be started.
    pub fn on_terminal() -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let (lines, receiver) = sync_channel(MAX_WAITING);
        let thread = thread::Builder::new().name("events".to_owned());
        let printer = thread.spawn(move || print_lines(&receiver)).ok()?;
        Some(Self { lines: Some(lines), printer: Some(printer), shown: Arc::default() })
    }

    /// Returns the sender of events. The printing thread ends after this sender is dropped too.
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::new(Sender { lines: self.lines.clone(), shown: Arc::clone(&self.shown) })
    }

    /// Prints the waiting lines, and returns the printed text.
    pub fn end(self) -> Shown {
        let shown = Arc::clone(&self.shown);
        drop(self);
        std::mem::take(&mut *shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shown {
    /// Checks whether exactly the lines of `texts` were printed. Their order may differ, because
    /// stdout and stderr of a command are printed in the order in which they arrive.
    pub fn has_exactly_the_lines_of(&self, texts: &[&str]) -> bool {
        if self.has_gaps || self.text.is_empty() {
            return false;
        }
        let mut expected: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
        expected.sort_unstable();
        let mut shown: Vec<&str> = self.text.lines().collect();
        shown.sort_unstable();
        shown == expected
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.lines.take();
        if let Some(printer) = self.printer.take() {
            // The panic hook has already reported a panic.
            let _ = printer.join();
        }
    }
}

fn print_lines(lines: &Receiver<String>) {
    let mut stderr = anstream::stderr();
    for line in lines {
        // A call doesn't fail only because its progress can't be shown, so errors are ignored.
        let _ = writeln!(stderr, "{FAINT}{line}{FAINT:#}");
    }
}

struct Sender {
    lines: Option<SyncSender<String>>,
    shown: Arc<Mutex<Shown>>,
}

impl Sender {
    /// Returns `false` if the line was dropped.
    fn send(&self, line: String) -> bool {
        match &self.lines {
            Some(lines) => lines.try_send(line).is_ok(),
            None => false,
        }
    }
}

impl Events for Sender {
    fn progress(&self, progress: Progress) {
        self.send(progress_line(&progress));
    }

    /// Prints and stores a part of the output. Marks a gap if either fails.
    fn emitted(&self, part: &Content) {
        let Some(text) = part.as_text() else { return };
        let is_sent = self.send(neutral(text.trim_end_matches('\n')).into_owned());
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if is_sent && shown.text.len() + text.len() <= MAX_SHOWN {
            shown.text.push_str(text);
        } else {
            shown.has_gaps = true;
        }
    }
}

fn progress_line(progress: &Progress) -> String {
    let message = neutral_line(&progress.message);
    match progress.fraction {
        // The tool's fraction may be NaN or infinite.
        Some(fraction) if fraction.is_finite() => {
            format!("… {:.0}% {message}", fraction.clamp(0.0, 1.0) * 100.0)
        }
        _ => format!("… {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_neutral_line() {
        let line = |fraction, message: &str| {
            progress_line(&Progress { fraction, message: message.to_owned(), untrusted: false })
        };
        assert_eq!(line(Some(0.256), "reading"), "… 26% reading");
        assert_eq!(line(Some(7.0), "x"), "… 100% x");
        assert_eq!(line(Some(f64::NAN), "x"), "… x");
        assert_eq!(line(None, "a\nb\u{1b}[2J"), "… a b\u{fffd}[2J");
    }

    #[test]
    fn output_shown_in_full_is_not_repeated() {
        let shown = |text: &str, has_gaps| Shown { text: text.to_owned(), has_gaps };
        assert!(shown("a\nb\n", false).has_exactly_the_lines_of(&["a\nb"]));
        assert!(shown("err\nout\n", false).has_exactly_the_lines_of(&["out\n", "err\n"]));
        assert!(!shown("a\n", false).has_exactly_the_lines_of(&["a\nb\n"]));
        assert!(!shown("a\na\n", false).has_exactly_the_lines_of(&["a\n"]));
        assert!(!shown("a\n", true).has_exactly_the_lines_of(&["a\n"]));
        assert!(!shown("", false).has_exactly_the_lines_of(&[""]), "nothing was shown");
    }
}
