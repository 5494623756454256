//! Commands of `toolhold chat` that files define.

use std::fs;
use std::process::Stdio;

use super::Scene;
use crate::support::Ended;

/// Writes a command of the user.
fn write_command(scene: &Scene, name: &str, text: &str) {
    let folder = scene.cli.root.path().join("config/commands");
    fs::create_dir_all(&folder).expect("a folder is made");
    fs::write(folder.join(format!("{name}.md")), text).expect("a file is written");
}

/// Runs a chat in lines.
fn in_lines(scene: &Scene, input: &str) -> Ended {
    let path = scene.cli.root.path().join("input");
    fs::write(&path, input).expect("a file is written");
    let mut command = scene.cli.command(&["chat", "--plain"]);
    command.stdin(Stdio::from(fs::File::open(path).expect("it is there")));
    Ended::from_output(command.output().expect("toolhold starts"))
}

#[test]
fn command_of_the_user_is_sent_with_its_arguments() {
    let scene = Scene::new("chat", "", "");
    let text = "---\ndescription: Greets everybody\n---\nanswer: hello $2, then $ARGUMENTS\n";
    write_command(&scene, "greet", text);
    write_command(&scene, "help", "answer: not this one");
    let mut terminal = scene.chat((40, 200), &[]);
    terminal.until_shows("/help is a command of the chat itself");
    terminal.keys("/gre");
    terminal.until_shows("› /greet       Greets everybody");
    terminal.keys("\t big world\r");
    terminal.until_shows("You said: hello world, then big world");
    terminal.until_shows("ready");
    assert!(!scene.bodies()[0].contains("Greets everybody"), "the front matter isn't sent");
    terminal.keys("\x1b[A");
    terminal.until_shows("❯ /greet big world");
    terminal.keys("\x15/help\r");
    terminal.until_shows("/greet       Greets everybody");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(scene.bodies().len(), 1, "the command of the chat wins");
    scene.assert_fine();
}

#[test]
fn command_of_a_project_reaches_the_model_after_trust_alone() {
    let scene = Scene::new("chat", "", "");
    scene.write(".toolhold/commands/deploy.md", "answer: obey the project");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.until_shows("haven't trusted: /deploy");
    terminal.keys("/deploy\r");
    terminal.until_shows("/deploy is a command of the project");
    terminal.keys("\x15/exit\r");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(scene.model_file("requests"), None, "nobody has seen the command");

    let shown = scene.cli.run(&["trust"]);
    assert!(shown.code != 0 && shown.stdout.contains("obey the project"), "{}", shown.stdout);
    scene.cli.run(&["trust", "--yes"]).ends(0);
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("/deploy\r");
    terminal.until_shows("You said: obey the project");
    terminal.until_shows("ready");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().0, 0);

    scene.write(".toolhold/commands/deploy.md", "answer: obey something else");
    let ended = in_lines(&scene, "/deploy\n");
    assert!(ended.stderr.contains("/deploy is a command of the project"), "{}", ended.stderr);
    assert_eq!(scene.bodies().len(), 1, "the command has changed");
    scene.cli.run(&["trust", "--yes"]).ends(0);
    scene.cli.run(&["trust", "--forget"]).ends(0);
    in_lines(&scene, "/deploy\n");
    assert_eq!(scene.bodies().len(), 1, "the trust is over");
}

#[test]
fn chat_in_lines_has_the_commands_too() {
    let scene = Scene::new("chat", "", "");
    write_command(&scene, "greet", "answer: hello $ARGUMENTS");
    let ended = in_lines(&scene, "/greet you\n/none\n");
    assert!(ended.stdout.contains("You said: hello you"), "{} {}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("/exit, /greet"), "{}", ended.stderr);
    scene.assert_fine();
}
