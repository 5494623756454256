//! Entries that are left out: by ignore files, with ripgrep's meaning, and by the operator's rules.

use std::time::{Duration, Instant};

use toolhold_search::{Scope, SearchEnding, SearchError, count, find, grep};

use crate::tree::{NO_SKIPS, Tree, control, pattern};

#[test]
fn hidden_entries_are_left_out_unless_requested() {
    let tree = Tree::with_files(&["a", ".b", ".c/d", ".github/workflows/ci.yml", ".git/config"]);
    assert_eq!(tree.find_paths(&tree.default_scope()), ["a"]);
    let with = |glob: &str| {
        tree.find_paths(&Scope { globs: vec![glob.to_owned()], ..tree.default_scope() })
    };
    assert_eq!(with("**"), ["a"]);
    assert_eq!(with(".github/**"), [".github/workflows/ci.yml"]);
    assert_eq!(with(".b*"), [".b"]);

    tree.file(".ignore", "!.c\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), [".c/d", "a"]);
}

#[test]
fn gitignore_applies_inside_a_repository_only() {
    let tree = Tree::with_files(&["a.log", "a.txt", "target/x", "sub/target/y"]);
    tree.file(".gitignore", "*.log\ntarget/\n");
    assert_eq!(
        tree.find_paths(&tree.default_scope()),
        ["a.log", "a.txt", "sub/target/y", "target/x"]
    );
    tree.file(".git/HEAD", "");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["a.txt"]);
}

#[test]
fn without_ignore_rules_nothing_is_left_out() {
    let tree = Tree::with_files(&[".git/HEAD", "a.log"]);
    tree.file(".gitignore", "*.log\n");
    let scope = Scope { ignore_rules: false, ..tree.default_scope() };
    assert_eq!(tree.find_paths(&scope), [".git/HEAD", ".gitignore", "a.log"]);
}

