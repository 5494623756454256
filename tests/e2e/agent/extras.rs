//! What the agent does beside the loop: phases, and paths that were made up.

use serde_json::Value;

use super::{Came, Scene};

const FULL: &str = "[tools]\nautonomy = \"full\"\n";

/// The last record of a call of a tool.
fn recorded(scene: &Scene, tool: &str) -> Value {
    let audit = scene.cli.run(&["audit", "tail", "--json", "-n", "100"]).ends(0).stdout;
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
    let of_tool = |line: &Value| line["kind"] == "outcome" && line["tool"] == tool;
    lines.filter(of_tool).last().expect("the call is recorded")
}

#[test]
fn rule_of_a_phase_holds_in_it_alone() {
    let rule = "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"write\"]\n\
                phases = [\"planner\"]\n";
    let scene = Scene::new("chat", "", &format!("{FULL}{rule}"));
    let denied = scene.task(&["--phase", "planner", "writes:"]).ends(3, "");
    assert_eq!(denied.events_of("result")[0]["category"], "policy_blocked", "{:?}", denied.events);
    assert!(!scene.work().join("written.txt").exists());
    assert_eq!(recorded(&scene, "write")["phase"], "planner");
    // `--yes` approves what would be asked, and takes no phase away.
    scene.task(&["--phase", "planner", "--yes", "writes:"]).ends(3, "");
    assert!(!scene.work().join("written.txt").exists());
    for (line, phase) in [
        (&["writes:"][..], "executor"),
        (&["--yes", "writes:"], "autonomous"),
        (&["--phase", "verifier", "writes:"], "verifier"),
    ] {
        scene.task(line).assert_answer(0, "written");
        assert_eq!(scene.read("written.txt"), "written");
        assert_eq!(recorded(&scene, "write")["phase"], phase);
        std::fs::remove_file(scene.work().join("written.txt")).expect("it is there");
    }
    // A check of the rules says the same.
    for (phase, code) in [("planner", 3), ("executor", 0)] {
        let line = ["policy", "check", "--phase", phase, "write", "path=a.txt", "content=a"];
        scene.cli.run(&line).ends(code);
    }
}

#[test]
fn autonomous_phase_approves_nothing() {
    let asking = "[tools]\nautonomy = \"ask\"\n[approvals]\nwait_secs = 1\n";
    let scene = Scene::new("chat", "", asking);
    let came: Came = scene.task(&["--phase", "autonomous", "writes:"]).ends(3, "");
    assert_eq!(came.events_of("result")[0]["category"], "confirmation_required");
    assert!(!scene.work().join("written.txt").exists());
    assert_eq!(recorded(&scene, "write")["phase"], "autonomous");
}

#[test]
fn paths_that_were_made_up_are_pointed_out() {
    let notices = |came: &Came| -> Vec<String> {
        let texts = came.events_of("notice").into_iter().filter_map(|it| it["text"].as_str());
        texts.map(str::to_owned).collect()
    };
    let scene = Scene::new("chat", "", &format!("{FULL}[agent]\nhallucination_detection = true"));
    scene.write("src/main.py", "x = 1\n");
    let came = scene.task(&["imagines:"]).assert_answer(0, "told: see");
    let found = notices(&came);
    assert_eq!(found.len(), 3, "{found:?}");
    for (text, path) in found.iter().zip(["/path/to/config.toml", "src/imagined.py", "lib/im"]) {
        assert!(text.contains(path), "{found:?}");
    }
    // What exists isn't pointed out, nor what the agent may not read, whether it exists or not.
    assert!(!found.concat().contains("main.py") && !found.concat().contains("secret"), "{found:?}");
    let asked = scene.bodies().concat();
    assert_eq!(asked.matches("`src/imagined.py` stands in nothing").count(), 1, "told once");
    scene.cli.configure(&scene.configuration().replace("detection = true", "detection = false"));
    let came = scene.task(&["imagines:"]).assert_answer(0, "not told: see");
    assert_eq!(notices(&came), [""; 0]);
}
