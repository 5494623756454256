use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::chain::{self, Link};

/// The content of the file `head`: the end of the log. It is written after the entries. It saves
/// the next writer from reading the log, and reveals a truncated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) file: u64,
    /// The length of the current file in bytes.
    pub(super) end: u64,
    pub(super) link: Link,
    /// Whether the last entry finishes the file, so that the next entry starts a new file.
    pub(super) ended: bool,
}

impl Head {
    pub(super) const START: Self = Self { file: 1, end: 0, link: Link::START, ended: false };

    /// Reads the file. Returns `None` if the content isn't a head.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut text = [0; 256];
        let length = file.read_at(&mut text, 0)?;
        Ok(Self::parse(&text[..length]))
    }

    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.text().as_bytes(), 0)
    }

    /// Returns the text of the file. All texts have the same length, so one write replaces the old
    /// text.
    fn text(&self) -> String {
        let Self { file, end, link: Link { seq, hash }, ended } = self;
        let hash = chain::to_hex(hash);
        let ended = u8::from(*ended);
        format!("1 file {file:012} end {end:016} seq {seq:020} ended {ended} hash {hash}\n")
    }

    /// Parses the content of the file. The first word is the version of the format.
    fn parse(text: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split_ascii_whitespace().collect();
        let ["1", "file", file, "end", end, "seq", seq, "ended", ended, "hash", hash] = words[..]
        else {
            return None;
        };
        let link = Link { seq: seq.parse().ok()?, hash: chain::from_hex(hash.as_bytes())? };
        let file = file.parse().ok()?;
        let end = end.parse().ok()?;
        let head = Self { file, end, link, ended: ended == "1" };
        // Toolhold writes each head in only one form, so any other form is damage.
        if head.text().as_bytes() == text { Some(head) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_read_back_and_other_content_is_refused() {
        let head =
            Head { file: 3, end: 12_345, link: Link { seq: 99, hash: [0xab; 32] }, ended: true };
        let text = head.text().into_bytes();
        assert_eq!(Head::parse(&text), Some(head));
        let hash = "ab".repeat(32);
        let expected = format!(
            "1 file 000000000003 end 0000000000012345 seq 00000000000000000099 ended 1 hash {hash}\n"
        );
        assert_eq!(String::from_utf8_lossy(&text), expected);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_ne!(Head::parse(&other), Some(head), "byte {at}");
            assert_eq!(Head::parse(&text[..at]), None);
        }
        assert_eq!(Head::parse(b""), None);
    }
}
