//! Moves: an undo moves objects back, and waits for the undo of later calls.

use super::*;

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
    assert!(left.contains("a later call has changed this path"), "{left}");
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
    assert!(left.contains("a later call has moved this path"), "{left}");
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
