//! Rules about docs/architecture.md, and about paths in all documents: what they say about the tree
//! is true.

use super::places::{STARTS_PROCESSES, UNSAFE_FILES};
use super::tree::{File, Tree, stands_alone};
use super::{Violation, at};

/// The page about the architecture.
const PAGE: &str = "docs/architecture.md";

/// The page has to fit on a few screens.
const MAX_LINES: usize = 200;

/// The first folders of paths in the repository.
const FOLDERS: [&str; 7] = ["host/", "plugins/", "tests/", "xtask/", "wit/", "docs/", ".ci/"];

pub(crate) fn the_architecture_page_is_short(tree: &Tree) -> Vec<Violation> {
    let Some(file) = page(tree) else { return Vec::new() };
    let lines = file.text.lines().count();
    if lines <= MAX_LINES {
        return Vec::new();
    }
    let advice = "move details to docs/inside.md or docs/decisions";
    vec![at(file, MAX_LINES, format!("{lines} lines; the limit is {MAX_LINES}: {advice}"))]
}

pub(crate) fn the_table_of_crates_is_complete(tree: &Tree) -> Vec<Violation> {
    // The examples and samples are not part of the architecture: readers copy each by itself.
    let manifests = tree.manifests(&FOLDERS).filter(|(file, _)| !stands_alone(&file.path));
    let packages = manifests.filter(|(_, manifest)| manifest.string("package", "name").is_some());
    let folders: Vec<&str> =
        packages.filter_map(|(file, _)| file.path.strip_suffix("/Cargo.toml")).collect();
    compare_column(tree, "## Crates", 0, &folders)
}

pub(crate) fn the_table_of_processes_is_complete(tree: &Tree) -> Vec<Violation> {
    compare_column(tree, "## Processes", 2, &STARTS_PROCESSES)
}

pub(crate) fn the_table_of_unsafe_files_is_complete(tree: &Tree) -> Vec<Violation> {
    compare_column(tree, "## Unsafe", 0, &UNSAFE_FILES)
}

pub(crate) fn paths_in_documents_exist(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let pages = tree.files.iter().filter(|file| {
        file.has_extension(&["md"]) && (file.path.starts_with("docs/") || !file.path.contains('/'))
    });
    for file in pages {
        for (line, text) in file.text.lines().enumerate() {
            let paths = code_spans(text)
                .filter(|span| FOLDERS.iter().any(|folder| span.starts_with(folder)));
            for path in paths.filter(|path| !exists(tree, path)) {
                found.push(at(file, line + 1, format!("{path} doesn't exist: write its new path")));
            }
        }
    }
    found
}

/// Whether the tree has a path. `*` at its end stands for the rest of a name.
fn exists(tree: &Tree, path: &str) -> bool {
    match path.strip_suffix('*') {
        Some(start) => tree.files.iter().any(|file| file.path.starts_with(start)),
        None => tree.has(path),
    }
}

fn page(tree: &Tree) -> Option<&File> {
    tree.files.iter().find(|file| file.path == PAGE)
}

/// Compares the paths in a column of the table below a heading with the expected ones. Columns
/// count from 0.
fn compare_column(tree: &Tree, heading: &str, column: usize, expected: &[&str]) -> Vec<Violation> {
    let Some(file) = page(tree) else { return Vec::new() };
    let lines = file.text.lines().enumerate().map(|(number, text)| (number + 1, text));
    let section = lines.skip_while(|(_, text)| *text != heading);
    let rows = section
        .skip(1)
        .take_while(|(_, text)| !text.starts_with("## "))
        .filter(|(_, text)| text.starts_with('|'));
    let shown: Vec<(usize, &str)> = rows
        .filter_map(|(line, text)| {
            let cell = text.split('|').nth(column + 1)?;
            Some((line, code_spans(cell).next()?))
        })
        .collect();

    let title = heading.trim_start_matches("## ");
    let unknown = shown.iter().filter(|(_, path)| !expected.contains(path));
    let mut found: Vec<Violation> = unknown
        .map(|(line, path)| {
            at(
                file,
                *line,
                format!(
                    "`{path}` doesn't belong in the table \"{title}\" any more: remove its row"
                ),
            )
        })
        .collect();
    let line = file.text.lines().position(|text| text == heading).map_or(1, |line| line + 1);
    let missing = expected.iter().filter(|path| !shown.iter().any(|(_, shown)| shown == *path));
    found.extend(missing.map(|path| {
        at(file, line, format!("`{path}` is missing in the table \"{title}\": add a row"))
    }));
    found
}

/// The texts between backticks in a line: every second piece.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
