//! Random trees and random changes: after an undo, the tree is as it was.

#[path = "../../../../tests/not_tried.rs"]
mod not_tried;
mod random;

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};
use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::*;

struct Scene {
    root: tempfile::TempDir,
    store: UndoStore,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let store = UndoStore::in_folder(root.path().join("undo"), UndoLimits::default());
        fs::create_dir(root.path().join("tree")).expect("a folder is made");
        Self { root, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join("tree").join(name)
    }

    fn journal(&self, call: &str) -> Journal {
        self.store.journal(UndoEntry::new(call, "write", "s", SystemTime::now()), false)
    }
}

fn handle(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).ok()
}

impl Journal {
    /// A path is about to change, found by its name.
    fn before(&self, path: &Path) -> std::io::Result<()> {
        let handles = [Some(path), path.parent()].map(|path| path.and_then(handle));
        self.before_change(&changed(path, &handles))
    }

    fn before_move(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        let [from_handles, to_handles] =
            [from, to].map(|path| [Some(path), path.parent()].map(|path| path.and_then(handle)));
        self.before_rename(&changed(from, &from_handles), &changed(to, &to_handles))
    }
}

fn changed<'a>(path: &'a Path, handles: &'a [Option<OwnedFd>; 2]) -> ChangedPath<'a> {
    let [object, parent] = handles.each_ref().map(|it| it.as_ref().map(AsFd::as_fd));
    ChangedPath { path, object, parent }
}

/// Changes as the path layer makes them: the journal hears of each before.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Append(usize, Vec<u8>),
    Remove(usize),
    MakeDirectory(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Mode(usize, u32),
}

