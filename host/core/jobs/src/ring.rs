//! Stores the end of a job's output in a ring buffer in a file without a name. A file without a
//! name is removed when the host ends, even if the host crashes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolhold_data_dir::PrivateFolder;

/// Bytes that are stored of each output, even if all outputs together are at their limit.
const LEAST: u64 = 64 << 10;

/// Bytes by which a file grows.
const STEP: u64 = 1 << 20;

/// Bytes that are still available for all outputs of a host.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    fn take(&self, bytes: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The end of a text.
#[derive(Debug)]
pub(crate) struct Ring {
    folder: PathBuf,
    budget: Arc<Budget>,
    limit: u64,
    /// The file. Created for the first text.
    file: Option<File>,
    /// The largest size of the file, in bytes.
    room: u64,
    /// Bytes of `room` that are taken from the budget.
    taken: u64,
    /// Whether the file has its final size. If so, new text replaces the oldest text.
    is_full: bool,
    /// The start of the stored text, as an offset in the whole text.
    start: u64,
    end: u64,
    /// The reason why no text can be stored.
    failure: Option<io::Error>,
}

impl Ring {
    /// Makes an empty text. At most its last `limit` bytes are stored.
    pub(crate) fn new(folder: PathBuf, budget: Arc<Budget>, limit: u64) -> Self {
        Self {
            folder,
            budget,
            limit,
            file: None,
            room: LEAST.min(limit),
            taken: 0,
            is_full: false,
            start: 0,
            end: 0,
            failure: None,
        }
    }

    /// Returns the offset of the first stored byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the number of bytes of the whole text.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the reason why no text is stored, if there is one.
    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Adds text. If there is not enough space, the new text replaces the oldest text.
    pub(crate) fn push(&mut self, text: &str) {
        let mut left = text.as_bytes();
        while !left.is_empty() && self.failure.is_none() {
            match self.write(left) {
                Ok(written) => left = &left[written..],
                // The disk is full. The bytes of the file can be overwritten.
                Err(_) if !self.is_full && self.end > 0 => {
                    self.room = self.end;
                    self.is_full = true;
                }
                Err(error) => self.failure = Some(error),
            }
        }
        if self.failure.is_some() {
            self.end += left.len() as u64;
            self.start = self.end;
        }
    }

    /// Writes the start of `bytes`. Returns how many bytes were written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.limit.min(self.end.saturating_add(bytes.len() as u64));
        while !self.is_full && self.room < wanted && self.budget.take(STEP) {
            self.taken += STEP;
            self.room = self.limit.min(self.room + STEP);
        }
        if self.end >= self.room {
            self.is_full = true;
        }

        let position = self.end % self.room;
        let until_wrap = usize::try_from(self.room - position).unwrap_or(usize::MAX);
        let length = bytes.len().min(until_wrap);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create_nameless(&self.folder)?),
        };
        file.write_all_at(&bytes[..length], position)?;
        self.end += length as u64;
        self.start = self.start.max(self.end.saturating_sub(self.room));
        Ok(length)
    }

    /// Reads the text from `offset`, or from the first stored byte after `offset`. Returns the
    /// offset at which the text starts, and at most `most` bytes, but at least one character. The
    /// text ends at the end of a line if possible, and always at the end of a character.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn read(&self, offset: u64, most: usize) -> io::Result<(u64, String)> {
        let start = offset.clamp(self.start, self.end);
        let left = usize::try_from(self.end - start).unwrap_or(usize::MAX);
        // A character has at most four bytes.
        let length = left.min(most.max(4));
        let mut bytes = vec![0; length];
        if let Some(file) = &self.file {
            let position = start % self.room;
            let until_wrap = usize::try_from(self.room - position).unwrap_or(usize::MAX);
            let (head, tail) = bytes.split_at_mut(length.min(until_wrap));
            file.read_exact_at(head, position)?;
            file.read_exact_at(tail, 0)?;
        }

        // New text may have replaced a part of the first character.
        let skipped = bytes.iter().take(4).take_while(|byte| is_continuation(**byte)).count();
        let reaches_end = start + (length as u64) == self.end;
        let mut end = length;
        if !reaches_end {
            end = match bytes[skipped..].iter().rposition(|byte| *byte == b'\n') {
                Some(line_end) => skipped + line_end + 1,
                None => length - unfinished(&bytes),
            };
        }
        let text = String::from_utf8_lossy(&bytes[skipped.min(end)..end]).into_owned();
        Ok((start + skipped as u64, text))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

/// Returns the number of bytes at the end that are the start of an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    let continuations = bytes.iter().rev().take(4).position(|byte| !is_continuation(*byte));
    let Some(continuations) = continuations else { return 0 };
    let present = continuations + 1;
    let first = bytes[bytes.len() - present];
    let needed = match first {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    if present < needed { present } else { 0 }
}

/// Checks whether a byte of UTF-8 continues a character.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Creates a file, and removes its name.
fn create_nameless(folder: &std::path::Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = PrivateFolder::make(folder)?;
    let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    // A process with the same ID may have ended before it removed the name.
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
        let budget = Arc::new(Budget::new(2 * STEP));
        let mut first = ring(&folder, &budget, 64 << 20);
        let mut second = ring(&folder, &budget, 64 << 20);
        let text = "x".repeat(STEP as usize);
        (0..5).for_each(|_| first.push(&text));
        second.push(&text);
        assert_eq!(first.end() - first.start(), LEAST + 2 * STEP);
        assert_eq!(second.end() - second.start(), LEAST);
        drop(first);
        second.push(&text);
        assert_eq!(second.end() - second.start(), LEAST, "its size is final");
        assert!(budget.take(2 * STEP));
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
