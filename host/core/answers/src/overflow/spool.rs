//! Keeps the whole output of a command that is too long for an answer: written to a file without
//! secrets while the command runs, for `read_overflow` and for filters.

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

/// Bytes of one output that wait in memory. Only a longer output needs a file while its command
/// runs: a shorter one is in the answer.
const IN_MEMORY: usize = 1 << 20;

/// Bytes that are kept of the end of an output whose middle is too long.
const END: usize = 256 << 10;

/// Bytes before and behind a place in an output that decide what is a secret there. No secret is
/// longer, and none is farther from its key.
pub(super) const AROUND: usize = 16 << 10;

/// Bytes of a piece for filters.
const PIECE: u64 = 4 << 20;

/// Keeps the outputs of the command of a call. Little is only kept in memory, so most commands need
/// no file.
pub struct Spool {
    store: Arc<OverflowStore>,
    rules: TextRules,
    pending: Mutex<Pending>,
}

/// The output that isn't kept yet.
#[derive(Default)]
struct Pending {
    /// The last bytes of standard output and of standard error.
    bytes: [Vec<u8>; 2],
    /// Takes them when they are many: the work for them is no processor time of the call.
    writer: Option<Writer>,
    failure: Option<io::Error>,
}

/// The thread that keeps outputs.
struct Writer {
    chunks: SyncSender<(usize, Vec<u8>)>,
    thread: JoinHandle<Outputs>,
}

/// How bytes become a text that may be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRules {
    pub(crate) kind: Kind,
    /// `None`: secrets stay.
    pub(crate) keys: Option<Keys>,
}

impl TextRules {
    /// Returns the text that a terminal would show of these bytes, without characters that steer
    /// one.
    pub(super) fn text(self, bytes: Vec<u8>) -> String {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        self.shown(text)
    }

    /// The same of a text.
    pub(crate) fn shown(self, text: String) -> String {
        neutral_owned(self.kind.shown(text))
    }
}

/// Standard output and standard error.
#[derive(Default)]
struct Outputs {
    each: [StreamSpool; 2],
    /// Why nothing can be kept.
    failure: Option<io::Error>,
}

/// The kept part of one output.
#[derive(Default)]
struct StreamSpool {
    /// The last bytes, not yet a text.
    raw: Vec<u8>,
    /// Bytes that were dropped before `raw`.
    dropped: usize,
    text: RedactedText,
    file: Option<PartialFile>,
}

/// A text that comes in pieces, and goes on without secrets.
#[derive(Debug, Default)]
pub(crate) struct RedactedText {
    /// The end of what went on already, then the rest.
    text: String,
    /// Bytes of `text` that went on already.
    done: usize,
}

/// The kept output of a command that has ended. Without an ID it is removed.
#[derive(Debug)]
pub(crate) struct SpooledOutput {
    file: PartialFile,
    /// Where standard output and standard error are in the file.
    ranges: [Range<u64>; 2],
    /// Whether the middle is there too.
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
        if waiting.len() > IN_MEMORY {
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

    /// The outputs. May wait for the disk.
    ///
    /// # Errors
    ///
    /// The outputs can't be kept.
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
            *self = Self { failure: Some(error), ..Self::default() };
        }
    }
}

impl StreamSpool {
    fn written(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.bytes)
    }

    /// Adds bytes. `room`: bytes that may still be written to the disk.
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
        // The ends of both outputs need room too. A byte that isn't text takes three.
        if room < 3 * (self.raw.len() + 4 * END) as u64 {
            if self.raw.len() > 2 * END {
                let dropped = self.raw.len() - END;
                self.raw.drain(..dropped);
                self.dropped += dropped;
            }
            return Ok(());
        }
        // A line that isn't too long stays whole, and so does a character.
        let end = match self.raw.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None => self.raw.len() - unfinished(&self.raw),
        };
        self.make_text(end, rules);
        self.write(false, rules, store)
    }

    /// Moves the first bytes into the text.
    fn make_text(&mut self, end: usize, rules: TextRules) {
        let bytes: Vec<u8> = self.raw.drain(..end).collect();
        self.text.push(&rules.text(bytes));
    }

    fn write(&mut self, all: bool, rules: TextRules, store: &OverflowStore) -> io::Result<()> {
        let text = self.text.next(all, rules.keys);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(PartialFile::create(store)?),
        };
        file.write(&text, store)
    }

    /// The file with everything that was written. `None` if nothing was.
    fn finish(
        mut self,
        rules: TextRules,
        store: &OverflowStore,
    ) -> io::Result<Option<PartialFile>> {
        if self.raw.is_empty() && self.file.is_none() {
            return Ok(None);
        }
        if self.dropped > 0 {
            let line = self.raw.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.raw.drain(..line);
            let dropped = self.dropped + line;
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

    /// Bytes that didn't go on yet.
    pub(super) fn waiting(&self) -> usize {
        self.text.len() - self.done
    }

    /// The next part without secrets. `all`: all of the text, since no more follows, or a reader
    /// doesn't wait for it.
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
        let mut begin = text.floor_char_boundary(end.saturating_sub(AROUND));
        // Without its first line, the rest of a key wouldn't be known as one.
        let key = redaction::open_key(&text[..end]).filter(|key| key.start < begin);
        let first = match key {
            Some(key) if keys.is_some() => {
                begin = begin.max(key.end);
                text[key].to_owned()
            }
            _ => String::new(),
        };
        self.done = first.len() + end - begin;
        self.text.replace_range(..begin, &first);
        part
    }
}

impl SpooledOutput {
    /// Puts both outputs into one file, in the form of an answer.
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

    /// The next piece of an output (0: standard output, 1: standard error) from an offset in it. It
    /// ends with a line, unless a line is longer than a piece. Empty at the end.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub(crate) fn piece(&self, output: usize, offset: u64) -> io::Result<String> {
        let Range { start, end } = self.ranges[output];
        let left = (end - start).saturating_sub(offset);
        let mut bytes = self.file.read(start + offset, left.min(PIECE))?;
        if (bytes.len() as u64) < left {
            let line = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
            bytes.truncate(line.unwrap_or(bytes.len() - unfinished(&bytes)));
        }
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// The last whole lines of an output from an offset in it, of at most `most` bytes, and how
    /// many bytes are before them.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub(crate) fn end(&self, output: usize, offset: u64, most: u64) -> io::Result<(u64, String)> {
        let Range { start, end } = self.ranges[output];
        let left = (end - start).saturating_sub(offset);
        let mut bytes = self.file.read(end - left.min(most), most)?;
        // Of two outputs, the second may follow.
        bytes.truncate(usize::try_from(left.min(most)).map_err(io::Error::other)?);
        if left > most {
            let line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            bytes.drain(..line);
        }
        let left_out = left - bytes.len() as u64;
        Ok((left_out, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Whether an output has anything.
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

/// Appends an output with its label, and returns the range of the output.
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

/// A kept output while its pieces are replaced by what security filters leave of them.
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

    /// # Errors
    ///
    /// The disk is full.
    pub(crate) fn finish(self) -> io::Result<SpooledOutput> {
        SpooledOutput::new(self.files, self.complete, &self.store)
    }
}

/// Bytes at the end that may be the beginning of a character.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    let end = &bytes[bytes.len().saturating_sub(3)..];
    let last = end.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_cut = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    if is_cut { last.len() } else { 0 }
}
