//! The lines of one ignore file, with the meaning that the `ignore` crate gives them.
//!
//! The lines are whoever wrote the searched files': compiled by that crate, a file of 1 MiB took
//! 1.2 GiB, and one of ten lines remembered 20 MiB of the names that it had seen. Here what is
//! remembered is bounded, and what is compiled can be reckoned beforehand.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::bytes::{RegexSet, RegexSetBuilder};

/// What the automaton of one file remembers of the names that it has seen, on each thread.
const REMEMBERED: usize = 256 << 10;

/// What the automaton of one file may take, beside that.
const MAX_AUTOMATON: usize = 32 << 20;

/// The memory that a line without wildcards takes, which is looked up, and each of its bytes.
/// Measured, like the others.
const PLAIN: (u64, u64) = (1 << 10, 16);

/// The same for a line with wildcards, which becomes a part of the automaton.
const WILD: (u64, u64) = (6 << 10, 100);

/// The characters that make a line one with wildcards.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// See the module.
#[derive(Debug)]
pub(super) struct Rules {
    names: GlobSet,
    /// For each of `names`, the line that it stands for.
    names_lines: Vec<usize>,
    patterns: RegexSet,
    patterns_lines: Vec<usize>,
    lines: Vec<Line>,
}

/// What a line says of what it matches.
#[derive(Clone, Copy, Debug)]
struct Line {
    is_whitelist: bool,
    only_directories: bool,
}

impl Rules {
    /// Compiles the lines of a file; one that is no glob says nothing. `None`: they take more than
    /// is left to them.
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        let (mut names, mut names_lines) = (GlobSetBuilder::new(), Vec::new());
        let (mut patterns, mut patterns_lines) = (Vec::new(), Vec::new());
        let mut lines = Vec::new();
        for (line, glob) in parse(text) {
            let is_plain = is_plain(&glob);
            let mut builder = GlobBuilder::new(&glob);
            let Ok(glob) = builder
                .literal_separator(true)
                .backslash_escape(true)
                .allow_unclosed_class(true)
                .build()
            else {
                continue;
            };
            if is_plain {
                names.add(glob);
                names_lines.push(lines.len());
            } else {
                patterns.push(glob.regex().to_owned());
                patterns_lines.push(lines.len());
            }
            lines.push(line);
        }
        let mut patterns = RegexSetBuilder::new(patterns);
        let patterns = patterns
            .dot_matches_new_line(true)
            .size_limit(MAX_AUTOMATON)
            .dfa_size_limit(REMEMBERED)
            .build()
            .ok()?;
        Some(Self { names: names.build().ok()?, names_lines, patterns, patterns_lines, lines })
    }

    /// The memory, in bytes, that the rules in `text` take at the most, with what `threads`
    /// remember.
    pub(super) fn memory(text: &[u8], threads: usize) -> u64 {
        let (mut sum, mut all_are_plain) = (0, true);
        for (_, glob) in parse(text) {
            let is_plain = is_plain(&glob);
            let (each, per_byte) = if is_plain { PLAIN } else { WILD };
            sum += each + per_byte * glob.len() as u64;
            all_are_plain &= is_plain;
        }
        sum + if all_are_plain { 0 } else { (threads * REMEMBERED) as u64 }
    }

    /// What the last line that matches the path `rest` below the file's directory says: whether it
    /// is ignored.
    pub(super) fn verdict(&self, rest: &[u8], is_directory: bool) -> Option<bool> {
        let path = Path::new(OsStr::from_bytes(rest));
        let names = self.names.matches(path).into_iter().map(|index| self.names_lines[index]);
        let patterns = self.patterns.matches(rest);
        let patterns = patterns.iter().map(|index| self.patterns_lines[index]);
        let says = |line: &usize| is_directory || !self.lines[*line].only_directories;
        names.chain(patterns).filter(says).max().map(|line| !self.lines[line].is_whitelist)
    }
}

