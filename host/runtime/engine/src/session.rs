//! Stores the instances that live as long as a session, and lets the calls of a session use their
//! instance one after the other.
//!
//! Between calls, an instance has only its memory: all other resources of a call end with the call.
//! The host drops an instance after a trap, together with its version of the plugin, after a long
//! idle time, and to make room for others. So the state in an instance can be lost at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use toolhold_contract::{Call, Category, Failure, PathRules};
use wasmtime::Store;

use crate::guest::CallState;
use crate::timing::{CallWatch, StopReason, busy};
use crate::warm_pool::{Entry, KEPT, MEMORY};

/// How long an unused instance is stored.
const IDLE: Duration = Duration::from_secs(900);

/// Most idle instances of one plugin. A further instance replaces the plugin's oldest one.
const EACH: usize = KEPT / 2;

/// Most calls that wait for one instance.
const WAITING: usize = 64;

/// A reason why an instance isn't stored for the next call of its session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error("a command runs once")]
    Command,
    #[error("it has too many memories or tables")]
    Parts,
    #[error("it has left files, requests or other handles open")]
    LeftOpen,
    #[error("it needed more memory than its limit")]
    MemoryLimit,
    #[error("it uses {} MiB of memory; the limit between calls is {}", .0, MEMORY >> 20)]
    Memory(usize),
}

/// The data that all calls that share an instance have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    /// The version of the plugin.
    plugin: u64,
    /// The principal's session.
    session: Arc<str>,
    /// The rights of the call. `None` for filters, which have no rights.
    rights: Option<CallRights>,
}

/// The rights that the gates gave a call in addition to the grants of its plugin.
///
/// An instance remembers data of its calls, so calls with other rights have other instances. The
/// rights don't say whether a call only reads: a tool that reads needs the state that a tool that
/// acts has made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CallRights {
    /// The agent that calls.
    caller: Option<String>,
    network: bool,
    commands: Vec<String>,
    origins: Vec<String>,
    /// The rules about paths and the approvals of paths.
    paths: Option<String>,
}

/// The instances that wait, of all plugins, and the calls that take turns.
#[derive(Default)]
pub(crate) struct SessionInstances {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_plugin: u64,
    /// The turns of the instances with calls.
    turns: HashMap<InstanceKey, Arc<tokio::sync::Mutex<()>>>,
    /// The oldest first.
    idle: Vec<IdleInstance>,
}

struct IdleInstance {
    key: InstanceKey,
    store: Store<CallState>,
    entry: Entry,
    since: Instant,
    /// Keeps the rules of the key alive, so that no other rules get the same identity.
    _rules: Option<Arc<dyn PathRules>>,
}

/// The instances of one version of a plugin. Dropping this value drops the instances.
pub(crate) struct PluginInstances {
    id: u64,
    all: Arc<SessionInstances>,
}

/// A call's turn with the instance of its session. Dropping the turn lets the next call continue.
pub(crate) struct Turn {
    key: InstanceKey,
    all: Arc<SessionInstances>,
    rules: Option<Arc<dyn PathRules>>,
    /// The lock of the instance. `None` before and after the turn.
    guard: Option<OwnedMutexGuard<()>>,
}

impl PluginInstances {
    /// Returns the key of the instance that applies filters to the outputs of a session.
    pub(crate) fn filter_key(&self, session: &Arc<str>) -> InstanceKey {
        InstanceKey { plugin: self.id, session: Arc::clone(session), rights: None }
    }

