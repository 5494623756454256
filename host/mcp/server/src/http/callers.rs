//! Limits the requests, bodies, connections and sessions of each caller over HTTP.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolhold_core::config::Serve;
use toolhold_core::{CancellationToken, Session};

/// Callers in memory. There are several callers only if an authorization server authenticates them.
const CALLERS: usize = 1024;

/// Sessions of one caller in memory.
const SESSIONS: usize = 256;

/// Time after which an idle session is removed.
const IDLE: Duration = Duration::from_secs(8 * 3600);

/// KiB of request bodies of one caller at a time.
const BODIES: usize = 16 << 10;

/// Connections of one caller at a time that a handshake opened.
pub(super) const CONNECTIONS: usize = 64;

/// The callers.
pub(super) struct Callers {
    requests: usize,
    per_minute: u64,
    known: Mutex<HashMap<Arc<str>, Arc<Caller>>>,
}

impl Callers {
    pub(super) fn new(settings: &Serve) -> Self {
        let requests = usize::try_from(settings.max_requests.get()).unwrap_or(usize::MAX);
        Self { requests, per_minute: settings.requests_per_minute.get(), known: Mutex::default() }
    }

    /// Returns the caller with this name. Returns `None` if too many other callers are active.
    pub(super) fn named(&self, name: &Arc<str>) -> Option<Arc<Caller>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = known.get(name) {
            return Some(Arc::clone(caller));
        }
        if known.len() >= CALLERS {
            let idle = known.iter().filter(|(_, caller)| Arc::strong_count(caller) == 1);
            let (oldest, _) = idle.min_by_key(|(_, caller)| caller.state().since)?;
            let oldest_name = Arc::clone(oldest);
            known.remove(&oldest_name);
        }
        let caller = Arc::new(Caller::new(Arc::clone(name), self.requests, self.per_minute));
        known.insert(Arc::clone(name), Arc::clone(&caller));
        Some(caller)
    }
}

/// A caller.
pub(super) struct Caller {
    pub(super) name: Arc<str>,
    requests: Arc<Semaphore>,
    /// KiB of bodies.
    bodies: Arc<Semaphore>,
    per_minute: u64,
    state: Mutex<State>,
    /// The connections that the caller opened at this server with a handshake.
    pub(super) connections: tokio::sync::Mutex<Vec<SessionId>>,
}

struct State {
    /// Remaining requests at `since`.
    left: f64,
    since: Instant,
    sessions: HashMap<String, (Session, Instant)>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Too many requests of the caller are open.
    Busy,
    /// The caller sent too many requests recently. The next request may come after this time.
    TooFast(Duration),
}

impl Caller {
    fn new(name: Arc<str>, requests: usize, per_minute: u64) -> Self {
        let state =
            State { left: per_minute as f64, since: Instant::now(), sessions: HashMap::new() };
        let requests = Arc::new(Semaphore::new(requests));
        let bodies = Arc::new(Semaphore::new(BODIES));
        Self {
            name,
            requests,
            bodies,
            per_minute,
            state: Mutex::new(state),
            connections: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves one request.
    ///
    /// # Errors
    ///
    /// Returns the reason if a limit is reached.
    pub(super) fn enter(self: &Arc<Self>) -> Result<CallerPlace, Refusal> {
        self.take_token(Instant::now())?;
        let place = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| Refusal::Busy)?;
        Ok(CallerPlace::new(Arc::clone(self), place))
    }

    /// Takes a token from the bucket. The bucket has a minute's requests and fills evenly.
    fn take_token(&self, now: Instant) -> Result<(), Refusal> {
        let mut state = self.state();
        let most = self.per_minute as f64;
        let since = std::mem::replace(&mut state.since, now);
        if self.per_minute == 0 {
            return Ok(());
        }
        let new = most * now.duration_since(since).as_secs_f64() / 60.0;
        state.left = (state.left + new).min(most);
        if state.left < 1.0 {
            let wait = (1.0 - state.left) * 60.0 / most;
            return Err(Refusal::TooFast(Duration::from_secs_f64(wait)));
        }
        state.left -= 1.0;
        Ok(())
    }

    /// Removes the caller's session with this handle. The session ends when its calls have ended.
    pub(super) fn forget(&self, handle: &str) {
        self.state().sessions.remove(handle);
    }

    /// Returns the caller's session with this handle.
    pub(super) fn session(&self, handle: &str) -> Session {
        let now = Instant::now();
        let mut state = self.state();
        if let Some((session, seen)) = state.sessions.get_mut(handle) {
            *seen = now;
            return session.clone();
        }
        state.sessions.retain(|_, (_, seen)| now.duration_since(*seen) < IDLE);
        if state.sessions.len() >= SESSIONS {
            let oldest = state.sessions.iter().min_by_key(|(_, (_, seen))| *seen);
            if let Some(handle) = oldest.map(|(handle, _)| handle.clone()) {
                state.sessions.remove(&handle);
            }
        }
        let principal = format!("mcp {}", self.name);
        let name = match handle {
            "" => principal.clone(),
            handle => format!("{principal} {handle}"),
        };
        let session = Session::of_principal(name, principal);
        state.sessions.insert(handle.to_owned(), (session.clone(), now));
        session
    }
}

/// The reserved slot of a request. The slot is released after the response is dropped.
#[derive(Clone)]
pub(super) struct CallerPlace {
    room: Arc<Room>,
    ended: CancellationToken,
}

struct Room {
    caller: Arc<Caller>,
    _place: OwnedSemaphorePermit,
    bodies: Mutex<Vec<OwnedSemaphorePermit>>,
}

impl fmt::Debug for CallerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// The slot of a request while the request is handled.
#[derive(Clone)]
pub(super) struct RequestSlot {
    held: CallerPlace,
    _ends: Arc<Ends>,
}

struct Ends(CancellationToken);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl CallerPlace {
    fn new(caller: Arc<Caller>, place: OwnedSemaphorePermit) -> Self {
        let room = Room { caller, _place: place, bodies: Mutex::default() };
        Self { room: Arc::new(room), ended: CancellationToken::new() }
    }

