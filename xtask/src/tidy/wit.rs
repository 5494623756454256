//! Rules about the contract, which plugin authors read.

use super::tree::{File, Tree};
use super::{Violation, at};

/// The folder of the contract. The `wit` folders of plugins have their own interfaces, or copies.
const CONTRACT: &str = "wit/";

/// Items that need documentation, in addition to interfaces, worlds and functions.
const TYPES: [&str; 6] = ["record", "variant", "enum", "flags", "resource", "type"];

pub(crate) fn every_item_of_the_contract_is_documented(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in contract(tree) {
        for item in items(&file.text).into_iter().filter(|item| !item.documented) {
            found.push(at(
                file,
                item.line,
                format!("`{}` has no documentation: add `///` above it", item.name),
            ));
        }
    }
    found
}

pub(crate) fn each_interface_has_its_own_file(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in contract(tree) {
        let name = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".wit");
        let interfaces = items(&file.text).into_iter().filter(|item| item.keyword == "interface");
        for interface in interfaces.filter(|interface| interface.name != name) {
            found.push(at(
                file,
                interface.line,
                format!("interface `{0}` has to be in {0}.wit: move it", interface.name),
            ));
        }
    }
    found
}

pub(crate) fn copies_of_the_contract_are_identical(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree
        .files
        .iter()
        .filter(|file| file.has_extension(&["wit"]) && !file.path.starts_with(CONTRACT))
    {
        let Some(package) = package(&file.text) else { continue };
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let originals: Vec<&File> = contract(tree)
            .filter(|original| self::package(&original.text) == Some(package))
            .collect();
        if originals.is_empty() {
            continue;
        }
        match originals.iter().find(|original| original.path.ends_with(&format!("/{name}"))) {
            Some(original) if original.text == file.text => {}
            Some(original) => {
                found.push(at(
                    file,
                    1,
                    format!("differs from {}: copy that file again", original.path),
                ));
            }
            None => {
                found.push(at(
                    file,
                    1,
                    format!("package {package} has no file of this name: remove it"),
                ));
            }
        }
    }
    found
}

fn contract(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.path.starts_with(CONTRACT) && file.has_extension(&["wit"]))
}

fn package(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("package ")?.strip_suffix(';'))
}

struct Item {
    line: usize,
    keyword: &'static str,
    name: String,
    /// Whether the item has a doc comment. For a type, doc comments on all of its members are
    /// enough.
    documented: bool,
}

/// The interfaces and worlds of a file, and their types and functions.
fn items(text: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // Whether there is a doc comment above the line.
    let mut documented = false;
    // The index of the type that has the line as a member, and whether all its members so far have
    // doc comments.
    let mut members: Option<(usize, bool)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("//") {
            documented |= line.starts_with("///");
            continue;
        }
        if let Some((item, all)) = members {
            if line.starts_with('}') {
                items[item].documented |= all;
                members = None;
            } else if !line.is_empty() {
                members = Some((item, all && documented));
            }
        } else if let Some((keyword, name)) = item(line) {
            items.push(Item { line: number + 1, keyword, name: name.to_owned(), documented });
            if TYPES.contains(&keyword) && line.ends_with('{') {
                members = Some((items.len() - 1, true));
            }
        }
        documented = false;
    }
    items
}

fn item(line: &str) -> Option<(&'static str, &str)> {
    let (first, rest) = line.split_once(' ')?;
    for keyword in ["interface", "world"].into_iter().chain(TYPES) {
        if first == keyword {
            return Some((keyword, rest.split([' ', '{', ';', '=']).next()?));
        }
    }
    let is_function = first.ends_with(':')
        && ["func(", "async func(", "static func("].iter().any(|start| rest.starts_with(start));
    is_function.then(|| ("func", first.trim_end_matches(':')))
}

#[cfg(test)]
mod tests {
    use super::items;

    #[test]
    fn items_are_found_with_their_documentation() {
        let text = "package a:b@1.0.0;\n\n/// Yes.\ninterface i {\n  use x.{y};\n  record all {\n    /// One.\n    one: u8,\n    /// Two.\n    two: u8,\n  }\n  \
                    enum some {\n    /// One.\n    one,\n    two,\n  }\n  // Not documentation.\n  type alias = string;\n  /// Yes.\n  f: func(a: u8) -> u8;\n  \
                    g: func();\n  enum short { a, b }\n}\n";
        let found: Vec<_> = items(text)
            .into_iter()
            .map(|item| (item.keyword, item.name, item.documented))
            .collect();
        let expected = [
            ("interface", "i", true),
            ("record", "all", true),
            ("enum", "some", false),
            ("type", "alias", false),
            ("func", "f", true),
            ("func", "g", false),
            ("enum", "short", false),
        ];
        assert_eq!(
            found,
            expected.map(|(keyword, name, documented)| (keyword, name.to_owned(), documented))
        );
    }
}
