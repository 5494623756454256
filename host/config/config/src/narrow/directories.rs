//! Narrows a list of granted directories.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use toolhold_system::files::real_or_given;

use super::super::leaf::Leaf;
use super::super::resolved::{Resolved, expand, resolve};
use super::super::{AllowedPath, FileTools, PathAccess, Problem, Source};
use super::{Bases, Comparison, Narrower, Outcome, shown};

impl Comparison<'_> {
    /// Keeps the directories that are in both the file's list and the current list.
    ///
    /// A directory stays if a directory of the other list contains it. The lesser access of both
    /// lists applies. In each list, the longest directory that contains a path decides.
    pub(super) fn directories(&self) -> Result<Outcome, Vec<Problem>> {
        let written = self.written_directories();
        if written.is_empty() {
            // For built-in tools, `written_directories` has replaced the empty list by the default.
            // So this is the list of a plugin or a server, where an empty list grants no directory.
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

        // A directory behind a link isn't granted: a tool could change the link, and so grant
        // another directory.
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
        Ok(Outcome { leaf, reasons, ignored_rules: None })
    }

    /// Returns the directories in the file's list. For the file tools and the shell, the empty list
    /// means the working directory.
    fn written_directories(&self) -> Vec<(AllowedPath, Source)> {
        // A list with an invalid element was refused before. Here, it is treated as empty.
        let written = self
            .elements()
            .map(|(item, source)| Ok((AllowedPath::deserialize(item.clone())?, source.clone())))
            .collect::<Result<Vec<_>, toml::de::Error>>()
            .unwrap_or_default();
        let is_of_built_in_tools = self.leaf.path[0] == "tools";
        if !written.is_empty() || !is_of_built_in_tools {
            return written;
        }
        let default = FileTools::default().allowed_paths.into_iter();
        default.map(|path| (path, self.leaf.source())).collect()
    }

    /// Finds the real paths of directories, and separates the missing directories.
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

    /// Returns a problem for each missing directory that can't be skipped. If such a directory were
    /// created later, it would get the access of the directory that contains it.
    fn missing_directories(&self, proposed: &ResolvedList, current: &ResolvedList) -> Vec<Problem> {
        let mut problems = Vec::new();
        for granted in &proposed.absent {
            let is_problem = match self.narrower {
                Narrower::Project => access(&current.existing, &granted.real).is_some(),
                // Without this entry, an entry for a parent directory would grant more access.
                Narrower::Ceiling => {
                    let parent_access = access(&proposed.existing, &granted.real);
                    parent_access.is_some_and(|parent| parent > granted.written.access)
                }
            };
            if is_problem {
                problems.push(granted.problem());
            }
        }
        // A ceiling can't be compared with a missing directory of the operator's list.
        if self.narrower == Narrower::Ceiling {
            problems.extend(current.absent.iter().map(Granted::problem));
        }
        problems
    }

    /// Returns the list with the directories `kept`. Returns `None` if the list doesn't change, or
    /// if no directory is left.
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
        let mut directories = Vec::new();
        for (granted, access) in kept {
            // The real path was compared, so the real path is granted: the written path may lead to
            // another directory by now.
            let path = match granted.real.to_str() {
                Some(real) => real.to_owned(),
                None => granted.written.path.clone(),
            };
            directories.push((AllowedPath { path, access: *access }, granted.source.clone()));
        }
        // Missing directories stay in the list. They are reported when the grants are built.
        for granted in &current.absent {
            directories.push((granted.written.clone(), granted.source.clone()));
        }
        let elements = directories.into_iter().map(|(path, source)| {
            // A path and its access always have a TOML form, so the fallback is never used. If it
            // were, `false` would be refused as a path.
            (toml::Value::try_from(path).unwrap_or(toml::Value::Boolean(false)), source)
        });
        Some(self.list(elements))
    }

    /// Returns whether `kept` has the current directory `held` with the same access.
    fn is_unchanged(&self, held: &Granted, kept: &[(&Granted, PathAccess)]) -> bool {
        let is_kept = kept
            .iter()
            .any(|(granted, access)| granted.real == held.real && *access == held.written.access);
        match self.narrower {
            Narrower::Project => is_kept,
            // A ceiling compares real paths, and tools must open exactly the path that was
            // compared. So a directory that is written differently counts as changed, and its real
            // path replaces the written one.
            Narrower::Ceiling => is_kept && held.real.to_str() == Some(&held.written.path),
        }
    }

    /// Returns the value that grants no directory. For the file tools and the shell, an
    /// empty list means the working directory, so these tools are disabled instead.
    fn nothing_left(&self) -> Leaf {
        if self.leaf.path[0] != "tools" {
            return self.list([]);
        }
        // The key is `tools.file.allowed_paths` or `tools.shell.allowed_paths`.
        let path = vec!["tools".to_owned(), self.leaf.path[1].clone(), "enabled".to_owned()];
        Leaf::new(path, toml::Value::Boolean(false), &self.leaf.source())
    }
}

