//! Stores complete, redacted answers that were too long for a model, for their session, and removes
//! old answers.
//!
//! The answers are in one private folder. The name of an answer's file contains the session's hash
//! and a random ID. So an ID never leads to an answer of another session, and nobody can guess an
//! ID.

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

/// Maximum length of a stored answer, in bytes.
const MAX_ANSWER: usize = 10 << 20;

/// Maximum length of the stored outputs of one command, in bytes.
const MAX_SPOOLED: u64 = 64 << 20;

/// Maximum number of stored answers that are checked. Toolhold doesn't create more.
const MAX_FILES: usize = 100_000;

/// The stored answers.
#[derive(Debug)]
pub struct OverflowStore {
    folder: PathBuf,
    retention: Duration,
    /// Bytes of all stored answers.
    most: u64,
    /// Number of bytes that may be written before the folder is measured again.
    room: Mutex<u64>,
}

/// The ID of a stored answer, for `read_overflow`: a letter for the origin of its text, followed by
/// 24 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowId(String);

/// How much of an answer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    /// Only the beginning of the answer.
    Beginning,
    /// The beginning and the end of the answer.
    Ends,
}

impl OverflowId {
    /// Parses an ID. Returns `None` for any other text, so that callers can't choose a file name.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['h', 'w'])?;
        let is_valid = digits.len() == 24
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_valid.then(|| Self(text.to_owned()))
    }

    /// Returns a new random ID. `untrusted` is `true` if the answer has text from the network or a
    /// third party.
    fn new(untrusted: bool) -> io::Result<Self> {
        let mut bytes = [0; 12];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let origin = if untrusted { 'w' } else { 'h' };
        Ok(Self(format!("{origin}{digits}")))
    }

    /// Checks whether the answer came from a tool that reaches the world outside.
    pub fn is_untrusted(&self) -> bool {
        self.0.starts_with('w')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the file of the answer in a session.
    fn file(&self, session: &str) -> String {
        let digest = Sha256::digest(session.as_bytes());
        let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{hash}-{}", self.0)
    }
}

impl OverflowStore {
    /// Stores answers in the data folder as the configuration says.
    pub fn new(folders: &Folders, config: config::Overflow) -> Self {
        Self {
            folder: folders.data.join("overflow"),
            retention: Duration::from_secs(config.retention_hours.get() * 3600),
            most: config.max_mib.get() << 20,
            room: Mutex::new(0),
        }
    }

    /// Stores an answer of at most 10 MiB. If there is no room, removes older answers. `untrusted`
    /// is `true` if the tool uses the network or a third party's text.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be created or trusted, or if the disk is full.
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

    /// Makes room for bytes that are written next.
    fn reserve(&self, folder: &PrivateFolder, size: u64) -> io::Result<()> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if *room < size {
            let used = self.make_room(folder, size)?;
            // Other processes also write to the folder. So the folder is measured again at least
            // once for each eighth of its size.
            let free = self.most.saturating_sub(used);
            let until_next_count = (self.most / 8).max(size);
            *room = free.min(until_next_count);
        }
        *room = room.saturating_sub(size);
        Ok(())
    }

    /// Returns the maximum length of the stored outputs of one command, in bytes.
    fn spool_bytes(&self) -> u64 {
        // Two files exist while both outputs are merged into one file.
        self.most.min(2 * MAX_SPOOLED) / 2
    }

    /// Returns the maximum length of a stored answer, in bytes.
    pub fn answer_bytes(&self) -> usize {
        usize::try_from(self.most).unwrap_or(usize::MAX).min(MAX_ANSWER)
    }

    /// Returns characters of a stored answer of this session, starting at an offset, and the number
    /// of characters of the whole answer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the answer doesn't exist or has been removed. Other errors
    /// mean that the answer can't be read or trusted.
    pub fn read(
        &self,
        session: &str,
        id: &OverflowId,
        offset: usize,
        limit: usize,
    ) -> io::Result<(String, usize)> {
        let mut file = PrivateFolder::open(&self.folder)?.file(&id.file(session))?;
        let mut buffer = vec![0; 64 << 10];
        let mut shown = Vec::new();
        let mut total = 0;
        let end = offset.saturating_add(limit);
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                let text = String::from_utf8(shown).map_err(io::Error::other)?;
                return Ok((text, total));
            }
            let chunk = &buffer[..length];
            let total_after = total + chunk.iter().filter(|byte| is_first_byte(**byte)).count();
            // The chunk may begin within the last character of the previous chunk.
            if total <= end && total_after > offset {
                // The number of the character of each byte, counted from 1.
                let mut number = total;
                for byte in chunk {
                    number += usize::from(is_first_byte(*byte));
                    if (offset + 1..=end).contains(&number) {
                        shown.push(*byte);
                    }
                }
            }
            total = total_after;
        }
    }

    /// Removes answers that are too old. If there are too many bytes, also removes the oldest
    /// answers. A missing folder isn't created.
    pub fn remove_expired(&self) {
        let result =
            PrivateFolder::open(&self.folder).and_then(|folder| self.make_room(&folder, 0));
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("kept output is not tidied up: {}: {error}", self.folder.display());
            }
            _ => {}
        }
    }

    /// Makes room for this number of bytes, and returns the number of used bytes.
    fn make_room(&self, folder: &PrivateFolder, size: u64) -> io::Result<u64> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for name in folder.names(MAX_FILES)? {
            // Another process may have removed the file.
            let Ok(metadata) = folder.file(&name).and_then(|file| file.metadata()) else {
                continue;
            };
            let modified_at = metadata.modified().unwrap_or(now);
            files.push((modified_at, metadata.len(), name));
        }
        // The oldest files come first.
        files.sort_unstable();
        let mut used: u64 = files.iter().map(|(_, file_size, _)| file_size).sum();
        for (modified_at, file_size, name) in files {
            let is_expired = now.duration_since(modified_at).is_ok_and(|age| age > self.retention);
            let is_too_much = used + size > self.most;
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