const NAMES: [&str; 9] = ["a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "f", "f/q"];

fn change(scene: &Scene, journal: &Journal, change: &Change) {
    let before = |path: &Path| {
        journal.before(path).expect("it is saved");
    };
    let at = |index: &usize| scene.path(NAMES[*index]);
    // The path layer knows real paths alone.
    let is_real = |path: &Path| {
        path.parent().is_some_and(|parent| fs::symlink_metadata(parent).is_ok_and(|it| it.is_dir()))
    };
    let (Change::Write(one, _)
    | Change::Append(one, _)
    | Change::Remove(one)
    | Change::MakeDirectory(one)
    | Change::Link(one, _)
    | Change::Mode(one, _)
    | Change::Rename(one, _)) = change;
    let other = if let Change::Rename(_, to) = change { to } else { one };
    if !is_real(&at(one)) || !is_real(&at(other)) {
        return;
    }
    match change {
        Change::Write(path, bytes) | Change::Append(path, bytes) => {
            let path = at(path);
            let there = fs::symlink_metadata(&path);
            if there.as_ref().is_ok_and(|there| !there.is_file()) {
                return;
            }
            before(&path);
            let old = match change {
                Change::Append(..) => fs::read(&path).unwrap_or_default(),
                _ => Vec::new(),
            };
            let _ = fs::write(&path, [old.as_slice(), bytes].concat());
        }
        Change::Remove(path) => {
            let path = at(path);
            let Ok(there) = fs::symlink_metadata(&path) else { return };
            before(&path);
            let _ = if there.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
        }
        Change::MakeDirectory(path) => {
            let path = at(path);
            before(&path);
            let _ = fs::create_dir(&path);
        }
        Change::Rename(from, to) => {
            let (from, to) = (at(from), at(to));
            if handle(&from).is_none() || to.starts_with(&from) {
                return;
            }
            journal.before_move(&from, &to).expect("it is saved");
            let _ = fs::rename(&from, &to);
        }
        Change::Link(path, target) => {
            let path = at(path);
            if handle(&path).is_some() {
                return;
            }
            before(&path);
            let _ = symlink(NAMES[*target], &path);
        }
        Change::Mode(path, mode) => {
            let path = at(path);
            if fs::symlink_metadata(&path).is_ok_and(|there| there.is_file()) {
                before(&path);
                let _ = fs::set_permissions(&path, Permissions::from_mode(*mode));
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Change> {
    let name = || 0..NAMES.len();
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        3 => (name(), bytes()).prop_map(|(name, bytes)| Change::Write(name, bytes)),
        1 => (name(), bytes()).prop_map(|(name, bytes)| Change::Append(name, bytes)),
        2 => name().prop_map(Change::Remove),
        2 => name().prop_map(Change::MakeDirectory),
        3 => (name(), name()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (name(), name()).prop_map(|(path, target)| Change::Link(path, target)),
        1 => (name(), prop_oneof![Just(0o600), Just(0o755), Just(0o644)])
            .prop_map(|(name, mode)| Change::Mode(name, mode)),
    ]
}

/// All that can be seen of a tree, times included.
fn seen(root: &Path) -> Vec<(PathBuf, u32, i64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let there = fs::symlink_metadata(&path).expect("it is there");
        let contents = if there.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .expect("it is read")
                    .map(|entry| entry.expect("an entry").path()),
            );
            Vec::new()
        } else if there.is_symlink() {
            fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("it is read")
        };
        all.push((path, there.mode(), there.mtime(), there.mtime_nsec(), contents));
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn undo_gives_back_every_random_change(
        first in proptest::collection::vec(changes(), 0..20),
        second in proptest::collection::vec(changes(), 0..20),
    ) {
        let scene = Scene::new();
        let ignored = scene.journal("1-1");
        first.iter().for_each(|made| change(&scene, &ignored, made));
        let before = seen(&scene.path(""));
        let journal = scene.journal("2-1");
        second.iter().for_each(|made| change(&scene, &journal, made));
        let after = seen(&scene.path(""));
        let saved = journal.finish();
        if saved.is_none() {
            prop_assert_eq!(before, after);
            return Ok(());
        }
        match scene.store.undo("2-1") {
            Ok(_) => prop_assert_eq!(&before, &seen(&scene.path(""))),
            Err(error) => prop_assert!(false, "{error}\n{second:?}"),
        }
    }
}

#[test]
fn later_change_is_merged_or_left_and_the_rest_is_restored() {
    let scene = Scene::new();
    let (text, other) = (scene.path("text"), scene.path("other"));
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    fs::write(&text, lines("1", "9")).expect("it is written");
    fs::write(&other, "old").expect("it is written");
    let journal = scene.journal("3-1");
    for path in [&text, &other] {
        journal.before(path).expect("it is saved");
    }
    fs::write(&text, lines("one", "9")).expect("it is written");
    fs::write(&other, "new").expect("it is written");
    journal.finish().expect("it changed something");

    fs::write(&text, lines("one", "nine")).expect("it is written");
    fs::write(&other, "mine").expect("it is written");
    let plan = scene.store.plan("3-1").expect("it is read");
    let versions = plan.conflicts[0].texts.clone();
    assert_eq!(versions, Some(("mine".to_owned(), "old".to_owned())));
    let left = scene.store.undo("3-1").expect_err("other was changed").to_string();
    assert!(left.contains("other: it was changed since the call"), "{left}");
    assert_eq!(fs::read_to_string(&text).expect("it is there"), lines("1", "nine"));
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "mine");
    assert!(!scene.store.list().expect("it is read")[0].is_next());

    // What is restored is not touched again; one path is restored whatever was changed.
    fs::write(&text, "later").expect("it is written");
    scene.store.undo_only("3-1", Some(&other)).expect("it is restored");
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "old");
    scene.store.undo("3-1").expect("nothing is left");
    assert_eq!(fs::read_to_string(&text).expect("it is there"), "later");
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "old");
    assert!(matches!(scene.store.undo("3-1"), Err(UndoError::AlreadyUndone)));
    assert!(matches!(scene.store.undo("4-1"), Err(UndoError::NotSaved)));
}

#[test]
fn link_in_place_of_a_directory_is_not_followed() {
    let scene = Scene::new();
    let outside = scene.root.path().join("outside");
    fs::create_dir(&outside).expect("a folder is made");
    fs::create_dir(scene.path("d")).expect("a folder is made");
    let file = scene.path("d/file");
    fs::write(&file, "old").expect("it is written");
    let journal = scene.journal("5-1");
    journal.before(&file).expect("it is saved");
    fs::write(&file, "new").expect("it is written");
    journal.finish().expect("it changed something");
    fs::rename(scene.path("d"), scene.path("moved")).expect("it is moved");
    symlink(&outside, scene.path("d")).expect("a link is made");
    scene.store.undo("5-1").expect_err("a link is in the way");
    assert_eq!(fs::read_dir(&outside).expect("it is read").count(), 0);
}

