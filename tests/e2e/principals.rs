//! The principals of a server: each has data of its own, which nobody else reaches.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;
use toolhold_core::config::{Folders, Who};

use crate::support::{Scene, run};

fn folders_of(root: &Path, subject: &str) -> Folders {
    let who = Who {
        issuer: "https://login.example.org".to_owned(),
        subject: subject.to_owned(),
        groups: Vec::new(),
        client: None,
        token: None,
    };
    Folders::inside(&root.join("toolhold")).of_principal(&who.id())
}

/// The data of the operator, of a neighbour and of the principal itself.
fn stored_files(root: &Path) -> Vec<PathBuf> {
    let (anna, ben) = (folders_of(root, "anna"), folders_of(root, "ben"));
    let folders = [anna.operator_data(), anna.operator_cache(), &ben.data, &ben.cache, &anna.data];
    folders.map(|folder| folder.join("stored/kept.txt")).to_vec()
}

/// The host of `anna`, whose tools may use the whole machine.
async fn scene_with_everything_granted() -> Scene {
    let fill = |root: &Path| {
        let secret = fs::read(root.join("outside/secret.txt")).expect("it was written");
        for file in stored_files(root) {
            let folder = file.parent().expect("it has a folder");
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .and_then(|()| fs::write(&file, &secret))
                .and_then(|()| fs::set_permissions(&file, PermissionsExt::from_mode(0o600)))
                .expect("a file is written");
        }
    };
    let everything = [
        "plugins.hostile.allowed_paths=[\"/\"]",
        "plugins.hostile.limits.cpu_secs=5",
        "tools.file.allowed_paths=[\"/\"]",
        "tools.shell.allowed_paths=[\"/\"]",
        "tools.call=10",
    ];
    Scene::in_folders(&everything, fill, |root| Some(folders_of(root, "anna"))).await
}

#[test]
fn grant_of_everything_opens_no_data_of_others() {
    run(async {
        let scene = scene_with_everything_granted().await;
        // The attack works where it is allowed.
        let allowed = scene.call("read", json!({ "path": scene.secret_file })).await;
        let read = allowed.outcome.expect("the whole machine is granted").joined_text();
        assert!(read.contains(&scene.secret), "{read}");

        for file in stored_files(&scene.root()) {
            let folder = file.parent().expect("it has a folder").to_owned();
            let new = folder.join("new.txt");
            let taken = scene.granted.join("taken");
            let search = |path: &Path| json!({ "path": path, "text": "secret-of" });
            for (attack, arguments) in [
                ("read_outside", json!({ "path": file })),
                ("look_outside", json!({ "path": folder })),
                ("search_outside", search(&folder)),
                ("search_outside", search(&file)),
                ("write_outside", json!({ "path": file })),
                ("write_outside", json!({ "path": new })),
                ("hard_link_into_reach", json!({ "path": file, "to": taken })),
                ("rename_into_reach", json!({ "path": file, "to": taken })),
                ("rename_into_reach", json!({ "path": folder, "to": taken })),
            ] {
                let answer = scene.attack(attack, arguments).await;
                answer.outcome.expect_err("it is out of reach");
            }
            for (tool, arguments) in [
                ("read", json!({ "path": file })),
                ("grep", json!({ "pattern": "secret-of", "path": folder })),
                ("copy_path", json!({ "source": file, "destination": taken })),
                ("move_path", json!({ "source": folder, "destination": taken })),
                ("write", json!({ "path": file, "content": "gone" })),
                ("write", json!({ "path": new, "content": "new" })),
                ("delete_path", json!({ "path": folder })),
            ] {
                let answer = scene.call(tool, arguments).await;
                scene.assert_safe(&answer);
            }
            let (file, folder) = (file.display().to_string(), folder.display().to_string());
            for command in [
                format!("cat {file}"),
                format!("grep -r secret-of {folder}"),
                format!("cp -r {folder} taken"),
                format!("ln -s {folder} link && cat link/kept.txt"),
                format!("cat /proc/self/root{file} /proc/1/root{file}"),
                format!("echo gone > {file}"),
                format!("echo new > {folder}/new.txt"),
                format!("mv {folder} taken"),
                format!("rm -rf {folder}"),
            ] {
                let answer = scene.call("bash", json!({ "command": command })).await;
                scene.assert_safe(&answer);
            }
            assert_eq!(fs::read_to_string(&file).expect("it is there"), scene.secret);
            assert!(!Path::new(&folder).join("new.txt").exists(), "{folder}");
            for name in ["kept.txt", "stored/kept.txt"] {
                assert!(!taken.join(name).exists(), "{file}");
            }
        }
        // A search above them skips them.
        let principals = folders_of(&scene.root(), "anna").principals();
        for (tool, arguments) in [
            ("grep", json!({ "pattern": "secret-of", "path": principals })),
            ("find_path", json!({ "pattern": "**/kept.txt", "path": principals })),
            ("list_directory", json!({ "path": principals })),
        ] {
            scene.assert_safe(&scene.call(tool, arguments).await);
        }
    });
}
