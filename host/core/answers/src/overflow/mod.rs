//! Stores complete, redacted answers that were too long for a model.
//!
//! All answers are in one private folder. The name of a file contains the session's hash and a
//! random ID, so an ID is valid only in its session, and nobody can guess it.

mod live;
mod partial;
mod read;
mod spool;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use toolhold_contract::HostError;
use toolhold_contract::text::cut;
use toolhold_data_dir::PrivateFolder;

pub use live::LiveOutput;
pub use read::OverflowReader;
use read::is_first_byte;
pub(crate) use read::{READ_OVERFLOW, byte_offset};
pub use spool::Spool;
pub(crate) use spool::{KeptOutput, RedactedText, Rewriting, SpooledOutput, TextRules};
use toolhold_config::{self as config, Folders};

/// Maximum length of a stored answer in bytes. A longer answer is cut.
const MAX_ANSWER: usize = 10 << 20;

/// Maximum length of the stored output of one command in bytes. A longer output loses its middle.
const MAX_SPOOLED: u64 = 64 << 20;

/// Number of random bytes of an ID, which are enough that nobody can guess the ID.
const ID_BYTES: usize = 12;

const MIB: u64 = 1 << 20;

const SECS_PER_HOUR: u64 = 3600;

/// Bytes that are read from a file at a time.
const BUFFER: usize = 64 << 10;

/// Maximum number of files that are listed. Toolhold creates fewer.
const MAX_FILES: usize = 100_000;

/// The stored answers.
#[derive(Debug)]
pub struct OverflowStore {
    folder: PathBuf,
    retention: Duration,
    /// Maximum number of bytes of all stored answers.
    max_bytes: u64,
    /// Number of bytes that may be written before the folder is measured again.
    writable_bytes: Mutex<u64>,
}

/// The ID of a stored answer, for `read_overflow`: a letter for the origin, followed by 24
/// hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowId(String);

/// The part of an answer that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Beginning,
    Ends,
}

impl OverflowId {
    /// Parses an ID. Returns `None` for any other text, such as the name of another file.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['h', 'w'])?;
        let is_valid = digits.len() == 2 * ID_BYTES
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Returns a new random ID. `untrusted` says whether the answer contains text from the network
    /// or a third party.
    fn new(untrusted: bool) -> io::Result<Self> {
        let mut bytes = [0; ID_BYTES];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // `w` stands for text from the web or a third party, `h` for text of the host.
        let origin = if untrusted { 'w' } else { 'h' };
        Ok(Self(format!("{origin}{digits}")))
    }

    /// Checks whether the answer contains text from the network or a third party.
    pub fn is_untrusted(&self) -> bool {
        self.0.starts_with('w')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn file(&self, session: &str) -> String {
        let digest = Sha256::digest(session.as_bytes());
        let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{hash}-{}", self.0)
    }
}

impl OverflowStore {
    /// Creates the store. Its folder is in the data folder.
    pub fn new(folders: &Folders, config: config::Overflow) -> Self {
        Self {
            folder: folders.data.join("overflow"),
            retention: Duration::from_secs(config.retention_hours.get() * SECS_PER_HOUR),
            max_bytes: config.max_mib.get() * MIB,
            writable_bytes: Mutex::new(0),
        }
    }

    /// Stores an answer. An answer longer than [`answer_bytes`](Self::answer_bytes) is cut. The
    /// oldest answers are removed to make room. `untrusted` says whether the answer contains text
    /// from the network or a third party.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be created, is accessible to other users, or if the
    /// disk is full.
    pub fn keep(
        &self,
        session: &str,
        text: &str,
        untrusted: bool,
    ) -> Result<OverflowId, HostError> {
        self.put(session, cut(text, self.answer_bytes()), untrusted)
            .map_err(HostError::io(self.folder.display().to_string()))
    }

    fn put(&self, session: &str, text: &str, untrusted: bool) -> io::Result<OverflowId> {
        let folder = PrivateFolder::make(&self.folder)?;
        self.reserve(&folder, text.len() as u64)?;
        let id = OverflowId::new(untrusted)?;
        folder.put_lightly(&id.file(session), text.as_bytes())?;
        Ok(id)
    }

    /// Reserves room for `size` bytes. Removes the oldest answers to make room.
    fn reserve(&self, folder: &PrivateFolder, size: u64) -> io::Result<()> {
        let mut writable_bytes = self.writable_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if *writable_bytes < size {
            let used = self.make_room(folder, size)?;
            // Other processes also write to the folder, so the folder is measured again after an
            // eighth of its limit has been written.
            let free = self.max_bytes.saturating_sub(used);
            let until_next_count = (self.max_bytes / 8).max(size);
            *writable_bytes = free.min(until_next_count);
        }
        *writable_bytes = writable_bytes.saturating_sub(size);
        Ok(())
    }

    fn spool_bytes(&self) -> u64 {
        // Both outputs exist twice while they are merged into one file, so they may only use half
        // of the store.
        self.max_bytes.min(2 * MAX_SPOOLED) / 2
    }

    /// Returns the maximum length of a stored answer in bytes.
    pub fn answer_bytes(&self) -> usize {
        usize::try_from(self.max_bytes).unwrap_or(usize::MAX).min(MAX_ANSWER)
    }

