//! Ctrl-C.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use berth_core::{CancellationToken, HostError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A shell's exit code for an interrupted command: 128 plus the signal's number.
const INTERRUPTED: i32 = 130;

/// What Ctrl-C interrupts. A second one, or one while nothing runs, ends the process.
#[derive(Clone, Debug)]
pub struct Interrupts(Arc<Mutex<Option<CancellationToken>>>);

impl Interrupts {
    /// Listens to Ctrl-C and SIGTERM.
    ///
    /// # Errors
    ///
    /// The system's, for the handler or its thread.
    pub fn listen() -> Result<Self, HostError> {
        let current = Self(Arc::default());
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).map_err(HostError::io("listening to Ctrl-C"))?;
        let running = current.clone();
        let watch = move || {
            for _signal in signals.forever() {
                let token = running.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                match token {
                    Some(token) => token.cancel(),
                    None => std::process::exit(INTERRUPTED),
                }
            }
        };
        let thread = thread::Builder::new().name("interrupt".to_owned()).spawn(watch);
        thread.map_err(HostError::io("starting the thread that waits for Ctrl-C"))?;
        Ok(current)
    }

    /// A token that the next Ctrl-C cancels.
    pub fn arm(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        token
    }

    /// Nothing runs.
    pub fn disarm(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A token that Ctrl-C cancels, so that the call ends as cancelled: tools leave nothing half done.
/// A second Ctrl-C ends the process at once.
///
/// # Errors
///
/// Those of [`Interrupts::listen`].
pub fn cancellation() -> Result<CancellationToken, HostError> {
    Ok(Interrupts::listen()?.arm())
}
