//! Starts a server's program when a call needs it, ends an idle or hanging one, and pauses after
//! failures.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::task::JoinError;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{ProgramState, ToolSourceState};

use crate::START;
use crate::connection::{Connection, Era};
use crate::definitions::checked;
use crate::launch::Launch;
use crate::pins::{PinnedTool, Pins};
use crate::reason::Reason;

/// Calls of one server at the same time; further ones wait.
const MAX_CALLS: usize = 16;

/// Calls in a row that reach their time limit before the server is ended.
const MAX_TIMEOUTS: u32 = 2;

/// The longest pause before a server that failed is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Bytes of a tool's name that are shown.
const MAX_NAME: usize = 64;

/// A server that ends sooner after its start has failed.
pub(crate) const LASTED: Duration = Duration::from_secs(10);

/// The program of a server, whether it runs or not.
pub(crate) struct Running {
    /// How it is started.
    pub(crate) launch: Arc<Launch>,
    /// The approved definitions.
    pub(crate) pins: Pins,
    /// Locked while it starts, so that it starts once.
    pub(crate) state: Arc<Mutex<State>>,
    /// A place for each call.
    pub(crate) calls: Semaphore,
}

/// The running server.
#[derive(Default)]
pub(crate) struct State {
    /// The session with it.
    pub(crate) connection: Option<Arc<Connection>>,
    /// When it was started.
    pub(crate) started: Option<Instant>,
    /// The digests of what it offers now, by its own names of its tools.
    pub(crate) current: HashMap<String, String>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The time until which it isn't started again, and the reason.
    pub(crate) paused: Option<(Instant, Reason)>,
    /// When a call began or ended the last time.
    pub(crate) last_call: Option<Instant>,
    /// Calls in a row that reached their time limit.
    pub(crate) timeouts: u32,
}

impl State {
    /// Whether this is the session with it.
    pub(crate) fn has(&self, connection: &Arc<Connection>) -> bool {
        self.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    /// Ends a server that answers nothing any more. The next call starts it again.
    pub(crate) fn count_timeout(&mut self) {
        self.timeouts += 1;
        if self.timeouts >= MAX_TIMEOUTS {
            self.connection = None;
            self.timeouts = 0;
        }
    }

    /// Ends it, and keeps it from being started again for a pause that grows.
    pub(crate) fn fail(&mut self, reason: Reason) {
        self.connection = None;
        let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused = Some((Instant::now() + pause, reason));
    }
}

impl Running {
    /// A server that doesn't run yet.
    pub(crate) fn new(launch: Launch, pins: Pins) -> Self {
        Self {
            launch: Arc::new(launch),
            pins,
            state: Arc::default(),
            calls: Semaphore::new(MAX_CALLS),
        }
    }

    /// Starts it unless it runs, and lists its tools. The start goes on if the caller goes away:
    /// others may wait for it.
    ///
    /// # Errors
    ///
    /// Why it ended before its time.
    pub(crate) async fn start(
        &self,
        state: OwnedMutexGuard<State>,
        now: Instant,
    ) -> Result<OwnedMutexGuard<State>, JoinError> {
        let era = Era::from_protocol(&self.pins.protocol);
        let starting = start(Arc::clone(&self.launch), era, state, now);
        tokio::spawn(starting).await
    }

    /// Names the approved tools that it offered otherwise, or no longer, when it was asked the last
    /// time.
    fn changed(&self, state: &State) -> Option<String> {
        state.started?;
        let pinned = self.pins.tools.iter();
        let held: Vec<&PinnedTool> =
            pinned.filter(|pin| state.current.get(&pin.name) != Some(&pin.digest)).collect();
        let name = neutral_line(cut(&held.first()?.name, MAX_NAME));
        let more = match held.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let approve = format!("`toolhold mcp approve {}`", self.launch.name());
        Some(format!(
            "its tools have changed since their approval: `{name}`{more}; {approve} shows the difference"
        ))
    }

