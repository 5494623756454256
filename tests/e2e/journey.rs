//! What is true for every call, whatever the tool.

use serde_json::json;

use crate::support::{Scene, run};

#[test]
fn answer_lists_the_steps_of_its_call() {
    run(async {
        let scene = Scene::new().await;
        let steps = |answer: &toolhold_core::Answer| {
            answer.steps.iter().map(|step| step.name).collect::<Vec<_>>()
        };
        let answer = scene.call("read", json!({ "path": "public.txt" })).await;
        assert_eq!(steps(&answer), ["resolve", "validate", "govern", "run", "shape", "record"]);
        assert_eq!(answer.tool.as_deref(), Some("read"));
        // A call that is refused does not run.
        let answer = scene.call("read", json!({ "path": scene.secret_file })).await;
        assert!(answer.outcome.is_err() && !steps(&answer).contains(&"run"));
        let answer = scene.call("no-such-tool", json!({})).await;
        assert!(answer.tool.is_none() && !steps(&answer).contains(&"run"));
    });
}

#[test]
fn paths_too_costly_to_check_are_refused_at_once() {
    run(async {
        let scene = Scene::new().await;
        for path in
            ["x/".repeat(400_000), format!("/{}", "x/".repeat(400_000)), "\u{9b}".repeat(5000)]
        {
            let answer = scene.call("read", json!({ "path": path })).await;
            let failure = answer.outcome.expect_err("it is refused");
            assert_eq!(failure.category, toolhold_core::Category::InvalidParameters);
            assert!(failure.message.len() < 1000, "{}", failure.message.len());
        }
    });
}

#[test]
fn refusal_is_shaped_like_every_answer() {
    run(async {
        let scene = Scene::new().await;
        let answer = scene.call("read", json!({ "path": "/tmp/\u{9b}31m\u{202e}\u{7f}" })).await;
        let failure = answer.outcome.expect_err("it is refused");
        let text = format!("{} {}", failure.message, failure.denial.expect("it is a denial"));
        assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{7f}']), "{text:?}");
    });
}

#[test]
fn every_call_has_an_id_of_its_own() {
    run(async {
        let scene = Scene::new().await;
        let mut ids = std::collections::HashSet::new();
        for _ in 0..100 {
            let answer = scene.call("echo", json!({ "text": "x" })).await;
            assert!(answer.id.to_string().len() <= 64);
            assert!(ids.insert(answer.id), "an id came twice");
        }
    });
}

#[test]
fn plugin_gets_the_smaller_of_request_and_grant() {
    run(async {
        // `bench` asks for nothing, so that a grant gives it nothing.
        let scene = Scene::new().await;
        assert!(
            scene
                .host
                .directories_of("hostile__read_outside")
                .iter()
                .any(|(path, _)| *path == scene.granted)
        );
        let ungranted = Scene::with(&["plugins.hostile.allowed_paths=[]"], |_| {}).await;
        assert!(ungranted.host.directories_of("hostile__read_outside").is_empty());
        let file = ungranted.granted.join("public.txt");
        for attack in
            ["read_outside", "look_outside", "search_outside", "write_outside", "change_outside"]
        {
            let answer = ungranted
                .attack(
                    attack,
                    json!({ "path": file, "to": ungranted.granted.join("x"), "text": "public" }),
                )
                .await;
            assert!(answer.outcome.is_err(), "{attack}: {answer:?}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "public");
    });
}

#[test]
fn definitions_describe_arguments_to_models() {
    run(async {
        let scene = Scene::new().await;
        for tool in scene.host.tools() {
            assert!(tool.name.len() <= 64 && !tool.description.is_empty(), "{}", tool.name);
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
        }
        let names: Vec<String> = scene.host.tools().iter().map(|tool| tool.name.clone()).collect();
        for name in [
            "read",
            "write",
            "edit",
            "grep",
            "find_path",
            "list_directory",
            "create_directory",
            "copy_path",
            "move_path",
            "delete_path",
            "echo",
            "hostile__read_outside",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(!names.iter().any(|name| name == "file_read"), "aliases are not listed");
    });
}
