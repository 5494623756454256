//! Stores the reusable answers of one session. The least recently used answer is removed first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;
use toolhold_contract::Output;
use toolhold_system::files::FileDependencies;

use toolhold_catalogue::Tool;

/// The limits of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// The maximum age of an answer. With `None`, answers don't expire.
    pub ttl: Option<Duration>,
    pub bytes: usize,
    pub entries: usize,
}

/// Identifies a call: the loaded tool with its grants, the arguments, and the version of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    tool: usize,
    call: [u8; 32],
}

impl CacheKey {
    /// Creates a key. `call` is the digest of the canonical arguments and of the version of the
    /// rules.
    pub fn new(tool: &Arc<Tool>, call: [u8; 32]) -> Self {
        Self { tool: Arc::as_ptr(tool).addr(), call }
    }
}

/// A stored answer.
#[derive(Debug)]
pub struct CacheEntry {
    /// Keeps the tool's memory reserved, so no other tool gets the address in [`CacheKey::tool`].
    pub tool: Weak<Tool>,
    pub output: Output,
    pub files_read: FileDependencies,
    pub bytes: usize,
    pub made: Instant,
    /// The duration of the call that produced the answer.
    pub run: Duration,
}

/// The stored answers of one session.
#[derive(Debug, Default)]
pub struct AnswerCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<CacheKey, (Arc<CacheEntry>, u64)>,
    bytes: usize,
    /// Number of uses of all entries. Each entry stores the number at its last use.
    uses: u64,
    hits: u64,
    misses: u64,
}

/// Figures of a session's answer cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSummary {
    /// Number of answers.
    pub answers: usize,
    /// Estimated memory in bytes.
    pub bytes: usize,
    /// Calls that were answered from the cache.
    pub hits: u64,
    /// The number of calls whose cached answer was missing, expired or no longer true.
    pub misses: u64,
}

