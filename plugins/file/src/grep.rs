//! `grep`: finds lines of files by a regular expression.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::search::{self, Counts, Ending, Line, Lines, Pattern, Scope};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::hidden;
use crate::nearby;
use crate::notices::{self, plural};
use crate::paths::{self, PathShortener};

/// The default number of matching lines, or of files, that are shown.
const DEFAULT_LIMIT: u32 = 100;

/// Finds lines of files by a regular expression.
pub(crate) struct Grep;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// In the syntax of Rust's regex crate: no look-around, no back-references.
    pattern: String,
    /// File or directory. Default: `.`.
    path: Option<String>,
    /// Default: true.
    case_sensitive: Option<bool>,
    /// Only files that match this glob: `src/**/*.{ts,tsx}`; with `!` before it, only others.
    include: Option<String>,
    hidden: Option<bool>,
    #[schemars(range(max = 100))]
    before: Option<u32>,
    #[schemars(range(max = 100))]
    after: Option<u32>,
    /// Lines before and after each match.
    #[schemars(range(max = 100))]
    context: Option<u32>,
    /// content: lines; files: paths; count: matching lines per file. Default: content.
    mode: Option<Mode>,
    /// Let a match span lines.
    multiline: Option<bool>,
    /// Lines or files to show. Default: 100.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<u32>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    // No doc comments: so the schema stays a plain list of names.
    Content,
    Files,
    Count,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// The number of matching lines that are shown or counted.
    matches: u64,
    /// The number of files with matching lines.
    files: u64,
    /// Whether there may be more.
    cut: bool,
}

impl Tool for Grep {
    const NAME: &str = "grep";
    const TITLE: Option<&str> = Some("Search in files");
    const DESCRIPTION: &str = "\
        Searches files for a regular expression, line by line. Skips binary files, hidden files \
        (unless hidden is set) and files that .gitignore excludes. Shows matches as path:line: \
        text, with the lines before and after. Use find_path to find files by their names.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const ALIASES: &[&str] = &["content_search"];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        if arguments.pattern.is_empty() {
            return Err(Failure::invalid("pattern is empty")
                .with_suggestion("Use find_path to list files, or read to see one."));
        }
        let root = paths::or_working_directory(arguments.path)?;
        let include = arguments
            .include
            .as_deref()
            .map(|glob| glob.strip_prefix("./").unwrap_or(glob).to_owned());
        let hidden = arguments.hidden.unwrap_or(false);
        let scope = Scope {
            root: root.clone(),
            globs: if hidden {
                hidden::with_hidden(include)
            } else {
                include.into_iter().collect()
            },
            ignore_rules: true,
            files_only: true,
            max_depth: None,
        };
        let context = arguments.context.unwrap_or(0);
        let pattern = Pattern {
            regex: arguments.pattern,
            case_sensitive: arguments.case_sensitive.unwrap_or(true),
            multiline: arguments.multiline.unwrap_or(false),
            before: arguments.before.unwrap_or(context),
            after: arguments.after.unwrap_or(context),
        };
        let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).max(1);
        let paths = PathShortener::new();
        let (mut text, found, ending, skipped, searched) =
            match arguments.mode.unwrap_or(Mode::Content) {
                Mode::Content => {
                    let lines = search::grep(&scope, &pattern, limit)
                        .map_err(|error| nearby::suggest_names(error.into(), &root))?;
                    let matches = lines.items.iter().filter(|line| line.is_match).count() as u64;
                    let found = Answer {
                        matches,
                        files: lines.files_matched,
                        cut: lines.ending != Ending::Complete,
                    };
                    (
                        content(&lines, &paths, pattern.before + pattern.after > 0),
                        found,
                        lines.ending,
                        lines.skipped,
                        lines.files_searched,
                    )
                }
                mode => {
                    let counts = search::count(&scope, &pattern, limit)
                        .map_err(|error| nearby::suggest_names(error.into(), &root))?;
                    let matches = counts.items.iter().map(|(_, count)| count).sum();
                    let found = Answer {
                        matches,
                        files: counts.items.len() as u64,
                        cut: counts.ending != Ending::Complete,
                    };
                    (
                        files(&counts, &paths, mode == Mode::Count),
                        found,
                        counts.ending,
                        counts.skipped,
                        counts.files_searched,
                    )
                }
            };
        if found.files == 0 && ending == Ending::Complete {
            let left = hidden::not_searched(hidden);
            text = match &arguments.include {
                Some(glob) if searched == 0 => {
                    format!("No file in {root} matches {glob}, so no file was searched. {left}\n")
                }
                _ => format!(
                    "Nothing in {root} matches ({} searched). {left}\n",
                    plural(searched, "file")
                ),
            };
        }
        if ending == Ending::Limit {
            add_notice(
                &mut text,
                &format!(
                    "Stopped at {}; there may be more. Narrow the pattern or the path, or raise limit.",
                    describe_matches(&found)
                ),
            );
        }
        notices::add_ending(&mut text, ending);
        notices::add_skipped(&mut text, skipped);
        Output::text(text).with_structured(&found)
    }
}

