//! Makes and compares vectors of chunks, where the operator chose a model that makes them.
//!
//! A chunk has a tag that names the model of its vector, or says that it has no vector. So vectors
//! of another model are never compared, and each call makes some of the missing vectors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use toolhold_sdk::embeddings;
use toolhold_sdk::index::{self, Document, Query};
use toolhold_sdk::{Call, HostError};

use crate::chunks::{self, NO_VECTOR};
use crate::files::Files;
use crate::indexed_project::Project;

/// The least nearness of a chunk, as a cosine. A chunk that is farther away is about something
/// else.
pub(crate) const LEAST: f64 = 0.2;

/// Texts of one request: few, since a model without a graphics card takes seconds for them.
const AT_ONCE: usize = 16;

/// The time that a call spends on vectors.
const TIME: Duration = Duration::from_secs(10);

/// Chunks that get their vectors in one call.
const MANY: u32 = 1_000;

/// Documents that are read together.
const READ_TOGETHER: usize = 100;

/// The result of making vectors.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// `None`: there is no model.
    model: Option<String>,
    /// Chunks that have no vector yet, as far as they were looked for.
    left: usize,
    /// The reason of a failure.
    failed: Option<String>,
}

impl Report {
    /// The vector of a query, with the tag of the chunks that it can be compared with.
    pub(crate) fn of_query(&mut self, query: Option<&str>) -> Option<(Vec<i8>, String)> {
        // Failing again would take as long.
        if self.failed.is_some() {
            return None;
        }
        let model = self.model.as_ref()?;
        match embeddings::embed(&[query?.to_owned()]) {
            Ok(vectors) => Some((vectors.into_iter().next()?, tag(model))),
            Err(error) => {
                self.failed = Some(error.message);
                None
            }
        }
    }

    /// The notice for the caller.
    pub(crate) fn notice(&self) -> Option<String> {
        let left = match self.left {
            0 => return self.failed.as_ref().map(|why| format!("Searched by words alone: {why}")),
            left if left >= MANY as usize => format!("{left} or more"),
            left => left.to_string(),
        };
        Some(match &self.failed {
            Some(why) => format!("Searched by words alone, and {left} parts have no vector: {why}"),
            None => format!(
                "Found by meaning in a part of the code: {left} parts have no vector yet. Repeat the call to go on."
            ),
        })
    }
}

/// The chunks below a prefix that have a vector of the model: their data, and their keys.
pub(crate) fn of_chunks(prefix: &str) -> Result<BTreeMap<Vec<u8>, String>, HostError> {
    let mut known = BTreeMap::new();
    let Some(model) = embeddings::model() else { return Ok(known) };
    let tag = tag(&model);
    for entry in index::list(&format!("{prefix}w")) {
        let entry = entry?;
        if entry.tags.contains(&tag) {
            known.insert(entry.data, entry.key);
        }
    }
    Ok(known)
}

/// Gives chunks the vectors that chunks with the same text had.
pub(crate) fn keep(
    documents: &mut [Document],
    known: &BTreeMap<Vec<u8>, String>,
) -> Result<(), HostError> {
    let same = documents.iter_mut().filter(|one| one.tags.iter().any(|tag| tag == NO_VECTOR));
    let mut same: Vec<_> =
        same.filter_map(|one| known.get(&one.data).cloned().map(|key| (one, key))).collect();
    for same in same.chunks_mut(READ_TOGETHER) {
        let keys: Vec<String> = same.iter().map(|(_, key)| key.clone()).collect();
        for ((document, _), old) in same.iter_mut().zip(index::get(&keys)?) {
            if let Some(old) = old {
                document.vector = old.vector;
                document.tags = old.tags;
            }
        }
    }
    Ok(())
}

