//! The folder of all saved calls, with a folder for each call. Lists them, and removes old ones to
//! make room.

use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolhold_data_dir::PrivateFolder;

use super::beside::RunningCalls;
use super::moved_in::MovedIn;

/// Journals that are looked at.
const MAX_CALLS: usize = 100_000;

/// The file with the states before a call.
pub(crate) const JOURNAL: &str = "journal.jsonl";

/// The suffix of the id of a call whose journal was set aside.
pub(crate) const ASIDE: char = '~';

/// The most nanoseconds by which the times of files may be behind the clock.
pub(crate) const TICK: u64 = 20_000_000;

/// The most calls, beginning with the newest, that are checked for concurrent or later changes.
const MAX_BESIDE: usize = 1000;

/// A file that reserves disk space for the notes of an undo and for its entry in the audit log.
const RESERVE: &str = "reserve";
const RESERVED: usize = 64 * 1024;

/// Calls without approval drop no younger journal.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The percentage of the store's limit from which a warning is shown.
const ALMOST_FULL: u64 = 80;

/// How much is saved, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoLimits {
    /// The most bytes that are saved for one call.
    pub call_bytes: u64,
    /// The most bytes of all journals together. The oldest journals are removed first.
    pub total_bytes: u64,
    /// The longest time that a journal is stored.
    pub age: Duration,
}

