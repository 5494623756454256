//! A sandbox that was prepared before its command is known is as good as one that is made for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::{call, run, scene};
use crate::support::{Scene, soon};

/// Runs a command, and waits until the sandbox of the next one is prepared: a process has the
/// granted directory mounted, and nothing in it is covered yet.
async fn prepare(scene: &Scene) {
    run(scene, "true").await;
    let point = |path: &Path| format!(" {} ", path.display());
    let (tree, frozen) = (point(&scene.granted), point(&scene.granted.join("toolhold.toml")));
    let waits = || {
        let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        processes
            .filter_map(|process| fs::read_to_string(process.path().join("mountinfo")).ok())
            .any(|mounts| mounts.contains(&tree) && !mounts.contains(&frozen))
    };
    soon("the sandbox of the next command is prepared", waits).await;
}

/// Runs a command in a sandbox that had been prepared before `change`.
async fn run_prepared(scene: &Scene, command: &str, mut change: impl FnMut()) -> String {
    prepare(scene).await;
    change();
    let ran = run(scene, command).await;
    format!("{}{}", ran.stdout, ran.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_in_the_sandbox_that_was_prepared() {
    let scene = scene(&[], |_| {}).await;
    let mut times = Vec::new();
    // One that is seen may not be ready yet. It isn't waited for.
    for _ in 0..5 {
        prepare(&scene).await;
        let ready = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        // This directory is made with the view, before the command is known.
        let made = run(&scene, "stat -c %.9Y /dev/shm").await.stdout;
        let made: f64 = made.trim().parse().expect("a time");
        if made < ready.as_secs_f64() {
            return;
        }
        times.push((made, ready));
    }
    panic!("no command ran in a sandbox that was prepared: {times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_sees_the_directory_that_has_the_name_now() {
    let scene = scene(&[], |root| {
        fs::write(root.join("granted/mark.txt"), "before").expect("it is written");
    })
    .await;
    let (granted, away) = (scene.root().join("granted"), scene.root().join("away"));
    let said = run_prepared(&scene, "cat mark.txt; echo new > made.txt", || {
        fs::rename(&granted, &away).expect("it is moved");
        fs::create_dir(&granted).expect("it is made");
        fs::write(granted.join("mark.txt"), "after").expect("it is written");
    })
    .await;
    assert_eq!(said, "after");
    assert!(granted.join("made.txt").exists() && !away.join("made.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_inside_another_stays_read_only_when_it_is_replaced() {
    let allowed =
        "tools.shell.allowed_paths=[\".\", { path = \"{root}/granted/inner\", access = \"read\" }]";
    let scene = scene(&[allowed], |root| {
        fs::create_dir(root.join("granted/inner")).expect("it is made");
    })
    .await;
    let inner = scene.root().join("granted/inner");
    let write = "echo x > inner/made.txt || echo refused; ls inner";
    for name in ["first", "second"] {
        let said = run_prepared(&scene, write, || {
            fs::rename(&inner, scene.root().join("granted").join(name)).expect("it is moved");
            fs::create_dir(&inner).expect("it is made");
            fs::write(inner.join(name), "").expect("it is written");
        })
        .await;
        assert!(said.contains("refused") && said.contains(name), "{said}");
        assert!(!inner.join("made.txt").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_after_the_preparation_is_covered() {
    let scene = scene(&["tools.file.deny_read=[\"**/.env\"]"], |_| {}).await;
    let said = run_prepared(&scene, "cat .env sub/.env; cat ../outside/secret.txt", || {
        fs::create_dir_all(scene.root().join("granted/sub")).expect("it is made");
        for file in ["granted/.env", "granted/sub/.env"] {
            fs::write(scene.root().join(file), "planted-value").expect("it is written");
        }
    })
    .await;
    assert!(!said.contains("planted-value") && said.contains("denied"), "{said}");
    // The same name, after it was covered: another object.
    let said = run_prepared(&scene, "cat .env", || {
        fs::write(scene.root().join("granted/new"), "planted-value").expect("it is written");
        fs::rename(scene.root().join("granted/new"), scene.root().join("granted/.env"))
            .expect("it is moved");
    })
    .await;
    assert!(!said.contains("planted-value") && said.contains("denied"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_that_became_a_link_is_not_followed() {
    let scene = scene(&[], |_| {}).await;
    prepare(&scene).await;
    fs::rename(&scene.granted, scene.root().join("away")).expect("it is moved");
    symlink(&scene.outside, &scene.granted).expect("a link is made");
    let command = "cat secret.txt; echo gone > secret.txt";
    // Without its working directory, the call may fail as a whole.
    let answer = call(&scene.host, json!({ "command": command })).await;
    let said = format!("{:?}", answer.outcome);
    assert!(!said.contains(&scene.secret), "{said}");
    scene.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_command_reaches_the_next_one() {
    let scene = scene(&[], |_| {}).await;
    // Looks, leaves something in each place, and looks again.
    let look = "find ~ /tmp /var/tmp /dev/shm -name '*left*' | wc -l; \
        cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep";
    let leave = "touch ~/left /tmp/left /var/tmp/left /dev/shm/left; sleep 1000 & sleep 0.1";
    for _ in 0..3 {
        prepare(&scene).await;
        let said = run(&scene, &format!("{look}; {leave}; {look}")).await.stdout;
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["0", "0", "4", "1"]);
    }
}
