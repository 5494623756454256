//! Stores the whole output of a command for `read_overflow` and for filters. The output is redacted
//! and written to a file while the command runs.

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

/// Maximum number of buffered bytes of one output. A longer output is written to a file.
const IN_MEMORY: usize = 1 << 20;

/// Number of bytes that are stored from the end of an output whose middle is dropped.
const END: usize = 256 << 10;

/// Number of bytes before and after a position that redaction reads to find a secret at the
/// position. Secrets are shorter.
pub(super) const AROUND: usize = 16 << 10;

/// Maximum length of a piece of an output for filters, in bytes.
const PIECE: u64 = 4 << 20;

/// Stores the output of a command. A short output stays in memory, so most commands need no file.
pub struct Spool {
    store: Arc<OverflowStore>,
    rules: TextRules,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// The last bytes of standard output and of standard error.
    bytes: [Vec<u8>; 2],
    /// Writes long output on another thread, because the call must not spend its processor time on
    /// writing.
    writer: Option<Writer>,
    failure: Option<io::Error>,
}

struct Writer {
    chunks: SyncSender<(usize, Vec<u8>)>,
    thread: JoinHandle<Outputs>,
}

impl Writer {
    /// Waits until the thread has stored all chunks.
    fn finish(self) -> io::Result<Outputs> {
        // The thread ends when the sender is dropped.
        drop(self.chunks);
        self.thread
            .join()
            .map_err(|_| io::Error::other("the thread that stores the output has crashed"))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRules {
    pub(crate) kind: Kind,
    /// How strictly the text is redacted. `None` if redaction is disabled.
    pub(crate) keys: Option<Keys>,
}

impl TextRules {
    /// Converts bytes to text, and cleans the text with [`shown`](Self::shown).
    pub(super) fn text(self, bytes: Vec<u8>) -> String {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        self.shown(text)
    }

    /// Returns a text as a terminal shows it, without control characters.
    pub(crate) fn shown(self, text: String) -> String {
        neutral_owned(self.kind.shown(text))
    }
}

#[derive(Default)]
struct Outputs {
    streams: [StreamSpool; 2],
    /// The reason why storing failed.
    failure: Option<io::Error>,
}

#[derive(Default)]
struct StreamSpool {
    /// The last bytes, which aren't text yet.
    raw: Vec<u8>,
    /// The number of bytes that were dropped from the middle.
    dropped: usize,
    text: RedactedText,
    file: Option<PartialFile>,
}

/// Redacts a text that arrives in pieces. A secret can begin in one piece and end in the next.
#[derive(Debug, Default)]
pub(crate) struct RedactedText {
    /// The context, which was already passed on, followed by the buffered text.
    text: String,
    /// Length of the context in bytes.
    context_length: usize,
}

/// The stored output of an ended command. A drop without an ID removes the file.
#[derive(Debug)]
pub(crate) struct SpooledOutput {
    file: PartialFile,
    /// The ranges of standard output and of standard error in the file.
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
        let index = match stream {
            OutputStream::Stdout => 0,
            OutputStream::Stderr => 1,
        };
        let waiting = &mut pending.bytes[index];
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
        // If the thread has crashed, `finish` returns the error.
        let _ = writer.chunks.send((index, chunk));
    }
}

impl Spool {
    pub(crate) fn new(store: Arc<OverflowStore>, rules: TextRules) -> Self {
        Self { store, rules, pending: Mutex::default() }
    }

    fn start_writer(&self) -> io::Result<Writer> {
        // At most one chunk waits for the thread, because a fast command must not fill the memory.
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

    /// Returns the stored output. The function may wait for the disk.
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
            Some(writer) => writer.finish()?,
            None => Outputs::default(),
        };
        for (stream, bytes) in pending.bytes.iter().enumerate() {
            outputs.push(stream, bytes, self.rules, &self.store);
        }
        if let Some(error) = outputs.failure {
            return Err(error);
        }
        let complete = outputs.streams.iter().all(|output| output.dropped == 0);
        let [stdout, stderr] = outputs.streams.map(|output| output.finish(self.rules, &self.store));
        SpooledOutput::new([stdout?, stderr?], complete, &self.store)
    }
}

