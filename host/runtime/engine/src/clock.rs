//! The ticker interrupts running guests periodically. The host checks them at each interruption.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::EngineWeak;

/// The interval between interruptions. A deadline or a cancellation is noticed at the next
/// interruption. A guest that blocks a thread of the reactor moves to another thread at the next
/// interruption.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Ticks without a call after which the ticker sleeps. The ticker doesn't sleep earlier, because
/// waking it costs the next call more time than a tick.
const IDLE_TICKS: u32 = 50;

/// Background work that the ticker starts. A call doesn't start it, because starting a thread takes
/// time.
pub(crate) trait Chores: Send + Sync + 'static {
    /// Returns whether [`Self::tick`] would start work.
    fn has_work(&self) -> bool;

    /// Starts the work. Called at each tick.
    fn tick(self: &Arc<Self>);
}

/// Increments an engine's epoch while calls run. The ticker's thread ends with the engine.
#[derive(Debug)]
pub(crate) struct Ticker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The number of [`TickGuard`]s.
    running_guests: AtomicUsize,
    /// Whether the ticker waits for `wake`.
    asleep: AtomicBool,
    /// Whether the ticker must end.
    end: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// Keeps the ticker running until it is dropped.
#[derive(Debug)]
pub(crate) struct TickGuard(Arc<Shared>);

impl Ticker {
    pub(crate) fn start(engine: EngineWeak, chores: Arc<impl Chores>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("toolhold-ticker".into())
            .spawn(move || run_ticker(&thread_shared, &engine, &chores))?;
        Ok(Self(shared))
    }

    /// Keeps the ticker running until the guard is dropped. Wakes a sleeping ticker.
    pub(crate) fn keep_ticking(&self) -> TickGuard {
        self.0.running_guests.fetch_add(1, Ordering::SeqCst);
        if self.0.asleep.load(Ordering::SeqCst) {
            self.0.notify();
        }
        TickGuard(Arc::clone(&self.0))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::SeqCst);
        self.0.notify();
    }
}

impl Drop for TickGuard {
    fn drop(&mut self) {
        self.0.running_guests.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn notify(&self) {
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }

    /// Sleeps until a guest runs, `chores` has work, or the engine ends.
    fn sleep(&self, chores: &Arc<impl Chores>) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(true, Ordering::SeqCst);
        // No wake-up is lost. This thread sets `asleep` before it reads `running_guests`, and a
        // starting guest increments `running_guests` before it reads `asleep`. If a guest ends
        // before this thread wakes up, its call has already added work to `chores`.
        while self.running_guests.load(Ordering::SeqCst) == 0
            && !chores.has_work()
            && !self.end.load(Ordering::SeqCst)
        {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// Interrupts guests at each tick. Sleeps after [`IDLE_TICKS`] ticks without a guest. Returns when
/// the engine was dropped.
fn run_ticker(shared: &Shared, engine: &EngineWeak, chores: &Arc<impl Chores>) {
    let mut idle_ticks = 0;
    while !shared.end.load(Ordering::SeqCst) {
        if shared.running_guests.load(Ordering::SeqCst) > 0 {
            idle_ticks = 0;
        } else {
            idle_ticks += 1;
        }
        if idle_ticks > IDLE_TICKS {
            shared.sleep(chores);
            idle_ticks = 0;
            continue;
        }

        std::thread::sleep(TICK);
        // The strong reference is dropped after this tick, because the ticker must not keep the
        // engine alive.
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        chores.tick();
    }
}
