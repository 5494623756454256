//! Stores the end of a job's output in a ring buffer in a file without a name, which disappears
//! when the host ends or crashes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolhold_data_dir::PrivateFolder;

/// Number of bytes that each job may store, even if all jobs together are at their limit.
const MIN_CAPACITY: u64 = 64 << 10;

/// Number of bytes by which the capacity grows.
const CAPACITY_STEP: u64 = 1 << 20;

/// Maximum length of a character in bytes, in UTF-8.
const MAX_CHARACTER: usize = 4;

/// Number of bytes that all jobs of a host may still use.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes bytes from the budget. Returns `false` if the budget has too few bytes.
    fn take(&self, bytes: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The last bytes of a text in a ring buffer. The byte at `offset` of the whole text is in the file
/// at `offset % capacity`.
#[derive(Debug)]
pub(crate) struct Ring {
    folder: PathBuf,
    budget: Arc<Budget>,
    /// The maximum capacity.
    limit: u64,
    /// The file, created for the first text.
    file: Option<File>,
    /// The length of the ring buffer in bytes, which grows until the first wrap.
    capacity: u64,
    /// Number of bytes that are taken from the budget.
    from_budget: u64,
    /// Whether the capacity is final, so that new text replaces the oldest text.
    is_full: bool,
    /// The start of the stored text, as an offset in the whole text.
    start: u64,
    end: u64,
    failure: Option<io::Error>,
}

impl Ring {
    /// Creates an empty ring buffer for at most the last `limit` bytes of a text.
    pub(crate) fn new(folder: PathBuf, budget: Arc<Budget>, limit: u64) -> Self {
        Self {
            folder,
            budget,
            limit,
            file: None,
            capacity: MIN_CAPACITY.min(limit),
            from_budget: 0,
            is_full: false,
            start: 0,
            end: 0,
            failure: None,
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the length of the whole text in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Adds text. Without space, new text replaces the oldest text.
    pub(crate) fn push(&mut self, text: &str) {
        let mut unwritten = text.as_bytes();
        while !unwritten.is_empty() && self.failure.is_none() {
            match self.write(unwritten) {
                Ok(written) => unwritten = &unwritten[written..],
                // The file can't grow, probably because the disk is full. Make the current length
                // final, so that the text replaces the oldest text.
                Err(_) if !self.is_full && self.end > 0 => {
                    self.capacity = self.end;
                    self.is_full = true;
                }
                Err(error) => self.failure = Some(error),
            }
        }
        if self.failure.is_some() {
            // Nothing is stored after a failure, but the offsets still count all text.
            self.end += unwritten.len() as u64;
            self.start = self.end;
        }
    }

    /// Writes bytes into the ring buffer, at most up to the end of the file. Returns the number of
    /// written bytes. The next call writes the rest at the start of the file.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_full {
            self.grow(bytes.len() as u64);
        }
        // Once the buffer wraps, its capacity is final, because another capacity would change the
        // position of each stored byte.
        if self.end >= self.capacity {
            self.is_full = true;
        }

        let position = self.end % self.capacity;
        let length = bytes.len().min(self.bytes_until_wrap(position));
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create_nameless(&self.folder)?),
        };
        file.write_all_at(&bytes[..length], position)?;
        self.end += length as u64;
        let oldest_stored = self.end.saturating_sub(self.capacity);
        self.start = self.start.max(oldest_stored);
        Ok(length)
    }

    /// Increases the capacity for `new_bytes` more bytes, as far as the budget allows.
    fn grow(&mut self, new_bytes: u64) {
        let needed = self.end.saturating_add(new_bytes);
        let wanted = needed.min(self.limit);
        while self.capacity < wanted && self.budget.take(CAPACITY_STEP) {
            self.from_budget += CAPACITY_STEP;
            self.capacity = self.limit.min(self.capacity + CAPACITY_STEP);
        }
    }

    fn bytes_until_wrap(&self, position: u64) -> usize {
        usize::try_from(self.capacity - position).unwrap_or(usize::MAX)
    }

    /// Reads at most `most` bytes of text, but at least one character. The text starts at `offset`,
    /// or at the first stored byte after `offset`. Returns the start and the text. The text ends
    /// with a whole line if possible, and always with a whole character.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn read(&self, offset: u64, most: usize) -> io::Result<(u64, String)> {
        let start = offset.clamp(self.start, self.end);
        let available = usize::try_from(self.end - start).unwrap_or(usize::MAX);
        let length = available.min(most.max(MAX_CHARACTER));
        let bytes = self.read_bytes(start, length)?;

        // New text may have replaced the first bytes of a character, so skip its other bytes.
        let first_bytes = bytes.iter().take(MAX_CHARACTER);
        let skipped = first_bytes.take_while(|byte| is_continuation(**byte)).count();
        let reaches_end = start + (length as u64) == self.end;
        let last_line_end = bytes[skipped..].iter().rposition(|byte| *byte == b'\n');
        let end = if reaches_end {
            length
        } else if let Some(line_end) = last_line_end {
            skipped + line_end + "\n".len()
        } else {
            length - incomplete_bytes_at_end(&bytes)
        };
        // The stored text is valid UTF-8, so `skipped` is never larger than `end`.
        let text_bytes = bytes.get(skipped..end).unwrap_or_default();
        let text = String::from_utf8_lossy(text_bytes).into_owned();
        Ok((start + skipped as u64, text))
    }

    /// Reads `length` bytes of the ring buffer from the offset `start`. All bytes must be stored.
    fn read_bytes(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        if let Some(file) = &self.file {
            let position = start % self.capacity;
            let length_until_wrap = length.min(self.bytes_until_wrap(position));
            let (head, tail) = bytes.split_at_mut(length_until_wrap);
            file.read_exact_at(head, position)?;
            file.read_exact_at(tail, 0)?;
        }
        Ok(bytes)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.budget.give_back(self.from_budget);
    }
}

