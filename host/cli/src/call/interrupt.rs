use std::thread;

use berth_core::{CancellationToken, HostError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a shell reports for a command that was interrupted: 128 and the signal's number.
const INTERRUPTED: i32 = 130;

/// A token that Ctrl-C sets, so that the call ends as a cancelled one: tools leave nothing half
/// done. Who presses it again won't wait.
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
