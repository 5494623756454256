//! The changes in a repository, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

use crate::command::{Git, LOOKS};
use crate::run::Printed;

/// Files that are listed.
const MAX_FILES: usize = 1000;

pub struct Status;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusArguments {
    /// A folder of the repository. By default the working directory.
    repository: Option<String>,
}

#[derive(Default, Serialize, JsonSchema)]
struct Changes {
    /// The branch. Missing if none is checked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    /// The commit. Missing if there is none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// The branch that it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// Commits that the upstream branch lacks.
    ahead: u64,
    /// Commits that only the upstream branch has.
    behind: u64,
    /// The changed files.
    files: Vec<File>,
    /// Whether there are more files.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct File {
    /// The path below the root of the repository.
    path: String,
    /// The path before a rename, or of the file that was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// What is staged: `added`, `modified`, `deleted`, `renamed`, `copied`, `type changed`,
    /// `unmerged` or `none`.
    staged: &'static str,
    /// What isn't staged: the same, or `untracked`.
    unstaged: &'static str,
}

impl Tool for Status {
    const NAME: &str = "status";
    const DESCRIPTION: &str = "Says which branch of a git repository is checked out, and which files have changed: staged, not staged, and untracked. Fails outside of a repository.";
    const PROMISES: Promises = Promises { closed_world: true, ..LOOKS };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/repository")];
    type Arguments = StatusArguments;

    fn output_schema() -> Option<schemars::Schema> {
        Some(toolhold_sdk::schema::for_type::<Changes>())
    }

    fn call(StatusArguments { repository }: StatusArguments, _: &Call) -> Result<Output, Failure> {
        let Printed { text, cut, .. } = Git::look("status", repository)
            .args(["--porcelain=v2", "--branch", "-z", "--untracked-files=normal"])
            .args(["--ignore-submodules=dirty", "--find-renames"])
            .run()?;
        Output::json(&parse(&text, cut))
    }
}

/// Reads `--porcelain=v2 --branch -z`. `cut`: whether its end is missing.
fn parse(printed: &str, cut: bool) -> Changes {
    let mut changes = Changes { truncated: cut, ..Changes::default() };
    let mut records: Vec<&str> = printed.split('\0').collect();
    // The last one is empty, or what was cut off.
    records.pop();
    let mut records = records.into_iter();
    while let Some(record) = records.next() {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        let file = match kind {
            "#" => {
                changes.read_header(rest);
                continue;
            }
            "1" => tracked(rest, 7, None),
            "2" => tracked(rest, 8, records.next()),
            "u" => tracked(rest, 9, None),
            "?" => Some(File {
                path: rest.to_owned(),
                from: None,
                staged: "none",
                unstaged: "untracked",
            }),
            _ => None,
        };
        if changes.files.len() == MAX_FILES {
            changes.truncated = true;
            break;
        }
        changes.files.extend(file);
    }
    changes
}

impl Changes {
    fn read_header(&mut self, header: &str) {
        let Some((name, value)) = header.split_once(' ') else { return };
        match name {
            "branch.oid" => self.commit = named(value),
            "branch.head" => self.branch = named(value),
            "branch.upstream" => self.upstream = named(value),
            "branch.ab" => {
                let mut counts = value.split(' ').filter_map(|count| count.get(1..)?.parse().ok());
                self.ahead = counts.next().unwrap_or(0);
                self.behind = counts.next().unwrap_or(0);
            }
            _ => {}
        }
    }
}

/// A name. `None`: git writes a remark in brackets in its place.
fn named(value: &str) -> Option<String> {
    (!value.starts_with('(')).then(|| value.to_owned())
}

/// A tracked file. Its path comes after so many fields.
fn tracked(rest: &str, fields: usize, from: Option<&str>) -> Option<File> {
    let path = rest.splitn(fields + 1, ' ').nth(fields)?;
    let mut states = rest.chars();
    let staged = state(states.next()?);
    let unstaged = state(states.next()?);
    Some(File { path: path.to_owned(), from: from.map(str::to_owned), staged, unstaged })
}

fn state(letter: char) -> &'static str {
    match letter {
        'A' => "added",
        'M' => "modified",
        'D' => "deleted",
        'R' => "renamed",
        'C' => "copied",
        'T' => "type changed",
        'U' => "unmerged",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_of_git_is_read() {
        let printed = "# branch.oid 1f\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0\
            1 M. N... 100644 100644 100644 1f 2f src/a b.rs\0\
            2 R. N... 100644 100644 100644 1f 1f R100 new.rs\0old.rs\0\
            u UU N... 100644 100644 100644 100644 1f 2f 3f both.rs\0\
            ? notes.txt\0";
        let read = serde_json::to_value(parse(printed, false)).unwrap();
        assert_eq!(
            read,
            json!({
                "branch": "main", "commit": "1f", "upstream": "origin/main", "ahead": 2, "behind": 1,
                "files": [
                    { "path": "src/a b.rs", "staged": "modified", "unstaged": "none" },
                    { "path": "new.rs", "from": "old.rs", "staged": "renamed", "unstaged": "none" },
                    { "path": "both.rs", "staged": "unmerged", "unstaged": "unmerged" },
                    { "path": "notes.txt", "staged": "none", "unstaged": "untracked" },
                ],
                "truncated": false,
            })
        );
    }

    #[test]
    fn cut_status_keeps_whole_records() {
        let read = parse("# branch.oid (initial)\0# branch.head (detached)\0? whole\0? ha", true);
        assert_eq!((read.branch, read.commit, read.truncated), (None, None, true));
        assert_eq!(read.files.len(), 1);
        for broken in ["", "1", "1 M", "2 R. N...", "u \0", "\0\0", "# \0", "# branch.ab x\0"] {
            assert!(parse(broken, false).files.is_empty(), "{broken:?}");
        }
    }

    #[test]
    fn many_files_are_cut() {
        let read = parse(&"? file\0".repeat(MAX_FILES + 1), false);
        assert_eq!((read.files.len(), read.truncated), (MAX_FILES, true));
    }
}
