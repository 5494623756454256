//! Random trees and random changes: after an undo, the tree is as it was.

mod another;
#[path = "../../../../../tests/not_tried.rs"]
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
    assert!(left.contains("other: it was changed after the call"), "{left}");
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
    assert!(refused.contains("binary: it was changed after the call"), "{refused}");
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

#[test]
fn file_that_another_call_changes_by_another_name_is_refused() {
    let scene = Scene::new();
    let [one, other] = ["one", "other"].map(|name| scene.path(name));
    fs::write(&one, "mine").expect("it is written");
    fs::hard_link(&one, &other).expect("it is linked");
    let journal =
        |call| scene.store.journal(UndoEntry::new(call, "write", "s", SystemTime::now()), true);
    let [first, second] = ["1-1", "2-1"].map(journal);
    let object = [handle(&one), None];
    first.before_change(&changed(&one, &object)).expect("it is saved");
    second.before_change(&changed(&one, &object)).expect("it is saved: the name is the same");
    second.before_change(&changed(&other, &object)).expect_err("the name is another one");
    assert_eq!(second.refused().expect("it was refused").0, other);
    first.finish();
    second.before_change(&changed(&other, &object)).expect("the other call has ended");
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

#[test]
fn undo_of_two_calls_in_the_order_they_ran_leaves_nothing_of_the_first() {
    let scene = Scene::new();
    let path = scene.path("file");
    let first = scene.journal("1-1");
    first.before(&path).expect("it is saved");
    fs::write(&path, "first").expect("it is written");
    first.finish().expect("it changed something");
    let second = scene.journal("2-1");
    second.before(&path).expect("it is saved");
    fs::remove_file(&path).expect("it is removed");
    second.finish().expect("it changed something");
    scene.store.undo("1-1").expect("the file is gone already");
    scene.store.undo("2-1").expect("it is undone");
    assert!(!path.exists());
}

#[test]
fn removal_of_a_file_that_is_new_after_an_undo_is_undone() {
    let scene = Scene::new();
    let path = scene.path("file");
    let first = scene.journal("1-1");
    first.before(&path).expect("it is saved");
    fs::write(&path, "first").expect("it is written");
    first.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    fs::write(&path, "mine").expect("it is written");
    let second = scene.journal("2-1");
    second.before(&path).expect("it is saved");
    fs::remove_file(&path).expect("it is removed");
    second.finish().expect("it changed something");
    scene.store.undo("2-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
}

#[test]
fn file_of_the_user_replaces_what_a_later_call_made_in_a_cache() {
    let scene = Scene::new();
    let root = scene.path("").components().collect::<PathBuf>();
    random::make(&root, &mut random::Random(1));
    let path = root.join("target/mine");
    fs::write(&path, "mine").expect("it is written");
    let (journal, commands) = random::recorder(&scene.store, "1-1");
    random::remove(&commands, &path).expect("it is removed");
    drop(commands);
    journal.finish().expect("it changed something");
    let (journal, commands) = random::recorder(&scene.store, "2-1");
    random::write(&commands, &path, b"made", false).expect("it is written");
    drop(commands);
    assert_eq!(journal.finish(), None, "what calls make in a cache isn't saved");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
}

#[test]
fn file_that_is_a_mount_comes_back() {
    let mount = "echo old > \"$1/file\" && mount --bind \"$1/file\" \"$1/file\"";
    let Some(folder) = random::mounted(mount, "file_that_is_a_mount_comes_back") else { return };
    let scene = Scene::new();
    let path = folder.join("file");
    let journal = scene.journal("1-1");
    journal.before(&path).expect("it is saved");
    fs::write(&path, "new").expect("it is written");
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "old\n");
    fs::remove_file(&path).expect_err("it is a mount");
}

#[test]
fn file_with_several_names_is_whole_on_a_full_disk() {
    let test = "file_with_several_names_is_whole_on_a_full_disk";
    let Some(disk) = random::mounted(random::SMALL_DISK, test) else { return };
    let store = UndoStore::in_folder(disk.join("undo"), UndoLimits::default());
    let [one, other, filler] = ["one", "other", "filler"].map(|name| disk.join(name));
    let old = vec![b'o'; 300 << 10];
    fs::write(&one, &old).expect("it is written");
    fs::hard_link(&one, &other).expect("it gets a name");
    let journal = store.journal(UndoEntry::new("1-1", "write", "s", SystemTime::now()), true);
    journal.before(&one).expect("it is saved");
    fs::write(&one, "new").expect("it is written");
    journal.finish().expect("it changed something");
    random::fill(&filler);
    store.undo("1-1").expect_err("there is no room");
    assert_eq!(fs::read(&other).expect("it is there"), b"new");
    fs::remove_file(&filler).expect("it is removed");
    store.undo("1-1").expect("there is room");
    assert_eq!(fs::read(&other).expect("it is there"), old);
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    assert_eq!(inode(&one), inode(&other));
}

#[test]
fn owner_of_a_link_comes_back() {
    if !random::is_root() {
        return;
    }
    let scene = Scene::new();
    let path = scene.path("link");
    symlink("anywhere", &path).expect("a link is made");
    std::os::unix::fs::lchown(&path, Some(65_534), Some(65_534)).expect("root may");
    let journal = scene.journal("1-1");
    journal.before(&path).expect("it is saved");
    fs::remove_file(&path).expect("it is removed");
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::symlink_metadata(&path).expect("it is there").uid(), 65_534);
}

