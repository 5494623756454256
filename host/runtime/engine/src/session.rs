//! Stores the instances that live as long as a session. The calls of a session use its instance one
//! after the other.
//!
//! Between calls, an instance keeps only its memory. The host drops an instance after a trap, with
//! its version of the plugin, after a long idle time, or to make room. So a plugin can lose its
//! state at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use toolhold_contract::{Call, Category, Failure, PathRules};
use wasmtime::Store;

use crate::guest::CallState;
use crate::limits::MIB;
use crate::timing::{CallWatch, StopReason, busy};
use crate::warm_pool::{Entry, MAX_IDLE_MEMORY, MAX_SESSION_INSTANCES};

/// Time after which an unused instance is dropped.
const IDLE_TIME: Duration = Duration::from_secs(900);

/// Most idle instances of a plugin. A further instance replaces the oldest instance.
const MAX_IDLE_OF_PLUGIN: usize = MAX_SESSION_INSTANCES / 2;

/// Most calls that wait for an instance. Further calls are refused.
const MAX_WAITING: usize = 64;

/// References to the lock of an instance that don't belong to waiting calls: [`State::turns`], the
/// running call and the new call.
const OTHER_REFERENCES: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error("a command's instance serves only one call")]
    Command,
    #[error("the instance has too many memories or tables")]
    Parts,
    #[error("the instance has left files, requests or other handles open")]
    LeftOpen,
    #[error("the instance needed more memory than its limit")]
    MemoryLimit,
    #[error(
        "the instance uses {} MiB of memory; the limit between calls is {}",
        .0,
        MAX_IDLE_MEMORY >> 20
    )]
    Memory(usize),
}

/// Calls with equal keys share an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    /// The number of the loaded plugin version.
    plugin: u64,
    session: Arc<str>,
    /// `None` for filters, which have no rights.
    rights: Option<CallRights>,
}

/// The rights of a call in addition to the grants of its plugin.
///
/// Calls with other rights have another instance, because an instance remembers data of its calls.
/// Read-only calls don't have other rights, because they need the state of calls that write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CallRights {
    caller: Option<String>,
    network: bool,
    commands: Vec<String>,
    origins: Vec<String>,
    /// Identifies the rules and approvals for paths.
    paths: Option<String>,
}

#[derive(Default)]
pub(crate) struct SessionInstances {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_plugin: u64,
    /// A lock for each instance.
    turns: HashMap<InstanceKey, Arc<tokio::sync::Mutex<()>>>,
    /// The idle instances, the oldest first.
    idle: Vec<IdleInstance>,
}

struct IdleInstance {
    key: InstanceKey,
    store: Store<CallState>,
    entry: Entry,
    since: Instant,
    /// Keeps the path rules alive. If they were dropped, other rules could get the same address and
    /// so the same key.
    _rules: Option<Arc<dyn PathRules>>,
}

/// The instances of a loaded plugin version. Dropping this value drops them.
pub(crate) struct PluginInstances {
    id: u64,
    sessions: Arc<SessionInstances>,
}

/// A call's turn with an instance. The next call gets its turn when this value is dropped.
pub(crate) struct Turn {
    key: InstanceKey,
    sessions: Arc<SessionInstances>,
    rules: Option<Arc<dyn PathRules>>,
    /// `None` before and after the turn.
    guard: Option<OwnedMutexGuard<()>>,
}

impl PluginInstances {
    pub(crate) fn filter_key(&self, session: &Arc<str>) -> InstanceKey {
        InstanceKey { plugin: self.id, session: Arc::clone(session), rights: None }
    }

    /// Waits until no other call uses the session's instance.
    pub(crate) async fn turn(&self, call: &Call, watch: &CallWatch) -> Result<Turn, Failure> {
        let rights = CallRights {
            caller: call.caller.clone(),
            network: call.commands.network,
            commands: call.commands.lines.clone(),
            origins: call.requests.origins.clone(),
            paths: call.path_rules.as_ref().map(|rules| rules.rights()),
        };
        let session = Arc::clone(&call.session);
        // If the wait fails, dropping `turn` removes the lock.
        let mut turn = Turn {
            key: InstanceKey { plugin: self.id, session, rights: Some(rights) },
            sessions: Arc::clone(&self.sessions),
            rules: call.path_rules.clone(),
            guard: None,
        };

        let lock = Arc::clone(self.sessions.state().turns.entry(turn.key.clone()).or_default());
        // Each waiting call holds a reference to the lock.
        let waiting_count = Arc::strong_count(&lock).saturating_sub(OTHER_REFERENCES);
        if waiting_count > MAX_WAITING {
            return Err(busy(Duration::ZERO));
        }
        let guard = match Arc::clone(&lock).try_lock_owned() {
            Ok(guard) => guard,
            Err(_) => wait_for_lock(lock, watch).await?,
        };
        turn.guard = Some(guard);
        Ok(turn)
    }
}

