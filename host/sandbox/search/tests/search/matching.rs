//! The matches of `grep` and `count`, and how they are shown.

use toolhold_search::{Pattern, Scope, SearchEnding, SearchError, grep};

use crate::tree::{NO_SKIPS, Tree, control, pattern};

#[test]
fn lines_have_path_and_number_and_are_sorted() {
    let tree = Tree::new();
    tree.file("b.txt", "one\ntwo needle\n\nneedle three");
    tree.file("a/a.txt", "needle\r\nnothing\r\n");
    tree.file("c.txt", "nothing\n");
    assert_eq!(
        tree.grep_lines("needle"),
        ["a/a.txt:1:needle", "b.txt:2:two needle", "b.txt:4:needle three"]
    );

    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("needle"), 100, &control()).expect("an answer");
    assert_eq!((lines.files_matched, lines.files_searched, lines.skipped), (2, 3, NO_SKIPS));
}

#[test]
fn case_matters_only_if_requested() {
    let tree = Tree::new();
    tree.file("a", "Straße\nSTRASSE\nstraße\n");
    assert_eq!(tree.grep_lines("straße"), ["a:3:straße"]);
    let insensitive = Pattern { case_sensitive: false, ..pattern("straße") };
    let lines =
        grep(&tree.view(), &tree.scope(), &insensitive, 100, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["a:1:Straße", "a:3:straße"]);
}

#[test]
fn anchors_match_at_lines() {
    let tree = Tree::new();
    tree.file("a", "ab\nb\n\nba\n");
    assert_eq!(tree.grep_lines("^b"), ["a:2:b", "a:4:ba"]);
    assert_eq!(tree.grep_lines("b$"), ["a:1:ab", "a:2:b"]);
    assert_eq!(tree.grep_lines("^$"), ["a:3:"]);
}

/// The carriage return before a line end is not shown, so an anchor skips it too. A pattern that
/// names the carriage return finds it.
#[test]
fn line_ends_may_be_crlf() {
    let tree = Tree::new();
    tree.file("a", "ab\r\nb \r\n\r\nb\nc\rd");
    assert_eq!(tree.grep_lines("b$"), ["a:1:ab", "a:4:b"]);
    assert_eq!(tree.grep_lines(r"b\s+$"), ["a:2:b "]);
    assert_eq!(tree.grep_lines("^$"), ["a:3:"]);
    assert_eq!(tree.grep_lines("^b"), ["a:2:b ", "a:4:b"]);
    assert_eq!(tree.grep_lines(r"b\r$"), ["a:1:ab"]);
    assert_eq!(tree.grep_lines(r"^\r$"), ["a:3:"]);
    // A carriage return without a line feed ends a line for anchors only.
    assert_eq!((tree.grep_lines("c$").len(), tree.grep_lines("^d").len()), (1, 1));
    assert_eq!(tree.grep_lines(r"c\r$"), [""; 0]);
    let across = Pattern { multiline: true, ..pattern("b$") };
    let lines = grep(&tree.view(), &tree.scope(), &across, 100, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["a:1:ab", "a:4:b"]);
}

#[test]
fn anchors_hold_across_the_pieces_of_a_search() {
    let tree = Tree::new();
    // Lines of 64 bytes, so that a piece of any size that is a power of two ends at a line end.
    let line = format!("{}\n", "x".repeat(63));
    tree.file("a", line.repeat(4_096) + "y\n\nx");
    assert_eq!(tree.grep_lines("^$"), ["a:4098:"]);
    assert_eq!(tree.grep_lines("^x?$"), ["a:4098:", "a:4099:x"]);
    assert_eq!(tree.count_lines("^x", 10).items[0].1, 4_097);
    assert_eq!(tree.count_lines("", 10).items[0].1, 4_099);
}

#[test]
fn context_surrounds_matches_and_is_marked() {
    let tree = Tree::new();
    tree.file("a", "1\n2\nneedle\n4\n5\n6\nneedle\n8\n");
    let with = |before, after| {
        let pattern = Pattern { before, after, ..pattern("needle") };
        tree.format_lines(
            &grep(&tree.view(), &tree.scope(), &pattern, 100, &control()).expect("an answer"),
        )
    };
    assert_eq!(with(1, 0), ["a-2-2", "a:3:needle", "a-6-6", "a:7:needle"]);
    assert_eq!(with(0, 2), ["a:3:needle", "a-4-4", "a-5-5", "a:7:needle", "a-8-8"]);
    assert_eq!(with(u32::MAX, u32::MAX).len(), 8);
}

#[test]
fn context_is_bounded() {
    let tree = Tree::new();
    tree.file("a", format!("{0}needle\n{0}", "x\n".repeat(500)));
    let pattern = Pattern { before: u32::MAX, after: u32::MAX, ..pattern("needle") };
    let lines = grep(&tree.view(), &tree.scope(), &pattern, 100, &control()).expect("an answer");
    assert_eq!(lines.items.len(), 201);
}

#[test]
fn match_spans_lines_only_if_requested() {
    let tree = Tree::new();
    tree.file("a", "x\nfn a(\n  b,\n)\ny\n");
    assert_eq!(tree.grep_lines(r"fn \w+\(.*\)"), [""; 0]);
    let multiline = Pattern { multiline: true, ..pattern(r"fn \w+\(.*\)") };
    let lines = grep(&tree.view(), &tree.scope(), &multiline, 100, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["a:2:fn a(", "a:3:  b,", "a:4:)"]);
}

#[test]
fn root_that_is_a_file_is_searched_alone() {
    let tree = Tree::new();
    tree.file(".hidden", "needle\n");
    tree.file("other", "needle\n");
    let scope = Scope {
        root: tree.path(".hidden"),
        globs: vec!["*.rs".to_owned()],
        ..tree.default_scope()
    };
    let lines = grep(&tree.view(), &scope, &pattern("needle"), 100, &control()).expect("an answer");
    assert_eq!(lines.items.len(), 1);
    assert_eq!(*lines.items[0].path, tree.path(".hidden"));
}

