//! `write`: creates a file, or replaces its whole content.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Preview, Promises, Subject, Tool};

use crate::notices::{plural, size};
use crate::paths::open_failure;
use crate::replace::{replace, resolve_links};

/// The longest file whose changed lines are counted.
const MAX_COMPARED: u64 = 4 << 20;

/// Creates a file, or replaces its whole content.
pub(crate) struct Write;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    path: String,
    content: String,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// Whether the file is new.
    created: bool,
    /// The new size.
    bytes: u64,
    /// The new number of lines.
    lines: u64,
}

impl Tool for Write {
    const NAME: &str = "write";
    const TITLE: Option<&str> = Some("Write file");
    const DESCRIPTION: &str = "\
        Creates a file, or replaces its whole content. Missing parent directories are created. Use \
        edit to change a part of a file.";
    const PROMISES: Promises = Promises { idempotent: true, closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/path")];
    const ALIASES: &[&str] = &["file_write"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("path", &["file_path"])];
    const PREVIEW: Option<Preview> = Some(Preview::Whole { file: "path", content: "content" });
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { path, content } = arguments;
        let target = resolve_links(&path)?;
        let old = read_old(&target, &path)?;
        if matches!(old, OldContent::Missing)
            && let Some(parent) = target.parent()
            && !parent.is_dir()
        {
            fs::create_dir_all(parent).map_err(|error| {
                Failure::io(format!("creating the directory {}", parent.display()), &error)
            })?;
        }
        replace(&target, content.as_bytes())
            .map_err(|error| Failure::io(format!("writing {path}"), &error))?;

        let bytes = content.len() as u64;
        let lines = count_lines(content.as_bytes());
        let now = format!("{}, {}", plural(lines, "line"), size(bytes));
        let created = matches!(old, OldContent::Missing);
        let text = match old {
            OldContent::Missing => format!("Created {path}: {now}."),
            OldContent::Long => format!("Overwrote {path}: {now}."),
            OldContent::Bytes(old) if old == content.as_bytes() => {
                format!("{path} already had exactly this content: {now}.")
            }
            OldContent::Bytes(old) => {
                let (added, removed) = changed_lines(&old, content.as_bytes());
                format!(
                    "Overwrote {path}: {now}; {} added, {removed} removed.",
                    plural(added, "line")
                )
            }
        };
        Output::text(text).with_structured(&Answer { created, bytes, lines })
    }
}

/// The content before the write.
enum OldContent {
    Missing,
    Bytes(Vec<u8>),
    Long,
}

fn read_old(target: &Path, path: &str) -> Result<OldContent, Failure> {
    let opened = File::open(target).and_then(|file| Ok((file.metadata()?, file)));
    let (meta, mut file) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(OldContent::Missing),
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(directory_failure(path));
        }
        // If the plugin may write but not read, nothing is compared.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(OldContent::Long),
        Err(error) => return Err(open_failure("writing", path, &error)),
    };
    if meta.is_dir() {
        return Err(directory_failure(path));
    }
    let mut bytes = Vec::new();
    let compared = meta.len() <= MAX_COMPARED
        && (&mut file).take(MAX_COMPARED + 1).read_to_end(&mut bytes).is_ok();
    Ok(if compared && bytes.len() as u64 <= MAX_COMPARED {
        OldContent::Bytes(bytes)
    } else {
        OldContent::Long
    })
}

fn directory_failure(path: &str) -> Failure {
    Failure::permanent("is-a-directory", format!("{path} is a directory"))
        .with_suggestion("Name a file in the directory.")
}

/// The number of lines that are only in `new`, and the number of those only in `old`, in any order.
fn changed_lines(old: &[u8], new: &[u8]) -> (u64, u64) {
    let mut balance: HashMap<&[u8], i64> = HashMap::new();
    for line in new.split_inclusive(|&byte| byte == b'\n') {
        *balance.entry(line).or_default() += 1;
    }
    for line in old.split_inclusive(|&byte| byte == b'\n') {
        *balance.entry(line).or_default() -= 1;
    }
    balance.values().fold((0, 0), |(added, removed), &count| {
        (added + count.max(0).unsigned_abs(), removed + count.min(0).unsigned_abs())
    })
}

fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
        + u64::from(text.last().is_some_and(|&byte| byte != b'\n'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    fn write(path: &Path, content: &str) -> Result<Output, Failure> {
        testing::call::<Write>(json!({ "path": path, "content": content }))
    }

    #[test]
    fn new_file_gets_its_parent_directories() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/deep/a.txt");
        let output = write(&path, "one\ntwo").unwrap();
        assert_eq!(output.joined_text(), format!("Created {}: 2 lines, 7 B.", path.display()));
        assert_eq!(output.structured, Some(json!({ "created": true, "bytes": 7, "lines": 2 })));
        assert_eq!(fs::read_to_string(path).unwrap(), "one\ntwo");
    }

    #[test]
    fn overwrite_counts_changed_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let text = write(&path, "one\n2\nthree\nfour\n").unwrap().joined_text();
        assert_eq!(
            text,
            format!("Overwrote {}: 4 lines, 17 B; 2 lines added, 1 removed.", path.display())
        );
        assert!(
            write(&path, "one\n2\nthree\nfour\n")
                .unwrap()
                .joined_text()
                .contains("already had exactly this content")
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn write_through_a_link_keeps_the_link() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        write(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
    }

    #[test]
    fn directory_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write(dir.path(), "x").unwrap_err().code.as_deref(), Some("is-a-directory"));
        let below_a_file = dir.path().join("file/below");
        fs::write(dir.path().join("file"), "kept").unwrap();
        assert!(write(&below_a_file, "x").is_err());
        assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "kept");
    }

    #[test]
    fn moved_lines_do_not_count_as_changed() {
        assert_eq!(changed_lines(b"a\nb\n", b"b\na\n"), (0, 0));
        assert_eq!(changed_lines(b"a\na\n", b"a\n"), (0, 1));
        assert_eq!(changed_lines(b"", b"x"), (1, 0));
    }
}