/// Whether a glob stands for one name or path, or for an extension, which is looked up. Everything
/// else takes an automaton.
fn is_plain(glob: &str) -> bool {
    let (anywhere, name) = glob.strip_prefix("**/").map_or((false, glob), |name| (true, name));
    let (name, is_extension) = name
        .strip_prefix("*.")
        .filter(|_| anywhere)
        .map_or((name, false), |extension| (extension, true));
    !(name.is_empty() || name.contains(WILDCARDS) || is_extension && name.contains(['.', '/']))
}

/// The lines of a file and the globs in them, by the rules of gitignore(5) as `ignore` reads them.
fn parse(text: &[u8]) -> impl Iterator<Item = (Line, String)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| parse_line(std::str::from_utf8(line).ok()?))
}

/// `None`: a comment, or nothing.
fn parse_line(line: &str) -> Option<(Line, String)> {
    let mut glob = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if glob.is_empty() || line.starts_with('#') {
        return None;
    }
    let is_whitelist = glob.starts_with('!');
    let mut is_anchored = false;
    if glob.starts_with("\\!") || glob.starts_with("\\#") {
        glob = &glob[1..];
    } else {
        glob = glob.strip_prefix('!').unwrap_or(glob);
        is_anchored = glob.starts_with('/');
        glob = glob.strip_prefix('/').unwrap_or(glob);
    }
    let only_directories = glob.ends_with('/');
    if let Some(directory) = glob.strip_suffix('/') {
        glob = directory.strip_suffix('\\').unwrap_or(directory);
    }
    // What has no slash is a name anywhere below.
    let anywhere = if is_anchored || glob.contains('/') || glob == "**" { "" } else { "**/" };
    // What is in a directory, and not that itself.
    let inside = if glob.ends_with("/**") { "/*" } else { "" };
    Some((Line { is_whitelist, only_directories }, format!("{anywhere}{glob}{inside}")))
}

#[cfg(test)]
mod tests {
    use ignore::Match;
    use ignore::gitignore::GitignoreBuilder;

    use super::*;

    /// Each file's lines and each path, from few characters, so that they meet.
    #[test]
    fn lines_say_what_the_ignore_crate_reads_in_them() {
        const PARTS: [&str; 18] = [
            "a", "b", "ab", ".", ".a", "/", "**", "**/", "/**", "*", "*.", "?", "[ab]", "{a,b}",
            "!", "\\", "#", " ",
        ];
        let mut state = 1_u64;
        let mut below = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let (mut ignored, mut wanted) = (0, 0);
        for _ in 0..8_000 {
            let lines: Vec<String> = (0..=below(4))
                .map(|_| (0..=below(5)).map(|_| PARTS[below(PARTS.len())]).collect::<String>())
                .collect();
            let text = lines.join("\n");
            let rules = Rules::new(text.as_bytes()).expect("few lines have room");
            let mut builder = GitignoreBuilder::new("/r");
            for line in &lines {
                let _not_a_glob = builder.add_line(None, line);
            }
            let expected = builder.build().expect("it builds");
            for _ in 0..8 {
                let path: Vec<String> = (0..=below(3))
                    .map(|_| (0..=below(2)).map(|_| ["a", "b", ".a", "ab"][below(4)]).collect())
                    .collect();
                let (path, is_directory) = (path.join("/"), below(2) == 0);
                let expected = match expected.matched(Path::new("/r").join(&path), is_directory) {
                    Match::None => None,
                    Match::Ignore(_) => Some(true),
                    Match::Whitelist(_) => Some(false),
                };
                assert_eq!(
                    rules.verdict(path.as_bytes(), is_directory),
                    expected,
                    "{text:?} of {path:?}, a directory: {is_directory}"
                );
                ignored += usize::from(expected == Some(true));
                wanted += usize::from(expected == Some(false));
            }
        }
        assert!(ignored > 4_000 && wanted > 400, "{ignored} were ignored, {wanted} wanted");
    }
}