#[test]
fn permission_that_a_killed_undo_gave_is_taken_back_by_the_next() {
    let scene = Scene::new();
    let (file, other) = (scene.path("file"), scene.path("other"));
    fs::write(&file, "old").expect("it is written");
    let journal = scene.journal("1-1");
    journal.before(&file).expect("it is saved");
    fs::write(&file, "new").expect("it is written");
    journal.finish().expect("it changed something");
    fs::write(&other, "").expect("it is written");
    fs::set_permissions(&other, Permissions::from_mode(0o000)).expect("it is set");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    let store = scene.root.path().join("undo");
    let call = fs::read_dir(store).expect("it is read").map(|entry| entry.expect("one").path());
    let call = call.into_iter().find(|path| path.join("journal.jsonl").exists());
    let folder =
        toolhold_data_dir::PrivateFolder::open(&call.expect("it is saved")).expect("it opens");
    let access = given::access_for(&folder);
    let object = handle(&other).expect("it is there");
    access.give_file(object.as_fd()).expect("its owner may");
    assert_eq!(mode(&other), 0o600);
    // As if the process were killed here.
    std::mem::forget(access);
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(mode(&other), 0);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "old");
}

/// A call, and what it does.
type TestCall<'a> = (&'a str, &'a dyn Fn(&Journal));

/// Calls that end one after the other.
fn calls(scene: &Scene, each: &[TestCall<'_>]) {
    for (call, act) in each {
        let journal = scene.journal(call);
        act(&journal);
        journal.finish().expect("it changed something");
    }
}

fn moved(journal: &Journal, from: &Path, to: &Path) {
    journal.before_move(from, to).expect("it is saved");
    fs::rename(from, to).expect("it is moved");
}

#[test]
fn what_a_refused_call_left_to_another_is_not_brought_back() {
    let scene = Scene::new();
    let path = scene.path("file");
    fs::write(&path, "mine").expect("it is written");
    let [first, second] = ["1-1", "2-1"].map(|call| scene.journal(call));
    first.before(&path).expect("it is saved");
    fs::remove_file(&path).expect("it is removed");
    second.before(&path).expect("it is saved");
    fs::write(&path, "second").expect("it is written");
    first.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    scene.store.set_aside("1-1");
    second.finish().expect("it changed something");
    scene.store.undo("2-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
    let listed: Vec<String> =
        scene.store.list().expect("it is read").into_iter().map(|about| about.call).collect();
    assert_eq!(listed, ["2-1"]);
}

#[test]
fn move_that_failed_before_it_was_made_is_undone() {
    let scene = Scene::new();
    let [from, to] = ["from", "to"].map(|name| scene.path(name));
    let file = from.join("file");
    fs::create_dir(&from).expect("a folder is made");
    fs::write(&file, "mine").expect("it is written");
    fs::write(&to, "in the way").expect("it is written");
    let before = seen(&scene.path(""));
    let change = |journal: &Journal| {
        journal.before_move(&from, &to).expect("it is saved");
        fs::rename(&from, &to).expect_err("a directory doesn't replace a file");
        journal.before(&file).expect("it is saved");
        fs::write(&file, "changed").expect("it is written");
        journal.before(&to).expect("it is saved");
        fs::remove_file(&to).expect("it is removed");
        moved(journal, &from, &to);
    };
    calls(&scene, &[("1-1", &change)]);
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(seen(&scene.path("")), before);
}

#[test]
fn what_a_later_call_changed_of_a_moved_file_is_undone_first() {
    let scene = Scene::new();
    let (one, other) = (scene.path("one"), scene.path("other"));
    fs::write(&one, "precious").expect("it is written");
    let remove = |journal: &Journal| {
        journal.before(&other).expect("it is saved");
        fs::remove_file(&other).expect("it is removed");
    };
    calls(&scene, &[("1-1", &|journal| moved(journal, &one, &other)), ("2-1", &remove)]);
    let left = scene.store.undo("1-1").expect_err("the file is gone").to_string();
    assert!(left.contains("another call has changed it since"), "{left}");
    scene.store.undo("2-1").expect("it is undone");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&one).expect("it is there"), "precious");
    assert!(!other.exists());
}

