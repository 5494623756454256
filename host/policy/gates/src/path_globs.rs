//! Matches paths against globs, with the rule and the remedy of the glob that matched.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolhold_contract::text::toml;

use crate::origin::{Origin, OriginKind};

/// Most bytes of a glob. In a longer glob, braces could be nested so deep that reading them
/// overflows the stack, which ends the whole program.
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
    /// The glob engine can't match the glob together with the other globs.
    #[error(transparent)]
    Set(globset::Error),
}

/// Checks the length of a glob before the glob is read.
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
    /// The place of each pattern.
    pub(crate) places: Vec<Origin>,
    /// For each glob of the set, the index of its pattern.
    pattern_of: Vec<usize>,
}

impl PathGlobs {
    /// Compiles patterns, each with its place.
    ///
    /// # Errors
    ///
    /// Returns the first pattern that isn't a valid glob, with the explanation of the engine.
    pub fn new(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, GlobError> {
        Self::compile(patterns, false)
    }

    /// Compiles patterns that match in any case.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn ignoring_case(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, GlobError> {
        Self::compile(patterns, true)
    }

    fn compile(
        patterns: Vec<(String, impl Into<Origin>)>,
        ignoring_case: bool,
    ) -> Result<Self, GlobError> {
        let (patterns, places): (Vec<_>, Vec<_>) =
            patterns.into_iter().map(|(pattern, place)| (pattern, place.into())).unzip();
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

    /// Returns the index of the first pattern that [`covers`](Self::covers) a path.
    pub(crate) fn first_match(&self, path: &Path) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.set.matches(path).first().map(|glob| self.pattern_of[*glob])
    }

    /// Returns the rule of a pattern in the list `key`, its place, and the remedy that removes it.
    pub(crate) fn explain(&self, key: &str, index: usize) -> (String, &Origin, Cow<'static, str>) {
        let pattern = &self.patterns[index];
        let place = &self.places[index];
        let remedy = place.remedy(|| match &place.kind {
            OriginKind::Default(table) => {
                let line = format!("{key} = [{}]", self.other_defaults(pattern).join(", "));
                format!("To allow it, {}", table.lines("tools.file", &line))
            }
            _ => format!("To allow it, take \"{pattern}\" out of `{key}`."),
        });
        (format!("{key} = \"{pattern}\""), place, remedy)
    }

    /// Returns the default patterns except for `pattern`, as TOML strings.
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

    /// Returns the folder above the first wildcard of each pattern that starts at the root. For a
    /// pattern without wildcards, returns the whole path.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let rooted = self.patterns.iter().filter(|pattern| pattern.starts_with('/'));
        rooted.map(|pattern| {
            let parts =
                pattern.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '\\']));
            parts.fold(PathBuf::from("/"), |path, part| path.join(part))
        })
    }

    /// Returns the patterns that start at the root, up to their first wildcard. Each of these
    /// folders certainly contains a denied path.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = (usize, &Path)> {
        let rooted = self.patterns.iter().enumerate().filter(|(_, text)| text.starts_with('/'));
        rooted.map(|(index, pattern)| {
            let plain = pattern.split(['*', '?', '[', '{']).next().unwrap_or(pattern);
            (index, Path::new(plain.trim_end_matches('/')))
        })
    }
}

/// Writes a pattern as a glob for a whole path. A pattern without a leading `/` matches at every
/// depth.
fn to_whole_path(pattern: &str) -> String {
    let below = pattern.strip_suffix("/**").unwrap_or(pattern).trim_end_matches('/');
    let stem = below.strip_prefix("./").unwrap_or(below);
    if stem.starts_with('/') || stem.starts_with("**/") {
        return stem.to_owned();
    }
    if stem.is_empty() || stem == "**" {
        return "/**".to_owned();
    }
    format!("**/{stem}")
}