    /// Returns at most `limit` characters of a stored answer from `offset`, and the number of
    /// characters of the whole answer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the answer doesn't exist in this session or was removed.
    /// Other errors mean that the file can't be read.
    pub fn read(
        &self,
        session: &str,
        id: &OverflowId,
        offset: usize,
        limit: usize,
    ) -> io::Result<(String, usize)> {
        let mut file = PrivateFolder::open(&self.folder)?.file(&id.file(session))?;
        let mut buffer = vec![0; BUFFER];
        let mut shown = Vec::new();
        let mut total = 0;
        let end = offset.saturating_add(limit);
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                let text = String::from_utf8(shown).map_err(io::Error::other)?;
                return Ok((text, total));
            }
            // A chunk may end inside a character, so count only the first byte of each character.
            let chunk = &buffer[..length];
            let total_after = total + chunk.iter().filter(|byte| is_first_byte(**byte)).count();
            // Skip chunks without shown characters. If `total` is equal to `end`, the chunk may
            // start with the remaining bytes of the last shown character.
            if total <= end && total_after > offset {
                let mut character_number = total;
                for byte in chunk {
                    character_number += usize::from(is_first_byte(*byte));
                    if (offset + 1..=end).contains(&character_number) {
                        shown.push(*byte);
                    }
                }
            }
            total = total_after;
        }
    }

    /// Removes expired answers, and the oldest answers if the store is too large.
    pub fn remove_expired(&self) {
        let new_bytes = 0;
        let result =
            PrivateFolder::open(&self.folder).and_then(|folder| self.make_room(&folder, new_bytes));
        // Without a folder, there is nothing to remove.
        if let Err(error) = result
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                "old stored answers can't be removed: {}: {error}",
                self.folder.display()
            );
        }
    }

    /// Removes expired answers, and then the oldest answers until `size` more bytes fit. Returns
    /// the number of bytes of the remaining answers.
    fn make_room(&self, folder: &PrivateFolder, size: u64) -> io::Result<u64> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for name in folder.names(MAX_FILES)? {
            // Another process may have removed the file.
            let Ok(metadata) = folder.file(&name).and_then(|file| file.metadata()) else {
                continue;
            };
            // Without a time, the answer is treated as new.
            let modified_at = metadata.modified().unwrap_or(now);
            files.push((modified_at, metadata.len(), name));
        }
        // The oldest files come first.
        files.sort_unstable();
        let mut used: u64 = files.iter().map(|(_, file_size, _)| file_size).sum();
        for (modified_at, file_size, name) in files {
            let is_expired = now.duration_since(modified_at).is_ok_and(|age| age > self.retention);
            let is_too_much = used + size > self.max_bytes;
            if (is_expired || is_too_much) && folder.remove(&name).is_ok() {
                used -= file_size;
            }
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use toolhold_config::Bounded;

    fn overflow(folder: &std::path::Path) -> OverflowStore {
        let config =
            config::Overflow { max_mib: Bounded::clamped(1), ..config::Overflow::default() };
        OverflowStore::new(&Folders::inside(folder), config)
    }

    fn sizes(kept: &OverflowStore) -> Vec<u64> {
        fs::read_dir(&kept.folder)
            .expect("it is there")
            .map(|entry| entry.expect("an entry").metadata().expect("it is there").len())
            .collect()
    }

    #[test]
    fn stored_answer_is_private_to_its_session() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let kept = overflow(root.path());
        let id = kept.keep("mine", "größe", false).expect("it is kept");
        assert_eq!(kept.read("mine", &id, 0, 9).expect("it is there"), ("größe".to_owned(), 5));
        assert_eq!(
            kept.read("other", &id, 0, 9).expect_err("it is another's").kind(),
            io::ErrorKind::NotFound
        );
        for entry in fs::read_dir(&kept.folder).expect("it is there") {
            assert_eq!(
                entry.expect("an entry").metadata().expect("it is there").mode() & 0o777,
                0o600
            );
        }
        assert_eq!(fs::metadata(&kept.folder).expect("it is there").mode() & 0o777, 0o700);
    }

    #[test]
    fn only_a_valid_id_is_parsed() {
        let id = OverflowId::new(true).expect("random bytes");
        assert!(id.is_untrusted() && OverflowId::parse(id.as_str()) == Some(id));
        for text in [
            "",
            "h",
            "../../etc/passwd",
            "h0123456789abcdef0123456",
            "hABCDEF0123456789ABCDEF01",
            "x0123456789abcdef01234567",
            "h0123456789abcdef0123456/",
        ] {
            assert_eq!(OverflowId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn store_stays_within_its_size() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let kept = overflow(root.path());
        let text = "x".repeat(300 << 10);
        let mut last = None;
        for _ in 0..20 {
            last = Some(kept.keep("mine", &text, false).expect("it is kept"));
            assert!(sizes(&kept).iter().sum::<u64>() <= 1 << 20);
        }
        assert_eq!(
            kept.read("mine", &last.expect("twenty were kept"), 0, usize::MAX)
                .expect("the last one is there"),
            (text.clone(), text.len())
        );
        kept.keep("mine", &"x".repeat(20 << 20), false).expect("its beginning is kept");
        assert_eq!(sizes(&kept), [1 << 20]);
    }

    #[test]
    fn old_answers_are_removed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let kept = overflow(root.path());
        let (old, new) = (
            kept.keep("mine", "old", false).expect("kept"),
            kept.keep("mine", "new", false).expect("kept"),
        );
        let file = fs::File::options()
            .write(true)
            .open(kept.folder.join(old.file("mine")))
            .expect("it is there");
        file.set_modified(SystemTime::now() - Duration::from_secs(169 * 3600))
            .expect("its time is set");
        kept.remove_expired();
        kept.read("mine", &old, 0, 9).expect_err("it is gone");
        kept.read("mine", &new, 0, 9).expect("it is there");
    }
}
