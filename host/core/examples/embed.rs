//! A program with tools for its model: the host inside, a configuration in code, the tools as a
//! model's API wants them, and a turn whose calls can be cancelled.
//!
//! ```text
//! cargo run -p berth-core --example embed -- target/plugins/file.wasm FOLDER
//! ```
//!
//! `FOLDER` is all that the program takes of the machine: the tools work in `FOLDER/work`, and
//! Berth keeps its own files in `FOLDER/berth`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use berth_core::config::{self, Folders, Inputs};
use berth_core::{
    Builtin, CancellationToken, Content, Definition, Events, Host, Outcome, Progress, Request,
};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    // First, before there is a second thread: plugins are compiled by this program, started again.
    berth_core::helper_hook();
    let [plugin, folder] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "usage: embed file.wasm FOLDER")?;
    let reactor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = reactor.block_on(agent(&plugin, Path::new(&folder)));
    // Without waiting for a call that hangs in a system call: its answer has left long ago.
    reactor.shutdown_background();
    result
}

async fn agent(plugin: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let host = host(plugin, folder).await?;
    let tools = for_the_model(&host);
    println!("{} tools, the first of them {}", tools.len(), tools[0]);

    // What a model might ask for in one turn. It never sees an error that it could not act on: what
    // failed is an answer as well.
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

    // The person presses "stop". That ends every call of the turn that runs, and those that are
    // still to come.
    turn.cancel();
    call(&host, &turn, "grep", json!({ "pattern": "look" })).await;
    Ok(())
}

/// A host of this program's own: no folder and no setting is shared with the `berth` of the user.
async fn host(plugin: &str, folder: &Path) -> Result<Host, Box<dyn Error>> {
    let work = folder.join("work");
    std::fs::create_dir_all(&work)?;
    let folders = Folders::inside(&folder.join("berth"));
    // Checked like a file: a wrong key is an error, since it might have been the one that protects
    // something. This program has nobody to ask: what isn't denied is allowed.
    let settings = [r#"tools.file.deny_read=["**/.env"]"#, "tools.call=10", "tools.autonomy=full"]
        .map(String::from)
        .to_vec();
    let config = config::load(&folders, &Inputs { settings, ..Inputs::default() })?;
    // A program that ships would write `include_bytes!("file.wasm")`, and need no other file.
    let file = Builtin { name: "file", wasm: std::fs::read(plugin)?.leak(), compiled: None };
    Ok(Host::builder()
        .config(config)
        .folders(folders)
        .working_directory(work)
        .builtins(&[file])
        .build()
        .await?)
}

/// The tools as a model's API takes them; the names of these three fields differ a little from one
/// to the next.
fn for_the_model(host: &Host) -> Vec<Value> {
    let in_json = |tool: &Definition| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema });
    host.tools().iter().map(|tool| in_json(tool)).collect()
}

/// One call, and what the model and the person get to see of it.
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
            // Only a person can change a rule, so here is what to change and where.
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

/// Shows what a tool tells while it runs. It is called on the thread that runs the tool, so it must
/// not take long.
struct Screen;

impl Events for Screen {
    fn progress(&self, progress: Progress) {
        println!("… {}", progress.message);
    }

    fn emitted(&self, part: &Content) {
        println!("… {}", part.as_text().unwrap_or("(no text)"));
    }
}
