//! Reads the lines of a journal, and follows moves to the paths after the call.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toolhold_data_dir::PrivateFolder;

use super::access::Access;
use super::files::DirEntryRef;
use super::folder::JOURNAL;
use super::saved_path;
use super::state::{Identity, State};

/// A line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    /// The state of a path before the call.
    Before {
        #[serde(with = "saved_path")]
        path: PathBuf,
        before: State,
        /// The time of the save, in nanoseconds since 1970.
        #[serde(default)]
        at: u64,
    },
    /// A path whose state could not be saved.
    Lost {
        #[serde(with = "saved_path")]
        path: PathBuf,
        lost: String,
    },
    /// Something is about to get another name.
    Move(Move),
    /// The result of the previous move: whether the move was made.
    Moved { moved: bool },
}

impl Line {
    /// Returns the time when a state was saved.
    pub(crate) fn at(&self) -> Option<u64> {
        match self {
            Self::Before { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// A move of an object. Each path is the path at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Move {
    #[serde(with = "saved_path")]
    pub(crate) from: PathBuf,
    #[serde(with = "saved_path")]
    pub(crate) to: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Move {
    /// Returns the path of an object after this move is undone.
    pub(crate) fn undone(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.to) {
            Ok(rest) if rest.as_os_str().is_empty() => self.from.clone(),
            Ok(rest) => self.from.join(rest),
            Err(_) => path,
        }
    }

    /// Checks whether the object has this path.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let stat = DirEntryRef::find(&Access::default(), path).and_then(|place| place.stat());
        matches!(stat, Ok(Some(stat)) if (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }
}

/// Returns the lines of a call's folder. If its process was killed, the last line may be
/// incomplete. The change of an incomplete line wasn't made.
pub(crate) fn read(folder: &PrivateFolder) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in BufReader::new(folder.file(JOURNAL)?).lines() {
        lines.extend(serde_json::from_str(&line?).ok());
    }
    Ok(lines)
}

/// Returns the first saved state of a path, with the time of the save.
pub(crate) fn first_saved<'a>(lines: &'a [Line], path: &Path) -> Option<(u64, &'a State)> {
    lines.iter().find_map(|line| match line {
        Line::Before { path: saved, before, at } if saved == path => Some((*at, before)),
        _ => None,
    })
}

/// Returns the first saved state of each path, with the time of the save.
pub(crate) fn all_first_saved(lines: &[Line]) -> HashMap<&Path, (u64, &State)> {
    let mut first = HashMap::new();
    for line in lines {
        if let Line::Before { path, before, at } = line {
            first.entry(path.as_path()).or_insert((*at, before));
        }
    }
    first
}

/// Returns the time when a file was saved first, by any name.
pub(crate) fn saved_file(lines: &[Line], file: Identity) -> Option<u64> {
    lines.iter().find_map(|line| match line {
        Line::Before { before, at, .. } if before.identity() == Some(file) => Some(*at),
        _ => None,
    })
}

/// Returns the paths that a call has changed, as they are after the call. Each has the first saved
/// state of its object.
pub(crate) fn finals(lines: &[Line], moves: &[Move]) -> BTreeMap<PathBuf, State> {
    let mut all = BTreeMap::new();
    let mut later = moves;
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Before { path, before, .. } => {
                all.entry(present(later, path)).or_insert_with(|| before.clone());
            }
            Line::Move(_) if is_first(later, lines, at) => later = &later[1..],
            Line::Move(_) | Line::Moved { .. } | Line::Lost { .. } => {}
        }
    }
    all
}

/// Returns the moves that were made, in their order.
pub(crate) fn moves(lines: &[Line]) -> Vec<Move> {
    let mut made = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Line::Move(planned) = line else { continue };
        let is_made = match lines.get(index + 1) {
            Some(Line::Moved { moved }) => *moved,
            // The process was killed before it recorded the result.
            _ => planned.is_at(&planned.to),
        };
        if is_made {
            made.push(planned.clone());
        }
    }
    made
}

/// Checks whether the line with this number is the first of these moves. The same move may have
/// failed before.
pub(crate) fn is_first(moves: &[Move], lines: &[Line], at: usize) -> bool {
    matches!(&lines[at], Line::Move(made) if moves.first() == Some(made)) && !has_failed(lines, at)
}

/// Checks whether the line with this number is a move that wasn't made.
pub(crate) fn has_failed(lines: &[Line], at: usize) -> bool {
    let next = lines.get(at + 1);
    matches!(lines[at], Line::Move(_)) && matches!(next, Some(Line::Moved { moved: false }))
}

/// Returns the path that something has after the moves.
pub(crate) fn present(moves: &[Move], path: &Path) -> PathBuf {
    moves.iter().fold(path.to_owned(), |path, made| match path.strip_prefix(&made.from) {
        Ok(rest) if rest.as_os_str().is_empty() => made.to.clone(),
        Ok(rest) => made.to.join(rest),
        Err(_) => path,
    })
}
