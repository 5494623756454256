//! Later changes of a path stay: they are merged, or the path is left.

use super::*;

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
    assert!(left.contains("other: the file was changed after the call"), "{left}");
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
    assert!(refused.contains("binary: the file was changed after the call"), "{refused}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), lines("one", "nine"));
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
