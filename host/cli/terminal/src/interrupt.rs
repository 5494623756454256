//! Handles Ctrl-C, Ctrl-Z and the signals that end a process.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use toolhold_core::{CancellationToken, HostError};

/// As in shells: 128 plus the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// Checks whether this process ignores SIGHUP, for example under `nohup`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(mask) = status.lines().find_map(|line| line.strip_prefix("SigIgn:")) else {
        return false;
    };
    let Ok(mask) = u64::from_str_radix(mask.trim(), 16) else { return false };
    // The lowest bit stands for signal 1.
    let hangup_bit = 1 << (SIGHUP - 1);
    mask & hangup_bit != 0
}

/// The work that Ctrl-C interrupts. Ctrl-C ends the process if there is no work, or if the work was
/// already interrupted.
#[derive(Clone)]
pub struct Interrupts {
    current: Arc<Mutex<OnSignal>>,
    signals: Handle,
}

#[derive(Default)]
enum OnSignal {
    #[default]
    End,
    Cancel(CancellationToken),
    Call(Box<dyn Fn() + Send>),
}

impl Interrupts {
    /// Handles SIGINT, SIGTERM and SIGHUP, which a closed terminal sends.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the handler or its thread can't be started.
    pub fn listen() -> Result<Self, HostError> {
        let mut numbers = vec![SIGINT, SIGTERM];
        if !ignores_hangup() {
            numbers.push(SIGHUP);
        }
        let signals = Signals::new(numbers).map_err(HostError::io("listening to Ctrl-C"))?;
        let interrupts = Self { current: Arc::default(), signals: signals.handle() };

        let current = Arc::clone(&interrupts.current);
        thread::Builder::new()
            .name("interrupt".to_owned())
            .spawn(move || watch(signals, &current))
            .map_err(HostError::io("the thread that waits for Ctrl-C can't be started"))?;
        Ok(interrupts)
    }

    /// Makes a token that the next Ctrl-C cancels.
    pub fn arm(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.set(OnSignal::Cancel(token.clone()));
        token
    }

    /// Lets the next Ctrl-C end the process.
    pub fn disarm(&self) {
        self.set(OnSignal::End);
    }

    /// Calls `handler` for each signal from now on. The process doesn't end, because the terminal
    /// must be restored first.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the handler can't be set.
    pub fn pass_to(&self, handler: impl Fn() + Send + 'static) -> std::io::Result<()> {
        self.set(OnSignal::Call(Box::new(handler)));
        // `listen` leaves SIGHUP out if the process ignores it, but `handler` needs it too.
        self.signals.add_signal(SIGHUP)
    }

    fn set(&self, on_signal: OnSignal) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = on_signal;
    }
}

/// Cancels a call, calls a function, or ends the process for each signal.
fn watch(mut signals: Signals, current: &Mutex<OnSignal>) {
    for _signal in signals.forever() {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        // `take` leaves `OnSignal::End`, so the next signal ends the process.
        match std::mem::take(&mut *current) {
            OnSignal::Cancel(token) => token.cancel(),
            OnSignal::Call(handler) => {
                handler();
                *current = OnSignal::Call(handler);
            }
            OnSignal::End => std::process::exit(INTERRUPTED),
        }
    }
}

/// Makes a token that Ctrl-C cancels. A second Ctrl-C ends the process immediately.
///
/// # Errors
///
/// Returns the errors of [`Interrupts::listen`].
pub fn cancellation() -> Result<CancellationToken, HostError> {
    Ok(Interrupts::listen()?.arm())
}

/// Stops this process until it is continued, as Ctrl-Z does. The signal goes to this thread,
/// because this thread must stop immediately.
///
/// # Errors
///
/// Returns the system's error.
pub fn stop() -> std::io::Result<()> {
    signal_hook::low_level::raise(SIGTSTP)
}
