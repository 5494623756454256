//! Brings the index of a project up to date.
//!
//! Documents and the table of files change in one transaction for each batch of files. So an update
//! that ends at any moment leaves an index that is right for every file in the table, and the next
//! call goes on where it ended.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::Read;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use code_model::{Language, Parsed, ParserQuestion};
use serde::{Deserialize, Serialize};
use toolhold_sdk::index::{self, Document};
use toolhold_sdk::search::Entry;
use toolhold_sdk::{Call, HostError};

use crate::chunks;
use crate::hash::{hash, hex};
use crate::parse::{self, Answer, Pace};
use crate::project::Walk;
use crate::table::{File, State, Table};
use crate::vectors;

/// The form of the index. An index of another form is made anew.
const FORM: u32 = 2;

/// Bytes of a file that are read: a larger one is known by the words of its begin.
pub(crate) const MAX_FILE: usize = 1 << 20;

/// Bytes of a file in no language of a parser whose words are indexed.
const MAX_PLAIN: usize = 256 << 10;

/// Bytes of the files of one batch. The documents of most batches fit into one write, which goes on
/// while the next batch is parsed.
const BATCH_BYTES: u64 = 640 << 10;

/// Files of one batch.
const BATCH_FILES: usize = 128;

/// Documents, and their bytes, in one transaction: what the host takes.
const MOST_DOCUMENTS: usize = 1000;
const MOST_BYTES: usize = 7 << 20;

/// Milliseconds in which two changes of a file may have the same time.
const SAME_TIME: u64 = 20;

/// The same, where the file system keeps only seconds, or two of them.
const SAME_SECOND: u64 = 2_100;

/// Milliseconds after which the use of a project is noted anew.
const USE_NOTED: u64 = 3_600_000;

/// A project of the index.
#[derive(Debug)]
pub(crate) struct Project {
    /// The folder.
    pub(crate) root: String,
    /// Its short name in keys.
    id: String,
    pub(crate) table: Table,
    pub(crate) info: Info,
    /// Whether the index had the project before this call.
    known: bool,
    pace: Pace,
}

/// What is kept of a project beside its files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Info {
    root: String,
    form: u32,
    used_ms: u64,
    /// The models whose vectors chunks may have.
    #[serde(default)]
    pub(crate) models: Vec<String>,
}

