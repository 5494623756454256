//! Stores a project in the index: its files and their documents, and removes the oldest project to
//! make room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolhold_sdk::HostError;
use toolhold_sdk::index::{self, Document};

use crate::hash::hex;
use crate::parse::Pace;
use crate::table::{File, Table};

/// The form of the index. An index of another form is made again.
const FORM: u32 = 2;

/// Most documents, and most bytes of them, in one transaction of the host.
const MOST_DOCUMENTS: usize = 1000;
const MOST_BYTES: usize = 7 << 20;

/// Milliseconds after which the use of a project is noted again.
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
    pub(crate) known: bool,
    pub(crate) pace: Pace,
}

/// The data that is kept of a project in addition to its files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Info {
    root: String,
    form: u32,
    used_ms: u64,
    /// The models whose vectors chunks may have.
    #[serde(default)]
    pub(crate) models: Vec<String>,
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

    /// Forgets the states of files, so that the next update reads them.
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

    /// The file of a document. `None`: the document is of an outdated content.
    pub(crate) fn file_of(&self, key: &str) -> Option<&File> {
        let mut parts = key.strip_prefix("c/")?.split('/');
        let project = parts.next()?;
        let path = parts.next()?;
        let content = parts.next()?;
        let file = self.table.with_hash(u64::from_str_radix(path, 16).ok()?)?;
        let same = project == self.id && u64::from_str_radix(content, 16) == Ok(file.content);
        same.then_some(file)
    }

    pub(crate) fn info_key(&self) -> String {
        format!("p/{}", self.id)
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
        let mut batch = Vec::new();
        let mut bytes = 0;
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

    pub(crate) fn delete_documents(&self, path: &str) -> Result<(), HostError> {
        index::delete_prefix(&format!("c/{}/{}/", self.id, hex(path.as_bytes()))).map(drop)
    }

    pub(crate) fn info_document(&self) -> Document {
        let data = serde_json::to_vec(&self.info).unwrap_or_default();
        Document { key: self.info_key(), data, ..Document::default() }
    }

    /// Notes that the project was used, so that others go first.
    pub(crate) fn note_use(&mut self, now: u64) -> Result<(), HostError> {
        if now.saturating_sub(self.info.used_ms) < USE_NOTED {
            return Ok(());
        }
        self.info.used_ms = now;
        self.put(vec![self.info_document()])
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

/// Takes a project out of the index: first the table, without which the index has none of its
/// files.
fn remove_project(id: &str) -> Result<(), HostError> {
    index::delete_prefix(&format!("t/{id}/"))?;
    index::delete_prefix(&format!("c/{id}/"))?;
    index::delete(&[format!("p/{id}")])
}

pub(crate) fn now_ms() -> u64 {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}