#[test]
fn deeper_ignore_files_win_and_lines_can_be_negated() {
    let tree = Tree::with_files(&[".git/", "a.log", "keep.log", "sub/a.log", "sub/b.txt"]);
    tree.file(".gitignore", "*.log\n!keep.log\n# a comment\n\n");
    tree.file("sub/.gitignore", "!a.log\n/b.txt\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["keep.log", "sub/a.log"]);
}

#[test]
fn entries_of_an_ignored_directory_stay_ignored() {
    let tree = Tree::with_files(&[".git/", "build/out.txt", "src/build"]);
    tree.file(".gitignore", "build/\n!out.txt\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["src/build"]);
}

#[test]
fn anchored_line_is_relative_to_its_file() {
    let tree = Tree::with_files(&[".git/", "out/x", "sub/out/x", "sub/deep/out/x"]);
    tree.file("sub/.gitignore", "/out\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["out/x", "sub/deep/out/x"]);
}

#[test]
fn dot_ignore_applies_everywhere_and_before_a_gitignore() {
    let tree = Tree::with_files(&["a.log", "b.tmp", "sub/a.log"]);
    tree.file(".ignore", "*.log\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["b.tmp"]);
    // The .ignore above goes before the deeper .gitignore too.
    tree.file(".git/HEAD", "");
    tree.file("sub/.gitignore", "!a.log\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["b.tmp"]);
    tree.file(".ignore", "!*.log\n");
    tree.file(".gitignore", "*.log\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["a.log", "b.tmp", "sub/a.log"]);
}

#[test]
fn excludes_of_a_repository_apply_after_its_gitignore() {
    let tree = Tree::with_files(&["a.log", "b.tmp", "c.txt"]);
    tree.file(".git/info/exclude", "*.log\n*.tmp\n");
    tree.file(".gitignore", "!b.tmp\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["b.tmp", "c.txt"]);
}

#[test]
fn inner_repository_ignores_rules_of_the_outer_one() {
    let tree = Tree::with_files(&[".git/", "inner/.git/", "a.log", "inner/a.log"]);
    tree.file(".gitignore", "*.log\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["inner/a.log"]);
}

#[test]
fn ignore_files_between_the_grant_and_the_root_apply() {
    let tree = Tree::with_files(&[".git/", "sub/deep/a.log", "sub/deep/b.tmp", "sub/deep/c.txt"]);
    tree.file(".gitignore", "*.log\n");
    tree.file("sub/.ignore", "*.tmp\n");
    let scope = Scope { root: tree.path("sub/deep"), ..tree.default_scope() };
    assert_eq!(tree.find_paths(&scope), ["sub/deep/c.txt"]);
    // No file outside of the grants affects a search.
    let narrow = find(&tree.view_of("sub", &[], &[]), &scope, 10, &control()).expect("an answer");
    assert_eq!(tree.relative_paths(&narrow), ["sub/deep/a.log", "sub/deep/c.txt"]);
}

#[test]
fn root_is_never_ignored_itself() {
    let tree = Tree::with_files(&[".git/", "target/a", ".hidden/b"]);
    tree.file(".gitignore", "target/\n");
    for (root, expected) in
        [("target", "target/a"), (".hidden", ".hidden/b"), ("target/a", "target/a")]
    {
        assert_eq!(
            tree.find_paths(&Scope { root: tree.path(root), ..tree.default_scope() }),
            [expected]
        );
    }
}

#[test]
fn byte_order_mark_and_windows_line_ends_do_not_matter() {
    let tree = Tree::with_files(&["a.log", "b.txt"]);
    tree.file(".ignore", "\u{feff}*.log\r\n");
    assert_eq!(tree.find_paths(&tree.default_scope()), ["b.txt"]);
}

#[test]
fn linked_huge_or_denied_ignore_files_have_no_effect() {
    let tree = Tree::with_files(&["a/x", "b/x", "c/x"]);
    tree.file("elsewhere", "x\n");
    tree.link("a/.ignore", "../elsewhere");
    let mut huge = b"x\n".to_vec();
    huge.resize((1 << 20) + 1, b'\n');
    tree.file("b/.ignore", huge);
    tree.file("c/.ignore", "x\n");
    let scope = Scope { globs: vec!["x".to_owned()], ..tree.default_scope() };
    assert_eq!(tree.find_paths(&scope), ["a/x", "b/x"]);
    let denied =
        find(&tree.view_of("", &["c/.ignore"], &[]), &scope, 10, &control()).expect("an answer");
    assert_eq!(tree.relative_paths(&denied), ["a/x", "b/x", "c/x"]);
}

/// As they were compiled once, these lines took 20 ms for each name.
#[test]
fn lines_that_cost_too_much_are_left_out_and_the_others_hold() {
    let many: String = (0..3_000).map(|number| format!("**a**b**{number}**a**b**\n")).collect();
    let long = format!("{}c\n", "**a**b".repeat(600)).repeat(100);
    // These are within the bounds on size.
    let slow: String = (0..900).map(|number| format!("**a**b**a**b{number}z**\n")).collect();
    for (lines, are_too_large) in [(many, true), (long, true), (slow, false)] {
        let tree = Tree::with_files(&[".git/", "plain/x"]);
        for number in 0..1_500 {
            tree.file(&format!("{}/abab{}/{number}.rs", "ab".repeat(60), number % 13), "");
        }
        tree.file(".gitignore", format!("plain/\n{lines}[0-9]*.rs\n"));
        let begun = Instant::now();
        let found = find(&tree.view(), &tree.default_scope(), 10_000, &control()).expect("found");
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(found.ending, SearchEnding::Complete);
        let paths = tree.relative_paths(&found);
        assert!(paths.iter().all(|path| path.ends_with(".rs")), "the plain line holds");
        // A fast machine may be done before the time is over.
        assert_eq!(found.skipped.unreadable == 0, paths.is_empty(), "it is said");
        assert!(!are_too_large || paths.len() == 1_500, "{paths:?}");
    }
}

/// To read them would need more stack than there is.
#[test]
fn nested_braces_end_nothing() {
    let deep = |count: usize| format!("{}a{}", "{".repeat(count), "}".repeat(count));
    let tree = Tree::with_files(&[".git/", "a.log", "b.rs"]);
    tree.file(".gitignore", format!("{}\n*.log\n", deep(400_000)));
    assert_eq!(tree.find_paths(&tree.default_scope()), ["b.rs"]);
    let scope = Scope { globs: vec![deep(32_000)], ..tree.default_scope() };
    let refused = find(&tree.view(), &scope, 10, &control());
    assert!(matches!(refused, Err(SearchError::InvalidPattern(_))), "{refused:?}");
}

/// No folder's file costs much, and together they would.
#[test]
fn time_of_all_ignore_files_together_is_bounded() {
    let tree = Tree::with_files(&[".git/"]);
    let lines: String = (0..900).map(|number| format!("**a**b**{number}**a**b**\n")).collect();
    for number in 0..150 {
        tree.file(&format!("{number}/.gitignore"), &lines);
        tree.file(&format!("{number}/{}.rs", "ab".repeat(60)), "");
    }
    let begun = Instant::now();
    let found = find(&tree.view(), &tree.default_scope(), 10_000, &control()).expect("found");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!((found.ending, found.items.len()), (SearchEnding::Complete, 150));
    // How many depends on the machine.
    assert!(found.skipped.unreadable > 0, "{:?}", found.skipped);
}

#[test]
fn nothing_is_left_out_of_a_large_usual_file() {
    let tree = Tree::with_files(&[".git/", "a.l499c", "build499/x.tmp", "kept/a.c"]);
    let lines = (0..500).map(|number| format!("*.l{number}[cod]\nbuild{number}/*.tmp\n"));
    tree.file(".gitignore", lines.collect::<String>());
    for number in 0..2_000 {
        tree.file(&format!("build{}/{number}.tmp", number % 500), "");
    }
    assert_eq!(tree.find_paths(&tree.default_scope()), ["kept/a.c"]);
    let found = find(&tree.view(), &tree.default_scope(), 10, &control()).expect("found");
    assert_eq!(found.skipped, NO_SKIPS);
}

#[test]
fn denied_entries_are_counted_and_not_shown() {
    let tree = Tree::new();
    for path in ["a.txt", ".env", "sub/.env", "secrets/one", "secrets/two", "sub/b.txt"] {
        tree.file(path, "needle\n");
    }
    let view = tree.view_of("", &[".env", "secrets/**"], &[]);
    let entries = find(&view, &tree.scope(), 100, &control()).expect("an answer");
    assert_eq!(tree.relative_paths(&entries), ["a.txt", "sub", "sub/b.txt"]);
    // A directory counts once, with everything in it.
    assert_eq!(entries.skipped.denied, 3);

    let lines = grep(&view, &tree.scope(), &pattern("needle"), 100, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["a.txt:1:needle", "sub/b.txt:1:needle"]);
    assert_eq!((lines.files_searched, lines.skipped.denied), (2, 3));

    let counts =
        count(&view, &tree.scope(), &pattern("needle"), 100, &control()).expect("an answer");
    assert_eq!(counts.items.len(), 2);
    assert_eq!(counts.skipped.denied, 3);
}

#[test]
fn allow_read_limits_results_to_matching_files() {
    let tree = Tree::with_files(&["src/a.rs", "src/a.md", "docs/b.md"]);
    let entries = find(
        &tree.view_of("", &[], &["*.rs"]),
        &Scope { files_only: true, ..tree.scope() },
        100,
        &control(),
    )
    .expect("an answer");
    assert_eq!(tree.relative_paths(&entries), ["src/a.rs"]);
    assert_eq!(entries.skipped.denied, 2);
}

#[test]
fn unwanted_denied_entries_are_not_counted() {
    let tree = Tree::with_files(&["a.rs", ".env"]);
    let scope = Scope { globs: vec!["*.rs".to_owned()], ..tree.scope() };
    let entries =
        find(&tree.view_of("", &[".env"], &[]), &scope, 100, &control()).expect("an answer");
    assert_eq!(
        (tree.relative_paths(&entries), entries.skipped),
        (vec!["a.rs".to_owned()], NO_SKIPS)
    );
}

#[test]
fn denied_root_names_the_rule() {
    let tree = Tree::with_files(&["secrets/a", "sub/"]);
    let answer = |below: &str, root: &str| {
        let view = tree.view_of(below, &["secrets/**"], &[]);
        find(&view, &Scope { root: root.to_owned(), ..Scope::default() }, 100, &control())
    };
    match answer("", &tree.path("secrets")) {
        Err(SearchError::Denied(denial)) => assert_eq!(denial.rule, "deny_read = \"secrets/**\""),
        other => panic!("{other:?}"),
    }
    for outside in [
        tree.path(""),
        tree.path("sub/../secrets"),
        "/".to_owned(),
        "/etc".to_owned(),
        "relative".to_owned(),
    ] {
        let answer = answer("sub", &outside);
        assert!(matches!(&answer, Err(SearchError::Denied(_))), "{outside}: {answer:?}");
    }
}
