//! Sessions with all that a record has replay to the same events.

use super::Scene;

const FULL: &str = "[tools]\nautonomy = \"full\"";

#[test]
fn session_of_many_tasks_replays_to_the_same_events() {
    let scene = Scene::new("chat", "", FULL);
    let first = scene.once(&["answer: one"]).says(0, "one");
    let second = scene.once(&["--continue", "outside:"]).says(3, "I may not");
    let third = scene.once(&["--continue", "--max-turns", "2", "steps: 5"]).ends(5, "max_turns");
    let fourth = scene.once(&["--continue", "repeats:"]).says(0, "I stop");
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
