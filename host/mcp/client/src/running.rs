//! Starts a server's program for a call, ends it when it is idle or hangs, and pauses after
//! failures.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::task::JoinError;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{ProgramState, ToolSourceState};

use crate::START_TIMEOUT;
use crate::connection::{Connection, Era};
use crate::definitions::pin_tools;
use crate::launch::Launch;
use crate::listed_tools::ListedTools;
use crate::pins::{PinnedTool, Pins};
use crate::reason::Reason;

/// Calls of a server at a time. Further calls wait.
const MAX_CALLS: usize = 16;

/// Consecutive calls that may time out before the server is ended.
const MAX_TIMEOUTS: u32 = 2;

const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Longest name of a tool in a message, in bytes. Longer names are cut.
const MAX_NAME: usize = 64;

/// A server that ends within this time after its start has failed.
const MIN_RUN_TIME: Duration = Duration::from_secs(10);

/// A server that may run.
pub(crate) struct Running {
    pub(crate) launch: Arc<Launch>,
    pub(crate) pins: Pins,
    /// Locked during a start, so that the server is started once.
    pub(crate) state: Arc<Mutex<State>>,
    /// Has a permit for each call.
    pub(crate) calls: Semaphore,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) started: Option<Instant>,
    /// Digests of the tools that the server offers at present, by the server's names.
    pub(crate) current: HashMap<String, String>,
    /// Consecutive failures.
    pub(crate) failures: u32,
    /// The end of the pause after a failure, and the reason of the failure.
    pub(crate) paused: Option<(Instant, Reason)>,
    /// The last start or end of a call.
    pub(crate) last_call: Option<Instant>,
    /// Consecutive calls that timed out.
    pub(crate) timeouts: u32,
    /// Advice on a missing grant, from the last failed call.
    pub(crate) advice: Option<String>,
}

