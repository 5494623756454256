//! Sessions with all that a record has replay to the same events.

use super::Scene;

const FULL: &str = "[tools]\nautonomy = \"full\"";

#[test]
fn session_of_many_tasks_replays_to_the_same_events() {
    let scene = Scene::new("chat", "", FULL);
    let first = scene.once(&["answer: one"]).assert_answer(0, "one");
    let second = scene.once(&["--continue", "outside:"]).assert_answer(3, "I may not");
    let third = scene.once(&["--continue", "--max-turns", "2", "steps: 5"]).ends(5, "--max-turns");
    let fourth = scene.once(&["--continue", "repeats:"]).assert_answer(0, "I stop");
    let fifth = scene.once(&["--continue", "status: 400"]).ends(4, "busy");
    let again = super::Came::from_ended(scene.run(&["--replay", &first.id(), "--json"]));
    let mut live = first.events.clone();
    for came in [&second, &third, &fourth, &fifth] {
        assert_eq!(came.id(), first.id());
        live.extend(came.events[1..].to_vec());
    }
    assert_eq!(format!("{:#?}", again.events), format!("{live:#?}"));
    assert_eq!(again.ended.code, 4, "as the last task");
    // Nothing is asked and nothing is made.
    let asked = scene.bodies().len();
    scene.run(&["--replay", &first.id()]).ends(4);
    assert_eq!(scene.bodies().len(), asked);
    // An unknown ID names the command that lists the IDs.
    let unknown = scene.run(&["--session", "nope", "answer: on"]).ends(2).stderr;
    assert!(unknown.contains("`toolhold run sessions list`"), "{unknown}");
    // A person reads how to go on after a limit.
    let limited = scene.run(&["--max-turns", "2", "steps: 5"]).ends(5);
    assert!(limited.stderr.contains("toolhold run --continue"), "{}", limited.stderr);
}

#[test]
fn replay_shows_what_was_said_without_json() {
    let scene = Scene::new("chat", "", FULL);
    let came = scene.once(&["repeats:"]);
    let shown = scene.run(&["--replay", &came.id()]).ends(0);
    assert_eq!(shown.stdout, "I stop\n");
    assert!(shown.stderr.contains("4 times in a row"), "{}", shown.stderr);
    // Nor does it need a model that can be asked.
    scene.cli.configure("");
    assert_eq!(scene.run(&["--replay", &came.id()]).ends(0).stdout, "I stop\n");
}
