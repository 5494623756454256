//! Rules about Rust code in all folders.

use super::tree::{File, Tree, stands_alone};
use super::{Violation, at};

/// The folders with Rust code.
const RUST: [&str; 4] = ["host/", "plugins/", "tests/", "xtask/"];

/// The benches, which may sleep, because their pauses are part of what they measure.
const BENCHES: &str = "tests/src/bin/bench/";

/// The limit of lines in a file. Aim at 400: a longer file often has two concerns.
const MAX_LINES: usize = 1_000;

/// A file with more lines than this gets a warning.
const MANY_LINES: usize = 700;

pub(crate) fn every_lint_exception_has_a_reason(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&RUST) {
        for attribute in ["allow(", "expect("] {
            for (start, _) in source.code.match_indices(attribute) {
                if !is_attribute(&source.code[..start]) {
                    continue;
                }
                let end =
                    source.code[start..].find(']').map_or(source.code.len(), |end| start + end);
                if !source.code[start..end].contains("reason =") {
                    let line = source.code[..start].matches('\n').count() + 1;
                    found.push(at(
                        file,
                        line,
                        format!("`{attribute}…)` without a reason: say why with `reason = \"…\"`"),
                    ));
                }
            }
        }
    }
    found
}

pub(crate) fn no_code_is_unfinished(tree: &Tree) -> Vec<Violation> {
    const MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
    const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
    let mut found = Vec::new();
    for file in &tree.files {
        let (code, comments) = match &file.source {
            Some(source) => (source.code.as_str(), source.comments.as_str()),
            // The corpus is output of third-party programs.
            None if file.path.starts_with("tests/corpus/") => continue,
            None if file.has_extension(&["wit", "toml", "sh", "md"]) => ("", file.text.as_str()),
            None => continue,
        };
        for (text, words) in [(code, MACROS.as_slice()), (comments, MARKS.as_slice())] {
            for (line, text) in text.lines().enumerate() {
                for word in words.iter().filter(|word| mentions(text, word)) {
                    found.push(at(file, line + 1, format!("`{word}`: finish it, or remove it")));
                }
            }
        }
    }
    found
}

pub(crate) fn no_test_is_disabled(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&RUST) {
        for (line, text) in source.code.lines().enumerate() {
            for attribute in ["#[ignore", "#[should_panic"] {
                if text.contains(attribute) {
                    let advice = "always run the test, and assert on what the code returns";
                    found.push(at(file, line + 1, format!("`{attribute}]`: {advice}")));
                }
            }
        }
        for (line, text) in source.comments.lines().enumerate() {
            if text.contains("```ignore") || text.contains("```rust,ignore") {
                found.push(at(
                    file,
                    line + 1,
                    "an example that isn't compiled: mark it `no_run`, or `text` if it isn't Rust"
                        .to_owned(),
                ));
            }
        }
    }
    found
}

pub(crate) fn tests_do_not_sleep(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&RUST).filter(|(file, _)| !file.path.starts_with(BENCHES)) {
        for (line, path) in source.paths() {
            if file.is_test(line)
                && ["thread::sleep", "time::sleep"].iter().any(|sleep| path.ends_with(sleep))
            {
                found.push(at(
                    file,
                    line,
                    format!("`{path}` in a test: wait for the event itself, with a deadline"),
                ));
            }
        }
    }
    found
}

pub(crate) fn files_stay_small(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, lines) in lengths(tree) {
        if lines > MAX_LINES {
            let message =
                format!("{lines} lines; the limit is {MAX_LINES}: split the file by concern");
            found.push(at(file, MAX_LINES, message));
        }
    }
    found
}

/// Files with so many lines that they may have two concerns: a warning.
pub(crate) fn long_files(tree: &Tree) -> Vec<(&str, usize)> {
    let long = lengths(tree).filter(|(_, lines)| *lines > MANY_LINES);
    long.map(|(file, lines)| (file.path.as_str(), lines)).collect()
}

fn lengths(tree: &Tree) -> impl Iterator<Item = (&File, usize)> {
    tree.rust(&RUST).map(|(file, _)| (file, file.text.lines().count()))
}

/// The lines of Rust below `host`, without tests.
pub(crate) fn lines_without_tests(tree: &Tree) -> usize {
    tree.rust(&["host/"])
        .map(|(file, _)| {
            (1..=file.text.lines().count()).filter(|line| !file.is_test(*line)).count()
        })
        .sum()
}

