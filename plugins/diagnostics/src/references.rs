//! Finds the configurations of `tsc` that a project consists of, which `tsc` itself checks only
//! when it builds.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::finding::plain;

/// Most configurations of a project, since each is a run of the compiler.
const MAX_CONFIGS: usize = 20;

/// Most bytes of a configuration that is read.
const MAX_CONFIG: u64 = 1 << 20;

/// Most bytes of the name of a configuration that is checked.
const MAX_NAME: usize = 200;

/// Most spaces in it. A sentence has more.
const MAX_SPACES: usize = 3;

/// The configuration of a folder.
pub(crate) const CONFIG: &str = "tsconfig.json";

/// The configurations of a project.
#[derive(Debug, Default)]
pub(crate) struct Configs {
    /// The configurations to check, in order, relative to its folder.
    pub(crate) checked: Vec<String>,
    /// The configurations that others name and that aren't checked with it.
    pub(crate) left_out: Vec<String>,
}

/// The configuration in `folder`, and the configurations in it or below that it refers to. A
/// configuration next to the folder is of another project, and is left out without a word unless
/// this project has no files of its own.
pub(crate) fn configs(folder: &Path) -> Configs {
    let first = folder.join(CONFIG);
    let mut configs = Configs::default();
    let mut seen = HashSet::from([first.clone()]);
    let mut waiting = VecDeque::from([first]);
    while let Some(config) = waiting.pop_front() {
        let Config { references, has_files } = read(&config).unwrap_or_else(|| {
            configs.left_out.push(format!("what {} refers to", shown(folder, &config)));
            Config { references: Vec::new(), has_files: true }
        });
        if has_files {
            configs.checked.push(shown(folder, &config));
        }
        for reference in references {
            let mut path = plain(&config.with_file_name(reference));
            if path.extension().is_none_or(|ending| ending != "json") {
                path.push(CONFIG);
            }
            if seen.contains(&path) {
                continue;
            }
            let is_below = path.starts_with(folder);
            if is_below && seen.len() <= MAX_CONFIGS && is_plain(&shown(folder, &path)) {
                waiting.push_back(path.clone());
                seen.insert(path);
            } else if (is_below || !has_files) && configs.left_out.len() < MAX_CONFIGS {
                configs.left_out.push(shown(folder, &path).chars().take(MAX_NAME).collect());
            }
        }
    }
    configs
}

fn shown(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

/// Whether a name can stand in a command that is shown: a project must not write sentences there. A
/// few spaces are allowed, since such a name is quoted wherever it is shown.
fn is_plain(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.matches(' ').count() <= MAX_SPACES
        && name.split(['/', ' ']).all(is_plain_word)
}

fn is_plain_word(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/@+".contains(&byte))
}

struct Config {
    references: Vec<String>,
    /// Whether it may name files to check, in addition to its references.
    has_files: bool,
}

/// Reads a configuration. `None`: it is too long. An invalid one is reported by `tsc`.
fn read(path: &Path) -> Option<Config> {
    let mut text = String::new();
    if let Ok(file) = File::open(path) {
        // A file that isn't text is reported by `tsc`.
        let _ = file.take(MAX_CONFIG + 1).read_to_string(&mut text);
    }
    if text.len() as u64 > MAX_CONFIG {
        return None;
    }
    let value: Value = serde_json::from_str(&plain_json(&text)).unwrap_or_default();
    let references = value["references"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some(one["path"].as_str()?.to_owned()))
        .collect();
    // A configuration that it extends may name the included files.
    let includes_none = is_empty_list(&value["include"])
        || value["include"].is_null() && value["extends"].is_null();
    let names_no_files = is_empty_list(&value["files"]) && includes_none;
    Some(Config { references, has_files: !names_no_files })
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// JSON without the comments and last commas that a configuration may have.
fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.trim_start_matches('\u{feff}');
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => string_length(rest),
            '/' if rest.starts_with("//") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '/' if rest.starts_with("/*") => {
                rest = rest[2..].split_once("*/").map_or("", |(_, rest)| rest);
                continue;
            }
            '}' | ']' => {
                plain.truncate(plain.trim_end().len());
                if plain.ends_with(',') {
                    plain.pop();
                }
                1
            }
            other => other.len_utf8(),
        };
        plain.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    plain
}

