//! Decides which calls run and which call is next.
//!
//! Calls of a plugin run in their order of arrival. If several plugins have waiting calls, the
//! plugin with the fewest running calls is next. A plugin may exceed its share while no other
//! plugin has waiting calls, but can't use the reserved slots. The reserved slots are for other
//! plugins, which could otherwise wait for minutes, because running calls aren't interrupted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use toolhold_contract::Failure;

use crate::timing::stop::{self, StopReason};
use crate::timing::watch::CallWatch;

/// Most waiting calls. Further calls are refused.
const MAX_WAITING: usize = 1024;

/// The slots for calls of a host.
#[derive(Debug)]
pub struct Admission {
    /// Most running calls of a plugin while another plugin has waiting calls.
    share: usize,
    /// Slots that a plugin beyond its share must leave free.
    reserve: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: usize,
    next_ticket: u64,
    /// The plugins with running or waiting calls.
    plugins: HashMap<Arc<str>, Load>,
}

#[derive(Debug, Default)]
struct Load {
    running: usize,
    queue: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A call's slot, or its place in the queue. Dropping this value releases it.
#[derive(Debug)]
pub struct CallPlace {
    admission: Arc<Admission>,
    plugin: Arc<str>,
    ticket: u64,
}

impl Admission {
    /// Allows `slots` calls at a time.
    pub fn new(slots: usize) -> Arc<Self> {
        let state = State { free: slots, waiting: 0, next_ticket: 0, plugins: HashMap::new() };
        let half = (slots / 2).max(1);
        let eighth = (slots / 8).max(1);
        // A reserve of the only slot would stop all calls.
        let reserve = if slots > 1 { eighth } else { 0 };
        Arc::new(Self { share: half, reserve, state: Mutex::new(state) })
    }

    /// Waits for a slot until the call's deadline.
    ///
    /// # Errors
    ///
    /// Returns the failure if the call gets no slot or is cancelled.
    pub async fn admit(
        self: &Arc<Self>,
        plugin: &Arc<str>,
        watch: &CallWatch,
    ) -> Result<CallPlace, Failure> {
        if watch.cancel.is_cancelled() {
            return Err(watch.stop_failure(StopReason::Cancelled));
        }
        let since = Instant::now();
        let (place, turn) = self.enter(plugin)?;
        let Some(turn) = turn else { return Ok(place) };
        match watch.in_time(turn).await {
            // The queue drops the sender only after it has notified the call.
            Ok(_) => {
                watch.add_waited(since.elapsed());
                Ok(place)
            }
            Err(StopReason::Cancelled) => Err(watch.stop_failure(StopReason::Cancelled)),
            Err(_) => Err(stop::busy(since.elapsed())),
        }
    }

    /// Takes a slot, or a place in the queue. The receiver of a place is notified when the call
    /// gets its slot.
    fn enter(
        self: &Arc<Self>,
        plugin: &Arc<str>,
    ) -> Result<(CallPlace, Option<oneshot::Receiver<()>>), Failure> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let queue_is_empty = state.plugins.get(plugin).is_none_or(|load| load.queue.is_empty());
        if queue_is_empty && self.may_start(&state, plugin) {
            state.free -= 1;
            state.load_of(plugin).running += 1;
            return Ok((self.place(plugin, ticket), None));
        }

        if state.waiting >= MAX_WAITING {
            return Err(stop::busy(Duration::ZERO));
        }
        let (sender, turn) = oneshot::channel();
        state.waiting += 1;
        state.load_of(plugin).queue.push_back((ticket, sender));
        Ok((self.place(plugin, ticket), Some(turn)))
    }

    fn place(self: &Arc<Self>, plugin: &Arc<str>, ticket: u64) -> CallPlace {
        CallPlace { admission: Arc::clone(self), plugin: Arc::clone(plugin), ticket }
    }

    /// Checks whether a plugin may start a call. A plugin beyond its share leaves some slots free,
    /// and lets waiting calls of other plugins go first.
    fn may_start(&self, state: &State, plugin: &str) -> bool {
        if state.free == 0 {
            return false;
        }
        let load = state.plugins.get(plugin);
        let running = load.map_or(0, |load| load.running);
        if running < self.share {
            return true;
        }
        let own_waiting = load.map_or(0, |load| load.queue.len());
        let others_wait = state.waiting > own_waiting;
        state.free > self.reserve && !others_wait
    }

    /// Gives free slots to waiting calls, until no waiting call may start.
    fn assign_slots(&self, state: &mut State) {
        while state.waiting > 0 && state.free > 0 {
            let Some(plugin) = self.next_plugin(state) else { return };
            let load = state.load_of(&plugin);
            if let Some((_ticket, turn)) = load.queue.pop_front() {
                load.running += 1;
                state.free -= 1;
                state.waiting -= 1;
                // Sending fails if the call has ended, and its `CallPlace` then releases the slot.
                let _ = turn.send(());
            }
        }
    }

