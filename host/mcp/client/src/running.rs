//! Starts a server's program when a call needs it. Ends an idle or hanging program, and pauses
//! after failures.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::task::JoinError;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{ProgramState, ToolSourceState};

use crate::START;
use crate::connection::{Connection, Era};
use crate::definitions::pin_tools;
use crate::launch::Launch;
use crate::listed_tools::ListedTools;
use crate::pins::{PinnedTool, Pins};
use crate::reason::Reason;

/// Calls of one server at the same time. Further calls wait.
const MAX_CALLS: usize = 16;

/// Consecutive calls that may reach their time limit before the server is ended.
const MAX_TIMEOUTS: u32 = 2;

/// The longest pause before a failed server is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Bytes of a tool's name that are shown.
const MAX_NAME: usize = 64;

/// Time after the start within which the end of a server is a failure.
const LASTED: Duration = Duration::from_secs(10);

/// The program of a server, whether it runs or not.
pub(crate) struct Running {
    /// The start settings of the server.
    pub(crate) launch: Arc<Launch>,
    /// The approved definitions.
    pub(crate) pins: Pins,
    /// The state of the program. The lock is held during a start so that the server starts only
    /// once.
    pub(crate) state: Arc<Mutex<State>>,
    /// A place for each call.
    pub(crate) calls: Semaphore,
}

/// The running server.
#[derive(Default)]
pub(crate) struct State {
    /// The session with the program.
    pub(crate) connection: Option<Arc<Connection>>,
    /// The time of the start.
    pub(crate) started: Option<Instant>,
    /// The digests of the tools that the server offers now. The keys are the server's own names of
    /// the tools.
    pub(crate) current: HashMap<String, String>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The time at which the pause before the next start ends, and the reason for the pause.
    pub(crate) paused: Option<(Instant, Reason)>,
    /// When a call began or ended the last time.
    pub(crate) last_call: Option<Instant>,
    /// Consecutive calls that reached their time limit.
    pub(crate) timeouts: u32,
    /// Advice on the last call, if it failed for a missing grant.
    pub(crate) advice: Option<String>,
}

impl State {
    /// Checks whether a connection is the current session with the server.
    pub(crate) fn has(&self, connection: &Arc<Connection>) -> bool {
        self.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    /// Counts a call that reached its time limit. After several consecutive calls, ends the server
    /// because it no longer answers. The next call starts the server again.
    pub(crate) fn count_timeout(&mut self) {
        self.timeouts += 1;
        if self.timeouts >= MAX_TIMEOUTS {
            self.connection = None;
            self.timeouts = 0;
        }
    }

    /// Closes a lost connection. A connection that was lost soon after the start is a failure of
    /// the server.
    pub(crate) fn close_lost(&mut self) {
        let Some(connection) = &self.connection else { return };
        let Some(reason) = connection.ended() else { return };
        let is_early = self.started.is_some_and(|started| started.elapsed() < LASTED);
        if is_early && !connection.is_forgotten() {
            self.fail(reason);
        } else {
            self.connection = None;
        }
    }

    /// Ends the server. The server isn't started again during a pause, which gets longer with each
    /// failure.
    pub(crate) fn fail(&mut self, reason: Reason) {
        self.connection = None;
        let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused = Some((Instant::now() + pause, reason));
    }
}

impl Running {
    /// Makes a server that doesn't run yet.
    pub(crate) fn new(launch: Launch, pins: Pins) -> Self {
        Self {
            launch: Arc::new(launch),
            pins,
            state: Arc::default(),
            calls: Semaphore::new(MAX_CALLS),
        }
    }

    /// Starts the server unless it runs, and lists its tools. The start continues if the caller is
    /// dropped, because other callers may wait for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the task of the start panicked or was cancelled.
    pub(crate) async fn start(
        &self,
        state: OwnedMutexGuard<State>,
        now: Instant,
    ) -> Result<OwnedMutexGuard<State>, JoinError> {
        let era = Era::from_protocol(&self.pins.protocol);
        let starting = start(Arc::clone(&self.launch), era, state, now);
        tokio::spawn(starting).await
    }

