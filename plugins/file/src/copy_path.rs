//! `copy_path`: copies a file or a directory.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::notices::{entries, plural, size};
use crate::paths::open_failure;
use crate::survey::Survey;
use crate::temporary::Temporary;
use crate::tree::CopyCounts;
use crate::{nearby, transfer};

/// Copies a file or a directory.
pub(crate) struct CopyPath;

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
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    /// The number of entries that weren't copied: links to targets that aren't granted, pipes,
    /// sockets and the like, and unfinished entries of another call.
    left_out: u64,
    /// Whether the copy replaced a file or link.
    replaced: bool,
}

impl Tool for CopyPath {
    const NAME: &str = "copy_path";
    const TITLE: Option<&str> = Some("Copy");
    const DESCRIPTION: &str = "\
        Copies a file, or a directory with everything in it. Fails, with nothing copied, if the \
        destination exists, unless overwrite is set.";
    const PROMISES: Promises = Promises { closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] =
        &[Subject::reads_path("/source"), Subject::changes_name("/destination")];
    type Arguments = Arguments;

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let Arguments { source, destination, overwrite } = arguments;
        let meta = fs::metadata(&source).map_err(|error| {
            nearby::suggest_names(open_failure("reading", &source, &error), &source)
        })?;
        let survey = if meta.is_dir() { Some(Survey::new(&source)?) } else { None };
        let replaced = transfer::prepare_destination(
            &source,
            meta.is_dir(),
            &destination,
            overwrite == Some(true),
        )?;
        let copied = match survey {
            Some(survey) => {
                let (temporary, copied) =
                    transfer::copy_directory(&source, &destination, &survey, false, call)?;
                give_name(temporary, &destination)?;
                copied
            }
            None => {
                let (temporary, bytes) = transfer::copy_file(&source, &destination, false)?;
                give_name(temporary, &destination)?;
                CopyCounts { files: 1, bytes, ..CopyCounts::default() }
            }
        };
        let what = if meta.is_dir() { describe_counts(&copied) } else { size(copied.bytes) };
        let mut text = format!("Copied {source} to {destination}: {what}.");
        if copied.left_out > 0 {
            text.push('\n');
            let what = "(links to targets that are not granted, pipes, sockets and the like, or unfinished entries of another call)";
            add_notice(&mut text, &format!("Left out: {} {what}.", entries(copied.left_out)));
        }
        let CopyCounts { files, directories, links, bytes, left_out } = copied;
        Output::text(text).with_structured(&Answer {
            files,
            directories,
            links,
            bytes,
            left_out,
            replaced,
        })
    }
}

fn give_name(temporary: Temporary, destination: &str) -> Result<(), Failure> {
    temporary
        .name(Path::new(destination))
        .map_err(|error| Failure::io(format!("naming the copy {destination}"), &error))
}

/// `3 files, 2 directories, 1.5 KiB`.
fn describe_counts(copied: &CopyCounts) -> String {
    let directories = if copied.directories == 1 {
        "1 directory".to_owned()
    } else {
        format!("{} directories", copied.directories)
    };
    let links = if copied.links > 0 {
        format!(", {}", plural(copied.links, "link"))
    } else {
        String::new()
    };
    format!("{}, {directories}{links}, {}", plural(copied.files, "file"), size(copied.bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;
    use crate::tree;

    fn copy(source: &Path, destination: &Path, overwrite: bool) -> Result<Output, Failure> {
        testing::call::<CopyPath>(
            json!({ "source": source, "destination": destination, "overwrite": overwrite }),
        )
    }

    #[test]
    fn file_copy_creates_parent_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("new/deep/to"));
        fs::write(&from, "x".repeat(600_000)).unwrap();
        let output = copy(&from, &to, false).unwrap();
        assert_eq!(
            output.joined_text(),
            format!("Copied {} to {}: 585.9 KiB.", from.display(), to.display())
        );
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn directory_is_copied_with_links_as_links() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub/empty")).unwrap();
        fs::write(from.join("a"), "a").unwrap();
        fs::write(from.join("sub/.b"), "bb").unwrap();
        symlink("../a", from.join("sub/link")).unwrap();
        symlink("/etc", from.join("away")).unwrap();
        // These belong to another call, which hasn't finished them.
        fs::create_dir(from.join(".toolhold-0123456789abcdef.tmp")).unwrap();
        fs::write(from.join(".toolhold-0123456789abcdef.tmp/half"), "half").unwrap();
        fs::write(from.join("sub/.toolhold-fedcba9876543210.tmp"), "half").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            from.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let output = copy(&from, &to, false).unwrap();
        let expected = json!({ "files": 2, "directories": 3, "links": 2, "bytes": 3, "left_out": 3, "replaced": false });
        assert_eq!(output.structured, Some(expected));
        assert!(
            output
                .joined_text()
                .contains("2 files, 3 directories, 2 links, 3 B.\n[Left out: 3 entries"),
            "{}",
            output.joined_text()
        );
        assert_eq!(fs::read_to_string(to.join("sub/.b")).unwrap(), "bb");
        assert_eq!(fs::read_link(to.join("sub/link")).unwrap(), Path::new("../a"));
        assert!(to.join("sub/empty").is_dir() && fs::symlink_metadata(to.join("fifo")).is_err());
        assert_eq!(
            fs::read_dir(to.join("sub")).unwrap().count() + fs::read_dir(&to).unwrap().count(),
            3 + 3
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_files_are_replaced_and_only_with_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        for (name, text) in [("a", "a"), ("b", "b"), ("dir/kept", "kept")] {
            fs::write(at(name), text).unwrap();
        }
        let failure = copy(&at("a"), &at("b"), false).unwrap_err();
        assert!(
            failure.code.as_deref() == Some("exists")
                && failure.suggestion.unwrap().contains("overwrite=true")
        );
        let failure = copy(&at("a"), &at("dir"), true).unwrap_err();
        assert!(failure.suggestion.unwrap().contains(at("dir/a").to_str().unwrap()));
        assert_eq!(copy(&at("dir"), &at("a"), true).unwrap_err().code.as_deref(), Some("exists"));
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "b");
        copy(&at("a"), &at("b"), true).unwrap();
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "a");
        assert_eq!(fs::read_to_string(at("dir/kept")).unwrap(), "kept");
        // A link is replaced, and its target stays.
        symlink("dir/kept", at("link")).unwrap();
        copy(&at("a"), &at("link"), true).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_file());
        assert_eq!(fs::read_to_string(at("dir/kept")).unwrap(), "kept");
    }

    #[test]
    fn directory_is_not_copied_into_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/sub")).unwrap();
        fs::write(at("a/file"), "kept").unwrap();
        symlink("a/sub", at("round")).unwrap();
        for destination in ["a", "a/b", "a/sub/b", "./a/b", "round/b", "a/../a/b"] {
            let failure = copy(&at("a"), &at(destination), true).unwrap_err();
            assert_eq!(
                failure.category,
                toolhold_sdk::Category::InvalidParameters,
                "{destination}: {failure}"
            );
        }
        assert_eq!(fs::read_dir(at("a/sub")).unwrap().count(), 0, "and nothing is left behind");
        assert_eq!(fs::read_dir(at("a")).unwrap().count(), 2);
    }

    #[test]
    fn too_deep_directory_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("from").join("d/".repeat(tree::MAX_DEPTH + 2))).unwrap();
        let failure = copy(&dir.path().join("from"), &dir.path().join("to"), false).unwrap_err();
        assert!(failure.message.contains("deeper than 64"), "{failure}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
