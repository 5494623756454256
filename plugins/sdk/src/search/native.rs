//! Replaces the host's search by a simple walk in unit tests.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ignore::overrides::OverrideBuilder;
use ignore::{DirEntry, WalkBuilder};
use regex::bytes::{Regex, RegexBuilder};

use super::{
    Counts, Ending, Entries, Entry, Kind, Line, Lines, Pattern, Scope, SearchError, Skipped,
};

const MAX_LIMIT: u32 = 10_000;
const MAX_TEXT: usize = 2_000;

pub(super) fn find(scope: &Scope, limit: u32) -> Result<Entries, SearchError> {
    let mut skipped = Skipped::default();
    let mut items = Vec::new();
    for entry in walk(scope, &mut skipped)? {
        let kind = kind(&entry);
        if entry.depth() == 0 && kind == Kind::Directory || scope.files_only && kind != Kind::File {
            continue;
        }
        let meta = entry.metadata().ok();
        let modified =
            meta.as_ref().and_then(|meta| meta.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        items.push(Entry {
            path: display_path(scope, entry.path()),
            kind,
            size: meta.map_or(0, |meta| if kind == Kind::File { meta.len() } else { 0 }),
            modified_ms: modified
                .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        });
    }
    let ending = truncate_items(&mut items, limit);
    Ok(Entries { items, ending, skipped })
}

pub(super) fn grep(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Lines, SearchError> {
    let mut answer = Lines {
        items: Vec::new(),
        files_matched: 0,
        files_searched: 0,
        ending: Ending::Complete,
        skipped: Skipped::default(),
    };
    let mut left = limit.min(MAX_LIMIT) as usize;
    let searched = each_match(scope, pattern, &mut answer.skipped, |path, lines, matching| {
        if matching.is_empty() {
            return true;
        }
        if left == 0 {
            answer.ending = Ending::Limit;
            return false;
        }
        answer.files_matched += 1;
        if matching.len() > left {
            answer.ending = Ending::Limit;
        }
        let kept = &matching[..matching.len().min(left)];
        left -= kept.len();
        for (index, text) in lines.iter().enumerate() {
            let is_match = kept.binary_search(&index).is_ok();
            let is_near = kept.iter().any(|&at| {
                at <= index + pattern.before as usize && index <= at + pattern.after as usize
            });
            if is_match || is_near {
                let text: String = String::from_utf8_lossy(text).chars().take(MAX_TEXT).collect();
                answer.items.push(Line {
                    path: path.to_owned(),
                    number: index as u64 + 1,
                    text,
                    is_match,
                });
            }
        }
        true
    })?;
    answer.files_searched = searched;
    Ok(answer)
}

pub(super) fn count(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Counts, SearchError> {
    let mut skipped = Skipped::default();
    let mut items = Vec::new();
    let files_searched = each_match(scope, pattern, &mut skipped, |path, _, matching| {
        if !matching.is_empty() {
            items.push((path.to_owned(), matching.len() as u64));
        }
        true
    })?;
    let ending = truncate_items(&mut items, limit);
    Ok(Counts { items, files_searched, ending, skipped })
}

/// Calls `visit` with the lines of each text file and the indices of matching lines, until it
/// returns false. Returns the number of files that were read.
fn each_match(
    scope: &Scope,
    pattern: &Pattern,
    skipped: &mut Skipped,
    mut visit: impl FnMut(&str, &[&[u8]], &[usize]) -> bool,
) -> Result<u64, SearchError> {
    let regex = RegexBuilder::new(&pattern.regex)
        .case_insensitive(!pattern.case_sensitive)
        .multi_line(true)
        .dot_matches_new_line(pattern.multiline)
        .build()
        .map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
    let mut searched = 0;
    for entry in walk(scope, skipped)? {
        if kind(&entry) != Kind::File {
            continue;
        }
        let Ok(bytes) = fs::read(entry.path()) else {
            skipped.unreadable += 1;
            continue;
        };
        searched += 1;
        if bytes.contains(&0) {
            skipped.binary += 1;
            continue;
        }
        let lines: Vec<&[u8]> =
            bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|&byte| byte == b'\n').collect();
        let matching = if pattern.multiline {
            lines_touched(&regex, &bytes)
        } else {
            lines_matching(&regex, &lines)
        };
        if !visit(&display_path(scope, entry.path()), &lines, &matching) {
            break;
        }
    }
    Ok(searched)
}

fn lines_matching(regex: &Regex, lines: &[&[u8]]) -> Vec<usize> {
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| regex.is_match(line))
        .map(|(index, _)| index)
        .collect()
}

/// Every line that a match touches.
fn lines_touched(regex: &Regex, bytes: &[u8]) -> Vec<usize> {
    let mut matching: Vec<usize> = regex
        .find_iter(bytes)
        .flat_map(|found| {
            let last = found.end().max(found.start() + 1) - 1;
            line_at(bytes, found.start())..=line_at(bytes, last)
        })
        .collect();
    matching.dedup();
    matching
}

fn line_at(bytes: &[u8], offset: usize) -> usize {
    bytes[..offset].iter().filter(|&&byte| byte == b'\n').count()
}

fn walk(scope: &Scope, skipped: &mut Skipped) -> Result<Vec<DirEntry>, SearchError> {
    let root = Path::new(&scope.root);
    fs::symlink_metadata(root).map_err(|_| SearchError::NotFound(scope.root.clone()))?;
    let mut globs = OverrideBuilder::new(root);
    for glob in &scope.globs {
        globs.add(glob).map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
    }
    let globs = globs.build().map_err(|error| SearchError::InvalidPattern(error.to_string()))?;
    let walker = WalkBuilder::new(root)
        .standard_filters(scope.ignore_rules)
        .git_global(false)
        .overrides(globs)
        .max_depth(scope.max_depth.map(|depth| depth as usize))
        .build();
    let mut entries = Vec::new();
    for entry in walker {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(_) => skipped.unreadable += 1,
        }
    }
    entries.sort_by(|a, b| a.path().as_os_str().cmp(b.path().as_os_str()));
    Ok(entries)
}

