//! Limits the requests, bodies, connections and sessions of each caller over HTTP.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolhold_core::config::{PrincipalId, Serve, Who};
use toolhold_core::{CancellationToken, Session};

use super::refusals::Limit;

/// Maximum number of callers in memory. Without an authorization server, there is only one caller.
const MAX_CALLERS: usize = 1024;

/// Maximum number of a caller's sessions. A further session replaces the least recently used
/// session.
const MAX_SESSIONS: usize = 256;

const MAX_IDLE: Duration = Duration::from_secs(8 * 3600);

/// Maximum KiB of a caller's request bodies at a time. Further bodies are refused.
const MAX_BODY_KIB: usize = 16 << 10;

/// Maximum number of a caller's open connections with a handshake.
pub(super) const MAX_CONNECTIONS: usize = 64;

pub(super) struct Callers {
    /// Maximum number of open requests of a caller.
    max_requests: usize,
    /// Maximum number of requests of a caller in a minute. Zero means no limit.
    per_minute: u64,
    /// The callers by their token's ID, or by name if `toolhold token` didn't make their token. No
    /// name is an ID.
    callers: Mutex<HashMap<Arc<str>, Arc<Caller>>>,
}

impl Callers {
    pub(super) fn new(settings: &Serve) -> Self {
        let max_requests = usize::try_from(settings.max_requests.get()).unwrap_or(usize::MAX);
        let per_minute = settings.requests_per_minute.get();
        Self { max_requests, per_minute, callers: Mutex::default() }
    }

    /// Returns or creates the caller `name`. `who` is the caller if it has a token of its own. Two
    /// tokens of `toolhold token` with the same name are two callers, which end one by one. Returns
    /// `None` if too many callers have open requests.
    pub(super) fn get_or_create(&self, name: &Arc<str>, who: Option<&Who>) -> Option<Arc<Caller>> {
        let mut callers = self.callers();
        let token = who.and_then(|who| who.token.as_deref());
        if let Some(caller) = callers.get(token.unwrap_or(name)) {
            return Some(Arc::clone(caller));
        }
        if callers.len() >= MAX_CALLERS {
            // Removes the caller that was idle for the longest time. Each open request has a
            // reference to its caller, so only idle callers have a single reference.
            let idle = callers.values().filter(|caller| Arc::strong_count(caller) == 1);
            // Each request refills the bucket, so the last refill is the time of the last request.
            let longest_idle = idle.min_by_key(|caller| caller.state().last_refill)?;
            let removed_key = longest_idle.key();
            callers.remove(&removed_key);
        }
        let caller = Caller {
            token: token.map(Arc::from),
            principal: who.map(Who::id),
            ..Caller::new(Arc::clone(name), self.max_requests, self.per_minute)
        };
        let caller = Arc::new(caller);
        callers.insert(caller.key(), Arc::clone(&caller));
        Some(caller)
    }

    /// Returns the callers with tokens of their own.
    pub(super) fn with_own_tokens(&self) -> Vec<Arc<Caller>> {
        self.callers().values().filter(|caller| caller.principal.is_some()).cloned().collect()
    }

    /// Ends the calls, streams and sessions of all callers.
    pub(super) fn end_all(&self) {
        let callers: Vec<Arc<Caller>> = self.callers().values().cloned().collect();
        for caller in callers {
            self.end(&caller);
        }
    }

