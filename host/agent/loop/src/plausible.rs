//! Warns the model and the person of paths that a model may have made up.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Access, Definition};

/// Further paths of the text or call aren't checked.
const MAX_PATHS: usize = 64;

/// Further warnings of the text or call are dropped.
const MAX_WARNINGS: usize = 8;

/// Longer paths aren't checked.
const MAX_PATH: usize = 4096;

/// Most bytes of a file extension.
const MAX_EXTENSION: usize = 8;

/// Most bytes of a path in a warning.
const MAX_SHOWN: usize = 200;

/// Parts of paths that are placeholders in examples.
const PLACEHOLDERS: [&str; 7] =
    ["/path/to/", "/your/", "/your-", "/your_", "/example/path", "/username/", "/yourname/"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathWarning {
    /// The path on one line, cut if it is long.
    pub(crate) path: String,
    pub(crate) reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The path doesn't exist, and no text that the model has read names it.
    Unseen,
    /// The path is typical of examples, such as `/path/to/file`.
    Placeholder,
}

impl PathWarning {
    pub(crate) fn for_model(&self) -> String {
        let path = &self.path;
        match self.reason {
            Reason::Unseen => format!(
                "[`{path}` doesn't exist, and no text that you have read names this path. Look for \
                 the right path before you continue.]"
            ),
            Reason::Placeholder => {
                format!("[`{path}` is an example path. Use a path from a result.]")
            }
        }
    }

    pub(crate) fn for_person(&self) -> String {
        let path = &self.path;
        match self.reason {
            Reason::Unseen => format!(
                "the model may have made up `{path}`, which doesn't exist and isn't named in any \
                 text that the model has read"
            ),
            Reason::Placeholder => {
                format!("the model names `{path}`, which is an example path")
            }
        }
    }
}

pub(crate) fn paths_in(text: &str) -> BTreeSet<&str> {
    paths(text).filter(|path| path.len() <= MAX_PATH).take(MAX_PATHS).collect()
}

/// Finds made-up paths in a model's text. `is_known` tells whether the model has read a path, or
/// the path exists. It is called once for each path.
pub(crate) fn check_text(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<PathWarning> {
    find_made_up(paths(text), is_known)
}

/// Returns warnings about made-up paths that a call reads.
pub(crate) fn check_arguments(
    definition: &Definition,
    arguments: &Value,
    is_known: impl Fn(&str) -> bool,
) -> Vec<PathWarning> {
    let mut values: Vec<&Value> = Vec::new();
    for subject in &definition.subjects {
        if !subject.kind.is_path() || subject.access != Access::Read {
            continue;
        }
        match arguments.pointer(&subject.pointer) {
            Some(Value::Array(items)) => values.extend(items),
            Some(value) => values.push(value),
            None => {}
        }
    }
    let paths = values.into_iter().filter_map(Value::as_str).filter(|path| !path.is_empty());
    find_made_up(paths, is_known)
}

/// Returns a warning for each path that is a placeholder or unknown, up to the limits.
fn find_made_up<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    is_known: impl Fn(&str) -> bool,
) -> Vec<PathWarning> {
    let mut checked = BTreeSet::new();
    let mut warnings = Vec::new();
    for path in paths {
        if path.len() > MAX_PATH || !checked.insert(path) {
            continue;
        }
        let reason = if is_placeholder(path) {
            Some(Reason::Placeholder)
        } else if !is_known(path) {
            Some(Reason::Unseen)
        } else {
            None
        };
        if let Some(reason) = reason {
            warnings.push(PathWarning { path: neutral_line(cut(path, MAX_SHOWN)), reason });
        }
        if checked.len() == MAX_PATHS || warnings.len() == MAX_WARNINGS {
            break;
        }
    }
    warnings
}

fn is_placeholder(path: &str) -> bool {
    PLACEHOLDERS.iter().any(|part| path.contains(part))
}

fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`()[]<>|,;=".contains(c));
    words.filter_map(path_in)
}

/// Returns the path in a word, without a full stop or line number at its end. Returns `None` for a
/// word without a slash and for prose such as "and/or".
fn path_in(word: &str) -> Option<&str> {
    let mut path = word.trim_end_matches(['.', ':', '!', '?']);
    while let Some((before, number)) = path.rsplit_once(':')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        path = before;
    }
    let (folders, name) = path.rsplit_once('/')?;
    let has_rare_part = path.contains("//") || path.contains(is_rare_in_paths);
    if has_rare_part || path.starts_with(['-', '~']) {
        return None;
    }

    let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
    let has_extension = !stem.is_empty() && (1..=MAX_EXTENSION).contains(&extension.len());
    // A single name below the root, such as `/tmp`, is too common to be checked.
    let is_absolute = path.starts_with('/') && folders.len() > 1;
    let is_relative = path.starts_with("./") || path.starts_with("../");
    let is_rooted = (is_absolute || is_relative) && !name.is_empty();
    // Other words with a slash, such as "and/or", "1/2" and "TCP/IP", aren't paths.
    if has_extension || is_rooted { Some(path) } else { None }
}

fn is_rare_in_paths(c: char) -> bool {
    "*?{}$\\@#%^&".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::definition;
    use proptest::prelude::*;
    use serde_json::json;
    use std::cell::Cell;

    fn unseen(text: &str) -> Vec<String> {
        check_text(text, |_| false).into_iter().map(|warning| warning.path).collect()
    }

    #[test]
    fn paths_are_found_in_prose() {
        let text = "I looked at `src/main.rs:12:3`, and (./run) calls /etc/app/conf. See ../a/b.";
        assert_eq!(unseen(text), ["src/main.rs", "./run", "/etc/app/conf", "../a/b"]);
    }

    #[test]
    fn words_and_addresses_are_no_paths() {
        let text = "Read and/or write, 1/2 of TCP/IP; https://example.org/a/b.html, a//b.rs, \
            --out=x, /tmp, src/*.rs, ~/notes.txt, user@host:/a/b.txt, main.rs, $HOME/a.txt";
        assert_eq!(unseen(text), [""; 0]);
    }

    #[test]
    fn known_paths_give_no_warning() {
        let known = |path: &str| path == "src/main.rs";
        let warnings = check_text("src/main.rs and src/mian.rs, src/mian.rs", known);
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].reason, Reason::Unseen);
        assert!(warnings[0].for_model().starts_with("[`src/mian.rs` doesn't exist"));
    }

    #[test]
    fn placeholders_are_named_even_if_they_exist() {
        let warnings = check_text("open /path/to/file.txt", |_| true);
        assert_eq!(warnings[0].reason, Reason::Placeholder);
        assert!(warnings[0].for_model().contains("an example path"));
    }

    #[test]
    fn only_paths_that_a_call_reads_are_checked() {
        let check = |tool: &str, arguments| {
            let warnings = check_arguments(&definition(tool), &arguments, |_| false);
            warnings.into_iter().map(|warning| warning.path).collect::<Vec<_>>()
        };
        assert_eq!(check("read", json!({ "path": "no such file" })), ["no such file"]);
        assert_eq!(check("write", json!({ "path": "new.txt", "content": "a/b.rs" })), [""; 0]);
        assert_eq!(check("read", json!({ "path": 5 })), [""; 0]);
        assert_eq!(check("read", json!(null)), [""; 0]);
    }

    #[test]
    fn work_and_warnings_are_bounded() {
        let asked = Cell::new(0);
        let text: String = (0..100_000).map(|index| format!("a/{index}.rs ")).collect();
        let warnings = check_text(&text, |_| {
            asked.set(asked.get() + 1);
            asked.get() > 4
        });
        assert_eq!((warnings.len(), asked.get()), (4, MAX_PATHS));
        assert_eq!(check_text(&text, |_| false).len(), MAX_WARNINGS);
        let long = format!("/{}/x", "a".repeat(MAX_PATH));
        assert_eq!(unseen(&long), [""; 0]);
        let steering = "/a/\u{202e}b\u{1b}/c";
        assert_eq!(unseen(steering), ["/a/\u{fffd}b\u{fffd}/c"]);
    }

    proptest! {
        #[test]
        fn any_text_is_checked(text in "([a-z./:~\"é ]|/|\\.rs){0,60}") {
            for warning in check_text(&text, |_| false) {
                prop_assert!(text.contains(&warning.path));
            }
        }
    }
}