/// Returns the number of bytes at the end that belong to an incomplete character.
fn incomplete_bytes_at_end(bytes: &[u8]) -> usize {
    // Find the first byte of the last character. In valid UTF-8, it is among the last
    // `MAX_CHARACTER` bytes.
    let mut last_bytes = bytes.iter().rev().take(MAX_CHARACTER);
    let continuations = last_bytes.position(|byte| !is_continuation(*byte));
    let Some(continuations) = continuations else { return 0 };
    let present = 1 + continuations;
    let first_byte = bytes[bytes.len() - present];
    let needed = match first_byte {
        0b1100_0000..0b1110_0000 => 2,
        0b1110_0000..0b1111_0000 => 3,
        0b1111_0000.. => 4,
        _ => 1,
    };
    if present < needed { present } else { 0 }
}

/// Checks whether a byte continues a character in UTF-8.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Creates a file and removes its name, so that the kernel deletes the file after its last use.
fn create_nameless(folder: &std::path::Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = PrivateFolder::make(folder)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{number}", std::process::id());
    // A killed process with the same ID may have left its file.
    let _ = folder.remove(&name);
    let file = folder.updated(&name)?;
    folder.remove(&name)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(folder: &tempfile::TempDir, budget: &Arc<Budget>, limit: u64) -> Ring {
        Ring::new(folder.path().join("jobs"), Arc::clone(budget), limit)
    }

    #[test]
    fn newest_text_is_kept_with_its_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = ring(&folder, &Arc::new(Budget::new(0)), 10);
        assert_eq!(ring.read(0, 100).unwrap(), (0, String::new()));
        let mut whole = String::new();
        for number in 0..500 {
            let text = format!("{number}\n");
            ring.push(&text);
            whole += &text;
            let start = whole.len().saturating_sub(10);
            assert_eq!((ring.start(), ring.end()), (start as u64, whole.len() as u64));
            assert_eq!(ring.read(0, 100).unwrap(), (start as u64, whole[start..].to_owned()));
        }
        let end = whole.len() as u64;
        assert_eq!(ring.read(end, 100).unwrap(), (end, String::new()));
        assert_eq!(ring.read(u64::MAX, 100).unwrap(), (end, String::new()));
        assert_eq!(ring.read(end - 3, 100).unwrap().1, whole[whole.len() - 3..]);
        ring.push(&"x".repeat(35));
        assert_eq!(ring.read(0, 100).unwrap(), (end + 25, "x".repeat(10)));
        assert_eq!(std::fs::read_dir(folder.path().join("jobs")).unwrap().count(), 0, "no names");
    }

    #[test]
    fn part_ends_with_a_line_and_never_inside_of_a_character() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = ring(&folder, &Arc::new(Budget::new(0)), 100);
        ring.push("one\ntwo\näö𝄞");
        assert_eq!(ring.read(0, 6).unwrap(), (0, "one\n".to_owned()));
        assert_eq!(ring.read(8, 5).unwrap(), (8, "äö".to_owned()));
        assert_eq!(ring.read(10, 5).unwrap(), (10, "ö".to_owned()));
        assert_eq!(ring.read(12, 1).unwrap(), (12, "𝄞".to_owned()));
        assert_eq!(ring.read(9, 100).unwrap(), (10, "ö𝄞".to_owned()));
    }

    #[test]
    fn outputs_together_keep_no_more_than_the_budget_and_give_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Arc::new(Budget::new(2 * CAPACITY_STEP));
        let mut first = ring(&folder, &budget, 64 << 20);
        let mut second = ring(&folder, &budget, 64 << 20);
        let text = "x".repeat(CAPACITY_STEP as usize);
        (0..5).for_each(|_| first.push(&text));
        second.push(&text);
        assert_eq!(first.end() - first.start(), MIN_CAPACITY + 2 * CAPACITY_STEP);
        assert_eq!(second.end() - second.start(), MIN_CAPACITY);
        drop(first);
        second.push(&text);
        assert_eq!(second.end() - second.start(), MIN_CAPACITY, "its size is final");
        assert!(budget.take(2 * CAPACITY_STEP));
    }

    #[test]
    fn output_that_cannot_be_kept_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("jobs"), "a file").unwrap();
        let mut ring = ring(&folder, &Arc::new(Budget::new(0)), 100);
        ring.push("text");
        ring.push("more");
        assert_eq!((ring.start(), ring.end()), (8, 8));
        assert!(ring.failure().is_some());
        assert_eq!(ring.read(0, 10).unwrap(), (8, String::new()));
    }
}
