//! Says on a terminal why a command takes long.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::style::FAINT;

/// Time between two messages, and before the first one: a short wait needs no words.
const STEP: Duration = Duration::from_millis(500);

/// Clears the line of the cursor.
const CLEAR: &str = "\r\x1b[K";

/// Waits for `work`. If it takes long and stderr is a terminal, says the reason and the time.
/// `what`: the reason, at most one short line.
pub async fn show<T>(work: impl Future<Output = T>, what: impl Fn() -> String) -> T {
    let mut work = pin!(work);
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let started = Instant::now();
    let mut shown = false;
    loop {
        if let Ok(done) = timeout(STEP, &mut work).await {
            if shown {
                let _ = write!(anstream::stderr(), "{CLEAR}");
            }
            return done;
        }
        let seconds = started.elapsed().as_secs();
        let _ = write!(anstream::stderr(), "{CLEAR}{FAINT}{}, {seconds} s{FAINT:#}", what());
        shown = true;
    }
}

/// A description of the loading of these plugins.
pub fn loading(plugins: &[String]) -> String {
    /// Names that are shown: the line has to fit.
    const SHOWN: usize = 2;
    let names: Vec<String> = plugins.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = match plugins.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("loading {}{more} (each new plugin is compiled once)", names.join(", "))
}
