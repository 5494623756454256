//! Updates the index of a project to the files that are there now, within its time.
//!
//! Documents and the table of files change in one transaction for each batch of files. So an update
//! that ends at any moment leaves an index that is right for every file in the table, and the next
//! call goes on where it ended.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use code_model::{Language, Parsed, ParserQuestion};
use toolhold_sdk::search::Entry;
use toolhold_sdk::{Call, HostError, index};

use crate::chunks;
use crate::files::{MAX_FILE, begin_of, content_of};
use crate::indexed_project::{Project, now_ms};
use crate::parse::{self, Answer};
use crate::project::Walk;
use crate::table::{File, State};
use crate::vectors;

/// Bytes of a file in no language of a parser whose words are indexed.
const MAX_PLAIN: usize = 256 << 10;

/// Bytes of the files of one batch. The documents of most batches fit into one write, which goes on
/// while the next batch is parsed.
const BATCH_BYTES: u64 = 640 << 10;

/// Files of one batch.
const BATCH_FILES: usize = 128;

/// Milliseconds in which two changes of a file may have the same time.
const SAME_TIME: u64 = 20;

/// The same, where the file system keeps only seconds, or two of them.
const SAME_SECOND: u64 = 2_100;

/// The result of an update.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that the index doesn't have yet, or not as they are now.
    pub(crate) waiting: usize,
    /// Why the update ended before it was done, unless the time was over.
    pub(crate) stopped: Option<String>,
    /// Languages whose parser is missing, and why.
    pub(crate) no_parser: BTreeMap<&'static str, String>,
}

/// A file that has been read.
struct Source<'w> {
    entry: &'w Entry,
    /// Its first [`MAX_FILE`] bytes.
    bytes: Vec<u8>,
    content: u64,
    language: Option<Language>,
    /// Whether it couldn't be read.
    is_unreadable: bool,
}

impl Project {
    /// Updates the index to the files of the walk, until `until`. Files whose paths begin with
    /// `first` go first. If the index can't be written, its documents can still be searched.
    pub(crate) fn update(
        &mut self,
        walk: &Walk,
        first: &str,
        call: &Call,
        until: Instant,
    ) -> Report {
        let mut report = Report::default();
        if let Err(error) = self.try_update(walk, first, call, until, &mut report) {
            report.stopped = Some(match &*error.code {
                "limit" => "the index is full; raise `max_mib` in `[index]`".to_owned(),
                _ => error.message,
            });
        }
        report
    }

    fn try_update(
        &mut self,
        walk: &Walk,
        first: &str,
        call: &Call,
        until: Instant,
        report: &mut Report,
    ) -> Result<(), HostError> {
        let now = now_ms();
        if !walk.incomplete {
            self.remove_missing(walk)?;
        }
        let mut changed: Vec<&Entry> =
            walk.files.iter().filter(|entry| self.is_changed(entry)).collect();
        report.waiting = changed.len();
        self.report_missing_parsers(report);
        if changed.is_empty() {
            return self.note_use(now);
        }
        changed.sort_by_key(|entry| !entry.path.starts_with(first));
        let all = changed.len();
        let mut rest = &changed[..];
        while !rest.is_empty() && Instant::now() < until && !call.cancelled() {
            let batch = next_batch(rest);
            rest = &rest[batch.len()..];
            let unreached = self.update_batch(batch, now, until)?;
            report.waiting = rest.len() + unreached;
            if unreached > 0 {
                break;
            }
            if !rest.is_empty() {
                let done = all - rest.len();
                #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
                let fraction = done as f64 / all as f64;
                call.progress(fraction, &format!("Indexing: {done} of {all} files"));
            }
        }
        self.report_missing_parsers(report);
        self.note_use(now)?;
        // The last write may still go on: its error is that of the next operation.
        index::get(&[self.info_key()]).map(drop)
    }

    /// Whether a file has to be read.
    fn is_changed(&self, entry: &Entry) -> bool {
        let Some(file) = self.table.get(&entry.path) else { return true };
        if (file.size, file.modified_ms) != (entry.size, entry.modified_ms) {
            return true;
        }
        match file.state {
            State::TooNew => true,
            State::NoParser => {
                Language::from_file_name(&file.path).is_some_and(parse::is_available)
            }
            State::Parsed | State::Words | State::Nothing => false,
        }
    }

    fn report_missing_parsers(&self, report: &mut Report) {
        let languages: BTreeSet<Language> = self
            .table
            .files()
            .filter(|file| file.state == State::NoParser)
            .filter_map(|file| Language::from_file_name(&file.path))
            .collect();
        for language in languages {
            if let Err(why) = parse::availability(language) {
                report.no_parser.insert(language.name(), why);
            }
        }
    }

    /// Takes files out of the index that are gone, or that may no longer be read.
    fn remove_missing(&mut self, walk: &Walk) -> Result<(), HostError> {
        let known = walk.files.iter().filter(|entry| self.table.get(&entry.path).is_some());
        if known.count() == self.table.len() {
            return Ok(());
        }
        let present: HashSet<&str> = walk.files.iter().map(|entry| entry.path.as_str()).collect();
        let missing: Vec<File> = self
            .table
            .files()
            .filter(|file| !present.contains(file.path.as_str()))
            .cloned()
            .collect();
        missing.iter().for_each(|file| self.table.remove(&file.path));
        self.write(Vec::new())?;
        missing.iter().try_for_each(|file| self.delete_documents(&file.path))
    }