async fn wait_for_lock(
    lock: Arc<tokio::sync::Mutex<()>>,
    watch: &CallWatch,
) -> Result<OwnedMutexGuard<()>, Failure> {
    let since = Instant::now();
    match watch.in_time(lock.lock_owned()).await {
        Ok(guard) => {
            watch.add_waited(since.elapsed());
            Ok(guard)
        }
        Err(StopReason::Cancelled) => Err(watch.stop_failure(StopReason::Cancelled)),
        Err(_) => Err(in_use(since.elapsed())),
    }
}

impl SessionInstances {
    pub(crate) fn add_plugin(self: &Arc<Self>) -> PluginInstances {
        let mut state = self.state();
        state.next_plugin += 1;
        PluginInstances { id: state.next_plugin, sessions: Arc::clone(self) }
    }

    pub(crate) fn take(&self, key: &InstanceKey) -> Option<(Store<CallState>, Entry)> {
        let mut state = self.state();
        let index = state.idle.iter().position(|instance| instance.key == *key)?;
        let IdleInstance { store, entry, .. } = state.idle.remove(index);
        Some((store, entry))
    }

    /// Stores an instance for the session's next call. May drop another instance (see
    /// [`find_replaced`]).
    pub(crate) fn keep(
        &self,
        key: InstanceKey,
        store: Store<CallState>,
        entry: Entry,
        rules: Option<Arc<dyn PathRules>>,
    ) -> Result<(), KeepError> {
        let memory = &store.data().memory;
        if memory.refused() {
            return Err(KeepError::MemoryLimit);
        }
        if memory.used() > MAX_IDLE_MEMORY {
            return Err(KeepError::Memory(memory.used().div_ceil(MIB)));
        }

        let mut state = self.state();
        let idle = &mut state.idle;
        let dropped = find_replaced(idle, &key).map(|index| idle.remove(index));
        idle.push(IdleInstance { key, store, entry, since: Instant::now(), _rules: rules });
        // Dropping a store takes long, so the lock is released first.
        drop(state);
        drop(dropped);
        Ok(())
    }

    /// Drops instances that were idle for [`IDLE_TIME`]. Returns the time at which the next
    /// instance must be dropped.
    pub(crate) fn drop_idle(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        // The oldest instances are first in `idle`.
        let first_recent = state.idle.iter().position(|instance| instance.since + IDLE_TIME > now);
        let expired_count = first_recent.unwrap_or(state.idle.len());
        let dropped: Vec<IdleInstance> = state.idle.drain(..expired_count).collect();
        let next_due = state.idle.first().map(|instance| instance.since + IDLE_TIME);
        // Dropping a store takes long, so the lock is released first.
        drop(state);
        drop(dropped);
        next_due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    pub(crate) fn take(&self) -> Option<(Store<CallState>, Entry)> {
        self.sessions.take(&self.key)
    }

    pub(crate) fn keep(&self, store: Store<CallState>, entry: Entry) -> Result<(), KeepError> {
        self.sessions.keep(self.key.clone(), store, entry, self.rules.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut state = self.sessions.state();
        // If only `turns` refers to the lock, no call waits for it, so it is removed.
        if let Some(lock) = state.turns.get(&self.key)
            && Arc::strong_count(lock) == 1
        {
            state.turns.remove(&self.key);
        }
    }
}

impl Drop for PluginInstances {
    fn drop(&mut self) {
        let mut state = self.sessions.state();
        let idle = std::mem::take(&mut state.idle);
        let (dropped, remaining): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|instance| instance.key.plugin == self.id);
        state.idle = remaining;
        // Dropping a store takes long, so the lock is released first.
        drop(state);
        drop(dropped);
    }
}

/// Returns the index of the idle instance to drop before an instance with `key` is stored: the
/// instance with the same key, or the oldest instance if the plugin or all plugins have too many.
fn find_replaced(idle: &[IdleInstance], key: &InstanceKey) -> Option<usize> {
    if let Some(same_key) = idle.iter().position(|instance| instance.key == *key) {
        return Some(same_key);
    }
    // The oldest instance is first in `idle`.
    let plugin_count = idle.iter().filter(|instance| instance.key.plugin == key.plugin).count();
    if plugin_count >= MAX_IDLE_OF_PLUGIN {
        return idle.iter().position(|instance| instance.key.plugin == key.plugin);
    }
    let oldest = 0;
    if idle.len() >= MAX_SESSION_INSTANCES { Some(oldest) } else { None }
}

/// Makes the failure of a call whose time ended while it waited.
fn in_use(waited: Duration) -> Failure {
    let message = format!(
        "this plugin runs only one call of a session at a time; this call waited {:.1} s and was \
         not started",
        waited.as_secs_f64()
    );
    let mut failure = Failure::new(Category::RateLimited, message)
        .with_code("busy")
        .with_suggestion("Try again in a moment.");
    failure.retry_after = Some(Duration::from_secs(1));
    failure
}

#[cfg(test)]
mod tests {
    use crate::wasi::Files;
    use toolhold_contract::CancellationToken;
    use wasmtime::component::{Component, Linker};

