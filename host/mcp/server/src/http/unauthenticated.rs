//! Limits the connections that have sent no token yet. These connections have their own few slots.
//! If there are too many, the oldest is closed, so that clients that only connect never block
//! clients that call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use toolhold_core::CancellationToken;

/// Connections without a token at a time.
const NEWCOMERS: usize = 64;

/// Connections with a token that wait for a slot at a time.
const PATIENT: usize = 64;

/// Time that a caller waits for a connection's slot.
const PATIENCE: Duration = Duration::from_secs(15);

/// The connections of a server that have sent no token yet.
pub(super) struct Newcomers {
    waiting: Mutex<VecDeque<(u64, CancellationToken)>>,
    /// The slots of authenticated connections.
    places: Arc<Semaphore>,
    /// The slots of authenticated connections that wait.
    patient: Semaphore,
}

/// A connection that has sent no token yet.
pub(super) struct Newcomer {
    all: Arc<Newcomers>,
    number: u64,
    /// The peer of the connection, for the log.
    pub(super) from: String,
    /// Cancelled to close the connection.
    pub(super) leave: CancellationToken,
    place: OnceCell<OwnedSemaphorePermit>,
}

impl Newcomers {
    /// Allows at most `most` authenticated connections.
    pub(super) fn new(most: u64) -> Arc<Self> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(most)),
            patient: Semaphore::new(PATIENT),
        })
    }

    /// Adds a connection, and closes the oldest if there are too many.
    pub(super) fn enter(self: &Arc<Self>, number: u64, from: String) -> Newcomer {
        let leave = CancellationToken::new();
        let mut waiting = self.waiting();
        waiting.push_back((number, leave.clone()));
        let oldest = if waiting.len() > NEWCOMERS { waiting.pop_front() } else { None };
        drop(waiting);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        Newcomer { all: Arc::clone(self), number, from, leave, place: OnceCell::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Newcomer {
    /// Gives an authenticated connection a slot. Returns `false` if there is no free slot, or if
    /// the connection was closed before.
    pub(super) async fn admit(&self) -> bool {
        self.place.get_or_try_init(|| self.take_place()).await.is_ok()
    }

    async fn take_place(&self) -> Result<OwnedSemaphorePermit, ()> {
        // From here on, connections without a token can't close this connection.
        self.forget();
        if self.leave.is_cancelled() {
            return Err(());
        }
        if let Ok(place) = Arc::clone(&self.all.places).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting_slot = self.all.patient.try_acquire().map_err(drop)?;
        match timeout(PATIENCE, Arc::clone(&self.all.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(()),
        }
    }

    fn forget(&self) {
        self.all.waiting().retain(|(number, _)| *number != self.number);
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
            assert!(!second.leave.is_cancelled());
            assert_eq!(
                strangers.iter().filter(|stranger| stranger.leave.is_cancelled()).count(),
                100 - NEWCOMERS
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
            let visitors: Vec<Newcomer> =
                (0..=PATIENT as u64 + 1).map(|number| all.enter(number, String::new())).collect();
            // The oldest was closed, as too many had no token.
            let mut visitors = visitors.iter().filter(|visitor| !visitor.leave.is_cancelled());
            assert!(visitors.next().expect("one is there").admit().await);
            let mut waiting: Vec<_> = visitors.map(|visitor| Box::pin(visitor.admit())).collect();
            let mut pending = 0;
            for stays in &mut waiting {
                pending += usize::from(
                    stays.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
                );
            }
            assert_eq!(pending, PATIENT - 1);
            let extra = [all.enter(1000, String::new()), all.enter(1001, String::new())];
            let mut last = Box::pin(extra[0].admit());
            assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!extra[1].admit().await);
        });
    }
}
