//! Several calls: which of them is undone next, and what an undo leaves to another.

use super::*;

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
        scene.store.list().expect("it is read").into_iter().map(|entry| entry.call).collect();
    assert_eq!(listed, ["2-1"]);
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