    /// Describes the approved tools that are changed or missing in the last list of the server.
    /// Returns `None` if there are no such tools, or if the server hasn't run yet.
    fn describe_changes(&self, state: &State) -> Option<String> {
        state.started?;
        let pinned = self.pins.tools.iter();
        let changed: Vec<&PinnedTool> =
            pinned.filter(|pin| state.current.get(&pin.name) != Some(&pin.digest)).collect();
        let first = changed.first()?;
        let name = neutral_line(cut(&first.name, MAX_NAME));
        let more = match changed.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let approve = format!("`toolhold mcp approve {}`", self.launch.name());
        Some(format!(
            "its tools have changed since their approval: `{name}`{more}; {approve} shows the difference"
        ))
    }

    /// Describes the state of the program, for people.
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
        if let Some(advice) = &state.advice {
            described.problem = Some(format!("its last call failed. {}", neutral_line(advice)));
            described.remedy = Some(format!("toolhold mcp approve {}", self.launch.name()));
        }
        if let Some(changes) = self.describe_changes(&state) {
            described.problem = Some(changes);
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
    /// Ends the server first, because this process may end immediately afterwards.
    fn drop(&mut self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.end();
        }
    }
}

/// Starts the server unless it runs, and lists its tools. Returns the server's new state.
async fn start(
    launch: Arc<Launch>,
    era: Era,
    mut state: OwnedMutexGuard<State>,
    now: Instant,
) -> OwnedMutexGuard<State> {
    let running = state.connection.take();
    let idle = Duration::from_secs(launch.server.idle_secs.get());
    let session = match tokio::time::timeout(START, open_session(launch, era, running)).await {
        Ok(session) => session,
        Err(_) => Err(Reason::new(format!("it didn't start within {} s", START.as_secs()))),
    };
    match session {
        Ok(Session { connection, is_new, pins }) => {
            state.current = pins.into_iter().map(|pin| (pin.name, pin.digest)).collect();
            if is_new {
                state.started = Some(now);
                let shared_state = Arc::downgrade(OwnedMutexGuard::mutex(&state));
                tokio::spawn(end_idle(shared_state, Arc::downgrade(&connection), idle));
            }
            state.connection = Some(connection);
        }
        Err(reason) => state.fail(reason),
    }
    state
}

/// A session with the pins of the tools that the server lists in this session.
struct Session {
    connection: Arc<Connection>,
    is_new: bool,
    pins: Vec<PinnedTool>,
}

/// Lists the tools in the running session or in a new session.
async fn open_session(
    launch: Arc<Launch>,
    era: Era,
    running: Option<Arc<Connection>>,
) -> Result<Session, Reason> {
    if let Some(connection) = running {
        match connection.tools().await {
            Ok(listed) => {
                let pins = pin_listed(listed).await?;
                return Ok(Session { connection, is_new: false, pins });
            }
            // The server needs a new session.
            Err(_) if connection.is_forgotten() => {}
            Err(reason) => return Err(reason),
        }
    }
    let connection = Arc::new(Connection::open(launch, era).await?);
    let listed = connection.tools().await?;
    let pins = pin_listed(listed).await?;
    Ok(Session { connection, is_new: true, pins })
}

async fn pin_listed(listed: ListedTools) -> Result<Vec<PinnedTool>, JoinError> {
    // Hashing and compiling schemas takes time.
    let (pins, _) = tokio::task::spawn_blocking(move || pin_tools(&listed.tools)).await?;
    Ok(pins)
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
        if !state.has(&connection) {
            return;
        }
        let unused_time = state.last_call.map_or(idle, |last_call| last_call.elapsed());
        // The state and this task have one reference each, and each call has a further reference.
        let is_used = Arc::strong_count(&connection) > 2;
        if unused_time >= idle && !is_used {
            state.connection = None;
            return;
        }
        pause = idle.saturating_sub(unused_time).max(Duration::from_secs(1));
    }
}