#[test]
fn invalid_regex_gets_the_explanation_of_the_engine() {
    let tree = Tree::new();
    for (regex, expected) in
        [("a(", "unclosed group"), (r"a\nb", "\\n"), ("(\\w{1000}){1000}", "size")]
    {
        match grep(&tree.view(), &tree.scope(), &pattern(regex), 100, &control()) {
            Err(SearchError::InvalidPattern(why)) => assert!(why.contains(expected), "{why}"),
            other => panic!("{regex}: {other:?}"),
        }
    }
}

#[test]
fn invalid_utf_8_is_found_and_replaced() {
    let tree = Tree::new();
    tree.file("a", b"caf\xe9 needle\n");
    assert_eq!(tree.grep_lines("needle"), ["a:1:caf\u{fffd} needle"]);
}

#[test]
fn utf_16_with_a_byte_order_mark_is_text() {
    let tree = Tree::new();
    let units = "\u{feff}one\nneedle é\n".encode_utf16();
    tree.file("a", units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    assert_eq!(tree.grep_lines("needle"), ["a:2:needle é"]);
}

#[test]
fn long_lines_are_cut_at_characters() {
    let tree = Tree::new();
    tree.file("a", "é".repeat(2_001) + "\n");
    tree.file("b", "漢".repeat(2_000) + "\n");
    tree.file("c", b"\xff".repeat(3_000));
    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("."), 100, &control()).expect("an answer");
    let c = grep(&tree.view(), &tree.scope(), &pattern(r"(?-u)\xff"), 100, &control())
        .expect("an answer");
    let texts: Vec<&str> =
        lines.items.iter().chain(&c.items).map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["é".repeat(2_000), "漢".repeat(2_000), "\u{fffd}".repeat(2_000)]);
}

#[test]
fn binary_files_are_left_out_and_counted() {
    let tree = Tree::new();
    tree.file("text", "needle\n");
    tree.file("binary", b"needle\n\0needle\n");
    // Lines that were found long before a late NUL are kept.
    tree.file("late", [b"needle\n".as_slice(), &b"x\n".repeat(100_000), b"\0needle\n"].concat());
    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("needle"), 100, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["late:1:needle", "text:1:needle"]);
    assert_eq!((lines.skipped.binary, lines.files_searched), (2, 3));
    // A partial count would be wrong.
    let counts = tree.count_lines("needle", 100);
    assert_eq!((counts.items, counts.skipped.binary), (vec![(tree.path("text"), 1)], 2));
}

#[test]
fn limit_counts_matching_lines_exactly() {
    let tree = Tree::new();
    for n in 0..10 {
        tree.file(&format!("{n}"), "needle\ncontext\n".repeat(10));
    }
    for (limit, expected, ending) in [
        (0, 0, SearchEnding::Limit),
        (1, 1, SearchEnding::Limit),
        (99, 99, SearchEnding::Limit),
        (100, 100, SearchEnding::Complete),
    ] {
        let pattern = Pattern { before: 1, after: 1, ..pattern("needle") };
        let lines =
            grep(&tree.view(), &tree.scope(), &pattern, limit, &control()).expect("an answer");
        let matches = lines.items.iter().filter(|line| line.is_match).count();
        assert_eq!((matches, lines.ending), (expected, ending), "limit {limit}");
        assert!(lines.items.is_sorted_by(|a, b| (&a.path, a.number) < (&b.path, b.number)));
        // Context appears only next to its match.
        let lonely = lines.items.iter().enumerate().find(|(at, line)| {
            let neighbour = |at: Option<usize>| {
                at.and_then(|at| lines.items.get(at)).is_some_and(|line| line.is_match)
            };
            !line.is_match && !neighbour(at.checked_sub(1)) && !neighbour(Some(at + 1))
        });
        assert_eq!(lonely, None);
    }
}

#[test]
fn text_of_an_answer_is_bounded() {
    let tree = Tree::new();
    tree.file("a", format!("{}\n", "x".repeat(1_999)).repeat(5_000));
    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("x"), 10_000, &control()).expect("an answer");
    let text: usize = lines.items.iter().map(|line| line.text.len()).sum();
    assert_eq!(lines.ending, SearchEnding::Limit);
    assert!((3 << 20..4 << 20).contains(&text), "{text}");
}

#[test]
fn empty_context_lines_count_as_text() {
    let tree = Tree::new();
    tree.file("a", format!("needle{}", "\n".repeat(101)).repeat(3_000));
    let pattern = Pattern { before: 100, after: 100, ..pattern("needle") };
    let lines = grep(&tree.view(), &tree.scope(), &pattern, 10_000, &control()).expect("an answer");
    assert_eq!(lines.ending, SearchEnding::Limit);
    assert!(lines.items.len() < 131_072, "{}", lines.items.len());
}

#[test]
fn counts_are_matching_lines_per_file() {
    let tree = Tree::new();
    tree.file("a", "needle needle\nneedle\n");
    tree.file("b/c", "needle\n");
    tree.file("d", "nothing\n");
    let counts = tree.count_lines("needle", 10);
    assert_eq!(counts.items, [(tree.path("a"), 2), (tree.path("b/c"), 1)]);
    assert_eq!((counts.files_searched, counts.ending), (3, SearchEnding::Complete));

    let cut = tree.count_lines("needle", 1);
    assert_eq!((cut.items.len(), cut.ending), (1, SearchEnding::Limit));
    assert_eq!(tree.count_lines("needle", 2).ending, SearchEnding::Complete);
}
