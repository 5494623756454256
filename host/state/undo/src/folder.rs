//! The folder of all saved calls, with a folder for each call.

use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolhold_data_dir::PrivateFolder;

use super::beside::RunningCalls;
use super::moved_in::MovedIn;

const MAX_CALLS: usize = 100_000;

pub(crate) const JOURNAL: &str = "journal.jsonl";

/// The separator between the ID of a call and a number, after the call's journal was set aside.
pub(crate) const ASIDE: char = '~';

/// Most nanoseconds by which the time of a change may be earlier than the clock, because the kernel
/// uses the time of its last tick.
pub(crate) const TICK: u64 = 20_000_000;

/// The size in the name of a call's folder while the real size is unknown.
const NO_SIZE: u64 = 0;

/// Most calls, the newest first, that are checked for concurrent or later changes.
const MAX_BESIDE: usize = 1000;

/// Reserved disk space for the notes of an undo and for its entry in the audit log.
const RESERVE: &str = "reserve";
const RESERVED: usize = 64 * 1024;

/// Calls without approval must not remove journals that are younger than this.
const DAY: Duration = Duration::from_secs(24 * 3600);

const PERCENT: u64 = 100;

/// The percentage of the limit from which the store counts as almost full.
const ALMOST_FULL: u64 = 80;

/// Limits of the saved data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoLimits {
    /// Most bytes that are saved for one call.
    pub call_bytes: u64,
    /// Most bytes of all journals together. Above this limit, the oldest journals are removed.
    pub total_bytes: u64,
    /// The age at which journals are removed.
    pub age: Duration,
}

impl Default for UndoLimits {
    fn default() -> Self {
        let mebibyte = 1 << 20;
        Self { call_bytes: 64 * mebibyte, total_bytes: 512 * mebibyte, age: 7 * DAY }
    }
}

/// The call of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoEntry {
    /// The ID of the call.
    pub call: String,
    /// The name of the tool.
    pub tool: String,
    /// The session.
    pub session: String,
    /// The start of the call, in nanoseconds since 1970.
    pub at: u64,
    /// Whether the call was undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Whether the call only changed times of files or times in git's index.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_times: bool,
    /// The start of the agent's turn, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// The number of paths that the last undo has not restored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
    /// The end of the call's last undo, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo_at: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl UndoEntry {
    /// Makes the entry of a call that starts at `at`.
    pub fn new(call: &str, tool: &str, session: &str, at: SystemTime) -> Self {
        let at = nanoseconds(at);
        let [call, tool, session] = [call, tool, session].map(str::to_owned);
        Self {
            call,
            tool,
            session,
            at,
            undone: false,
            only_times: false,
            turn: None,
            left: 0,
            undo_at: None,
        }
    }

    /// Sets the agent's turn.
    #[must_use]
    pub fn in_turn(self, turn: Option<u64>) -> Self {
        Self { turn, ..self }
    }

    /// Describes the caller.
    pub fn who(&self) -> String {
        match self.session.split_once(' ') {
            Some(("agent", session)) => format!("the agent in session {session}"),
            Some(("mcp", client)) => format!("an MCP client ({client})"),
            Some(("task", task)) => format!("the scheduled task {task}"),
            Some(("user", _)) => "the command line".to_owned(),
            _ => format!("session {}", self.session),
        }
    }

    /// Checks whether an undo of the last change may choose this call.
    pub fn is_next(&self) -> bool {
        !self.undone && !self.only_times && self.left == 0
    }

    pub(crate) fn save(&self, folder: &PrivateFolder) -> io::Result<()> {
        folder.put_lightly("about.json", &serde_json::to_vec(self)?)
    }
}

/// All saved calls of the user. The first change creates the folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) bounds: UndoLimits,
    pub(crate) running: RunningCalls,
    pub(crate) moved_in: MovedIn,
}

