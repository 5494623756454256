//! Matches texts and paths against the wildcards and regular expressions of rules.

use std::path::Path;
use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use toolhold_shell_commands::FlagWords;

use crate::path_globs::{GlobError, PathGlobs};

/// Bytes of the longest pattern. Longer patterns are hard to read and slow to match.
pub const MAX_PATTERN: usize = 1024;

/// Bytes of a compiled pattern. A pattern that needs more is refused.
const MAX_COMPILED: usize = 1 << 20;

/// A pattern that is empty or longer than [`MAX_PATTERN`], with its size in bytes.
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
    /// The strings between the stars, in lower case. [`ANY`] stands for `?`.
    chunks: Vec<String>,
}

/// Stands for `?` in a chunk. This is a noncharacter of Unicode, which ordinary text doesn't
/// contain.
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
                // A backslash at the end of the glob stands for itself.
                '\\' => chunk.extend(characters.next().unwrap_or('\\').to_lowercase()),
                c => chunk.extend(c.to_lowercase()),
            }
        }
        chunks.push(chunk);
        Ok(Self { chunks })
    }

    /// Checks whether the glob matches the whole `text`.
    pub fn matches(&self, text: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let text = text.to_lowercase();
        match self.chunks.as_slice() {
            // A glob has at least one chunk.
            [] => false,
            [only] => match_prefix(&text, only) == Some(text.len()),
            [first, between @ .., last] => {
                let Some(mut matched) = match_prefix(&text, first) else { return false };
                // The earliest match of a chunk leaves the most text for the later chunks.
                for chunk in between {
                    let Some(end) = find_end(&text[matched..], chunk) else { return false };
                    matched += end;
                }
                match_suffix(&text[matched..], last)
            }
        }
    }

    /// Checks whether the glob matches every text.
    pub fn is_all(&self) -> bool {
        self.chunks.len() > 1 && self.chunks.iter().all(String::is_empty)
    }
}

/// Returns the length of the start of `text` that matches `chunk`. Returns `None` if the start of
/// `text` doesn't match.
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

/// Returns the end of the first part of `text` that matches `chunk`. Returns `None` if no part
/// matches.
fn find_end(text: &str, chunk: &str) -> Option<usize> {
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

/// Checks whether the end of `text` matches `chunk`.
fn match_suffix(text: &str, chunk: &str) -> bool {
    // `ANY` may match a longer or shorter character, so characters are counted instead of bytes.
    let text_length = text.chars().count();
    let chunk_length = chunk.chars().count();
    if chunk_length > text_length {
        return false;
    }
    let mut end_of_text = text.chars();
    for _ in 0..text_length - chunk_length {
        end_of_text.next();
    }
    match_prefix(end_of_text.as_str(), chunk).is_some()
}

/// A regular expression that can't be matched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExpressionError {
    /// The expression is empty or too long.
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

/// Compiles a regular expression from the configuration. The expression matches anywhere in a text.
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

pub(crate) fn check_length(pattern: &str) -> Result<(), PatternLengthError> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(PatternLengthError(pattern.len()));
    }
    Ok(())
}

/// Returns the only text that a glob matches. Returns `None` if the glob has a wildcard.
pub(crate) fn single_text(glob: &str) -> Option<String> {
    let mut text = String::with_capacity(glob.len());
    let mut characters = glob.chars();
    while let Some(c) = characters.next() {
        match c {
            '*' | '?' => return None,
            // A backslash at the end of the glob stands for itself.
            '\\' => text.push(characters.next().unwrap_or('\\')),
            c => text.push(c),
        }
    }
    Some(text)
}

/// Returns a glob that matches `text` only.
pub fn literal(text: &str) -> String {
    let mut glob = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}

/// Escapes the brackets of a glob that aren't escaped yet.
fn escape_brackets(glob: &str) -> String {
    let mut escaped_glob = String::with_capacity(glob.len());
    let mut is_after_backslash = false;
    for c in glob.chars() {
        if matches!(c, '[' | ']' | '{' | '}') && !is_after_backslash {
            escaped_glob.push('\\');
        }
        // The second backslash of `\\` is escaped, so it doesn't escape the next character.
        is_after_backslash = c == '\\' && !is_after_backslash;
        escaped_glob.push(c);
    }
    escaped_glob
}

/// The pattern of a permission for the subjects of a tool.
#[derive(Clone, Debug)]
pub struct Pattern(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Matches exactly this text in the same case, and no path below it.
    Exact(String),
    Glob(Glob),
}

#[derive(Clone, Debug)]
struct Glob {
    written: String,
    text: TextGlob,
    /// The pattern as paths, with `~` replaced and links resolved.
    spellings: Vec<String>,
    /// Compiled `spellings`, at the first comparison with a path.
    paths: OnceLock<PathGlobs>,
    single_text: Option<String>,
}

impl Pattern {
    /// Reads a pattern. `spellings` are the pattern as paths: with `~` replaced, and with links
    /// resolved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`TextGlob::new`].
    pub fn new(pattern: &str, spellings: Vec<String>) -> Result<Self, PatternLengthError> {
        Ok(Self(Form::Glob(Glob {
            written: pattern.to_owned(),
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

    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.0, Form::Exact(_))
    }

    pub(crate) fn matches_text(&self, text: &str) -> bool {
        match &self.0 {
            Form::Exact(only) => only == text,
            Form::Glob(glob) => glob.text.matches(text),
        }
    }

    /// Checks whether the pattern matches a command if the flags of the command are written as in
    /// the pattern.
    pub(crate) fn matches_flags(&self, words: &FlagWords) -> bool {
        match &self.0 {
            // An exact pattern has only one spelling.
            Form::Exact(_) => false,
            Form::Glob(glob) => words
                .with_flags_of(&glob.written)
                .is_some_and(|spelling| glob.text.matches(&spelling)),
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
        // A text such as `test [ -f x` isn't a valid glob. With escaped brackets, every text is a
        // valid glob.
        let escaped = self.spellings.iter().map(|path| escape_brackets(path)).collect();
        // If even these globs can't be compiled, no path matches: the default has no globs.
        path_globs(escaped).unwrap_or_default()
    }
}

fn path_globs(paths: Vec<String>) -> Result<PathGlobs, GlobError> {
    PathGlobs::ignoring_case(paths.into_iter().map(|path| (path, String::new())).collect())
}
