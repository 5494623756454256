//! Reads the lines of a journal, and maps paths by the call's moves.

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

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Before {
        #[serde(with = "saved_path")]
        path: PathBuf,
        before: State,
        /// Nanoseconds since 1970.
        #[serde(default)]
        at: u64,
    },
    Lost {
        #[serde(with = "saved_path")]
        path: PathBuf,
        lost: String,
    },
    /// A move that is about to be made.
    Move(Move),
    /// Whether the previous move was made.
    Moved { moved: bool },
}

impl Line {
    pub(crate) fn at(&self) -> Option<u64> {
        match self {
            Self::Before { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// A move of an object. The paths are the paths at the time of the move.
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
    pub(crate) fn undone(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.to) {
            Ok(rest) if rest.as_os_str().is_empty() => self.from.clone(),
            Ok(rest) => self.from.join(rest),
            Err(_) => path,
        }
    }

    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let stat = DirEntryRef::find(&Access::default(), path).and_then(|place| place.stat());
        matches!(stat, Ok(Some(stat)) if (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }
}

/// Reads a call's journal. After a crash, the last line may be incomplete. An incomplete line is
/// ignored, because its change wasn't made.
pub(crate) fn read(folder: &PrivateFolder) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in BufReader::new(folder.file(JOURNAL)?).lines() {
        lines.extend(serde_json::from_str(&line?).ok());
    }
    Ok(lines)
}

pub(crate) fn first_saved<'a>(lines: &'a [Line], path: &Path) -> Option<(u64, &'a State)> {
    lines.iter().find_map(|line| match line {
        Line::Before { path: saved, before, at } if saved == path => Some((*at, before)),
        _ => None,
    })
}

/// Returns the first saved state of each path, with its time.
pub(crate) fn all_first_saved(lines: &[Line]) -> HashMap<&Path, (u64, &State)> {
    let mut first = HashMap::new();
    for line in lines {
        if let Line::Before { path, before, at } = line {
            first.entry(path.as_path()).or_insert((*at, before));
        }
    }
    first
}

/// Returns the time at which a file was first saved, by any name.
pub(crate) fn saved_file(lines: &[Line], file: Identity) -> Option<u64> {
    lines.iter().find_map(|line| match line {
        Line::Before { before, at, .. } if before.identity() == Some(file) => Some(*at),
        _ => None,
    })
}

/// Returns the first saved state of each changed object, by the object's path after the call.
/// `moves` are the moves that were made.
pub(crate) fn changed_paths(lines: &[Line], moves: &[Move]) -> BTreeMap<PathBuf, State> {
    let mut states = BTreeMap::new();
    // The moves after the current line, which change the paths in this line.
    let mut later_moves = moves;
    for (index, line) in lines.iter().enumerate() {
        match line {
            Line::Before { path, before, .. } => {
                states.entry(path_after(later_moves, path)).or_insert_with(|| before.clone());
            }
            Line::Move(_) if is_line_of_first_move(later_moves, lines, index) => {
                later_moves = &later_moves[1..];
            }
            Line::Move(_) | Line::Moved { .. } | Line::Lost { .. } => {}
        }
    }
    states
}

/// Returns the moves that were made. Other planned moves have failed.
pub(crate) fn moves(lines: &[Line]) -> Vec<Move> {
    let mut moves = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Line::Move(planned) = line else { continue };
        let next_line = lines.get(index + 1);
        let is_made = match next_line {
            Some(Line::Moved { moved }) => *moved,
            // The process was killed before it recorded the result.
            Some(_) | None => planned.is_at(&planned.to),
        };
        if is_made {
            moves.push(planned.clone());
        }
    }
    moves
}

/// Checks whether the line `at` records the first of `moves`, and not an equal move that failed
/// earlier.
pub(crate) fn is_line_of_first_move(moves: &[Move], lines: &[Line], at: usize) -> bool {
    matches!(&lines[at], Line::Move(made_move) if moves.first() == Some(made_move))
        && !has_failed(lines, at)
}

pub(crate) fn has_failed(lines: &[Line], at: usize) -> bool {
    let next = lines.get(at + 1);
    matches!(lines[at], Line::Move(_)) && matches!(next, Some(Line::Moved { moved: false }))
}

/// Returns the path of an object after the moves. `path` is its path before the moves.
pub(crate) fn path_after(moves: &[Move], path: &Path) -> PathBuf {
    let mut current = path.to_owned();
    for made_move in moves {
        let Ok(rest) = current.strip_prefix(&made_move.from) else { continue };
        // Joining an empty path adds a slash.
        let is_moved_itself = rest.as_os_str().is_empty();
        current = if is_moved_itself { made_move.to.clone() } else { made_move.to.join(rest) };
    }
    current
}