impl AnswerCache {
    /// Returns the answer to a call, and marks it as the most recently used. An expired answer is
    /// removed.
    pub fn get(
        &self,
        key: &CacheKey,
        tool: &Arc<Tool>,
        bounds: CacheBounds,
        now: Instant,
    ) -> Option<Arc<CacheEntry>> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let Some((entry, last_use)) = state.entries.get_mut(key) else {
            state.misses += 1;
            return None;
        };
        *last_use = uses;
        let entry = Arc::clone(entry);
        let is_of_tool = std::ptr::eq(entry.tool.as_ptr(), Arc::as_ptr(tool));
        let is_fresh = match bounds.ttl {
            Some(ttl) => now.saturating_duration_since(entry.made) < ttl,
            None => true,
        };
        if is_of_tool && is_fresh {
            return Some(entry);
        }
        state.remove(key);
        state.misses += 1;
        None
    }

    /// Stores an answer. If there is no room, the least recently used answers are removed. An
    /// answer that is larger than the cache is dropped.
    pub fn put(&self, key: CacheKey, entry: CacheEntry, bounds: CacheBounds) {
        let mut state = self.state();
        state.remove(&key);
        if entry.bytes > bounds.bytes {
            return;
        }
        // Also remove the answers of unloaded tools, because these tools are never called again.
        let State { entries, bytes, .. } = &mut *state;
        entries.retain(|_, (entry, _)| {
            let has_tool = entry.tool.strong_count() > 0;
            if !has_tool {
                *bytes -= entry.bytes;
            }
            has_tool
        });
        while state.entries.len() >= bounds.entries || state.bytes + entry.bytes > bounds.bytes {
            let oldest = state.entries.iter().min_by_key(|(_, (_, last_use))| *last_use);
            // The loop ends before the cache is empty, because the entry isn't larger than the
            // cache.
            let Some((&oldest_key, _)) = oldest else { break };
            state.remove(&oldest_key);
        }
        state.uses += 1;
        let uses = state.uses;
        state.bytes += entry.bytes;
        state.entries.insert(key, (Arc::new(entry), uses));
    }

    /// Removes this answer, unless another answer has replaced it.
    pub fn remove(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        let mut state = self.state();
        if state.entries.get(key).is_some_and(|(known, _)| Arc::ptr_eq(known, entry)) {
            state.remove(key);
        }
    }

    /// Counts a hit if an answer was served from the cache, and a miss otherwise.
    pub fn count(&self, served: bool) {
        let mut state = self.state();
        if served {
            state.hits += 1;
        } else {
            state.misses += 1;
        }
    }

    /// Removes all answers and resets the counts.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// Returns the figures of the cache.
    pub fn summary(&self) -> CacheSummary {
        let state = self.state();
        CacheSummary {
            answers: state.entries.len(),
            bytes: state.bytes,
            hits: state.hits,
            misses: state.misses,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, key: &CacheKey) {
        if let Some((entry, _)) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Approximate bytes of an output's own fields.
const OUTPUT_BYTES: usize = 256;

/// Approximate bytes of a part's own fields.
const PART_BYTES: usize = 128;

/// Approximate bytes of an entry in the map of a JSON object.
const MAP_ENTRY_BYTES: usize = 64;

pub(crate) fn bytes_of(output: &Output) -> usize {
    let mut bytes = OUTPUT_BYTES;
    for part in &output.content {
        bytes += PART_BYTES + part.len() + part.meta.as_ref().map_or(0, weight);
    }
    bytes += output.structured.as_ref().map_or(0, weight);
    bytes += output.meta.as_ref().map_or(0, weight);
    bytes
}

/// Estimates the memory that a JSON value takes.
fn weight(value: &Value) -> usize {
    let content_bytes = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            let entries = fields.iter();
            entries.map(|(key, value)| MAP_ENTRY_BYTES + key.len() + weight(value)).sum()
        }
    };
    size_of::<Value>() + content_bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolhold_contract::{BoxFuture, Call, Content, Definition, Outcome, ToolSource};

    use super::*;

    struct One;

    impl ToolSource for One {
        fn name(&self) -> &str {
            "one"
        }

        fn tools(&self) -> Vec<Arc<Definition>> {
            vec![Arc::new(Definition::new("one", "A tool.", json!({ "type": "object" })))]
        }

        fn call(&self, _call: Call) -> BoxFuture<'_, Outcome> {
            Box::pin(std::future::ready(Ok(Output::default())))
        }
    }

    fn tool() -> Arc<Tool> {
        let provider: Arc<dyn ToolSource> = Arc::new(One);
        Tool::from_provider(&provider).expect("its schema is one").remove(0)
    }

    const BOUNDS: CacheBounds =
        CacheBounds { ttl: Some(Duration::from_secs(10)), bytes: 1000, entries: 3 };

    /// Answers of one tool, by their number.
    struct Scene {
        answers: AnswerCache,
        tool: Arc<Tool>,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { answers: AnswerCache::default(), tool: tool(), now: Instant::now() }
        }

        fn key(&self, number: u8) -> CacheKey {
            CacheKey::new(&self.tool, [number; 32])
        }

        fn put(&self, number: u8, bytes: usize) {
            let files_read = FileDependencies::new(Vec::new(), (0, 0)).expect("nothing was seen");
            let (tool, output) = (Arc::downgrade(&self.tool), Output::text(number.to_string()));
            let entry =
                CacheEntry { tool, output, files_read, bytes, made: self.now, run: Duration::ZERO };
            self.answers.put(self.key(number), entry, BOUNDS);
        }

        fn get(&self, number: u8) -> Option<String> {
            let entry = self.answers.get(&self.key(number), &self.tool, BOUNDS, self.now)?;
            Some(entry.output.joined_text())
        }

        #[track_caller]
        fn has(&self, expected: &[u8]) {
            let there: Vec<u8> = (0..10)
                .filter(|number| self.answers.state().entries.contains_key(&self.key(*number)))
                .collect();
            assert_eq!(there, expected);
            assert_eq!(self.answers.summary().answers, expected.len());
        }
    }

    #[test]
    fn least_recently_used_answer_goes_first() {
        let scene = Scene::new();
        (0..3).for_each(|number| scene.put(number, 10));
        assert_eq!(scene.get(0).as_deref(), Some("0"));
        scene.put(3, 10);
        scene.has(&[0, 2, 3]);
        scene.put(0, 20);
        scene.put(4, 10);
        scene.has(&[0, 3, 4]);
        assert_eq!(scene.answers.summary().bytes, 40);
    }

    #[test]
    fn cache_memory_is_bounded() {
        let scene = Scene::new();
        scene.put(0, 400);
        scene.put(1, 400);
        scene.put(2, 300);
        scene.has(&[1, 2]);
        scene.put(3, 1001);
        scene.has(&[1, 2]);
        scene.put(4, 1000);
        scene.has(&[4]);
        // An answer that grew too large replaces its old one too.
        scene.put(4, 1001);
        scene.has(&[]);
        assert_eq!(scene.answers.summary().bytes, 0);
    }

    #[test]
    fn answers_expire() {
        let mut scene = Scene::new();
        scene.put(0, 10);
        scene.now += Duration::from_millis(9999);
        assert!(scene.get(0).is_some());
        scene.now += Duration::from_millis(1);
        assert_eq!(scene.get(0), None);
        scene.has(&[]);
        scene.put(0, 10);
        let never = CacheBounds { ttl: None, ..BOUNDS };
        let years = scene.now + Duration::from_secs(1 << 30);
        assert!(scene.answers.get(&scene.key(0), &scene.tool, never, years).is_some());
    }

    #[test]
    fn new_version_of_a_tool_gets_no_old_answer() {
        let mut scene = Scene::new();
        scene.put(0, 10);
        let old = std::mem::replace(&mut scene.tool, tool());
        assert_eq!(scene.get(0), None);
        drop(old);
        // An unreachable answer is removed when the next one is stored.
        scene.put(1, 10);
        scene.has(&[1]);
    }

    #[test]
    fn clearing_resets_the_counts() {
        let scene = Scene::new();
        scene.put(0, 10);
        scene.answers.count(true);
        assert_eq!(
            (scene.get(1), scene.answers.summary().hits, scene.answers.summary().misses),
            (None, 1, 1)
        );
        scene.answers.clear();
        assert_eq!(scene.answers.summary(), CacheSummary::default());
    }

    #[test]
    fn weight_counts_every_part_of_an_output() {
        let text = Output::text("x".repeat(10_000));
        let structured =
            Output { structured: Some(json!({ "a": ["y".repeat(10_000)] })), ..Output::default() };
        let meta = Output {
            content: vec![Content { meta: Some(json!("z".repeat(10_000))), ..Content::text("") }],
            ..Output::default()
        };
        for output in [text, structured, meta] {
            assert!((10_000..12_000).contains(&bytes_of(&output)), "{}", bytes_of(&output));
        }
    }
}
