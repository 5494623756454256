//! Files with several names: all names are one file again.

use super::*;

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
    assert!(left.to_string().contains("through another hard link"), "{left}");
    scene.store.undo("2-1").expect("it is undone");
    scene.store.undo("1-1").expect("it is undone");
    for path in [&file, &other] {
        assert_eq!(fs::read_to_string(path).expect("it is there"), "good");
    }
}
