//! The folder of all saved calls: a private folder, with a folder for each call.

use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolhold_private::PrivateFolder;

/// Journals that are looked at.
const MAX_CALLS: usize = 100_000;

/// How much is saved, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoLimits {
    /// Bytes of what one call changes.
    pub call_bytes: u64,
    /// Bytes of all journals together; the oldest go first.
    pub total_bytes: u64,
    /// How long a journal is kept.
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
    /// Its id.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The session.
    pub session: String,
    /// When it began, in nanoseconds since 1970.
    pub at: u64,
    /// Whether it was undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// Whether it changed nothing but times: those of files, or those that git notes in its index.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_times: bool,
}

impl UndoEntry {
    /// A call that begins at `at`.
    pub fn new(call: &str, tool: &str, session: &str, at: SystemTime) -> Self {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let [call, tool, session] = [call, tool, session].map(str::to_owned);
        Self { call, tool, session, at, undone: false, only_times: false }
    }

    /// Whether an undo of the last change takes this call.
    pub fn is_next(&self) -> bool {
        !self.undone && !self.only_times
    }

    pub(crate) fn save(&self, folder: &PrivateFolder) -> io::Result<()> {
        folder.put_lightly("about.json", &serde_json::to_vec(self)?)
    }
}

/// The folder of all saved calls of the user. It is created at the first change.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) bounds: UndoLimits,
}

impl Folder {
    /// The folder, if it exists.
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
        let folder = root.folder(&Name::for_entry(about, 0).text())?;
        about.save(&folder)?;
        Ok(folder)
    }

    /// The call has ended: its size is known, and the oldest journals make room.
    pub(crate) fn end(&self, about: &UndoEntry, bytes: u64) {
        let ended = self.existing().and_then(|root| {
            let Some(root) = root else { return Ok(()) };
            if bytes > 0 {
                root.rename(
                    &Name::for_entry(about, 0).text(),
                    &Name::for_entry(about, bytes).text(),
                )?;
            }
            self.prune(&root, &about.call)
        });
        if let Err(error) = ended {
            tracing::warn!("what calls changed can't be put in order: {error}");
        }
    }

    /// Removes a journal that says nothing.
    pub(crate) fn forget(&self, about: &UndoEntry) {
        if let Ok(Some(root)) = self.existing() {
            let _ = root.remove_folder(&Name::for_entry(about, 0).text());
        }
    }

    fn prune(&self, root: &PrivateFolder, newest: &str) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = now.saturating_sub(self.bounds.age).as_nanos();
        let mut bytes = 0_u64;
        for name in root.names(MAX_CALLS)?.iter().rev() {
            let Some(parsed) = Name::parse(name) else { continue };
            bytes = bytes.saturating_add(parsed.bytes);
            if parsed.call != newest
                && (bytes > self.bounds.total_bytes || u128::from(parsed.at) < oldest)
            {
                root.remove_folder(name)?;
            }
        }
        Ok(())
    }

    /// The saved calls, the newest first.
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

    /// The folder of a call.
    pub(crate) fn find(&self, call: &str) -> io::Result<Option<(PrivateFolder, UndoEntry)>> {
        let Some(root) = self.existing()? else { return Ok(None) };
        let names = root.names(MAX_CALLS)?;
        let name =
            names.iter().find(|name| Name::parse(name).is_some_and(|name| name.call == call));
        let Some(name) = name else { return Ok(None) };
        let folder = root.folder(name)?;
        let entry = entry(&folder)?;
        Ok(Some((folder, entry)))
    }

    /// Removes the folder of a call.
    pub(crate) fn remove(&self, call: &str) -> io::Result<()> {
        let Some(root) = self.existing()? else { return Ok(()) };
        let names = root.names(MAX_CALLS)?;
        let mut of_call =
            names.iter().filter(|name| Name::parse(name).is_some_and(|it| it.call == call));
        of_call.try_for_each(|name| root.remove_folder(name))
    }

    /// Waits until no other undo goes on.
    pub(crate) fn lock(&self) -> io::Result<std::fs::File> {
        PrivateFolder::make(&self.path)?.lock("lock")
    }
}

fn entry(folder: &PrivateFolder) -> io::Result<UndoEntry> {
    Ok(serde_json::from_reader(BufReader::new(folder.file("about.json")?))?)
}

/// The name of a call's folder: `NANOSECONDS-BYTES-CALL`, so that the names alone say what is old
/// and large.
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