    /// Returns the plugin whose waiting call is next: the plugin with the fewest running calls.
    /// Among equal plugins, the plugin with the longest waiting call is next.
    fn next_plugin(&self, state: &State) -> Option<Arc<str>> {
        let mut best: Option<(usize, u64, &Arc<str>)> = None;
        for (plugin, load) in &state.plugins {
            let Some((first_ticket, _)) = load.queue.front() else { continue };
            if !self.may_start(state, plugin) {
                continue;
            }
            let candidate = (load.running, *first_ticket, plugin);
            if best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, plugin)| Arc::clone(plugin))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn load_of(&mut self, plugin: &Arc<str>) -> &mut Load {
        self.plugins.entry(Arc::clone(plugin)).or_default()
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let mut guard = self.admission.state();
        let state = &mut *guard;
        let Some(load) = state.plugins.get_mut(&self.plugin) else { return };
        // Drop a waiting call from the queue, or release the slot of a running call.
        if let Some(index) = load.queue.iter().position(|(ticket, _)| *ticket == self.ticket) {
            drop(load.queue.remove(index));
            state.waiting -= 1;
        } else {
            load.running -= 1;
            state.free += 1;
        }
        if load.running == 0 && load.queue.is_empty() {
            state.plugins.remove(&self.plugin);
        }
        // This call may have been the only waiting call that limited other plugins to their share.
        self.admission.assign_slots(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Calls {
        admission: Arc<Admission>,
        held: Vec<(CallPlace, Option<oneshot::Receiver<()>>)>,
    }

    impl Calls {
        fn with_places(places: usize) -> Self {
            Self { admission: Admission::new(places), held: Vec::new() }
        }

        /// Whether the call starts at once.
        fn enter(&mut self, plugin: &str) -> bool {
            let (place, turn) = self.admission.enter(&plugin.into()).expect("the queue has room");
            let starts = turn.is_none();
            self.held.push((place, turn));
            starts
        }

        /// Ends a running call.
        fn end(&mut self, plugin: &str) {
            let runs = |(place, turn): &(CallPlace, Option<oneshot::Receiver<()>>)| {
                &*place.plugin == plugin && turn.is_none()
            };
            let at = self.held.iter().position(runs).expect("a call runs");
            drop(self.held.remove(at));
        }

        /// The plugins of the calls that have started since the last check.
        fn started(&mut self) -> Vec<String> {
            let mut started = Vec::new();
            for (place, turn) in &mut self.held {
                if turn.as_mut().is_some_and(|turn| turn.try_recv().is_ok()) {
                    *turn = None;
                    started.push(place.plugin.to_string());
                }
            }
            started
        }
    }

    #[test]
    fn plugin_alone_runs_beyond_its_share_and_leaves_a_place() {
        let mut calls = Calls::with_places(8);
        let started = (0..20).filter(|_| calls.enter("a")).count();
        assert_eq!(started, 7);
        assert!(calls.enter("b"), "a place is free");
        assert!(!calls.enter("b"));
        calls.end("a");
        assert_eq!(calls.started(), ["b"], "the plugin with fewer running calls is next");
        for _ in 0..3 {
            assert!(!calls.enter("b"));
        }
        // Calls of both plugins wait. `a` is beyond its share of four, `b` isn't.
        for _ in 0..2 {
            calls.end("a");
            assert_eq!(calls.started(), ["b"]);
        }
        calls.end("b");
        assert_eq!(calls.started(), ["b"]);
        calls.end("b");
        assert!(
            calls.started().is_empty(),
            "the last place is reserved for plugins within their share"
        );
        calls.end("b");
        assert_eq!(calls.started(), ["a"]);
    }

    #[test]
    fn calls_of_one_plugin_start_in_order_without_dropped_ones() {
        let mut calls = Calls::with_places(1);
        assert!(calls.enter("a"));
        for _ in 0..3 {
            assert!(!calls.enter("a"));
        }
        let second = calls.held.remove(2);
        drop(second);
        let tickets: Vec<u64> = calls.held.iter().map(|(place, _)| place.ticket).collect();
        assert_eq!(tickets, [0, 1, 3]);
        calls.end("a");
        assert_eq!(calls.started(), ["a"]);
        assert!(calls.held[0].1.is_none(), "the first call starts");
        calls.held.clear();
        let state = calls.admission.state();
        assert_eq!((state.free, state.waiting, state.plugins.len()), (1, 0, 0));
    }

    #[test]
    fn waiting_calls_are_bounded() {
        let mut calls = Calls::with_places(1);
        for _ in 0..=MAX_WAITING {
            calls.enter("a");
        }
        let refused = calls.admission.enter(&"b".into()).expect_err("the queue is full");
        assert_eq!(refused.code.as_deref(), Some("busy"));
        drop(calls.held.pop());
        assert!(!calls.enter("b"));
    }

    #[test]
    fn place_of_call_dropped_at_its_turn_is_released() {
        let mut calls = Calls::with_places(1);
        calls.enter("a");
        calls.enter("b");
        calls.enter("c");
        calls.end("a");
        // `b` has got its turn, and is dropped before it reads the notification.
        drop(calls.held.remove(0));
        assert_eq!(calls.started(), ["c"]);
    }
}
