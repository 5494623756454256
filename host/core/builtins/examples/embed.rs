//! A program that gives its model tools. It has its own host and a configuration in code.
//!
//! ```text
//! cargo run -p toolhold-builtins --example embed -- FOLDER
//! ```
//!
//! The program uses only `FOLDER`: tools work in `FOLDER/work`, and Toolhold keeps its own files in
//! `FOLDER/toolhold`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{
    CancellationToken, Content, Definition, Events, Host, Outcome, Progress, Request,
};

fn main() -> Result<(), Box<dyn Error>> {
    // Must be the first call, before a second thread starts, because the program starts itself
    // again to compile plugins.
    toolhold_core::helper_hook();
    let folder = std::env::args().nth(1).ok_or("usage: embed FOLDER")?;
    let reactor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = reactor.block_on(agent(Path::new(&folder)));
    // A call may hang in a system call, so the shutdown doesn't wait.
    reactor.shutdown_background();
    result
}

async fn agent(folder: &Path) -> Result<(), Box<dyn Error>> {
    let host = host(folder).await?;
    let tools = for_the_model(&host);
    println!("{} tools, the first of them {}", tools.len(), tools[0]);

    // Calls that a model might make. The model also gets failures, because failures contain advice.
    let turn = CancellationToken::new();
    for (tool, arguments) in [
        ("write", json!({ "path": "plan.md", "content": "1. look around\n" })),
        ("read", json!({ "path": "plan.md" })),
        ("read", json!({ "file": "plan.md" })),
        ("read", json!({ "path": ".env" })),
        ("read", json!({ "path": "/etc/passwd" })),
    ] {
        call(&host, &turn, tool, arguments).await;
    }

    // The user presses "stop", which ends the turn's running calls and refuses later calls.
    turn.cancel();
    call(&host, &turn, "grep", json!({ "pattern": "look" })).await;
    Ok(())
}

/// Creates a host that shares no folder and no setting with the user's `toolhold`.
async fn host(folder: &Path) -> Result<Host, Box<dyn Error>> {
    let work = folder.join("work");
    std::fs::create_dir_all(&work)?;
    let folders = Folders::inside(&folder.join("toolhold"));
    // The settings are checked like a file, so a wrong key is an error. With full autonomy, no call
    // waits for approval.
    let settings = [r#"tools.file.deny_read=["**/.env"]"#, "tools.call=10", "tools.autonomy=full"]
        .map(String::from)
        .to_vec();
    let config = config::load(&folders, &Inputs { settings, ..Inputs::default() })?;
    Ok(Host::builder()
        .config(config)
        .folders(folders)
        .working_directory(work)
        .builtins(toolhold_builtins::all())
        .build()
        .await?)
}

/// Returns the tools in the form of a model's API. Field names differ a little between APIs.
fn for_the_model(host: &Host) -> Vec<Value> {
    host.tools().iter().map(|tool| in_json(tool)).collect()
}

fn in_json(tool: &Definition) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema })
}

/// Makes one call and prints its answer.
async fn call(host: &Host, turn: &CancellationToken, tool: &str, arguments: Value) {
    let request = Request {
        cancel: turn.child_token(),
        events: Arc::new(Screen),
        ..Request::new(tool, arguments)
    };
    let answer = host.call(request).await;
    println!("{tool}: {}", for_the_person(&answer.outcome));
}

fn for_the_person(outcome: &Outcome) -> String {
    match outcome {
        Ok(output) => output.joined_text(),
        Err(failure) => match &failure.denial {
            // Show the remedy here, because only a person can change the rule.
            Some(denial) => format!(
                "refused: {}\n  by {} ({})\n  {}",
                denial.action, denial.rule, denial.place, denial.remedy
            ),
            None => format!(
                "{}: {} {}",
                failure.category.as_str(),
                failure.message,
                failure.suggestion.as_deref().unwrap_or_default()
            ),
        },
    }
}

/// Prints the progress of a running tool. The code runs on the tool's thread, so it must be quick.
struct Screen;

impl Events for Screen {
    fn progress(&self, progress: Progress) {
        println!("… {}", progress.message);
    }

    fn emitted(&self, part: &Content) {
        println!("… {}", part.as_text().unwrap_or("(no text)"));
    }
}
