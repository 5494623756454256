//! Random changes of a tree: after an undo, the tree is as it was.

use proptest::prelude::*;

use super::*;

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
