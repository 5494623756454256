//! A model without a configuration: by a key in the environment.

use std::process::Command;

use serde_json::Value;

use super::{KEY, Scene};
use crate::approvals_command::only_question;
use crate::support::Ended;

/// A scene whose configuration names no provider.
fn scene() -> Scene {
    let scene = Scene::new("chat", "", "");
    scene.cli.configure("[tools]\nautonomy = \"full\"\n");
    scene
}

impl Scene {
    /// `toolhold run` with these variables.
    #[track_caller]
    fn run_with(&self, variables: &[(&str, &str)], line: &[&str]) -> Ended {
        let mut command: Command = self.command(line);
        command.envs(variables.iter().copied());
        let ended = Ended::from_output(command.output().expect("toolhold starts"));
        self.assert_fine();
        ended
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The paths, keys and models of the requests.
    pub(super) fn asked(&self) -> Vec<[String; 3]> {
        let requests = self.model_file("requests").unwrap_or_default();
        let facts = |line: &str| {
            let request: Value = serde_json::from_str(line).expect("it is JSON");
            let body = request["body"].as_str().expect("it is a text");
            let body: Value = serde_json::from_str(body).expect("it is JSON");
            let headers = request["headers"].as_object().expect("an object");
            let keys: Vec<&str> = headers
                .iter()
                .filter(|(name, _)| {
                    ["authorization", "x-api-key"].contains(&name.to_lowercase().as_str())
                })
                .filter_map(|(_, value)| value.as_str())
                .collect();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [text(&request["path"]), keys.concat(), text(&body["model"])]
        };
        requests.lines().map(facts).collect()
    }
}

#[test]
fn key_in_the_environment_is_enough() {
    let scene = scene();
    let address = scene.address();
    let variables = [("ANTHROPIC_API_KEY", KEY), ("ANTHROPIC_BASE_URL", address.as_str())];
    let ended = scene.run_with(&variables, &["answer: on"]).ends(0);
    assert!(ended.stdout.contains("You said: on"), "{}", ended.stdout);
    for said in ["anthropic/claude-", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "--model NAME"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains(KEY), "{}", ended.stderr);
    let [path, key, model] = scene.asked().pop().expect("the model was asked");
    assert_eq!([path.as_str(), key.as_str()], ["/v1/messages", KEY]);
    assert!(model.starts_with("claude-"), "{model}");

    // The command line chooses the model.
    scene.run_with(&variables, &["--model", "own-model", "answer: on"]).ends(0);
    assert_eq!(scene.asked().pop().expect("it was asked")[2], "own-model");
    // Nothing was written.
    assert_eq!(scene.configuration(), "[tools]\nautonomy = \"full\"\n");
    assert!(scene.files_with(KEY).is_empty(), "{:?}", scene.files_with(KEY));
}

#[test]
fn each_key_goes_to_its_own_provider_alone() {
    let scene = scene();
    let address = scene.address();
    // The first key's provider is elsewhere, and can't be reached here.
    let variables = [
        ("ANTHROPIC_API_KEY", "another-key-of-the-first-one"),
        ("ANTHROPIC_BASE_URL", "https://127.0.0.1:1"),
        ("OPENAI_API_KEY", KEY),
        ("OPENAI_BASE_URL", address.as_str()),
        ("GEMINI_API_KEY", "a-key-of-the-third-one"),
    ];
    scene.run_with(&variables, &["--model", "openai", "answer: on"]).ends(0);
    for [path, key, _] in scene.asked() {
        // Servers that stand in for OpenAI's speak its older format.
        assert_eq!(
            [path.as_str(), key.as_str()],
            ["/v1/chat/completions", &format!("Bearer {KEY}")]
        );
    }
    // Without a choice, the first provider is asked, and no other one if that fails.
    let before = scene.asked().len();
    scene.run_with(&variables, &["answer: on"]).ends(4);
    assert_eq!(scene.asked().len(), before);
}

#[test]
fn always_writes_a_rule_although_the_provider_was_found() {
    let scene = scene();
    let asking = "[tools]\nautonomy = \"ask\"\n";
    scene.cli.configure(asking);
    let address = scene.address();
    let variables = [("ANTHROPIC_API_KEY", KEY), ("ANTHROPIC_BASE_URL", address.as_str())];
    scene.run_with(&variables, &["writes:"]).ends(3);
    scene.cli.run(&["approvals", "allow", &only_question(&scene.cli), "--always"]).ends(0);
    let written = scene.configuration();
    assert!(written.starts_with(asking), "{written}");
    assert!(written.contains("[[tools.permissions.write]]"), "{written}");
    scene.run_with(&variables, &["writes:"]).ends(0);
    assert_eq!(scene.read("written.txt"), "written");
}

#[test]
fn server_in_place_of_openai_is_asked_for_a_model_that_it_has() {
    let scene = scene();
    let address = scene.address();
    // It works without a key too.
    for key in [Some(KEY), None] {
        let mut variables = vec![("OPENAI_BASE_URL", address.as_str())];
        variables.extend(key.map(|key| ("OPENAI_API_KEY", key)));
        let ended = scene.run_with(&variables, &["answer: on"]).ends(0);
        assert!(ended.stderr.contains("uses openai/scripted"), "{}", ended.stderr);
        assert!(ended.stderr.contains("OPENAI_BASE_URL"), "{}", ended.stderr);
        let [_, sent, model] = scene.asked().pop().expect("it was asked");
        assert_eq!(sent, key.map_or_else(String::new, |key| format!("Bearer {key}")));
        assert_eq!(model, "scripted");
    }
}

#[test]
fn name_of_a_provider_without_its_key_is_no_model() {
    let scene = scene();
    let address = scene.address();
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", address.as_str())];
    let ended = scene.run_with(&variables, &["--model", "anthropic", "answer: on"]).ends(2);
    assert!(ended.stderr.contains("ANTHROPIC_API_KEY isn't set"), "{}", ended.stderr);
    let ended = scene.run_with(&variables, &["--model", "mistral/large", "answer: on"]).ends(2);
    assert!(ended.stderr.contains("MISTRAL_API_KEY isn't set"), "{}", ended.stderr);
    let ended = scene.run_with(&[], &["--model", "openai", "answer: on"]).ends(2);
    assert!(ended.stderr.contains("OPENAI_API_KEY isn't set"), "{}", ended.stderr);
    let ended = scene.run_with(&[], &["answer: on"]).ends(2);
    assert!(ended.stderr.contains("`ollama serve`"), "{}", ended.stderr);
    assert!(scene.asked().is_empty());
    let scene = Scene::new("chat", "", "");
    let ended = scene.run(&["--model", "anthropic", "answer: on"]).ends(2);
    assert!(ended.stderr.contains("there is no [providers.anthropic]"), "{}", ended.stderr);
    let ended = scene.run(&["--model", "ollama/qwen3:8b", "answer: on"]).ends(2);
    assert!(ended.stderr.contains("there is no [providers.ollama]"), "{}", ended.stderr);
    assert!(scene.asked().is_empty());
}

#[test]
fn refused_key_is_named_by_its_variable() {
    let scene = scene();
    let address = scene.address();
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", address.as_str())];
    let ended = scene.run_with(&variables, &["status: 401"]).ends(4);
    assert!(ended.stderr.contains("the key in OPENAI_API_KEY (401)"), "{}", ended.stderr);
}

#[test]
fn key_that_is_too_short_has_a_remedy() {
    let scene = scene();
    let address = scene.address();
    let variables = [("OPENAI_API_KEY", "EMPTY"), ("OPENAI_BASE_URL", address.as_str())];
    let ended = scene.run_with(&variables, &["answer: on"]).ends(2);
    for said in ["OPENAI_API_KEY", "too short", "unset OPENAI_API_KEY", "[providers.openai]"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    assert!(scene.asked().is_empty());
}

#[test]
fn configured_provider_wins() {
    let scene = Scene::new("chat", "", "");
    let variables =
        [("ANTHROPIC_API_KEY", "another-key-of-no-use"), ("ANTHROPIC_BASE_URL", "https://[::1]:1")];
    let ended = scene.run_with(&variables, &["answer: on"]).ends(0);
    assert!(!ended.stderr.contains("ANTHROPIC"), "{}", ended.stderr);
    assert_eq!(scene.asked().pop().expect("it was asked")[1], format!("Bearer {KEY}"));
}

#[test]
fn key_never_goes_to_an_address_without_tls_elsewhere() {
    let scene = scene();
    for (address, fault) in [("http://192.0.2.1/v1", "https"), ("nowhere", "OPENAI_BASE_URL")] {
        let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", address)];
        let ended = scene.run_with(&variables, &["answer: on"]);
        assert_ne!(ended.code, 0);
        assert!(ended.stderr.contains("OPENAI_BASE_URL"), "{}", ended.stderr);
        assert!(ended.stderr.contains(fault), "{}", ended.stderr);
    }
    assert!(scene.asked().is_empty());
}

#[test]
fn file_of_a_project_names_no_address_for_a_key() {
    let scene = scene();
    // An untrusted file can't name a provider, nor the address of a key in the environment.
    scene.write(
        "toolhold.toml",
        format!("[providers.openai]\nbase_url = \"{}\"\nmodel = \"x\"\n", scene.address()),
    );
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "https://127.0.0.1:1")];
    scene.run_with(&variables, &["answer: on"]).ends(4);
    assert!(scene.asked().is_empty());
}
