//! Matches the lines of one ignore file. They mean the same as in the `ignore` crate.
//!
//! Ignore files are untrusted. In the `ignore` crate, a file of 1 MiB took 1.2 GiB of memory, and a
//! file of ten lines used 20 MiB of cache for matched names. This module limits the cache, and
//! estimates the memory of the rules before it compiles them.
//!
//! A hostile file with a thousand wildcard lines can make each name take milliseconds. So the lines
//! with wildcards are limited in number and size, and may be disabled. Other lines cost only a
//! table lookup.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::bytes::{RegexSet, RegexSetBuilder};
use toolhold_policy::MAX_GLOB;

/// Bytes of cache of a file's automaton, per thread, and the additional bytes per line. With a
/// smaller cache, 600 usual lines took a millisecond for each name.
const MAX_CACHE: usize = 256 << 10;
const CACHE_PER_LINE: usize = 1 << 10;

/// Bytes of a file's automaton without its cache. If it would be larger, all lines with wildcards
/// are omitted. A thousand usual lines need 1 MiB. With 2 MiB, the longest path takes about 100 ms.
const MAX_AUTOMATON: usize = 2 << 20;

/// Measured bytes of memory for a line without wildcards, and for each byte of the line. The line
/// is looked up in a table.
const PLAIN_BYTES: (u64, u64) = (1 << 10, 16);

/// Measured bytes of memory for a line with wildcards, and for each byte of the line. The line
/// becomes a part of the automaton.
const WILD_BYTES: (u64, u64) = (6 << 10, 100);

const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

#[derive(Debug)]
pub(super) struct Rules {
    names: GlobSet,
    /// The index of the line for each glob of `names`.
    names_lines: Vec<usize>,
    patterns: RegexSet,
    patterns_lines: Vec<usize>,
    lines: Vec<Line>,
    /// Whether lines with wildcards are omitted, because they are too many or too long.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    is_whitelist: bool,
    only_directories: bool,
}

impl Rules {
    /// Compiles the lines of a file. Of the lines with wildcards, compiles the first
    /// `max_wild_lines` that aren't too long. Skips lines that aren't valid globs. If the automaton
    /// would exceed its limit, omits all lines with wildcards.
    pub(super) fn new(text: &[u8], max_wild_lines: usize) -> Option<Self> {
        let mut names = GlobSetBuilder::new();
        let mut names_lines = Vec::new();
        let mut patterns = Vec::new();
        let mut patterns_lines = Vec::new();
        let mut lines = Vec::new();
        let mut is_cut = false;
        for (line, glob) in parse(text) {
            let is_wild = !is_plain(&glob);
            if is_wild && (patterns.len() >= max_wild_lines || glob.len() > MAX_GLOB) {
                is_cut = true;
                continue;
            }
            let mut builder = GlobBuilder::new(&glob);
            let Ok(glob) = builder
                .literal_separator(true)
                .backslash_escape(true)
                .allow_unclosed_class(true)
                .build()
            else {
                continue;
            };
            if is_wild {
                patterns.push(glob.regex().to_owned());
                patterns_lines.push(lines.len());
            } else {
                names.add(glob);
                names_lines.push(lines.len());
            }
            lines.push(line);
        }

        let cache = cache_size(patterns.len());
        let automaton = RegexSetBuilder::new(patterns)
            .dot_matches_new_line(true)
            .size_limit(MAX_AUTOMATON)
            .dfa_size_limit(cache)
            .build();
        let patterns = automaton.unwrap_or_else(|_| {
            is_cut = true;
            RegexSet::default()
        });
        let names = names.build().ok()?;
        Some(Self { names, names_lines, patterns, patterns_lines, lines, is_cut })
    }

