//! Sessions go on after `kill -9` at any point.

use std::fs;

use rustix::process::Signal;

use super::{Scene, until};
use crate::support::not_tried;

const FULL: &str = "[tools]\nautonomy = \"full\"";

fn scene(format: &str, provider: &str) -> Scene {
    let scene = Scene::new(format, provider, FULL);
    for at in 0..10 {
        scene.write(&format!("numbers/{at}.txt"), format!("value {at}\n"));
    }
    scene
}

/// The newest session.
fn session(scene: &Scene) -> String {
    let listed = scene.cli.run(&["run", "sessions", "list", "--json"]).ends(0).json();
    listed[0]["id"].as_str().expect("there is one").to_owned()
}

#[test]
fn killed_session_goes_on() {
    for (format, provider, task, mark) in [
        ("chat", "", "hang_text:", "model/hangs"),
        ("messages", "", "hang_call:", "model/hangs"),
        ("responses", "", "works:", "work/started.txt"),
        ("chat", "native_tools = false", "works_in_text:", "work/started.txt"),
    ] {
        let scene = scene(format, provider);
        let running = scene.start(&[task]);
        until("it works", || scene.cli.root.path().join(mark).exists());
        let id = session(&scene);
        // Nobody else goes on with it meanwhile.
        let refused = scene.run(&["--session", &id, "after: too early"]).ends(2);
        assert!(refused.stderr.contains("is running"), "{}", refused.stderr);
        running.signal(Signal::KILL);
        drop(running);
        scene.cli.run(&["run", "sessions", "show", &id]).ends(0);
        scene.once(&["--session", &id, "after: the kill"]).assert_answer(0, "I go on: the kill");
        let bodies = scene.bodies();
        let last = bodies.last().expect("it was asked");
        assert_eq!(last.contains("was interrupted"), task.starts_with("works"), "{last}");
        assert_eq!(scene.read("half.txt"), "", "a call that isn't complete isn't made");
        // It shows both tasks again.
        let again = super::Came::from_ended(scene.run(&["--replay", &id, "--json"]));
        assert_eq!(again.events_of("task").len(), 2);
        let first = &again.events_of("ended")[0];
        assert!(first["reason"].to_string().contains("killed"), "{first}");
        again.assert_answer(0, "I go on: the kill");
        assert!(!scene.work().join("never.txt").exists());
    }
}

#[test]
fn session_goes_on_from_any_part_of_its_file() {
    let scene = scene("chat", "");
    let id = scene.once(&["steps: 2"]).assert_answer(0, "2 steps").id();
    let whole = fs::read(scene.record(&id)).expect("it is there");
    let ends: Vec<usize> = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    assert_eq!(ends.len(), 8, "the begin, the task, three answers, two results, the end");
    // In the middle of each line, and after it; the first line alone is no session yet.
    let cuts = ends.windows(2).flat_map(|pair| [pair[0], (pair[0] + pair[1]) / 2, pair[1] - 1]);
    for cut in cuts {
        fs::write(scene.record(&id), &whole[..cut]).expect("it is written");
        scene.cli.run(&["run", "sessions", "show", &id]).ends(0);
        scene.once(&["--session", &id, "after: a cut"]).assert_answer(0, "I go on: a cut");
        let again = super::Came::from_ended(scene.run(&["--replay", &id, "--json"]));
        again.assert_answer(0, "I go on: a cut");
    }
}

#[test]
fn damaged_and_strange_sessions_are_refused() {
    let scene = scene("chat", "");
    let id = scene.once(&["answer: a"]).id();
    let record = scene.record(&id);
    let whole = fs::read_to_string(&record).expect("it is there");
    let asked = scene.bodies().len();
    for (content, why) in [
        (whole.replacen("{\"task\":", "{\"task\":\"", 1), "damaged"),
        (whole.replacen("\"version\":1", "\"version\":2", 1), "version 2"),
        ("not JSON\n".to_owned(), "damaged"),
        (format!("{whole}{}\n", "[".repeat(200_000)), "damaged"),
    ] {
        fs::write(&record, content).expect("it is written");
        for line in [&["--session", &id, "after: that"][..], &["--replay", &id]] {
            let refused = scene.run(line);
            let told = format!("{line:?} {} {}", refused.code, refused.stderr);
            assert!(refused.code != 0 && refused.stderr.contains(why), "{why}: {told}");
            assert!(!refused.stderr.contains("panicked"), "{told}");
        }
    }
    // It can be removed. A forged record steers no terminal.
    let forged = whole.replacen(&format!("\"id\":\"{id}"), "\"id\":\"\u{9b}2J\u{202e}", 1);
    fs::write(&record, forged).expect("it is written");
    for line in [&["run", "sessions", "show", &id][..], &["run", "--replay", &id]] {
        let shown = scene.cli.run(line);
        assert!(!(shown.stdout + &shown.stderr).contains(['\u{9b}', '\u{202e}']), "{line:?}");
    }
    fs::write(&record, "not JSON\n").expect("it is written");
    scene.cli.run(&["run", "sessions", "delete", &id]).ends(0);
    assert!(!record.exists());
    // A file that others may write, and a link to another file.
    fs::write(&record, &whole).expect("it is written");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&record, fs::Permissions::from_mode(0o666)).expect("its mode is set");
    let refused = scene.run(&["--session", &id, "after: that"]);
    assert!(
        refused.code != 0 && refused.stderr.contains("other users have access"),
        "{}",
        refused.stderr
    );
    // And one of another user, where this test may make one.
    fs::set_permissions(&record, fs::Permissions::from_mode(0o600)).expect("its mode is set");
    if std::os::unix::fs::chown(&record, Some(12_345), None).is_ok() {
        let refused = scene.run(&["--session", &id, "after: that"]);
        assert!(refused.code != 0 && refused.stderr.contains("12345"), "{}", refused.stderr);
        assert_ne!(scene.run(&["--replay", &id]).code, 0);
    } else {
        not_tried("chown");
    }
    fs::rename(&record, scene.cli.root.path().join("moved")).expect("it is moved");
    std::os::unix::fs::symlink(scene.cli.root.path().join("moved"), &record).expect("linked");
    assert_ne!(scene.run(&["--session", &id, "after: that"]).code, 0);
    fs::remove_file(&record).expect("it is removed");
    for strange in ["../../secret", "", "0", &id] {
        let refused = scene.run(&["--session", strange, "after: that"]).ends(2);
        assert!(refused.stderr.contains("no session"), "{}", refused.stderr);
    }
    assert_eq!(scene.bodies().len(), asked, "the model was asked about a session that isn't one");
}