    /// The state of the program, for people.
    pub(crate) fn describe(&self, provider: &str) -> ToolSourceState {
        let mut described = ToolSourceState {
            provider: provider.to_owned(),
            state: ProgramState::Idle,
            problem: None,
            remedy: None,
            complaint: String::new(),
        };
        let Ok(state) = self.state.try_lock() else {
            described.state = ProgramState::Starting;
            return described;
        };
        let now = Instant::now();
        if let Some(changed) = self.changed(&state) {
            described.problem = Some(changed);
            described.remedy = Some(format!("toolhold mcp approve {}", self.launch.name()));
        }
        if let Some((until, reason)) = &state.paused {
            described.remedy = None;
            described.problem = Some(neutral_line(&reason.for_person()));
            let left = until.saturating_duration_since(now);
            if !left.is_zero() {
                described.state = ProgramState::Paused { seconds: left.as_secs() + 1 };
            }
        }
        if let (Some(connection), Some(started)) = (&state.connection, state.started) {
            described.state = ProgramState::Running { seconds: started.elapsed().as_secs() };
            described.complaint = connection.complaint();
        }
        described
    }
}

impl Drop for Running {
    /// The program may end at once, so the server ends before.
    fn drop(&mut self) {
        let connection = self.state.try_lock().ok().and_then(|mut state| state.connection.take());
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.end();
        }
    }
}

/// Starts the server unless it runs, and lists its tools. Returns the state of it.
async fn start(
    launch: Arc<Launch>,
    era: Era,
    mut state: OwnedMutexGuard<State>,
    now: Instant,
) -> OwnedMutexGuard<State> {
    let running = state.connection.take();
    let idle = Duration::from_secs(launch.server.idle_secs.get());
    let open = async {
        let listed = match running {
            Some(connection) => match connection.tools().await {
                Ok(tools) => Some((connection, false, tools)),
                Err(_) if connection.is_forgotten() => None,
                Err(reason) => return Err(reason),
            },
            None => None,
        };
        let (connection, is_new, tools) = match listed {
            Some(listed) => listed,
            None => {
                let connection = Arc::new(Connection::open(launch, era).await?);
                let tools = connection.tools().await?;
                (connection, true, tools)
            }
        };
        // Hashing and compiling schemas takes time.
        let (pins, _) = tokio::task::spawn_blocking(move || checked(&tools.tools)).await?;
        Ok::<_, Reason>((connection, is_new, pins))
    };
    let opened = tokio::time::timeout(START, open).await.unwrap_or_else(|_| {
        Err(Reason::new(format!("it didn't start within {} s", START.as_secs())))
    });
    match opened {
        Ok((connection, is_new, pins)) => {
            state.current = pins.into_iter().map(|pin| (pin.name, pin.digest)).collect();
            if is_new {
                state.started = Some(now);
                let whole = Arc::downgrade(OwnedMutexGuard::mutex(&state));
                tokio::spawn(end_idle(whole, Arc::downgrade(&connection), idle));
            }
            state.connection = Some(connection);
        }
        Err(reason) => state.fail(reason),
    }
    state
}

/// Ends a connection that no call used for some time.
async fn end_idle(state: Weak<Mutex<State>>, connection: Weak<Connection>, idle: Duration) {
    let mut pause = idle;
    loop {
        tokio::time::sleep(pause).await;
        let (Some(state), Some(connection)) = (state.upgrade(), connection.upgrade()) else {
            return;
        };
        let mut state = state.lock().await;
        if !state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
            return;
        }
        let since = state.last_call.map_or(idle, |last| last.elapsed());
        // The state and this task have one reference each; calls have the others.
        let is_used = Arc::strong_count(&connection) > 2;
        if since >= idle && !is_used {
            state.connection = None;
            return;
        }
        pause = idle.saturating_sub(since).max(Duration::from_secs(1));
    }
}
