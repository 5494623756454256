//! Caches: files of the user in a cache are saved.

use super::*;

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
fn file_of_the_user_that_got_a_name_in_a_cache_is_saved() {
    let scene = Scene::new();
    let root = scene.path("").components().collect::<PathBuf>();
    random::make(&root, &mut random::Random(1));
    let (own, name) = (root.join("own"), root.join("target/name"));
    fs::write(&own, "mine").expect("it is written");
    let old = SystemTime::now() + std::time::Duration::from_secs(1);
    let entry = UndoEntry::new("1-1", "bash", "s", old);
    let journal = std::sync::Arc::new(scene.store.journal(entry, true));
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
