//! What of the entries a search is after, by the caller's globs and by ignore rules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::FileType;

use super::folder::Folder;
use super::ignores::Room;
use super::model::{Scope, SearchError};

/// How many globs a search takes, and their bytes: compiled, a glob is some hundred times as large.
const MAX_GLOBS: usize = 1_000;
const MAX_GLOB_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Filter {
    globs: Override,
    /// Names that begin with a dot and that the caller asked for.
    hidden: GlobSet,
    /// Where ignore rules count.
    room: Option<Arc<Room>>,
}

/// What is to become of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Left out, and so is what is in it.
    Out,
    /// Entered, not listed: only directories.
    Through,
    /// Wanted.
    In,
}

impl Filter {
    /// The filter of a scope, for a search with so many threads.
    ///
    /// # Errors
    ///
    /// [`SearchError::InvalidPattern`] for what is no glob, and for too many.
    pub(super) fn new(scope: &Scope, threads: usize) -> Result<Self, SearchError> {
        let (count, bytes) =
            (scope.globs.len(), scope.globs.iter().map(String::len).sum::<usize>());
        if count > MAX_GLOBS || bytes > MAX_GLOB_BYTES {
            let limit = format!("the limit is {MAX_GLOBS} globs and {MAX_GLOB_BYTES} bytes");
            return Err(SearchError::InvalidPattern(format!(
                "{count} globs have {bytes} bytes; {limit}"
            )));
        }
        let invalid = |error: ignore::Error| SearchError::InvalidPattern(error.to_string());
        let mut globs = OverrideBuilder::new("");
        for glob in &scope.globs {
            globs.add(glob).map_err(invalid)?;
        }
        let globs = globs.build().map_err(invalid)?;
        Ok(Self {
            globs,
            hidden: dotted_components(&scope.globs),
            room: scope.ignore_rules.then(|| Room::new(threads)),
        })
    }

    /// A filter that lets everything in: what is named explicitly is never left out.
    pub(super) fn everything() -> Self {
        Self { globs: Override::empty(), hidden: GlobSet::empty(), room: None }
    }

    /// The room for what ignore files say, where they have to be read.
    pub(super) fn room(&self) -> Option<&Arc<Room>> {
        self.room.as_ref()
    }

    /// Decides on an entry of `folder`: its name, its path below the root, and its real path.
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
            Match::Ignore(_) => return Verdict::Out,
            Match::None if self.globs.num_whitelists() > 0 => Verdict::Through,
            Match::None | Match::Whitelist(_) => Verdict::In,
        };
        if self.room.is_none() {
            return verdict;
        }
        let said = folder.ignores.as_ref().and_then(|ignores| ignores.verdict(path, is_directory));
        match said {
            Some(true) => Verdict::Out,
            None if name.first() == Some(&b'.')
                && !self.hidden.is_match(Path::new(OsStr::from_bytes(name))) =>
            {
                Verdict::Out
            }
            Some(false) | None => verdict,
        }
    }
}

/// The components of positive globs that begin with a dot. Whoever writes the dot wants what is
/// hidden, as in a shell.
fn dotted_components(globs: &[String]) -> GlobSet {
    let positive = globs.iter().filter(|glob| !glob.starts_with('!'));
    let dotted = positive
        .flat_map(|glob| glob.split('/'))
        .filter(|part| part.starts_with('.') && !matches!(*part, "." | ".."));
    let mut set = GlobSetBuilder::new();
    for glob in dotted.filter_map(|part| GlobBuilder::new(part).build().ok()) {
        set.add(glob);
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}
