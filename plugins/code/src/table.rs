//! The table of a project's indexed files, in shards of which only changed ones are written.
//!
//! The table decides on the documents of the index: documents of a content that isn't in the table
//! are never answered. So an update that was cut off, or two processes that update one project at
//! once, can leave documents behind, but no wrong answer.
//!
//! The table is kept in shards, documents without words. A file stays in its shard, so a changed
//! file rewrites one shard, and a first index writes each shard once.

use std::collections::HashMap;

use crate::hash::hash;

/// Files of a shard.
const SHARD_FILES: usize = 256;

/// Bytes of a shard: less than the host takes.
const SHARD_BYTES: usize = 60 << 10;

/// The first line of a shard. A shard of another version counts as empty.
const VERSION: &str = "1";

/// One file, as it was when it was indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    /// Its path below the project.
    pub(crate) path: String,
    /// Its bytes.
    pub(crate) size: u64,
    /// The time of its last change, in milliseconds since 1970.
    pub(crate) modified_ms: u64,
    /// The hash of its content.
    pub(crate) content: u64,
    /// The state of the file in the index.
    pub(crate) state: State,
}

/// The state of a file in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Definitions and words.
    Parsed,
    /// Words. No parser knows the language, or the file is too large for it.
    Words,
    /// Words. The parser of the language was missing.
    NoParser,
    /// Nothing: the file is binary.
    Nothing,
    /// The file couldn't be read, or was read so soon after its last change that a later change may
    /// have left its time as it was. The file is read again.
    TooNew,
}

impl State {
    const ALL: [(Self, char); 5] = [
        (Self::Parsed, 'p'),
        (Self::Words, 'w'),
        (Self::NoParser, 'm'),
        (Self::Nothing, 'n'),
        (Self::TooNew, 't'),
    ];

    fn letter(self) -> char {
        Self::ALL.into_iter().find(|(state, _)| *state == self).map_or('t', |(_, letter)| letter)
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut letters = text.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
        Self::ALL.into_iter().find(|(_, known)| *known == letter).map(|(state, _)| state)
    }
}

impl File {
    fn line(&self) -> String {
        let Self { path, size, modified_ms, content, state } = self;
        format!("{} {size:x} {modified_ms:x} {content:016x} {path}", state.letter())
    }

    /// The bytes of its line, with the end.
    fn bytes(&self) -> usize {
        // The letter, 16 digits of the hash, four spaces and the end.
        22 + digits(self.size) + digits(self.modified_ms) + self.path.len()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, ' ');
        let state = State::from_text(fields.next()?)?;
        let size = hexadecimal(fields.next()?)?;
        let modified_ms = hexadecimal(fields.next()?)?;
        let content = hexadecimal(fields.next()?)?;
        let path = fields.next()?.to_owned();
        Some(Self { path, size, modified_ms, content, state })
    }
}

