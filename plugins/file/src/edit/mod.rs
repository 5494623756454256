//! `edit`: replaces a text in a file, and refuses one that is missing or ambiguous.

mod closest;
mod excerpt;
mod substitute;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Preview, Promises, Subject, Tool};

use crate::nearby;
use crate::notices::{plural, size};
use crate::paths::open_failure;
use crate::replace::{replace, resolve_links};
use substitute::Substitution;

/// The longest file that is edited, since memory holds it several times.
const MAX_FILE: u64 = 16 << 20;

/// The greatest number of places that are named for an ambiguous text.
const MAX_NAMED: usize = 10;

/// Replaces a text in a file.
pub(crate) struct Edit;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    path: String,
    /// Exactly as in the file: with its indentation, without the line numbers that read shows. Add
    /// lines around it to make it unique.
    old_string: String,
    new_string: String,
    replace_all: Option<bool>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// The number of occurrences that were replaced.
    replacements: usize,
    /// The line of the first occurrence.
    first_line: usize,
}

impl Tool for Edit {
    const NAME: &str = "edit";
    const TITLE: Option<&str> = Some("Edit file");
    const DESCRIPTION: &str = "\
        Replaces old_string in a file with new_string, and shows the changed lines. old_string has \
        to be in the file exactly once, unless replace_all is set. Use write to create a file or replace all of it.";
    const PROMISES: Promises = Promises { closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/path")];
    const ALIASES: &[&str] = &["file_edit"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("path", &["file_path"])];
    const PREVIEW: Option<Preview> = Some(Preview::Part {
        file: "path",
        old: "old_string",
        new: "new_string",
        all: "replace_all",
    });
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { path, old_string: old, new_string: new, replace_all } = arguments;
        if old.is_empty() {
            return Err(Failure::invalid("old_string is empty")
                .with_suggestion("Use write to create a file or replace all of it."));
        }
        if old == new {
            return Err(Failure::invalid(
                "old_string and new_string are the same, so nothing would change",
            ));
        }
        let target = resolve_links(&path)?;
        let text = load(&target, &path)?;
        let found = Substitution::find(&text, &old, &new);
        let count = found.places.len();
        if count == 0 {
            let failure = Failure::permanent(
                "no-match",
                format!("old_string is not in {path}.{}", closest::hint(&text, &old)),
            );
            return Err(failure
                .with_suggestion("Copy the text exactly as read shows it, without the numbers."));
        }
        if count > 1 && replace_all != Some(true) {
            return Err(ambiguous(&text, &found, &path));
        }
        if count > substitute::MAX_PLACES {
            return Err(Failure::invalid(format!(
                "old_string is in {path} more than {} times, which is the limit",
                substitute::MAX_PLACES
            )));
        }
        if found.length(&text) as u64 > MAX_FILE {
            return Err(Failure::permanent(
                "too-large",
                format!("{path} would become larger than 16 MiB, which is the limit"),
            ));
        }
        let changed = found.apply(&text);
        if changed == text {
            return Err(Failure::invalid(
                "the file would not change: new_string differs from the old text only in line ends, which edit keeps",
            ));
        }
        replace(&target, changed.as_bytes())
            .map_err(|error| Failure::io(format!("writing {path}"), &error))?;
        let first_line = excerpt::line_at(&text, found.places[0].range.start);
        let mut answer = format!("Replaced {} in {path}:\n", plural(count as u64, "occurrence"));
        excerpt::append(&mut answer, &text, &changed, &found);
        Output::text(answer).with_structured(&Answer { replacements: count, first_line })
    }
}

fn ambiguous(text: &str, found: &Substitution, path: &str) -> Failure {
    let lines: Vec<String> = found
        .places
        .iter()
        .take(MAX_NAMED)
        .map(|place| excerpt::line_at(text, place.range.start).to_string())
        .collect();
    let count = found.places.len();
    let at_least = if count > substitute::MAX_PLACES { "more than " } else { "" };
    let count = count.min(substitute::MAX_PLACES);
    let more = if count > MAX_NAMED { ", …" } else { "" };
    let message = format!(
        "old_string is in {path} {at_least}{count} times, in lines {}{more}",
        lines.join(", ")
    );
    Failure::permanent("ambiguous", message)
        .with_suggestion("Add lines around the right place to old_string, or set replace_all=true to change all places.")
}

