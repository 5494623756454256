//! Trees that try to hang a search, to lead it out of the grants, or to use up its memory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use toolhold_search::{Control, EntryKind, Pattern, Scope, SearchEnding, SearchError, find, grep};

use crate::tree::{Tree, control, pattern};

fn fifo(tree: &Tree, path: &str) {
    mknodat(CWD, tree.root.join(path), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

#[test]
fn fifos_and_sockets_are_listed_but_never_opened() {
    let tree = Tree::new();
    tree.file("file", "needle\n");
    fifo(&tree, "fifo");
    fifo(&tree, ".ignore");
    let _socket = UnixListener::bind(tree.root.join("socket")).expect("a socket");

    let lines = grep(
        &tree.view(),
        &Scope { ignore_rules: true, ..tree.scope() },
        &pattern("needle"),
        10,
        &control(),
    )
    .expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["file:1:needle"]);
    assert_eq!(lines.files_searched, 1);

    let entries = find(&tree.view(), &tree.scope(), 10, &control()).expect("an answer");
    let others: Vec<&str> = entries
        .items
        .iter()
        .filter(|entry| entry.kind == EntryKind::Other)
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(others, [tree.path(".ignore"), tree.path("fifo"), tree.path("socket")]);

    let answer = grep(
        &tree.view(),
        &Scope { root: tree.path("fifo"), ..Scope::default() },
        &pattern("x"),
        10,
        &control(),
    );
    assert!(matches!(answer, Err(SearchError::Failed(_))), "{answer:?}");
}

#[test]
fn links_are_listed_but_not_followed() {
    let outside = Tree::new();
    outside.file("secret", "needle\n");
    let tree = Tree::new();
    tree.file("dir/file", "needle\n");
    tree.link("dir/loop", "..");
    tree.link("dir/self", "self");
    tree.link("out", outside.root.to_str().expect("UTF-8"));
    tree.link("out-file", &outside.path("secret"));

    assert_eq!(tree.grep_lines("needle"), ["dir/file:1:needle"]);
    assert_eq!(
        tree.find_paths(&tree.scope()),
        ["dir", "dir/file", "dir/loop", "dir/self", "out", "out-file"]
    );
    for root in ["out", "out-file", "dir/loop/out/secret"] {
        let answer = grep(
            &tree.view(),
            &Scope { root: tree.path(root), ..Scope::default() },
            &pattern("needle"),
            10,
            &control(),
        );
        assert!(matches!(answer, Err(SearchError::Denied(_))), "{root}: {answer:?}");
    }
}

#[test]
fn invalid_utf_8_names_are_searched_and_shown_replaced() {
    let tree = Tree::new();
    let dir = tree.root.join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join(OsStr::from_bytes(b"f\xfe\n")), "needle\n").expect("a file");
    assert_eq!(tree.grep_lines("needle"), ["d\u{fffd}/f\u{fffd}\n:1:needle"]);
}

#[test]
fn unreadable_directories_are_counted() {
    let tree = Tree::new();
    tree.file("open/file", "needle\n");
    tree.file("closed/file", "needle\n");
    fs::set_permissions(tree.root.join("closed"), fs::Permissions::from_mode(0o0)).expect("a mode");
    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("needle"), 10, &control()).expect("an answer");
    fs::set_permissions(tree.root.join("closed"), fs::Permissions::from_mode(0o700))
        .expect("a mode");
    // Root can read everything.
    let expected = if rustix::process::geteuid().is_root() { (2, 0) } else { (1, 1) };
    assert_eq!((lines.items.len(), lines.skipped.unreadable), expected);
}

#[test]
fn depth_of_a_walk_is_bounded() {
    let tree = Tree::new();
    let deep = "d/".repeat(200);
    tree.file(&format!("{deep}file"), "needle\n");
    tree.file("file", "needle\n");
    let lines =
        grep(&tree.view(), &tree.scope(), &pattern("needle"), 10, &control()).expect("an answer");
    assert_eq!(tree.format_lines(&lines), ["file:1:needle"]);
    assert_eq!(lines.skipped.unreadable, 1);
}

#[test]
fn endless_line_is_skipped() {
    let tree = Tree::new();
    let mut huge = b"needle\n".to_vec();
    huge.resize(20 << 20, b'x');
    tree.file("huge", &huge);
    tree.file("small", "needle\n");
    for multiline in [false, true] {
        let pattern = Pattern { multiline, ..pattern("needle") };
        let lines = grep(&tree.view(), &tree.scope(), &pattern, 10, &control()).expect("an answer");
        assert_eq!(lines.skipped.unreadable, 1);
        assert!(tree.format_lines(&lines).contains(&"small:1:needle".to_owned()));
    }
}

#[test]
fn long_line_is_searched() {
    let tree = Tree::new();
    let mut long = vec![b'x'; 1 << 20];
    long.extend_from_slice(b"needle");
    tree.file("long", long);
    assert_eq!(tree.grep_lines("needle$").len(), 1);
}

