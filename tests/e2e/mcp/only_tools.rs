//! `toolhold serve --tools`: only the named tools are offered, and only they run.

use serde_json::{Value, json};

use super::client::{Client, LEGACY};
use crate::support::Cli;

/// The tools that show the rest of an answer and follow jobs. They are always offered.
const FOLLOWING: [&str; 4] = ["job_list", "job_output", "job_stop", "read_overflow"];

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().expect("there are tools");
    let mut names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    names.retain(|name| !FOLLOWING.contains(name));
    names.sort_unstable();
    names
}

#[test]
fn only_the_named_tools_are_offered_and_run() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &["--tools", "read,memory_*"], LEGACY, false);
    let tools = client.request("tools/list", json!({}));
    assert_eq!(names(&tools), ["memory_forget", "memory_save", "memory_search", "read"]);
    let read = client.call("read", json!({ "path": "notes.txt" }));
    assert_eq!(read["isError"], false, "{read}");

    // Neither by its name nor by an alias.
    for name in ["write", "file_write"] {
        let written = client.call(name, json!({ "path": "new.txt", "content": "x" }));
        assert_eq!(written["isError"], true, "{written}");
        let told = written.to_string();
        assert!(told.contains("--tools read,memory_*"), "{told}");
    }
    assert!(!cli.work().join("new.txt").exists());
    let ran = client.call("bash", json!({ "command": "touch new.txt" }));
    assert_eq!(ran["isError"], true, "{ran}");
    assert!(!cli.work().join("new.txt").exists());
    assert_eq!(client.leave(), 0);
}

#[test]
fn unknown_name_of_a_tool_ends_the_start() {
    let cli = Cli::new();
    for (tools, hint) in [
        ("reed", "did you mean `read`?"),
        ("read,git__*", "no tool is named `git__*`"),
        // An alias isn't a name.
        ("read,shell", "no tool is named `shell`"),
        ("", "no tool is named ``"),
        ("read,", "no tool is named ``"),
    ] {
        let ended = cli.run(&["serve", "--tools", tools]).ends(2);
        assert!(ended.stderr.contains(hint), "{tools}: {}", ended.stderr);
    }
}
