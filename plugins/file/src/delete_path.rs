//! `delete_path`: deletes a file, a link, or a directory with everything in it.

use std::path::Path;
use std::{fs, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::search::{self, Scope};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

use crate::nearby;
use crate::notices::entries;
use crate::tree;

/// The greatest number of entries of a directory that are counted for an answer.
const MAX_COUNTED: u32 = 1_000;

/// The number of entries that are deleted between two reports of progress.
const STRIDE: u64 = 256;

/// Deletes a file, a link, or a directory.
pub(crate) struct DeletePath;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    path: String,
    recursive: Option<bool>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// The number of files, links and directories that were deleted.
    deleted: u64,
}

impl Tool for DeletePath {
    const NAME: &str = "delete_path";
    const TITLE: Option<&str> = Some("Delete");
    const DESCRIPTION: &str = "\
        Deletes a file, a symbolic link (never its target) or an empty directory, or with \
        recursive a directory with everything in it.";
    const PROMISES: Promises = Promises { closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::changes_name("/path")];
    type Arguments = Arguments;

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let Arguments { path, recursive } = arguments;
        let meta = fs::symlink_metadata(&path).map_err(|error| not_deleted(&path, &error))?;
        if !meta.is_dir() {
            fs::remove_file(&path).map_err(|error| not_deleted(&path, &error))?;
            let what = if meta.is_symlink() { "the link " } else { "" };
            return Output::text(format!("Deleted {what}{path}."))
                .with_structured(&Answer { deleted: 1 });
        }
        if recursive != Some(true) {
            return match fs::remove_dir(&path).map_err(|error| not_deleted(&path, &error)) {
                Err(failure) if failure.code.as_deref() == Some("not-empty") => {
                    Err(not_empty_failure(&path))
                }
                removed => {
                    removed?;
                    Output::text(format!("Deleted the empty directory {path}."))
                        .with_structured(&Answer { deleted: 1 })
                }
            };
        }
        check(&path).map_err(|error| not_deleted(&path, &error))?;
        let deleted = remove(&path, call)?;
        let below = entries(deleted - 1);
        Output::text(format!("Deleted {path} and the {below} in it."))
            .with_structured(&Answer { deleted })
    }
}

/// Fails if something in the directory may not be deleted. The host checks everything below a
/// directory before it renames it, and a rename to the same name changes nothing.
pub(crate) fn check(path: &str) -> std::io::Result<()> {
    fs::rename(path, path)
}

fn not_deleted(path: &str, error: &io::Error) -> Failure {
    nearby::suggest_names(Failure::io(format!("deleting {path}"), error), path)
}

/// Deletes a directory with everything in it. Returns the number of deleted entries.
pub(crate) fn remove(path: &str, call: &Call) -> Result<u64, Failure> {
    let mut deleted = 0;
    let mut reported = 0;
    let removed = tree::remove(Path::new(path), &mut |count| {
        deleted = count;
        if count >= reported + STRIDE {
            reported = count;
            call.progress(None, &format!("deleted {count}"));
        }
    });
    removed.map_err(|error| {
        let failure = Failure::io(format!("deleting {path}"), &error);
        let message = format!(
            "{}; {deleted} of its entries are deleted, the others are still there",
            failure.message
        );
        Failure { message, ..failure }
    })
}

fn not_empty_failure(path: &str) -> Failure {
    let scope = Scope { root: path.to_owned(), max_depth: Some(1), ..Scope::default() };
    let count = search::find(&scope, MAX_COUNTED)
        .map_or(0, |found| found.items.len() as u64 + found.skipped.denied);
    let holds = match count {
        0 => "is not empty".to_owned(),
        count if count >= u64::from(MAX_COUNTED) => format!("holds {} or more", entries(count)),
        count => format!("holds {}", entries(count)),
    };
    Failure::permanent("not-empty", format!("{path} {holds}, so it was not deleted"))
        .with_suggestion("Set recursive=true to delete it with everything in it; list_directory shows its entries.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    fn delete(path: PathBuf, recursive: bool) -> Result<Output, Failure> {
        testing::call::<DeletePath>(json!({ "path": path, "recursive": recursive }))
    }

    #[test]
    fn file_and_empty_directory_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        for name in ["file", "empty"] {
            assert_eq!(
                delete(dir.path().join(name), false).unwrap().structured,
                Some(json!({ "deleted": 1 }))
            );
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn non_empty_directory_reports_its_entries() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join("full");
        fs::create_dir_all(full.join("sub/deep")).unwrap();
        for name in ["a", ".b", "sub/deep/c"] {
            fs::write(full.join(name), "").unwrap();
        }
        let failure = delete(full.clone(), false).unwrap_err();
        assert_eq!(
            failure.message,
            format!("{} holds 3 entries, so it was not deleted", full.display())
        );
        assert!(full.join("a").exists() && failure.suggestion.unwrap().contains("recursive=true"));
        let output = delete(full.clone(), true).unwrap();
        assert_eq!(
            output.joined_text(),
            format!("Deleted {} and the 5 entries in it.", full.display())
        );
        assert!(!full.exists());
    }

    #[test]
    fn links_are_deleted_and_their_targets_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("kept")).unwrap();
        fs::create_dir_all(at("gone")).unwrap();
        fs::write(at("kept/file"), "kept").unwrap();
        symlink("kept", at("link")).unwrap();
        symlink("../kept", at("gone/link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        for name in ["link", "gone", "dangling"] {
            delete(at(name), true).unwrap();
            assert!(fs::symlink_metadata(at(name)).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("kept/file")).unwrap(), "kept");
    }

    #[test]
    fn missing_path_suggests_similar_names() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.rs"), "").unwrap();
        let failure = delete(dir.path().join("mian.rs"), true).unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("not-found"));
        assert!(failure.suggestion.unwrap().contains("main.rs"));
    }
}
