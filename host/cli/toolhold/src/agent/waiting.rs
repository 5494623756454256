//! Shows on stderr what `toolhold run` is waiting for.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use toolhold_terminal::style::FAINT;

/// The time between two updates of the line on a terminal.
const STEP: Duration = Duration::from_secs(1);

/// The time between two lines if the output keeps every line, for example in a file.
const LONG_STEP: Duration = Duration::from_secs(30);

/// Clears the current line.
const CLEAR: &str = "\r\x1b[K";

/// The reason and the time of a wait, which a separate thread shows.
pub(crate) struct WaitingLine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Whether an update overwrites the line.
    is_redrawn: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<WaitingState>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingState {
    wait: Option<Wait>,
    is_drawn: bool,
    is_over: bool,
}

#[derive(Clone)]
struct Wait {
    reason: String,
    since: Instant,
}

impl WaitingLine {
    /// Makes a waiting line. `can_redraw` says whether an update may overwrite the line.
    pub(crate) fn new(can_redraw: bool) -> Self {
        let term = std::env::var_os("TERM").unwrap_or_default();
        let is_simple = term.is_empty() || term == "dumb";
        let is_redrawn = can_redraw && !is_simple && std::io::stderr().is_terminal();
        Self { shared: Arc::default(), thread: None, is_redrawn }
    }

    /// Starts a wait, unless there is already a wait for the same reason.
    pub(crate) fn start(&mut self, reason: &str) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.wait.as_ref().is_some_and(|wait| wait.reason == reason) {
            return;
        }
        state.wait = Some(Wait { reason: reason.to_owned(), since: Instant::now() });
        drop(state);
        self.shared.changed.notify_one();
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let is_redrawn = self.is_redrawn;
            let builder = thread::Builder::new().name("waiting".to_owned());
            // The line is optional, so an error is ignored.
            self.thread = builder.spawn(move || draw(&shared, is_redrawn)).ok();
        }
    }

    pub(crate) fn stop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wait = None;
        if std::mem::take(&mut state.is_drawn) {
            let _ = write!(anstream::stderr(), "{CLEAR}");
        }
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        self.stop();
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}

/// Draws the line after each step of a wait. With `is_redrawn`, an update overwrites the line.
fn draw(shared: &Shared, is_redrawn: bool) {
    let step = if is_redrawn { STEP } else { LONG_STEP };
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.is_over {
        let start_before = state.wait.as_ref().map(|wait| wait.since);
        let waited = shared.changed.wait_timeout(state, step);
        let timeout;
        (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(Wait { reason, since }) = state.wait.clone() else { continue };
        // A wait is shown only if it has lasted a whole step.
        let is_same_wait = start_before == Some(since);
        if !timeout.timed_out() || !is_same_wait {
            continue;
        }
        let line = waiting_text(&reason, since.elapsed());
        // The lock is held, so `stop` can only clear the line after this write.
        if is_redrawn {
            let _ = write!(anstream::stderr(), "{CLEAR}{FAINT}{line}{FAINT:#}");
            state.is_drawn = true;
        } else {
            let _ = writeln!(anstream::stderr(), "{FAINT}{line}{FAINT:#}");
        }
    }
}

fn waiting_text(reason: &str, time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{reason}, {}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_the_reason_and_the_time() {
        let text = waiting_text("model reads 7,900 tokens", Duration::from_millis(42_900));
        assert_eq!(text, "model reads 7,900 tokens, 0:42");
        assert_eq!(waiting_text("x", Duration::from_secs(3_661)), "x, 61:01");
    }
}