    /// Updates some files. Returns how many of them the time of the call didn't reach.
    fn update_batch(
        &mut self,
        batch: &[&Entry],
        now: u64,
        until: Instant,
    ) -> Result<usize, HostError> {
        let mut sources: Vec<Source<'_>> = batch.iter().map(|entry| self.read(entry)).collect();
        sources.retain(|source| !self.keeps_documents(source, now));
        let to_parse: Vec<_> = sources.iter().map(Source::to_parse).collect();
        let parsed = parse::parse_all(&to_parse, ParserQuestion::Chunks, until, &mut self.pace);
        let mut documents = Vec::new();
        let mut outdated = Vec::new();
        let mut unreached = 0;
        for (source, parsed) in sources.iter().zip(parsed) {
            let Entry { size, modified_ms, .. } = *source.entry;
            let (parsed, state) = match parsed {
                Answer::Unreached => {
                    unreached += 1;
                    continue;
                }
                Answer::Parsed(parsed) => (parsed, State::Parsed),
                // It would fail again.
                Answer::Failed(_) => (source.words(), State::Words),
                Answer::Unknown => (source.words(), State::Words),
                Answer::Missing => (source.words(), State::NoParser),
            };
            let path = source.entry.path.clone();
            let mut file = File { path, size, modified_ms, content: source.content, state };
            let mut known = BTreeMap::new();
            match self.table.get(&file.path) {
                Some(old) => {
                    let prefix = self.file_prefix(old);
                    known = vectors::of_chunks(&prefix)?;
                    if old.content != file.content {
                        outdated.push(prefix);
                    }
                }
                // Another process may have left documents of a file that this table lacks.
                None if self.known => self.delete_documents(&file.path)?,
                _ => {}
            }
            if source.is_text() {
                let mut chunks = chunks::documents(&self.file_prefix(&file), parsed);
                vectors::keep(&mut chunks, &known)?;
                documents.append(&mut chunks);
            } else {
                file.state = State::Nothing;
            }
            if source.is_unreadable || is_too_new(source.entry, now) {
                file.state = State::TooNew;
            }
            self.table.insert(file);
        }
        self.write(documents)?;
        outdated.iter().try_for_each(|prefix| index::delete_prefix(prefix).map(drop))?;
        Ok(unreached)
    }

    /// Whether the documents of a file stay: it only got a new time.
    fn keeps_documents(&mut self, source: &Source<'_>, now: u64) -> bool {
        if source.is_unreadable || is_too_new(source.entry, now) {
            return false;
        }
        let unchanged = self.table.get(&source.entry.path).filter(|old| {
            old.content == source.content
                && matches!(old.state, State::Parsed | State::Words | State::Nothing)
        });
        let Some(old) = unchanged.cloned() else { return false };
        let Entry { size, modified_ms, .. } = *source.entry;
        self.table.insert(File { size, modified_ms, ..old });
        true
    }

    /// Reads a file. A file that can't be read counts as empty, and is tried again.
    fn read<'e>(&self, entry: &'e Entry) -> Source<'e> {
        let read = begin_of(&self.absolute(&entry.path));
        let is_unreadable = read.is_err();
        let bytes = read.unwrap_or_default();
        let language = Language::detect(&entry.path, &bytes);
        Source { entry, content: content_of(&bytes, entry.size), bytes, language, is_unreadable }
    }
}

impl Source<'_> {
    fn is_text(&self) -> bool {
        memchr::memchr(0, &self.bytes).is_none()
    }

    /// The input of a parser: a whole file of text.
    fn to_parse(&self) -> Option<(Language, &[u8])> {
        let language = self.language?;
        let is_whole = self.bytes.len() as u64 >= self.entry.size;
        (is_whole && self.is_text()).then_some((language, self.bytes.as_slice()))
    }

    /// The words of the file, for the index, without a parser.
    fn words(&self) -> Parsed {
        if !self.is_text() {
            return Parsed::default();
        }
        let most = if self.language.is_some() { MAX_FILE } else { MAX_PLAIN };
        let text = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(most)]);
        Parsed { chunks: code_model::chunks(&text, &[]), ..Parsed::default() }
    }
}

/// The next files to read together, at least one.
fn next_batch<'a, 'e>(files: &'a [&'e Entry]) -> &'a [&'e Entry] {
    let mut bytes = 0;
    let fit = files.iter().take(BATCH_FILES).take_while(|entry| {
        bytes += entry.size.min(MAX_FILE as u64);
        bytes <= BATCH_BYTES
    });
    &files[..fit.count().max(1)]
}

/// Whether a change at this moment could leave the time of the file as it is.
fn is_too_new(entry: &Entry, now: u64) -> bool {
    let window = if entry.modified_ms.is_multiple_of(1000) { SAME_SECOND } else { SAME_TIME };
    now.abs_diff(entry.modified_ms) <= window
}
