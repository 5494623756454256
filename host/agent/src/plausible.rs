//! Paths that a model may have made up. This only warns: a model is told to look, and the person
//! sees which paths nobody has seen yet.

use std::collections::BTreeSet;

use berth_core::text::{cut, neutral_line};
use berth_core::{Access, Definition};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::Value;

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
pub struct Warning {
    /// The path, bounded, on one line.
    pub path: String,
    /// Why.
    pub reason: Reason,
}

/// Why a path looks made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No result names it, and it doesn't exist.
    Unseen,
    /// It is a path of examples, such as `/path/to/file`.
    Placeholder,
}

impl Warning {
    /// The warning for a model: what is wrong, and what to do.
    pub fn text(&self) -> String {
        match self.reason {
            Reason::Unseen => format!(
                "`{}` stands in no result, and doesn't exist. Look for the path before you rely \
                 on it.",
                self.path
            ),
            Reason::Placeholder => {
                format!("`{}` is a path of examples. Use a path that a result names.", self.path)
            }
        }
    }
}

/// Looks for made-up paths in a model's text. `is_known` says whether a result names a path, or it
/// exists; it is asked once for each path.
pub fn check_text(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<Warning> {
    check(paths(text), is_known)
}

/// Looks for made-up paths in the arguments of a call: those that the tool reads. A path that a
/// call creates can't be known.
pub fn check_arguments(
    definition: &Definition,
    arguments: &Value,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Warning> {
    let read = definition
        .subjects
        .iter()
        .filter(|subject| subject.kind.is_path() && subject.access == Access::Read);
    let values = read.filter_map(|subject| arguments.pointer(&subject.pointer));
    let texts = values.flat_map(|value| match value {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    });
    let texts = texts.filter_map(Value::as_str).filter(|text| !text.is_empty());
    check(texts, is_known)
}

fn check<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Warning> {
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
        Some(Warning { path: neutral_line(cut(path, MAX_SHOWN)), reason })
    });
    warnings.take(MAX_WARNINGS).collect()
}

fn is_placeholder(path: &str) -> bool {
    PLACEHOLDERS.iter().any(|part| path.contains(part))
}

/// The words of a text that are paths: they have a slash, and a form that prose doesn't have.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let separates = |c: char| c.is_whitespace() || "\"'`()[]<>|,;=".contains(c);
    text.split(separates).filter_map(path)
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
    let odd = |c: char| "*?{}$\\@#%^&".contains(c);
    if path.contains("//") || path.contains(odd) || path.starts_with('-') || path.starts_with('~') {
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

/// The models that reason before they answer, by the names that the configuration has: globs, in
/// any case. A `*` also matches slashes.
#[derive(Clone, Debug, Default)]
pub struct ReasoningModels(GlobSet);

impl ReasoningModels {
    /// The models that match one of the globs.
    ///
    /// # Errors
    ///
    /// The text says which glob isn't valid, and why.
    pub fn new<'a>(globs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let read = GlobBuilder::new(glob).case_insensitive(true).build();
            set.add(read.map_err(|error| format!("`{glob}` is no valid glob: {}", error.kind()))?);
        }
        set.build().map(Self).map_err(|error| error.to_string())
    }

    /// Whether the model with this name reasons.
    pub fn has(&self, model: &str) -> bool {
        self.0.is_match(model)
    }
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
        assert!(warnings[0].text().starts_with("`src/mian.rs` stands in no result"));
    }

    #[test]
    fn placeholders_are_named_even_if_they_exist() {
        let warnings = check_text("open /path/to/file.txt", |_| true);
        assert_eq!(warnings[0].reason, Reason::Placeholder);
        assert!(warnings[0].text().contains("path of examples"));
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

    #[test]
    fn reasoning_models_are_those_of_the_configuration() {
        let models = ReasoningModels::new(["o[0-9]*", "*/deepseek-r1*", "*thinking*"]).unwrap();
        for model in ["o3-mini", "O1", "fireworks/DeepSeek-R1-0528", "qwen3-thinking-2507"] {
            assert!(models.has(model), "{model}");
        }
        for model in ["gpt-4o", "deepseek-r1", "claude", ""] {
            assert!(!models.has(model), "{model}");
        }
        assert!(!ReasoningModels::default().has("o3"));
        let error = ReasoningModels::new(["[a"]).unwrap_err();
        assert!(error.starts_with("`[a` is no valid glob: "), "{error}");
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
