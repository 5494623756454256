//! The ways in which a place is found.

use std::collections::BTreeSet;
use std::time::Instant;

use berth_sdk::index::{self, IndexError, Query};
use code_model::{Definition, Kind, Language, ParserQuestion, words};

use crate::chunks;
use crate::files::{Files, Text};
use crate::hit::{FoundBy, Hit};
use crate::parse::{self, Answer, Pace};
use crate::paths::PathShortener;
use crate::project::below;
use crate::table::File;
use crate::update::Project;
use crate::vectors;

/// Hits of the index that are looked at first, and at most.
const FEW: u32 = 100;
const MANY: u32 = 1_000;

/// Documents that are read together.
const READ_TOGETHER: usize = 50;

/// Files that are parsed together for references.
const PARSE_TOGETHER: usize = 16;

/// Files in which references are looked for.
const MAX_FILES: usize = 400;

/// One search.
pub(crate) struct Search<'s> {
    pub(crate) project: &'s Project,
    pub(crate) files: Files,
    pub(crate) filter: Filter,
    /// What is looked for by words.
    pub(crate) query: Option<String>,
    /// The name that is looked for, without what it stands in.
    pub(crate) name: Option<String>,
    /// What the name has to stand in, outermost first.
    pub(crate) containers: Vec<String>,
    pub(crate) references: bool,
    /// The vector of the query, with the tag of the chunks that it can be compared with.
    pub(crate) vector: Option<(Vec<i8>, String)>,
    pub(crate) paths: &'s PathShortener,
    /// Hits that the answer has room for.
    pub(crate) most: usize,
    pub(crate) until: Instant,
}

/// What a hit has to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Where it has to be: a path below the project. Empty: anywhere.
    pub(crate) folder: String,
    /// The files that fit the pattern. `None`: there is no pattern.
    pub(crate) files: Option<BTreeSet<String>>,
    pub(crate) kind: Option<Kind>,
    pub(crate) language: Option<String>,
}

impl Filter {
    /// Whether any file may be a hit.
    pub(crate) fn is_open(&self) -> bool {
        self.folder.is_empty() && self.files.is_none() && self.language.is_none()
    }

    pub(crate) fn allows_file(&self, path: &str) -> bool {
        let in_folder = self.folder.is_empty() || below(&self.folder, path).is_some();
        in_folder
            && self.files.as_ref().is_none_or(|files| files.contains(path))
            && self.language.as_ref().is_none_or(|wanted| {
                Language::from_file_name(path).is_some_and(|language| language.name() == *wanted)
            })
    }
}

