//! Matches texts and paths against the wildcards and regular expressions of rules.

use std::path::Path;
use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use crate::path_globs::{GlobError, PathGlobs};

/// Most bytes of a pattern. Longer patterns are hard to read and slow to match.
pub const MAX_PATTERN: usize = 1024;

/// Bytes of a compiled pattern.
const MAX_COMPILED: usize = 1 << 20;

/// A pattern that is empty or longer than [`MAX_PATTERN`]. Contains its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pattern is {0} bytes; it has to be 1 to {MAX_PATTERN} bytes")]
pub struct PatternLengthError(usize);

/// A glob for a whole text. `*` matches any characters, `?` matches one character, and `\` escapes
/// the next character. Case is ignored.
///
/// Globs are matched without compiling, because permissions are read at every start but few of them
/// are used.
#[derive(Clone, Debug)]
pub struct TextGlob {
    /// The strings between the stars, in lower case. [`ANY`] matches one character.
    chunks: Vec<String>,
}

/// Matches any one character. The value is a noncharacter, so it isn't in ordinary text.
const ANY: char = '\u{10ffff}';

impl TextGlob {
    /// Reads a glob.
    ///
    /// # Errors
    ///
    /// Returns an error if the glob is empty, or longer than [`MAX_PATTERN`].
    pub fn new(glob: &str) -> Result<Self, PatternLengthError> {
        check_length(glob)?;
        let mut chunks = Vec::new();
        let mut chunk = String::new();
        let mut characters = glob.chars();
        while let Some(c) = characters.next() {
            match c {
                '*' => chunks.push(std::mem::take(&mut chunk)),
                '?' => chunk.push(ANY),
                '\\' => chunk.extend(characters.next().unwrap_or('\\').to_lowercase()),
                c => chunk.extend(c.to_lowercase()),
            }
        }
        chunks.push(chunk);
        Ok(Self { chunks })
    }

    /// Checks whether the glob matches `text`.
    pub fn matches(&self, text: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let text = text.to_lowercase();
        if let [only] = self.chunks.as_slice() {
            return match_prefix(&text, only) == Some(text.len());
        }
        let [first, between @ .., last] = self.chunks.as_slice() else { return false };
        let Some(mut at) = match_prefix(&text, first) else { return false };
        for chunk in between {
            let Some(end) = find(&text[at..], chunk) else { return false };
            at += end;
        }
        match_suffix(&text[at..], last)
    }

    /// Checks whether the glob matches every text.
    pub fn is_all(&self) -> bool {
        self.chunks.len() > 1 && self.chunks.iter().all(String::is_empty)
    }
}

/// Returns the length of the match of `chunk` at the start of `text`. Returns `None` if there is no
/// match.
fn match_prefix(text: &str, chunk: &str) -> Option<usize> {
    let mut characters = text.chars();
    for expected in chunk.chars() {
        let actual = characters.next()?;
        if expected != ANY && expected != actual {
            return None;
        }
    }
    Some(text.len() - characters.as_str().len())
}

/// Returns the end of the first match of `chunk` in `text`. Returns `None` if there is no match.
fn find(text: &str, chunk: &str) -> Option<usize> {
    if !chunk.contains(ANY) {
        return text.find(chunk).map(|at| at + chunk.len());
    }
    for (at, _) in text.char_indices() {
        if let Some(length) = match_prefix(&text[at..], chunk) {
            return Some(at + length);
        }
    }
    None
}

fn match_suffix(text: &str, chunk: &str) -> bool {
    // `ANY` can match a character with another length, so characters are counted instead of bytes.
    let Some(skipped) = text.chars().count().checked_sub(chunk.chars().count()) else {
        return false;
    };
    let at = text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at);
    match_prefix(&text[at..], chunk).is_some()
}

