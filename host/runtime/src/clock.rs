//! The ticker, which lets the host look at running guests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use wasmtime::EngineWeak;

/// How often running guests are looked at. It bounds how long a call may hold a thread of the
/// reactor before it is moved to a thread of its own, and how late a deadline or a cancellation is
/// seen.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// How many ticks without a call the ticker goes on before it sleeps until the next call: waking it
/// up costs that call more than a tick.
const IDLE_TICKS: u32 = 50;

/// What is done beside the calls, which the ticker looks after so that no call has to.
pub(crate) trait Chores: Send + Sync + 'static {
    /// Whether there is work that nobody was told of.
    fn has_work(&self) -> bool;

    /// Has it done, if there is some.
    fn tick(self: &Arc<Self>);
}

/// Moves an engine's epoch on while calls are running, on one thread that ends with the engine.
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

/// Keeps the ticker ticking.
#[derive(Debug)]
pub(crate) struct TickGuard(Arc<Shared>);

impl Ticker {
    pub(crate) fn start(engine: EngineWeak, chores: Arc<impl Chores>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("berth-ticker".into())
            .spawn(move || tick(&of_thread, &engine, &chores))?;
        Ok(Self(shared))
    }

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

    /// Sleeps until a call runs or has run, or the engine ends.
    fn sleep(&self, chores: &impl Chores) {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(true, Ordering::SeqCst);
        // Looked at after `asleep` is set, while a call sets and looks in the other order: one of
        // the two always sees the other. A short call is over before this thread has woken up for
        // it. It leaves work behind, and is done with that when it runs no more.
        while self.running.load(Ordering::SeqCst) == 0
            && !chores.has_work()
            && !self.end.load(Ordering::SeqCst)
        {
            held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

fn tick(shared: &Shared, engine: &EngineWeak, chores: &Arc<impl Chores>) {
    let mut idle = 0;
    while !shared.end.load(Ordering::SeqCst) {
        if shared.running.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
            if idle > IDLE_TICKS {
                shared.sleep(&**chores);
                idle = 0;
                continue;
            }
        }
        std::thread::sleep(TICK);
        // Held for the one call only: a ticker must not keep an engine alive.
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        chores.tick();
    }
}
