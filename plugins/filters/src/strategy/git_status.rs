//! `git_status`: shortens the output of `git status`.

use std::fmt::Write as _;

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run};
use crate::text::{is_blank, push_line, push_mark};

/// The greatest number of untracked paths that are named. A whole build may be untracked.
const MAX_UNTRACKED: usize = 100;

/// Parameters of `git_status`. It has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitStatus {}

impl GitStatus {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(Status))
    }
}

struct Status;

/// The sections of the long form, and their short names.
const SECTIONS: [(&str, &str); 5] = [
    ("Changes to be committed:", "Staged:"),
    ("Changes not staged for commit:", "Not staged:"),
    ("Untracked files:", "Untracked:"),
    ("Unmerged paths:", "Unmerged:"),
    ("Ignored files:", "Ignored:"),
];

impl Run for Status {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let is_long = part.lines.iter().any(|line| SECTIONS.iter().any(|(long, _)| line == long));
        if !is_long {
            // The short form can't be shortened.
            let is_known = part.lines.iter().any(|line| {
                line.starts_with("On branch ") || line.starts_with("## ") || is_short_entry(line)
            });
            return if is_known { Outcome::Unchanged } else { Outcome::Unknown };
        }
        let mut out = String::new();
        let mut confidence = Confidence::Full;
        let mut section = Section::default();
        for (at, line) in part.lines.iter().enumerate() {
            if let Some((_, short)) = SECTIONS.iter().find(|(long, _)| line == long) {
                section.finish(&mut out);
                section.is_open = true;
                section.is_untracked = matches!(*short, "Untracked:" | "Ignored:");
                push_line(&mut out, short);
            } else if is_blank(line) || line.starts_with("  (use \"git ") && !part.is_error(at) {
                // Hints are left out: they are the same in every section.
            } else if section.is_open
                && let Some(entry) = line.strip_prefix('\t')
            {
                if !section.add(entry) {
                    confidence = Confidence::Partial;
                }
            } else {
                section.finish(&mut out);
                push_line(&mut out, without_hint(line));
            }
        }
        section.finish(&mut out);
        Outcome::Text(out, confidence)
    }
}

/// Whether a line has the form `XY path`.
fn is_short_entry(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() > 3
        && STATES.contains(&bytes[0])
        && STATES.contains(&bytes[1])
        && bytes[2] == b' '
        && (bytes[0], bytes[1]) != (b' ', b' ')
}

/// The letters for states in the short form.
const STATES: &[u8] = b" MADRCUT?!";

fn without_hint(line: &str) -> &str {
    line.find(" (use \"git ").map_or(line, |hint| &line[..hint])
}

/// The paths of a section, grouped by their state.
#[derive(Default)]
struct Section<'a> {
    /// True from its heading to the first line that isn't part of a section.
    is_open: bool,
    is_untracked: bool,
    state: &'a str,
    line: String,
    untracked: usize,
}

impl<'a> Section<'a> {
    /// Adds a path. Returns false if there are too many.
    fn add(&mut self, entry: &'a str) -> bool {
        let (state, path) = match entry.split_once(':') {
            Some((state, path)) if !self.is_untracked => (state, path.trim()),
            _ => ("", entry),
        };
        if self.is_untracked {
            self.untracked += 1;
            if self.untracked > MAX_UNTRACKED {
                return false;
            }
        }
        if self.line.is_empty() || self.state != state {
            if !self.line.is_empty() {
                self.line.push('\n');
            }
            self.state = state;
            self.line.push_str("  ");
            if !state.is_empty() {
                let _ = write!(self.line, "{state}: ");
            }
        } else {
            self.line.push_str(", ");
        }
        self.line.push_str(path);
        true
    }

    fn finish(&mut self, out: &mut String) {
        if !self.line.is_empty() {
            push_line(out, &self.line);
        }
        if self.untracked > MAX_UNTRACKED {
            push_mark(out, self.untracked - MAX_UNTRACKED);
            out.push('\n');
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    const LONG: &str = "\
On branch main
Your branch is ahead of 'origin/main' by 2 commits.
  (use \"git push\" to publish your local commits)

Changes to be committed:
  (use \"git restore --staged <file>...\" to unstage)
\tmodified:   a.rs
\tmodified:   b.rs
\trenamed:    c.rs -> d.rs

Unmerged paths:
  (use \"git add <file>...\" to mark resolution)
\tboth modified:   e.rs

Untracked files:
  (use \"git add <file>...\" to include in what will be committed)
\tnew: one.rs
\ttmp/

no changes added to commit (use \"git add\" and/or \"git commit -a\")
";

    #[test]
    fn branch_and_every_path_stay() {
        let expect = "\
On branch main
Your branch is ahead of 'origin/main' by 2 commits.
Staged:
  modified: a.rs, b.rs
  renamed: c.rs -> d.rs
Unmerged:
  both modified: e.rs
Untracked:
  new: one.rs, tmp/
no changes added to commit
";
        check("{ type = 'git_status' }", false, LONG, expect, Confidence::Full);
    }

    #[test]
    fn short_status_stays_unchanged() {
        check(
            "{ type = 'git_status' }",
            false,
            "## main...origin/main [ahead 1]\n M a.rs\n?? b.rs\n",
            "",
            Confidence::Full,
        );
        check(
            "{ type = 'git_status' }",
            false,
            "On branch main\nnothing to commit, working tree clean\n",
            "",
            Confidence::Full,
        );
    }

    #[test]
    fn only_the_first_of_many_untracked_paths_are_named() {
        let mut text = "On branch main\nUntracked files:\n".to_owned();
        (0..150).for_each(|number| writeln!(text, "\tfile-{number}").unwrap());
        let (shorter, confidence) = super::super::run(
            &super::super::testing::steps("{ type = 'git_status' }").unwrap(),
            &text,
            false,
        )
        .unwrap();
        assert!(shorter.ends_with(", file-99\n... (50 lines left out) ...\n"), "{shorter}");
        assert_eq!(confidence, Confidence::Partial);
    }
}
