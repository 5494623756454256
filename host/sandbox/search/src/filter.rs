//! Decides which entries a search visits: by the caller's globs and by ignore rules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::FileType;
use toolhold_policy::MAX_GLOB;

use super::folder::Folder;
use super::ignores::RuleMemory;
use super::model::{Scope, SearchError};

/// Limits for the globs of a search. A search with more globs is refused. A compiled glob is about
/// a hundred times as large as its text.
const MAX_GLOBS: usize = 1_000;
const MAX_GLOB_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Filter {
    globs: Override,
    /// Globs for hidden names that the caller's globs ask for.
    hidden: GlobSet,
    /// `None` if ignore rules don't apply.
    memory: Option<Arc<RuleMemory>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Exclude,
    /// The entry isn't listed. If it is a directory, its content may be.
    EnterOnly,
    Include,
}

impl Filter {
    /// Makes the filter of a scope for a search with `threads` threads. Fails if a glob isn't
    /// valid, or if there are too many globs.
    pub(super) fn new(scope: &Scope, threads: usize) -> Result<Self, SearchError> {
        let count = scope.globs.len();
        let bytes = scope.globs.iter().map(String::len).sum::<usize>();
        if count > MAX_GLOBS || bytes > MAX_GLOB_BYTES {
            let limit = format!("the limit is {MAX_GLOBS} globs and {MAX_GLOB_BYTES} bytes");
            let message = format!("the search has {count} globs with {bytes} bytes; {limit}");
            return Err(SearchError::InvalidPattern(message));
        }
        if let Some(glob) = scope.globs.iter().find(|glob| glob.len() > MAX_GLOB) {
            let bytes = glob.len();
            let message = format!("a glob is {bytes} bytes; the limit is {MAX_GLOB}");
            return Err(SearchError::InvalidPattern(message));
        }
        let mut builder = OverrideBuilder::new("");
        for glob in &scope.globs {
            builder.add(glob).map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
        }
        let globs =
            builder.build().map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
        let memory = if scope.ignore_rules { Some(RuleMemory::new(threads)) } else { None };
        Ok(Self { globs, hidden: dotted_components(&scope.globs), memory })
    }

    /// Returns the filter for a root that is a file. Ignore rules and globs don't apply to it.
    pub(super) fn everything() -> Self {
        Self { globs: Override::empty(), hidden: GlobSet::empty(), memory: None }
    }

    pub(super) fn memory(&self) -> Option<&Arc<RuleMemory>> {
        self.memory.as_ref()
    }

    /// Decides on the entry `name` of `folder`. `relative_path` is the path below the root, and
    /// `path` is the real path.
    pub(super) fn decide(
        &self,
        folder: &Folder,
        name: &[u8],
        relative_path: &[u8],
        path: &[u8],
        kind: FileType,
    ) -> Verdict {
        let is_directory = kind == FileType::Directory;
        let verdict =
            match self.globs.matched(Path::new(OsStr::from_bytes(relative_path)), is_directory) {
                Match::Ignore(_) => return Verdict::Exclude,
                // No positive glob matches the entry, but one may match its content.
                Match::None if self.globs.num_whitelists() > 0 => Verdict::EnterOnly,
                Match::None | Match::Whitelist(_) => Verdict::Include,
            };
        // The search doesn't use ignore files.
        if self.memory.is_none() {
            return verdict;
        }

        let ignores = folder.ignores.as_ref();
        let is_excluded = match ignores.and_then(|found| found.is_ignored(path, is_directory)) {
            Some(is_ignored) => is_ignored,
            // No ignore rule matches.
            None => self.is_hidden(name),
        };
        if is_excluded { Verdict::Exclude } else { verdict }
    }

    /// Checks whether a name begins with a dot and no glob asks for it.
    fn is_hidden(&self, name: &[u8]) -> bool {
        name.starts_with(b".") && !self.hidden.is_match(Path::new(OsStr::from_bytes(name)))
    }
}

/// Returns the dotted components of positive globs, such as `.github`, as globs for names. As in a
/// shell, such a component asks for hidden names.
fn dotted_components(globs: &[String]) -> GlobSet {
    let positive = globs.iter().filter(|glob| !glob.starts_with('!'));
    let mut set = GlobSetBuilder::new();
    for component in positive.flat_map(|glob| glob.split('/')) {
        if !component.starts_with('.') || matches!(component, "." | "..") {
            continue;
        }
        // A component such as `.{a` isn't a valid glob alone.
        if let Ok(glob) = GlobBuilder::new(component).build() {
            set.add(glob);
        }
    }
    // If the globs are too large together, no glob asks for hidden names.
    set.build().unwrap_or_else(|_| GlobSet::empty())
}
