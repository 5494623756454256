//! Places for calls: who runs, who waits, and who is next.
//!
//! A plugin's calls run in the order in which they came. Of several plugins with waiting calls, the
//! one with the fewest running calls is next. A plugin's share bounds it only while calls of
//! another plugin wait, or where it would take the places that are held back for the others: a
//! running call isn't interrupted, so a plugin alone could otherwise keep the next one waiting for
//! minutes.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use berth_contract::{CancellationToken, Failure};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::stop::{self, Stop};
use crate::watch::Watch;

/// Calls that wait at a time. One more is refused at once.
const WAITING: usize = 1024;

/// The places of a host.
pub(crate) struct Admission {
    /// The calls that one plugin may run while those of another wait.
    share: usize,
    /// The places that a plugin beyond its share leaves free.
    reserve: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: usize,
    next_ticket: u64,
    /// The plugins, by name, that have calls here.
    plugins: HashMap<Arc<str>, Load>,
}

/// The calls of one plugin.
#[derive(Default)]
struct Load {
    running: usize,
    queue: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A call's place, in the queue or among those that run. It is given up when this value is dropped.
pub(crate) struct Place {
    admission: Arc<Admission>,
    plugin: Arc<str>,
    ticket: u64,
}

impl Admission {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        let state = State { free: places, waiting: 0, next_ticket: 0, plugins: HashMap::new() };
        let reserve = if places > 1 { (places / 8).max(1) } else { 0 };
        Arc::new(Self { share: (places / 2).max(1), reserve, state: Mutex::new(state) })
    }