/// Checks whether the `list` of directories grants `directory` with its access. A missing directory
/// is compared by its future path.
pub(crate) fn grants(list: &Value, directory: &AllowedPath, bases: Bases<'_>) -> bool {
    let mut granted = Vec::new();
    for item in list.as_array().into_iter().flatten() {
        if let Ok(written) = AllowedPath::deserialize(item) {
            granted.push(Granted::new(written, Source::Default, bases));
        }
    }
    granted.retain(|granted| granted.exists);
    let wanted = Granted::new(directory.clone(), Source::Default, bases);
    access(&granted, &wanted.real).is_some_and(|access| access >= directory.access)
}

struct ResolvedList {
    existing: Vec<Granted>,
    absent: Vec<Granted>,
}

/// A directory of one list.
pub(super) struct Granted {
    written: AllowedPath,
    source: Source,
    pub(super) real: PathBuf,
    /// Whether the path leads to a directory, and not through a link that a tool could change.
    exists: bool,
    /// The link on the path that a tool could change.
    link: Option<PathBuf>,
    /// Whether `real` differs from the written path. If it does, messages also show `real`.
    leads_elsewhere: bool,
}

impl Granted {
    /// Resolves a written directory. A directory behind a link that a tool could change is treated
    /// as missing.
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
        // A TOML list can't contain a path that isn't UTF-8, so such a path is treated as missing.
        let exists = link.is_none() && real.is_dir() && real.to_str().is_some();
        let leads_elsewhere = real != path;
        Self { written, source, real, exists, link, leads_elsewhere }
    }

    fn problem(&self) -> Problem {
        let why = match &self.link {
            Some(link) => {
                format!("leads through the link {}; name the link's target", link.display())
            }
            None => "isn't an existing directory; create the directory, or remove the \
                     entry"
                .to_owned(),
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

/// Returns the directories that are in both lists, with the lesser access. A directory of both
/// lists has the source of the file. `reasons` gets a reason for each directory of the file that
/// isn't granted.
fn intersection<'g>(
    proposed: &'g [Granted],
    current: &'g [Granted],
    reasons: &mut Vec<String>,
) -> Vec<(&'g Granted, PathAccess)> {
    let mut kept: Vec<(&Granted, PathAccess)> = Vec::new();
    for granted in proposed.iter().chain(current) {
        // The file doesn't grant this directory of the operator.
        let Some(proposed_access) = access(proposed, &granted.real) else { continue };
        let Some(current_access) = access(current, &granted.real) else {
            let contains_grants = current.iter().any(|held| held.real.starts_with(&granted.real));
            reasons.push(if contains_grants {
                format!("{granted} is wider than the granted directories")
            } else {
                format!("{granted} isn't in a granted directory")
            });
            continue;
        };
        let is_kept = kept.iter().any(|(known, _)| known.real == granted.real);
        if is_kept {
            continue;
        }
        if current_access < proposed_access {
            reasons.push(format!("{granted} is granted only for reading"));
        }
        kept.push((granted, current_access.min(proposed_access)));
    }
    kept
}

/// Returns the access to `path`, or `None` if no directory contains it. The longest directory that
/// contains `path` decides. If the list has this directory twice, the lesser access applies.
fn access(granted: &[Granted], path: &Path) -> Option<PathAccess> {
    let containing = granted.iter().filter(|granted| path.starts_with(&granted.real));
    let longest = containing.max_by_key(|granted| {
        (granted.real.components().count(), std::cmp::Reverse(granted.written.access))
    });
    longest.map(|granted| granted.written.access)
}
