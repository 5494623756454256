//! Stores the whole output of a command that is too long for an answer. The output is written to a
//! file while the command runs, without secrets, for `read_overflow` and for filters.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use toolhold_contract::text::neutral_owned;
use toolhold_contract::{OutputRecorder, OutputStream};
use toolhold_redaction::{self as redaction, Keys};

use super::partial::PartialFile;
use super::{Extent, OverflowId, OverflowStore};
use crate::terminal::Kind;

/// Maximum number of buffered bytes of one output. Only a longer output needs a file while its
/// command runs. A shorter output is in the answer.
const IN_MEMORY: usize = 1 << 20;

/// Number of bytes that are stored from the end of an output whose middle is too long.
const END: usize = 256 << 10;

/// Number of bytes before and after a position in an output that determine whether the position is
/// in a secret. No secret is longer, and no secret is farther away from its key.
pub(super) const AROUND: usize = 16 << 10;

/// Bytes of a piece for filters.
const PIECE: u64 = 4 << 20;

/// Stores the outputs of a call's command. A short output stays in memory, so most commands need no
/// file.
pub struct Spool {
    store: Arc<OverflowStore>,
    rules: TextRules,
    pending: Mutex<Pending>,
}

/// The output that hasn't been stored yet.
#[derive(Default)]
struct Pending {
    /// The last bytes of standard output and of standard error.
    bytes: [Vec<u8>; 2],
    /// Stores the bytes on another thread when there are many, so that the call's processor time
    /// isn't used for it.
    writer: Option<Writer>,
    failure: Option<io::Error>,
}

/// The thread that keeps outputs.
struct Writer {
    chunks: SyncSender<(usize, Vec<u8>)>,
    thread: JoinHandle<Outputs>,
}

/// The rules that convert bytes to a text that may be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRules {
    pub(crate) kind: Kind,
    /// The search for secrets. `None` if secrets aren't removed.
    pub(crate) keys: Option<Keys>,
}

impl TextRules {
    /// Converts bytes to text, in the form of [`shown`](Self::shown).
    pub(super) fn text(self, bytes: Vec<u8>) -> String {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        self.shown(text)
    }

    /// Returns a text as a terminal would show it, without characters that control a terminal.
    pub(crate) fn shown(self, text: String) -> String {
        neutral_owned(self.kind.shown(text))
    }
}

/// Standard output and standard error.
#[derive(Default)]
struct Outputs {
    each: [StreamSpool; 2],
    /// The reason why nothing can be stored.
    failure: Option<io::Error>,
}

/// The stored part of one output.
#[derive(Default)]
struct StreamSpool {
    /// The last bytes, not yet a text.
    raw: Vec<u8>,
    /// Bytes that were dropped before `raw`.
    dropped: usize,
    text: RedactedText,
    file: Option<PartialFile>,
}

/// A text that comes in pieces, and is passed on without secrets.
#[derive(Debug, Default)]
pub(crate) struct RedactedText {
    /// The end of the text that was passed on, followed by the text that is buffered.
    text: String,
    /// Bytes of `text` that were passed on.
    done: usize,
}

/// The stored output of a command that has ended. Without an ID, it is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SpooledOutput {
    file: PartialFile,
    /// Where standard output and standard error are in the file.
    ranges: [Range<u64>; 2],
    /// Whether the middle of the output is also stored.
    complete: bool,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl OutputRecorder for Spool {
    fn write(&self, stream: OutputStream, bytes: &[u8]) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.failure.is_some() {
            return;
        }
        let stream = match stream {
            OutputStream::Stdout => 0,
            OutputStream::Stderr => 1,
        };
        let waiting = &mut pending.bytes[stream];
        waiting.extend_from_slice(bytes);
        if waiting.len() <= IN_MEMORY {
            return;
        }
        let chunk = std::mem::take(waiting);
        let writer = match &mut pending.writer {
            Some(writer) => writer,
            None => match self.start_writer() {
                Ok(writer) => pending.writer.insert(writer),
                Err(error) => {
                    pending.failure = Some(error);
                    return;
                }
            },
        };
        // The thread takes chunks until the call ends.
        let _ = writer.chunks.send((stream, chunk));
    }
}

impl Spool {
    pub(crate) fn new(store: Arc<OverflowStore>, rules: TextRules) -> Self {
        Self { store, rules, pending: Mutex::default() }
    }

    fn start_writer(&self) -> io::Result<Writer> {
        let (chunks, received) = mpsc::sync_channel::<(usize, Vec<u8>)>(1);
        let store = Arc::clone(&self.store);
        let rules = self.rules;
        let builder = std::thread::Builder::new().name("toolhold-spool".to_owned());
        let thread = builder.spawn(move || {
            let mut outputs = Outputs::default();
            for (stream, chunk) in received {
                outputs.push(stream, &chunk, rules, &store);
            }
            outputs
        })?;
        Ok(Writer { chunks, thread })
    }

