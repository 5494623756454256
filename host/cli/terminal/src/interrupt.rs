//! What Ctrl-C, Ctrl-Z and the signals that end a process do to a running command.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use toolhold_core::{CancellationToken, HostError};

/// A shell's exit code for an interrupted command: 128 plus the signal's number.
const INTERRUPTED: i32 = 130;

/// Whether this process was started by `nohup` or the like.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// What Ctrl-C interrupts. A second one, or one while nothing runs, ends the process.
#[derive(Clone)]
pub struct Interrupts {
    current: Arc<Mutex<OnSignal>>,
    signals: Handle,
}

/// What a signal does.
#[derive(Default)]
enum OnSignal {
    /// It ends the process.
    #[default]
    End,
    Cancel(CancellationToken),
    /// It is passed on.
    Pass(Box<dyn Fn() + Send>),
}

impl Interrupts {
    /// Listens to Ctrl-C, SIGTERM and SIGHUP, which a terminal sends that is closed.
    ///
    /// # Errors
    ///
    /// The system's, for the handler or its thread.
    pub fn listen() -> Result<Self, HostError> {
        let listened = [Some(SIGINT), Some(SIGTERM), (!ignores_hangup()).then_some(SIGHUP)];
        let mut signals = Signals::new(listened.into_iter().flatten())
            .map_err(HostError::io("listening to Ctrl-C"))?;
        let current = Self { current: Arc::default(), signals: signals.handle() };
        let running = Arc::clone(&current.current);
        let watch = move || {
            for _signal in signals.forever() {
                let mut current = running.lock().unwrap_or_else(PoisonError::into_inner);
                match std::mem::take(&mut *current) {
                    OnSignal::Cancel(token) => token.cancel(),
                    OnSignal::Pass(pass) => {
                        pass();
                        *current = OnSignal::Pass(pass);
                    }
                    OnSignal::End => std::process::exit(INTERRUPTED),
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
        self.set(OnSignal::Cancel(token.clone()));
        token
    }

    /// Nothing runs.
    pub fn disarm(&self) {
        self.set(OnSignal::End);
    }

    /// From now on, these signals and SIGHUP are passed on: whoever gets them has to give the
    /// terminal back first.
    ///
    /// # Errors
    ///
    /// The system's, for the handler.
    pub fn pass_to(&self, pass: impl Fn() + Send + 'static) -> std::io::Result<()> {
        self.set(OnSignal::Pass(Box::new(pass)));
        self.signals.add_signal(SIGHUP)
    }

    fn set(&self, on_signal: OnSignal) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = on_signal;
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

/// Stops this process as Ctrl-Z does, until it is continued. It goes to this thread: the others
/// would let it run on for a moment.
///
/// # Errors
///
/// The system's.
pub fn stop() -> std::io::Result<()> {
    signal_hook::low_level::raise(SIGTSTP)
}
