//! Narrows a list of directories: those that the file grants and those that are granted already.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_system::files::real_or_given;

use super::super::leaf::Leaf;
use super::super::resolved::{Resolved, expand, resolve};
use super::super::{AllowedPath, FileTools, PathAccess, Problem, Source};
use super::{Bases, Comparison, Narrower, Outcome, shown};

impl Comparison<'_> {
    /// Keeps the directories that are in both the file's list and the current list.
    ///
    /// A directory of either list stays if a directory of the other list contains it, with the
    /// lesser access of the two. In each list, the longest directory that contains a path decides,
    /// so every path gets the lesser access of both lists.
    pub(super) fn directories(&self) -> Result<Outcome, Vec<Problem>> {
        let written = self.written_directories();
        if written.is_empty() {
            // For a plugin, the empty list means no directory at all.
            let grants_any = self.current.as_array().is_some_and(|list| !list.is_empty());
            return Ok(if grants_any {
                Outcome::applies(self.leaf.clone())
            } else {
                Outcome::default()
            });
        }
        let current_list = self.current_list();
        let current = self.resolve_directories(
            current_list
                .into_iter()
                .filter_map(|(item, source)| Some((AllowedPath::deserialize(item).ok()?, source))),
        );
        let mut proposed = self.resolve_directories(written);
        let problems = self.missing_directories(&proposed, &current);
        if !problems.is_empty() {
            return Err(problems);
        }

        // A directory behind a link isn't granted: a changed link would grant another directory.
        let (linked, absent): (Vec<_>, Vec<_>) =
            proposed.absent.into_iter().partition(|granted| granted.link.is_some());
        let mut reasons: Vec<String> =
            linked.iter().map(|granted| format!("{granted} leads through a link")).collect();
        if self.narrower == Narrower::Project {
            proposed.existing.extend(absent);
        }
        let kept = intersection(&proposed.existing, &current.existing, &mut reasons);
        if kept.is_empty() && self.narrower == Narrower::Ceiling {
            return Ok(if current.existing.is_empty() {
                Outcome::default()
            } else {
                Outcome::applies(self.nothing_left())
            });
        }
        let leaf = self.changed_directories(&kept, &current);
        Ok(Outcome { leaf, reasons, rules: None })
    }

    /// Returns the directories of the file's list, each with its source. For the file tools and the
    /// shell, the empty list means the working directory.
    fn written_directories(&self) -> Vec<(AllowedPath, Source)> {
        let written = self
            .elements()
            .map(|(item, source)| Ok((AllowedPath::deserialize(item.clone())?, source.clone())))
            .collect::<Result<Vec<_>, toml::de::Error>>()
            .unwrap_or_default();
        if !written.is_empty() || self.leaf.path[0] != "tools" {
            return written;
        }
        let default = FileTools::default().allowed_paths.into_iter();
        default.map(|path| (path, self.leaf.source())).collect()
    }

    fn resolve_directories(
        &self,
        written: impl IntoIterator<Item = (AllowedPath, Source)>,
    ) -> ResolvedList {
        let (existing, absent) = written
            .into_iter()
            .map(|(path, source)| Granted::new(path, source, self.bases))
            .partition(|granted| granted.exists);
        ResolvedList { existing, absent }
    }

    /// Returns the problems with directories that don't exist. A missing directory isn't skipped:
    /// if it is created later, it would get the access of the directory that contains it.
    fn missing_directories(&self, proposed: &ResolvedList, current: &ResolvedList) -> Vec<Problem> {
        let mut problems = Vec::new();
        for granted in &proposed.absent {
            let is_problem = match self.narrower {
                Narrower::Project => access(&current.existing, &granted.real).is_some(),
                // Without this entry, the directory would get more access from a directory above
                // it.
                Narrower::Ceiling => access(&proposed.existing, &granted.real)
                    .is_some_and(|above| above > granted.written.access),
            };
            if is_problem {
                problems.push(granted.problem());
            }
        }
        // A directory that is missing from the operator's list is reported where it is granted. A
        // ceiling can't be compared with a missing directory, so here the directory is an error.
        if self.narrower == Narrower::Ceiling {
            problems.extend(current.absent.iter().map(Granted::problem));
        }
        problems
    }

    /// Makes the leaf with the directories that are in both lists. Returns `None` if the current
    /// list has the same directories, or if no directory is in both lists.
    fn changed_directories(
        &self,
        kept: &[(&Granted, PathAccess)],
        current: &ResolvedList,
    ) -> Option<Leaf> {
        let is_same = kept.len() == current.existing.len()
            && current.existing.iter().all(|held| self.is_unchanged(held, kept));
        if kept.is_empty() || is_same {
            return None;
        }
        let kept = kept.iter().map(|(granted, access)| {
            // The real path was compared. The written path could lead to another directory by now.
            let path = match granted.real.to_str() {
                Some(real) => real.to_owned(),
                None => granted.written.path.clone(),
            };
            (AllowedPath { path, access: *access }, granted.source.clone())
        });
        // Missing directories stay in the list and are reported where they are granted.
        let missing =
            current.absent.iter().map(|granted| (granted.written.clone(), granted.source.clone()));
        let elements = kept.chain(missing).map(|(path, source)| {
            (toml::Value::try_from(path).unwrap_or(toml::Value::Boolean(false)), source)
        });
        Some(self.list(elements))
    }

    /// Checks whether the result has a current directory with the same access and the same path.
    fn is_unchanged(&self, held: &Granted, kept: &[(&Granted, PathAccess)]) -> bool {
        let is_kept = kept
            .iter()
            .any(|(granted, access)| granted.real == held.real && *access == held.written.access);
        match self.narrower {
            Narrower::Project => is_kept,
            // A ceiling compares real paths. The path that tools open must be the compared path.
            Narrower::Ceiling => is_kept && held.real.to_str() == Some(&held.written.path),
        }
    }

    /// Makes the leaf for no directory at all. For the file tools and the shell, the empty list
    /// means the working directory, so they are disabled instead.
    fn nothing_left(&self) -> Leaf {
        if self.leaf.path[0] != "tools" {
            return self.list([]);
        }
        let path = vec!["tools".to_owned(), self.leaf.path[1].clone(), "enabled".to_owned()];
        Leaf::new(path, toml::Value::Boolean(false), &self.leaf.source())
    }
}

