//! The guide to Toolhold's own agent in `docs/README.md`, with the scripted model as the provider.

use std::env;
use std::process::{Command, Stdio};

use super::Scene;
use crate::docs::markdown::{blocks, document};
use crate::support::{Ended, toolhold};

/// How the tasks of the guide begin, and how they begin for the scripted model: with the name of a
/// policy.
const TASKS: [(&str, &str); 2] =
    [("'set the port", "'edit: set the port"), ("'find what", "'find: find what")];

#[test]
fn guide_to_the_agent_is_followed() {
    let page = document("docs/README.md");
    let (_, guide) = page
        .split_once("\n## Guide: give tasks to Toolhold's own agent\n")
        .expect("the page has the guide");
    let (guide, _) = guide.split_once("\n## ").expect("another section follows");
    let shown = blocks(guide).into_iter().filter(|block| block.language == "sh");
    let mut script: String = shown.map(|block| block.text).collect();
    for (task, scripted) in TASKS {
        assert!(script.contains(task), "the guide has no task {task}");
        script = script.replace(task, scripted);
    }

    let scene = Scene::new("chat", "", "");
    scene.write("app.toml", "name = \"app\"\nport = 8080\n");
    scene.write("src/main.py", "print('hello')\n# TODO: say goodbye\n");
    let mut folders = vec![toolhold().parent().expect("it lies in a folder").to_owned()];
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let command = scene.cli.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]).current_dir(scene.work()).env_clear().stdin(Stdio::null());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", env::join_paths(folders).expect("no folder has a colon"));
    let ended = Ended::from_output(shell.output().expect("there is a shell")).ends(0);
    scene.assert_fine();

    for part in ["changed\n", "Undone.", "In src/main.py"] {
        assert!(ended.stdout.contains(part), "{part}: {}\n{}", ended.stdout, ended.stderr);
    }
    assert_eq!(scene.read("app.toml"), "name = \"app\"\nport = 8080\n");
}