    /// Reserves KiB for the request's body in the caller's limit and in the total limit. Returns
    /// `false` if a limit is reached.
    pub(super) fn reserve_body(&self, all: &Arc<Semaphore>, kib: u32) -> bool {
        let own = Arc::clone(&self.room.caller.bodies).try_acquire_many_owned(kib);
        let (Ok(own), Ok(all)) = (own, Arc::clone(all).try_acquire_many_owned(kib)) else {
            return false;
        };
        let mut bodies = self.room.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.extend([own, all]);
        true
    }

    /// Makes the extension for the request.
    pub(super) fn working(&self) -> RequestSlot {
        RequestSlot { held: self.clone(), _ends: Arc::new(Ends(self.ended.clone())) }
    }

    /// Returns the reserved slot of a request over HTTP.
    pub(super) fn from_extensions(extensions: &rmcp::model::Extensions) -> Option<Self> {
        let parts = extensions.get::<http::request::Parts>()?;
        parts.extensions.get::<RequestSlot>().map(|working| working.held.clone())
    }

    /// Waits until the request is finished.
    pub(super) async fn wait_until_finished(&self) {
        self.ended.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(requests: u64, per_minute: u64) -> Callers {
        use toolhold_core::config::Bounded;
        let (max_requests, requests_per_minute) =
            (Bounded::clamped(requests), Bounded::clamped(per_minute));
        Callers::new(&Serve { max_requests, requests_per_minute, ..Serve::default() })
    }

    #[test]
    fn open_requests_are_bounded_per_caller() {
        let callers = callers(2, 0);
        let caller = callers.named(&"anna".into()).expect("is let in");
        let first = caller.enter().expect("has room");
        let working = first.working();
        let second = caller.enter().expect("has room");
        assert_eq!(caller.enter().expect_err("has none"), Refusal::Busy);
        assert!(callers.named(&"berta".into()).expect("is let in").enter().is_ok());
        drop(first);
        assert_eq!(caller.enter().expect_err("it is still worked on"), Refusal::Busy);
        drop(working);
        assert!(caller.enter().is_ok());
        drop(second);
    }

    #[test]
    fn request_rate_refills_evenly() {
        let callers = callers(64, 60);
        let caller = callers.named(&"anna".into()).expect("is let in");
        let now = Instant::now();
        for _ in 0..60 {
            assert_eq!(caller.take_token(now), Ok(()));
        }
        let Err(Refusal::TooFast(wait)) = caller.take_token(now) else {
            panic!("it is one too many")
        };
        assert!(wait > Duration::from_millis(900) && wait <= Duration::from_secs(1), "{wait:?}");
        assert_eq!(caller.take_token(now + Duration::from_millis(1100)), Ok(()));
        assert!(caller.take_token(now + Duration::from_millis(1100)).is_err());
        assert_eq!(caller.take_token(now + Duration::from_secs(3600)), Ok(()));
    }

    #[test]
    fn session_belongs_to_caller_and_handle() {
        let callers = callers(1, 0);
        let (anna, berta) = (
            callers.named(&"anna".into()).expect("is let in"),
            callers.named(&"berta".into()).expect("is let in"),
        );
        assert_eq!(&**anna.session("").name(), "mcp anna");
        assert_eq!(&**anna.session("x").name(), "mcp anna x");
        assert_eq!(&**berta.session("x").name(), "mcp berta x");
        for at in 0..2 * SESSIONS {
            anna.session(&at.to_string());
        }
        assert_eq!(anna.state().sessions.len(), SESSIONS);
        for at in 0..2 * CALLERS {
            callers.named(&at.to_string().into());
        }
        assert!(callers.known.lock().expect("is whole").len() <= CALLERS);
    }
}