impl Default for UndoLimits {
    fn default() -> Self {
        let mebibyte = 1 << 20;
        Self {
            call_bytes: 64 * mebibyte,
            total_bytes: 512 * mebibyte,
            age: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// The call that a journal is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoEntry {
    /// The id of the call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The session.
    pub session: String,
    /// The start of the call, in nanoseconds since 1970.
    pub at: u64,
    /// Whether the call was undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Whether the call only changed times: those of files, or those in git's index.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_times: bool,
    /// The start of the agent's turn to which the call belongs, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// The number of paths that an undo has not restored.
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
    /// Returns a call that begins at `at`.
    pub fn new(call: &str, tool: &str, session: &str, at: SystemTime) -> Self {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
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

    /// Sets the turn of the agent that the call belongs to.
    #[must_use]
    pub fn in_turn(self, turn: Option<u64>) -> Self {
        Self { turn, ..self }
    }

    /// Returns the maker of the call, in words.
    pub fn who(&self) -> String {
        match self.session.split_once(' ') {
            Some(("agent", session)) => format!("the agent in session {session}"),
            Some(("mcp", client)) => format!("an MCP client ({client})"),
            Some(("task", task)) => format!("the scheduled task {task}"),
            Some(("user", _)) => "the command line".to_owned(),
            _ => format!("session {}", self.session),
        }
    }

    /// Checks whether an undo of the last change takes this call.
    pub fn is_next(&self) -> bool {
        !self.undone && !self.only_times && self.left == 0
    }

    pub(crate) fn save(&self, folder: &PrivateFolder) -> io::Result<()> {
        folder.put_lightly("about.json", &serde_json::to_vec(self)?)
    }
}

/// The folder of all saved calls of the user. The first change creates it.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) bounds: UndoLimits,
    pub(crate) running: RunningCalls,
    pub(crate) moved_in: MovedIn,
}

impl Folder {
    /// Returns the folder, if it exists.
    pub(crate) fn existing(&self) -> io::Result<Option<PrivateFolder>> {
        match PrivateFolder::open(&self.path) {
            Ok(root) => Ok(Some(root)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the folder of a call.
    pub(crate) fn begin(&self, about: &UndoEntry) -> io::Result<PrivateFolder> {
        let root = PrivateFolder::make(&self.path)?;
        root.check_closed()?;
        // A full disk must not keep an undo from being noted.
        if let Ok(reserve) = root.updated(RESERVE)
            && reserve.metadata().is_ok_and(|it| it.len() < RESERVED as u64)
        {
            let _ = reserve.write_all_at(&[0; RESERVED], 0);
        }
        let folder = root.folder(&Name::for_entry(about, 0).text())?;
        about.save(&folder)?;
        Ok(folder)
    }

    /// Returns the available bytes for a call that may not remove the journals of the last day.
    pub(crate) fn room(&self, about: &UndoEntry) -> u64 {
        let root = self.existing().ok().flatten();
        let names = root.and_then(|root| root.names(MAX_CALLS).ok()).unwrap_or_default();
        let mut young_bytes = 0;
        for name in &names {
            let Some(parsed) = Name::parse(name) else { continue };
            if parsed.at >= young_since() && parsed.call != about.call {
                young_bytes += parsed.bytes;
            }
        }
        self.bounds.total_bytes.saturating_sub(young_bytes)
    }

    /// Ends a call: records its size, and removes the oldest journals to make room. `keeps_young`:
    /// whether journals of the last day are not removed. Returns a warning if this call made the
    /// store almost full.
    pub(crate) fn end(&self, about: &UndoEntry, bytes: u64, keeps_young: bool) -> Option<String> {
        let kept_bytes = match self.note_size(about, bytes, keeps_young) {
            Ok(kept_bytes) => kept_bytes,
            Err(error) => {
                tracing::warn!("the saved changes can't be cleaned up: {error}");
                0
            }
        };
        let threshold = self.bounds.total_bytes / 100 * ALMOST_FULL;
        if kept_bytes <= threshold || kept_bytes - bytes > threshold {
            return None;
        }
        Some(format!(
            "the storage of undo is {} % full. When it is full, calls that change files need \
             approval, and the saved changes of the oldest calls are deleted, so that \
             `toolhold undo` can't restore them",
            kept_bytes.saturating_mul(100) / self.bounds.total_bytes.max(1)
        ))
    }

    /// Puts the size of a call into the name of its folder, and removes the oldest journals.
    /// Returns the number of stored bytes.
    fn note_size(&self, about: &UndoEntry, bytes: u64, keeps_young: bool) -> io::Result<u64> {
        let Some(root) = self.existing()? else { return Ok(0) };
        if bytes > 0 {
            let name = Name::for_entry(about, 0).text();
            let name_with_size = Name::for_entry(about, bytes).text();
            root.rename(&name, &name_with_size)?;
        }
        self.prune(&root, &about.call, keeps_young)
    }

    /// Removes a journal without content.
    pub(crate) fn forget(&self, about: &UndoEntry) {
        if let Ok(Some(root)) = self.existing() {
            let _ = root.remove_folder(&Name::for_entry(about, 0).text());
        }
    }

    /// Removes journals that are too old, and the oldest journals if there are too many bytes. The
    /// journal of the call `newest` isn't removed. Returns the number of stored bytes.
    fn prune(&self, root: &PrivateFolder, newest: &str, keeps_young: bool) -> io::Result<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = now.saturating_sub(self.bounds.age).as_nanos();
        let mut bytes = 0_u64;
        let mut kept = 0_u64;
        for name in root.names(MAX_CALLS)?.iter().rev() {
            let Some(parsed) = Name::parse(name) else { continue };
            bytes = bytes.saturating_add(parsed.bytes);
            let is_newest = parsed.call == newest;
            let is_protected = keeps_young && parsed.at >= young_since();
            let is_too_much = bytes > self.bounds.total_bytes;
            let is_too_old = u128::from(parsed.at) < oldest;
            if (is_too_much || is_too_old) && !is_newest && !is_protected {
                root.remove_folder(name)?;
            } else {
                kept += parsed.bytes;
            }
        }
        Ok(kept)
    }

    /// Returns the saved calls, the newest first.
    pub(crate) fn list(&self) -> io::Result<Vec<UndoEntry>> {
        let Some(root) = self.existing()? else { return Ok(Vec::new()) };
        let mut calls = Vec::new();
        for name in root.names(MAX_CALLS)?.into_iter().rev() {
            if Name::parse(&name).is_some() {
                calls.extend(root.folder(&name).and_then(|folder| entry(&folder)).ok());
            }
        }
        Ok(calls)
    }

    /// Returns the folders of the newest other calls that have saved something since a time, in
    /// nanoseconds since 1970.
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

    /// Returns the folder of a call.
    pub(crate) fn find(&self, call: &str) -> io::Result<Option<(PrivateFolder, UndoEntry)>> {
        let Some(root) = self.existing()? else { return Ok(None) };
        let Some(name) = name_of_call(&root, call)? else { return Ok(None) };
        let folder = root.folder(&name)?;
        let about = entry(&folder)?;
        Ok(Some((folder, about)))
    }

    /// Gives the folder of an undone call another id. The folder is still needed, because
    /// concurrent calls have seen its changes.
    pub(crate) fn set_aside(&self, call: &str) -> io::Result<()> {
        let Some(root) = self.existing()? else { return Ok(()) };
        let Some(name) = name_of_call(&root, call)? else { return Ok(()) };
        let folder = root.folder(&name)?;
        let mut about = entry(&folder)?;
        about.call = format!("{call}{ASIDE}{}", now());
        about.save(&folder)?;
        root.rename(&name, &Name::for_entry(&about, 0).text())
    }

    /// Gives the reserved room to the notes of an undo, if the disk is full.
    pub(crate) fn use_reserve(&self) {
        if let Ok(stat) = rustix::fs::statvfs(&self.path)
            && stat.f_bavail.saturating_mul(stat.f_frsize) < RESERVED as u64
            && let Ok(Some(root)) = self.existing()
        {
            let _ = root.remove(RESERVE);
        }
    }

    /// Waits until no other undo goes on.
    pub(crate) fn lock(&self) -> io::Result<std::fs::File> {
        PrivateFolder::make(&self.path)?.lock("lock")
    }
}

/// Returns the name of the folder of a call. Returns `None` if the call isn't saved.
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

/// Returns the time, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the beginning of the last day, in nanoseconds since 1970.
fn young_since() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_sub(DAY).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn entry(folder: &PrivateFolder) -> io::Result<UndoEntry> {
    Ok(serde_json::from_reader(BufReader::new(folder.file("about.json")?))?)
}

/// The name of a call's folder: `NANOSECONDS-BYTES-CALL`. The names alone show which folders are
/// old or large.
struct Name<'n> {
    at: u64,
    bytes: u64,
    call: &'n str,
}

impl<'n> Name<'n> {
    fn for_entry(about: &'n UndoEntry, bytes: u64) -> Self {
        Self { at: about.at, bytes, call: &about.call }
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
