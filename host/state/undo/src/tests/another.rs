//! What is there isn't what the call left, though its contents are the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Journal, Scene, calls, moved};

/// Undoes the calls in this order, each as often as it is named.
fn undo(scene: &Scene, order: &[&str]) {
    for call in order {
        let _ = scene.store.undo(call);
    }
}

#[test]
fn what_a_later_call_moved_in_place_of_an_equal_one_comes_back() {
    let scene = Scene::new();
    let [e, b] = ["e", "b"].map(|name| scene.path(name));
    fs::write(&e, "same").expect("it is written");
    calls(
        &scene,
        &[
            ("1-1", &|journal| {
                journal.before(&b).expect("it is saved");
                fs::write(&b, "same").expect("it is written");
            }),
            ("2-1", &|journal| moved(journal, &e, &b)),
        ],
    );
    undo(&scene, &["1-1"]);
    assert_eq!(fs::read_to_string(&b).ok().as_deref(), Some("same"));
    undo(&scene, &["2-1", "1-1"]);
    assert_eq!(fs::read_to_string(&e).ok().as_deref(), Some("same"));
    assert!(!b.exists());
}

#[test]
fn what_a_person_moved_in_place_of_an_equal_one_stays() {
    let scene = Scene::new();
    let name = |name: &str| scene.path(name);
    fs::write(name("file"), "same").expect("it is written");
    fs::create_dir(name("directory")).expect("it is made");
    symlink("x", name("link")).expect("it is made");
    let [file, directory, link] = ["new file", "new directory", "new link"].map(name);
    calls(
        &scene,
        &[("1-1", &|journal| {
            journal.before(&file).expect("it is saved");
            fs::write(&file, "same").expect("it is written");
            journal.before(&directory).expect("it is saved");
            fs::create_dir(&directory).expect("it is made");
            journal.before(&link).expect("it is saved");
            symlink("x", &link).expect("it is made");
        })],
    );
    for (from, to) in [("file", &file), ("directory", &directory), ("link", &link)] {
        fs::rename(name(from), to).expect("it is moved");
    }
    undo(&scene, &["1-1"]);
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("same"));
    assert!(directory.is_dir() && link.is_symlink());
    // Whoever wants it gone says so.
    scene.store.undo_only("1-1", Some(&file)).expect("it is undone");
    assert!(!file.exists());
}

#[test]
fn directory_that_a_later_call_replaced_gets_nothing_before_it_is_back() {
    let scene = Scene::new();
    let (d, a) = (scene.path("d"), scene.path("d/a"));
    fs::create_dir(&d).expect("it is made");
    fs::set_permissions(&d, Permissions::from_mode(0o755)).expect("it is set");
    fs::write(&a, "k").expect("it is written");
    calls(
        &scene,
        &[
            ("1-1", &|journal| {
                journal.before(&a).expect("it is saved");
                fs::remove_file(&a).expect("it is removed");
                journal.before(&d).expect("it is saved");
                fs::remove_dir(&d).expect("it is removed");
            }),
            ("2-1", &|journal| {
                journal.before(&d).expect("it is saved");
                fs::create_dir(&d).expect("it is made");
                fs::set_permissions(&d, Permissions::from_mode(0o700)).expect("it is set");
            }),
        ],
    );
    undo(&scene, &["1-1", "2-1", "1-1"]);
    assert_eq!(fs::read_to_string(&a).ok().as_deref(), Some("k"));
    let mode = fs::metadata(&d).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn what_another_undo_brought_back_is_removed_for_a_move() {
    let scene = Scene::new();
    let [x, b] = ["x", "b"].map(|name| scene.path(name));
    fs::write(&x, "u").expect("it is written");
    calls(
        &scene,
        &[
            ("1-1", &|journal| {
                moved(journal, &x, &b);
                journal.before(&x).expect("it is saved");
                fs::write(&x, "n").expect("it is written");
            }),
            ("2-1", &|journal| {
                for path in [&b, &x] {
                    journal.before(path).expect("it is saved");
                    fs::remove_file(path).expect("it is removed");
                }
            }),
        ],
    );
    undo(&scene, &["1-1", "2-1", "1-1"]);
    assert_eq!(fs::read_to_string(&x).ok().as_deref(), Some("u"));
    assert!(!b.exists());
}

#[test]
fn path_of_a_directory_is_restored_with_what_is_in_it() {
    let scene = Scene::new();
    let [d, n, a] = ["d", "n", "n/a"].map(|name| scene.path(name));
    let [gone, file] = ["gone", "gone/file"].map(|name| scene.path(name));
    fs::create_dir(&d).expect("it is made");
    fs::write(d.join("a"), "one").expect("it is written");
    fs::create_dir(&gone).expect("it is made");
    fs::write(&file, "kept").expect("it is written");
    calls(
        &scene,
        &[("1-1", &|journal| {
            moved(journal, &d, &n);
            journal.before(&a).expect("it is saved");
            fs::write(&a, "two").expect("it is written");
            journal.before(&file).expect("it is saved");
            fs::remove_file(&file).expect("it is removed");
            journal.before(&gone).expect("it is saved");
            fs::remove_dir(&gone).expect("it is removed");
        })],
    );
    scene.store.undo_only("1-1", Some(&gone)).expect("it is undone");
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("kept"));
    assert!(n.is_dir());
    scene.store.undo_only("1-1", Some(&n)).expect("it is undone");
    assert_eq!(fs::read_to_string(d.join("a")).ok().as_deref(), Some("one"));
    assert!(!n.exists());
    scene.store.undo("1-1").expect("it is undone");
}

#[test]
fn new_name_of_a_file_goes_when_its_contents_are_back() {
    let scene = Scene::new();
    let [a, h, n] = ["a", "h", "n"].map(|name| scene.path(name));
    fs::write(&a, "one").expect("it is written");
    fs::hard_link(&a, &h).expect("it is linked");
    calls(
        &scene,
        &[
            ("1-1", &|journal| {
                journal.before(&n).expect("it is saved");
                fs::hard_link(&a, &n).expect("it is linked");
                journal.before(&a).expect("it is saved");
                fs::remove_file(&a).expect("it is removed");
                journal.before(&n).expect("it is saved");
                fs::write(&n, "two").expect("it is written");
            }),
            ("2-1", &|journal| {
                journal.before(&n).expect("it is saved");
                fs::remove_file(&n).expect("it is removed");
            }),
        ],
    );
    undo(&scene, &["1-1", "2-1", "1-1"]);
    assert!(!n.exists());
    for name in [&a, &h] {
        assert_eq!(fs::read_to_string(name).ok().as_deref(), Some("one"));
    }
}

#[test]
fn permissions_of_a_file_that_a_later_call_replaced_come_back() {
    let scene = Scene::new();
    let [path, new] = ["file", "new"].map(|name| scene.path(name));
    fs::write(&path, "mine").expect("it is written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is set");
    let replace = |journal: &Journal| {
        journal.before(&new).expect("it is saved");
        fs::write(&new, "").expect("it is written");
        fs::set_permissions(&new, Permissions::from_mode(0o644)).expect("it is set");
        moved(journal, &new, &path);
    };
    let empty = |journal: &Journal| {
        journal.before(&path).expect("it is saved");
        fs::write(&path, "").expect("it is written");
    };
    calls(&scene, &[("1-1", &empty), ("2-1", &replace)]);
    undo(&scene, &["1-1", "2-1", "1-1"]);
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
