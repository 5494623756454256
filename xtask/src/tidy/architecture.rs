//! Rules about docs/architecture.md and docs/decisions: what they say of the tree is so.

use super::places::{STARTS_PROCESSES, UNSAFE_FILES};
use super::tree::{File, Tree};
use super::{Violation, at};

/// The map of the repository.
const PAGE: &str = "docs/architecture.md";

/// A map fits into a few screens.
const MAX_LINES: usize = 200;

/// Where a path of the repository begins.
const FOLDERS: [&str; 7] = ["host/", "plugins/", "tests/", "xtask/", "wit/", "docs/", ".ci/"];

pub(crate) fn the_architecture_is_a_map(tree: &Tree) -> Vec<Violation> {
    let long = |file: &&File| file.text.lines().count() > MAX_LINES;
    let advice = "move what is no map into docs/inside.md or docs/decisions";
    let message = |file: &File| {
        format!("{} lines, more than {MAX_LINES}: {advice}", file.text.lines().count())
    };
    page(tree).filter(long).map(|file| at(file, MAX_LINES, message(file))).into_iter().collect()
}

pub(crate) fn the_table_of_crates_is_complete(tree: &Tree) -> Vec<Violation> {
    // The examples stand alone: whoever copies them takes nothing else.
    let manifests =
        tree.manifests(&FOLDERS).filter(|(file, _)| !file.path.starts_with("plugins/examples/"));
    let packages = manifests.filter(|(_, manifest)| manifest.string("package", "name").is_some());
    let folders: Vec<&str> =
        packages.filter_map(|(file, _)| file.path.strip_suffix("/Cargo.toml")).collect();
    compared(tree, "## Crates", 0, &folders)
}

pub(crate) fn the_table_of_processes_is_complete(tree: &Tree) -> Vec<Violation> {
    compared(tree, "## Processes", 2, &STARTS_PROCESSES)
}

pub(crate) fn the_table_of_unsafe_files_is_complete(tree: &Tree) -> Vec<Violation> {
    compared(tree, "## Unsafe", 0, &UNSAFE_FILES)
}

pub(crate) fn paths_in_the_architecture_exist(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let ours = |file: &&File| {
        [PAGE, "docs/inside.md"].contains(&&*file.path) || file.path.starts_with("docs/decisions/")
    };
    for file in tree.files.iter().filter(ours) {
        for (line, text) in file.text.lines().enumerate() {
            let paths =
                spans(text).filter(|span| FOLDERS.iter().any(|folder| span.starts_with(folder)));
            for path in paths.filter(|path| !tree.has(path)) {
                found.push(at(file, line + 1, format!("there is no {path}: name where it is now")));
            }
        }
    }
    found
}

fn page(tree: &Tree) -> Option<&File> {
    tree.files.iter().find(|file| file.path == PAGE)
}

/// What differs between the paths in a column of the table below a heading, from 0, and those that
/// there are.
fn compared(tree: &Tree, heading: &str, column: usize, expected: &[&str]) -> Vec<Violation> {
    let Some(file) = page(tree) else { return Vec::new() };
    let lines = file.text.lines().enumerate().map(|(number, text)| (number + 1, text));
    let section = lines.skip_while(|(_, text)| *text != heading);
    let rows = section
        .skip(1)
        .take_while(|(_, text)| !text.starts_with("## "))
        .filter(|(_, text)| text.starts_with('|'));
    let cell = |text| <str>::split(text, '|').nth(column + 1).and_then(|cell| spans(cell).next());
    let shown: Vec<(usize, &str)> =
        rows.filter_map(|(line, text)| Some((line, cell(text)?))).collect();

    let title = heading.trim_start_matches("## ");
    let unknown = shown.iter().filter(|(_, path)| !expected.contains(path));
    let mut found: Vec<Violation> = unknown
        .map(|(line, path)| {
            at(
                file,
                *line,
                format!("`{path}` doesn't belong into \"{title}\" any more: take its row out"),
            )
        })
        .collect();
    let line = file.text.lines().position(|text| text == heading).map_or(1, |line| line + 1);
    let missing = expected.iter().filter(|path| !shown.iter().any(|(_, shown)| shown == *path));
    found.extend(
        missing.map(|path| {
            at(file, line, format!("`{path}` is missing in \"{title}\": give it a row"))
        }),
    );
    found
}

/// What stands between backticks in a line: every second piece.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