#[test]
fn large_changes_are_lost_with_a_reason_and_old_journals_go() {
    let scene = Scene::new();
    let bounds = UndoLimits { call_bytes: 100, total_bytes: 150, ..UndoLimits::default() };
    let store = UndoStore::in_folder(scene.root.path().join("undo"), bounds);
    let change = |call: &str, bytes: usize| {
        let path = scene.path(call);
        fs::write(&path, vec![b'x'; bytes]).expect("it is written");
        let journal = store.journal(UndoEntry::new(call, "write", "s", SystemTime::now()), false);
        journal.before(&path).expect("it goes on");
        fs::write(&path, vec![0; 2 << 20]).expect("it is written");
        journal.finish().expect("it changed something")
    };
    let lost = change("1-1", 101);
    assert!(lost.lost[0].1.contains("more than 100 bytes"), "{lost:?}");
    store.undo("1-1").expect_err("nothing was saved");
    for call in ["2-1", "2-2", "2-3"] {
        assert_eq!(change(call, 90).bytes, 90);
    }
    let kept: Vec<String> =
        store.list().expect("it is read").into_iter().map(|about| about.call).collect();
    assert_eq!(kept, ["2-3"]);
}

#[test]
fn names_that_are_not_utf_8_are_saved() {
    let scene = Scene::new();
    let [old, new, link] = [&b"\xff old"[..], b"\xfe", b"\xfd"]
        .map(|name| scene.path("").join(std::ffi::OsStr::from_bytes(name)));
    fs::write(&old, "old").expect("it is written");
    symlink(&old, &link).expect("a link is made");
    let before = seen(&scene.path(""));
    let journal = scene.journal("1-1");
    journal.before(&link).expect("it is saved");
    fs::remove_file(&link).expect("it is removed");
    journal.before(&old).expect("it is saved");
    fs::write(&old, "new").expect("it is written");
    journal.before_move(&old, &new).expect("it is saved");
    fs::rename(&old, &new).expect("it is renamed");
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(seen(&scene.path("")), before);
}

#[test]
fn call_that_changed_only_times_is_not_the_next_to_undo() {
    let scene = Scene::new();
    let path = scene.path("file");
    fs::write(&path, "same").expect("it is written");
    let next = |call: &str, change: &dyn Fn()| {
        let journal = scene.journal(call);
        journal.before(&path).expect("it is saved");
        change();
        journal.finish().expect("it changed something");
        scene.store.list().expect("it is read")[0].is_next()
    };
    let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(7);
    assert!(!next("1-1", &|| fs::File::open(&path).unwrap().set_modified(later).unwrap()));
    assert!(!next("2-1", &|| fs::write(&path, "same").unwrap()));
    assert!(next("3-1", &|| fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap()));
    assert!(next("4-1", &|| fs::write(&path, "new").unwrap()));
    assert!(next("5-1", &|| fs::remove_file(&path).unwrap()));
}