    /// Returns the outputs. May wait for the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the outputs can't be stored.
    pub(crate) fn finish(&self) -> io::Result<SpooledOutput> {
        let pending =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(error) = pending.failure {
            return Err(error);
        }
        let mut outputs = match pending.writer {
            Some(Writer { chunks, thread }) => {
                drop(chunks);
                thread.join().map_err(|_| io::Error::other("its thread has panicked"))?
            }
            None => Outputs::default(),
        };
        for (stream, bytes) in pending.bytes.iter().enumerate() {
            outputs.push(stream, bytes, self.rules, &self.store);
        }
        if let Some(error) = outputs.failure {
            return Err(error);
        }
        let complete = outputs.each.iter().all(|output| output.dropped == 0);
        let [stdout, stderr] = outputs.each.map(|output| output.finish(self.rules, &self.store));
        SpooledOutput::new([stdout?, stderr?], complete, &self.store)
    }
}

impl Outputs {
    fn push(&mut self, stream: usize, bytes: &[u8], rules: TextRules, store: &OverflowStore) {
        if self.failure.is_some() {
            return;
        }
        let written: u64 = self.each.iter().map(StreamSpool::written).sum();
        let room = store.spool_bytes().saturating_sub(written);
        if let Err(error) = self.each[stream].push(bytes, room, rules, store) {
            self.each = Default::default();
            self.failure = Some(error);
        }
    }
}

impl StreamSpool {
    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.bytes)
    }

    /// Adds bytes. `room` is the number of bytes that may still be written to the disk.
    fn push(
        &mut self,
        bytes: &[u8],
        room: u64,
        rules: TextRules,
        store: &OverflowStore,
    ) -> io::Result<()> {
        self.raw.extend_from_slice(bytes);
        if self.raw.len() <= IN_MEMORY {
            return Ok(());
        }
        // The ends of both outputs also need room. A byte that isn't valid text takes three bytes.
        let needed = 3 * (self.raw.len() + 4 * END) as u64;
        if room < needed {
            self.drop_middle();
            return Ok(());
        }
        // Characters are never split, and neither are lines that aren't too long.
        let end = match self.raw.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None => self.raw.len() - unfinished(&self.raw),
        };
        self.make_text(end, rules);
        self.write(false, rules, store)
    }

    /// Drops all but the last bytes.
    fn drop_middle(&mut self) {
        if self.raw.len() > 2 * END {
            let excess = self.raw.len() - END;
            self.raw.drain(..excess);
            self.dropped += excess;
        }
    }

    /// Moves the first bytes into the text.
    fn make_text(&mut self, end: usize, rules: TextRules) {
        let bytes: Vec<u8> = self.raw.drain(..end).collect();
        self.text.push(&rules.text(bytes));
    }

    /// Writes the next part of the text to the file, and creates the file if it is missing. `all`
    /// is `true` if no more text follows.
    fn write(&mut self, all: bool, rules: TextRules, store: &OverflowStore) -> io::Result<()> {
        let text = self.text.next(all, rules.keys);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(PartialFile::create(store)?),
        };
        file.write(&text, store)
    }

    /// Returns the file with everything that was written. Returns `None` if nothing was written.
    fn finish(
        mut self,
        rules: TextRules,
        store: &OverflowStore,
    ) -> io::Result<Option<PartialFile>> {
        if self.raw.is_empty() && self.file.is_none() {
            return Ok(None);
        }
        if self.dropped > 0 {
            let partial_line = first_line_length(&self.raw);
            self.raw.drain(..partial_line);
            let dropped = self.dropped + partial_line;
            self.text.push(&format!("\n[… {dropped} bytes are left out here …]\n"));
        }
        self.make_text(self.raw.len(), rules);
        self.write(true, rules, store)?;
        Ok(self.file)
    }
}

impl RedactedText {
    /// Adds text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Returns the number of bytes that wait to be passed on.
    pub(super) fn waiting(&self) -> usize {
        self.text.len() - self.done
    }

    /// Returns the next part without secrets. Text near the end is buffered, because later text can
    /// show that it is a secret. With `all`, all text is passed on, because no more text follows or
    /// because a reader doesn't wait.
    pub(crate) fn next(&mut self, all: bool, keys: Option<Keys>) -> String {
        let text = &self.text;
        let end = if all {
            text.len()
        } else {
            text.floor_char_boundary(text.len().saturating_sub(AROUND)).max(self.done)
        };
        let part = match keys {
            Some(keys) => redaction::part(text, self.done, end, keys),
            None => text[self.done..end].to_owned(),
        };

        // Text before the end stays as context for the search in the next part.
        let mut context_start = text.floor_char_boundary(end.saturating_sub(AROUND));
        let mut key_header = String::new();
        // The first line of an unfinished private key is also buffered, because the key isn't
        // recognised without it.
        if keys.is_some()
            && let Some(header) = redaction::open_key(&text[..end])
            && header.start < context_start
        {
            context_start = context_start.max(header.end);
            key_header = text[header].to_owned();
        }
        self.done = key_header.len() + end - context_start;
        self.text.replace_range(..context_start, &key_header);
        part
    }
}