fn kind(entry: &DirEntry) -> Kind {
    match entry.file_type() {
        Some(kind) if kind.is_symlink() => Kind::Symlink,
        Some(kind) if kind.is_dir() => Kind::Directory,
        Some(kind) if kind.is_file() => Kind::File,
        _ => Kind::Other,
    }
}

fn display_path(scope: &Scope, path: &Path) -> String {
    let rest = path.strip_prefix(&scope.root).unwrap_or(path).to_string_lossy();
    if rest.is_empty() {
        scope.root.clone()
    } else {
        format!("{}/{rest}", scope.root.trim_end_matches('/'))
    }
}

fn truncate_items<T>(items: &mut Vec<T>, limit: u32) -> Ending {
    let limit = limit.min(MAX_LIMIT) as usize;
    let ending = if items.len() > limit { Ending::Limit } else { Ending::Complete };
    items.truncate(limit);
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("b.txt", b"one\ntwo\nthree\ntwo again\n");
        write("a/deep.txt", b"two\n");
        write("a/picture", b"two\0");
        write(".hidden", b"two\n");
        dir
    }

    fn scope(dir: &tempfile::TempDir) -> Scope {
        Scope {
            root: dir.path().to_string_lossy().into_owned(),
            ignore_rules: true,
            ..Scope::default()
        }
    }

    #[test]
    fn find_sorts_entries_and_reports_its_limit() {
        let dir = tree();
        let all = find(&scope(&dir), 10).unwrap();
        let names: Vec<&str> =
            all.items.iter().map(|entry| &entry.path[scope(&dir).root.len()..]).collect();
        assert_eq!(names, ["/a", "/a/deep.txt", "/a/picture", "/b.txt"]);
        assert_eq!(all.ending, Ending::Complete);
        assert_eq!(find(&scope(&dir), 3).unwrap().ending, Ending::Limit);
        let globbed =
            find(&Scope { globs: vec!["*.txt".into()], files_only: true, ..scope(&dir) }, 10)
                .unwrap();
        assert_eq!(globbed.items.len(), 2);
    }

    #[test]
    fn grep_counts_matches_not_context() {
        let dir = tree();
        let pattern = Pattern { regex: "TWO".into(), before: 1, ..Pattern::default() };
        let lines = grep(&scope(&dir), &pattern, 2).unwrap();
        let shown: Vec<_> = lines
            .items
            .iter()
            .map(|line| (line.number, line.text.as_str(), line.is_match))
            .collect();
        assert_eq!(shown, [(1, "two", true), (1, "one", false), (2, "two", true)]);
        assert_eq!(
            (lines.files_matched, lines.ending, lines.skipped.binary),
            (2, Ending::Limit, 1)
        );
        assert_eq!(
            count(&scope(&dir), &pattern, 9)
                .unwrap()
                .items
                .iter()
                .map(|item| item.1)
                .collect::<Vec<_>>(),
            [1, 2]
        );
    }

    #[test]
    fn multiline_match_spans_lines() {
        let dir = tree();
        let pattern = Pattern {
            regex: "one.two".into(),
            multiline: true,
            case_sensitive: true,
            ..Pattern::default()
        };
        let lines = grep(&scope(&dir), &pattern, 9).unwrap();
        assert_eq!(lines.items.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn invalid_pattern_is_explained() {
        let dir = tree();
        let bad = grep(&scope(&dir), &Pattern { regex: "(".into(), ..Pattern::default() }, 9)
            .unwrap_err();
        assert!(
            matches!(&bad, SearchError::InvalidPattern(why) if why.contains("unclosed group")),
            "{bad}"
        );
        let missing = find(&Scope { root: "/no/such".into(), ..Scope::default() }, 9).unwrap_err();
        assert_eq!(missing, SearchError::NotFound("/no/such".into()));
    }
}
