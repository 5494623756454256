//! Answers that may serve again: of tools that only read, as long as everything that an answer was
//! made of is unchanged.
//!
//! What is kept is the tool's own output, before it is shaped: a kept answer goes the same way as a
//! fresh one, and says what the rules of the moment let it say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use berth_catalogue::{CallContext, Tool};
use berth_config::ResultCache;
use berth_contract::{Output, Report, Seen};
use berth_policy::canonical;
use berth_system::files::{FileView, Sights};
use sha2::{Digest, Sha256};

use crate::answer_cache::{AnswerCache, CacheBounds, CacheEntry, CacheKey, bytes_of};

/// What takes more system calls than this is checked on a thread that may block.
const QUICK: usize = 64;

/// How long a check may take, on a file system that is slow or doesn't answer at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a run has to take at least, beside the check, for its answer to be kept: so many times as
/// long.
const WORTH: u32 = 2;

/// What finding and copying an answer costs beside the check.
const FIXED: Duration = Duration::from_micros(5);

/// What a system call of the check is taken to cost until one was measured, in nanoseconds.
const GUESS: u64 = 1500;

/// Keeps and finds answers, each for its session.
#[derive(Debug)]
pub struct Results {
    /// None where none are kept.
    bounds: Option<CacheBounds>,
    /// What a system call of a check costs on this machine, in nanoseconds: a mean in which the
    /// last eight count most.
    each: AtomicU64,
}

/// What a look for an earlier answer comes to.
#[derive(Debug)]
pub enum CacheResult {
    /// This one serves.
    Hit(Output),
    /// There is none, and the answer of this call may be kept under the key.
    Miss(CacheKey),
    /// The answers of such calls are not kept.
    Unused,
}

impl CacheResult {
    /// The report for the call: one that watches what the call looks at, where its answer may be
    /// kept.
    pub fn report(&self) -> Report {
        if matches!(self, Self::Miss(_)) { Report::watching() } else { Report::default() }
    }
}

impl Results {
    /// Keeps as many answers as the configuration says, and for as long.
    pub fn new(config: ResultCache) -> Self {
        let ttl = Duration::from_secs(config.ttl_secs.get());
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let bounds = CacheBounds {
            ttl: (!ttl.is_zero()).then_some(ttl),
            bytes: number(config.max_mib.get() << 20),
            entries: number(config.max_entries.get()),
        };
        Self { bounds: config.enabled.then_some(bounds), each: AtomicU64::new(GUESS) }
    }

    /// An answer that is provably still true. `rules` tells the rules that the call is made under
    /// from others, where they say what it may reach.
    pub async fn find(
        &self,
        context: &CallContext,
        answers: Option<&AnswerCache>,
        rules: impl FnOnce() -> Option<String>,
    ) -> CacheResult {
        let (Some(bounds), Some(tool), Some(answers)) = (self.bounds, &context.tool, answers)
        else {
            return CacheResult::Unused;
        };
        let believed = tool.annotations;
        if !believed.read_only || !believed.cacheable || !context.attachments.is_empty() {
            return CacheResult::Unused;
        }
        let mut call = Sha256::new_with_prefix(canonical(&context.arguments));
        if let Some(rules) = rules() {
            call.update(rules);
        }
        let key = CacheKey::new(tool, call.finalize().into());
        let Some(entry) = answers.get(&key, tool, bounds, Instant::now()) else {
            return CacheResult::Miss(key);
        };
        let began = Instant::now();
        let still = self.is_still(tool, &entry).await;
        let took = began.elapsed();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(measured) = nanos.checked_div(entry.sights.work() as u64) {
            let mean = self.each.load(Ordering::Relaxed);
            // A thread that had to wait for its turn says little.
            self.each.store(mean - mean / 8 + measured.min(4 * mean) / 8, Ordering::Relaxed);
        }
        // One that costs as much to check as to make anew is not worth its place either.
        if !still || (took + FIXED) * WORTH > entry.run {
            answers.remove(&key, &entry);
        }
        answers.count(still);
        if still { CacheResult::Hit(entry.output.clone()) } else { CacheResult::Miss(key) }
    }

    /// Keeps the answer of a call that took `run`, where that is worth it. The answer was made of
    /// what `report` watched.
    pub fn keep(
        &self,
        context: &CallContext,
        answers: Option<&AnswerCache>,
        key: CacheKey,
        report: &Report,
        output: &Output,
        run: Duration,
    ) {
        let (Some(bounds), Some(tool), Some(answers)) = (self.bounds, &context.tool, answers)
        else {
            return;
        };
        let seen = match std::mem::take(&mut report.entries().seen) {
            Seen::Files(seen) => seen,
            Seen::Untold | Seen::Lost => return,
        };
        if !self.is_worth(seen.len(), run) {
            // Without a check nothing is measured: a figure that was high for once has to come down
            // by itself.
            let mean = self.each.load(Ordering::Relaxed);
            self.each.store(mean - mean.saturating_sub(GUESS) / 16, Ordering::Relaxed);
            return;
        }
        // Before the year 1970 nothing is settled.
        let began = context.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(sights) =
            Sights::new(seen, (began.as_secs() as i64, u64::from(began.subsec_nanos())))
        else {
            return;
        };
        let is_checkable = sights.work() == 0
            || tool.plugin.as_ref().is_some_and(|plugin| plugin.policy().files.is_some());
        if is_checkable && self.is_worth(sights.work(), run) {
            let bytes = bytes_of(output) + sights.bytes();
            answers.put(
                key,
                CacheEntry {
                    tool: Arc::downgrade(tool),
                    output: output.clone(),
                    sights,
                    bytes,
                    made: Instant::now(),
                    run,
                },
                bounds,
            );
        }
    }

    /// Whether a run took clearly longer than a check of so much work will.
    fn is_worth(&self, work: usize, run: Duration) -> bool {
        let check =
            Duration::from_nanos(self.each.load(Ordering::Relaxed).saturating_mul(work as u64));
        check.saturating_add(FIXED).saturating_mul(WORTH) <= run
    }

    /// Whether everything is as it was when the answer was made, seen through the same grants.
    async fn is_still(&self, tool: &Tool, entry: &Arc<CacheEntry>) -> bool {
        let work = entry.sights.work();
        if work == 0 {
            return true;
        }
        let Some(grants) = tool.plugin.as_ref().and_then(|plugin| plugin.policy().files.as_ref())
        else {
            return false;
        };
        let view = FileView::new(Arc::clone(grants), true);
        if work <= QUICK {
            return view.is_still(&entry.sights);
        }
        let entry = Arc::clone(entry);
        let looked = tokio::task::spawn_blocking(move || view.is_still(&entry.sights));
        // A file system that doesn't answer by then says nothing of what is kept.
        tokio::time::timeout(PATIENCE, looked).await.is_ok_and(|looked| looked.unwrap_or(false))
    }
}