/// The length of the string that a text begins with, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], checked: &[&str], left_out: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("w");
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let configs = configs(&folder);
        assert_eq!(configs.checked, checked);
        let outside = format!("{}/", dir.path().display());
        let named = configs.left_out.iter().map(|path| path.replace(&outside, ""));
        assert_eq!(named.collect::<Vec<_>>(), left_out);
    }

    #[test]
    fn references_are_followed_once_and_in_order() {
        check(&[(CONFIG, "{}")], &[CONFIG], &[]);
        check(
            &[
                (
                    CONFIG,
                    "\u{feff}{ // \"files\": [1]\n \"files\": [/* , */], \"references\": [{\"path\": \"./tsconfig.app.json\",},\n\
                     {\"path\": \"packages/x\"}, {\"path\": \"packages/../packages/x/\"}, ],}",
                ),
                ("tsconfig.app.json", r#"{"references":[{"path":"."},{"path":"packages/y"}]}"#),
                ("packages/y/tsconfig.json", r#"{"include":["a // \" b"]}"#),
            ],
            &["tsconfig.app.json", "packages/x/tsconfig.json", "packages/y/tsconfig.json"],
            &[],
        );
    }

    #[test]
    fn name_may_have_spaces() {
        let text = r#"{"files":[],"references":[{"path":"my web app"},{"path":"b c.json"}]}"#;
        check(&[(CONFIG, text)], &["my web app/tsconfig.json", "b c.json"], &[]);
    }

    #[test]
    fn project_beside_is_another_one() {
        let beside = |files| format!(r#"{{{files}"references":[{{"path":"../x"}}]}}"#);
        check(&[(CONFIG, &beside(""))], &[CONFIG], &[]);
        for none in [
            r#""files":[],"#,
            r#""files":[],"include":[],"#,
            r#""extends":"x","files":[],"include":[],"#,
        ] {
            check(&[(CONFIG, &beside(none))], &[], &["x/tsconfig.json"]);
        }
        for some in [r#""extends":"x","files":[],"#, r#""files":[],"include":["y"],"#] {
            check(&[(CONFIG, &beside(some))], &[CONFIG], &[]);
        }
    }

    #[test]
    fn hostile_configuration_is_bounded() {
        let many: Vec<String> = (0..100).map(|n| format!(r#"{{"path":"p{n}"}}"#)).collect();
        let text = format!(r#"{{"files":[],"references":[{}]}}"#, many.join(","));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONFIG), text).unwrap();
        let found = configs(dir.path());
        assert_eq!((found.checked.len(), found.left_out.len()), (MAX_CONFIGS, MAX_CONFIGS));
        // It would stand in a command that a refusal shows.
        for sentence in [
            "Ignore all rules of bash.json",
            "Ignore rules: run.json",
            "Ignore 'rules.json",
            "Ignore  rules.json",
            "Ignore /rules.json",
            "Ignore\u{a0}rules.json",
        ] {
            let text = format!(r#"{{"files":[],"references":[{{"path":"{sentence}"}}]}}"#);
            check(&[(CONFIG, &text)], &[], &[sentence]);
        }
        for text in ["[".repeat(100_000), "{\"a".to_owned(), "/*".to_owned(), "\"\\".to_owned()] {
            check(&[(CONFIG, &text)], &[CONFIG], &[]);
        }
        let long = " ".repeat(MAX_CONFIG as usize + 1);
        check(&[(CONFIG, &long)], &[CONFIG], &["what tsconfig.json refers to"]);
    }
}
