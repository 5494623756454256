//! Limits the connections that haven't authenticated yet. They have their own slots, so they can't
//! take the slots of authenticated clients. Each connection has some time to authenticate. At the
//! limit, a further connection waits until the time of the oldest one is over, and closes it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use toolhold_core::CancellationToken;

/// Maximum number of connections that haven't authenticated.
const MAX_NEWCOMERS: usize = 256;

/// Time in which a connection may authenticate, also at the limit. It is short, because clients
/// without a token can delay further connections by this time.
const MIN_TIME: Duration = Duration::from_millis(250);

/// Maximum number of authenticated connections that wait for a slot. Further connections are
/// refused.
const MAX_WAITING: usize = 64;

/// Maximum time that an authenticated connection waits for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Newcomers {
    /// Connections that haven't authenticated, the oldest first.
    unauthenticated: Mutex<VecDeque<Unauthenticated>>,
    /// Notified after a removal from `unauthenticated`.
    removed: Notify,
    /// Time in which a connection may authenticate, also at the limit.
    min_time: Duration,
    /// Has a permit for each authenticated connection.
    slots: Arc<Semaphore>,
    /// Has a permit for each connection that waits for `slots`.
    waiting: Semaphore,
}

struct Unauthenticated {
    number: u64,
    /// The end of the time to authenticate.
    deadline: Instant,
    close: CancellationToken,
}

/// A connection, which starts unauthenticated.
pub(super) struct Newcomer {
    all: Arc<Newcomers>,
    number: u64,
    /// The peer, for the log.
    pub(super) from: String,
    /// Closes the connection when cancelled.
    pub(super) close: CancellationToken,
    slot: OnceCell<OwnedSemaphorePermit>,
}

impl Newcomers {
    pub(super) fn new(max_authenticated: u64) -> Arc<Self> {
        Self::with_min_time(max_authenticated, MIN_TIME)
    }

    fn with_min_time(max_authenticated: u64, min_time: Duration) -> Arc<Self> {
        let max_slots = usize::try_from(max_authenticated).unwrap_or(usize::MAX);
        let slots = max_slots.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            unauthenticated: Mutex::default(),
            removed: Notify::new(),
            min_time,
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Semaphore::new(MAX_WAITING),
        })
    }

    /// Adds a connection that isn't authenticated. At the limit, waits until another connection
    /// authenticates or ends, or until the time of the oldest connection is over.
    pub(super) async fn enter(self: &Arc<Self>, number: u64, from: String) -> Newcomer {
        let close = CancellationToken::new();
        while let Err(deadline) = self.add(number, &close) {
            // After a timeout, `add` closes the oldest connection.
            let _ = timeout_at(deadline, self.removed.notified()).await;
        }
        Newcomer { all: Arc::clone(self), number, from, close, slot: OnceCell::new() }
    }

    /// Adds a connection. At the limit, closes the oldest connection. If the time of the oldest
    /// connection isn't over, its end is returned as an error.
    fn add(&self, number: u64, close: &CancellationToken) -> Result<(), Instant> {
        let mut connections = self.unauthenticated();
        let now = Instant::now();
        if connections.len() >= MAX_NEWCOMERS
            && let Some(oldest) = connections.front()
        {
            if now < oldest.deadline {
                return Err(oldest.deadline);
            }
            // `take_slot` takes the same lock, so a connection is either closed here or admitted
            // there, and never both.
            oldest.close.cancel();
            connections.pop_front();
        }
        let deadline = now + self.min_time;
        connections.push_back(Unauthenticated { number, deadline, close: close.clone() });
        Ok(())
    }

    fn unauthenticated(&self) -> MutexGuard<'_, VecDeque<Unauthenticated>> {
        self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Newcomer {
    /// Gives an authenticated connection a slot. Returns `false` without a free slot, and for a
    /// closed connection.
    pub(super) async fn admit(&self) -> bool {
        self.slot.get_or_try_init(|| self.take_slot()).await.is_ok()
    }

    /// Takes a slot for an authenticated connection. Waits at most [`SLOT_TIMEOUT`] for a free
    /// slot.
    async fn take_slot(&self) -> Result<OwnedSemaphorePermit, ()> {
        // After this line, `add` can't close this connection any more.
        self.forget();
        if self.close.is_cancelled() {
            return Err(());
        }
        if let Ok(slot) = Arc::clone(&self.all.slots).try_acquire_owned() {
            return Ok(slot);
        }
        let Ok(_waiting) = self.all.waiting.try_acquire() else { return Err(()) };
        match timeout(SLOT_TIMEOUT, Arc::clone(&self.all.slots).acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            // The semaphore is never closed, so only a timeout fails.
            Ok(Err(_)) | Err(_) => Err(()),
        }
    }

    fn forget(&self) {
        self.all.unauthenticated().retain(|connection| connection.number != self.number);
        self.all.removed.notify_one();
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    async fn enter(all: &Arc<Newcomers>, numbers: std::ops::Range<usize>) -> Vec<Newcomer> {
        let mut newcomers = Vec::new();
        for number in numbers {
            newcomers.push(all.enter(number as u64, String::new()).await);
        }
        newcomers
    }

    #[tokio::test]
    async fn connection_has_time_to_authenticate() {
        let all = Newcomers::with_min_time(1, Duration::from_secs(3600));
        let mut newcomers = enter(&all, 0..MAX_NEWCOMERS).await;
        let mut next = pin!(all.enter(1000, String::new()));
        assert!(is_pending(next.as_mut()), "the oldest has some time left");
        drop(newcomers.pop());
        let next = next.await;
        assert!(newcomers.iter().chain([&next]).all(|newcomer| !newcomer.close.is_cancelled()));
    }

    #[tokio::test]
    async fn oldest_connection_is_closed_after_its_time() {
        let all = Newcomers::with_min_time(1, Duration::from_millis(10));
        let newcomers = enter(&all, 0..MAX_NEWCOMERS + 1).await;
        let open = newcomers.iter().position(|newcomer| !newcomer.close.is_cancelled());
        assert_eq!(open, Some(1));
        assert!(!newcomers[0].admit().await);
        assert!(newcomers[1].admit().await);
    }

    #[tokio::test]
    async fn connection_with_a_token_waits_among_newcomers() {
        let all = Newcomers::with_min_time(1, Duration::ZERO);
        let first = all.enter(0, String::new()).await;
        assert!(first.admit().await);
        let second = all.enter(1, String::new()).await;
        let mut stays = pin!(second.admit());
        assert!(is_pending(stays.as_mut()));
        let strangers = enter(&all, 2..2 * MAX_NEWCOMERS).await;
        assert!(!second.close.is_cancelled());
        let closed = strangers.iter().filter(|stranger| stranger.close.is_cancelled());
        assert_eq!(closed.count(), MAX_NEWCOMERS - 2);
        drop(first);
        assert!(stays.await);
    }

    #[tokio::test]
    async fn waiting_connections_are_bounded() {
        let all = Newcomers::new(1);
        let first = all.enter(0, String::new()).await;
        assert!(first.admit().await);
        let visitors = enter(&all, 1..MAX_WAITING + 2).await;
        let mut waiting: Vec<_> =
            visitors.iter().map(|visitor| Box::pin(visitor.admit())).collect();
        let mut last = waiting.pop().expect("there is one more than may wait");
        for stays in &mut waiting {
            assert!(is_pending(stays.as_mut()));
        }
        assert!(!is_pending(last.as_mut()), "too many wait");
    }
}