impl State {
    pub(crate) fn has(&self, connection: &Arc<Connection>) -> bool {
        self.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    /// Counts a call that timed out. After [`MAX_TIMEOUTS`] in a row, ends the server. The next
    /// call starts the server again.
    pub(crate) fn count_timeout(&mut self) {
        self.timeouts += 1;
        if self.timeouts >= MAX_TIMEOUTS {
            self.connection = None;
            self.timeouts = 0;
        }
    }

    /// Closes the connection if it is lost. A loss within [`MIN_RUN_TIME`] after the start is a
    /// failure, except if the server only forgot the session.
    pub(crate) fn close_lost(&mut self) {
        let Some(connection) = &self.connection else { return };
        let Some(reason) = connection.end_reason() else { return };
        let is_early = self.started.is_some_and(|started| started.elapsed() < MIN_RUN_TIME);
        if is_early && !connection.is_forgotten() {
            self.fail(reason);
        } else {
            self.connection = None;
        }
    }

    /// Ends the server and starts a pause, which doubles with each failure.
    pub(crate) fn fail(&mut self, reason: Reason) {
        self.connection = None;
        let pause = Duration::from_secs(1 << self.failures.min(6)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.paused = Some((Instant::now() + pause, reason));
    }
}

impl Running {
    pub(crate) fn new(launch: Launch, pins: Pins) -> Self {
        Self {
            launch: Arc::new(launch),
            pins,
            state: Arc::default(),
            calls: Semaphore::new(MAX_CALLS),
        }
    }

    /// Starts the server if it doesn't run, and lists its tools. The start has its own task,
    /// because other calls may wait for the start after this call is cancelled.
    pub(crate) async fn start(
        &self,
        state: OwnedMutexGuard<State>,
        now: Instant,
    ) -> Result<OwnedMutexGuard<State>, JoinError> {
        let era = Era::from_protocol(&self.pins.protocol);
        let starting = start(Arc::clone(&self.launch), era, state, now);
        tokio::spawn(starting).await
    }

    /// Describes the approved tools that the running server has changed or removed. Returns `None`
    /// if there are no such tools.
    fn describe_changes(&self, state: &State) -> Option<String> {
        // Before the first start, the server's tools aren't known.
        state.started?;
        let mut changed_pins = Vec::new();
        for pin in &self.pins.tools {
            if state.current.get(&pin.name) != Some(&pin.digest) {
                changed_pins.push(pin);
            }
        }
        let (first_pin, further_pins) = changed_pins.split_first()?;
        let name = neutral_line(cut(&first_pin.name, MAX_NAME));
        let more = match further_pins.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let approve = format!("`toolhold mcp approve {}`", self.launch.name());
        Some(format!(
            "the server's tools have changed since the approval: `{name}`{more}; {approve} shows \
             the difference"
        ))
    }

    /// Describes whether the server runs, its last problem, and the command that may fix the
    /// problem.
    pub(crate) fn describe(&self, provider: &str) -> ToolSourceState {
        let mut description = ToolSourceState {
            provider: provider.to_owned(),
            state: ProgramState::Idle,
            problem: None,
            remedy: None,
            complaint: String::new(),
        };
        // The state stays locked while the server starts, so a locked state means that it is
        // starting.
        let Ok(state) = self.state.try_lock() else {
            description.state = ProgramState::Starting;
            return description;
        };
        let now = Instant::now();

        // If there are several problems, the last one in this order is described.
        if let Some(advice) = &state.advice {
            description.problem =
                Some(format!("the server's last call failed. {}", neutral_line(advice)));
            description.remedy = Some(format!("toolhold mcp approve {}", self.launch.name()));
        }
        if let Some(changes) = self.describe_changes(&state) {
            description.problem = Some(changes);
            description.remedy = Some(format!("toolhold mcp approve {}", self.launch.name()));
        }
        if let Some((until, reason)) = &state.paused {
            description.remedy = None;
            description.problem = Some(neutral_line(&reason.for_person()));
            let remaining_pause = until.saturating_duration_since(now);
            if !remaining_pause.is_zero() {
                // A part of a second is shown as a whole second.
                let seconds = remaining_pause.as_secs() + 1;
                description.state = ProgramState::Paused { seconds };
            }
        }
        if let (Some(connection), Some(started)) = (&state.connection, state.started) {
            description.state = ProgramState::Running { seconds: started.elapsed().as_secs() };
            description.complaint = connection.last_stderr();
        }
        description
    }
}

impl Drop for Running {
    /// Ends the program at once, because this process may end directly after the drop.
    fn drop(&mut self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.end();
        }
    }
}

/// Starts the server if it doesn't run, lists its tools, and stores the result in `state`.
async fn start(
    launch: Arc<Launch>,
    era: Era,
    mut state: OwnedMutexGuard<State>,
    now: Instant,
) -> OwnedMutexGuard<State> {
    let present_connection = state.connection.take();
    let max_idle = Duration::from_secs(launch.server.idle_secs.get());
    let opening = open_session(launch, era, present_connection);
    let session = match tokio::time::timeout(START_TIMEOUT, opening).await {
        Ok(session) => session,
        Err(_) => {
            let seconds = START_TIMEOUT.as_secs();
            Err(Reason::new(format!("the server didn't start within {seconds} s")))
        }
    };
    match session {
        Ok(Session { connection, is_new, pins }) => {
            state.current = pins.into_iter().map(|pin| (pin.name, pin.digest)).collect();
            if is_new {
                state.started = Some(now);
                let shared_state = Arc::downgrade(OwnedMutexGuard::mutex(&state));
                tokio::spawn(end_idle(shared_state, Arc::downgrade(&connection), max_idle));
            }
            state.connection = Some(connection);
        }
        Err(reason) => state.fail(reason),
    }
    state
}

/// A session, and the pins of the tools in it.
struct Session {
    connection: Arc<Connection>,
    is_new: bool,
    pins: Vec<PinnedTool>,
}

/// Lists the tools in the session of `present_connection`, or in a new session.
async fn open_session(
    launch: Arc<Launch>,
    era: Era,
    present_connection: Option<Arc<Connection>>,
) -> Result<Session, Reason> {
    if let Some(connection) = present_connection {
        match connection.tools().await {
            Ok(listed) => {
                let pins = pin_listed(listed).await?;
                return Ok(Session { connection, is_new: false, pins });
            }
            // The server no longer knows the session, so a new session is opened below.
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
    // Hashing and compiling schemas takes long.
    let (pins, _left_out) = tokio::task::spawn_blocking(move || pin_tools(&listed.tools)).await?;
    Ok(pins)
}

/// Ends a connection after the time `max_idle` without a call. The task ends with the connection.
async fn end_idle(state: Weak<Mutex<State>>, connection: Weak<Connection>, max_idle: Duration) {
    /// The references of an unused connection: one in the state, and one in this task.
    const UNUSED_REFERENCES: usize = 2;
    const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
    let mut pause = max_idle;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared_state) = state.upgrade() else { return };
        let Some(connection) = connection.upgrade() else { return };
        let mut state = shared_state.lock().await;
        if !state.has(&connection) {
            return;
        }
        let idle_time = match state.last_call {
            Some(last_call) => last_call.elapsed(),
            None => max_idle,
        };
        let is_used = Arc::strong_count(&connection) > UNUSED_REFERENCES;
        if idle_time >= max_idle && !is_used {
            state.connection = None;
            return;
        }
        pause = max_idle.saturating_sub(idle_time).max(SHORTEST_PAUSE);
    }
}