impl Project {
    /// Makes vectors of chunks without one, until `until` and for some seconds at most.
    pub(crate) fn make_vectors(&mut self, call: &Call, until: Instant) -> Report {
        let Some(model) = embeddings::model() else { return Report::default() };
        let mut report = Report { model: Some(model.clone()), ..Report::default() };
        let until = until.min(Instant::now() + TIME);
        report.failed = self.try_make(&model, call, until, &mut report.left).err();
        report
    }

    fn try_make(
        &mut self,
        model: &str,
        call: &Call,
        until: Instant,
        left: &mut usize,
    ) -> Result<(), String> {
        if !self.info.models.iter().any(|known| known == model) {
            self.info.models.push(model.to_owned());
            self.write(vec![self.info_document()]).map_err(|error| error.message)?;
        }
        let keys = self.without_vector(model).map_err(|error| error.message)?;
        *left = keys.len();
        for batch in keys.chunks(AT_ONCE) {
            if Instant::now() >= until || call.cancelled() {
                break;
            }
            let mut files = Files::default();
            let found = index::get(batch).map_err(|error| error.message)?;
            let (mut documents, texts): (Vec<Document>, Vec<String>) = found
                .into_iter()
                .flatten()
                .filter_map(|document| {
                    let text = self.text_of(&mut files, &document.key)?;
                    Some((document, text))
                })
                .unzip();
            if texts.is_empty() {
                continue;
            }
            for (document, vector) in documents.iter_mut().zip(embed(&texts, until)?) {
                document.tags = vec![tag(model)];
                document.vector = vector;
            }
            *left -= documents.len();
            self.write(documents).map_err(|error| error.message)?;
            #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
            let fraction = (keys.len() - *left) as f64 / keys.len() as f64;
            call.progress(fraction, &format!("Making vectors: {left} parts are left"));
        }
        Ok(())
    }

    /// The keys of chunks without a vector of a model.
    fn without_vector(&mut self, model: &str) -> Result<Vec<String>, HostError> {
        let others = self.info.models.iter().filter(|other| *other != model);
        let tags: Vec<String> =
            others.map(|other| tag(other)).chain([NO_VECTOR.to_owned()]).collect();
        let mut keys = BTreeSet::new();
        for tag in tags {
            let query =
                Query { prefix: self.prefix(), limit: MANY, ..Query::words("").tagged(tag) };
            let found = index::search(query)?.into_iter().map(|hit| hit.key);
            keys.extend(found.filter(|key| self.file_of(key).is_some()));
        }
        // Those of one file stand together.
        Ok(keys.into_iter().take(MANY as usize).collect())
    }

    /// The text of a chunk. `None`: its file has changed meanwhile, or can't be read.
    fn text_of(&self, files: &mut Files, key: &str) -> Option<String> {
        let (first, last) = chunks::lines_of(key)?;
        let text = files.text(self, self.file_of(key)?)?;
        let text = chunks::text_of((first..=last).filter_map(|number| text.line(number)));
        (!text.is_empty()).then_some(text)
    }
}

/// The vector of each text. `None`: the model makes none of this text, which may be too long for
/// it.
fn embed(texts: &[String], until: Instant) -> Result<Vec<Option<Vec<i8>>>, String> {
    let error = match embeddings::embed(texts) {
        Ok(vectors) => return Ok(vectors.into_iter().map(Some).collect()),
        Err(error) => error.message,
    };
    let mut vectors: Vec<Option<Vec<i8>>> = Vec::new();
    for text in texts {
        // If it makes none of two texts, it is no matter of a text.
        let works = vectors.len() < 2 || vectors.iter().any(Option::is_some);
        if texts.len() == 1 || !works || Instant::now() >= until {
            return Err(error);
        }
        let vector = embeddings::embed(std::slice::from_ref(text)).ok();
        vectors.push(vector.and_then(|mut vectors| vectors.pop()));
    }
    if vectors.iter().all(Option::is_none) { Err(error) } else { Ok(vectors) }
}

/// The tag of chunks with a vector of a model.
fn tag(model: &str) -> String {
    format!("vector:{model}")
}