impl SpooledOutput {
    /// Merges both outputs into one file, in the form of an answer.
    fn new(
        files: [Option<PartialFile>; 2],
        complete: bool,
        store: &OverflowStore,
    ) -> io::Result<Self> {
        let (file, ranges) = match files {
            [Some(stdout), None] => {
                let end = stdout.bytes;
                (stdout, [0..end, end..end])
            }
            [None, Some(stderr)] => {
                let end = stderr.bytes;
                (stderr, [0..0, 0..end])
            }
            [None, None] => (PartialFile::create(store)?, [0..0, 0..0]),
            [Some(stdout), Some(stderr)] => {
                let mut file = PartialFile::create(store)?;
                let last = stdout.read(stdout.bytes.saturating_sub(1), 1)?;
                let gap = if last == *b"\n" { "\nstderr:\n" } else { "\n\nstderr:\n" };
                let ranges = [
                    append(&mut file, "stdout:\n", stdout, store)?,
                    append(&mut file, gap, stderr, store)?,
                ];
                (file, ranges)
            }
        };
        Ok(Self { file, ranges, complete })
    }

    /// Returns the next piece of an output (0 is standard output, 1 is standard error), starting at
    /// an offset in it. The piece ends with a line, unless the line is longer than a piece. At the
    /// end of the output, the piece is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn piece(&self, output: usize, offset: u64) -> io::Result<String> {
        let Range { start, end } = self.ranges[output];
        let remaining = (end - start).saturating_sub(offset);
        let mut bytes = self.file.read(start + offset, remaining.min(PIECE))?;
        let is_last = bytes.len() as u64 == remaining;
        if !is_last {
            let piece_end = match bytes.iter().rposition(|byte| *byte == b'\n') {
                Some(newline) => newline + 1,
                None => bytes.len() - unfinished(&bytes),
            };
            bytes.truncate(piece_end);
        }
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// Returns the last whole lines of an output, at most `most` bytes, and the number of bytes
    /// between the offset and these lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(crate) fn end(&self, output: usize, offset: u64, most: u64) -> io::Result<(u64, String)> {
        let Range { start, end } = self.ranges[output];
        let remaining = (end - start).saturating_sub(offset);
        let length = remaining.min(most);
        let mut bytes = self.file.read(end - length, length)?;
        if remaining > most {
            let partial_line = first_line_length(&bytes);
            bytes.drain(..partial_line);
        }
        let left_out = remaining - bytes.len() as u64;
        Ok((left_out, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Checks whether an output has anything.
    pub(crate) fn has(&self, output: usize) -> bool {
        !self.ranges[output].is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes
    }

    pub(crate) fn lines(&self) -> usize {
        self.file.lines
    }

    /// Gives the file an ID in a session.
    ///
    /// # Errors
    ///
    /// The file is gone.
    pub(crate) fn keep(self, session: &str) -> io::Result<KeptOutput> {
        let Self { file, complete, .. } = self;
        let characters = file.characters;
        let extent = if complete { Extent::Whole } else { Extent::Ends };
        Ok(KeptOutput { id: file.keep(session)?, characters, extent })
    }
}

/// Appends an output after its label, and returns the range of the output.
fn append(
    file: &mut PartialFile,
    label: &str,
    output: PartialFile,
    store: &OverflowStore,
) -> io::Result<Range<u64>> {
    file.write(label, store)?;
    let start = file.bytes;
    file.append(output, store)?;
    Ok(start..file.bytes)
}

/// A whole output that `read_overflow` can read.
#[derive(Clone, Debug)]
pub(crate) struct KeptOutput {
    pub(crate) id: OverflowId,
    pub(crate) characters: usize,
    pub(crate) extent: Extent,
}

/// A stored output while security filters replace its pieces.
pub(crate) struct Rewriting {
    store: Arc<OverflowStore>,
    files: [Option<PartialFile>; 2],
    complete: bool,
}

impl Rewriting {
    pub(crate) fn new(spooled: &SpooledOutput, store: &Arc<OverflowStore>) -> Self {
        Self { store: Arc::clone(store), files: [None, None], complete: spooled.complete }
    }

    /// Adds the next piece of an output.
    ///
    /// # Errors
    ///
    /// The disk is full.
    pub(crate) fn push(&mut self, output: usize, text: &str) -> io::Result<()> {
        let file = match &mut self.files[output] {
            Some(file) => file,
            empty => empty.insert(PartialFile::create(&self.store)?),
        };
        file.write(text, &self.store)
    }

    /// Returns the rewritten output.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk is full.
    pub(crate) fn finish(self) -> io::Result<SpooledOutput> {
        SpooledOutput::new(self.files, self.complete, &self.store)
    }
}

/// Returns the length of the first line including its line end, or 0 if there is no line end.
fn first_line_length(bytes: &[u8]) -> usize {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(newline) => newline + 1,
        None => 0,
    }
}

/// Returns the number of bytes at the end that may be the beginning of a character.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    // An unfinished character has at most three bytes.
    let end = &bytes[bytes.len().saturating_sub(3)..];
    let Some(last_chunk) = end.utf8_chunks().last() else { return 0 };
    let invalid = last_chunk.invalid();
    match std::str::from_utf8(invalid) {
        // Without an error length, more bytes could make the character valid.
        Err(error) if error.error_len().is_none() => invalid.len(),
        _ => 0,
    }
}