    /// Waits for a place, until the call's own deadline.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        plugin: &Arc<str>,
        watch: &Watch,
    ) -> Result<Place, Failure> {
        if watch.cancel.is_cancelled() {
            return Err(watch.stopped(Stop::Cancelled));
        }
        let since = Instant::now();
        let (place, turn) = self.enter(plugin)?;
        if let Some(turn) = turn {
            wait(turn, &watch.cancel, watch.deadline).await.map_err(|stop| match stop {
                Stop::Cancelled => watch.stopped(stop),
                _ => stop::busy(since.elapsed()),
            })?;
            watch.set_waited(since.elapsed());
        }
        Ok(place)
    }

    /// A place, with what tells its turn where it is one in the queue.
    fn enter(
        self: &Arc<Self>,
        plugin: &Arc<str>,
    ) -> Result<(Place, Option<oneshot::Receiver<()>>), Failure> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let place = |plugin: &Arc<str>| Place {
            admission: Arc::clone(self),
            plugin: Arc::clone(plugin),
            ticket,
        };
        let starts = state.plugins.get(plugin).is_none_or(|load| load.queue.is_empty())
            && self.may_start(&state, plugin);
        if starts {
            state.free -= 1;
            state.load(plugin).running += 1;
            return Ok((place(plugin), None));
        }
        if state.waiting >= WAITING {
            return Err(stop::busy(Duration::ZERO));
        }
        let (tells, turn) = oneshot::channel();
        state.waiting += 1;
        state.load(plugin).queue.push_back((ticket, tells));
        Ok((place(plugin), Some(turn)))
    }

    /// Whether one more call of a plugin may run.
    fn may_start(&self, state: &State, plugin: &str) -> bool {
        let running = state.plugins.get(plugin).map_or(0, |load| load.running);
        let others_wait =
            || state.waiting > state.plugins.get(plugin).map_or(0, |load| load.queue.len());
        state.free > 0 && (running < self.share || state.free > self.reserve && !others_wait())
    }

    /// Gives free places to those who wait.
    fn give_out(&self, state: &mut State) {
        while state.waiting > 0 && state.free > 0 {
            let next = state
                .plugins
                .iter()
                .filter(|(plugin, load)| !load.queue.is_empty() && self.may_start(state, plugin))
                .min_by_key(|(_, load)| {
                    (load.running, load.queue.front().map(|(ticket, _)| *ticket))
                })
                .map(|(plugin, _)| Arc::clone(plugin));
            let Some(plugin) = next else { return };
            let load = state.load(&plugin);
            if let Some((_, turn)) = load.queue.pop_front() {
                load.running += 1;
                state.free -= 1;
                state.waiting -= 1;
                // Who doesn't hear it any more gives the place up at once, see `Place`.
                let _ = turn.send(());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn load(&mut self, plugin: &Arc<str>) -> &mut Load {
        self.plugins.entry(Arc::clone(plugin)).or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        let Some(load) = state.plugins.get_mut(&self.plugin) else { return };
        let waits = load.queue.iter().position(|(ticket, _)| *ticket == self.ticket);
        match waits {
            Some(at) => drop(load.queue.remove(at)),
            None => load.running -= 1,
        }
        if load.running == 0 && load.queue.is_empty() {
            state.plugins.remove(&self.plugin);
        }
        match waits {
            Some(_) => state.waiting -= 1,
            None => state.free += 1,
        }
        // One that waited and went may have been what bounded another plugin to its share.
        self.admission.give_out(&mut state);
    }
}

/// Waits for a turn. `Err`: it didn't come.
async fn wait(
    turn: oneshot::Receiver<()>,
    cancel: &CancellationToken,
    deadline: Instant,
) -> Result<(), Stop> {
    let mut turn = pin!(turn);
    let mut cancelled = pin!(cancel.cancelled());
    let mut late = pin!(sleep_until(deadline.into()));
    poll_fn(|context| {
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Stop::Cancelled));
        }
        if turn.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        late.as_mut().poll(context).map(|()| Err(Stop::Timeout))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Calls {
        admission: Arc<Admission>,
        held: Vec<(Place, Option<oneshot::Receiver<()>>)>,
    }

    impl Calls {
        fn with_places(places: usize) -> Self {
            Self { admission: Admission::new(places), held: Vec::new() }
        }

        /// Whether the call begins at once.
        fn enter(&mut self, plugin: &str) -> bool {
            let (place, turn) =
                self.admission.enter(&plugin.into()).expect("there is room to wait");
            let begins = turn.is_none();
            self.held.push((place, turn));
            begins
        }

        /// Ends a call that runs.
        fn end(&mut self, plugin: &str) {
            let runs = |(place, turn): &(Place, Option<oneshot::Receiver<()>>)| {
                &*place.plugin == plugin && turn.is_none()
            };
            let at = self.held.iter().position(runs).expect("one runs");
            drop(self.held.remove(at));
        }

        /// The plugins whose calls have got a place since the last look.
        fn begun(&mut self) -> Vec<String> {
            let mut begun = Vec::new();
            for (place, turn) in &mut self.held {
                if turn.as_mut().is_some_and(|turn| turn.try_recv().is_ok()) {
                    *turn = None;
                    begun.push(place.plugin.to_string());
                }
            }
            begun
        }
    }

    #[test]
    fn plugin_alone_runs_beyond_its_share_and_leaves_a_place() {
        let mut calls = Calls::with_places(8);
        let begun = (0..20).filter(|_| calls.enter("a")).count();
        assert_eq!(begun, 7);
        assert!(calls.enter("b"), "a place was left");
        assert!(!calls.enter("b"));
        calls.end("a");
        assert_eq!(calls.begun(), ["b"], "the one with fewer running calls is next");
        for _ in 0..3 {
            assert!(!calls.enter("b"));
        }
        // Both wait: `a` is beyond its share of four, `b` is not.
        for _ in 0..2 {
            calls.end("a");
            assert_eq!(calls.begun(), ["b"]);
        }
        calls.end("b");
        assert_eq!(calls.begun(), ["b"]);
        calls.end("b");
        assert!(
            calls.begun().is_empty(),
            "the last place is kept free for those within their share"
        );
        calls.end("b");
        assert_eq!(calls.begun(), ["a"]);
    }

    #[test]
    fn calls_of_a_plugin_begin_in_their_order_and_those_that_went_are_passed_over() {
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
        assert_eq!(calls.begun(), ["a"]);
        assert!(calls.held[0].1.is_none(), "the first of them");
        calls.held.clear();
        let state = calls.admission.state();
        assert_eq!((state.free, state.waiting, state.plugins.len()), (1, 0, 0));
    }

    #[test]
    fn waiting_calls_are_bounded() {
        let mut calls = Calls::with_places(1);
        for _ in 0..=WAITING {
            calls.enter("a");
        }
        let refused = calls.admission.enter(&"b".into()).err().expect("there is no room");
        assert_eq!(refused.code.as_deref(), Some("busy"));
        drop(calls.held.pop());
        assert!(!calls.enter("b"));
    }

    #[test]
    fn place_whose_waiter_went_without_hearing_its_turn_comes_back() {
        let mut calls = Calls::with_places(1);
        calls.enter("a");
        calls.enter("b");
        calls.enter("c");
        calls.end("a");
        // `b` has got its turn, and goes before it looks.
        drop(calls.held.remove(0));
        assert_eq!(calls.begun(), ["c"]);
    }
}
