//! Decides whether an earlier answer is used again. Only answers of tools that read are used again,
//! and only until one of their sources changes.
//!
//! The tool's own output is stored before it is shaped. A reused answer passes the same steps as a
//! new answer, under the current rules.

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

/// Maximum number of system calls of a check on the async thread. A longer check runs on a thread
/// that may block.
const QUICK: usize = 64;

/// Time limit of a check, for a file system that is slow or never answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ratio between the time of a call and the time of its check from which the answer is stored.
const WORTH: u32 = 2;

/// Cost of finding and copying an answer, besides the check.
const FIXED: Duration = Duration::from_micros(5);

/// Assumed cost of a check's system call in nanoseconds, used until a cost is measured.
const GUESS: u64 = 1500;

/// Stores and finds answers, each for its session.
#[derive(Debug)]
pub struct Results {
    /// The limits of stored answers. `None` means that no answers are stored.
    bounds: Option<CacheBounds>,
    /// Cost of a check's system call on this machine, in nanoseconds: a mean in which the last
    /// eight checks have the most weight.
    each: AtomicU64,
}

/// Result of the search for an earlier answer.
#[derive(Debug)]
pub enum CacheResult {
    /// This answer is used.
    Hit(Output),
    /// There is no stored answer. The answer of this call may be stored under the key.
    Miss(CacheKey),
    /// Answers to this kind of call aren't stored.
    Unused,
}

/// Maximum number of stored answers of one session.
const MAX_ENTRIES: usize = 512;

impl CacheResult {
    /// Returns the report for the call. The report tracks the files that the call reads if its
    /// answer may be stored.
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

    /// Returns an answer that is provably still true. `rules` is the version of the rules if they
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
        // If checking an answer costs as much as a new call, storing the answer isn't worth the
        // memory.
        let is_worth_it = (check_time + FIXED) * WORTH <= entry.run;
        if !is_unchanged || !is_worth_it {
            answers.remove(&key, &entry);
        }
        answers.count(is_unchanged);
        if is_unchanged { CacheResult::Hit(entry.output.clone()) } else { CacheResult::Miss(key) }
    }

    /// Updates the mean cost of a check's system call. `work` is the number of system calls of the
    /// check.
    fn measure(&self, check_time: Duration, work: usize) {
        let nanos = u64::try_from(check_time.as_nanos()).unwrap_or(u64::MAX);
        let Some(measured) = nanos.checked_div(work as u64) else { return };
        let mean = self.each.load(Ordering::Relaxed);
        // The thread may have waited for a processor, so the measured time is limited.
        let bounded = measured.min(4 * mean);
        self.each.store(mean - mean / 8 + bounded / 8, Ordering::Relaxed);
    }

    /// Stores the answer of a call that took `run`, if storing it is worth it. `report` has the
    /// sources of the answer.
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
            // If no check runs, no cost is measured. So the mean decreases here, in case a single
            // measured value was too high.
            let mean = self.each.load(Ordering::Relaxed);
            self.each.store(mean - mean.saturating_sub(GUESS) / 16, Ordering::Relaxed);
            return;
        }
        // If the clock is wrong and shows a time before 1970, no file's state is certain.
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

    /// Checks whether all sources of the answer are unchanged, through the same grants.
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
