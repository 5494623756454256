//! The host removes what a call leaves under temporary names, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Scene, attacks, loot};

/// Every file below a folder with what it holds, and every folder and link.
fn everything(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        if meta.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("it is readable")
                    .map(|entry| entry.expect("an entry").path()),
            );
        }
        let text = if meta.is_file() {
            fs::read_to_string(&path).expect("it is text")
        } else {
            format!("{:?}", meta.file_type())
        };
        all.push((path.strip_prefix(folder).expect("it is below").to_owned(), text));
    }
    all.sort();
    all
}

fn with_victims(root: &Path) {
    for folder in ["granted/victim/deep", "granted/.toolhold-0123456789abcdef.tmp"] {
        fs::create_dir_all(root.join(folder)).expect("folders are made");
    }
    for file in ["victim/file", "victim/deep/file", ".toolhold-0123456789abcdef.tmp/file"] {
        fs::write(root.join("granted").join(file), "victim").expect("a file is written");
    }
}

attacks! {
    async fn leave_temporary() {
        let scene = Scene::with(&[], with_victims).await;
        let before = everything(&scene.granted);
        for end in ["", "fail", "trap", "exit", "memory", "loop", "sleep"] {
            scene.attack("leave_temporary", json!({ "path": scene.granted, "text": end })).await;
            assert_eq!(everything(&scene.granted), before, "after the end {end:?}");
        }
        // A read-only path isn't changed, whoever asks.
        assert!(loot(&scene.attack("leave_temporary", json!({ "path": scene.granted.join("victim") })).await).contains("left"));
        assert_eq!(everything(&scene.granted), before);
    }

    async fn forge_temporary() {
        let scene = Scene::with(&[], with_victims).await;
        let victims = || everything(&scene.granted).iter().filter(|(_, text)| text == "victim").count();
        assert_eq!(victims(), 3);
        let answer = scene.attack("forge_temporary", json!({ "path": scene.granted.join("victim") })).await;
        answer.outcome.as_ref().expect_err("nothing comes to lie where it is removed");
        assert_eq!(victims(), 3, "{answer:?}");
        // It used the other name, which is allowed.
        assert_eq!(fs::read_to_string(scene.granted.join("other/file")).expect("it was moved"), "victim");
        assert!(everything(&scene.granted).iter().all(|(path, _)| !path.to_string_lossy().contains("tmp") || path.starts_with(".toolhold-0123456789abcdef.tmp")));
    }

    async fn hoard_temporary() {
        let scene = Scene::with(&[], with_victims).await;
        let before = everything(&scene.granted);
        let count: u64 = loot(&scene.attack("hoard_temporary", json!({ "path": scene.granted })).await).parse().expect("a number");
        assert!((1..=64).contains(&count), "{count}");
        assert_eq!(everything(&scene.granted), before);
    }
}