    /// Ends the calls, streams and sessions of a caller, and removes it.
    pub(super) fn end(&self, caller: &Caller) {
        self.callers().remove(&caller.key());
        caller.ended.cancel();
        caller.state().sessions.clear();
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Caller>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Caller {
    pub(super) name: Arc<str>,
    /// The ID of the caller's token, if `toolhold token` made it.
    pub(super) token: Option<Arc<str>>,
    /// The caller, if it has a token of its own.
    pub(super) principal: Option<PrincipalId>,
    /// Cancelled when the caller's token has expired or is revoked, or the caller is denied.
    pub(super) ended: CancellationToken,
    requests: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    per_minute: u64,
    state: Mutex<State>,
    /// Connections with a handshake, the least recently used first.
    pub(super) connections: tokio::sync::Mutex<Vec<SessionId>>,
}

struct State {
    /// Tokens in the bucket at `last_refill`, one for each allowed request.
    tokens: f64,
    last_refill: Instant,
    sessions: HashMap<String, (Session, Instant)>,
}

impl Caller {
    fn new(name: Arc<str>, max_requests: usize, per_minute: u64) -> Self {
        let tokens = per_minute as f64;
        let state = State { tokens, last_refill: Instant::now(), sessions: HashMap::new() };
        let requests = Arc::new(Semaphore::new(max_requests));
        let bodies = Arc::new(Semaphore::new(MAX_BODY_KIB));
        Self {
            name,
            token: None,
            principal: None,
            ended: CancellationToken::new(),
            requests,
            bodies,
            per_minute,
            state: Mutex::new(state),
            connections: tokio::sync::Mutex::default(),
        }
    }

    fn key(&self) -> Arc<str> {
        Arc::clone(self.token.as_ref().unwrap_or(&self.name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for one request.
    pub(super) fn enter(self: &Arc<Self>) -> Result<CallerPlace, Limit> {
        self.take_token(Instant::now())?;
        let place = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| Limit::Requests)?;
        Ok(CallerPlace::new(Arc::clone(self), place))
    }

    /// Takes a token for a request from the token bucket. The bucket has room for the requests of a
    /// minute, and its tokens are refilled evenly.
    fn take_token(&self, now: Instant) -> Result<(), Limit> {
        const SECONDS_PER_MINUTE: f64 = 60.0;
        let mut state = self.state();
        let capacity = self.per_minute as f64;
        let last_refill = std::mem::replace(&mut state.last_refill, now);
        if self.per_minute == 0 {
            return Ok(());
        }
        let elapsed_seconds = now.duration_since(last_refill).as_secs_f64();
        let refill = capacity * elapsed_seconds / SECONDS_PER_MINUTE;
        state.tokens = (state.tokens + refill).min(capacity);
        if state.tokens < 1.0 {
            let missing_part = 1.0 - state.tokens;
            let seconds_per_token = SECONDS_PER_MINUTE / capacity;
            let wait_seconds = missing_part * seconds_per_token;
            return Err(Limit::Rate(Duration::from_secs_f64(wait_seconds)));
        }
        state.tokens -= 1.0;
        Ok(())
    }

    /// Removes a session, which ends after its last call.
    pub(super) fn forget(&self, handle: &str) {
        self.state().sessions.remove(handle);
    }

    /// Returns or creates the caller's session with this handle.
    pub(super) fn session(&self, handle: &str) -> Session {
        let now = Instant::now();
        let mut state = self.state();
        if let Some((session, last_use)) = state.sessions.get_mut(handle) {
            *last_use = now;
            return session.clone();
        }
        state.sessions.retain(|_handle, (_session, last_use)| {
            let idle_time = now.duration_since(*last_use);
            idle_time < MAX_IDLE
        });
        if state.sessions.len() >= MAX_SESSIONS {
            let sessions = state.sessions.iter();
            let longest_idle = sessions.min_by_key(|(_handle, (_session, last_use))| *last_use);
            if let Some((removed_handle, _)) = longest_idle {
                let removed_handle = removed_handle.clone();
                state.sessions.remove(&removed_handle);
            }
        }
        let principal = format!("mcp {}", self.name);
        // A client without a handle uses the caller's own session.
        let name = match handle {
            "" => principal.clone(),
            handle => format!("{principal} {handle}"),
        };
        let session = Session::of_principal(name, principal);
        state.sessions.insert(handle.to_owned(), (session.clone(), now));
        session
    }
}

/// The slot of a request, which becomes free when the response is dropped.
#[derive(Clone)]
pub(super) struct CallerPlace {
    slot: Arc<Slot>,
    ended: CancellationToken,
}

struct Slot {
    caller: Arc<Caller>,
    _permit: OwnedSemaphorePermit,
    bodies: Mutex<Vec<OwnedSemaphorePermit>>,
}

impl fmt::Debug for CallerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerPlace")
    }
}

/// A part of the request's extensions. When the last clone is dropped, the request has finished.
#[derive(Clone)]
pub(super) struct RequestSlot {
    place: CallerPlace,
    _ends: Arc<Ends>,
}

struct Ends(CancellationToken);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl CallerPlace {
    fn new(caller: Arc<Caller>, permit: OwnedSemaphorePermit) -> Self {
        let slot = Slot { caller, _permit: permit, bodies: Mutex::default() };
        Self { slot: Arc::new(slot), ended: CancellationToken::new() }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.slot.caller
    }

    /// Reserves `kib` KiB of memory for the body from the caller's limit and from the `common`
    /// limit of all callers. Returns `false` if a limit is reached.
    pub(super) fn reserve_body(&self, common: &Arc<Semaphore>, kib: u32) -> bool {
        let own = &self.slot.caller.bodies;
        let Ok(own_permit) = Arc::clone(own).try_acquire_many_owned(kib) else { return false };
        let Ok(common_permit) = Arc::clone(common).try_acquire_many_owned(kib) else {
            return false;
        };
        let mut bodies = self.slot.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.extend([own_permit, common_permit]);
        true
    }

    pub(super) fn working(&self) -> RequestSlot {
        RequestSlot { place: self.clone(), _ends: Arc::new(Ends(self.ended.clone())) }
    }

    pub(super) fn from_extensions(extensions: &rmcp::model::Extensions) -> Option<Self> {
        let parts = extensions.get::<http::request::Parts>()?;
        parts.extensions.get::<RequestSlot>().map(|slot| slot.place.clone())
    }

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

    fn who(token: &str) -> Who {
        Who {
            issuer: "toolhold".to_owned(),
            subject: "anna".to_owned(),
            groups: Vec::new(),
            client: None,
            token: Some(token.to_owned()),
        }
    }

    #[test]
    fn open_requests_are_bounded_per_caller() {
        let callers = callers(2, 0);
        let caller = callers.get_or_create(&"anna".into(), None).expect("is let in");
        let first = caller.enter().expect("has room");
        let working = first.working();
        let second = caller.enter().expect("has room");
        assert_eq!(caller.enter().expect_err("has none"), Limit::Requests);
        assert!(callers.get_or_create(&"berta".into(), None).expect("is let in").enter().is_ok());
        drop(first);
        assert_eq!(caller.enter().expect_err("it is still worked on"), Limit::Requests);
        drop(working);
        assert!(caller.enter().is_ok());
        drop(second);
    }

    #[test]
    fn request_rate_refills_evenly() {
        let callers = callers(64, 60);
        let caller = callers.get_or_create(&"anna".into(), None).expect("is let in");
        let now = Instant::now();
        for _ in 0..60 {
            assert_eq!(caller.take_token(now), Ok(()));
        }
        let Err(Limit::Rate(wait)) = caller.take_token(now) else { panic!("it is one too many") };
        assert!(wait > Duration::from_millis(900) && wait <= Duration::from_secs(1), "{wait:?}");
        assert_eq!(caller.take_token(now + Duration::from_millis(1100)), Ok(()));
        assert!(caller.take_token(now + Duration::from_millis(1100)).is_err());
        assert_eq!(caller.take_token(now + Duration::from_secs(3600)), Ok(()));
    }

    #[test]
    fn session_belongs_to_caller_and_handle() {
        let callers = callers(1, 0);
        let (anna, berta) = (
            callers.get_or_create(&"anna".into(), None).expect("is let in"),
            callers.get_or_create(&"berta".into(), None).expect("is let in"),
        );
        assert_eq!(&**anna.session("").name(), "mcp anna");
        assert_eq!(&**anna.session("x").name(), "mcp anna x");
        assert_eq!(&**berta.session("x").name(), "mcp berta x");
        for at in 0..2 * MAX_SESSIONS {
            anna.session(&at.to_string());
        }
        assert_eq!(anna.state().sessions.len(), MAX_SESSIONS);
        for at in 0..2 * MAX_CALLERS {
            callers.get_or_create(&at.to_string().into(), None);
        }
        assert!(callers.callers.lock().expect("is whole").len() <= MAX_CALLERS);
    }

    #[test]
    fn tokens_of_a_name_end_one_by_one() {
        let callers = callers(1, 0);
        let name: Arc<str> = "anna".into();
        let [first, second] =
            ["1", "2"].map(|id| callers.get_or_create(&name, Some(&who(id))).expect("is let in"));
        assert_eq!(callers.with_own_tokens().len(), 2);
        callers.get_or_create(&name, None).expect("is let in").session("x");
        first.session("x");
        second.session("x");
        callers.end(&first);
        assert!(first.ended.is_cancelled() && first.state().sessions.is_empty());
        assert!(!second.ended.is_cancelled() && second.state().sessions.len() == 1);
        assert_eq!(callers.with_own_tokens().len(), 1);
        let again = callers.get_or_create(&name, Some(&who("1"))).expect("is let in");
        assert!(!again.ended.is_cancelled(), "a caller isn't ended twice");
        let own = callers.get_or_create(&name, None).expect("is let in");
        assert_eq!(own.state().sessions.len(), 1);
    }
}