/// A regular expression that can't be matched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExpressionError {
    /// The length of the expression is wrong.
    #[error(transparent)]
    Length(#[from] PatternLengthError),
    /// The engine can't read the expression, or the compiled expression is too large.
    #[error("`{expression}` isn't a valid regular expression: {source}")]
    Invalid {
        /// The expression.
        expression: String,
        /// The explanation of the engine.
        source: regex::Error,
    },
}

/// Returns a regular expression of the operator. It matches anywhere in a text.
///
/// # Errors
///
/// Returns an error if the expression is invalid, empty, longer than [`MAX_PATTERN`], or too large
/// when compiled.
pub fn expression(pattern: &str) -> Result<Regex, ExpressionError> {
    check_length(pattern)?;
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|source| ExpressionError::Invalid { expression: pattern.to_owned(), source })
}

/// Checks the length of a pattern.
pub(crate) fn check_length(pattern: &str) -> Result<(), PatternLengthError> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(PatternLengthError(pattern.len()));
    }
    Ok(())
}

/// Returns the only text that a glob without wildcards matches. Returns `None` if the glob has a
/// wildcard.
pub(crate) fn single_text(glob: &str) -> Option<String> {
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

/// Returns a glob that matches `text` only.
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

/// Returns a glob with its brackets and braces escaped.
fn escape_brackets(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len());
    let mut escaped = false;
    for c in glob.chars() {
        if matches!(c, '[' | ']' | '{' | '}') && !escaped {
            out.push('\\');
        }
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// The pattern of a permission. The subjects of the tool are matched with it.
#[derive(Clone, Debug)]
pub struct Pattern(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Exactly this text in the same case. Has no wildcards, and doesn't match paths below it.
    Exact(String),
    Glob(Glob),
}

#[derive(Clone, Debug)]
struct Glob {
    text: TextGlob,
    /// The pattern as paths.
    spellings: Vec<String>,
    /// The paths, compiled at the first comparison with a path.
    paths: OnceLock<PathGlobs>,
    /// The only text that the pattern matches. `None` if the pattern has a wildcard.
    single_text: Option<String>,
}

impl Pattern {
    /// Reads a pattern. `spellings` are the pattern as paths, with `~` replaced and links resolved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`TextGlob::new`].
    pub fn new(pattern: &str, spellings: Vec<String>) -> Result<Self, PatternLengthError> {
        Ok(Self(Form::Glob(Glob {
            text: TextGlob::new(pattern)?,
            spellings,
            paths: OnceLock::new(),
            single_text: single_text(pattern),
        })))
    }

    /// Returns a pattern that matches exactly this text. For a path, the text is the real path.
    pub fn exactly(text: impl Into<String>) -> Self {
        Self(Form::Exact(text.into()))
    }

    /// Checks whether the pattern matches every text and every path.
    pub fn is_all(&self) -> bool {
        match &self.0 {
            Form::Exact(_) => false,
            Form::Glob(glob) => glob.text.is_all(),
        }
    }

    /// Checks whether the pattern was made by [`exactly`](Self::exactly).
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
                    || glob.paths.get_or_init(|| glob.compile()).covers(Path::new(path))
            }
        }
    }

    /// Checks whether the pattern matches only this text.
    pub(crate) fn is_exactly(&self, text: &str) -> bool {
        match &self.0 {
            Form::Exact(only) => only == text,
            Form::Glob(glob) => glob.single_text.as_deref() == Some(text),
        }
    }
}

impl Glob {
    fn compile(&self) -> PathGlobs {
        if let Ok(globs) = path_globs(self.spellings.clone()) {
            return globs;
        }
        // A text that isn't a valid glob, such as `test [ -f x`, matches itself. A text with
        // escaped brackets is always a valid glob.
        let escaped = self.spellings.iter().map(|path| escape_brackets(path)).collect();
        path_globs(escaped).unwrap_or_default()
    }
}

fn path_globs(paths: Vec<String>) -> Result<PathGlobs, GlobError> {
    PathGlobs::ignoring_case(paths.into_iter().map(|path| (path, String::new())).collect())
}
