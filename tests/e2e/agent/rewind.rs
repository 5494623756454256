//! `/rewind` in `toolhold chat`: the conversation and the files go back to before a message.

use std::fs;

use super::Scene;
use super::terminal::Terminal;

const DOWN: &str = "\x1b[B";

/// Sends a message, and waits for the end of its task.
#[track_caller]
fn send(terminal: &mut Terminal, message: &str, answer: &str) {
    terminal.keys(&format!("{message}\r"));
    terminal.until(answer, |screen| screen.contains(answer) && screen.contains("ready"));
}

/// Goes back to before a message. `down`: the number of messages after it.
#[track_caller]
fn rewind(terminal: &mut Terminal, down: usize, message: &str) {
    terminal.keys("/rewind\r");
    terminal.until_shows("Go back to before which message?");
    terminal.keys(&DOWN.repeat(down));
    terminal.until_shows(&format!("› {message}"));
    terminal.keys("\r");
    terminal.until_shows("Go back to before this message");
    terminal.keys("y");
    terminal.until_shows("› Yes");
    terminal.keys("\r");
    terminal.until("the end of it", |screen| {
        screen.contains("goes on from before") && screen.contains("ready")
    });
}

#[test]
fn conversation_and_files_go_back_to_before_a_message() {
    let scene = Scene::new("chat", "", "");
    scene.write("app.toml", "port = 8080\n");
    let mut terminal = scene.chat((40, 100), &[]);
    send(&mut terminal, "answer: the first", "You said: the first");
    send(&mut terminal, "edit: the port", "changed");
    let write = r#"does: ["write", {"path": "later.txt", "content": "x"}]"#;
    send(&mut terminal, write, "it said:");
    assert_eq!(scene.read("app.toml"), "port = 9090\n");
    assert_eq!(scene.read("later.txt"), "x");

    rewind(&mut terminal, 1, "edit: the port");
    assert_eq!(scene.read("app.toml"), "port = 8080\n");
    assert!(!scene.work().join("later.txt").exists());
    send(&mut terminal, "after: the step back", "I go on: the step back");
    let asked = scene.bodies().pop().expect("it was asked");
    assert!(asked.contains("answer: the first"), "{asked}");
    assert!(!asked.contains("edit: the port") && !asked.contains("later.txt"), "{asked}");
    // Messages that the model doesn't have any more aren't offered.
    terminal.keys("/rewind\r");
    terminal.until_shows("› after: the step back");
    assert!(!terminal.screen().contains("  edit: the port"), "{}", terminal.screen());
    terminal.keys("\x1b");
    terminal.until_shows("ready");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().0, 0);

    // The session file has all messages, and a resumed session has the same as before.
    let came = scene.once(&["--continue", "after: a pause"]).assert_answer(0, "I go on: a pause");
    let asked = scene.bodies().pop().expect("it was asked");
    assert!(asked.contains("the step back") && !asked.contains("edit: the port"), "{asked}");
    let record = fs::read_to_string(scene.record(&came.id())).expect("it is there");
    assert!(record.contains("edit: the port") && record.contains("{\"rewound\":"), "{record}");
    let shown = scene.cli.run(&["run", "sessions", "show", &came.id()]).ends(0).stdout;
    assert!(shown.contains("goes on from before the message: edit: the port"), "{shown}");
    scene.assert_fine();
}

#[test]
fn file_that_was_changed_since_stays_and_the_model_learns_of_it() {
    let scene = Scene::new("chat", "", "");
    scene.write("app.toml", "port = 8080\n");
    let mut terminal = scene.chat((40, 100), &[]);
    send(&mut terminal, "edit: the port", "changed");
    scene.write("app.toml", "port = 7\n");
    rewind(&mut terminal, 0, "edit: the port");
    assert!(terminal.screen().contains("not restored"), "{}", terminal.screen());
    assert_eq!(scene.read("app.toml"), "port = 7\n");
    send(&mut terminal, "after: a conflict", "I go on: a conflict");
    let asked = scene.bodies().pop().expect("it was asked");
    assert!(!asked.contains("edit: the port") && asked.contains("not restored"), "{asked}");
}

#[test]
fn undo_takes_the_calls_of_one_turn() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((40, 100), &[]);
    let first = r#"does: ["write", {"path": "first.txt", "content": "x"}]"#;
    send(&mut terminal, first, "it said:");
    let calls = r#"tries: [["write", {"path": "a.txt", "content": "x"}], ["write", {"path": "b.txt", "content": "x"}]]"#;
    terminal.keys(&format!("{calls}\r"));
    terminal.until("both files", |screen| scene.read("b.txt") == "x" && screen.contains("ready"));
    assert_eq!(scene.read("a.txt"), "x");
    terminal.keys("/undo\r");
    terminal.until_shows("Undo 2 calls of the last turn?");
    terminal.keys("y");
    terminal.until_shows("› Yes");
    terminal.keys("\r");
    terminal.until_shows("Undone: ");
    assert!(!scene.work().join("a.txt").exists() && !scene.work().join("b.txt").exists());
    assert_eq!(scene.read("first.txt"), "x");
}