#[test]
fn what_a_later_call_moved_is_undone_first() {
    let scene = Scene::new();
    let (one, other) = (scene.path("one"), scene.path("other"));
    let make = |journal: &Journal| {
        journal.before(&one).expect("it is saved");
        fs::write(&one, "made").expect("it is written");
    };
    calls(&scene, &[("1-1", &make), ("2-1", &|journal| moved(journal, &one, &other))]);
    let left = scene.store.undo("1-1").expect_err("it is elsewhere").to_string();
    assert!(left.contains("another call has moved it since"), "{left}");
    scene.store.undo("2-1").expect("it is undone");
    scene.store.undo("1-1").expect("it is undone");
    assert!(!one.exists() && !other.exists());
}

#[test]
fn directory_stays_moved_while_something_in_it_is_left() {
    let scene = Scene::new();
    let [from, to] = ["from", "to"].map(|name| scene.path(name));
    fs::create_dir(&from).expect("a folder is made");
    fs::write(from.join("file"), "old").expect("it is written");
    let change = |journal: &Journal| {
        moved(journal, &from, &to);
        journal.before(&to.join("file")).expect("it is saved");
        fs::write(to.join("file"), "new").expect("it is written");
    };
    calls(&scene, &[("1-1", &change)]);
    fs::write(to.join("file"), "mine").expect("it is written");
    scene.store.undo("1-1").expect_err("the file was changed");
    scene.store.undo_only("1-1", Some(&to.join("file"))).expect("it is restored");
    scene.store.undo("1-1").expect("nothing is left");
    assert_eq!(fs::read_to_string(from.join("file")).expect("it is there"), "old");
    assert!(!to.exists());
}

#[test]
fn move_that_is_in_the_way_of_another_one_waits_for_it() {
    let scene = Scene::new();
    let [a, b, n] = ["a", "b", "n"].map(|name| scene.path(name));
    fs::create_dir_all(b.join("d")).expect("folders are made");
    fs::create_dir(&a).expect("a folder is made");
    let change = |journal: &Journal| {
        moved(journal, &b, &a.join("c"));
        moved(journal, &a, &n);
    };
    calls(&scene, &[("1-1", &change)]);
    fs::create_dir(&a).expect("a folder is made");
    scene.store.undo("1-1").expect_err("something is in the way");
    assert!(n.join("c/d").is_dir() && !b.exists());
    fs::remove_dir(&a).expect("it is removed");
    scene.store.undo("1-1").expect("it is undone");
    assert!(b.join("d").is_dir() && a.is_dir() && !a.join("c").exists() && !n.exists());
}

#[test]
fn call_that_runs_is_not_undone() {
    let scene = Scene::new();
    let path = scene.path("file");
    fs::write(&path, "old").expect("it is written");
    let journal = scene.journal("1-1");
    journal.before(&path).expect("it is saved");
    fs::write(&path, "new").expect("it is written");
    assert!(matches!(scene.store.undo("1-1"), Err(UndoError::Running)));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
}

