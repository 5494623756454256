//! Unusual objects: links, mounts, owners, permissions and names.

use super::*;

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