/// What an update did.
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
    /// The project with this folder, as the index has it.
    ///
    /// # Errors
    ///
    /// The index can't be read.
    pub(crate) fn open(root: &str) -> Result<Self, HostError> {
        let id = hex(root.as_bytes());
        let mut project = Self {
            root: root.to_owned(),
            table: Table::default(),
            info: Info { root: root.to_owned(), form: FORM, ..Info::default() },
            known: false,
            pace: Pace::default(),
            id,
        };
        let found = index::get(&[project.info_key()])?.pop().flatten();
        let Some(found) = found else { return Ok(project) };
        let info: Info = serde_json::from_slice(&found.data).unwrap_or_default();
        project.known = true;
        if info.form != FORM || info.root != root {
            remove_project(&project.id)?;
            project.known = false;
            return Ok(project);
        }
        project.info = info;
        let mut shards: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for entry in index::list(&format!("t/{}/", project.id)) {
            let entry = entry?;
            let number = entry.key.rsplit('/').next().and_then(|number| number.parse().ok());
            number.map(|number| shards.insert(number, entry.data));
        }
        let most = shards.keys().next_back().map_or(0, |last| last + 1).min(1 << 16);
        let none = Vec::new();
        project.table =
            Table::decode((0..most).map(|number| shards.get(&number).unwrap_or(&none).as_slice()));
        Ok(project)
    }

    /// Forgets what is known of files, so that the next update reads them.
    pub(crate) fn forget(&mut self, paths: &BTreeSet<String>) {
        paths.iter().for_each(|path| self.table.remove(path));
    }

    /// The begin of the keys of all its documents.
    pub(crate) fn prefix(&self) -> String {
        format!("c/{}/", self.id)
    }

    /// The begin of the keys of a file's documents.
    pub(crate) fn file_prefix(&self, file: &File) -> String {
        format!("c/{}/{}/{:016x}/", self.id, hex(file.path.as_bytes()), file.content)
    }

    /// The file that a document is of. `None`: the document is of a content that no longer counts.
    pub(crate) fn file_of(&self, key: &str) -> Option<&File> {
        let mut parts = key.strip_prefix("c/")?.split('/');
        let (project, path, content) = (parts.next()?, parts.next()?, parts.next()?);
        let file = self.table.with_hash(u64::from_str_radix(path, 16).ok()?)?;
        let same = project == self.id && u64::from_str_radix(content, 16) == Ok(file.content);
        same.then_some(file)
    }

    fn info_key(&self) -> String {
        format!("p/{}", self.id)
    }

    /// Updates the index to what the walk found, until `until`. Files whose paths begin with
    /// `first` go first. If the index can't be written, what it holds can still be searched.
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
        let (mut documents, mut outdated, mut unreached) = (Vec::new(), Vec::new(), 0);
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
        let settled = |old: &&File| {
            old.content == source.content
                && matches!(old.state, State::Parsed | State::Words | State::Nothing)
        };
        let old = self.table.get(&source.entry.path).filter(settled).cloned();
        let keeps = !source.is_unreadable && !is_too_new(source.entry, now);
        let Some(old) = old.filter(|_| keeps) else { return false };
        let Entry { size, modified_ms, .. } = *source.entry;
        self.table.insert(File { size, modified_ms, ..old });
        true
    }

    /// Reads a file. What can't be read counts as empty, and is tried again.
    fn read<'e>(&self, entry: &'e Entry) -> Source<'e> {
        let read = begin_of(&self.absolute(&entry.path));
        let is_unreadable = read.is_err();
        let bytes = read.unwrap_or_default();
        let language = Language::detect(&entry.path, &bytes);
        Source { entry, content: content_of(&bytes, entry.size), bytes, language, is_unreadable }
    }

    /// The absolute path of a file.
    pub(crate) fn absolute(&self, path: &str) -> String {
        format!("{}/{path}", self.root.trim_end_matches('/'))
    }

    /// Writes documents, and then the shards of the table that changed with them: a file in the
    /// table has all of its documents.
    pub(crate) fn write(&mut self, documents: Vec<Document>) -> Result<(), HostError> {
        let mut all = documents;
        if self.info.used_ms == 0 {
            self.info.used_ms = now_ms();
            all.insert(0, self.info_document());
        }
        let shards = self.table.take_changed().into_iter().map(|(number, data)| Document {
            key: format!("t/{}/{number:05}", self.id),
            data,
            ..Document::default()
        });
        all.extend(shards);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for document in all {
            let size = document.text.len()
                + document.data.len()
                + document.vector.as_ref().map_or(0, Vec::len)
                + document.key.len();
            if batch.len() == MOST_DOCUMENTS || bytes + size > MOST_BYTES {
                self.put(std::mem::take(&mut batch))?;
                bytes = 0;
            }
            bytes += size;
            batch.push(document);
        }
        if batch.is_empty() { Ok(()) } else { self.put(batch) }
    }

    /// Writes, and makes room for it where the index is full.
    fn put(&self, documents: Vec<Document>) -> Result<(), HostError> {
        loop {
            match index::put(documents.clone()) {
                Err(error) if error.code == "limit" => {
                    if !remove_oldest_project(&self.id)? {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    fn delete_documents(&self, path: &str) -> Result<(), HostError> {
        index::delete_prefix(&format!("c/{}/{}/", self.id, hex(path.as_bytes()))).map(drop)
    }

    pub(crate) fn info_document(&self) -> Document {
        let data = serde_json::to_vec(&self.info).unwrap_or_default();
        Document { key: self.info_key(), data, ..Document::default() }
    }

    /// Notes that the project was used, so that others go first.
    fn note_use(&mut self, now: u64) -> Result<(), HostError> {
        if now.saturating_sub(self.info.used_ms) < USE_NOTED {
            return Ok(());
        }
        self.info.used_ms = now;
        self.put(vec![self.info_document()])
    }
}

impl Source<'_> {
    fn is_text(&self) -> bool {
        memchr::memchr(0, &self.bytes).is_none()
    }

    /// What a parser gets: a whole file of text.
    fn to_parse(&self) -> Option<(Language, &[u8])> {
        let whole = self.bytes.len() as u64 >= self.entry.size;
        self.language
            .filter(|_| whole && self.is_text())
            .map(|language| (language, self.bytes.as_slice()))
    }

    /// What the index gets of it without a parser.
    fn words(&self) -> Parsed {
        if !self.is_text() {
            return Parsed::default();
        }
        let most = if self.language.is_some() { MAX_FILE } else { MAX_PLAIN };
        let text = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(most)]);
        Parsed { chunks: code_model::chunks(&text, &[]), ..Parsed::default() }
    }
}

/// Takes the project that wasn't used for longest out of the index. False: there is no other.
fn remove_oldest_project(own: &str) -> Result<bool, HostError> {
    let mut oldest: Option<(u64, String)> = None;
    for entry in index::list("p/") {
        let entry = entry?;
        let id = entry.key.trim_start_matches("p/").to_owned();
        let info: Info = serde_json::from_slice(&entry.data).unwrap_or_default();
        if id != own && oldest.as_ref().is_none_or(|(used, _)| info.used_ms < *used) {
            oldest = Some((info.used_ms, id));
        }
    }
    let Some((_, id)) = oldest else { return Ok(false) };
    remove_project(&id)?;
    Ok(true)
}

/// Takes a project out of the index: first the table, without which nothing of it counts.
fn remove_project(id: &str) -> Result<(), HostError> {
    index::delete_prefix(&format!("t/{id}/"))?;
    index::delete_prefix(&format!("c/{id}/"))?;
    index::delete(&[format!("p/{id}")])
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

/// The first [`MAX_FILE`] bytes of a file.
///
/// # Errors
///
/// Those of opening and reading it.
pub(crate) fn begin_of(path: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The hash of a file's content, of which `bytes` are the first.
pub(crate) fn content_of(bytes: &[u8], size: u64) -> u64 {
    if bytes.len() < MAX_FILE { hash(bytes) } else { hash(bytes) ^ size }
}

/// Whether a change at this moment could leave the time of the file as it is.
fn is_too_new(entry: &Entry, now: u64) -> bool {
    let window = if entry.modified_ms.is_multiple_of(1000) { SAME_SECOND } else { SAME_TIME };
    now.abs_diff(entry.modified_ms) <= window
}

pub(crate) fn now_ms() -> u64 {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}