#[test]
fn later_contents_of_another_name_stay() {
    let scene = Scene::new();
    let [one, other] = ["one", "other"].map(|name| scene.path(name));
    fs::write(&one, "old").expect("it is written");
    fs::hard_link(&one, &other).expect("it gets a name");
    let remove = |journal: &Journal| {
        journal.before(&one).expect("it is saved");
        fs::remove_file(&one).expect("it is removed");
    };
    calls(&scene, &[("1-1", &remove)]);
    fs::write(&other, "mine").expect("it is written");
    scene.store.undo("1-1").expect("it is undone");
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    assert_eq!(inode(&one), inode(&other));
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "mine");
}

#[test]
fn later_permissions_stay() {
    let scene = Scene::new();
    let (file, folder) = (scene.path("file"), scene.path("folder"));
    fs::write(&file, "old").expect("it is written");
    fs::create_dir(&folder).expect("a folder is made");
    let change = |journal: &Journal| {
        journal.before(&file).expect("it is saved");
        fs::write(&file, "new").expect("it is written");
        journal.before(&folder.join("made")).expect("it is saved");
        fs::write(folder.join("made"), "").expect("it is written");
    };
    calls(&scene, &[("1-1", &change)]);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("they are set");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("they are set");
    scene.store.undo("1-1").expect("it is undone");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "old");
    assert!(!folder.join("made").exists());
}

#[test]
fn file_of_the_user_that_got_a_name_in_a_cache_is_saved() {
    let scene = Scene::new();
    let root = scene.path("").components().collect::<PathBuf>();
    random::make(&root, &mut random::Random(1));
    let (own, name) = (root.join("own"), root.join("target/name"));
    fs::write(&own, "mine").expect("it is written");
    let old = SystemTime::now() + std::time::Duration::from_secs(1);
    let about = UndoEntry::new("1-1", "bash", "s", old);
    let journal = std::sync::Arc::new(scene.store.journal(about, true));
    let rules = SaveRules { required: true, call_bytes: 1 << 20 };
    let commands = CommandJournal::new(std::sync::Arc::clone(&journal), rules, None, true);
    let parent = handle(&root.join("target"));
    commands.before_change(&changed(&name, &[None, parent])).expect("it goes on");
    fs::hard_link(&own, &name).expect("it gets a name");
    random::write(&commands, &name, b"made", false).expect("it is written");
    drop(commands);
    journal.finish().expect("it changed something");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&own).expect("it is there"), "mine");
}

/// The other name can't be found, and the kept file isn't there.
#[test]
fn file_with_several_names_that_cannot_be_kept_is_written_or_loses_a_name() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        not_tried::not_tried("/dev/shm");
        return;
    };
    let scene = Scene::new();
    let store = UndoStore::in_folder(elsewhere.path().join("undo"), UndoLimits::default());
    let (file, folder) = (scene.path("file"), scene.path("folder"));
    fs::create_dir(&folder).expect("it is made");
    for (number, first) in ["write", "remove"].into_iter().enumerate() {
        fs::write(&file, "old").expect("it is written");
        let (other, third) = (folder.join(first), scene.path("third"));
        fs::hard_link(&file, &other).expect("it is linked");
        fs::hard_link(&file, &third).expect("it is linked");
        let (journal, commands) = random::recorder(&store, &format!("{number}-1"));
        let write = || random::write(&commands, &third, b"new", false).is_some();
        let remove = || random::remove(&commands, &file).is_some();
        let done = match first {
            "write" => [write(), remove()],
            _ => [remove(), write()],
        };
        assert_eq!(done, [true, false], "{first}");
        assert!(journal.refused().is_some_and(|(_, why)| why.contains("file system")), "{first}");
        drop(commands);
        journal.finish();
        store.undo(&format!("{number}-1")).expect("it is undone");
        for path in [&file, &third, &other] {
            assert_eq!(fs::read_to_string(path).expect("it is there"), "old", "{path:?}");
        }
        fs::remove_file(&file).expect("it is removed");
        fs::remove_file(&third).expect("it is removed");
    }
}

