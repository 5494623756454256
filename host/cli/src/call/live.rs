//! What a call tells while it runs, for a person who watches.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use berth_host::text::{neutral, neutral_line};
use berth_host::{Content, Events, Progress};

use crate::style::FAINT;

/// Lines that wait for a slow terminal; what comes on top is not shown.
const WAITING: usize = 256;

/// Shows events on stderr, from a thread of its own: a terminal that has stopped must not hold up the call. Dropping it shows the rest.
pub(crate) struct Live {
    lines: Option<SyncSender<String>>,
    printer: Option<JoinHandle<()>>,
}

impl Live {
    /// `None` where stderr is no terminal.
    pub(crate) fn where_watched() -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let (lines, waiting) = sync_channel(WAITING);
        let printer = thread::Builder::new().name("events".to_owned()).spawn(move || print(&waiting)).ok()?;
        Some(Self { lines: Some(lines), printer: Some(printer) })
    }

    /// The end that the host gets. Once it is dropped as well, the thread ends.
    pub(crate) fn events(&self) -> Arc<dyn Events> {
        Arc::new(Sender(self.lines.clone()))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.lines.take();
        if let Some(printer) = self.printer.take() {
            // A panic there has been reported and changes nothing about the answer.
            let _ = printer.join();
        }
    }
}

fn print(waiting: &Receiver<String>) {
    let mut err = anstream::stderr();
    for line in waiting {
        // A terminal that is gone is nobody's concern here: the answer will meet it too.
        let _ = writeln!(err, "{FAINT}{line}{FAINT:#}");
    }
}

struct Sender(Option<SyncSender<String>>);

impl Sender {
    fn send(&self, line: String) {
        if let Some(lines) = &self.0 {
            let _ = lines.try_send(line);
        }
    }
}

impl Events for Sender {
    fn progress(&self, progress: Progress) {
        self.send(progress_line(&progress));
    }

    fn emitted(&self, part: &Content) {
        if let Some(text) = part.as_text() {
            self.send(neutral(text.trim_end_matches('\n')).into_owned());
        }
    }
}

fn progress_line(progress: &Progress) -> String {
    let message = neutral_line(&progress.message);
    match progress.fraction {
        Some(fraction) if fraction.is_finite() => format!("… {:.0}% {message}", fraction.clamp(0.0, 1.0) * 100.0),
        _ => format!("… {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_harmless_line() {
        let line = |fraction, message: &str| progress_line(&Progress { fraction, message: message.to_owned() });
        assert_eq!(line(Some(0.256), "reading"), "… 26% reading");
        assert_eq!(line(Some(7.0), "x"), "… 100% x");
        assert_eq!(line(Some(f64::NAN), "x"), "… x");
        assert_eq!(line(None, "a\nb\u{1b}[2J"), "… a b\u{fffd}[2J");
    }
}
