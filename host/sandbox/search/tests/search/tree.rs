//! A scratch tree, and searches of it with the settings that most tests use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use toolhold_contract::{Access, CancellationToken};
use toolhold_policy::files::{Grant, PathGlobs};
use toolhold_search::{
    Control, Entries, Lines, Pattern, Scope, SearchCounts, SearchEnding, SkipCounts, count, find,
    grep,
};
use toolhold_system::files::{FileView, Grants};

pub(crate) struct Tree {
    _dir: TempDir,
    pub(crate) root: PathBuf,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let root = dir.path().canonicalize().expect("its real path");
        Self { _dir: dir, root }
    }

    /// A tree of empty files. A path with `/` at its end becomes a directory.
    pub(crate) fn with_files(paths: &[&str]) -> Self {
        let tree = Self::new();
        for path in paths {
            match path.strip_suffix('/') {
                Some(path) => fs::create_dir_all(tree.root.join(path)).expect("a directory"),
                None => tree.file(path, ""),
            }
        }
        tree
    }

    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its directory");
        fs::write(path, content).expect("a file");
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        symlink(target, self.root.join(path)).expect("a link");
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        self.root.join(rest).to_str().expect("UTF-8").to_owned()
    }

    /// A view that may read everything.
    pub(crate) fn view(&self) -> FileView {
        self.view_of("", &[], &[])
    }

    /// A view that may read `below` without `deny_read`. If `allow_read` isn't empty, only what it
    /// matches.
    pub(crate) fn view_of(&self, below: &str, deny_read: &[&str], allow_read: &[&str]) -> FileView {
        let globs = |globs: &[&str]| {
            let globs = globs.iter().map(|glob| ((*glob).to_owned(), "the test".to_owned()));
            PathGlobs::new(globs.collect()).expect("globs")
        };
        let grant =
            Grant { path: self.root.join(below), access: Access::Read, place: "the test".into() };
        let (deny_read, allow_read) = (globs(deny_read), globs(allow_read));
        let grants = Grants::open(vec![grant], Vec::new(), |rules| {
            rules.with_globs(deny_read, allow_read, PathGlobs::default())
        });
        FileView::new(Arc::new(grants.expect("the grant")), true)
    }

    /// A scope of everything below the root, including hidden and ignored entries.
    pub(crate) fn scope(&self) -> Scope {
        Scope { root: self.path(""), ..Scope::default() }
    }

    /// A scope of the files that aren't hidden or ignored.
    pub(crate) fn default_scope(&self) -> Scope {
        Scope { ignore_rules: true, files_only: true, ..self.scope() }
    }

    /// The paths that `find` lists below the root.
    #[track_caller]
    pub(crate) fn find_paths(&self, scope: &Scope) -> Vec<String> {
        self.relative_paths(&find(&self.view(), scope, 10_000, &control()).expect("an answer"))
    }

    /// The paths of an answer, relative to the root.
    #[track_caller]
    pub(crate) fn relative_paths(&self, entries: &Entries) -> Vec<String> {
        let root = self.path("");
        entries
            .items
            .iter()
            .map(|entry| entry.path.strip_prefix(&root).expect("below the root").to_owned())
            .collect()
    }

    /// The matching lines of the whole tree, as `path:number:text`.
    #[track_caller]
    pub(crate) fn grep_lines(&self, regex: &str) -> Vec<String> {
        let lines = grep(&self.view(), &self.scope(), &pattern(regex), 10_000, &control())
            .expect("an answer");
        assert_eq!(lines.ending, SearchEnding::Complete);
        self.format_lines(&lines)
    }

    /// Lines as `path:number:text`, and lines of context as `path-number-text`.
    pub(crate) fn format_lines(&self, lines: &Lines) -> Vec<String> {
        let root = self.path("");
        let show = |line: &toolhold_search::Line| {
            let mark = if line.is_match { ':' } else { '-' };
            format!(
                "{}{mark}{}{mark}{}",
                line.path.strip_prefix(&root).unwrap_or(&line.path),
                line.number,
                line.text
            )
        };
        lines.items.iter().map(show).collect()
    }

    #[track_caller]
    pub(crate) fn count_lines(&self, regex: &str, limit: u32) -> SearchCounts {
        count(&self.view(), &self.scope(), &pattern(regex), limit, &control()).expect("an answer")
    }
}

/// A minute of time, and two threads.
pub(crate) fn control() -> Control {
    Control {
        deadline: Instant::now() + Duration::from_secs(60),
        cancel: CancellationToken::new(),
        threads: 2,
    }
}

pub(crate) fn pattern(regex: &str) -> Pattern {
    Pattern { regex: regex.to_owned(), case_sensitive: true, ..Pattern::default() }
}

pub(crate) const NO_SKIPS: SkipCounts = SkipCounts { denied: 0, unreadable: 0, binary: 0 };
