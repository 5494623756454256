//! `git_diff`: leaves out the middle of each file's part of a long diff.

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run};
use crate::guard::Level;
use crate::text::share;

/// The greatest number of lines of a generated file.
const GENERATED: usize = 40;

/// Parameters of `git_diff`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitDiff {
    #[serde(default = "five_hundred")]
    max_diff_lines: usize,
}

fn five_hundred() -> usize {
    500
}

impl GitDiff {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        if self.max_diff_lines == 0 {
            return Err("`max_diff_lines` is 0, so no line would stay: raise it, or set `enabled = false` to switch the rule off".to_owned());
        }
        Ok(Box::new(Diff { max: self.max_diff_lines }))
    }
}

struct Diff {
    max: usize,
}

/// A file of a diff. Its headers stay. Its hunks share the lines.
struct File {
    is_generated: bool,
    hunks: Vec<Hunk>,
}

struct Hunk {
    /// The lines below its header.
    lines: std::ops::Range<usize>,
    /// The number of useful lines: changes and the lines next to them.
    wanted: usize,
}

impl Run for Diff {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let files = files(part.lines);
        if files.is_empty() {
            return Outcome::Unknown;
        }
        let body: usize =
            files.iter().flat_map(|file| &file.hunks).map(|hunk| hunk.lines.len()).sum();
        // Headers aren't counted, since the names of files and places are always needed.
        let is_long = body > self.max;
        if !is_long && !files.iter().any(|file| file.is_generated) {
            return Outcome::Unchanged;
        }
        let mut keep = vec![true; part.lines.len()];
        let caps: Vec<usize> = files.iter().map(|file| file.cap(is_long)).collect();
        let shares = if is_long { share(self.max, &caps) } else { caps };
        for (file, share_of_file) in files.iter().zip(shares) {
            let wanted: Vec<usize> = file
                .hunks
                .iter()
                .map(|hunk| if is_long { hunk.wanted } else { hunk.lines.len() })
                .collect();
            for (hunk, share_of_hunk) in file.hunks.iter().zip(share(share_of_file, &wanted)) {
                // A hunk that fits stays whole.
                let is_whole = share_of_hunk >= hunk.lines.len();
                let mut left = share_of_hunk;
                for at in hunk.lines.clone() {
                    let stays = is_whole
                        || left > 0 && (!is_long || is_near_change(part.lines, &hunk.lines, at));
                    left -= usize::from(stays && !is_whole);
                    keep[at] = stays || part.levels[at] == Level::Error;
                }
            }
        }
        if keep.iter().all(|keep| *keep) {
            Outcome::Unchanged
        } else {
            Outcome::Lines(keep, Confidence::Partial)
        }
    }
}

impl File {
    /// The greatest number of lines of its hunks that are useful.
    fn cap(&self, is_long: bool) -> usize {
        let wanted: usize = self
            .hunks
            .iter()
            .map(|hunk| if is_long { hunk.wanted } else { hunk.lines.len() })
            .sum();
        if self.is_generated { wanted.min(GENERATED) } else { wanted }
    }
}

fn is_change(line: &str) -> bool {
    line.starts_with(['+', '-'])
}

fn is_near_change(lines: &[&str], hunk: &std::ops::Range<usize>, at: usize) -> bool {
    let from = at.saturating_sub(1).max(hunk.start);
    lines[from..(at + 2).min(hunk.end)].iter().any(|line| is_change(line))
}

/// The files of a diff, in order.
fn files(lines: &[&str]) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with("diff --git ")
            || line.starts_with("diff --cc ")
            || line.starts_with("diff --combined ")
        {
            files.push(File { is_generated: is_generated(line), hunks: Vec::new() });
        } else if line.starts_with("--- ")
            && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "))
        {
            if files.last().is_none_or(|file| !file.hunks.is_empty()) {
                files.push(File { is_generated: is_generated(line), hunks: Vec::new() });
            }
        } else if line.starts_with("@@ ") || line.starts_with("@@@ ") {
            let start = at + 1;
            let length = lines[start..].iter().take_while(|line| is_body(line)).count();
            let hunk = start..start + length;
            let wanted = hunk.clone().filter(|at| is_near_change(lines, &hunk, *at)).count();
            if let Some(file) = files.last_mut() {
                file.hunks.push(Hunk { lines: hunk, wanted });
            }
            at += length;
        }
        at += 1;
    }
    files
}

fn is_body(line: &str) -> bool {
    line.starts_with(['+', '-', ' ', '\\'])
}

/// Whether the header names a file that programs write: a lock file or a minified file.
fn is_generated(header: &str) -> bool {
    let path = header.rsplit([' ', '/']).next().unwrap_or_default();
    let locks = [
        "Cargo.lock",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "poetry.lock",
        "uv.lock",
        "Pipfile.lock",
        "composer.lock",
        "Gemfile.lock",
        "go.sum",
        "mix.lock",
        "Package.resolved",
        "packages.lock.json",
        "flake.lock",
        "deno.lock",
    ];
    locks.contains(&path)
        || [".min.js", ".min.css", ".js.map", ".css.map"].iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::{run, testing::check, testing::steps};
    use super::*;

    fn diff(files: &[(&str, usize)]) -> String {
        let mut text = String::new();
        for (name, changes) in files {
            writeln!(text, "diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n@@ -1,9 +1,9 @@").unwrap();
            text.push_str(" context that is far away\n context\n");
            (0..*changes)
                .for_each(|change| writeln!(text, "+    let {} = {change};", &name[..1]).unwrap());
            text.push_str(" context\n context that is far away\n");
        }
        text
    }

    #[test]
    fn every_file_of_a_long_diff_keeps_headers_and_share() {
        let text = diff(&[("a.rs", 400), ("b.rs", 4), ("c.rs", 400)]);
        let (shorter, confidence) =
            run(&steps("{ type = 'git_diff', max_diff_lines = 100 }").unwrap(), &text, false)
                .unwrap();
        assert_eq!(confidence, Confidence::Partial);
        for kept in
            ["+++ b/a.rs", "+++ b/b.rs", "+++ b/c.rs", "let a = 0;", "let b = 3;", "let c = 30;"]
        {
            assert!(shorter.contains(kept), "{kept}: {shorter}");
        }
        assert_eq!(shorter.matches("@@ -1,9").count(), 3);
        assert!(shorter.lines().count() <= 125, "{}", shorter.lines().count());
    }

    #[test]
    fn short_diff_stays_except_generated_files() {
        check(
            "{ type = 'git_diff' }",
            false,
            &diff(&[("a.rs", 200), ("b.rs", 200)]),
            "",
            Confidence::Full,
        );
        let text = diff(&[("a.rs", 2), ("Cargo.lock", 200)]);
        let (shorter, _) = run(&steps("{ type = 'git_diff' }").unwrap(), &text, false).unwrap();
        assert!(
            shorter.contains("let a = 1;")
                && shorter.contains("+++ b/Cargo.lock")
                && shorter.lines().count() < 60,
            "{shorter}"
        );
    }
}
