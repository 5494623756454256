//! Connections that have shown no token yet: a few, in places of their own. The oldest goes when
//! there are too many, so that those who only connect keep nobody waiting who may call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_core::CancellationToken;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Connections without a token at a time.
const NEWCOMERS: usize = 64;

/// Connections with a token that wait for a place at a time.
const PATIENT: usize = 64;

/// How long a caller waits for the place of a connection.
const PATIENCE: Duration = Duration::from_secs(15);

/// All connections of a server.
pub(super) struct Newcomers {
    waiting: Mutex<VecDeque<(u64, CancellationToken)>>,
    /// The places of those that have shown a token.
    places: Arc<Semaphore>,
    /// How many of these may wait for a place.
    patient: Semaphore,
}

/// One connection.
pub(super) struct Visitor {
    all: Arc<Newcomers>,
    number: u64,
    /// Where it comes from, for the log.
    pub(super) from: String,
    /// Cancelled when it has to go.
    pub(super) leave: CancellationToken,
    place: OnceCell<OwnedSemaphorePermit>,
}

impl Newcomers {
    /// `most`: connections that have shown a token.
    pub(super) fn new(most: u64) -> Arc<Self> {
        let places = Semaphore::new(
            usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS),
        );
        Arc::new(Self {
            waiting: Mutex::default(),
            places: Arc::new(places),
            patient: Semaphore::new(PATIENT),
        })
    }

    /// Takes one in, and has the oldest go where there are too many.
    pub(super) fn enter(self: &Arc<Self>, number: u64, from: String) -> Visitor {
        let leave = CancellationToken::new();
        let mut waiting = self.waiting();
        waiting.push_back((number, leave.clone()));
        let oldest = if waiting.len() > NEWCOMERS { waiting.pop_front() } else { None };
        drop(waiting);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        Visitor { all: Arc::clone(self), number, from, leave, place: OnceCell::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    /// It has shown who it is, and gets a place among the others. `false`: there is none, or it had
    /// to go before.
    pub(super) async fn stays(&self) -> bool {
        let place = || async {
            // From here on, no connection without a token has it go.
            self.forget();
            if self.leave.is_cancelled() {
                return Err(());
            }
            if let Ok(place) = Arc::clone(&self.all.places).try_acquire_owned() {
                return Ok(place);
            }
            let _waits = self.all.patient.try_acquire().map_err(drop)?;
            let place = timeout(PATIENCE, Arc::clone(&self.all.places).acquire_owned()).await;
            place.ok().and_then(Result::ok).ok_or(())
        };
        self.place.get_or_try_init(place).await.is_ok()
    }

    fn forget(&self) {
        self.all.waiting().retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Visitor {
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
    fn connection_with_a_token_waits_whoever_else_connects() {
        let reactor =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
        reactor.block_on(async {
            let all = Newcomers::new(1);
            let first = all.enter(0, String::new());
            assert!(first.stays().await);
            let second = all.enter(1, String::new());
            let mut stays = pin!(second.stays());
            assert!(stays.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let strangers: Vec<Visitor> =
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
    fn those_that_wait_for_a_place_are_bounded() {
        let reactor =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
        reactor.block_on(async {
            let all = Newcomers::new(1);
            let visitors: Vec<Visitor> =
                (0..=PATIENT as u64 + 1).map(|number| all.enter(number, String::new())).collect();
            // The oldest had to go, as there were more than may have shown nothing.
            let mut visitors = visitors.iter().filter(|visitor| !visitor.leave.is_cancelled());
            assert!(visitors.next().expect("one is there").stays().await);
            let mut waiting: Vec<_> = visitors.map(|visitor| Box::pin(visitor.stays())).collect();
            let mut pending = 0;
            for stays in &mut waiting {
                pending += usize::from(
                    stays.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
                );
            }
            assert_eq!(pending, PATIENT - 1);
            let extra = [all.enter(1000, String::new()), all.enter(1001, String::new())];
            let mut last = Box::pin(extra[0].stays());
            assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!extra[1].stays().await);
        });
    }
}