    use super::*;
    use crate::guest::capability::PluginGrants;
    use crate::limits::Limits;
    use crate::run;

    /// An instance of a component without anything.
    async fn instance() -> (Store<CallState>, Entry) {
        const EMPTY: [u8; 8] = *b"\0asm\x0d\0\x01\0";
        let engine = wasmtime::Engine::default();
        let component = Component::new(&engine, EMPTY).expect("it is a component");
        let pre = Linker::new(&engine).instantiate_pre(&component).expect("it imports nothing");
        let limits = Limits::default();
        let watch = CallWatch::new(limits.call, limits.bounds(), CancellationToken::new());
        let policy = PluginGrants::default();
        let files = Files::new(None, 0);
        let name = "tester".into();
        let state = CallState::idle(&name, &policy, &limits, files, None, Arc::new(watch));
        let (store, instance) = run::instantiate(&pre, state, &limits).await;
        (store, Entry::Foreign(instance.expect("it runs no code")))
    }

    async fn keep(all: &SessionInstances, plugin: &PluginInstances, session: &str) {
        let (store, entry) = instance().await;
        all.keep(plugin.filter_key(&session.into()), store, entry, None).expect("it is small");
    }

    fn sessions(all: &SessionInstances) -> Vec<String> {
        all.state().idle.iter().map(|one| one.key.session.to_string()).collect()
    }

    fn run_test(test: impl Future<Output = ()>) {
        let reactor = tokio::runtime::Builder::new_current_thread().enable_time().build();
        reactor.expect("a reactor starts").block_on(test);
    }

    #[test]
    fn idle_instance_is_dropped_in_time() {
        run_test(async {
            let all = Arc::new(SessionInstances::default());
            let plugin = all.add_plugin();
            keep(&all, &plugin, "a").await;
            let now = Instant::now();
            let due = all.drop_idle(now).expect("one waits");
            assert!(due > now && due <= now + IDLE_TIME);
            assert_eq!(all.drop_idle(due), None);
            assert!(sessions(&all).is_empty());
        });
    }

    #[test]
    fn instances_end_with_their_version_of_the_plugin() {
        run_test(async {
            let all = Arc::new(SessionInstances::default());
            let (old, new) = (all.add_plugin(), all.add_plugin());
            keep(&all, &old, "a").await;
            keep(&all, &new, "b").await;
            assert!(all.take(&new.filter_key(&"a".into())).is_none());
            drop(old);
            assert_eq!(sessions(&all), ["b"]);
        });
    }

    #[test]
    fn plugin_with_many_sessions_takes_no_place_from_others() {
        run_test(async {
            let all = Arc::new(SessionInstances::default());
            let (few, many) = (all.add_plugin(), all.add_plugin());
            keep(&all, &few, "few").await;
            for number in 0..=MAX_SESSION_INSTANCES {
                keep(&all, &many, &number.to_string()).await;
            }
            let kept = sessions(&all);
            assert_eq!((kept.len(), kept[0].as_str()), (MAX_IDLE_OF_PLUGIN + 1, "few"));
            assert_eq!(
                kept[1],
                (MAX_SESSION_INSTANCES + 1 - MAX_IDLE_OF_PLUGIN).to_string(),
                "its own oldest ones made room"
            );
        });
    }
}
