//! Decides whether an earlier answer is reused.
//!
//! Only answers of read-only tools are reused, and only until one of the read files changes.
//! Answers are stored unshaped. A reused answer is shaped under the current rules, like a new
//! answer.

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

/// Maximum number of system calls of a check on the async thread. Longer checks run on another
/// thread.
const QUICK_CALLS: usize = 64;

/// Time limit of a check, because a network file system may never answer. After the limit, the
/// answer isn't reused.
const PATIENCE: Duration = Duration::from_secs(1);

/// An answer is stored if its call takes at least this many times as long as a check.
const MIN_GAIN: u32 = 2;

/// Approximate cost of finding and copying an answer.
const FIXED_COST: Duration = Duration::from_micros(5);

/// Assumed cost of one system call of a check in nanoseconds, until the cost is measured.
const ASSUMED_NANOS: u64 = 1500;

const MIB: u64 = 1 << 20;

/// Stores and finds the answers of a session.
#[derive(Debug)]
pub struct Results {
    /// The limits of stored answers. `None` means that the cache is disabled.
    bounds: Option<CacheBounds>,
    /// Moving average of the cost of one system call of a check in nanoseconds. The last eight
    /// checks have the most weight.
    mean_nanos: AtomicU64,
}

/// The result of a search in the cache.
#[derive(Debug)]
pub enum CacheResult {
    /// The stored answer that is used.
    Hit(Output),
    /// There is no valid answer. The answer of this call may be stored under the key.
    Miss(CacheKey),
    /// Answers to this call aren't stored.
    Unused,
}

const MAX_ENTRIES: usize = 512;

impl CacheResult {
    /// Returns an empty report for the call. The report stores the read files if the answer may be
    /// stored.
    pub fn report(&self) -> Report {
        if matches!(self, Self::Miss(_)) { Report::watching() } else { Report::default() }
    }
}

impl Results {
    /// Creates the cache with the configured limits.
    pub fn new(config: ResultCache) -> Self {
        let mut bounds = None;
        if config.enabled {
            let ttl = Duration::from_secs(config.ttl_secs.get());
            bounds = Some(CacheBounds {
                ttl: if ttl.is_zero() { None } else { Some(ttl) },
                bytes: usize::try_from(config.max_mib.get() * MIB).unwrap_or(usize::MAX),
                entries: MAX_ENTRIES,
            });
        }
        Self { bounds, mean_nanos: AtomicU64::new(ASSUMED_NANOS) }
    }

    /// Returns a stored answer if the files that its call has read are unchanged. `rules` returns
    /// the version of the rules that limit the paths of the call, or `None` if no rules limit them.
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
        let annotations = tool.annotations;
        let may_be_cached =
            annotations.read_only && annotations.cacheable && context.attachments.is_empty();
        if !may_be_cached {
            return CacheResult::Unused;
        }
        let key = cache_key(context, tool, rules());
        let Some(entry) = answers.get(&key, tool, bounds, Instant::now()) else {
            return CacheResult::Miss(key);
        };

        let check_started = Instant::now();
        let is_unchanged = self.is_unchanged(tool, &entry).await;
        let check_time = check_started.elapsed();
        self.measure(check_time, entry.files_read.work());
        // If a new call is about as fast as the check, the answer isn't worth its memory.
        let is_worth_it = (check_time + FIXED_COST) * MIN_GAIN <= entry.run;
        if !is_unchanged || !is_worth_it {
            answers.remove(&key, &entry);
        }
        answers.count(is_unchanged);
        if is_unchanged { CacheResult::Hit(entry.output.clone()) } else { CacheResult::Miss(key) }
    }

    /// Updates the mean cost of a system call. `work` is the number of system calls of the check.
    fn measure(&self, check_time: Duration, work: usize) {
        let nanos = u64::try_from(check_time.as_nanos()).unwrap_or(u64::MAX);
        // A check without system calls measures nothing.
        let Some(measured) = nanos.checked_div(work as u64) else { return };
        let mean = self.mean_nanos.load(Ordering::Relaxed);
        // The thread may have waited for a processor, so at most four times the mean is counted.
        let bounded = measured.min(4 * mean);
        // Each measurement has the weight of an eighth.
        self.mean_nanos.store(mean - mean / 8 + bounded / 8, Ordering::Relaxed);
    }

    /// Stores the answer of a call that took `run`, unless a check would take too long. `report`
    /// has the files that the call read.
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
        let seen_files = match std::mem::take(&mut report.entries().seen) {
            ReadFiles::Files(files) => files,
            ReadFiles::Untold | ReadFiles::Lost => return,
        };
        if !self.is_worth(seen_files.len(), run) {
            // Without stored answers there are no checks, so nothing would correct a mean that is
            // too high. Therefore, let the mean decrease slowly.
            let mean = self.mean_nanos.load(Ordering::Relaxed);
            self.mean_nanos
                .store(mean - mean.saturating_sub(ASSUMED_NANOS) / 16, Ordering::Relaxed);
            return;
        }
        // The clock may be wrong and show a time before 1970.
        let since_epoch = context.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = (since_epoch.as_secs() as i64, u64::from(since_epoch.subsec_nanos()));
        let Some(files_read) = FileDependencies::new(seen_files, started) else { return };
        let has_files = tool.plugin.as_ref().is_some_and(|plugin| plugin.policy().files.is_some());
        let is_checkable = files_read.work() == 0 || has_files;
        if !is_checkable || !self.is_worth(files_read.work(), run) {
            return;
        }
        let bytes = bytes_of(output) + files_read.bytes();
        let entry = CacheEntry {
            tool: Arc::downgrade(tool),
            output: output.clone(),
            files_read,
            bytes,
            made: Instant::now(),
            run,
        };
        answers.put(key, entry, bounds);
    }

    /// Checks whether storing an answer is worth it: the call took `run`, which must be at least
    /// `MIN_GAIN` times as long as a check with `work` system calls.
    fn is_worth(&self, work: usize, run: Duration) -> bool {
        let nanos = self.mean_nanos.load(Ordering::Relaxed).saturating_mul(work as u64);
        let check_time = Duration::from_nanos(nanos);
        check_time.saturating_add(FIXED_COST).saturating_mul(MIN_GAIN) <= run
    }

    /// Checks whether all read files are unchanged, through the tool's current grants.
    async fn is_unchanged(&self, tool: &Tool, entry: &Arc<CacheEntry>) -> bool {
        let system_calls = entry.files_read.work();
        if system_calls == 0 {
            return true;
        }
        let Some(plugin) = &tool.plugin else { return false };
        let Some(grants) = &plugin.policy().files else { return false };
        let read_only = true;
        let view = FileView::new(Arc::clone(grants), read_only);
        if system_calls <= QUICK_CALLS {
            return view.is_unchanged(&entry.files_read);
        }
        let entry = Arc::clone(entry);
        let check = tokio::task::spawn_blocking(move || view.is_unchanged(&entry.files_read));
        // No answer in time means that the files may have changed.
        matches!(tokio::time::timeout(PATIENCE, check).await, Ok(Ok(true)))
    }
}

fn cache_key(context: &CallContext, tool: &Arc<Tool>, rules: Option<String>) -> CacheKey {
    let mut call = Sha256::new_with_prefix(canonical(&context.arguments));
    if let Some(rules) = rules {
        call.update(rules);
    }
    CacheKey::new(tool, call.finalize().into())
}
