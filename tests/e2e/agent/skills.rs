//! Skills, for Toolhold's own agent.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use super::Scene;
use crate::skills::write_skill;

const CONFIG: &str = "\
[tools]
autonomy = \"full\"
[skills.env.pdf]
PDF_DPI = \"300\"
";

fn scene() -> Scene {
    let scene = Scene::new("chat", "", CONFIG);
    let pdf = write_skill(&scene.cli.root.path().join(".claude/skills"), "pdf", "", "Run run.sh.");
    fs::write(pdf.join("scripts/run.sh"), "echo \"dpi <$PDF_DPI>\" > made.txt\n")
        .expect("it is written");
    write_skill(&scene.work().join(".claude/skills"), "deploy", "", "Obey the project.");
    scene
}

fn calls(calls: &serde_json::Value) -> String {
    format!("tries: {calls}")
}

#[test]
fn agent_finds_loads_and_runs_a_skill() {
    let scene = scene();
    let run = "sh ~/.claude/skills/pdf/scripts/run.sh";
    let run = run.replace(
        '~',
        &scene.cli.root.path().canonicalize().expect("it is there").display().to_string(),
    );
    let task = calls(&json!([["load_skill", { "name": "pdf" }], ["bash", { "command": run }]]));
    let came = scene.task(&[&task]).assert_answer(0, "Run run.sh.");
    assert_eq!(scene.read("made.txt"), "dpi <300>\n");
    let body = &scene.bodies()[0];
    assert_eq!(body.matches("- pdf: Does pdf.").count(), 1, "it is listed once: {body}");
    // Nobody has looked at the project's.
    assert!(!body.contains("Does deploy"), "{body}");
    assert!(came.ended.stderr.contains("deploy") && came.ended.stderr.contains("`toolhold trust`"));
    // A session goes on with its list, whatever there is now.
    write_skill(&scene.cli.root.path().join(".claude/skills"), "later", "", "x");
    scene.task(&["--continue", "answer: x"]);
    let bodies = scene.bodies();
    assert!(!bodies.last().expect("there is one").contains("- later:"));
}

#[test]
fn variables_of_a_skill_end_with_the_task() {
    let scene = scene();
    let print =
        |name: &str| json!(["bash", { "command": format!("echo \"<$PDF_DPI>\" > {name}") }]);
    let first = calls(&json!([["load_skill", { "name": "pdf" }], print("first.txt")]));
    let second = calls(&json!([print("second.txt")]));
    let mut command = scene.cli.command(&["chat", "--plain"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut chat = command.spawn().expect("toolhold starts");
    let mut keyboard = chat.stdin.take().expect("it has an input");
    writeln!(keyboard, "{first}\n{second}").expect("it reads");
    drop(keyboard);
    let ended = chat.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(scene.read("first.txt"), "<300>\n", "{shown}");
    assert_eq!(scene.read("second.txt"), "<>\n", "{shown}");
    scene.assert_fine();
}

#[test]
fn end_of_a_sub_agent_leaves_the_variables_of_its_agent() {
    let scene = scene();
    let print = json!(["bash", { "command": "echo \"<$PDF_DPI>\" > after.txt" }]);
    let hands_on = json!(["delegate", { "task": "answer: done" }]);
    let task = calls(&json!([["load_skill", { "name": "pdf" }], hands_on, print]));
    scene.task(&[&task]);
    assert_eq!(scene.read("after.txt"), "<300>\n");
}
