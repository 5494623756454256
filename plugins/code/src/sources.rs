//! Finds places in the index and in files: definitions, uses, words and near vectors.

use std::collections::BTreeSet;
use std::time::Instant;

use code_model::{Definition, Kind, Language, ParserQuestion, words};
use toolhold_sdk::HostError;
use toolhold_sdk::index::{self, Query};

use crate::chunks;
use crate::files::{Files, Text};
use crate::hit::{FoundBy, Hit};
use crate::indexed_project::Project;
use crate::parse::{self, Answer, Pace};
use crate::paths::PathShortener;
use crate::project::below;
use crate::table::File;
use crate::vectors;

/// Names of files and folders that stand for the folder that they are in, unless they are asked
/// for.
const OF_FOLDER: [&str; 6] = ["mod", "lib", "main", "index", "__init__", "src"];

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
    /// The text that is looked for by words.
    pub(crate) query: Option<String>,
    /// The name that is looked for, without its containers.
    pub(crate) name: Option<String>,
    /// The containers that the name has to be in, the outermost first.
    pub(crate) containers: Vec<String>,
    pub(crate) references: bool,
    /// The vector of the query, with the tag of the chunks that it can be compared with.
    pub(crate) vector: Option<(Vec<i8>, String)>,
    pub(crate) paths: &'s PathShortener,
    /// Hits that the answer has room for.
    pub(crate) most: usize,
    pub(crate) until: Instant,
}

