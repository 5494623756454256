//! The two clocks of a call: the ticker that lets the host look at running guests, and the meter of what a call has used of a processor.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::EngineWeak;

use crate::ready;

/// How often running guests are looked at. It bounds how long a call may hold a thread of the reactor before it is moved to a thread of
/// its own, and how late a deadline or a cancellation is seen.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// How many ticks without a call the ticker goes on before it sleeps until the next call: waking it up costs that call more than a tick.
const IDLE_TICKS: u32 = 50;

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
pub(crate) struct Ticking(Arc<Shared>);

impl Ticker {
    pub(crate) fn start(engine: EngineWeak, housekeeper: Arc<ready::Shared>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("berth-ticker".into()).spawn(move || tick(&of_thread, &engine, &housekeeper))?;
        Ok(Self(shared))
    }

    pub(crate) fn keep_ticking(&self) -> Ticking {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        if self.0.asleep.load(Ordering::SeqCst) {
            self.0.notify();
        }
        Ticking(Arc::clone(&self.0))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::SeqCst);
        self.0.notify();
    }
}

impl Drop for Ticking {
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
    fn sleep(&self, housekeeper: &ready::Shared) {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(true, Ordering::SeqCst);
        // Looked at after `asleep` is set, while a call sets and looks in the other order: one of the two always sees the other.
        // A short call is over before this thread has woken up for it. It leaves work behind, and is done with that when it runs no more.
        while self.running.load(Ordering::SeqCst) == 0 && !housekeeper.has_work() && !self.end.load(Ordering::SeqCst) {
            held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

fn tick(shared: &Shared, engine: &EngineWeak, housekeeper: &Arc<ready::Shared>) {
    let mut idle = 0;
    while !shared.end.load(Ordering::SeqCst) {
        if shared.running.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
            if idle > IDLE_TICKS {
                shared.sleep(housekeeper);
                idle = 0;
                continue;
            }
        }
        std::thread::sleep(TICK);
        // Held for the one call only: a ticker must not keep an engine alive.
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        housekeeper.tick();
    }
}

/// What a call has used of a processor: the time of whatever thread polled it, while it did, and what host functions used on others.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of polls that are over, and of helping threads.
    used: AtomicU64,
    /// The thread's clock when the poll began that is running now.
    since: AtomicU64,
}

impl Meter {
    pub(crate) fn poll_begins(&self) {
        self.since.store(thread_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn poll_ends(&self) {
        self.used.fetch_add(self.current(), Ordering::Relaxed);
    }

    /// Adds what other threads worked for the call.
    pub(crate) fn charge(&self, time: Duration) {
        self.used.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What the call has used. Only to be asked on the thread that polls it.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed).saturating_add(self.current()))
    }

    fn current(&self) -> u64 {
        thread_nanos().saturating_sub(self.since.load(Ordering::Relaxed))
    }
}

fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
