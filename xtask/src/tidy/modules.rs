//! Rules about the modules of a crate, and which modules use which.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::tree::{File, Tree};
use super::{Violation, at};

/// For each module the modules beside it that it uses, each with the first place that does so.
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

/// A module uses its children, and children may use what stands in their parent itself. So only
/// uses between the children of one parent form circles.
pub(crate) fn modules_of_a_crate_form_no_circle(tree: &Tree) -> Vec<Violation> {
    let roots = tree.rust(&["host/", "plugins/", "xtask/"]).filter_map(|(file, _)| {
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
        .map(|(file, source)| (module_name(&file.path[folder.len()..]), file, source))
        .collect();
    let edges = edges(&files);
    let mut found = Vec::new();
    for (module, named) in &edges {
        for (other, (file, line)) in named {
            if reachable_from(&edges, other).contains(module.as_str()) {
                let [module, other] =
                    [module, other].map(|name| name.trim_start_matches("crate::"));
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

/// Which module of a crate uses which other one beside it. Tests don't count.
fn edges<'t>(files: &[(String, &'t File, &Source)]) -> Edges<'t> {
    let modules: BTreeSet<&str> = files.iter().map(|(module, ..)| module.as_str()).collect();
    let imports = imports(files, &modules);
    let mut edges = Edges::new();
    for (module, file, source) in files {
        for (line, path) in source.paths() {
            let used = defining_module(from_root(module, &path), &modules, &imports);
            if let Some((module, used)) = siblings(module, &used)
                && !file.is_test(line)
            {
                let named = edges.entry(module.to_owned()).or_default();
                named.entry(used.to_owned()).or_insert((*file, line));
            }
        }
    }
    edges
}

/// The names that modules import from their children, which others may then use as if they were
/// defined there: `crate::a::Thing` for `crate::a::b::Thing`.
fn imports(
    files: &[(String, &File, &Source)],
    modules: &BTreeSet<&str>,
) -> BTreeMap<String, String> {
    let mut imports = BTreeMap::new();
    for (module, _, source) in files {
        for (_, path) in source.paths() {
            let path = from_root(module, &path);
            let below = path.strip_prefix(module).and_then(|below| below.strip_prefix("::"));
            if let Some((child, _)) = below.and_then(|below| below.split_once("::"))
                && modules.contains(format!("{module}::{child}").as_str())
                && let Some((_, name)) = path.rsplit_once("::")
            {
                imports.insert(format!("{module}::{name}"), path);
            }
        }
    }
    imports
}

/// The module that defines what a path from the crate's root names, as far as it is known.
fn defining_module(
    mut path: String,
    modules: &BTreeSet<&str>,
    imports: &BTreeMap<String, String>,
) -> String {
    let mut module = "crate".to_owned();
    while let Some(name) = path[module.len()..].split("::").nth(1) {
        let next = format!("{module}::{name}");
        if modules.contains(next.as_str()) {
            module = next;
        } else if let Some(imported) = imports.get(&next) {
            path = format!("{imported}{}", &path[next.len()..]);
        } else {
            break;
        }
    }
    module
}

/// A path that stands in a module, from the crate's root.
fn from_root(module: &str, path: &str) -> String {
    let path = path.strip_suffix("::self").unwrap_or(path);
    if path.starts_with("crate::") {
        return path.to_owned();
    }
    let mut module = module;
    let mut path = path.strip_prefix("self::").unwrap_or(path);
    while let Some(rest) = path.strip_prefix("super::") {
        module = module.rsplit_once("::").map_or(module, |(parent, _)| parent);
        path = rest;
    }
    format!("{module}::{path}")
}

/// Where two modules part: the children of the innermost module that is around both. `None` if one
/// of them is around the other.
fn siblings<'m>(module: &'m str, other: &'m str) -> Option<(&'m str, &'m str)> {
    let mut common = 0;
    for (name, other_name) in module.split("::").zip(other.split("::")) {
        if name != other_name {
            return Some((&module[..common + name.len()], &other[..common + other_name.len()]));
        }
        common += name.len() + "::".len();
    }
    None
}

/// Returns all modules that `module` uses, directly or through other modules. The result contains
/// `module` itself only if the module is in a circle.
fn reachable_from<'e>(edges: &'e Edges<'_>, module: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        let Some(used_modules) = edges.get(module) else { continue };
        for used in used_modules.keys() {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

/// The name of the module in a file of `src/`, from the crate's root: `crate::a::b` for `a/b.rs`.
fn module_name(path: &str) -> String {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    match path {
        "lib" | "main" => "crate".to_owned(),
        _ => format!("crate::{}", path.replace('/', "::")),
    }
}
