//! Toolhold as an agent of Harbor, which runs Terminal-Bench 2: the adapter of `docs`, and Harbor's
//! own code around it, with a folder in place of the task's container.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{KEY, Scene};
use crate::support::{fetched, toolhold};

/// The configuration that the adapter makes, without a provider.
fn adapters_config() -> &'static str {
    let adapter = include_str!("../../../docs/terminal-bench/toolhold_agent.py");
    let (_, rest) = adapter.split_once("CONFIG = \"\"\"\\\n").expect("it has one");
    rest.split_once("\"\"\"").expect("it ends").0
}

/// What Harbor has in the place of a container.
struct Container {
    scene: Scene,
    python: PathBuf,
}

impl Container {
    /// `None`, with a notice, if this machine couldn't fetch Harbor.
    fn new() -> Option<Self> {
        let python = fetched("harbor")?.join("bin/python");
        let scene = Scene::new("chat", "", adapters_config());
        let config = fs::read_to_string(scene.cli.root.path().join("config/toolhold.toml"));
        let config = config.expect("it is there");
        // The key comes as Harbor hands keys on.
        let (start, _) = config.split_once("file = ").expect("it has a key");
        scene.cli.configure(&format!("{start}env = \"SCRIPTED_API_KEY\"\n"));
        fs::create_dir_all(scene.cli.root.path().join("container/app")).expect("a folder is made");
        Some(Self { scene, python })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scene.cli.root.path().join("container").join(name)
    }

    /// Does a task, until the events have a mark, if there is one. `config`: of the scripted model,
    /// otherwise the adapter's own.
    fn task(&self, config: bool, model: &str, task: &str, mark: Option<&str>) -> Value {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/terminal-bench");
        let script = self.python.with_file_name("../trial.py");
        let mut options = json!({ "binary": toolhold() });
        if config {
            options["toolhold_toml"] =
                json!(self.scene.cli.root.path().join("config/toolhold.toml"));
        }
        let mut trial = Command::new(&self.python);
        trial.args(["-I", "-B"]).arg(script).arg(self.path(""));
        trial.args([folder, &options.to_string(), model, task]).args(mark);
        trial.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = trial.env("SCRIPTED_API_KEY", KEY).output().expect("it starts");
        self.scene.assert_fine();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

#[test]
fn agent_of_harbor_does_a_task_and_says_what_it_took() {
    let Some(container) = Container::new() else { return };
    let write = |name: &str, content: &str| {
        fs::write(container.path("app").join(name), content).expect("a file is written");
    };
    write("sum.sh", "expr \"$1\" - \"$2\"\n");
    write(
        "test.sh",
        "[ \"$(sh sum.sh 2 3)\" = 5 ] && echo all is well || { echo wrong sum; exit 1; }\n",
    );
    let ended = container.task(true, "scripted/scripted", "fix: it's the \"sum\" of $HOME", None);
    assert_eq!(ended["error"], Value::Null, "{ended}");
    let fixed = fs::read_to_string(container.path("app/sum.sh")).expect("it is there");
    assert_eq!(fixed, "expr \"$1\" + \"$2\"\n");
    assert_eq!(ended["info"]["version"], env!("CARGO_PKG_VERSION"));
    let events = fs::read_to_string(container.path("trial/agent/toolhold-events.jsonl"));
    let events = events.expect("Harbor has fetched it");
    let events = events.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    let spent = events.map(|event: Value| event["spent"].clone()).next_back().expect("it ended");
    let number = |key: &str| spent[key].as_u64().expect("a number");
    let (context, read) = (&ended["context"], ["input", "cache_read", "cache_written"]);
    assert_eq!(context["n_input_tokens"], read.into_iter().map(number).sum::<u64>());
    assert_eq!(context["n_output_tokens"], number("output"));
    assert!(number("output") > 0 && number("input") > 0, "{spent}");
    assert_eq!(context["metadata"], json!({ "turns": 6, "end": "done", "reason": null }));
}

#[test]
fn page_has_the_configuration_of_the_adapter() {
    let page = include_str!("../../../docs/terminal-bench.md");
    assert!(page.contains(&format!("```toml\n{}```\n", adapters_config())));
}

#[test]
fn agent_of_harbor_whose_time_is_over_has_its_tokens() {
    let Some(container) = Container::new() else { return };
    let ended = container.task(true, "scripted/scripted", "works:", Some("\"event\":\"call\""));
    assert_eq!(ended["error"][0], "CancelledError", "{ended}");
    assert_eq!(ended["context"]["metadata"]["end"], "unknown", "{ended}");
    assert!(ended["context"]["n_output_tokens"].as_u64() > Some(0), "{ended}");
    assert!(!container.path("app/never.txt").exists());
}

#[test]
fn agent_of_harbor_that_cannot_ask_its_model_is_an_error() {
    let Some(container) = Container::new() else { return };
    // Its configuration is made from the model's name. The key is missing, so nothing is asked.
    let ended = container.task(false, "anthropic/some-model", "answer: on", None);
    assert_eq!(ended["error"][0], "NonZeroAgentExitCodeError", "{ended}");
    assert!(ended["error"][1].to_string().contains("ANTHROPIC_API_KEY"), "{ended}");
    assert_eq!(ended["context"]["n_output_tokens"], 0);
}
