//! Connections that have shown no token yet: a few, in places of their own. The oldest goes when there are too many, so that those who only
//! connect keep nobody waiting who may call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_host::CancellationToken;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Connections without a token at a time.
const NEWCOMERS: usize = 64;

/// How long a caller waits for the place of a connection.
const PATIENCE: Duration = Duration::from_secs(15);

/// All connections of a server.
pub(super) struct Newcomers {
    waiting: Mutex<VecDeque<(u64, CancellationToken)>>,
    /// The places of those that have shown a token.
    places: Arc<Semaphore>,
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
        let places = Semaphore::new(usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS));
        Arc::new(Self { waiting: Mutex::default(), places: Arc::new(places) })
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
    /// It has shown who it is, and gets a place among the others. `false`: there is none.
    pub(super) async fn stays(&self) -> bool {
        let place = || async {
            let place = timeout(PATIENCE, Arc::clone(&self.all.places).acquire_owned()).await;
            let place = place.ok().and_then(Result::ok).ok_or(());
            self.forget();
            place
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
