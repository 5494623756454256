//! Points out paths that a model may have made up. This only warns: the model is told to look, and
//! the person sees which paths nobody has seen yet.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Access, Definition};

/// Most paths that one text or call is checked for.
const MAX_PATHS: usize = 64;

/// Most warnings that one text or call gives.
const MAX_WARNINGS: usize = 8;

/// Bytes of the longest path that is checked.
const MAX_PATH: usize = 4096;

/// Bytes of a path in a warning.
const MAX_SHOWN: usize = 200;

/// Parts of paths that stand for another path in examples.
const PLACEHOLDERS: [&str; 7] =
    ["/path/to/", "/your/", "/your-", "/your_", "/example/path", "/username/", "/yourname/"];

/// A path that looks made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathWarning {
    /// The path, bounded, on one line.
    pub(crate) path: String,
    /// The reason.
    pub(crate) reason: Reason,
}

/// The reason why a path looks made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The path is in no text that the model has read, and doesn't exist.
    Unseen,
    /// The path is typical of examples, such as `/path/to/file`.
    Placeholder,
}

impl PathWarning {
    /// The warning for a model: what is wrong, and what to do.
    pub(crate) fn for_model(&self) -> String {
        let path = &self.path;
        match self.reason {
            Reason::Unseen => format!(
                "[`{path}` doesn't exist, and nothing that you have read names it. Look for the path before you rely on it.]"
            ),
            Reason::Placeholder => {
                format!("[`{path}` is an example path. Use a path from a result.]")
            }
        }
    }

    /// The same for the person.
    pub(crate) fn for_person(&self) -> String {
        let path = &self.path;
        match self.reason {
            Reason::Unseen => format!(
                "the model may have made up `{path}`: the path doesn't exist, and nothing that the model has read names it"
            ),
            Reason::Placeholder => {
                format!("the model names `{path}`, which is an example path")
            }
        }
    }
}

/// The paths that a text names, each once.
pub(crate) fn paths_in(text: &str) -> BTreeSet<&str> {
    paths(text).filter(|path| path.len() <= MAX_PATH).take(MAX_PATHS).collect()
}

/// Looks for made-up paths in a model's text. `is_known` says whether the model has read a path, or
/// it exists; it is asked once for each path.
pub(crate) fn check_text(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<PathWarning> {
    check(paths(text), is_known)
}

/// Looks for made-up paths in the arguments of a call: those that the tool reads. A path that a
/// call creates can't be known.
pub(crate) fn check_arguments(
    definition: &Definition,
    arguments: &Value,
    is_known: impl Fn(&str) -> bool,
) -> Vec<PathWarning> {
    let read = definition
        .subjects
        .iter()
        .filter(|subject| subject.kind.is_path() && subject.access == Access::Read);
    let values = read.filter_map(|subject| arguments.pointer(&subject.pointer));
    let texts = values
        .flat_map(|value| match value {
            Value::Array(items) => items.iter().collect(),
            other => vec![other],
        })
        .filter_map(Value::as_str)
        .filter(|text| !text.is_empty());
    check(texts, is_known)
}

fn check<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    is_known: impl Fn(&str) -> bool,
) -> Vec<PathWarning> {
    let mut checked = BTreeSet::new();
    let candidates = paths.into_iter().filter(|path| path.len() <= MAX_PATH);
    let new = candidates.filter(move |path| checked.insert(*path)).take(MAX_PATHS);
    let warnings = new.filter_map(|path| {
        let reason = if is_placeholder(path) {
            Reason::Placeholder
        } else if !is_known(path) {
            Reason::Unseen
        } else {
            return None;
        };
        Some(PathWarning { path: neutral_line(cut(path, MAX_SHOWN)), reason })
    });
    warnings.take(MAX_WARNINGS).collect()
}

fn is_placeholder(path: &str) -> bool {
    PLACEHOLDERS.iter().any(|part| path.contains(part))
}

/// The words of a text that are paths: they have a slash, and a form that prose doesn't have.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || "\"'`()[]<>|,;=".contains(c)).filter_map(path)
}

/// The path in a word, without a full stop or a line number behind it.
fn path(word: &str) -> Option<&str> {
    let word = word.trim_end_matches(['.', ':', '!', '?']);
    let mut path = word;
    while let Some((before, number)) = path.rsplit_once(':')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        path = before;
    }
    let (folders, name) = path.rsplit_once('/')?;
    if path.contains("//") || path.contains(is_odd) || path.starts_with(['-', '~']) {
        return None;
    }
    let has_extension = name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty() && !extension.is_empty() && extension.len() <= 8
    });
    let begins = ["/", "./", "../"].iter().any(|start| path.starts_with(start));
    let rooted = begins && !name.is_empty() && (folders.len() > 1 || !path.starts_with('/'));
    // "and/or", "1/2" and "TCP/IP" are words.
    (has_extension || rooted).then_some(path)
}

fn is_odd(c: char) -> bool {
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
