//! `list_directory`: lists the entries of a directory with their kinds.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::search::{self, Ending, Entry, Kind, Scope};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::nearby;
use crate::notices::{self, size};
use crate::paths::{self, one_line};

/// The greatest number of entries that are shown.
const MAX_ENTRIES: u32 = 1_000;

/// Lists the entries of a directory with their kinds.
pub(crate) struct ListDirectory;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Default: `.`.
    path: Option<String>,
}

impl Tool for ListDirectory {
    const NAME: &str = "list_directory";
    const TITLE: Option<&str> = Some("List directory");
    const DESCRIPTION: &str = "\
        Lists the entries directly in a directory, hidden ones included: [dir], [file] with its \
        size, [symlink]. Use find_path to look deeper.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let root = paths::or_working_directory(arguments.path)?;
        if std::fs::metadata(&root).is_ok_and(|meta| !meta.is_dir()) {
            let failure =
                Failure::permanent("not-a-directory", format!("{root} is not a directory"));
            return Err(failure.with_suggestion("Use read to see a file."));
        }
        let scope = Scope { root: root.clone(), max_depth: Some(1), ..Scope::default() };
        let found = search::find(&scope, MAX_ENTRIES)
            .map_err(|error| nearby::suggest_names(error.into(), &root))?;
        let mut text = listing(&root, &found.items);
        if found.ending == Ending::Limit {
            add_notice(
                &mut text,
                &format!(
                    "Only the first {MAX_ENTRIES} entries are shown. Use find_path with a pattern to see others."
                ),
            );
        }
        notices::add_ending(&mut text, found.ending);
        notices::add_skipped(&mut text, found.skipped);
        Ok(Output::text(text))
    }
}

/// Shows one line for each entry: first directories, then files, links and other entries.
fn listing(root: &str, entries: &[Entry]) -> String {
    if entries.is_empty() {
        return format!("{root} is empty.\n");
    }
    let mut lines: Vec<(u8, String)> = entries
        .iter()
        .map(|entry| match entry.kind {
            Kind::Directory => (0, format!("[dir] {}/\n", name(root, entry))),
            Kind::File => (1, format!("[file] {}  {}\n", name(root, entry), size(entry.size))),
            Kind::Symlink => (2, format!("[symlink] {}\n", name(root, entry))),
            Kind::Other => (3, format!("[other] {}\n", name(root, entry))),
        })
        .collect();
    lines.sort_by_key(|line| line.0);
    lines.into_iter().map(|line| line.1).collect()
}

fn name(root: &str, entry: &Entry) -> String {
    one_line(paths::below(root, &entry.path).unwrap_or(&entry.path)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    #[test]
    fn entries_have_kinds_and_directories_come_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "x".repeat(1536)).unwrap();
        fs::write(dir.path().join(".hidden"), "").unwrap();
        fs::create_dir_all(dir.path().join("sub/below")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let text =
            testing::call::<ListDirectory>(json!({ "path": dir.path() })).unwrap().joined_text();
        assert_eq!(text, "[dir] sub/\n[file] .hidden  0 B\n[file] a  1.5 KiB\n[symlink] link\n");
    }

    #[test]
    fn long_listing_is_cut_with_a_notice() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=MAX_ENTRIES {
            fs::write(dir.path().join(format!("{number:05}")), "").unwrap();
        }
        let text =
            testing::call::<ListDirectory>(json!({ "path": dir.path() })).unwrap().joined_text();
        assert_eq!(text.lines().count(), 1_001);
        assert!(text.ends_with("Use find_path with a pattern to see others.]\n"), "{text}");
    }

    #[test]
    fn only_directories_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let code = |path| testing::call::<ListDirectory>(json!({ "path": path })).unwrap_err().code;
        fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(code(dir.path().join("a")).as_deref(), Some("not-a-directory"));
        assert_eq!(code(dir.path().join("b")).as_deref(), Some("not-found"));
        let text =
            testing::call::<ListDirectory>(json!({ "path": tempfile::tempdir().unwrap().path() }));
        assert!(text.is_err(), "a directory that is gone is not found");
    }

    #[test]
    fn file_name_cannot_forge_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a\n[dir] b"), "").unwrap();
        let text =
            testing::call::<ListDirectory>(json!({ "path": dir.path() })).unwrap().joined_text();
        assert_eq!(text, "[file] a\u{fffd}[dir] b  0 B\n");
    }

    #[test]
    fn empty_directory_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            testing::call::<ListDirectory>(json!({ "path": dir.path() })).unwrap().joined_text();
        assert!(text.ends_with(" is empty.\n"), "{text}");
    }
}
