//! Attacks on `berth:host/service`, and a client of language servers over it.

use std::time::{Duration, Instant};

use berth_sdk::service::{self, Connection};
use berth_sdk::{Annotations, Call, Failure, Output, Tool, store};
use language_server::{Client, LspError, Position, ServerState, Transport};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

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
    const ANNOTATIONS: Annotations = Annotations::ACTING;
    type Arguments = TalkArguments;

    fn call(arguments: TalkArguments, _: &Call) -> Result<Output, Failure> {
        let TalkArguments { name, words, text, lines, keep, directory } = arguments;
        let mut connection = service::connect(&name, words, directory.as_deref())?;
        let (is_new, end) = (connection.is_new(), Instant::now() + PATIENCE);
        connection.write(text.as_bytes());
        let mut read = Vec::new();
        while read.iter().filter(|byte| **byte == b'\n').count() < lines
            && Instant::now() < end
            && !connection.has_ended()
        {
            read.extend(connection.read(Some(Duration::from_millis(100))));
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
    const ANNOTATIONS: Annotations = Annotations::ACTING;
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

/// A service as the way to a language server.
struct Service(Connection);

impl Transport for Service {
    fn read(&mut self, timeout: Duration) -> Result<Vec<u8>, LspError> {
        let bytes = self.0.read(Some(timeout));
        if bytes.is_empty() && self.0.has_ended() { Err(LspError::Ended) } else { Ok(bytes) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LspError> {
        let written = self.0.write(bytes);
        if written < bytes.len() as u64 { Err(LspError::Ended) } else { Ok(()) }
    }
}

impl Tool for Define {
    const NAME: &str = "define";
    const DESCRIPTION: &str = "Asks a language server where something is defined.";
    const ANNOTATIONS: Annotations = Annotations::ACTING;
    type Arguments = DefineArguments;

    fn call(arguments: DefineArguments, call: &Call) -> Result<Output, Failure> {
        let DefineArguments { words, language, path, text, line, character } = arguments;
        let connection = service::connect("server", words, None)?;
        let is_new = connection.is_new();
        let kept: Option<ServerState> = if is_new { None } else { store::get_json("state")? };
        let time = call.remaining().saturating_sub(Duration::from_secs(1));
        let mut client = Client::new(Service(connection), kept.unwrap_or_default(), time);
        let root = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        client.initialize(root)?;
        client.open(&path, &language, &text)?;
        let at = Position { line, character };
        let found = client.definition(&path, at)?;
        let (hover, symbols) = (client.hover(&path, at)?, client.document_symbols(&path)?);
        let (Service(connection), state) = client.into_state();
        if let Some(state) = state {
            store::put("state", serde_json::to_vec(&state)?)?;
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

berth_sdk::plugin! {
    name: "hostile-service",
    description: "Attacks through services",
    capabilities: [
        process = "to try what must not work",
        service = "to try what must not work",
        store = "to keep what is known of a server",
    ],
    tools: [Talk, Stop, Define],
}
