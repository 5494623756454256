//! Globs over paths.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use berth_contract::text::toml;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::origin::{Origin, OriginKind};

/// Globs over paths, all from one key of the configuration.
///
/// A glob with a leading `/` is matched against the whole path, any other at every depth. A glob
/// covers what lies below its match, and `X/**` covers `X` itself.
#[derive(Clone, Debug, Default)]
pub struct PathGlobs {
    set: GlobSet,
    patterns: Vec<String>,
    /// For each pattern, where it stands.
    pub(crate) places: Vec<Origin>,
    /// For each glob of the set, its pattern.
    origin: Vec<usize>,
}

impl PathGlobs {
    /// Compiles patterns, each with the place where it stands.
    ///
    /// # Errors
    ///
    /// The first pattern that is no glob, with the engine's explanation.
    pub fn new(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, String> {
        Self::compile(patterns, false)
    }

    /// The same, where case doesn't matter.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn ignoring_case(patterns: Vec<(String, impl Into<Origin>)>) -> Result<Self, String> {
        Self::compile(patterns, true)
    }

    fn compile(
        patterns: Vec<(String, impl Into<Origin>)>,
        ignoring_case: bool,
    ) -> Result<Self, String> {
        let (patterns, places): (Vec<_>, Vec<_>) =
            patterns.into_iter().map(|(pattern, place)| (pattern, place.into())).unzip();
        let mut set = GlobSetBuilder::new();
        let mut origin = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let stem = pattern.strip_suffix("/**").unwrap_or(pattern).trim_end_matches('/');
            let stem = stem.strip_prefix("./").unwrap_or(stem);
            let anchored = if stem.starts_with('/') || stem.starts_with("**/") {
                stem.to_owned()
            } else if stem.is_empty() || stem == "**" {
                "/**".to_owned()
            } else {
                format!("**/{stem}")
            };
            for glob in [anchored.clone(), format!("{anchored}/**")] {
                let glob = GlobBuilder::new(&glob)
                    .literal_separator(true)
                    .case_insensitive(ignoring_case)
                    .build()
                    .map_err(|error| format!("`{pattern}` is not a glob: {}", error.kind()))?;
                set.add(glob);
                origin.push(index);
            }
        }
        let set = set.build().map_err(|error| error.to_string())?;
        Ok(Self { set, patterns, places, origin })
    }

    /// Whether there is no glob.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a path matches, or lies below one that does.
    pub fn covers(&self, path: &Path) -> bool {
        self.first_match(path).is_some()
    }

    pub(crate) fn first_match(&self, path: &Path) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.set.matches(path).first().map(|glob| self.origin[*glob])
    }

    /// The rule that a pattern of the list at `key` makes, its place, and what takes it out.
    pub(crate) fn explain(&self, key: &str, index: usize) -> (String, &Origin, Cow<'static, str>) {
        let (pattern, place) = (&self.patterns[index], &self.places[index]);
        let remedy = place.remedy(|| match place.kind {
            OriginKind::Default(_) => {
                let others = self.patterns.iter().zip(&self.places);
                let others = others.filter(|(other, of)| {
                    *other != pattern && matches!(of.kind, OriginKind::Default(_))
                });
                let others: Vec<String> = others.map(|(other, _)| toml(other)).collect();
                format!(
                    "To allow it, {}",
                    place.lines("tools.file", &format!("{key} = [{}]", others.join(", ")))
                )
            }
            _ => format!("To allow it, take \"{pattern}\" out of `{key}`."),
        });
        (format!("{key} = \"{pattern}\""), place, remedy)
    }

    /// The folders above the first wildcard of each pattern that begins at the root; where it has
    /// none, the path itself.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.patterns.iter().filter(|pattern| pattern.starts_with('/')).map(|pattern| {
            let parts =
                pattern.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '\\']));
            parts.fold(PathBuf::from("/"), |path, part| path.join(part))
        })
    }

    /// The patterns that begin at the root, up to their first wildcard: folders that certainly hold
    /// something denied.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.patterns.iter().enumerate().filter(|(_, pattern)| pattern.starts_with('/')).map(
            |(index, pattern)| {
                let plain = pattern.split(['*', '?', '[', '{']).next().unwrap_or(pattern);
                (index, Path::new(plain.trim_end_matches('/')))
            },
        )
    }
}