/// The directories of one list.
struct ResolvedList {
    existing: Vec<Granted>,
    absent: Vec<Granted>,
}

/// A directory that one of the two lists grants.
pub(super) struct Granted {
    written: AllowedPath,
    source: Source,
    pub(super) real: PathBuf,
    /// Whether the path leads to a directory, and no tool could have changed a link on the path.
    exists: bool,
    /// The link on the path that a tool could exchange.
    link: Option<PathBuf>,
    /// Whether `real` differs from the written path. Messages then show `real`, too.
    leads_elsewhere: bool,
}

impl Granted {
    pub(super) fn new(
        written: AllowedPath,
        source: Source,
        Bases { folders, working_directory }: Bases<'_>,
    ) -> Self {
        let path = expand(&written.path, working_directory, folders);
        let (real, link) = match resolve(&path) {
            Ok(Resolved { real, link }) => (real, link),
            Err(_) => (real_or_given(&path), None),
        };
        // A path that isn't UTF-8 can't be written to a list.
        let exists = link.is_none() && real.is_dir() && real.to_str().is_some();
        let leads_elsewhere = real != path;
        Self { written, source, real, exists, link, leads_elsewhere }
    }

    /// Returns the problem with a directory that doesn't exist.
    fn problem(&self) -> Problem {
        let why = match &self.link {
            Some(link) => format!("leads through the link {}; name its target", link.display()),
            None => "isn't an existing directory; create it, or remove the entry".to_owned(),
        };
        Problem::new(self.source.clone(), format!("{self} {why}"))
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.written.path))?;
        if self.leads_elsewhere {
            write!(f, ", which is {},", self.real.display())?;
        }
        Ok(())
    }
}

/// Returns the directories that are in both lists, with the lesser access, in the order of the
/// file. A directory in both lists has the file's line. `reasons` gets the reason for each part of
/// the file's list that isn't granted.
fn intersection<'g>(
    proposed: &'g [Granted],
    current: &'g [Granted],
    reasons: &mut Vec<String>,
) -> Vec<(&'g Granted, PathAccess)> {
    let mut kept: Vec<(&Granted, PathAccess)> = Vec::new();
    for granted in proposed.iter().chain(current) {
        let Some(proposed_access) = access(proposed, &granted.real) else { continue };
        match access(current, &granted.real) {
            None if current.iter().any(|held| held.real.starts_with(&granted.real)) => {
                reasons.push(format!("{granted} is wider than the granted directories"));
            }
            None => reasons.push(format!("{granted} isn't in a granted directory")),
            Some(_) if kept.iter().any(|(known, _)| known.real == granted.real) => {}
            Some(current_access) => {
                if current_access < proposed_access {
                    reasons.push(format!("{granted} is granted only for reading"));
                }
                kept.push((granted, current_access.min(proposed_access)));
            }
        }
    }
    kept
}

/// Returns the access to `path`, or `None` if no directory contains it. The longest directory
/// decides. If the list has this directory twice, the lesser access applies.
fn access(granted: &[Granted], path: &Path) -> Option<PathAccess> {
    let containing = granted.iter().filter(|granted| path.starts_with(&granted.real));
    let longest = containing.max_by_key(|granted| {
        (granted.real.components().count(), std::cmp::Reverse(granted.written.access))
    });
    longest.map(|granted| granted.written.access)
}