    /// Waits until no other call uses the instance of this call's session.
    ///
    /// # Errors
    ///
    /// Returns a failure if too many calls wait for the instance, the call's time ends before its
    /// turn, or the call is cancelled.
    pub(crate) async fn turn(&self, call: &Call, watch: &CallWatch) -> Result<Turn, Failure> {
        let rights = CallRights {
            caller: call.caller.clone(),
            network: call.commands.network,
            commands: call.commands.lines.clone(),
            origins: call.requests.origins.clone(),
            paths: call.path_rules.as_ref().map(|rules| rules.rights()),
        };
        let session = Arc::clone(&call.session);
        // If the wait fails, dropping the turn removes its lock.
        let mut turn = Turn {
            key: InstanceKey { plugin: self.id, session, rights: Some(rights) },
            all: Arc::clone(&self.all),
            rules: call.path_rules.clone(),
            guard: None,
        };

        let lock = Arc::clone(self.all.state().turns.entry(turn.key.clone()).or_default());
        // The references are those of the waiting calls, `turns`, this call and the running call.
        if Arc::strong_count(&lock) > WAITING + 3 {
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

/// Waits until no other call uses an instance.
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
    /// Adds a plugin that was just loaded.
    pub(crate) fn add_plugin(self: &Arc<Self>) -> PluginInstances {
        let mut state = self.state();
        state.next_plugin += 1;
        PluginInstances { id: state.next_plugin, all: Arc::clone(self) }
    }

    /// Takes an instance that waits.
    pub(crate) fn take(&self, key: &InstanceKey) -> Option<(Store<CallState>, Entry)> {
        let mut state = self.state();
        let index = state.idle.iter().position(|waiting| waiting.key == *key)?;
        let IdleInstance { store, entry, .. } = state.idle.remove(index);
        Some((store, entry))
    }

    /// Stores an instance for the session's next call. If there is no room, another instance is
    /// dropped: the oldest one of the same plugin if that plugin has many, otherwise the oldest of
    /// all.
    ///
    /// # Errors
    ///
    /// Returns the reason why the instance isn't stored.
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
        if memory.used() > MEMORY {
            return Err(KeepError::Memory(memory.used().div_ceil(1 << 20)));
        }

        let mut state = self.state();
        let idle = &mut state.idle;
        let of_plugin = idle.iter().filter(|waiting| waiting.key.plugin == key.plugin).count();
        let replaced = if let Some(index) = idle.iter().position(|waiting| waiting.key == key) {
            Some(index)
        } else if of_plugin >= EACH {
            idle.iter().position(|waiting| waiting.key.plugin == key.plugin)
        } else if idle.len() >= KEPT {
            Some(0)
        } else {
            None
        };
        let dropped = replaced.map(|index| idle.remove(index));
        idle.push(IdleInstance { key, store, entry, since: Instant::now(), _rules: rules });
        // Dropping a store takes long, so the lock is released first.
        drop(state);
        drop(dropped);
        Ok(())
    }

    /// Drops the instances that were idle for too long. Returns the time when the next instance
    /// will be dropped, or `None` if there are no more instances.
    pub(crate) fn drop_idle(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let first_recent = state.idle.iter().position(|waiting| waiting.since + IDLE > now);
        let expired = first_recent.unwrap_or(state.idle.len());
        let dropped: Vec<IdleInstance> = state.idle.drain(..expired).collect();
        let next = state.idle.first().map(|waiting| waiting.since + IDLE);
        drop(state);
        drop(dropped);
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Takes the instance of the session, if there is one.
    pub(crate) fn take(&self) -> Option<(Store<CallState>, Entry)> {
        self.all.take(&self.key)
    }

    /// Stores the instance for the session's next call.
    ///
    /// # Errors
    ///
    /// Returns the reason why the instance isn't stored.
    pub(crate) fn keep(&self, store: Store<CallState>, entry: Entry) -> Result<(), KeepError> {
        self.all.keep(self.key.clone(), store, entry, self.rules.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut state = self.all.state();
        // If no other call waits, only `turns` still has the lock.
        if let Some(lock) = state.turns.get(&self.key)
            && Arc::strong_count(lock) == 1
        {
            state.turns.remove(&self.key);
        }
    }
}

impl Drop for PluginInstances {
    fn drop(&mut self) {
        let mut state = self.all.state();
        let idle = std::mem::take(&mut state.idle);
        let (dropped, remaining): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|waiting| waiting.key.plugin == self.id);
        state.idle = remaining;
        drop(state);
        drop(dropped);
    }
}

/// Makes the failure of a call that waited for the session's instance in vain.
fn in_use(waited: Duration) -> Failure {
    let message = format!(
        "this plugin runs one call of a session at a time; this call waited {:.1} s and was not started",
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
            assert!(due > now && due <= now + IDLE);
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
            for number in 0..=KEPT {
                keep(&all, &many, &number.to_string()).await;
            }
            let kept = sessions(&all);
            assert_eq!((kept.len(), kept[0].as_str()), (EACH + 1, "few"));
            assert_eq!(kept[1], (KEPT + 1 - EACH).to_string(), "its own oldest ones made room");
        });
    }
}
