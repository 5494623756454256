//! Decides whether an earlier answer serves again: only of tools that read, and while everything is
//! unchanged that it was made of.
//!
//! The tool's own output is stored, before it is shaped: a reused answer passes the same steps as a
//! fresh one, under the current rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use toolhold_catalogue::{CallContext, Tool};
use toolhold_config::ResultCache;
use toolhold_contract::{Output, ReadFiles, Report};
use toolhold_policy::canonical;
use toolhold_system::files::{FileDependencies, FileView};

use crate::answer_cache::{AnswerCache, CacheBounds, CacheEntry, CacheKey, bytes_of};

/// A check that needs more system calls than this runs on a thread that may block.
const QUICK: usize = 64;

/// Time limit of a check, for a file system that is slow or never answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// A run must take at least this many times as long as its check for its answer to be stored.
const WORTH: u32 = 2;

/// Cost of finding and copying an answer, besides the check.
const FIXED: Duration = Duration::from_micros(5);

/// Assumed cost of a check's system call until one is measured, in nanoseconds.
const GUESS: u64 = 1500;

/// Stores and finds answers, each for its session.
#[derive(Debug)]
pub struct Results {
    /// `None` if none are stored.
    bounds: Option<CacheBounds>,
    /// Cost of a check's system call on this machine, in nanoseconds: a mean in which the last
    /// eight count most.
    each: AtomicU64,
}

/// Result of the search for an earlier answer.
#[derive(Debug)]
pub enum CacheResult {
    /// This answer is used.
    Hit(Output),
    /// There is none, and the answer of this call may be stored under the key.
    Miss(CacheKey),
    /// Answers of such calls aren't stored.
    Unused,
}

/// Stored answers of one session.
const MAX_ENTRIES: usize = 512;

impl CacheResult {
    /// Returns the report for the call, which stores what the call reads if its answer may be
    /// stored.
    pub fn report(&self) -> Report {
        if matches!(self, Self::Miss(_)) { Report::watching() } else { Report::default() }
    }
}

impl Results {
    /// Stores as many answers as the configuration says, and for as long.
    pub fn new(config: ResultCache) -> Self {
        let ttl = Duration::from_secs(config.ttl_secs.get());
        let bounds = CacheBounds {
            ttl: (!ttl.is_zero()).then_some(ttl),
            bytes: usize::try_from(config.max_mib.get() << 20).unwrap_or(usize::MAX),
            entries: MAX_ENTRIES,
        };
        Self { bounds: config.enabled.then_some(bounds), each: AtomicU64::new(GUESS) }
    }

    /// Returns an answer that is provably still true. `rules`: the version of the rules, if they
    /// decide what the call may reach.
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
        let trusted = tool.annotations;
        if !trusted.read_only || !trusted.cacheable || !context.attachments.is_empty() {
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

        let check_started = Instant::now();
        let is_unchanged = self.is_unchanged(tool, &entry).await;
        let check_time = check_started.elapsed();
        self.measure(check_time, entry.sights.work());
        // An answer whose check costs as much as a new run isn't worth its room.
        let is_worth_it = (check_time + FIXED) * WORTH <= entry.run;
        if !is_unchanged || !is_worth_it {
            answers.remove(&key, &entry);
        }
        answers.count(is_unchanged);
        if is_unchanged { CacheResult::Hit(entry.output.clone()) } else { CacheResult::Miss(key) }
    }

    /// Updates the mean cost of a check's system call. `work`: the system calls of the check.
    fn measure(&self, check_time: Duration, work: usize) {
        let nanos = u64::try_from(check_time.as_nanos()).unwrap_or(u64::MAX);
        let Some(measured) = nanos.checked_div(work as u64) else { return };
        let mean = self.each.load(Ordering::Relaxed);
        // The time of a thread that had to wait for its turn says little, so it is bounded.
        let bounded = measured.min(4 * mean);
        self.each.store(mean - mean / 8 + bounded / 8, Ordering::Relaxed);
    }

    /// Stores the answer of a call that took `run`, if that is worth it. `report` has what the
    /// answer was made of.
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
            ReadFiles::Files(seen) => seen,
            ReadFiles::Untold | ReadFiles::Lost => return,
        };
        if !self.is_worth(seen.len(), run) {
            // Without a check nothing is measured, so a single high value must decay by itself.
            let mean = self.each.load(Ordering::Relaxed);
            self.each.store(mean - mean.saturating_sub(GUESS) / 16, Ordering::Relaxed);
            return;
        }
        // With a clock before 1970, which is wrong, no file is certain.
        let since_epoch = context.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = (since_epoch.as_secs() as i64, u64::from(since_epoch.subsec_nanos()));
        let Some(sights) = FileDependencies::new(seen, started) else { return };
        let has_files = tool.plugin.as_ref().is_some_and(|plugin| plugin.policy().files.is_some());
        let is_checkable = sights.work() == 0 || has_files;
        if !is_checkable || !self.is_worth(sights.work(), run) {
            return;
        }
        let bytes = bytes_of(output) + sights.bytes();
        let entry = CacheEntry {
            tool: Arc::downgrade(tool),
            output: output.clone(),
            sights,
            bytes,
            made: Instant::now(),
            run,
        };
        answers.put(key, entry, bounds);
    }

    /// Checks whether a run took clearly longer than a check with this number of system calls.
    fn is_worth(&self, work: usize, run: Duration) -> bool {
        let nanos = self.each.load(Ordering::Relaxed).saturating_mul(work as u64);
        let check_time = Duration::from_nanos(nanos);
        check_time.saturating_add(FIXED).saturating_mul(WORTH) <= run
    }

    /// Checks whether everything is unchanged since the answer was made, through the same grants.
    async fn is_unchanged(&self, tool: &Tool, entry: &Arc<CacheEntry>) -> bool {
        let work = entry.sights.work();
        if work == 0 {
            return true;
        }
        let Some(plugin) = &tool.plugin else { return false };
        let Some(grants) = &plugin.policy().files else { return false };
        let view = FileView::new(Arc::clone(grants), true);
        if work <= QUICK {
            return view.is_unchanged(&entry.sights);
        }
        let entry = Arc::clone(entry);
        let check = tokio::task::spawn_blocking(move || view.is_unchanged(&entry.sights));
        // A file system that doesn't answer in time says nothing about the stored answer.
        matches!(tokio::time::timeout(PATIENCE, check).await, Ok(Ok(true)))
    }
}
