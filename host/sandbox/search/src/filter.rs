//! Decides which entries a search visits, by the caller's globs and by ignore rules.

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

/// The most globs of a search, and the most bytes of all globs. A compiled glob is about a hundred
/// times as large as its text.
const MAX_GLOBS: usize = 1_000;
const MAX_GLOB_BYTES: usize = 64 << 10;

/// The globs and ignore settings of one search.
#[derive(Debug)]
pub(super) struct Filter {
    globs: Override,
    /// Names with a dot at the beginning that the caller's globs include.
    hidden: GlobSet,
    /// The memory for ignore rules. `None` if ignore rules don't apply.
    memory: Option<Arc<RuleMemory>>,
}

/// The decision on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The entry is excluded, with its whole content.
    Exclude,
    /// The entry is not listed, but a directory is entered.
    EnterOnly,
    /// The entry is listed or searched.
    Include,
}

impl Filter {
    /// Makes the filter of a scope, for a search with `threads` threads.
    ///
    /// # Errors
    ///
    /// [`SearchError::InvalidPattern`] if a glob isn't valid, or if there are too many globs.
    pub(super) fn new(scope: &Scope, threads: usize) -> Result<Self, SearchError> {
        let count = scope.globs.len();
        let bytes = scope.globs.iter().map(String::len).sum::<usize>();
        if count > MAX_GLOBS || bytes > MAX_GLOB_BYTES {
            let limit = format!("the limit is {MAX_GLOBS} globs and {MAX_GLOB_BYTES} bytes");
            let message = format!("{count} globs with {bytes} bytes are too many; {limit}");
            return Err(SearchError::InvalidPattern(message));
        }
        if let Some(glob) = scope.globs.iter().find(|glob| glob.len() > MAX_GLOB) {
            let bytes = glob.len();
            let message = format!("a glob is {bytes} bytes; the limit is {MAX_GLOB}");
            return Err(SearchError::InvalidPattern(message));
        }
        let mut globs = OverrideBuilder::new("");
        for glob in &scope.globs {
            globs.add(glob).map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
        }
        let globs =
            globs.build().map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
        let memory = if scope.ignore_rules { Some(RuleMemory::new(threads)) } else { None };
        Ok(Self { globs, hidden: dotted_components(&scope.globs), memory })
    }

    /// Returns a filter that includes everything. It is for a root that is a file, since ignore
    /// rules and globs don't apply to such a file.
    pub(super) fn everything() -> Self {
        Self { globs: Override::empty(), hidden: GlobSet::empty(), memory: None }
    }

    /// Returns the memory for ignore rules, or `None` if ignore files are not read.
    pub(super) fn memory(&self) -> Option<&Arc<RuleMemory>> {
        self.memory.as_ref()
    }

    /// Decides on an entry of `folder` by the entry's name, its path below the root, and its real
    /// path.
    pub(super) fn decide(
        &self,
        folder: &Folder,
        name: &[u8],
        rest: &[u8],
        path: &[u8],
        kind: FileType,
    ) -> Verdict {
        let is_directory = kind == FileType::Directory;
        let verdict = match self.globs.matched(Path::new(OsStr::from_bytes(rest)), is_directory) {
            Match::Ignore(_) => return Verdict::Exclude,
            Match::None if self.globs.num_whitelists() > 0 => Verdict::EnterOnly,
            Match::None | Match::Whitelist(_) => Verdict::Include,
        };
        if self.memory.is_none() {
            return verdict;
        }

        let ignores = folder.ignores.as_ref();
        match ignores.and_then(|ignores| ignores.is_ignored(path, is_directory)) {
            Some(true) => Verdict::Exclude,
            Some(false) => verdict,
            None if self.is_hidden(name) => Verdict::Exclude,
            None => verdict,
        }
    }

    /// Checks whether a name begins with a dot and isn't included by a glob.
    fn is_hidden(&self, name: &[u8]) -> bool {
        name.starts_with(b".") && !self.hidden.is_match(Path::new(OsStr::from_bytes(name)))
    }
}

/// Returns the components of positive globs that begin with a dot. As in a shell, a dot in the glob
/// asks for hidden names.
fn dotted_components(globs: &[String]) -> GlobSet {
    let positive = globs.iter().filter(|glob| !glob.starts_with('!'));
    let mut set = GlobSetBuilder::new();
    for component in positive.flat_map(|glob| glob.split('/')) {
        if !component.starts_with('.') || matches!(component, "." | "..") {
            continue;
        }
        if let Ok(glob) = GlobBuilder::new(component).build() {
            set.add(glob);
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}
