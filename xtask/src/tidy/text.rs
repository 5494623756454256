//! Rules about text of every kind.

use super::tree::{File, Tree};
use super::{Violation, at};

/// Extensions of files that people write by hand. Editors leave white space in them.
const BY_HAND: [&str; 7] = ["rs", "md", "wit", "toml", "sh", "yml", "wat"];

pub(crate) fn text_is_clean(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in
        tree.files.iter().filter(|file| file.has_extension(&BY_HAND) || file.path == ".ci/run")
    {
        // Allow tabs in the blocks of documents, which show the output of programs unchanged.
        let verbatim: Vec<usize> =
            if file.has_extension(&["md"]) { fenced(&file.text) } else { Vec::new() };
        for (line, text) in file.text.split('\n').enumerate() {
            if text.ends_with([' ', '\r']) {
                found.push(at(
                    file,
                    line + 1,
                    "the line ends with white space: remove it".to_owned(),
                ));
            }
            if text.contains('\t') && !verbatim.contains(&(line + 1)) {
                found.push(at(
                    file,
                    line + 1,
                    "the line has a tab: use spaces, or `\\t` in a literal".to_owned(),
                ));
            }
        }
        let ends_with_one_break = file.text.ends_with('\n') && !file.text.ends_with("\n\n");
        if !file.text.is_empty() && !ends_with_one_break {
            found.push(at(
                file,
                file.text.lines().count(),
                "end the file with one line break".to_owned(),
            ));
        }
    }
    found
}

/// rustfmt wraps code at 100 columns, but neither comments nor documents.
pub(crate) fn prose_has_at_most_100_columns(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["rs", "wit", "md"])) {
        let is_document = file.has_extension(&["md"]);
        let mut fenced = false;
        for (line, text) in file.text.lines().enumerate() {
            let prose = if is_document {
                text.trim_start()
            } else {
                match text.trim_start().strip_prefix("//") {
                    Some(comment) => comment.trim_start_matches(['/', '!']).trim_start(),
                    None => continue,
                }
            };
            if prose.starts_with("```") {
                fenced = !fenced;
            }
            // Code, table rows and long words, such as addresses, can't be wrapped.
            let unwrappable = fenced || prose.starts_with('|') || !prose.contains(' ');
            if !unwrappable && text.chars().count() > 100 {
                found.push(at(
                    file,
                    line + 1,
                    "the line is longer than 100 columns: wrap it".to_owned(),
                ));
            }
        }
    }
    found
}

pub(crate) fn no_file_has_a_path_of_one_machine(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        for (line, text) in file.text.lines().enumerate() {
            if let Some(path) = machine_path(text, tree.checkout.as_deref()) {
                found.push(at(file, line + 1, format!("`{path}` is a path of one machine: use a relative path, or /home/u in examples")));
            }
        }
    }
    found
}

pub(crate) fn links_have_targets(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, target) in links(&file.text) {
            if let Some(why) = link_error(tree, file, &target) {
                found.push(at(file, line, format!("the link `{target}` is broken: {why}")));
            }
        }
    }
    found
}

pub(crate) fn documents_name_existing_commands(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree
        .files
        .iter()
        .filter(|file| file.has_extension(&["md", "sh", "yml"]) || file.path == ".ci/run")
    {
        for (line, text) in file.text.lines().enumerate() {
            for (start, command) in text.match_indices("cargo xtask ") {
                let name: String = text[start + command.len()..]
                    .chars()
                    .take_while(char::is_ascii_lowercase)
                    .collect();
                if !name.is_empty() && !crate::COMMANDS.iter().any(|command| command.name == name) {
                    let known = crate::COMMANDS.map(|command| command.name).join(", ");
                    found.push(at(
                        file,
                        line + 1,
                        format!("there is no `cargo xtask {name}`; the commands are {known}"),
                    ));
                }
            }
        }
    }
    found
}

/// The page that lists the documents.
const INDEX: &str = "docs/README.md";

pub(crate) fn every_document_is_in_the_index(tree: &Tree) -> Vec<Violation> {
    let index = tree.files.iter().filter(|file| file.path == INDEX);
    let listed: Vec<String> = index
        .flat_map(|file| links(&file.text))
        .filter_map(|(_, target)| resolve(INDEX, &target))
        .collect();
    let documents = tree.files.iter().filter(|file| {
        file.path.starts_with("docs/") && file.has_extension(&["md"]) && file.path != INDEX
    });
    documents
        .filter(|file| !listed.contains(&file.path))
        .map(|file| at(file, 1, format!("{INDEX} has no link to this page: add one")))
        .collect()
}

/// The home folder in a container. The literal has two parts because tidy checks this file too.
const ROOT: &str = concat!("/ro", "ot");

