//! `move_path`: moves or renames a file, a link or a directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

use crate::notices::entries;
use crate::survey::Survey;
use crate::temporary::Temporary;
use crate::{delete_path, nearby, transfer};

/// Moves or renames a file, a link or a directory.
pub(crate) struct MovePath;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    source: String,
    /// The full new path (dir/name).
    destination: String,
    /// Replace a file or link, never a directory.
    overwrite: Option<bool>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// Whether it replaced a file or link.
    replaced: bool,
    /// Whether it was copied and then deleted, because the destination is on another file system.
    copied: bool,
}

impl Tool for MovePath {
    const NAME: &str = "move_path";
    const TITLE: Option<&str> = Some("Move");
    const DESCRIPTION: &str = "\
        Moves or renames a file, a link or a directory. Fails, with nothing moved, if the \
        destination exists, unless overwrite is set.";
    const PROMISES: Promises = Promises { closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] =
        &[Subject::changes_name("/source"), Subject::changes_name("/destination")];
    type Arguments = Arguments;

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let Arguments { source, destination, overwrite } = arguments;
        let meta = fs::symlink_metadata(&source).map_err(|error| {
            nearby::suggest_names(not_moved(&source, &destination, &error), &source)
        })?;
        let replaced = transfer::prepare_destination(
            &source,
            meta.is_dir(),
            &destination,
            overwrite == Some(true),
        )?;
        let copied = match fs::rename(&source, &destination) {
            Ok(()) => false,
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {
                copy_and_delete(&source, &meta, &destination, call)?;
                true
            }
            // The kernel reports this for moving a directory into itself.
            Err(error) if meta.is_dir() && error.kind() == ErrorKind::InvalidInput => {
                return Err(transfer::into_itself_failure(&source, &destination));
            }
            Err(error) => return Err(not_moved(&source, &destination, &error)),
        };
        let how = if replaced { ", which it replaced" } else { "" };
        Output::text(format!("Moved {source} to {destination}{how}."))
            .with_structured(&Answer { replaced, copied })
    }
}

/// Moves to another file system. The copy gets the new name when it is complete. Only then is the
/// original deleted. The host checks that the original may be deleted before it asks the kernel for
/// a rename, so this is checked already.
fn copy_and_delete(
    source: &str,
    meta: &fs::Metadata,
    destination: &str,
    call: &Call,
) -> Result<(), Failure> {
    let temporary = if meta.is_dir() {
        let (temporary, copied) =
            transfer::copy_directory(source, destination, &Survey::new(source)?, true, call)?;
        if copied.left_out > 0 {
            let what = entries(copied.left_out);
            let message = format!(
                "{what} in {source} can't be moved to another file system, so nothing was moved"
            );
            return Err(Failure::permanent("not-moved", message).with_suggestion(
                "These entries are pipes, sockets, links to targets that are not granted, or unfinished entries of another call. Move the other entries one by one, or copy the directory.",
            ));
        }
        temporary
    } else if meta.is_symlink() {
        let points_to = rustix::fs::readlink(source, Vec::new())
            .map_err(|errno| not_moved(source, destination, &errno.into()))?;
        Temporary::link(Path::new(destination), &points_to)
            .map_err(|error| not_moved(source, destination, &error))?
    } else {
        transfer::copy_file(source, destination, true)?.0
    };
    temporary
        .name(Path::new(destination))
        .map_err(|error| not_moved(source, destination, &error))?;
    let removed = if meta.is_dir() {
        delete_path::remove(source, call).map(|_| ())
    } else {
        fs::remove_file(source).map_err(|error| Failure::io(format!("deleting {source}"), &error))
    };
    removed.map_err(|failure| {
        let message = format!(
            "the copy at {destination} is complete, but the original was not deleted: {}",
            failure.message
        );
        Failure { message, ..failure }
    })
}

fn not_moved(source: &str, destination: &str, error: &io::Error) -> Failure {
    Failure::io(format!("moving {source} to {destination}"), error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    fn move_path(source: &Path, destination: &Path, overwrite: bool) -> Result<Output, Failure> {
        testing::call::<MovePath>(
            json!({ "source": source, "destination": destination, "overwrite": overwrite }),
        )
    }

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "text").unwrap();
        symlink("sub/file", root.join("link")).unwrap();
    }

    fn check_tree(root: &Path) {
        assert_eq!(fs::read_to_string(root.join("sub/file")).unwrap(), "text");
        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("sub/file"));
    }

    #[test]
    fn directory_is_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("new/to"));
        tree(&from);
        let output = move_path(&from, &to, false).unwrap();
        assert_eq!(output.joined_text(), format!("Moved {} to {}.", from.display(), to.display()));
        check_tree(&to);
        assert!(!from.exists());
    }

    #[test]
    fn link_is_moved_and_replaced_as_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            fs::write(at(name), name).unwrap();
        }
        symlink("a", at("link")).unwrap();
        move_path(&at("link"), &at("other"), false).unwrap();
        assert_eq!(fs::read_link(at("other")).unwrap(), Path::new("a"));
        move_path(&at("b"), &at("other"), true).unwrap();
        assert!(fs::symlink_metadata(at("other")).unwrap().is_file());
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "a");
    }

    #[test]
    fn only_files_are_replaced_and_only_with_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        tree(&at("dir"));
        for name in ["a", "b"] {
            fs::write(at(name), name).unwrap();
        }
        assert_eq!(
            move_path(&at("a"), &at("b"), false).unwrap_err().code.as_deref(),
            Some("exists")
        );
        let failure = move_path(&at("a"), &at("dir"), true).unwrap_err();
        assert!(failure.suggestion.unwrap().contains(at("dir/a").to_str().unwrap()));
        move_path(&at("dir"), &at("b"), true).unwrap_err();
        move_path(&at("dir"), &at("dir/sub/in"), true).unwrap_err();
        symlink("dir/sub", at("round")).unwrap();
        assert!(
            move_path(&at("dir"), &at("round/in"), true)
                .unwrap_err()
                .message
                .contains("into itself")
        );
        // These are two names of one file. The kernel's rename would leave both.
        fs::hard_link(at("a"), at("c")).unwrap();
        assert!(move_path(&at("a"), &at("c"), true).unwrap_err().message.contains("the same"));
        check_tree(&at("dir"));
        assert_eq!(
            (fs::read_to_string(at("a")).unwrap(), fs::read_to_string(at("b")).unwrap()),
            ("a".into(), "b".into())
        );
    }

    #[test]
    fn move_to_another_file_system_copies_then_deletes() {
        let shm = PathBuf::from("/dev/shm");
        let dir = tempfile::tempdir().unwrap();
        let Ok(other) = tempfile::tempdir_in(&shm) else {
            return println!("skipped: /dev/shm is missing");
        };
        if fs::metadata(dir.path()).unwrap().dev() == fs::metadata(other.path()).unwrap().dev() {
            return println!("skipped: /dev/shm is on the file system of the temporary folder");
        }
        let (from, to) = (dir.path().join("from"), other.path().join("to"));
        tree(&from);
        assert_eq!(
            move_path(&from, &to, false).unwrap().structured,
            Some(json!({ "replaced": false, "copied": true }))
        );
        check_tree(&to);
        assert!(!from.exists());
        for name in ["link", "sub/file"] {
            move_path(&to.join(name), &dir.path().join("back").join(name), false).unwrap();
        }
        check_tree(&dir.path().join("back"));
        assert_eq!(
            (
                fs::read_dir(other.path()).unwrap().count(),
                fs::read_dir(dir.path()).unwrap().count()
            ),
            (1, 1)
        );
    }
}