/// The conditions for a hit.
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
    pub(crate) fn run(&mut self) -> Result<Vec<Hit>, HostError> {
        // The surest way first. Each yields hits, the best first.
        let mut hits = self.definitions(Standing::Place)?;
        hits.append(&mut self.references()?);
        hits.append(&mut self.meaning()?);
        // A name that is defined needs no other lines with its word.
        if self.query.is_some() || hits.is_empty() {
            hits.append(&mut self.words()?);
        }
        Ok(hits)
    }

    /// Definitions with the name in files that declare what is named before it, as a namespace of
    /// C# or a package of Go, whatever their place is.
    ///
    /// # Errors
    ///
    /// The index can't be read.
    pub(crate) fn declared(&mut self) -> Result<Vec<Hit>, HostError> {
        self.definitions(Standing::Declared)
    }

    /// Definitions with the name, or whose names have all words of the query.
    fn definitions(&mut self, standing: Standing) -> Result<Vec<Hit>, HostError> {
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
            let mut found = self.matching(&keys, &wanted, standing)?;
            if found.len() < self.most && keys.len() >= limit as usize && limit < MANY {
                limit = MANY;
                continue;
            }
            found.sort_by_cached_key(|(file, one)| order(file, one, &wanted));
            found.truncate(if standing == Standing::Declared { MAX_FILES } else { self.most });
            let mut hits = Vec::new();
            for (file, definition) in found {
                if hits.len() >= self.most || Instant::now() > self.until {
                    break;
                }
                let Some(text) = self.files.text(self.project, &file) else { continue };
                let Some(line) = text.line(definition.line) else { continue };
                if standing == Standing::Declared
                    && !declares(&file.path, &text.content, &definition.container, &self.containers)
                {
                    continue;
                }
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
        standing: Standing,
    ) -> Result<Vec<(File, Definition)>, HostError> {
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
                        .filter(|one| {
                            standing == Standing::Declared || self.is_in_containers(file, one)
                        })
                        .map(|one| (file.clone(), one)),
                );
            }
        }
        Ok(found)
    }

    /// Whether a definition is in what is named before it: `Loader::load`, `config::load`. A file
    /// is a module of its name, and so are its folders.
    fn is_in_containers(&self, file: &File, definition: &Definition) -> bool {
        if self.containers.is_empty() {
            return true;
        }
        let (folders, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let outermost = match definition.container.split('.').next() {
            None | Some("") => &*definition.name,
            Some(outermost) => outermost,
        };
        let is_module = match ending {
            // A package of Go is a folder.
            "go" => false,
            // A file has the name of its class, which isn't in a module of that name.
            "java" | "cs" | "php" => words::whole(stem) != words::whole(outermost),
            _ => true,
        };
        let modules = folders.split('/').chain(is_module.then_some(stem)).filter(|part| {
            !OF_FOLDER.contains(part) || self.containers.contains(&words::whole(part))
        });
        let outer = definition.container.split('.').filter(|outer| !outer.is_empty());
        let mut outer: Vec<String> = modules.chain(outer).map(words::whole).collect();
        self.containers.iter().rev().all(|wanted| outer.pop().is_some_and(|one| one == *wanted))
    }

    /// Uses of the name, as the parsers see them: no comments, no texts.
    pub(crate) fn references(&mut self) -> Result<Vec<Hit>, HostError> {
        if !self.references {
            return Ok(Vec::new());
        }
        let Some(name) = self.name.clone() else { return Ok(Vec::new()) };
        let mut seen = BTreeSet::new();
        let keys = self.search(&words::whole(&name), MANY)?;
        let files: Vec<File> = keys
            .iter()
            .filter_map(|key| self.file(key))
            .filter(|file| seen.insert(file.path.clone()))
            .take(MAX_FILES)
            .cloned()
            .collect();
        let mut hits = Vec::new();
        let mut pace = Pace::default();
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
    fn meaning(&mut self) -> Result<Vec<Hit>, HostError> {
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
    fn words(&mut self) -> Result<Vec<Hit>, HostError> {
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
    ) -> Result<Vec<Hit>, HostError> {
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
                .map(|(number, line)| ((count(line, words), pairs(line, words)), number, line))
                .max_by_key(|(counts, number, _)| (*counts, std::cmp::Reverse(*number)));
            let Some((_, number, line)) = best else { continue };
            let definitions = self.definitions_of(&file)?;
            hits.push(Hit::of_line(&self.show(&file), number, line, found_by, &definitions));
        }
        Ok(hits)
    }

    /// The definitions of a file, from the index.
    pub(crate) fn definitions_of(&self, file: &File) -> Result<Vec<Definition>, HostError> {
        let mut definitions = Vec::new();
        for entry in index::list(&format!("{}d", self.project.file_prefix(file))) {
            definitions.append(&mut chunks::definitions(&entry?.data));
        }
        Ok(definitions)
    }

    /// The keys of the project's documents with these words, the best first.
    fn search(&self, words: &str, limit: u32) -> Result<Vec<String>, HostError> {
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

/// How a definition has to stand in what is named before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// By its place: its folders, its file, and the definitions around it.
    Place,
    /// By what its file declares.
    Declared,
}

/// Whether a file declares a namespace or a package such that what stands in `container` there
/// stands in all of `wanted`.
fn declares(path: &str, text: &str, container: &str, wanted: &[String]) -> bool {
    let word = match path.rsplit_once('.') {
        Some((_, "go" | "java")) => "package",
        Some((_, "cs" | "php")) => "namespace",
        _ => return false,
    };
    let declared = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix(word)?;
        let name = rest.trim_start_matches([' ', '\t']);
        (name.len() < rest.len()).then(|| name.split([' ', '\t', ';', '{']).next())?
    });
    declared.into_iter().any(|name| {
        let inner = container.split('.').filter(|outer| !outer.is_empty());
        let mut outer: Vec<String> =
            name.split(['.', '\\']).chain(inner).map(words::whole).collect();
        wanted.iter().rev().all(|wanted| outer.pop().is_some_and(|one| one == *wanted))
    })
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

/// How many of the words a line has, in any form.
fn count(line: &str, words: &[String]) -> usize {
    let of_line = words::of_lines(std::iter::once(line));
    let of_line: BTreeSet<&str> = of_line.split(' ').map(stem).collect();
    // A text without spaces is one word.
    words
        .iter()
        .filter(|word| {
            of_line.contains(stem(word)) || !word.is_ascii() && line.contains(word.as_str())
        })
        .count()
}

/// How many pairs of letters of the words a line has, where a script has no spaces between words:
/// the index finds a text by them.
fn pairs(line: &str, words: &[String]) -> usize {
    let pairs = words.iter().filter(|word| !word.is_ascii()).flat_map(|word| {
        let letters = word.char_indices();
        let ends = letters.clone().skip(1).map(|(at, letter)| at + letter.len_utf8());
        letters.zip(ends).map(|((start, _), end)| &word[start..end])
    });
    pairs.filter(|pair| !pair.is_ascii() && line.contains(pair)).count()
}

/// The common part of the usual forms of an English word: the index finds `retries` by `retry`.
fn stem(word: &str) -> &str {
    let ends = ["ing", "ed", "es", "s"].into_iter();
    let mut without = ends.filter_map(|end| word.strip_suffix(end));
    let stem = without.find(|stem| stem.len() >= 3).unwrap_or(word);
    let short = stem.trim_end_matches(['e', 'i', 'y']);
    if short.len() >= 3 { short } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_declares_its_namespace() {
        for (path, text, container, wanted, expected) in [
            ("a/b.cs", "using X;\nnamespace My.App;\n", "", "my app", true),
            ("a/b.cs", "namespace My.App {", "Svc", "my app svc", true),
            ("a/b.cs", "namespace My.App;", "", "app", true),
            ("a/b.cs", "namespace My.App;", "", "my", false),
            ("a/b.cs", "namespace My.App;", "", "other app", false),
            ("a/b.cs", "// namespace My.App;\nnamespaces My;", "", "my app", false),
            ("b.php", "<?php\nnamespace App\\Models;", "User", "app models user", true),
            ("b.go", "package srv // x", "", "srv", true),
            ("B.java", "package com.ex;", "", "com ex", true),
            ("b.rs", "namespace My.App;", "", "my app", false),
        ] {
            let wanted: Vec<String> = wanted.split(' ').map(str::to_owned).collect();
            assert_eq!(declares(path, text, container, &wanted), expected, "{text} {wanted:?}");
        }
    }

    #[test]
    fn line_has_pairs_of_letters() {
        let words = ["加载配置文件".to_owned(), "config".to_owned()];
        for (line, expected) in [
            ("// 从磁盘加载用户的配置", 2),
            ("// 配置文件", 3),
            ("// 说明", 0),
            ("let config = 1;", 0),
        ] {
            assert_eq!(pairs(line, &words), expected, "{line}");
        }
    }

    #[test]
    fn line_has_a_word_in_any_form() {
        let words = ["retry", "caching"].map(str::to_owned);
        for (line, expected) in [
            ("const MAX_RETRIES: u32 = 3;", 1),
            ("fn retry(cache: &Cache) {", 2),
            ("self.retried += caches.len();", 2),
            ("//! Main program", 0),
            ("let ret = cat;", 0),
        ] {
            assert_eq!(count(line, &words), expected, "{line}");
        }
    }
}
