//! Rules about the modules of a crate, and which modules use which.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::tree::{File, Tree};
use super::{Violation, at};

/// For each module the modules that it uses, each with the first place that does so.
type Edges<'t> = BTreeMap<String, BTreeMap<String, (&'t File, usize)>>;

pub(crate) fn modules_have_one_style(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, _) in tree.rust(&["host/", "plugins/", "tests/", "xtask/"]) {
        // The root of a crate isn't a module.
        let is_root = file.path.ends_with("/lib.rs") || file.path.ends_with("/main.rs");
        let is_test = file.path.split('/').rev().nth(1) == Some("tests");
        let folder = file.path.trim_end_matches(".rs");
        if !is_root && !is_test && tree.has(folder) {
            found.push(at(
                file,
                1,
                format!("a module with a folder has to be `{folder}/mod.rs`: move the file"),
            ));
        }
    }
    found
}

pub(crate) fn modules_of_a_crate_form_no_circle(tree: &Tree) -> Vec<Violation> {
    let roots = tree.rust(&["host/"]).filter_map(|(file, _)| {
        file.path.strip_suffix("lib.rs").or_else(|| file.path.strip_suffix("main.rs"))
    });
    let crates: BTreeSet<&str> = roots.filter(|folder| folder.ends_with("/src/")).collect();
    crates.into_iter().flat_map(|folder| circles(tree, folder)).collect()
}

/// The violations in the crate with the sources in `folder`: one for each use in a circle.
fn circles(tree: &Tree, folder: &str) -> Vec<Violation> {
    let folders = [folder];
    let files: Vec<_> = tree
        .rust(&folders)
        .map(|(file, source)| (file, source, top_module(&file.path[folder.len()..])))
        .collect();
    let edges = edges(&files);
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (module.as_str(), reachable_from(&edges, module))).collect();
    let in_a_circle =
        |module: &str| reached.get(module).is_some_and(|reached| reached.contains(module));
    let mut found = Vec::new();
    for (module, named) in edges.iter().filter(|(module, _)| in_a_circle(module)) {
        for (other, (file, line)) in named {
            if reached.get(other.as_str()).is_some_and(|reached| reached.contains(module.as_str()))
            {
                let advice = "move what both need into a third module that uses neither";
                found.push(at(
                    file,
                    *line,
                    format!("`{module}` uses `{other}`, which uses `{module}`, directly or through others: {advice}"),
                ));
            }
        }
    }
    found
}

/// Which top-level module of a crate uses which other one. Tests don't count.
fn edges<'t>(files: &[(&'t File, &Source, &str)]) -> Edges<'t> {
    let modules: BTreeSet<&str> = files.iter().map(|(_, _, module)| *module).collect();
    // Names that the root re-exports, each with the module that it comes from.
    let mut reexported = BTreeMap::new();
    for (_, source, _) in files.iter().filter(|(_, _, module)| is_root(module)) {
        for (_, path) in source.paths() {
            let path = path.strip_prefix("crate::").unwrap_or(&path).to_owned();
            if let (Some((first, _)), Some((_, last))) =
                (path.split_once("::"), path.rsplit_once("::"))
                && modules.contains(first)
            {
                reexported.insert(last.to_owned(), first.to_owned());
            }
        }
    }
    let mut edges = Edges::new();
    for &(file, source, module) in files.iter().filter(|(_, _, module)| !is_root(module)) {
        for (line, path) in source.paths() {
            let Some(named) =
                from_root(&path, depth(&file.path)).and_then(|path| path.split("::").next())
            else {
                continue;
            };
            let named = if modules.contains(named) {
                named
            } else {
                reexported.get(named).map_or(named, String::as_str)
            };
            if modules.contains(named) && named != module && !is_root(named) && !file.is_test(line)
            {
                edges
                    .entry(module.to_owned())
                    .or_default()
                    .entry(named.to_owned())
                    .or_insert((file, line));
            }
        }
    }
    edges
}

/// A path from the crate's root. `depth` is the number of modules between the file and the root.
/// `None` if the path doesn't start at the root.
fn from_root(path: &str, depth: usize) -> Option<&str> {
    path.strip_prefix("crate::").or_else(|| path.strip_prefix("super::".repeat(depth).as_str()))
}

/// Number of modules between a file of `src/` and its crate's root.
fn depth(path: &str) -> usize {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    inside.split('/').count() - usize::from(inside.ends_with("/mod.rs"))
}

/// All modules that a module uses, directly or through others. The module itself is only among them
/// if it is in a circle.
fn reachable_from<'e>(edges: &'e Edges<'_>, module: &str) -> BTreeSet<&'e str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        for other in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other.as_str()) {
                next.push(other);
            }
        }
    }
    reached
}

/// The top-level module of a file below `src/`.
fn top_module(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn is_root(module: &str) -> bool {
    ["lib", "main"].contains(&module)
}