impl Search<'_> {
    /// Everything that was found.
    ///
    /// # Errors
    ///
    /// The index can't be read.
    pub(crate) fn run(&mut self) -> Result<Vec<Hit>, IndexError> {
        // The surest way first. Each yields hits, the best first.
        let mut hits = self.definitions()?;
        hits.append(&mut self.references()?);
        hits.append(&mut self.meaning()?);
        // A name that is defined needs no other lines with its word.
        if self.query.is_some() || hits.is_empty() {
            hits.append(&mut self.words()?);
        }
        Ok(hits)
    }

    /// Definitions with the name, or whose names have all words of the query.
    fn definitions(&mut self) -> Result<Vec<Hit>, IndexError> {
        let (query, wanted) = match (&self.name, &self.query) {
            (Some(name), _) => {
                (words::query_of_name(name), Wanted::Name(name.clone(), words::whole(name)))
            }
            (None, Some(query)) => {
                let parts: Vec<String> = words::identifiers(query).flat_map(words::parts).collect();
                let whole = words::whole(query);
                let query =
                    format!("{} {}", words::query_of_name(&whole), words::query_of_parts(&parts));
                (query, Wanted::Parts(parts, whole))
            }
            (None, None) => return Ok(Vec::new()),
        };
        if matches!(&wanted, Wanted::Parts(parts, _) if parts.is_empty()) {
            return Ok(Vec::new());
        }
        let mut limit = FEW;
        loop {
            let keys = self.search(&query, limit)?;
            let mut found = self.matching(&keys, &wanted)?;
            if found.len() < self.most && keys.len() >= limit as usize && limit < MANY {
                limit = MANY;
                continue;
            }
            found.sort_by_cached_key(|(file, one)| order(file, one, &wanted));
            found.truncate(self.most);
            let mut hits = Vec::new();
            for (file, definition) in found {
                let Some(text) = self.files.text(self.project, &file) else { continue };
                let Some(line) = text.line(definition.line) else { continue };
                hits.push(Hit::of_definition(&self.show(&file), &definition, line));
            }
            return Ok(hits);
        }
    }

    /// The definitions in documents that are wanted and that the filter lets through.
    fn matching(
        &self,
        keys: &[String],
        wanted: &Wanted,
    ) -> Result<Vec<(File, Definition)>, IndexError> {
        let keys: Vec<String> = keys
            .iter()
            .filter(|key| chunks::is_definitions(key))
            .filter(|key| self.file(key).is_some())
            .cloned()
            .collect();
        let mut found = Vec::new();
        for keys in keys.chunks(READ_TOGETHER) {
            for document in index::get(keys)?.into_iter().flatten() {
                let Some(file) = self.file(&document.key) else { continue };
                let definitions = chunks::definitions(&document.data).into_iter();
                found.extend(
                    definitions
                        .filter(|one| wanted.is_met(&one.name))
                        .filter(|one| self.filter.kind.is_none_or(|kind| one.kind == kind))
                        .filter(|one| self.is_in_containers(one))
                        .map(|one| (file.clone(), one)),
                );
            }
        }
        Ok(found)
    }

    fn is_in_containers(&self, definition: &Definition) -> bool {
        let mut outer: Vec<String> = definition.container.split('.').map(words::whole).collect();
        self.containers.iter().rev().all(|wanted| outer.pop().is_some_and(|one| one == *wanted))
    }

    /// Uses of the name, as the parsers see them: no comments, no texts.
    pub(crate) fn references(&mut self) -> Result<Vec<Hit>, IndexError> {
        let Some(name) = self.name.clone().filter(|_| self.references) else {
            return Ok(Vec::new());
        };
        let mut seen = BTreeSet::new();
        let keys = self.search(&words::whole(&name), MANY)?;
        let files: Vec<File> = keys
            .iter()
            .filter_map(|key| self.file(key))
            .filter(|file| seen.insert(file.path.clone()))
            .take(MAX_FILES)
            .cloned()
            .collect();
        let (mut hits, mut pace) = (Vec::new(), Pace::default());
        for files in files.chunks(PARSE_TOGETHER) {
            if hits.len() >= self.most || Instant::now() > self.until {
                break;
            }
            let texts: Vec<_> = files
                .iter()
                .filter_map(|file| Some((file, self.files.text(self.project, file)?)))
                .filter(|(_, text)| {
                    memchr::memmem::find(text.content.as_bytes(), name.as_bytes()).is_some()
                })
                .collect();
            let sources: Vec<_> = texts
                .iter()
                .map(|(file, text)| {
                    let bytes = text.content.as_bytes();
                    Language::detect(&file.path, bytes).map(|language| (language, bytes))
                })
                .collect();
            let answers =
                parse::parse_all(&sources, ParserQuestion::References, self.until, &mut pace);
            for ((file, text), answer) in texts.iter().zip(answers) {
                self.add_references(&mut hits, file, text, &answer, &name);
            }
        }
        Ok(hits)
    }

    fn add_references(
        &self,
        hits: &mut Vec<Hit>,
        file: &File,
        text: &Text,
        answer: &Answer,
        name: &str,
    ) {
        let path = self.show(file);
        let Answer::Parsed(parsed) = answer else {
            // Without its parser, a use is a line with the word.
            let numbers = 1_u32..;
            let lines = text.content.lines().zip(numbers);
            let with_name =
                lines.filter(|(line, _)| words::identifiers(line).any(|word| word == name));
            hits.extend(
                with_name
                    .map(|(line, number)| Hit::of_line(&path, number, line, FoundBy::Text, &[])),
            );
            return;
        };
        for reference in parsed.references.iter().filter(|one| one.name == name) {
            let Some(line) = text.line(reference.line) else { continue };
            let hit =
                Hit::of_line(&path, reference.line, line, FoundBy::Reference, &parsed.definitions);
            hits.push(Hit { column: Some(reference.column + 1), ..hit });
        }
    }

    /// Chunks that are near the query. Something always is, so they get half of the answer at most.
    fn meaning(&mut self) -> Result<Vec<Hit>, IndexError> {
        let Some((vector, tag)) = self.vector.clone() else { return Ok(Vec::new()) };
        let query = Query {
            vector: Some(vector),
            prefix: self.project.prefix(),
            limit: MANY,
            ..Query::words("").tagged(tag)
        };
        let near = index::search(query)?.into_iter().filter(|hit| hit.score >= vectors::LEAST);
        let keys: Vec<String> = near.map(|hit| hit.key).collect();
        let words = words::of_query(self.query.as_deref().unwrap_or_default());
        self.lines_of_chunks(&keys, &words, FoundBy::Meaning, self.most.div_ceil(2))
    }

    /// Chunks with the words of the query, or with the name if it is defined nowhere.
    fn words(&mut self) -> Result<Vec<Hit>, IndexError> {
        let words = match (&self.query, &self.name) {
            (Some(query), _) => words::of_query(query),
            (None, Some(name)) => vec![words::whole(name)],
            (None, None) => return Ok(Vec::new()),
        };
        let mut limit = FEW;
        loop {
            let keys = self.search(&words.join(" "), limit)?;
            let hits = self.lines_of_chunks(&keys, &words, FoundBy::Words, self.most)?;
            if hits.len() >= self.most || keys.len() < limit as usize || limit == MANY {
                return Ok(hits);
            }
            limit = MANY;
        }
    }

    /// For each chunk, its line with the most of the words: at most `most` of them.
    fn lines_of_chunks(
        &mut self,
        keys: &[String],
        words: &[String],
        found_by: FoundBy,
        most: usize,
    ) -> Result<Vec<Hit>, IndexError> {
        let mut hits = Vec::new();
        // A chunk has no kind.
        if self.filter.kind.is_some() {
            return Ok(hits);
        }
        for key in keys {
            if hits.len() >= most || Instant::now() > self.until {
                break;
            }
            let Some((first, last)) = chunks::lines_of(key) else { continue };
            let Some(file) = self.file(key).cloned() else { continue };
            let Some(text) = self.files.text(self.project, &file) else { continue };
            let lines = (first..=last).filter_map(|number| Some((number, text.line(number)?)));
            let best = lines
                .map(|(number, line)| (count(line, words), number, line))
                .max_by_key(|(count, number, _)| (*count, std::cmp::Reverse(*number)));
            let Some((_, number, line)) = best else { continue };
            let definitions = self.definitions_of(&file)?;
            hits.push(Hit::of_line(&self.show(&file), number, line, found_by, &definitions));
        }
        Ok(hits)
    }

    /// The definitions of a file, from the index.
    pub(crate) fn definitions_of(&self, file: &File) -> Result<Vec<Definition>, IndexError> {
        let mut definitions = Vec::new();
        for entry in index::list(&format!("{}d", self.project.file_prefix(file))) {
            definitions.append(&mut chunks::definitions(&entry?.data));
        }
        Ok(definitions)
    }

    /// The keys of the project's documents with these words, the best first.
    fn search(&self, words: &str, limit: u32) -> Result<Vec<String>, IndexError> {
        if words.trim().is_empty() {
            return Ok(Vec::new());
        }
        let query = Query { prefix: self.project.prefix(), limit, ..Query::words(words) };
        Ok(index::search(query)?.into_iter().map(|hit| hit.key).collect())
    }

    /// The file of a document, if the filter allows it.
    fn file(&self, key: &str) -> Option<&File> {
        self.project.file_of(key).filter(|file| self.filter.allows_file(&file.path))
    }

    pub(crate) fn show(&self, file: &File) -> String {
        self.paths.show(&self.project.absolute(&file.path)).into_owned()
    }
}