fn load(target: &Path, path: &str) -> Result<String, Failure> {
    let file = File::open(target)
        .map_err(|error| nearby::suggest_names(open_failure("reading", path, &error), path))?;
    let meta = file.metadata().map_err(|error| Failure::io(format!("reading {path}"), &error))?;
    if meta.is_dir() {
        return Err(Failure::permanent("is-a-directory", format!("{path} is a directory"))
            .with_suggestion("Name a file in the directory."));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(MAX_FILE)).unwrap_or(0) + 1);
    // One byte more than the limit shows whether the file is too long.
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::io(format!("reading {path}"), &error))?;
    if bytes.len() as u64 > MAX_FILE {
        let failure = Failure::permanent(
            "too-large",
            format!("{path} is {}; the limit is 16 MiB", size(meta.len())),
        );
        return Err(failure);
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::permanent(
            "not-utf-8",
            format!("{path} is not UTF-8 text (byte {at} isn't valid), so it was not changed"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    /// Edits a file with the content `text`. Returns the answer and the new content.
    fn edit(
        text: impl AsRef<[u8]>,
        old: &str,
        new: &str,
        all: bool,
    ) -> (Result<Output, Failure>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, text).unwrap();
        let arguments =
            json!({ "path": path, "old_string": old, "new_string": new, "replace_all": all });
        let answer = testing::call::<Edit>(arguments);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        (answer, fs::read(&path).unwrap())
    }

    #[track_caller]
    fn check_code(text: impl AsRef<[u8]>, old: &str, new: &str, code: Option<&str>) -> Failure {
        let (answer, after) = edit(&text, old, new, false);
        let failure = answer.unwrap_err();
        assert_eq!(failure.code.as_deref(), code, "{failure}");
        assert_eq!(after, text.as_ref(), "the file is untouched");
        failure
    }

    #[test]
    fn one_occurrence_is_replaced_and_shown() {
        let (answer, after) = edit("one\ntwo\nthree\n", "two", "2", false);
        assert_eq!(after, b"one\n2\nthree\n");
        let answer = answer.unwrap();
        let text = answer.joined_text();
        assert!(text.starts_with("Replaced 1 occurrence in /"), "{text}");
        assert!(
            text.ends_with(":\n     1\tone\n-    2\ttwo\n+    2\t2\n     3\tthree\n"),
            "{text}"
        );
        assert_eq!(answer.structured, Some(json!({ "replacements": 1, "first_line": 2 })));
    }

    #[test]
    fn several_occurrences_need_replace_all() {
        let failure = check_code("a\nb\na\n", "a", "c", Some("ambiguous"));
        assert!(failure.message.ends_with("2 times, in lines 1, 3"), "{failure}");
        let (answer, after) = edit("a\nb\na\n", "a", "c", true);
        assert_eq!(after, b"c\nb\nc\n");
        assert!(answer.unwrap().joined_text().starts_with("Replaced 2 occurrences"));
    }

    #[test]
    fn missing_text_gets_a_hint() {
        let failure =
            check_code("fn main() {\n\tlet a = 1;\n}\n", "    let a = 1;", "x", Some("no-match"));
        assert!(
            failure.message.contains("Line 2 differs") && failure.message.contains("white space"),
            "{failure}"
        );
    }

    #[test]
    fn invalid_arguments_are_refused() {
        check_code("a", "", "b", None);
        check_code("a", "a", "a", None);
    }

    #[test]
    fn non_utf8_file_is_not_changed() {
        check_code(b"caf\xe9 a", "a", "b", Some("not-utf-8"));
    }

    #[test]
    fn carriage_returns_survive() {
        let (answer, after) = edit("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n2b", false);
        answer.unwrap();
        assert_eq!(after, b"1\r\n2\r\n2b\r\nthree\r\n");
    }

    #[test]
    fn missing_file_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let failure =
            testing::call::<Edit>(json!({ "path": path, "old_string": "a", "new_string": "b" }))
                .unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("not-found"));
        assert!(!path.exists());
    }
}
