//! A diagnostic in one form for all checkers; drops repeated ones, and bounds their texts.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

/// Most findings of one checker that are kept. The others are counted.
const MAX_KEPT: usize = 5_000;

/// Most bytes of a message, of a suggestion, and of a path or code.
const MAX_MESSAGE: usize = 2_000;
const MAX_SUGGESTION: usize = 500;
const MAX_NAME: usize = 500;

/// A diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub(crate) struct Finding {
    /// The file: relative to the working directory, or absolute if it lies outside. It is missing
    /// if the diagnostic belongs to no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    /// How serious it is.
    pub(crate) severity: Severity,
    /// The checker's name for it, such as `E0308` or `no-undef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// What is wrong.
    pub(crate) message: String,
    /// What the checker would change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggestion: Option<String>,
    /// The checker that found it.
    pub(crate) checker: &'static str,
}

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A diagnostic as its checker writes it.
#[derive(Clone, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) path: Option<&'a str>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) severity: Severity,
    pub(crate) code: Option<&'a str>,
    pub(crate) message: &'a str,
    pub(crate) suggestion: Option<String>,
}

/// Collects the findings of one checker.
#[derive(Debug)]
pub(crate) struct Collector {
    /// The checker's name.
    pub(crate) checker: &'static str,
    /// The folder in which it runs.
    folder: PathBuf,
    /// The folder that paths are shown relative to.
    shown_from: PathBuf,
    seen: HashSet<Finding>,
    pub(crate) findings: Vec<Finding>,
    /// How many were left out.
    pub(crate) left_out: usize,
    /// How many were written, with repetitions.
    pub(crate) written: usize,
}

impl Collector {
    pub(crate) fn new(checker: &'static str, folder: &Path, shown_from: &Path) -> Self {
        Self {
            checker,
            folder: folder.to_owned(),
            shown_from: shown_from.to_owned(),
            seen: HashSet::new(),
            findings: Vec::new(),
            left_out: 0,
            written: 0,
        }
    }

    /// Adds a diagnostic, unless it is known.
    pub(crate) fn add(&mut self, written: Written<'_>) {
        self.written += 1;
        if self.findings.len() >= MAX_KEPT {
            self.left_out += 1;
            return;
        }
        let finding = Finding {
            path: written.path.map(|path| one_line(&self.shown(Path::new(path)), MAX_NAME)),
            line: written.line.filter(|line| *line > 0),
            column: written.column.filter(|column| *column > 0),
            severity: written.severity,
            code: written.code.and_then(|code| short(code, MAX_NAME)),
            message: one_line(written.message, MAX_MESSAGE),
            suggestion: written.suggestion.and_then(|text| short(&text, MAX_SUGGESTION)),
            checker: self.checker,
        };
        if self.seen.insert(finding.clone()) {
            self.findings.push(finding);
        }
    }

    fn shown(&self, path: &Path) -> String {
        let path = plain(&self.folder.join(path));
        path.strip_prefix(&self.shown_from).unwrap_or(&path).to_string_lossy().into_owned()
    }
}

/// A text as one line. `None`: the line is empty.
fn short(text: &str, most: usize) -> Option<String> {
    Some(one_line(text, most)).filter(|text| !text.is_empty())
}

/// A path without `.` and `..`, by its spelling.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// A text on one line, so that a checker's message can't add lines to the answer: at most this many
/// bytes.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if line.len() > most {
        line.truncate(line.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &str) -> Written<'_> {
        Written {
            path: Some(path),
            line: Some(1),
            column: Some(0),
            severity: Severity::Error,
            code: Some(""),
            message: "no\n\u{1b}[31mway\r\n out",
            suggestion: None,
        }
    }

    #[test]
    fn path_is_relative_inside_and_absolute_outside() {
        let mut collector = Collector::new("tsc", Path::new("/w/sub"), Path::new("/w"));
        for path in ["a.ts", "./x/../b.ts", "../c.ts", "/w/d.ts", "/etc/e.ts", "../../etc/f.ts"] {
            collector.add(written(path));
        }
        let paths = collector.findings.iter().filter_map(|finding| finding.path.as_deref());
        let expected = ["sub/a.ts", "sub/b.ts", "c.ts", "d.ts", "/etc/e.ts", "/etc/f.ts"];
        assert_eq!(paths.collect::<Vec<_>>(), expected);
        let first = &collector.findings[0];
        assert_eq!((first.column, &first.code, &*first.message), (None, &None, "no [31mway out"));
    }

    #[test]
    fn repeated_finding_is_kept_once_and_most_are_counted() {
        let mut collector = Collector::new("tsc", Path::new("/w"), Path::new("/w"));
        for _ in 0..3 {
            collector.add(written("a.ts"));
        }
        assert_eq!((collector.findings.len(), collector.left_out), (1, 0));
        for number in 0..=MAX_KEPT {
            collector.add(written(&number.to_string()));
        }
        assert_eq!((collector.findings.len(), collector.left_out), (MAX_KEPT, 2));
    }

    #[test]
    fn long_line_is_cut_between_characters() {
        let line = one_line(&"é".repeat(100), 20);
        assert!(line.len() <= 20 && line.ends_with("é…"), "{line}");
        assert_eq!(one_line("a  b", 20), "a b");
        assert!(one_line("some words and more of them", 12).len() <= 12);
    }
}
