//! Handles Ctrl-C, Ctrl-Z and the signals that end a process while a command runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use toolhold_core::{CancellationToken, HostError};

/// A shell's exit code for an interrupted command: 128 plus the signal's number.
const INTERRUPTED: i32 = 130;

/// Checks whether this process ignores SIGHUP, as a process does that `nohup` started.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(mask) = status.lines().find_map(|line| line.strip_prefix("SigIgn:")) else {
        return false;
    };
    let Ok(mask) = u64::from_str_radix(mask.trim(), 16) else { return false };
    // The lowest bit is for signal 1.
    let hangup_bit = 1 << (SIGHUP - 1);
    mask & hangup_bit != 0
}

/// The work that Ctrl-C interrupts. Ctrl-C ends the process if nothing runs, or if it is the second
/// Ctrl-C.
#[derive(Clone)]
pub struct Interrupts {
    current: Arc<Mutex<OnSignal>>,
    signals: Handle,
}

/// The effect of a signal.
#[derive(Default)]
enum OnSignal {
    /// The signal ends the process.
    #[default]
    End,
    Cancel(CancellationToken),
    /// The signal is passed on.
    Pass(Box<dyn Fn() + Send>),
}

impl Interrupts {
    /// Handles Ctrl-C, SIGTERM and SIGHUP. A closed terminal sends SIGHUP.
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
            .map_err(HostError::io("starting the thread that waits for Ctrl-C"))?;
        Ok(interrupts)
    }

    /// Makes a token that the next Ctrl-C cancels.
    pub fn arm(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.set(OnSignal::Cancel(token.clone()));
        token
    }

    /// Lets the next Ctrl-C end the process, because nothing runs.
    pub fn disarm(&self) {
        self.set(OnSignal::End);
    }

    /// Calls `pass` for each of these signals, including SIGHUP, from now on. The callee must
    /// restore the terminal before the process ends.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the handler can't be set.
    pub fn pass_to(&self, pass: impl Fn() + Send + 'static) -> std::io::Result<()> {
        self.set(OnSignal::Pass(Box::new(pass)));
        self.signals.add_signal(SIGHUP)
    }

    fn set(&self, on_signal: OnSignal) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = on_signal;
    }
}

fn watch(mut signals: Signals, current: &Mutex<OnSignal>) {
    for _signal in signals.forever() {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *current) {
            OnSignal::Cancel(token) => token.cancel(),
            OnSignal::Pass(pass) => {
                pass();
                *current = OnSignal::Pass(pass);
            }
            OnSignal::End => std::process::exit(INTERRUPTED),
        }
    }
}

/// Makes a token that Ctrl-C cancels. The call then ends as cancelled, and tools leave no
/// incomplete changes. A second Ctrl-C ends the process immediately.
///
/// # Errors
///
/// Returns the errors of [`Interrupts::listen`].
pub fn cancellation() -> Result<CancellationToken, HostError> {
    Ok(Interrupts::listen()?.arm())
}

/// Stops this process as Ctrl-Z does, until the process is continued. The signal is sent to this
/// thread. If another thread got the signal, this thread would run on for a moment.
///
/// # Errors
///
/// Returns the system's error.
pub fn stop() -> std::io::Result<()> {
    signal_hook::low_level::raise(SIGTSTP)
}