/// Describes the matches of a cut answer.
fn describe_matches(found: &Answer) -> String {
    let lines = if found.matches == 1 {
        "1 matching line".to_owned()
    } else {
        format!("{} matching lines", found.matches)
    };
    format!("{lines} in {}", plural(found.files, "file"))
}

/// Shows matches as `path:line: text`, context as `path-line- text`, and gaps between places with
/// context as `--`.
fn content(lines: &Lines, paths: &PathShortener, with_context: bool) -> String {
    let mut text = String::with_capacity(
        lines.items.iter().map(|line| line.path.len() + line.text.len() + 10).sum(),
    );
    let mut last: Option<&Line> = None;
    for line in &lines.items {
        let apart =
            last.is_some_and(|last| last.path != line.path || last.number + 1 != line.number);
        if with_context && apart {
            text.push_str("--\n");
        }
        let mark = if line.is_match { ':' } else { '-' };
        text.push_str(&paths.show(&line.path));
        text.push(mark);
        text.push_str(&line.number.to_string());
        text.push(mark);
        text.push(' ');
        text.push_str(&line.text);
        text.push('\n');
        last = Some(line);
    }
    text
}

/// Shows the paths, with the number of matching lines in mode `count`.
fn files(counts: &Counts, paths: &PathShortener, with_count: bool) -> String {
    let mut text = String::new();
    for (path, count) in &counts.items {
        text.push_str(&paths.show(path));
        if with_count {
            text.push_str(": ");
            text.push_str(&count.to_string());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use toolhold_sdk::testing;

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("sub")).unwrap();
            fs::write(dir.path().join("a.txt"), "one\ntwo\nthree\nfour\nfive\nTwo\n").unwrap();
            fs::write(dir.path().join("sub/b.rs"), "two\n").unwrap();
            fs::write(dir.path().join("sub/c.bin"), "two\0").unwrap();
            Self(dir)
        }

        /// The answer without the tree's own path.
        fn grep(&self, mut arguments: Value) -> Result<String, Failure> {
            arguments["path"] = json!(self.0.path());
            let text = testing::call::<Grep>(arguments)?.joined_text();
            Ok(text.replace(&format!("{}/", self.0.path().display()), ""))
        }
    }

    const SKIPPED: &str = "[Skipped: 1 binary.]\n";

    #[test]
    fn matches_have_path_and_line() {
        let text = Tree::new().grep(json!({ "pattern": "two" })).unwrap();
        assert_eq!(text, format!("a.txt:2: two\nsub/b.rs:1: two\n{SKIPPED}"));
    }

    #[test]
    fn context_is_marked_and_separated() {
        let text = Tree::new()
            .grep(json!({ "pattern": "^two", "case_sensitive": false, "context": 1 }))
            .unwrap();
        let a = "a.txt-1- one\na.txt:2: two\na.txt-3- three\n--\na.txt-5- five\na.txt:6: Two\n--\nsub/b.rs:1: two\n";
        assert_eq!(text, format!("{a}{SKIPPED}"));
        let after =
            Tree::new().grep(json!({ "pattern": "four", "context": 1, "before": 0 })).unwrap();
        assert_eq!(after, format!("a.txt:4: four\na.txt-5- five\n{SKIPPED}"));
    }

    #[test]
    fn modes_name_or_count_files() {
        let tree = Tree::new();
        let with = |mode: &str| tree.grep(json!({ "pattern": "(?i)two", "mode": mode })).unwrap();
        assert_eq!(with("files"), format!("a.txt\nsub/b.rs\n{SKIPPED}"));
        assert_eq!(with("count"), format!("a.txt: 2\nsub/b.rs: 1\n{SKIPPED}"));
        let rust =
            tree.grep(json!({ "pattern": "two", "mode": "files", "include": "*.rs" })).unwrap();
        assert_eq!(rust, "sub/b.rs\n");
    }

    #[test]
    fn reached_limit_is_announced() {
        let text = Tree::new().grep(json!({ "pattern": "o", "limit": 2 })).unwrap();
        assert!(text.starts_with("a.txt:1: one\na.txt:2: two\n[Stopped at 2 matching lines in 1 file; there may be more."), "{text}");
    }

    #[test]
    fn empty_result_is_not_a_failure() {
        let text = Tree::new().grep(json!({ "pattern": "seven" })).unwrap();
        assert!(text.starts_with("Nothing in /") && text.contains("(3 files searched)"), "{text}");
    }

    #[test]
    fn invalid_regex_is_explained() {
        let failure = Tree::new().grep(json!({ "pattern": "a(b" })).unwrap_err();
        assert_eq!(failure.category, toolhold_sdk::Category::InvalidParameters);
        assert!(failure.message.contains("unclosed group"), "{failure}");
    }

    #[test]
    fn multiline_match_spans_lines() {
        let text = Tree::new().grep(json!({ "pattern": "one.two", "multiline": true })).unwrap();
        assert!(text.starts_with("a.txt:1: one\na.txt:2: two\n"), "{text}");
    }
}
