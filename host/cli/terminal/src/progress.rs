//! Says on a terminal why a command takes long.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::style::FAINT;

/// The time between two messages, and before the first message. A short wait needs no message.
const STEP: Duration = Duration::from_millis(500);

/// Clears the line of the cursor.
const CLEAR: &str = "\r\x1b[K";

/// Waits for `work`. If the work takes long and stderr is a terminal, prints the reason and the
/// time. `reason` returns at most one short line.
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

/// Returns the message for these plugins while they are loading.
pub fn loading(plugins: &[String]) -> String {
    /// Number of names that fit the line.
    const MAX_NAMES: usize = 2;
    let names: Vec<String> =
        plugins.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = match plugins.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!("loading {}{more} (each new plugin is compiled once)", names.join(", "))
}