#[test]
fn later_change_of_a_binary_file_is_not_merged() {
    let scene = Scene::new();
    let path = scene.path("binary");
    let lines = |first: &str, last: &str| format!("\0{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    fs::write(&path, lines("1", "9")).expect("it is written");
    let journal = scene.journal("1-1");
    journal.before(&path).expect("it is saved");
    fs::write(&path, lines("one", "9")).expect("it is written");
    journal.finish().expect("it changed something");
    fs::write(&path, lines("one", "nine")).expect("it is written");
    let refused = scene.store.undo("1-1").expect_err("its parts don't fit").to_string();
    assert!(refused.contains("binary: it was changed since the call"), "{refused}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), lines("one", "nine"));
}

#[test]
fn two_calls_at_the_same_time_are_undone_to_the_original() {
    let scene = Scene::new();
    let [one, two] = ["f1", "f2"].map(|name| scene.path(name));
    fs::write(&one, "original 1").expect("it is written");
    fs::write(&two, "original 2").expect("it is written");
    let before = seen(&scene.path(""));
    let [first, second] = ["1-1", "2-1"].map(|call| scene.journal(call));
    let write = |journal: &Journal, path: &Path, text: &str| {
        journal.before(path).expect("it is saved");
        fs::write(path, text).expect("it is written");
    };
    write(&first, &two, "A");
    write(&second, &one, "B");
    write(&first, &one, "A");
    first.finish().expect("it changed something");
    write(&second, &two, "B");
    second.finish().expect("it changed something");
    scene.store.undo("2-1").expect("it is undone");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(seen(&scene.path("")), before);
}

/// A change of two names of one file.
type ChangeOfNames<'a> = &'a dyn Fn(&Journal, &Path, &Path);

#[test]
fn names_of_one_file_stay_one_file() {
    let changes: [ChangeOfNames<'_>; 3] = [
        &|journal, one, other| {
            journal.before(one).expect("it is saved");
            fs::remove_file(one).expect("it is removed");
            journal.before(other).expect("it is saved");
            fs::write(other, "new").expect("it is written");
        },
        &|journal, one, other| {
            for path in [one, other] {
                journal.before(path).expect("it is saved");
                fs::remove_file(path).expect("it is removed");
            }
        },
        &|journal, one, _| {
            let aside = one.with_extension("tmp");
            journal.before(&aside).expect("it is saved");
            fs::write(&aside, "new").expect("it is written");
            journal.before_move(&aside, one).expect("it is saved");
            fs::rename(&aside, one).expect("it is renamed");
        },
    ];
    for change in changes {
        let scene = Scene::new();
        let [one, other] = ["one", "other"].map(|name| scene.path(name));
        fs::write(&one, "old").expect("it is written");
        fs::hard_link(&one, &other).expect("it gets a name");
        let journal = scene.journal("1-1");
        change(&journal, &one, &other);
        journal.finish().expect("it changed something");
        scene.store.undo("1-1").expect("it is undone");
        let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
        assert_eq!(inode(&one), inode(&other));
        assert_eq!(fs::read_to_string(&one).expect("it is there"), "old");
    }
}

#[test]
fn file_comes_back_from_a_directory_that_the_call_made_and_removed() {
    let scene = Scene::new();
    let (file, folder) = (scene.path("file"), scene.path("made"));
    fs::write(&file, "mine").expect("it is written");
    let before = seen(&scene.path(""));
    let journal = scene.journal("1-1");
    journal.before(&folder).expect("it is saved");
    fs::create_dir(&folder).expect("it is made");
    let inside = folder.join("file");
    journal.before_move(&file, &inside).expect("it is saved");
    fs::rename(&file, &inside).expect("it is moved");
    journal.before(&inside).expect("it is saved");
    fs::remove_file(&inside).expect("it is removed");
    journal.before(&folder).expect("it is saved");
    fs::remove_dir(&folder).expect("it is removed");
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(seen(&scene.path("")), before);
}

#[test]
fn call_without_approval_drops_nothing_of_the_last_day() {
    let scene = Scene::new();
    let bounds = UndoLimits { call_bytes: 100, total_bytes: 150, ..UndoLimits::default() };
    let store = UndoStore::in_folder(scene.root.path().join("undo"), bounds);
    let change = |call: &str, relies: bool| {
        let path = scene.path(call);
        fs::write(&path, [b'x'; 90]).expect("it is written");
        let journal = store.journal(UndoEntry::new(call, "write", "s", SystemTime::now()), relies);
        let saved = journal.before(&path);
        if saved.is_ok() {
            fs::remove_file(&path).expect("it is removed");
        }
        journal.finish();
        saved.map_err(|_| journal.refused().expect("the reason").1)
    };
    change("1-1", true).expect("there is room");
    let refused = change("2-1", true).expect_err("there is no room");
    assert!(refused.contains("max_mib"), "{refused}");
    store.plan("1-1").expect("it is saved still");
    change("3-1", false).expect("a person approved it");
    assert!(matches!(store.plan("1-1"), Err(UndoError::NotSaved)));
}
