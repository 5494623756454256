//! `find_path`: finds files whose paths match a glob.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::search::{self, Ending, Scope};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::hidden;
use crate::nearby;
use crate::notices;
use crate::paths::{self, PathShortener};

/// The default number of paths that are shown.
const DEFAULT_LIMIT: u32 = 200;

/// Finds files whose paths match a glob.
pub(crate) struct FindPath;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Without a slash: names at any depth, `test_*.{py,pyi}`. With a slash: paths from the
    /// directory, `src/**/*.rs`.
    pattern: String,
    /// The directory. Default: `.`.
    path: Option<String>,
    hidden: Option<bool>,
    /// Default: 200.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<u32>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// The number of paths that are shown.
    paths: usize,
    /// Whether there may be more.
    cut: bool,
}

impl Tool for FindPath {
    const NAME: &str = "find_path";
    const TITLE: Option<&str> = Some("Find files");
    const DESCRIPTION: &str = "\
        Finds files by a glob over their paths, in a directory and everything below it. Skips \
        hidden files (unless hidden is set) and files that .gitignore excludes. Returns one path a \
        line. Use grep to search in files.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const ALIASES: &[&str] = &["glob", "glob_search"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("limit", &["max_results"])];
    const PATTERN_BASE: Option<(&str, &str)> = Some(("pattern", "path"));
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { pattern, path, hidden, limit } = arguments;
        let hidden = hidden.unwrap_or(false);
        let (root, glob) = split_pattern(&pattern, path)?;
        let scope = Scope {
            root: root.clone(),
            globs: if hidden { hidden::with_hidden(Some(glob)) } else { vec![glob] },
            ignore_rules: true,
            files_only: true,
            max_depth: None,
        };
        let found = search::find(&scope, limit.unwrap_or(DEFAULT_LIMIT).max(1))
            .map_err(|error| nearby::suggest_names(error.into(), &root))?;
        let paths = PathShortener::new();
        let mut text: String =
            found.items.iter().flat_map(|entry| [paths.show(&entry.path), "\n".into()]).collect();
        let count = found.items.len();
        if count == 0 && found.ending == Ending::Complete {
            text = format!(
                "No file in {root} matches {pattern}. Directories are not found; list_directory shows them. {}\n",
                hidden::not_searched(hidden)
            );
        }
        if found.ending == Ending::Limit {
            add_notice(
                &mut text,
                &format!(
                    "Stopped at {count} paths; there are more. Narrow the pattern or the path, or raise limit."
                ),
            );
        }
        notices::add_ending(&mut text, found.ending);
        notices::add_skipped(&mut text, found.skipped);
        Output::text(text)
            .with_structured(&Answer { paths: count, cut: found.ending != Ending::Complete })
    }
}

/// The directory to search, and the glob below it. If a call has an absolute pattern and no path,
/// the host has split the pattern already, to check the directory.
fn split_pattern(pattern: &str, path: Option<String>) -> Result<(String, String), Failure> {
    // With a leading slash, the glob matches only paths that start at the directory.
    let plain =
        pattern.strip_prefix("./").map_or_else(|| pattern.to_owned(), |rest| format!("/{rest}"));
    if plain.trim_matches('/').is_empty() {
        return Err(Failure::invalid("pattern is empty").with_suggestion("`*` matches every file."));
    }
    if plain.starts_with('!') {
        let failure = Failure::invalid(
            "a pattern can't start with `!`: it names files to find, not to exclude",
        );
        return Err(
            failure.with_suggestion("Write `\\!` for a name that starts with an exclamation mark.")
        );
    }
    // Paths never contain these parts, so such a pattern would silently find nothing.
    if plain.starts_with("~/") || plain.split('/').any(|part| part == "..") {
        let failure = Failure::invalid("a pattern can't go through `..` or `~`");
        return Err(failure.with_suggestion("Put the directory in path instead of the pattern."));
    }
    if !pattern.starts_with('/') {
        return Ok((paths::or_working_directory(path)?, plain));
    }
    let root = path.unwrap_or_default();
    match plain
        .strip_prefix(root.trim_end_matches('/'))
        .filter(|rest| rest.starts_with('/') && !root.is_empty())
    {
        Some(rest) => Ok((root.clone(), rest.to_owned())),
        None => Err(Failure::invalid(format!("pattern is absolute and not below path ({root})"))
            .with_suggestion("Leave out path.")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use toolhold_sdk::testing;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.rs", "a.txt", "src/deep/c.rs", "src/d.rs", ".hidden.rs"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(dir.path().join(".ignore"), "d.*\n").unwrap();
        dir
    }

    fn find(dir: &tempfile::TempDir, arguments: Value) -> String {
        let text = testing::call::<FindPath>(arguments).unwrap().joined_text();
        text.replace(&format!("{}/", dir.path().display()), "")
    }

    #[test]
    fn names_match_at_any_depth_and_paths_from_the_directory() {
        let dir = tree();
        let with = |pattern: &str| find(&dir, json!({ "pattern": pattern, "path": dir.path() }));
        assert!(with("c.*").contains("src/deep/c.rs\n"));
        assert_eq!(with("./src/*/*.rs"), "src/deep/c.rs\n");
        assert!(with("*.py").starts_with("No file in "));
    }

    #[test]
    fn absolute_pattern_is_split_at_its_directory() {
        let dir = tree();
        let base = dir.path().display();
        assert_eq!(
            find(&dir, json!({ "pattern": format!("{base}/src/**/c.rs"), "path": dir.path() })),
            "src/deep/c.rs\n"
        );
        assert_eq!(find(&dir, json!({ "pattern": "./b.rs", "path": dir.path() })), "b.rs\n");
        assert!(
            find(&dir, json!({ "pattern": "./c.rs", "path": dir.path() }))
                .starts_with("No file in ")
        );
        assert_eq!(
            find(&dir, json!({ "pattern": format!("{base}/*.txt"), "path": dir.path() })),
            "a.txt\n"
        );
        let outside = testing::call::<FindPath>(json!({ "pattern": "/etc/*", "path": dir.path() }))
            .unwrap_err();
        assert!(outside.message.contains("not below path"), "{outside}");
    }

    #[test]
    fn list_stops_at_the_limit() {
        let dir = tree();
        let text = find(&dir, json!({ "pattern": "*", "path": dir.path(), "limit": 1 }));
        assert!(text.contains("[Stopped at 1 paths; there are more."), "{text}");
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for pattern in ["", "/", "./", "!*.rs", "a{b", "../*", "src/../*.rs", "/etc/../*", "~/*.rs"]
        {
            let failure =
                testing::call::<FindPath>(json!({ "pattern": pattern, "path": "/" })).unwrap_err();
            assert_eq!(
                failure.category,
                toolhold_sdk::Category::InvalidParameters,
                "{pattern}: {failure}"
            );
        }
    }

    #[test]
    fn pattern_splits_into_root_and_glob() {
        for (pattern, root, glob) in [
            ("/a/b/*.rs", "/a", "/b/*.rs"),
            ("/a/b", "/", "/a/b"),
            ("./*.rs", "/w", "/*.rs"),
            ("x/y", "/w", "x/y"),
        ] {
            assert_eq!(
                split_pattern(pattern, Some(root.to_owned())).unwrap(),
                (root.to_owned(), glob.to_owned())
            );
        }
        // In a real call, the host has added the missing folder.
        assert_eq!(
            split_pattern("/a/*.rs", None).unwrap_err().category,
            toolhold_sdk::Category::InvalidParameters
        );
    }
}
