//! The answers of one session, bounded in number, memory and age; what was not asked for longest
//! goes first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use berth_contract::Output;
use berth_system::files::Sights;
use serde_json::Value;

use berth_catalogue::Tool;

/// What of answers is kept.
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// None: for as long as they are true.
    pub ttl: Option<Duration>,
    pub bytes: usize,
    pub entries: usize,
}

/// Which call an answer is to: of this version of the tool with the grants that it has, with these
/// arguments, and under these rules where those say what it may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    tool: usize,
    call: [u8; 32],
}

impl CacheKey {
    /// `call`: the digest of the arguments' canonical form, and of what tells the rules from
    /// others.
    pub fn new(tool: &Arc<Tool>, call: [u8; 32]) -> Self {
        Self { tool: Arc::as_ptr(tool).addr(), call }
    }
}

/// An answer that is kept.
#[derive(Debug)]
pub struct CacheEntry {
    /// The tool of the key. While this is held, no other tool has its address. It doesn't keep the
    /// tool.
    pub tool: Weak<Tool>,
    pub output: Output,
    pub sights: Sights,
    pub bytes: usize,
    pub made: Instant,
    /// How long it took to make.
    pub run: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub struct AnswerCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<CacheKey, (Arc<CacheEntry>, u64)>,
    bytes: usize,
    /// Counts the uses, to tell which was last.
    uses: u64,
    hits: u64,
    misses: u64,
}

/// What a session keeps of answers, and how often one served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSummary {
    /// Answers.
    pub answers: usize,
    /// Bytes of memory that they take, about.
    pub bytes: usize,
    /// Calls that were answered with one.
    pub hits: u64,
    /// Calls for which one was there that was no longer true or too old, or none.
    pub misses: u64,
}

impl AnswerCache {
    /// The answer to a call, from now on the one that was asked for last. One that is too old is
    /// let go.
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
        let found = state.entries.get_mut(key).map(|(entry, used)| {
            *used = uses;
            Arc::clone(entry)
        });
        let young = |entry: &CacheEntry| {
            bounds.ttl.is_none_or(|ttl| now.saturating_duration_since(entry.made) < ttl)
        };
        match found {
            Some(entry)
                if std::ptr::eq(entry.tool.as_ptr(), Arc::as_ptr(tool)) && young(&entry) =>
            {
                return Some(entry);
            }
            Some(_) => state.remove(key),
            None => {}
        }
        state.misses += 1;
        None
    }

    /// Keeps an answer, and lets go what there is no room for then.
    pub fn put(&self, key: CacheKey, entry: CacheEntry, bounds: CacheBounds) {
        let mut state = self.state();
        state.remove(&key);
        if entry.bytes > bounds.bytes {
            return;
        }
        // Those of tools that are gone serve nobody.
        let gone: Vec<CacheKey> = state
            .entries
            .iter()
            .filter(|(_, (entry, _))| entry.tool.strong_count() == 0)
            .map(|(key, _)| *key)
            .collect();
        gone.iter().for_each(|key| state.remove(key));
        while state.entries.len() >= bounds.entries || state.bytes + entry.bytes > bounds.bytes {
            let Some(oldest) =
                state.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
            else {
                break;
            };
            state.remove(&oldest);
        }
        state.uses += 1;
        let uses = state.uses;
        state.bytes += entry.bytes;
        state.entries.insert(key, (Arc::new(entry), uses));
    }

    /// Lets go this very answer, if it is still there.
    pub fn remove(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        let mut state = self.state();
        if state.entries.get(key).is_some_and(|(known, _)| Arc::ptr_eq(known, entry)) {
            state.remove(key);
        }
    }

    /// Counts whether an answer that was there served.
    pub fn count(&self, served: bool) {
        let mut state = self.state();
        if served {
            state.hits += 1;
        } else {
            state.misses += 1;
        }
    }

    /// Lets go all answers, and forgets what was counted.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// What is kept, and how often it served.
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

/// Bytes of memory of an output, about.
pub(crate) fn bytes_of(output: &Output) -> usize {
    let parts =
        output.content.iter().map(|part| part.len() + part.meta.as_ref().map_or(0, weight) + 128);
    256 + parts.sum::<usize>()
        + output.structured.as_ref().map_or(0, weight)
        + output.meta.as_ref().map_or(0, weight)
}

fn weight(value: &Value) -> usize {
    let below = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| 64 + key.len() + weight(value)).sum()
        }
    };
    size_of::<Value>() + below
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_contract::{BoxFuture, Call, Content, Definition, Outcome, Provider};
    use serde_json::json;

    use super::*;

    struct One;

    impl Provider for One {
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
        let provider: Arc<dyn Provider> = Arc::new(One);
        Tool::from_provider(&provider).expect("its schema is one").remove(0)
    }

    const BOUNDS: CacheBounds =
        CacheBounds { ttl: Some(Duration::from_secs(10)), bytes: 1000, entries: 3 };

    /// Answers of one tool, by number.
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
            let sights = Sights::new(Vec::new(), (0, 0)).expect("nothing was seen");
            let (tool, output) = (Arc::downgrade(&self.tool), Output::text(number.to_string()));
            let entry =
                CacheEntry { tool, output, sights, bytes, made: self.now, run: Duration::ZERO };
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
    fn what_was_not_asked_for_longest_goes_first() {
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
    fn memory_is_bounded() {
        let scene = Scene::new();
        scene.put(0, 400);
        scene.put(1, 400);
        scene.put(2, 300);
        scene.has(&[1, 2]);
        scene.put(3, 1001);
        scene.has(&[1, 2]);
        scene.put(4, 1000);
        scene.has(&[4]);
        // One that grew too large takes its old self along.
        scene.put(4, 1001);
        scene.has(&[]);
        assert_eq!(scene.answers.summary().bytes, 0);
    }

    #[test]
    fn an_answer_grows_too_old() {
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
    fn another_version_of_the_tool_gets_no_answer_of_the_first() {
        let mut scene = Scene::new();
        scene.put(0, 10);
        let old = std::mem::replace(&mut scene.tool, tool());
        assert_eq!(scene.get(0), None);
        drop(old);
        // What nobody can ask for any more goes with the next that is kept.
        scene.put(1, 10);
        scene.has(&[1]);
    }

    #[test]
    fn forgetting_forgets_what_was_counted_too() {
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
    fn an_output_is_weighed_with_everything_in_it() {
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
