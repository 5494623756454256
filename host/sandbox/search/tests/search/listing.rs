//! The results of `find`: kinds, globs, depth, paths, limits.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use toolhold_search::{EntryKind, Scope, SearchEnding, SearchError, find};

use crate::tree::{NO_SKIPS, Tree, control};

#[test]
fn everything_is_listed_sorted_by_bytes() {
    let tree = Tree::with_files(&["b/x", "b.txt", "B", "a/deep/er/file", ".hidden", "empty/"]);
    let paths = tree.find_paths(&tree.scope());
    assert_eq!(
        paths,
        [
            ".hidden",
            "B",
            "a",
            "a/deep",
            "a/deep/er",
            "a/deep/er/file",
            "b",
            "b.txt",
            "b/x",
            "empty"
        ]
    );
}

#[test]
fn entries_have_kind_size_and_time() {
    let tree = Tree::with_files(&["dir/"]);
    tree.file("file", "12345");
    tree.link("link", "/nowhere/at/all");
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    File::options()
        .write(true)
        .open(tree.root.join("file"))
        .and_then(|file| file.set_modified(time))
        .expect("a time");

    let entries = find(&tree.view(), &tree.scope(), 10, &control()).expect("an answer");
    let seen: Vec<_> = entries.items.iter().map(|entry| (entry.kind, entry.size)).collect();
    assert_eq!(seen, [(EntryKind::Directory, 0), (EntryKind::File, 5), (EntryKind::Symlink, 0)]);
    assert_eq!(entries.items[1].modified_ms, 1_234_567_890_123);
    assert_eq!((entries.ending, entries.skipped), (SearchEnding::Complete, NO_SKIPS));
}

#[test]
fn files_only_leaves_out_directories_and_links() {
    let tree = Tree::with_files(&["dir/file"]);
    tree.link("link", "dir/file");
    assert_eq!(tree.find_paths(&Scope { files_only: true, ..tree.scope() }), ["dir/file"]);
}

#[track_caller]
fn check_globs(globs: &[&str], expected: &[&str]) {
    let tree = Tree::with_files(&[
        "a.rs",
        "a.md",
        "src/b.rs",
        "src/deep/c.rs",
        "src/deep/c.md",
        "lib/src/d.rs",
    ]);
    let globs = globs.iter().map(|glob| (*glob).to_owned()).collect();
    assert_eq!(tree.find_paths(&Scope { globs, ..tree.scope() }), expected);
}

#[test]
fn globs_match_as_in_a_gitignore() {
    check_globs(&["*.rs"], &["a.rs", "lib/src/d.rs", "src/b.rs", "src/deep/c.rs"]);
    check_globs(&["/*.rs"], &["a.rs"]);
    check_globs(&["src/**"], &["src/b.rs", "src/deep", "src/deep/c.md", "src/deep/c.rs"]);
    check_globs(&["src/*.rs"], &["src/b.rs"]);
    check_globs(&["**/src/*.rs"], &["lib/src/d.rs", "src/b.rs"]);
    check_globs(&["{a,b}.rs"], &["a.rs", "src/b.rs"]);
    check_globs(&["deep"], &["src/deep"]);
}

#[test]
fn later_glob_wins_and_excluded_directory_is_not_entered() {
    check_globs(&["*.rs", "!src/**"], &["a.rs", "lib/src/d.rs"]);
    // `src/deep` is excluded, so no later glob finds files below it.
    check_globs(&["!src/**", "*.rs"], &["a.rs", "lib/src/d.rs", "src/b.rs"]);
    check_globs(&["!/src"], &["a.md", "a.rs", "lib", "lib/src", "lib/src/d.rs"]);
    check_globs(&["!*.rs", "!deep"], &["a.md", "lib", "lib/src", "src"]);
}

