//! A program that offers a tool of its own. The host checks its arguments and shapes its answers
//! like those of a plugin.
//!
//! ```text
//! cargo run -p toolhold-builtins --example provider -- FOLDER
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use toolhold_core::config::Folders;
use toolhold_core::{
    Annotations, Answer, BoxFuture, Call, CancellationToken, Category, Content, Definition, Events,
    Failure, Host, Outcome, Output, Progress, Request, ToolSource,
};

/// The tool's arguments. The JSON Schema is generated from this type.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Seconds to wait.
    #[schemars(range(min = 0, max = 60))]
    seconds: f64,
    /// Text of the reminder.
    note: String,
}

struct Reminder {
    tool: Arc<Definition>,
}

impl Reminder {
    fn new() -> Self {
        let schema = schemars::schema_for!(Arguments).to_value();
        let definition = Definition::new(
            "remind",
            "Waits for some seconds, then answers with the note.",
            schema,
        );
        // By default, the host expects the worst of a tool, so say what this tool doesn't do.
        let annotations = Annotations {
            read_only: true,
            destructive: false,
            open_world: false,
            ..Annotations::default()
        };
        Self { tool: Arc::new(Definition { annotations, ..definition }) }
    }
}

impl ToolSource for Reminder {
    fn name(&self) -> &str {
        "reminder"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.tool)]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(remind(call))
    }
}

async fn remind(call: Call) -> Outcome {
    // The host has checked the arguments against the schema, so only rules that a schema can't
    // express remain.
    let arguments: Arguments = Arguments::deserialize(&*call.arguments)
        .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
    let step = Duration::from_secs_f64(arguments.seconds / 4.0);
    for quarter in 1..=4 {
        if timeout(step, call.cancel.cancelled()).await.is_ok() {
            return Err(Failure::new(Category::Cancelled, "the reminder was cancelled"));
        }
        let fraction = Some(f64::from(quarter) / 4.0);
        let message = format!("{quarter} of 4 quarters");
        call.events.progress(Progress { fraction, message, untrusted: false });
    }
    Ok(Output::text(arguments.note))
}

fn main() -> Result<(), Box<dyn Error>> {
    toolhold_core::helper_hook();
    let folder = std::env::args().nth(1).ok_or("usage: provider FOLDER")?;
    let reactor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    reactor.block_on(calls(Path::new(&folder)))
}

async fn calls(folder: &Path) -> Result<(), Box<dyn Error>> {
    let builder = Host::builder()
        .folders(Folders::inside(&folder.join("toolhold")))
        .working_directory(folder);
    let host = builder
        .builtins(toolhold_builtins::all())
        .provider(Arc::new(Reminder::new()))
        .build()
        .await?;
    println!(
        "tools: {}",
        host.tools().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ")
    );

    show(host.call(Request { events: Arc::new(Screen), ..request(0.2, "Tea!") }).await);
    // The host refuses this call, because the value doesn't match the schema.
    show(host.call(request(3600.0, "Tea!")).await);
    // The host replaces control characters in an answer.
    show(host.call(request(0.0, "\u{1b}[31mred")).await);
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move { stop.cancel() });
    show(host.call(Request { cancel, ..request(60.0, "Too late!") }).await);
    Ok(())
}

fn request(seconds: f64, note: &str) -> Request {
    Request::new("remind", json!({ "seconds": seconds, "note": note }))
}

fn show(answer: Answer) {
    match answer.outcome {
        Ok(output) => println!("{}", output.joined_text()),
        Err(failure) => println!("{}: {}", failure.category.as_str(), failure.message),
    }
}

struct Screen;

impl Events for Screen {
    fn progress(&self, progress: Progress) {
        println!("… {}", progress.message);
    }

    fn emitted(&self, _part: &Content) {}
}
