//! The room of saved changes: lost changes have a reason, and old journals go.

use super::*;

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
        store.list().expect("it is read").into_iter().map(|entry| entry.call).collect();
    assert_eq!(kept, ["2-3"]);
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
