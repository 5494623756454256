//! Patterns over texts and paths.

use std::path::Path;
use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use crate::path_globs::PathGlobs;

/// Bytes of a pattern. Longer ones nobody can read, and they make matching slow.
pub const MAX_PATTERN: usize = 1024;

/// Bytes that a compiled pattern may take.
const MAX_COMPILED: usize = 1 << 20;

/// A glob over a whole text: `*` stands for anything, `?` for one character, `\` takes the next one
/// by the letter. Case doesn't matter.
///
/// It is compared without a compiled form: permissions are read at every start, and few are ever
/// looked at.
#[derive(Clone, Debug)]
pub struct TextGlob {
    /// What stands between the stars, in small letters; [`ANY`] for one character.
    chunks: Vec<String>,
}

/// Stands for one character of any kind: itself in no text, since it belongs to nobody.
const ANY: char = '\u{10ffff}';

impl TextGlob {
    /// A glob.
    ///
    /// # Errors
    ///
    /// Where it is empty, or longer than [`MAX_PATTERN`].
    pub fn new(glob: &str) -> Result<Self, String> {
        bounded(glob)?;
        let mut chunks = vec![String::new()];
        let mut characters = glob.chars();
        while let Some(c) = characters.next() {
            let c = match c {
                '*' => {
                    chunks.push(String::new());
                    continue;
                }
                '?' => ANY,
                '\\' => characters.next().unwrap_or('\\'),
                c => c,
            };
            chunks.last_mut().into_iter().for_each(|chunk| chunk.extend(c.to_lowercase()));
        }
        Ok(Self { chunks })
    }

    /// Whether it matches `text`.
    pub fn matches(&self, text: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let text = text.to_lowercase();
        let [first, between @ .., last] = self.chunks.as_slice() else {
            return self.chunks.first().is_some_and(|only| begins(&text, only) == Some(text.len()));
        };
        let Some(mut at) = begins(&text, first) else { return false };
        for chunk in between {
            let Some(end) = find(&text[at..], chunk) else { return false };
            at += end;
        }
        ends(&text[at..], last)
    }

    /// Whether it matches every text.
    pub fn is_all(&self) -> bool {
        self.chunks.len() > 1 && self.chunks.iter().all(String::is_empty)
    }
}

/// The length of what `chunk` matches at the beginning of `text`.
fn begins(text: &str, chunk: &str) -> Option<usize> {
    let mut characters = text.chars();
    for wanted in chunk.chars() {
        let there = characters.next()?;
        if wanted != ANY && wanted != there {
            return None;
        }
    }
    Some(text.len() - characters.as_str().len())
}

/// Where what `chunk` matches ends first in `text`.
fn find(text: &str, chunk: &str) -> Option<usize> {
    if !chunk.contains(ANY) {
        return text.find(chunk).map(|at| at + chunk.len());
    }
    let places = text.char_indices().map(|(at, _)| at);
    places.filter_map(|at| begins(&text[at..], chunk).map(|length| at + length)).next()
}

fn ends(text: &str, chunk: &str) -> bool {
    let count = chunk.chars().count();
    let skipped = text.chars().count().checked_sub(count);
    skipped.is_some_and(|skipped| {
        let at = text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at);
        begins(&text[at..], chunk).is_some()
    })
}

/// A regular expression as the operator writes it, found anywhere in a text.
///
/// # Errors
///
/// Where it is none, empty, longer than [`MAX_PATTERN`], or too large when compiled.
pub fn expression(pattern: &str) -> Result<Regex, String> {
    bounded(pattern)?;
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))
}

/// Whether it is of a length that a pattern has.
pub(crate) fn bounded(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(format!("a pattern has 1 to {MAX_PATTERN} bytes, this one {}", pattern.len()));
    }
    Ok(())
}

/// The one text that a glob matches, where it has no wildcard.
pub(crate) fn plain(glob: &str) -> Option<String> {
    let mut text = String::with_capacity(glob.len());
    let mut characters = glob.chars();
    while let Some(c) = characters.next() {
        match c {
            '*' | '?' => return None,
            '\\' => text.push(characters.next().unwrap_or('\\')),
            c => text.push(c),
        }
    }
    Some(text)
}

/// `text` as a glob that matches nothing else.
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The same glob, with its brackets and braces as nothing else.
fn brackets_by_the_letter(glob: &str) -> String {
    let (mut out, mut escaped) = (String::with_capacity(glob.len()), false);
    for c in glob.chars() {
        if matches!(c, '[' | ']' | '{' | '}') && !escaped {
            out.push('\\');
        }
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// The pattern of a permission, over whatever its tool acts on.
#[derive(Clone, Debug)]
pub struct Pattern(Form);

#[derive(Clone, Debug)]
enum Form {
    /// This text and no other: no wildcard, in the same case, and nothing below it.
    Exact(String),
    Glob(Glob),
}

#[derive(Clone, Debug)]
struct Glob {
    text: TextGlob,
    /// What it comes to as a path.
    spellings: Vec<String>,
    /// The same compiled, once a path was compared.
    paths: OnceLock<PathGlobs>,
    /// The one text that it matches, where it has no wildcard.
    plain: Option<String>,
}

impl Pattern {
    /// A pattern. `spellings`: what it comes to as a path, with `~` replaced and links in it
    /// resolved.
    ///
    /// # Errors
    ///
    /// As [`TextGlob::new`].
    pub fn new(pattern: &str, spellings: Vec<String>) -> Result<Self, String> {
        Ok(Self(Form::Glob(Glob {
            text: TextGlob::new(pattern)?,
            spellings,
            paths: OnceLock::new(),
            plain: plain(pattern),
        })))
    }

    /// One that matches this very text (of a path, the real one) and no other.
    pub fn exactly(text: impl Into<String>) -> Self {
        Self(Form::Exact(text.into()))
    }

    /// Whether it matches every text and every path.
    pub fn is_all(&self) -> bool {
        match &self.0 {
            Form::Exact(_) => false,
            Form::Glob(glob) => glob.text.is_all(),
        }
    }

    /// Whether it matches one text by the letter, and nothing below that.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.0, Form::Exact(_))
    }

    pub(crate) fn matches_text(&self, text: &str) -> bool {
        match &self.0 {
            Form::Exact(only) => only == text,
            Form::Glob(glob) => glob.text.matches(text),
        }
    }

    pub(crate) fn matches_path(&self, path: &str) -> bool {
        match &self.0 {
            Form::Exact(only) => only == path,
            Form::Glob(glob) => {
                glob.text.is_all()
                    || glob.paths.get_or_init(|| glob.compiled()).covers(Path::new(path))
            }
        }
    }

    /// Whether it is this very text and stands for no other.
    pub(crate) fn is_exactly(&self, text: &str) -> bool {
        match &self.0 {
            Form::Exact(only) => only == text,
            Form::Glob(glob) => glob.plain.as_deref() == Some(text),
        }
    }
}

impl Glob {
    fn compiled(&self) -> PathGlobs {
        let globs = |paths: Vec<String>| {
            PathGlobs::ignoring_case(paths.into_iter().map(|path| (path, String::new())).collect())
        };
        // What is no glob over paths (`test [ -f x`) means itself there, and that always is one.
        let by_the_letter =
            || self.spellings.iter().map(|path| brackets_by_the_letter(path)).collect();
        globs(self.spellings.clone()).or_else(|_| globs(by_the_letter())).unwrap_or_default()
    }
}
