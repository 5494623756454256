//! Answers that were too long for a model: kept whole, redacted, for the session that they belong
//! to.
//!
//! They lie in one private folder, each as a file whose name tells the session, by its hash, and a
//! random id. So no id leads to what another session was answered, and none can be guessed.

mod read;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use berth_contract::HostError;
use berth_contract::text::cut;
use berth_system::private::PrivateFolder;
use sha2::{Digest, Sha256};

use berth_config::{self as config, Folders};
pub use read::OverflowReader;
pub(crate) use read::{READ_OVERFLOW, byte_of};

/// Bytes that are kept of one answer at most.
const MAX_ANSWER: usize = 10 << 20;

/// Kept answers that are looked at; more are made only by who has the folder, and are none of ours.
const MAX_FILES: usize = 100_000;

/// The answers that are kept.
#[derive(Debug)]
pub struct OverflowStore {
    folder: PathBuf,
    retention: Duration,
    /// Bytes over all kept answers.
    most: u64,
    /// Bytes that may still be written before it is counted anew what there is.
    room: Mutex<u64>,
}

/// What was kept, as `read_overflow` is asked for it: 24 hexadecimal digits, behind a letter that
/// tells whose words they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowId(String);

impl OverflowId {
    /// The id that a text is. None where it is none, so that no name of a file comes from outside.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['h', 'w'])?;
        let whole = digits.len() == 24
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        whole.then(|| Self(text.to_owned()))
    }

    fn new(strange: bool) -> io::Result<Self> {
        let mut bytes = [0; 12];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{}{digits}", if strange { 'w' } else { 'h' })))
    }

    /// Whether the answer was of a tool that deals with the world outside.
    pub fn is_untrusted(&self) -> bool {
        self.0.starts_with('w')
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn file(&self, session: &str) -> String {
        let hash = Sha256::digest(session.as_bytes());
        let hash: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{hash}-{}", self.0)
    }
}

impl OverflowStore {
    /// Keeps answers in the data folder, as the configuration says.
    pub fn new(folders: &Folders, config: config::Overflow) -> Self {
        Self {
            folder: folders.data.join("overflow"),
            retention: Duration::from_secs(config.retention_hours.get() * 3600),
            most: config.max_mib.get() << 20,
            room: Mutex::new(0),
        }
    }

    /// Keeps an answer, at most 10 MiB of it, and lets older ones go where there is no room.
    /// `strange`: it is of a tool that deals with the world outside.
    ///
    /// # Errors
    ///
    /// The folder can't be made or believed, or the disk is full.
    pub fn keep(&self, session: &str, text: &str, strange: bool) -> Result<OverflowId, HostError> {
        let failed = HostError::io(self.folder.display().to_string());
        let text = cut(text, self.answer_bytes());
        let size = text.len() as u64;
        let kept = || {
            let folder = PrivateFolder::make(&self.folder)?;
            {
                let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
                if *room < size {
                    let used = self.cleaned(&folder, size)?;
                    // Other processes write too: what there is is counted anew from time to time.
                    *room = (self.most.saturating_sub(used)).min((self.most / 8).max(size));
                }
                *room = room.saturating_sub(size);
            }
            let id = OverflowId::new(strange)?;
            folder.put_lightly(&id.file(session), text.as_bytes())?;
            Ok(id)
        };
        kept().map_err(failed)
    }

    /// Bytes that are kept of one answer.
    pub fn answer_bytes(&self) -> usize {
        usize::try_from(self.most).unwrap_or(usize::MAX).min(MAX_ANSWER)
    }

    /// What was kept under an id in that session.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`]: nothing, or not any more. Otherwise why it can't be read or
    /// believed.
    pub fn read(&self, session: &str, id: &OverflowId) -> io::Result<String> {
        let file = PrivateFolder::open(&self.folder)?.file(&id.file(session))?;
        let mut text = String::new();
        file.take(MAX_ANSWER as u64).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Lets go what is too old, and the oldest of what is too much. Nothing is made where nothing
    /// is kept.
    pub fn clean(&self) {
        let cleaned = PrivateFolder::open(&self.folder).and_then(|folder| self.cleaned(&folder, 0));
        if let Err(error) = cleaned.map(drop)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("kept output is not tidied up: {}: {error}", self.folder.display());
        }
    }

    /// Makes room for so many bytes, and tells how many are used then.
    fn cleaned(&self, folder: &PrivateFolder, size: u64) -> io::Result<u64> {
        let now = SystemTime::now();
        let mut kept = Vec::new();
        for name in folder.names(MAX_FILES)? {
            // Another process may have removed it.
            let Ok(metadata) = folder.file(&name).and_then(|file| file.metadata()) else {
                continue;
            };
            let made = metadata.modified().unwrap_or(now);
            kept.push((made, metadata.len(), name));
        }
        kept.sort_unstable();
        let mut used: u64 = kept.iter().map(|(_, size, _)| size).sum();
        for (made, size_kept, name) in kept {
            let old = now.duration_since(made).is_ok_and(|age| age > self.retention);
            if (old || used + size > self.most) && folder.remove(&name).is_ok() {
                used -= size_kept;
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
    use berth_config::Bounded;

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
    fn what_was_kept_is_the_session_s_alone() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let kept = overflow(root.path());
        let id = kept.keep("mine", "größe", false).expect("it is kept");
        assert_eq!(kept.read("mine", &id).expect("it is there"), "größe");
        assert_eq!(
            kept.read("other", &id).expect_err("it is another's").kind(),
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
    fn only_an_id_is_one() {
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
    fn it_never_takes_more_than_it_may() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let kept = overflow(root.path());
        let text = "x".repeat(300 << 10);
        let mut last = None;
        for _ in 0..20 {
            last = Some(kept.keep("mine", &text, false).expect("it is kept"));
            assert!(sizes(&kept).iter().sum::<u64>() <= 1 << 20);
        }
        assert_eq!(
            kept.read("mine", &last.expect("twenty were kept"))
                .expect("the last one is there")
                .len(),
            text.len()
        );
        kept.keep("mine", &"x".repeat(20 << 20), false).expect("its beginning is kept");
        assert_eq!(sizes(&kept), [1 << 20]);
    }

    #[test]
    fn what_is_old_goes() {
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
        kept.clean();
        kept.read("mine", &old).expect_err("it is gone");
        kept.read("mine", &new).expect("it is there");
    }
}