/// A later undo of another call brings back what the first left.
#[test]
fn name_whose_file_was_changed_by_another_call_waits_for_its_undo() {
    let scene = Scene::new();
    let (file, other) = (scene.path("file"), scene.path("other"));
    fs::write(&file, "good").expect("it is written");
    fs::hard_link(&file, &other).expect("it is linked");
    let (journal, commands) = random::recorder(&scene.store, "1-1");
    random::write(&commands, &file, b"bad", false).expect("it is written");
    random::remove(&commands, &file).expect("it is removed");
    drop(commands);
    journal.finish();
    let (journal, commands) = random::recorder(&scene.store, "2-1");
    random::write(&commands, &other, b"more", true).expect("it is written");
    drop(commands);
    journal.finish();
    let left = scene.store.undo("1-1").expect_err("its contents are another call's");
    assert!(left.to_string().contains("under another name"), "{left}");
    scene.store.undo("2-1").expect("it is undone");
    scene.store.undo("1-1").expect("it is undone");
    for path in [&file, &other] {
        assert_eq!(fs::read_to_string(path).expect("it is there"), "good");
    }
}

#[test]
fn later_contents_stay_where_the_call_changed_only_permissions() {
    let scene = Scene::new();
    let file = scene.path("file");
    fs::write(&file, "old").expect("it is written");
    let mode = || fs::metadata(&file).expect("it is there").mode() & 0o777;
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("it is set");
    let journal = scene.journal("1-1");
    journal.before(&file).expect("it is saved");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is set");
    journal.finish().expect("it changed something");
    fs::write(&file, "mine").expect("it is written");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!((mode(), fs::read_to_string(&file).expect("it is there")), (0o644, "mine".into()));
}

#[test]
fn fix_for_a_path_can_be_pasted() {
    for (name, quoted) in [("it's", "it's\""), ("a\nb", "\\x0ab'")] {
        let scene = Scene::new();
        let file = scene.path(name);
        fs::write(&file, [0, 1]).expect("it is written");
        let journal = scene.journal("1-1");
        journal.before(&file).expect("it is saved");
        fs::write(&file, [0, 2]).expect("it is written");
        journal.finish().expect("it changed something");
        fs::write(&file, [0, 3]).expect("it is written");
        let left = scene.store.undo("1-1").expect_err("it was changed since").to_string();
        assert!(left.contains(&format!("{quoted} 1-1")), "{left}");
    }
}

/// The name is saved twice: before and after a move.
#[test]
fn later_contents_stay_when_a_name_is_given_back_twice() {
    let scene = Scene::new();
    let [file, other, new, from, to] =
        ["file", "other", "new", "from", "to"].map(|it| scene.path(it));
    fs::write(&file, "old").expect("it is written");
    let (journal, commands) = random::recorder(&scene.store, "1-1");
    random::link(&commands, &file, &other).expect("it is linked");
    random::write(&commands, &from, b"", false).expect("it is written");
    fs::write(&to, "").expect("it is written");
    random::rename(&commands, &to, &scene.path("aside")).expect("it moves");
    random::write(&commands, &other, b"more", true).expect("it is written");
    random::write(&commands, &new, b"new", false).expect("it is written");
    random::rename(&commands, &new, &file).expect("it moves");
    drop(commands);
    journal.finish();
    fs::write(&other, "mine").expect("it is written");
    scene.store.undo("1-1").expect_err("the other name was changed since");
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "mine");
}

#[test]
fn undo_that_left_a_move_goes_on_when_its_directory_is_there() {
    let scene = Scene::new();
    let [folder, aside, moved] = ["folder", "aside", "moved"].map(|it| scene.path(it));
    let file = folder.join("file");
    fs::create_dir(&folder).expect("it is made");
    fs::write(&file, "old").expect("it is written");
    let (journal, commands) = random::recorder(&scene.store, "1-1");
    random::rename(&commands, &file, &aside).expect("it moves");
    random::remove(&commands, &aside).expect("it is removed");
    drop(commands);
    journal.finish();
    fs::rename(&folder, &moved).expect("it moves");
    scene.store.undo("1-1").expect_err("the directory is away");
    fs::rename(&moved, &folder).expect("it moves");
    scene.store.undo("1-1").expect("it is undone");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "old");
}
