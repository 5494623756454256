//! Limits the connections that haven't authenticated yet. They have their own slots, so they can't
//! take the slots of authenticated clients. At the limit, the oldest connection is closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use toolhold_core::CancellationToken;

/// Maximum number of connections that haven't authenticated. A further connection closes the
/// oldest.
const MAX_NEWCOMERS: usize = 64;

/// Maximum number of authenticated connections that wait for a slot. Further connections are
/// refused.
const MAX_WAITING: usize = 64;

/// Maximum time that an authenticated connection waits for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct Newcomers {
    /// Connections that haven't authenticated, the oldest first.
    unauthenticated: Mutex<VecDeque<(u64, CancellationToken)>>,
    /// Has a permit for each authenticated connection.
    slots: Arc<Semaphore>,
    /// Has a permit for each connection that waits for `slots`.
    waiting: Semaphore,
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
        let max_slots = usize::try_from(max_authenticated).unwrap_or(usize::MAX);
        let slots = max_slots.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            unauthenticated: Mutex::default(),
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Semaphore::new(MAX_WAITING),
        })
    }

    /// Adds a connection that isn't authenticated. At the limit, the oldest connection is closed.
    pub(super) fn enter(self: &Arc<Self>, number: u64, from: String) -> Newcomer {
        let close = CancellationToken::new();
        let mut connections = self.unauthenticated();
        connections.push_back((number, close.clone()));
        // `take_slot` takes the same lock, so a connection is either closed here or admitted there,
        // and never both.
        if connections.len() > MAX_NEWCOMERS
            && let Some((_number, close_oldest)) = connections.pop_front()
        {
            close_oldest.cancel();
        }
        drop(connections);
        Newcomer { all: Arc::clone(self), number, from, close, slot: OnceCell::new() }
    }

    fn unauthenticated(&self) -> MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
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
        // After this line, `enter` can't close this connection any more.
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
        self.all.unauthenticated().retain(|(number, _)| *number != self.number);
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
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn connection_with_a_token_waits_among_newcomers() {
        let reactor =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
        reactor.block_on(async {
            let all = Newcomers::new(1);
            let first = all.enter(0, String::new());
            assert!(first.admit().await);
            let second = all.enter(1, String::new());
            let mut stays = pin!(second.admit());
            assert!(stays.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let strangers: Vec<Newcomer> =
                (2..102).map(|number| all.enter(number, String::new())).collect();
            assert!(!second.close.is_cancelled());
            assert_eq!(
                strangers.iter().filter(|stranger| stranger.close.is_cancelled()).count(),
                100 - MAX_NEWCOMERS
            );
            drop(first);
            assert!(matches!(
                stays.as_mut().poll(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(true)
            ));
        });
    }

    #[test]
    fn waiting_connections_are_bounded() {
        let reactor =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
        reactor.block_on(async {
            let all = Newcomers::new(1);
            let visitors: Vec<Newcomer> = (0..=MAX_WAITING as u64 + 1)
                .map(|number| all.enter(number, String::new()))
                .collect();
            // The oldest was closed, as too many had no token.
            let mut visitors = visitors.iter().filter(|newcomer| !newcomer.close.is_cancelled());
            assert!(visitors.next().expect("one is there").admit().await);
            let mut waiting: Vec<_> = visitors.map(|newcomer| Box::pin(newcomer.admit())).collect();
            let mut pending = 0;
            for stays in &mut waiting {
                pending += usize::from(
                    stays.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
                );
            }
            assert_eq!(pending, MAX_WAITING - 1);
            let extra = [all.enter(1000, String::new()), all.enter(1001, String::new())];
            let mut last = Box::pin(extra[0].admit());
            assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!extra[1].admit().await);
        });
    }
}
