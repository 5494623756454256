//! Matches paths with globs, and explains which glob matched.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolhold_contract::text::toml;

use crate::origin::{Origin, OriginKind};

/// Bytes of the longest glob. The engine reads nested braces recursively, so a longer glob could
/// overflow the stack and end the program.
pub const MAX_GLOB: usize = 4096;

/// A glob that can't be matched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The glob is too long. Contains its size in bytes.
    #[error("a glob is {0} bytes; the limit is {MAX_GLOB}")]
    Length(usize),
    /// The glob engine can't read the glob.
    #[error("`{glob}` isn't a valid glob: {}", .source.kind())]
    Invalid {
        /// The glob as written.
        glob: String,
        /// The explanation of the engine.
        source: globset::Error,
    },
    /// The glob engine can't combine all globs.
    #[error(transparent)]
    Set(globset::Error),
}

pub(crate) fn check_glob(glob: &str) -> Result<(), GlobError> {
    if glob.len() > MAX_GLOB {
        return Err(GlobError::Length(glob.len()));
    }
    Ok(())
}

/// Globs for paths, all from one key of the configuration.
///
/// A glob with a leading `/` is matched with the whole path. Any other glob matches at every depth.
/// A glob also covers each path below its match, and `X/**` covers `X` itself.
#[derive(Clone, Debug, Default)]
pub struct PathGlobs {
    set: GlobSet,
    patterns: Vec<String>,
    /// The place of each pattern in the configuration.
    pub(crate) places: Vec<Origin>,
    /// For each glob in `set`, the index of its pattern.
    pattern_of: Vec<usize>,
}

impl PathGlobs {
    /// Compiles patterns. Each has its place in the configuration.
    ///
    /// # Errors
    ///
    /// Returns the first pattern that isn't a valid glob, and the explanation of the engine.
    pub fn new(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, GlobError> {
        let ignoring_case = false;
        Self::compile(patterns, ignoring_case)
    }

    /// Compiles patterns that match in any case.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn ignoring_case(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, GlobError> {
        let ignoring_case = true;
        Self::compile(patterns, ignoring_case)
    }

    /// Compiles each pattern as two globs: a glob for a path, and a glob for all paths below it.
    fn compile(
        patterns_with_places: Vec<(String, impl Into<Origin>)>,
        ignoring_case: bool,
    ) -> Result<Self, GlobError> {
        let mut patterns = Vec::new();
        let mut places = Vec::new();
        for (pattern, place) in patterns_with_places {
            patterns.push(pattern);
            places.push(place.into());
        }

        let mut set = GlobSetBuilder::new();
        let mut pattern_of = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            check_glob(pattern)?;
            let whole_path = to_whole_path(pattern);
            let below = format!("{whole_path}/**");
            for text in [whole_path, below] {
                let glob = GlobBuilder::new(&text)
                    .literal_separator(true)
                    .case_insensitive(ignoring_case)
                    .build()
                    .map_err(|source| GlobError::Invalid { glob: pattern.clone(), source })?;
                set.add(glob);
                pattern_of.push(index);
            }
        }
        let set = set.build().map_err(GlobError::Set)?;
        Ok(Self { set, patterns, places, pattern_of })
    }

    /// Checks whether there are no globs.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Checks whether a path matches, or is below a path that matches.
    pub fn covers(&self, path: &Path) -> bool {
        self.first_match(path).is_some()
    }

    pub(crate) fn first_match(&self, path: &Path) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.set.matches(path).first().map(|glob| self.pattern_of[*glob])
    }

    /// Returns a pattern of the list `key` as a rule, the place of the pattern, and the remedy that
    /// removes the pattern.
    pub(crate) fn explain(&self, key: &str, index: usize) -> (String, &Origin, Cow<'static, str>) {
        let pattern = &self.patterns[index];
        let place = &self.places[index];
        let remedy = place.remedy(|| match &place.kind {
            OriginKind::Default(table) => {
                let line = format!("{key} = [{}]", self.other_defaults(pattern).join(", "));
                format!("To allow it, {}", table.lines("tools.file", &line))
            }
            _ => format!("To allow it, remove \"{pattern}\" from `{key}`."),
        });
        (format!("{key} = \"{pattern}\""), place, remedy)
    }

    /// Returns the default patterns without `pattern`, as TOML strings.
    fn other_defaults(&self, pattern: &str) -> Vec<String> {
        let mut others = Vec::new();
        for (other, place) in self.patterns.iter().zip(&self.places) {
            let is_default = matches!(place.kind, OriginKind::Default(_));
            if is_default && other != pattern {
                others.push(toml(other));
            }
        }
        others
    }

    /// Returns the folders of [`anchors`](Self::anchors).
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.anchors().map(|(_, folder)| folder)
    }

    /// Returns the folder of each pattern that starts with `/`, and the index of the pattern. The
    /// folder ends before the first wildcard or escape.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = (usize, PathBuf)> {
        let rooted = self.patterns.iter().enumerate().filter(|(_, text)| text.starts_with('/'));
        rooted.map(|(index, pattern)| {
            let mut folder = PathBuf::from("/");
            for part in pattern.split('/') {
                let has_wildcard = part.contains(['*', '?', '[', '{', '\\']);
                if has_wildcard {
                    break;
                }
                folder.push(part);
            }
            (index, folder)
        })
    }
}

/// Returns the glob for whole paths. A pattern that doesn't start with `/` matches in any folder.
fn to_whole_path(pattern: &str) -> String {
    let without_stars = pattern.strip_suffix("/**").unwrap_or(pattern);
    let without_slash = without_stars.trim_end_matches('/');
    let stem = without_slash.strip_prefix("./").unwrap_or(without_slash);
    if stem.starts_with('/') || stem.starts_with("**/") {
        return stem.to_owned();
    }
    let matches_every_path = stem.is_empty() || stem == "**";
    if matches_every_path {
        return "/**".to_owned();
    }
    format!("**/{stem}")
}