/// Text that is slow to match with patterns such as `a[ab]{1000}c`. Each `a` may begin a match, so
/// the engine follows it for 1,000 letters. The letters are random, so that the engine's tables
/// don't help.
fn random_letters() -> impl Iterator<Item = u8> {
    let mut seed = 1_u32;
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 31 == 0 { b'a' } else { b'b' }
    })
}

#[test]
fn pattern_too_slow_for_a_long_text_is_given_up() {
    let tree = Tree::new();
    tree.file("slow", random_letters().take(4 << 20).collect::<Vec<u8>>());
    tree.file("quick", "ab\n");
    for multiline in [false, true] {
        let pattern = Pattern { multiline, ..pattern("a[ab]{1000}c|^ab$") };
        let lines = grep(&tree.view(), &tree.scope(), &pattern, 10, &control()).expect("an answer");
        assert_eq!(tree.format_lines(&lines), ["quick:1:ab"]);
        assert_eq!(lines.skipped.unreadable, 1);
    }
}

#[test]
fn every_long_text_goes_through_a_trial() {
    let tree = Tree::new();
    let mut lines = vec![b'-'; 1 << 20];
    lines.push(b'\n');
    lines.extend(random_letters().take(1 << 20));
    tree.file("a", lines);
    // With `multiline` too: the pattern can't span lines, so the two lines are searched one by one.
    for multiline in [false, true] {
        let pattern = Pattern { multiline, ..pattern("a[ab]{4000}c|^b$") };
        let lines = grep(&tree.view(), &tree.scope(), &pattern, 10, &control()).expect("an answer");
        assert_eq!((lines.items.len(), lines.skipped.unreadable), (0, 1));
    }
}

#[test]
fn late_or_cancelled_search_finds_nothing() {
    let tree = Tree::with_files(&["a", "b"]);
    let late = Control { deadline: Instant::now(), ..control() };
    let entries = find(&tree.view(), &tree.scope(), 10, &late).expect("an answer");
    assert_eq!((entries.items.len(), entries.ending), (0, SearchEnding::Deadline));

    let gone = control();
    gone.cancel.cancel();
    let entries = find(&tree.view(), &tree.scope(), 10, &gone).expect("an answer");
    assert_eq!((entries.items.len(), entries.ending), (0, SearchEnding::Cancelled));
}

/// During the searches, names inside the tree are swapped with links to the outside, as fast as
/// possible.
#[test]
fn swapped_directories_and_files_never_lead_out() {
    const SWAPS: usize = 10_000;
    const SEARCHES: usize = 300;
    let outside = Tree::new();
    outside.file("sub/file", "outside needle\n");
    outside.file("sub/outside-only", "outside needle\n");
    // If this file were read, it would hide all files.
    outside.file(".ignore", "*\n");
    let tree = Tree::new();
    for n in 0..5 {
        tree.file(&format!("dir/sub/{n}"), "inside needle\n");
    }
    tree.file("dir/sub/file", "inside needle\n");
    tree.file("file", "inside needle\n");
    tree.link("dir-out", outside.root.to_str().expect("UTF-8"));
    tree.link("sub-out", &outside.path("sub"));
    tree.link("file-out", &outside.path("sub/file"));
    fifo(&tree, "fifo");

    let pairs =
        [("dir", "dir-out"), ("dir/sub", "sub-out"), ("file", "file-out"), ("file", "fifo")];
    let pairs = pairs.map(|(a, b)| (tree.root.join(a), tree.root.join(b)));
    let searched = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !searched.load(Ordering::Relaxed) {
                for (a, b) in &pairs {
                    // Twice, so that the tree is the same afterwards. A swap fails while a name
                    // above is swapped out.
                    for _ in 0..2 {
                        let swapped = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok();
                        swaps.fetch_add(usize::from(swapped), Ordering::Relaxed);
                    }
                }
            }
        });
        let (view, scope) = (tree.view(), Scope { ignore_rules: true, ..tree.scope() });
        let mut inside = 0;
        let mut searches = 0;
        let mut leaks = Vec::new();
        while searches < SEARCHES || swaps.load(Ordering::Relaxed) < SWAPS {
            let lines =
                grep(&view, &scope, &pattern("needle"), 100, &control()).expect("an answer");
            leaks.extend(
                lines
                    .items
                    .iter()
                    .filter(|line| line.text != "inside needle")
                    .map(|line| line.text.clone()),
            );
            inside += lines.items.len();
            let entries = find(&view, &scope, 100, &control()).expect("an answer");
            leaks.extend(
                entries
                    .items
                    .into_iter()
                    .map(|entry| entry.path)
                    .filter(|path| path.ends_with("outside-only")),
            );
            searches += 1;
        }
        searched.store(true, Ordering::Relaxed);
        assert_eq!(leaks, [""; 0]);
        assert!(inside > 0, "nothing was found at all");
    });
}