    /// Returns the maximum memory of the rules in `text`, in bytes, with the caches of `threads`
    /// threads. A line with wildcards uses no memory if the line is too long, or comes after the
    /// first `max_wild_lines`.
    pub(super) fn memory(text: &[u8], max_wild_lines: usize, threads: usize) -> u64 {
        let mut bytes = 0;
        let mut wild_lines = 0;
        for (_, glob) in parse(text) {
            let (per_line, per_byte) = if is_plain(&glob) {
                PLAIN_BYTES
            } else if wild_lines < max_wild_lines && glob.len() <= MAX_GLOB {
                wild_lines += 1;
                WILD_BYTES
            } else {
                continue;
            };
            bytes += per_line + per_byte * glob.len() as u64;
        }
        if wild_lines > 0 {
            bytes += (threads * cache_size(wild_lines)) as u64;
        }
        bytes
    }

    /// Checks whether a path below the file's directory is ignored. The last matching line decides.
    /// Returns `None` if no line matches.
    pub(super) fn is_ignored(
        &self,
        relative_path: &[u8],
        is_directory: bool,
        with_wildcards: bool,
    ) -> Option<bool> {
        let path = Path::new(OsStr::from_bytes(relative_path));
        let mut matching_lines: Vec<usize> = Vec::new();
        for index in self.names.matches(path) {
            matching_lines.push(self.names_lines[index]);
        }
        if with_wildcards {
            for index in self.patterns.matches(relative_path) {
                matching_lines.push(self.patterns_lines[index]);
            }
        }
        if !is_directory {
            matching_lines.retain(|line| !self.lines[*line].only_directories);
        }
        let last_line = matching_lines.into_iter().max()?;
        Some(!self.lines[last_line].is_whitelist)
    }

    pub(super) fn has_wild(&self) -> bool {
        !self.patterns.is_empty()
    }
}

fn cache_size(lines: usize) -> usize {
    MAX_CACHE + lines * CACHE_PER_LINE
}

/// Checks whether a glob is a plain name, path or extension, for which a table lookup is enough.
fn is_plain(glob: &str) -> bool {
    if let Some(extension) = glob.strip_prefix("**/*.") {
        return is_literal(extension) && !extension.contains(['.', '/']);
    }
    is_literal(glob.strip_prefix("**/").unwrap_or(glob))
}

fn is_literal(text: &str) -> bool {
    !text.is_empty() && !text.contains(WILDCARDS)
}

/// Parses the lines of a file by the rules of gitignore(5), in the same way as `ignore`. Skips
/// lines that aren't UTF-8.
fn parse(text: &[u8]) -> impl Iterator<Item = (Line, String)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| parse_line(std::str::from_utf8(line).ok()?))
}

/// Parses a line of an ignore file. Returns `None` for an empty line and a comment.
fn parse_line(line: &str) -> Option<(Line, String)> {
    // A trailing escaped space is part of the glob.
    let mut glob = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if glob.is_empty() || line.starts_with('#') {
        return None;
    }
    let is_whitelist = glob.starts_with('!');
    let mut is_anchored = false;
    let escapes_first_character = glob.starts_with("\\!") || glob.starts_with("\\#");
    if escapes_first_character {
        glob = &glob["\\".len()..];
    } else {
        glob = glob.strip_prefix('!').unwrap_or(glob);
        is_anchored = glob.starts_with('/');
        glob = glob.strip_prefix('/').unwrap_or(glob);
    }
    let only_directories = glob.ends_with('/');
    if let Some(directory) = glob.strip_suffix('/') {
        // An escaped slash also ends a directory.
        glob = directory.strip_suffix('\\').unwrap_or(directory);
    }
    // A glob without a slash is a name at any depth.
    let anywhere = if is_anchored || glob.contains('/') || glob == "**" { "" } else { "**/" };
    // `dir/**` matches the entries of the directory, but not the directory itself.
    let inside = if glob.ends_with("/**") { "/*" } else { "" };
    Some((Line { is_whitelist, only_directories }, format!("{anywhere}{glob}{inside}")))
}

#[cfg(test)]
mod tests {
    use ignore::Match;
    use ignore::gitignore::GitignoreBuilder;

    use super::*;

    /// The lines and the paths are made of few characters, so that lines often match.
    #[test]
    fn verdicts_equal_those_of_the_ignore_crate() {
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
            let rules = Rules::new(text.as_bytes(), usize::MAX).expect("few lines fit");
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
                    rules.is_ignored(path.as_bytes(), is_directory, true),
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