impl Outputs {
    /// Adds bytes of standard output (0) or standard error (1). After a failure, nothing is stored.
    fn push(&mut self, stream: usize, bytes: &[u8], rules: TextRules, store: &OverflowStore) {
        if self.failure.is_some() {
            return;
        }
        let written: u64 = self.streams.iter().map(StreamSpool::written).sum();
        let writable_bytes = store.spool_bytes().saturating_sub(written);
        if let Err(error) = self.streams[stream].push(bytes, writable_bytes, rules, store) {
            // Dropping the outputs removes their files.
            self.streams = Default::default();
            self.failure = Some(error);
        }
    }
}

impl StreamSpool {
    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.bytes)
    }

    /// Adds bytes. `writable_bytes` is the number of bytes that may still be written to files. If
    /// more bytes could be needed, the middle of the output is dropped.
    fn push(
        &mut self,
        bytes: &[u8],
        writable_bytes: u64,
        rules: TextRules,
        store: &OverflowStore,
    ) -> io::Result<()> {
        self.raw.extend_from_slice(bytes);
        if self.raw.len() <= IN_MEMORY {
            return Ok(());
        }
        // Each of the two outputs may still have `2 * END` bytes in memory, which are written at
        // the end of the command.
        let in_memory_later = 2 * (2 * END);
        // The text can be three times as long, because each invalid byte becomes a character of
        // three bytes.
        let needed = 3 * (self.raw.len() + in_memory_later) as u64;
        if writable_bytes < needed {
            self.drop_middle();
            return Ok(());
        }
        // Cut after a whole line, or after a whole character if the line is very long.
        let end = match self.raw.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None => self.raw.len() - unfinished(&self.raw),
        };
        self.make_text(end, rules);
        let text = self.text.take_ready(rules.keys);
        self.write(&text, store)
    }

    fn drop_middle(&mut self) {
        if self.raw.len() > 2 * END {
            let excess = self.raw.len() - END;
            self.raw.drain(..excess);
            self.dropped += excess;
        }
    }

    fn make_text(&mut self, end: usize, rules: TextRules) {
        let bytes: Vec<u8> = self.raw.drain(..end).collect();
        self.text.push(&rules.text(bytes));
    }

    /// Appends a text to the file. The first text creates the file.
    fn write(&mut self, text: &str, store: &OverflowStore) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(PartialFile::create(store)?),
        };
        file.write(text, store)
    }

    /// Returns the file. `None` means that the output was empty.
    fn finish(
        mut self,
        rules: TextRules,
        store: &OverflowStore,
    ) -> io::Result<Option<PartialFile>> {
        if self.raw.is_empty() && self.file.is_none() {
            return Ok(None);
        }
        if self.dropped > 0 {
            // The middle may end within a line, so also drop the rest of this line.
            let partial_line = first_line_length(&self.raw);
            self.raw.drain(..partial_line);
            let dropped = self.dropped + partial_line;
            self.text.push(&format!("\n[… {dropped} bytes are left out here …]\n"));
        }
        self.make_text(self.raw.len(), rules);
        let text = self.text.take_all(rules.keys);
        self.write(&text, store)?;
        Ok(self.file)
    }
}

impl RedactedText {
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn waiting(&self) -> usize {
        self.text.len() - self.context_length
    }

    /// Returns the text that is ready, after redaction. Text near the end stays in the buffer,
    /// because the next text can show that a secret has begun.
    pub(crate) fn take_ready(&mut self, keys: Option<Keys>) -> String {
        let before_buffer = self.text.len().saturating_sub(AROUND);
        let end = self.text.floor_char_boundary(before_buffer).max(self.context_length);
        self.take_until(end, keys)
    }

    /// Returns all buffered text after redaction.
    pub(crate) fn take_all(&mut self, keys: Option<Keys>) -> String {
        self.take_until(self.text.len(), keys)
    }

