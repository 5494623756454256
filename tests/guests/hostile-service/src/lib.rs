//! Attacks on `toolhold:host/service`, and a client of language servers over it.

use std::time::{Duration, Instant};

use language_server::{Client, Position};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolhold_sdk::service;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

/// The time for an answer of a service.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes to a service, and returns what it writes.
struct Talk;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TalkArguments {
    /// The service.
    name: String,
    /// Its command.
    words: Vec<String>,
    /// What is written.
    text: String,
    /// The lines that are waited for.
    lines: usize,
    /// Whether the service is kept.
    keep: bool,
    /// Its directory.
    directory: Option<String>,
}

impl Tool for Talk {
    const NAME: &str = "talk";
    const DESCRIPTION: &str = "Writes to a service, and returns what it writes.";
    const PROMISES: Promises = Promises::NONE;
    type Arguments = TalkArguments;

    fn call(arguments: TalkArguments, _: &Call) -> Result<Output, Failure> {
        let TalkArguments { name, words, text, lines, keep, directory } = arguments;
        let mut connection = service::connect(&name, words, directory.as_deref())?;
        let (is_new, end) = (connection.is_new(), Instant::now() + PATIENCE);
        connection.write(text.as_bytes());
        let mut read = Vec::new();
        while read.iter().filter(|byte| **byte == b'\n').count() < lines && Instant::now() < end {
            // What it wrote before its end is read after it.
            let has_ended = connection.has_ended();
            read.extend(connection.read(Some(Duration::from_millis(100))));
            if has_ended {
                break;
            }
        }
        let read = String::from_utf8_lossy(&read).into_owned();
        let has_ended = connection.has_ended();
        if keep {
            connection.keep();
        }
        Output::json(&json!({ "is_new": is_new, "read": read, "has_ended": has_ended }))
    }
}

/// Stops a service.
struct Stop;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopArguments {
    /// The service.
    name: String,
}

impl Tool for Stop {
    const NAME: &str = "stop";
    const DESCRIPTION: &str = "Stops a service.";
    const PROMISES: Promises = Promises::NONE;
    type Arguments = StopArguments;

    fn call(arguments: StopArguments, _: &Call) -> Result<Output, Failure> {
        Output::json(&json!({ "stopped": service::stop(&arguments.name) }))
    }
}

/// Asks a language server where something is defined.
struct Define;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DefineArguments {
    /// The command of the server.
    words: Vec<String>,
    /// The name of its language.
    language: String,
    /// The file, absolute.
    path: String,
    /// The text of the file.
    text: String,
    /// The line, from 0.
    line: u32,
    /// The column, from 0.
    character: u32,
}

impl Tool for Define {
    const NAME: &str = "define";
    const DESCRIPTION: &str = "Asks a language server where something is defined.";
    const PROMISES: Promises = Promises::NONE;
    type Arguments = DefineArguments;

    fn call(arguments: DefineArguments, call: &Call) -> Result<Output, Failure> {
        let DefineArguments { words, language, path, text, line, character } = arguments;
        let connection = service::connect("server", words, None)?;
        let is_new = connection.is_new();
        let time = call.remaining().saturating_sub(Duration::from_secs(1));
        let mut client = Client::new(connection, time);
        if is_new {
            let root = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
            client.initialize(root, &Value::Null)?;
        }
        client.open(&path, &language, &text)?;
        let at = Position { line, character };
        let found = client.definition(&path, at)?;
        let (hover, symbols) = (client.hover(&path, at)?, client.document_symbols(&path)?);
        if let Some(connection) = client.finish() {
            connection.keep();
        }
        let places: Vec<_> =
            found.iter().map(|place| json!([place.path, place.start.line])).collect();
        let names: Vec<_> = symbols.into_iter().map(|symbol| symbol.name).collect();
        Output::json(
            &json!({ "is_new": is_new, "places": places, "hover": hover, "symbols": names }),
        )
    }
}

toolhold_sdk::plugin! {
    name: "hostile-service",
    description: "Attacks through services",
    capabilities: [
        process = "to try what must not work",
        service = "to try what must not work",
    ],
    tools: [Talk, Stop, Define],
}
