//! Explains long waits on a terminal.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::style::FAINT;

/// The time before the first message and between messages. Shorter waits have no message.
const STEP: Duration = Duration::from_millis(500);

const CLEAR: &str = "\r\x1b[K";

/// Waits for `work`. During a long wait, prints `reason` and the elapsed time if stderr is a
/// terminal. `reason` returns one short line.
pub async fn show<T>(work: impl Future<Output = T>, reason: impl Fn() -> String) -> T {
    let mut work = pin!(work);
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let started = Instant::now();
    let mut is_shown = false;
    loop {
        if let Ok(output) = timeout(STEP, &mut work).await {
            if is_shown {
                let _ = write!(anstream::stderr(), "{CLEAR}");
            }
            return output;
        }

        let seconds = started.elapsed().as_secs();
        let reason = reason();
        let _ = write!(anstream::stderr(), "{CLEAR}{FAINT}{reason}, {seconds} s{FAINT:#}");
        is_shown = true;
    }
}

/// The most names of plugins in a message.
const MAX_NAMES: usize = 2;

/// Returns the message about plugins that are loading.
pub fn loading(plugins: &[String]) -> String {
    let mut names = Vec::new();
    for plugin in plugins.iter().take(MAX_NAMES) {
        names.push(format!("`{plugin}`"));
    }
    let more = match plugins.len() - names.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!("loading {}{more} (each new plugin is compiled once)", names.join(", "))
}