/// The names of definitions that are wanted.
enum Wanted {
    /// This name, in any style: as it was written, and its whole form.
    Name(String, String),
    /// Names with all of these parts, or with this whole form.
    Parts(Vec<String>, String),
}

impl Wanted {
    fn is_met(&self, name: &str) -> bool {
        match self {
            Self::Name(_, whole) => words::has_whole(name, whole),
            Self::Parts(parts, whole) => {
                words::has_whole(name, whole) || {
                    let of_name = words::parts(name);
                    parts.iter().all(|part| of_name.contains(part))
                }
            }
        }
    }

    /// How far a name is from what is wanted: 0 is the same text.
    fn distance(&self, name: &str) -> usize {
        match self {
            Self::Name(wanted, _) if wanted == name => 0,
            Self::Name(wanted, _) if wanted.eq_ignore_ascii_case(name) => 1,
            Self::Name(..) => 2,
            Self::Parts(_, whole) => words::whole(name).len().abs_diff(whole.len()),
        }
    }
}

/// The order among definitions that are equally sure: the nearest name, then what others use most.
fn order(
    file: &File,
    definition: &Definition,
    wanted: &Wanted,
) -> (usize, bool, u8, usize, String, u32) {
    let is_test = file.path.split('/').any(|part| part.to_lowercase().contains("test"));
    let rank = match definition.kind {
        Kind::Class | Kind::Struct | Kind::Enum | Kind::Interface | Kind::Type => 0,
        Kind::Function | Kind::Method | Kind::Macro => 1,
        Kind::Module | Kind::Constant => 2,
        Kind::Variable | Kind::Field | Kind::Variant => 3,
    };
    let depth = file.path.matches('/').count();
    (wanted.distance(&definition.name), is_test, rank, depth, file.path.clone(), definition.line)
}

/// How many of the words a line has.
fn count(line: &str, words: &[String]) -> usize {
    let of_line = words::of_lines(std::iter::once(line));
    let of_line: BTreeSet<&str> = of_line.split(' ').collect();
    // A text without spaces is one word.
    let has = |word: &&String| {
        of_line.contains(word.as_str()) || !word.is_ascii() && line.contains(word.as_str())
    };
    words.iter().filter(has).count()
}
