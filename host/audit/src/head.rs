//! Where the log ends, as the file `head` beside it says.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::chain::{self, Link};
use super::time;

/// The end of the log. It is written after each record, so that the next one who appends need not
/// read the log, and a log that was cut is seen to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of the file that is written to.
    pub(super) file: u64,
    /// Its bytes.
    pub(super) end: u64,
    /// The last record.
    pub(super) link: Link,
    /// Whether that record ends the file, so that the next one belongs into another.
    pub(super) ended: bool,
}

impl Head {
    /// Before the first record.
    pub(super) const START: Self = Self { file: 1, end: 0, link: Link::START, ended: false };

    /// What the file says. `None`: nothing, or nothing that was written here.
    ///
    /// # Errors
    ///
    /// As the system has them.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut text = [0; 256];
        let length = file.read_at(&mut text, 0)?;
        Ok(Self::parse(&text[..length]))
    }

    /// Puts it into the file.
    ///
    /// # Errors
    ///
    /// As the system has them.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.text(), 0)
    }

    /// Always of the same length, so that one takes the place of the other in a single write. Put
    /// together by hand: it is made for each call, and formatting takes longer than writing it.
    fn text(&self) -> [u8; 144] {
        let mut text =
            *b"1 file 000000000000 end 0000000000000000 seq 00000000000000000000 ended 0 hash \
            0000000000000000000000000000000000000000000000000000000000000000\n";
        let Self { file, end, link: Link { seq, hash }, ended } = self;
        time::digits(&mut text[7..19], *file);
        time::digits(&mut text[24..40], *end);
        time::digits(&mut text[45..65], *seq);
        text[72] += u8::from(*ended);
        text[79..143].copy_from_slice(&chain::hex(hash));
        text
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split_ascii_whitespace().collect();
        let ["1", "file", file, "end", end, "seq", seq, "ended", ended, "hash", hash] = words[..]
        else {
            return None;
        };
        let link = Link { seq: seq.parse().ok()?, hash: chain::unhex(hash.as_bytes())? };
        let head =
            Self { file: file.parse().ok()?, end: end.parse().ok()?, link, ended: ended == "1" };
        (head.text() == text).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let head =
            Head { file: 3, end: 12_345, link: Link { seq: 99, hash: [0xab; 32] }, ended: true };
        let text = head.text();
        assert_eq!(Head::parse(&text), Some(head));
        let hash = "ab".repeat(32);
        let expected = format!(
            "1 file 000000000003 end 0000000000012345 seq 00000000000000000099 ended 1 hash {hash}\n"
        );
        assert_eq!(String::from_utf8_lossy(&text), expected);
        for at in 0..text.len() {
            let mut other = text;
            other[at] ^= 1;
            assert_ne!(Head::parse(&other), Some(head), "byte {at}");
            assert_eq!(Head::parse(&text[..at]), None);
        }
        assert_eq!(Head::parse(b""), None);
    }
}
