//! The ticker: interrupts running guests periodically, so that the host can check them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::EngineWeak;

/// The interval at which running guests are interrupted. It limits the time for which a call may
/// block a thread of the reactor before the call moves to a separate thread. It also limits the
/// delay until a deadline or a cancellation is noticed.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Number of ticks without a call after which the ticker sleeps. Waking the ticker takes more time
/// of the next call than a tick.
const IDLE_TICKS: u32 = 50;

/// Background work that the ticker starts, so that calls don't have to start it.
pub(crate) trait Chores: Send + Sync + 'static {
    /// Checks whether there is work that isn't started yet.
    fn has_work(&self) -> bool;

    /// Starts the work, if there is any.
    fn tick(self: &Arc<Self>);
}

/// Increments an engine's epoch while calls run. The ticker's thread ends with the engine.
#[derive(Debug)]
pub(crate) struct Ticker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    running: AtomicUsize,
    asleep: AtomicBool,
    end: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// Keeps the ticker running until this guard is dropped.
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

    /// Keeps the ticker running until the guard is dropped. Wakes the ticker if it sleeps.
    pub(crate) fn keep_ticking(&self) -> TickGuard {
        self.0.running.fetch_add(1, Ordering::SeqCst);
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
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn notify(&self) {
        let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }

    /// Sleeps until a call runs, there is work, or the engine ends.
    fn sleep(&self, chores: &impl Chores) {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(true, Ordering::SeqCst);
        // This thread sets `asleep` and then reads `running`. A call sets `running` and then reads
        // `asleep`. So at least one of them sees the other. A short call may end before this thread
        // wakes up. The call adds its work before it stops running, so the work is noticed.
        while self.running.load(Ordering::SeqCst) == 0
            && !chores.has_work()
            && !self.end.load(Ordering::SeqCst)
        {
            held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// Ticks until the engine ends. After [`IDLE_TICKS`] ticks without a call, it sleeps.
fn run_ticker(shared: &Shared, engine: &EngineWeak, chores: &Arc<impl Chores>) {
    let mut idle_ticks = 0;
    while !shared.end.load(Ordering::SeqCst) {
        if shared.running.load(Ordering::SeqCst) > 0 {
            idle_ticks = 0;
        } else {
            idle_ticks += 1;
        }
        if idle_ticks > IDLE_TICKS {
            shared.sleep(&**chores);
            idle_ticks = 0;
            continue;
        }

        std::thread::sleep(TICK);
        // The engine is held only for this tick, because the ticker must not keep the engine alive.
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        chores.tick();
    }
}
