use std::thread;

use berth_core::{CancellationToken, HostError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A shell's exit code for an interrupted command: 128 plus the signal's number.
const INTERRUPTED: i32 = 130;

/// A token that Ctrl-C cancels, so that the call ends as cancelled: tools leave nothing half done.
/// A second Ctrl-C ends the process at once.
///
/// # Errors
///
/// The system's, for the handler or its thread.
pub(crate) fn cancellation() -> Result<CancellationToken, HostError> {
    let token = CancellationToken::new();
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(HostError::io("listening to Ctrl-C"))?;
    let cancel = token.clone();
    let watch = move || {
        for _signal in signals.forever() {
            if cancel.is_cancelled() {
                std::process::exit(INTERRUPTED);
            }
            cancel.cancel();
        }
    };
    thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(watch)
        .map_err(HostError::io("starting the thread that waits for Ctrl-C"))?;
    Ok(token)
}