#[test]
fn invalid_glob_is_explained() {
    let tree = Tree::new();
    let scope = Scope { globs: vec!["a[".to_owned()], ..tree.scope() };
    match find(&tree.view(), &scope, 10, &control()) {
        Err(SearchError::InvalidPattern(why)) => assert!(why.contains("a["), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn globs_are_bounded() {
    let tree = Tree::new();
    for globs in [vec!["*.rs".to_owned(); 1_001], vec!["[a-z]?".repeat(11_000)]] {
        match find(&tree.view(), &Scope { globs, ..tree.scope() }, 10, &control()) {
            Err(SearchError::InvalidPattern(why)) => {
                assert!(why.contains("the limit is 1000 globs and 65536 bytes"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        find(
            &tree.view(),
            &Scope { globs: vec!["*.rs".to_owned(); 1_000], ..tree.scope() },
            10,
            &control()
        )
        .is_ok()
    );
}

#[test]
fn depth_is_bounded() {
    let tree = Tree::with_files(&["a", "b/c", "b/d/e"]);
    let at = |max_depth| tree.find_paths(&Scope { max_depth: Some(max_depth), ..tree.scope() });
    assert_eq!(at(0), [""; 0]);
    assert_eq!(at(1), ["a", "b"]);
    assert_eq!(at(2), ["a", "b", "b/c", "b/d"]);
    assert_eq!(at(9), ["a", "b", "b/c", "b/d", "b/d/e"]);
}

#[test]
fn paths_begin_as_the_caller_spelled_the_root() {
    let tree = Tree::with_files(&["real/file"]);
    tree.link("link", "real");
    let spelled = |root: String| {
        let entries = find(&tree.view(), &Scope { root, ..Scope::default() }, 10, &control())
            .expect("an answer");
        entries.items.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
    };
    // A link that the caller names is followed if the rules allow its target.
    assert_eq!(spelled(tree.path("link")), [tree.path("link/file")]);
    assert_eq!(spelled(tree.path("real/")), [tree.path("real/file")]);
    assert_eq!(spelled(tree.path("real/../real")), [tree.path("real/../real/file")]);
    assert_eq!(spelled(tree.path("link/file")), [tree.path("link/file")]);
}

#[test]
fn missing_root_is_not_found() {
    let tree = Tree::with_files(&["file"]);
    for missing in ["nothing", "file/below"] {
        let scope = Scope { root: tree.path(missing), ..Scope::default() };
        let answer = find(&tree.view(), &scope, 10, &control());
        assert!(
            matches!(&answer, Err(SearchError::NotFound(path)) if *path == tree.path(missing)),
            "{answer:?}"
        );
    }
}

#[test]
fn limit_is_exact_and_reported_only_if_it_cuts() {
    let tree = Tree::new();
    for n in 0..100 {
        tree.file(&format!("{}/{n}", n % 7), "");
    }
    let scope = Scope { files_only: true, ..tree.scope() };
    for (limit, expected, ending) in [
        (0, 0, SearchEnding::Limit),
        (1, 1, SearchEnding::Limit),
        (99, 99, SearchEnding::Limit),
        (100, 100, SearchEnding::Complete),
    ] {
        let entries = find(&tree.view(), &scope, limit, &control()).expect("an answer");
        assert_eq!((entries.items.len(), entries.ending), (expected, ending), "limit {limit}");
        assert!(entries.items.is_sorted_by(|a, b| a.path < b.path));
    }
}

#[test]
fn limit_above_the_maximum_counts_as_the_maximum() {
    let tree = Tree::new();
    for n in 0..10_001 {
        fs::File::create(tree.root.join(n.to_string())).expect("a file");
    }
    let entries = find(&tree.view(), &tree.scope(), u32::MAX, &control()).expect("an answer");
    assert_eq!((entries.items.len(), entries.ending), (10_000, SearchEnding::Limit));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let tree = Tree::new();
    for n in 0..600 {
        tree.file(&format!("{}/{}/{n}", n % 5, n % 7), "");
    }
    let with = |threads| {
        find(
            &tree.view(),
            &tree.scope(),
            10_000,
            &toolhold_search::Control { threads, ..control() },
        )
        .expect("an answer")
    };
    let alone = with(1);
    assert_eq!(alone.cpu, Duration::ZERO);
    assert_eq!(alone.items.iter().filter(|entry| entry.kind == EntryKind::File).count(), 600);
    for threads in [0, 2, 3, 8] {
        assert_eq!(with(threads).items, alone.items, "{threads} threads");
    }
}