    /// Returns the buffered text up to `end` after redaction. The text just before `end` stays in
    /// the buffer, because the next redaction needs it to recognise a secret that begins there.
    fn take_until(&mut self, end: usize, keys: Option<Keys>) -> String {
        let text = &self.text;
        let part = match keys {
            Some(keys) => redaction::part(text, self.context_length, end, keys),
            None => text[self.context_length..end].to_owned(),
        };

        let mut context_start = text.floor_char_boundary(end.saturating_sub(AROUND));
        let mut key_header = String::new();
        // Redaction recognises a private key only by its first line, so keep that line if the key
        // isn't finished yet.
        if keys.is_some()
            && let Some(header) = redaction::open_key(&text[..end])
            && header.start < context_start
        {
            // The line may end within the context, which must not contain that part twice.
            context_start = context_start.max(header.end);
            key_header = text[header].to_owned();
        }
        self.context_length = key_header.len() + (end - context_start);
        self.text.replace_range(..context_start, &key_header);
        part
    }
}

impl SpooledOutput {
    /// Merges standard output and standard error into one file, in the format of an answer. A
    /// single output keeps its file.
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
                let last_byte = stdout.read(stdout.bytes.saturating_sub(1), 1)?;
                let stderr_label =
                    if last_byte == *b"\n" { "\nstderr:\n" } else { "\n\nstderr:\n" };
                let ranges = [
                    append(&mut file, "stdout:\n", stdout, store)?,
                    append(&mut file, stderr_label, stderr, store)?,
                ];
                (file, ranges)
            }
        };
        Ok(Self { file, ranges, complete })
    }

    /// Returns the next piece of `output` (0 is standard output, 1 is standard error) from
    /// `offset`. A piece ends with a whole line, unless the line is longer than a piece. After the
    /// end of the output, pieces are empty.
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

    /// Returns the last whole lines of an output, at most `most` bytes. The first returned value is
    /// the number of omitted bytes after `offset`.
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

    pub(crate) fn has(&self, output: usize) -> bool {
        !self.ranges[output].is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes
    }

    pub(crate) fn lines(&self) -> usize {
        self.file.lines
    }

    /// Gives the stored output an ID in a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has been removed.
    pub(crate) fn keep(self, session: &str) -> io::Result<KeptOutput> {
        let Self { file, complete, .. } = self;
        let characters = file.characters;
        let extent = if complete { Extent::Whole } else { Extent::Ends };
        Ok(KeptOutput { id: file.keep(session)?, characters, extent })
    }
}

/// Appends a label and an output to the file. Returns the range of the output.
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

#[derive(Clone, Debug)]
pub(crate) struct KeptOutput {
    pub(crate) id: OverflowId,
    pub(crate) characters: usize,
    pub(crate) extent: Extent,
}

/// Writes a new file for a stored output, because security filters replace its pieces.
pub(crate) struct Rewriting {
    store: Arc<OverflowStore>,
    files: [Option<PartialFile>; 2],
    complete: bool,
}

impl Rewriting {
    pub(crate) fn new(spooled: &SpooledOutput, store: &Arc<OverflowStore>) -> Self {
        Self { store: Arc::clone(store), files: [None, None], complete: spooled.complete }
    }

    /// Appends text to the new standard output (0) or standard error (1).
    ///
    /// # Errors
    ///
    /// Returns an error if the disk is full.
    pub(crate) fn push(&mut self, output: usize, text: &str) -> io::Result<()> {
        let file = match &mut self.files[output] {
            Some(file) => file,
            empty => empty.insert(PartialFile::create(&self.store)?),
        };
        file.write(text, &self.store)
    }

    /// # Errors
    ///
    /// Returns an error if the disk is full.
    pub(crate) fn finish(self) -> io::Result<SpooledOutput> {
        SpooledOutput::new(self.files, self.complete, &self.store)
    }
}

fn first_line_length(bytes: &[u8]) -> usize {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(newline) => newline + 1,
        None => 0,
    }
}

/// Returns the number of bytes at the end that may be the beginning of a character.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    // At most three bytes of a character can be here without its last byte.
    let end = &bytes[bytes.len().saturating_sub(3)..];
    let Some(last_chunk) = end.utf8_chunks().last() else {
        return 0;
    };
    let invalid = last_chunk.invalid();
    match std::str::from_utf8(invalid) {
        Err(error) if error.error_len().is_none() => invalid.len(),
        _ => 0,
    }
}