/// The hexadecimal digits of a number.
fn digits(number: u64) -> usize {
    (number.max(1).ilog2() / 4 + 1) as usize
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The files of a project.
#[derive(Debug, Default)]
pub(crate) struct Table {
    shards: Vec<Shard>,
    /// By the hash of the path, which is also its name in the keys of documents: the shard and the
    /// place in it. Of two paths with one hash, only the later one is kept.
    places: HashMap<u64, (usize, usize)>,
}

#[derive(Debug, Default)]
struct Shard {
    files: Vec<Option<File>>,
    bytes: usize,
    changed: bool,
}

impl Table {
    /// The table of these shards. A file that is in two of them with different contents counts as
    /// not indexed: two processes have updated it at once.
    pub(crate) fn decode<'a>(shards: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut table = Self::default();
        for bytes in shards {
            table.shards.push(Shard::default());
            let shard = table.shards.len() - 1;
            let mut lines = std::str::from_utf8(bytes).unwrap_or_default().split('\n');
            if lines.next() != Some(VERSION) {
                continue;
            }
            for file in lines.filter_map(File::parse) {
                match table.with_hash(hash(file.path.as_bytes())) {
                    None => table.insert_into(shard, file),
                    Some(other) if other.path == file.path && *other != file => {
                        table.remove(&file.path);
                    }
                    Some(_) => {}
                }
            }
        }
        table
    }

    /// The number of files.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.shards.iter().flat_map(|shard| shard.files.iter().flatten())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.with_hash(hash(path.as_bytes())).filter(|file| file.path == path)
    }

    /// The file whose path has this hash.
    pub(crate) fn with_hash(&self, hash: u64) -> Option<&File> {
        let (shard, place) = *self.places.get(&hash)?;
        self.shards[shard].files[place].as_ref()
    }

    /// Adds a file, or replaces the one with the same path.
    pub(crate) fn insert(&mut self, file: File) {
        if let Some((shard, place)) = self.places.get(&hash(file.path.as_bytes())).copied() {
            let shard = &mut self.shards[shard];
            shard.bytes += file.bytes();
            if let Some(old) = shard.files[place].replace(file) {
                shard.bytes -= old.bytes();
            }
            shard.changed = true;
            return;
        }
        let size = file.bytes();
        let with_room = self.shards.iter().rposition(|shard| {
            shard.files.len() < SHARD_FILES && shard.bytes + size <= SHARD_BYTES
        });
        let place = with_room.unwrap_or_else(|| {
            self.shards.push(Shard::default());
            self.shards.len() - 1
        });
        self.insert_into(place, file);
        self.shards[place].changed = true;
    }

    fn insert_into(&mut self, index: usize, file: File) {
        let shard = &mut self.shards[index];
        let place = (index, shard.files.len());
        shard.bytes += file.bytes();
        self.places.insert(hash(file.path.as_bytes()), place);
        shard.files.push(Some(file));
    }

    pub(crate) fn remove(&mut self, path: &str) {
        let hash = hash(path.as_bytes());
        if self.with_hash(hash).is_none_or(|file| file.path != path) {
            return;
        }
        let Some((index, place)) = self.places.remove(&hash) else { return };
        let shard = &mut self.shards[index];
        if let Some(old) = shard.files[place].take() {
            shard.bytes -= old.bytes();
        }
        shard.changed = true;
    }

    /// The shards that changed since the last time, with their numbers.
    pub(crate) fn take_changed(&mut self) -> Vec<(usize, Vec<u8>)> {
        let changed = self.shards.iter_mut().enumerate().filter(|(_, shard)| shard.changed);
        changed
            .map(|(number, shard)| {
                shard.changed = false;
                let mut text = VERSION.to_owned();
                for file in shard.files.iter().flatten() {
                    text.push('\n');
                    text.push_str(&file.line());
                }
                (number, text.into_bytes())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: u64) -> File {
        File {
            path: path.to_owned(),
            size: 10,
            modified_ms: 1 << 40,
            content,
            state: State::Parsed,
        }
    }

    #[test]
    fn shards_hold_the_table() {
        let mut table = Table::default();
        for number in 0..600_u64 {
            table.insert(file(&format!("src/a b {number}.rs"), number));
        }
        let shards: Vec<Vec<u8>> =
            table.take_changed().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!((shards.len(), table.take_changed().len()), (3, 0));
        let mut again = Table::decode(shards.iter().map(Vec::as_slice));
        assert_eq!(again.len(), 600);
        assert_eq!(again.get("src/a b 599.rs"), Some(&file("src/a b 599.rs", 599)));
        assert_eq!(again.with_hash(hash(b"src/a b 5.rs")), again.get("src/a b 5.rs"));

        again.insert(file("src/a b 1.rs", 7));
        again.remove("src/a b 2.rs");
        let changed = again.take_changed();
        assert_eq!(changed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
        let again = Table::decode([changed[0].1.as_slice()]);
        assert_eq!((again.len(), again.get("src/a b 1.rs").unwrap().content), (255, 7));
    }

    #[test]
    fn bytes_are_those_of_the_line() {
        for (size, modified_ms) in [(0, 15), (16, 255), (1 << 20, 1 << 40), (u64::MAX, 1)] {
            let file = File { size, modified_ms, ..file("src/ä.rs", 3) };
            assert_eq!(file.bytes(), file.line().len() + 1);
        }
    }

    #[test]
    fn long_paths_take_more_shards() {
        let mut table = Table::default();
        for number in 0..40 {
            table.insert(file(&format!("{}{number}", "long/".repeat(800)), 1));
        }
        assert!(table.take_changed().iter().all(|(_, bytes)| bytes.len() <= 64 << 10));
        assert_eq!(table.shards.len(), 3);
    }

    #[test]
    fn file_in_two_shards_with_two_contents_is_read_again() {
        let shard = |content| format!("1\n{}", file("a", content).line()).into_bytes();
        let (one, other) = (shard(1), shard(2));
        assert_eq!(Table::decode([&*one, &*one]).len(), 1);
        assert_eq!(Table::decode([&*one, &*other]).len(), 0);
    }

    #[test]
    fn damaged_shards_count_as_empty() {
        let hostile: [&[u8]; 5] =
            [b"", b"2\np 1 1 1 a", b"1\np 1 1", b"\xff\xfe", b"1\nx 1 1 1 a\np g 1 1 b\n\n"];
        assert_eq!(Table::decode(hostile).len(), 0);
    }

    #[test]
    fn path_with_a_line_end_is_no_second_entry() {
        // Such files are left out before; a table must not gain entries by them all the same.
        let mut table = Table::default();
        table.insert(file("a\np 1 1 0000000000000001 b", 1));
        let bytes = table.take_changed().remove(0).1;
        let again = Table::decode([bytes.as_slice()]);
        assert!(again.get("b").is_none_or(|file| file.content == 1));
    }
}