/// The first path in the line that belongs to one machine or person. `/home/u` is allowed in
/// examples.
fn machine_path(text: &str, checkout: Option<&str>) -> Option<String> {
    if let Some(path) = checkout
        && text
            .match_indices(path)
            .any(|(start, _)| begins(&text[..start]) && !continues(&text[start + path.len()..]))
    {
        return Some(path.to_owned());
    }
    let root = text
        .match_indices(ROOT)
        .find(|(start, _)| begins(&text[..*start]) && text[start + ROOT.len()..].starts_with('/'));
    if root.is_some() {
        return Some(ROOT.to_owned());
    }
    for homes in ["/home/", "/Users/"] {
        for (start, _) in text.match_indices(homes) {
            let name: String = text[start + homes.len()..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || "._-".contains(*c))
                .collect();
            if begins(&text[..start]) && !name.is_empty() && name != "u" {
                return Some(format!("{homes}{name}"));
            }
        }
    }
    None
}

/// Whether a path could begin after this text.
fn begins(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-~*}".contains(c))
}

/// Whether this text goes on with the name before it.
fn continues(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || "._-".contains(c))
}

/// The targets of `[…](target)` outside code, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        // The text between backticks is code: every second piece.
        for piece in text.split('`').step_by(2) {
            for (start, _) in piece.match_indices("](") {
                let target = &piece[start + 2..];
                if let Some(end) = target.find(')') {
                    found.push((
                        line,
                        target[..end].split(' ').next().unwrap_or_default().to_owned(),
                    ));
                }
            }
        }
    }
    found
}

/// The lines of fenced blocks, from 1.
fn fenced(text: &str) -> Vec<usize> {
    let prose: Vec<usize> = prose(text).map(|(line, _)| line).collect();
    (1..=text.lines().count()).filter(|line| !prose.contains(line)).collect()
}

/// The lines outside fenced blocks, from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(line, text)| {
        let fence = text.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((line + 1, text))
    })
}

/// Why a link is broken. `None` if it isn't. Links to other sites are not checked.
fn link_error(tree: &Tree, from: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() { from.path.clone() } else { resolve(&from.path, path)? };
    if !tree.has(&path) {
        return Some(format!("{path} doesn't exist"));
    }
    let anchor = anchor?;
    let document =
        tree.files.iter().find(|file| file.path == path && file.has_extension(&["md"]))?;
    let known =
        prose(&document.text).any(|(_, text)| text.starts_with('#') && slug(text) == anchor);
    (!known).then(|| format!("{path} has no heading #{anchor}"))
}

/// Resolves a path relative to the folder of a file. `None` if the path leaves the repository.
fn resolve(file: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The subcommands of `toolhold`, by the page that is made of `--help`.
pub(crate) fn subcommands(tree: &Tree) -> usize {
    let lines = lines_of(tree, "docs/cli.md");
    lines
        .filter_map(|line| line.strip_prefix("## `toolhold ")?.strip_suffix('`'))
        .filter(|name| !name.contains(' '))
        .count()
}

/// The keys of the configuration, by the page that is made of their schema. A key whose name the
/// operator chooses isn't one.
pub(crate) fn keys(tree: &Tree) -> usize {
    lines_of(tree, "docs/configuration.md")
        .skip_while(|line| *line != "## Every key")
        .filter(|line| line.starts_with("* **`") && !line.starts_with("* **`NAME`"))
        .count()
}

fn lines_of<'a>(tree: &'a Tree, path: &'a str) -> impl Iterator<Item = &'a str> {
    tree.files.iter().filter(move |file| file.path == path).flat_map(|file| file.text.lines())
}

#[cfg(test)]
mod tests {
    use super::{ROOT, links, machine_path, resolve, slug};

    #[test]
    fn machine_paths_are_distinguished_from_examples() {
        let checkout = Some("/srv/build/toolhold");
        let cases = [
            ("see /srv/build/toolhold/x", Some("/srv/build/toolhold")),
            ("see /srv/build/toolhold2", None),
            (concat!("\"/home", "/jane/x\""), Some(concat!("/home", "/jane"))),
            ("/home/u/x, ~/home/x and /home/", None),
            (concat!("(/Users", "/jane)"), Some(concat!("/Users", "/jane"))),
            (concat!("in /ro", "ot/.cargo"), Some(ROOT)),
            ("https://example.com/root/page and src/root/", None),
            ("https://example.com/home/page", None),
        ];
        for (text, expected) in cases {
            assert_eq!(machine_path(text, checkout).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn links_in_code_are_ignored() {
        let text = "[a](b.md) and `[c](d)`\n```\n[e](f)\n```\n![g](h.svg \"title\") [i](#j)\n";
        let found: Vec<_> = links(text);
        assert_eq!(found, [(1, "b.md".to_owned()), (5, "h.svg".to_owned()), (5, "#j".to_owned())]);
    }

    #[test]
    fn relative_paths_are_resolved() {
        assert_eq!(resolve("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs/a.md", "./b/c.md").as_deref(), Some("docs/b/c.md"));
        assert_eq!(resolve("a.md", "../b.md"), None);
    }

    #[test]
    fn headings_become_anchors() {
        assert_eq!(slug("## The `path` layer, twice"), "the-path-layer-twice");
    }
}
