//! The answers of one session, bounded in number, memory and age; what was not asked for longest goes first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use berth_contract::Output;
use berth_system::files::Sights;
use serde_json::Value;

use crate::catalogue::Tool;

/// What of answers is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// None: for as long as they are true.
    pub(crate) ttl: Option<Duration>,
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

/// Which call an answer is to: of this version of the tool with the grants that it has, with these arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    tool: usize,
    arguments: [u8; 32],
}

impl Key {
    /// `arguments`: the digest of their canonical form.
    pub(crate) fn new(tool: &Arc<Tool>, arguments: [u8; 32]) -> Self {
        Self { tool: Arc::as_ptr(tool).addr(), arguments }
    }
}

/// An answer that is kept.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The tool of the key. While this is held, no other tool has its address. It doesn't keep the tool.
    pub(crate) tool: Weak<Tool>,
    pub(crate) output: Output,
    pub(crate) sights: Sights,
    pub(crate) bytes: usize,
    pub(crate) made: Instant,
    /// How long it took to make.
    pub(crate) run: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, (Arc<Entry>, u64)>,
    bytes: usize,
    /// Counts the uses, to tell which was last.
    uses: u64,
    hits: u64,
    misses: u64,
}

/// What a session keeps of answers, and how often one served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswersKept {
    /// Answers.
    pub answers: usize,
    /// Bytes of memory that they take, about.
    pub bytes: usize,
    /// Calls that were answered with one.
    pub hits: u64,
    /// Calls for which one was there that was no longer true or too old, or none.
    pub misses: u64,
}

impl Answers {
    /// The answer to a call, from now on the one that was asked for last. One that is too old is let go.
    pub(crate) fn get(&self, key: &Key, tool: &Arc<Tool>, bounds: Bounds, now: Instant) -> Option<Arc<Entry>> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let found = state.entries.get_mut(key).map(|(entry, used)| {
            *used = uses;
            Arc::clone(entry)
        });
        let young = |entry: &Entry| bounds.ttl.is_none_or(|ttl| now.saturating_duration_since(entry.made) < ttl);
        match found {
            Some(entry) if std::ptr::eq(entry.tool.as_ptr(), Arc::as_ptr(tool)) && young(&entry) => return Some(entry),
            Some(_) => state.remove(key),
            None => {}
        }
        state.misses += 1;
        None
    }

    /// Keeps an answer, and lets go what there is no room for then.
    pub(crate) fn put(&self, key: Key, entry: Entry, bounds: Bounds) {
        let mut state = self.state();
        state.remove(&key);
        if entry.bytes > bounds.bytes {
            return;
        }
        // Those of tools that are gone serve nobody.
        let gone: Vec<Key> = state.entries.iter().filter(|(_, (entry, _))| entry.tool.strong_count() == 0).map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| state.remove(key));
        while state.entries.len() >= bounds.entries || state.bytes + entry.bytes > bounds.bytes {
            let Some(oldest) = state.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key) else { break };
            state.remove(&oldest);
        }
        state.uses += 1;
        let uses = state.uses;
        state.bytes += entry.bytes;
        state.entries.insert(key, (Arc::new(entry), uses));
    }

    /// Lets go this very answer, if it is still there.
    pub(crate) fn remove(&self, key: &Key, entry: &Arc<Entry>) {
        let mut state = self.state();
        if state.entries.get(key).is_some_and(|(known, _)| Arc::ptr_eq(known, entry)) {
            state.remove(key);
        }
    }

    /// Counts whether an answer that was there served.
    pub(crate) fn count(&self, served: bool) {
        let mut state = self.state();
        if served {
            state.hits += 1;
        } else {
            state.misses += 1;
        }
    }

    /// Lets go all answers, and forgets what was counted.
    pub(crate) fn clear(&self) {
        *self.state() = State::default();
    }

    pub(crate) fn kept(&self) -> AnswersKept {
        let state = self.state();
        AnswersKept { answers: state.entries.len(), bytes: state.bytes, hits: state.hits, misses: state.misses }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, key: &Key) {
        if let Some((entry, _)) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Bytes of memory of an output, about.
pub(crate) fn bytes_of(output: &Output) -> usize {
    let parts = output.content.iter().map(|part| part.len() + part.meta.as_ref().map_or(0, weight) + 128);
    256 + parts.sum::<usize>() + output.structured.as_ref().map_or(0, weight) + output.meta.as_ref().map_or(0, weight)
}

fn weight(value: &Value) -> usize {
    let below = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| 64 + key.len() + weight(value)).sum(),
    };
    size_of::<Value>() + below
}