/// A crate costs a manifest, a name and a border. So it needs two users, or a reason in
/// `metadata.reason` of its manifest.
pub(crate) fn every_crate_has_two_users_or_a_reason(tree: &Tree) -> Vec<Violation> {
    let crates: Vec<_> = tree.manifests(&["host/"]).collect();
    let mut found = Vec::new();
    for (file, manifest) in &crates {
        let name = manifest.string("package", "name").unwrap_or_default();
        let users = crates
            .iter()
            .filter(|(_, other)| {
                let dependencies = other.dependencies();
                dependencies.iter().any(|dependency| !dependency.dev && dependency.name == name)
            })
            .count();
        if users < 2 && manifest.string("package", "metadata.reason").is_none() {
            let message = format!(
                "{users} crates below host use `{name}`: merge it into its user, or say in `metadata.reason` why it exists"
            );
            found.push(at(file, 1, message));
        }
    }
    found
}

pub(crate) fn every_crate_has_a_description(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&RUST) {
        if manifest.string("package", "name").is_none() {
            continue;
        }
        if manifest.string("package", "description").is_none() {
            found.push(at(
                file,
                1,
                "the description is missing: say in one line what the crate is for".to_owned(),
            ));
        }
        let folder = file.path.trim_end_matches("Cargo.toml");
        for (root, _) in
            tree.rust(&[folder]).filter(|(root, _)| is_crate_root(&root.path[folder.len()..]))
        {
            if !root.text.starts_with("//!") {
                found.push(at(
                    root,
                    1,
                    "the crate documentation is missing: begin with `//!` and what the crate does"
                        .to_owned(),
                ));
            }
        }
    }
    found
}

pub(crate) fn every_crate_uses_the_lints_and_versions_of_the_workspace(
    tree: &Tree,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in tree.manifests(&RUST).filter(|(file, _)| !stands_alone(&file.path)) {
        if manifest.string("package", "name").is_none() {
            continue;
        }
        if !manifest.inherits("lints") {
            found.push(at(
                file,
                1,
                "the workspace's lints don't apply: add `[lints]` with `workspace = true`"
                    .to_owned(),
            ));
        }
        for dependency in
            manifest.dependencies().iter().filter(|dependency| !dependency.from_workspace)
        {
            let advice =
                "put the version in the workspace's Cargo.toml, and `workspace = true` here";
            found.push(at(
                file,
                dependency.line,
                format!("`{}` has a version of its own: {advice}", dependency.name),
            ));
        }
    }
    found
}

pub(crate) fn every_dependency_is_used(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, manifest) in
        tree.manifests(&RUST).filter(|(_, manifest)| manifest.string("package", "name").is_some())
    {
        let folder = file.path.trim_end_matches("Cargo.toml");
        for dependency in manifest.dependencies() {
            let name = dependency.name.replace('-', "_");
            if !tree.rust(&[folder]).any(|(_, source)| mentions(&source.code, &name)) {
                found.push(at(
                    file,
                    dependency.line,
                    format!("no code uses `{name}`: remove `{}`", dependency.name),
                ));
            }
        }
    }
    found
}

/// Whether a path in the folder of a crate is the root of a program, library or test: `src/lib.rs`,
/// `src/main.rs`, `src/bin/x.rs`, `src/bin/x/main.rs`, `build.rs` or `tests/x.rs`.
fn is_crate_root(path: &str) -> bool {
    ["src/lib.rs", "src/main.rs", "build.rs"].contains(&path)
        || ["src/bin/", "tests/"]
            .iter()
            .filter_map(|folder| path.strip_prefix(folder))
            .any(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
}

/// Whether the code before `allow(` makes it an attribute: `#[allow(`, `#![allow(`,
/// `#[cfg_attr(test, allow(`.
fn is_attribute(before: &str) -> bool {
    let before = before.trim_end();
    if before.ends_with("#[") || before.ends_with("#![") {
        return true;
    }
    before.rfind("cfg_attr(").is_some_and(|start| !before[start..].contains(']'))
}

/// Whether the text has the word, and not only as a part of a longer one.
fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_of_word) && !text[at + word.len()..].starts_with(is_of_word)
    })
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::is_crate_root;

    #[test]
    fn crate_roots_are_recognized_by_their_path() {
        for path in [
            "src/lib.rs",
            "src/main.rs",
            "build.rs",
            "src/bin/a.rs",
            "src/bin/a/main.rs",
            "tests/a.rs",
        ] {
            assert!(is_crate_root(path), "{path}");
        }
        for path in ["src/a.rs", "src/a/lib.rs", "src/bin/a/b.rs", "tests/a/b.rs"] {
            assert!(!is_crate_root(path), "{path}");
        }
    }
}