impl Folder {
    pub(crate) fn existing(&self) -> io::Result<Option<PrivateFolder>> {
        match PrivateFolder::open(&self.path) {
            Ok(root) => Ok(Some(root)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn begin(&self, entry: &UndoEntry) -> io::Result<PrivateFolder> {
        let root = PrivateFolder::make(&self.path)?;
        root.check_closed()?;
        // An undo must write notes even on a full disk. The undo frees this space first.
        if let Ok(reserve) = root.updated(RESERVE)
            && reserve.metadata().is_ok_and(|metadata| metadata.len() < RESERVED as u64)
        {
            let _ = reserve.write_all_at(&[0; RESERVED], 0);
        }
        let folder = root.folder(&Name::for_entry(entry, NO_SIZE).text())?;
        entry.save(&folder)?;
        Ok(folder)
    }

    /// Returns the number of bytes that a call can save before a journal of the last day must be
    /// removed.
    pub(crate) fn available_bytes(&self, entry: &UndoEntry) -> u64 {
        // A missing or unreadable folder counts as empty.
        let root = self.existing().ok().flatten();
        let names = root.and_then(|root| root.names(MAX_CALLS).ok()).unwrap_or_default();
        let mut young_bytes = 0;
        for name in &names {
            let Some(parsed) = Name::parse(name) else { continue };
            let is_young = parsed.at >= young_since();
            if is_young && parsed.call != entry.call {
                young_bytes += parsed.bytes;
            }
        }
        self.bounds.total_bytes.saturating_sub(young_bytes)
    }

    /// Ends a call: records its size, and removes the oldest journals above the limit. With
    /// `keeps_young`, journals of the last day stay. Returns a warning if this call made the store
    /// almost full.
    pub(crate) fn end(&self, entry: &UndoEntry, bytes: u64, keeps_young: bool) -> Option<String> {
        let kept_bytes = match self.record_size_and_prune(entry, bytes, keeps_young) {
            Ok(kept_bytes) => kept_bytes,
            Err(error) => {
                tracing::warn!("cleaning up the saved changes failed: {error}");
                return None;
            }
        };
        let threshold = self.bounds.total_bytes / PERCENT * ALMOST_FULL;
        let is_almost_full = kept_bytes > threshold;
        if !is_almost_full {
            return None;
        }
        let was_almost_full = kept_bytes - bytes > threshold;
        if was_almost_full {
            return None;
        }
        // The limit may be 0.
        let divisor = self.bounds.total_bytes.max(1);
        Some(format!(
            "the storage of undo is {} % full. Once the storage is full, calls that change files \
             need approval, and the saved changes of the oldest calls are deleted, so `toolhold \
             undo` can't restore these changes",
            kept_bytes.saturating_mul(PERCENT) / divisor
        ))
    }

    /// Adds the size to the name of the call's folder, and removes the oldest journals above the
    /// limits. With `keeps_young`, journals of the last day stay, even above the limits. Returns
    /// the number of stored bytes.
    fn record_size_and_prune(
        &self,
        entry: &UndoEntry,
        bytes: u64,
        keeps_young: bool,
    ) -> io::Result<u64> {
        let Some(root) = self.existing()? else { return Ok(0) };
        if bytes > 0 {
            let name = Name::for_entry(entry, NO_SIZE).text();
            let name_with_size = Name::for_entry(entry, bytes).text();
            root.rename(&name, &name_with_size)?;
        }
        self.prune(&root, &entry.call, keeps_young)
    }

    pub(crate) fn forget(&self, entry: &UndoEntry) {
        if let Ok(Some(root)) = self.existing() {
            let _ = root.remove_folder(&Name::for_entry(entry, NO_SIZE).text());
        }
    }

    /// Removes journals over the limits of age and size, except the journal of the call `newest`.
    /// With `keeps_young`, journals of the last day stay. Returns the number of stored bytes.
    fn prune(&self, root: &PrivateFolder, newest: &str, keeps_young: bool) -> io::Result<u64> {
        // If the clock is before 1970, no journal is too old.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = now.saturating_sub(self.bounds.age).as_nanos();
        let mut checked_bytes = 0_u64;
        let mut kept_bytes = 0_u64;
        // The newest journals come first, so the oldest journals exceed the limit.
        for name in root.names(MAX_CALLS)?.iter().rev() {
            let Some(parsed) = Name::parse(name) else { continue };
            checked_bytes = checked_bytes.saturating_add(parsed.bytes);
            let is_newest = parsed.call == newest;
            let is_protected = is_newest || (keeps_young && parsed.at >= young_since());
            let is_too_much = checked_bytes > self.bounds.total_bytes;
            let is_too_old = u128::from(parsed.at) < oldest;
            if (is_too_much || is_too_old) && !is_protected {
                root.remove_folder(name)?;
            } else {
                kept_bytes += parsed.bytes;
            }
        }
        Ok(kept_bytes)
    }

    /// Returns the saved calls, the newest first. Unreadable calls are left out.
    pub(crate) fn list(&self) -> io::Result<Vec<UndoEntry>> {
        let Some(root) = self.existing()? else { return Ok(Vec::new()) };
        let mut calls = Vec::new();
        for name in root.names(MAX_CALLS)?.into_iter().rev() {
            if Name::parse(&name).is_some() {
                calls.extend(root.folder(&name).and_then(|folder| read_entry(&folder)).ok());
            }
        }
        Ok(calls)
    }

    /// Returns the folders of other calls whose journals were written after `time`, in nanoseconds
    /// since 1970. Unreadable journals are left out.
    pub(crate) fn saved_since(&self, call: &str, time: u64) -> Vec<PrivateFolder> {
        let since = UNIX_EPOCH + Duration::from_nanos(time.saturating_sub(TICK));
        let Some(root) = self.existing().ok().flatten() else { return Vec::new() };
        let names = root.names(MAX_CALLS).unwrap_or_default();
        let mut folders = Vec::new();
        for name in names.iter().rev().take(MAX_BESIDE) {
            let Some(parsed) = Name::parse(name) else { continue };
            if parsed.call == call {
                continue;
            }
            let Ok(folder) = root.folder(name) else { continue };
            let modified = folder.file(JOURNAL).and_then(|file| file.metadata()?.modified());
            if modified.is_ok_and(|modified| modified >= since) {
                folders.push(folder);
            }
        }
        folders
    }

    pub(crate) fn find(&self, call: &str) -> io::Result<Option<(PrivateFolder, UndoEntry)>> {
        let Some(root) = self.existing()? else { return Ok(None) };
        let Some(name) = name_of_call(&root, call)? else { return Ok(None) };
        let folder = root.folder(&name)?;
        let entry = read_entry(&folder)?;
        Ok(Some((folder, entry)))
    }

    /// Gives the folder of an undone call another ID, so that a new call can have the old ID. Undos
    /// of concurrent calls can still read the folder.
    pub(crate) fn set_aside(&self, call: &str) -> io::Result<()> {
        let Some(root) = self.existing()? else { return Ok(()) };
        let Some(name) = name_of_call(&root, call)? else { return Ok(()) };
        let folder = root.folder(&name)?;
        let mut entry = read_entry(&folder)?;
        entry.call = format!("{call}{ASIDE}{}", now());
        entry.save(&folder)?;
        root.rename(&name, &Name::for_entry(&entry, NO_SIZE).text())
    }

    /// If the disk is full, frees the reserved space for the notes of an undo.
    pub(crate) fn use_reserve(&self) {
        let Ok(stat) = rustix::fs::statvfs(&self.path) else { return };
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        let is_full = free_bytes < RESERVED as u64;
        if is_full && let Ok(Some(root)) = self.existing() {
            let _ = root.remove(RESERVE);
        }
    }

    /// Waits until no other undo runs.
    pub(crate) fn lock(&self) -> io::Result<std::fs::File> {
        PrivateFolder::make(&self.path)?.lock("lock")
    }
}

fn name_of_call(root: &PrivateFolder, call: &str) -> io::Result<Option<String>> {
    for name in root.names(MAX_CALLS)? {
        if let Some(parsed) = Name::parse(&name)
            && parsed.call == call
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns the current time in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    nanoseconds(SystemTime::now())
}

/// Returns a time in nanoseconds since 1970. A time before 1970 counts as 1970. The number is large
/// enough for some centuries.
fn nanoseconds(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

fn young_since() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_sub(DAY).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn read_entry(folder: &PrivateFolder) -> io::Result<UndoEntry> {
    Ok(serde_json::from_reader(BufReader::new(folder.file("about.json")?))?)
}

/// The name of a call's folder: `NANOSECONDS-BYTES-CALL`. With this name, old and large folders are
/// found without opening them.
struct Name<'n> {
    at: u64,
    bytes: u64,
    call: &'n str,
}

impl<'n> Name<'n> {
    fn for_entry(entry: &'n UndoEntry, bytes: u64) -> Self {
        Self { at: entry.at, bytes, call: &entry.call }
    }

    fn parse(name: &'n str) -> Option<Self> {
        let (at, rest) = name.split_once('-')?;
        let (bytes, call) = rest.split_once('-')?;
        Some(Self { at: at.parse().ok()?, bytes: bytes.parse().ok()?, call })
    }

    fn text(&self) -> String {
        format!("{:020}-{:015}-{}", self.at, self.bytes, self.call)
    }
}
