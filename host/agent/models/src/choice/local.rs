//! Looks for model servers at the usual places of this machine.

use std::time::Duration;

use toolhold_core::config::{Config, Folders, ModelFormat};
use toolhold_core::{CancellationToken, door};

use crate::choice::listeners::is_trusted_listener;
use crate::{ModelClient, ModelEndpoint, WireFormat};

/// The usual ports of servers on this machine, with their format: Ollama, llama.cpp, LM Studio and
/// vLLM.
const LOCAL: [(u16, WireFormat); 4] = [
    (11434, WireFormat::Ollama),
    (8080, WireFormat::Chat),
    (1234, WireFormat::Chat),
    (8000, WireFormat::Chat),
];

/// The time limit for a server on this machine to list its models.
const LOOK: Duration = Duration::from_millis(500);

/// A server on this machine that has a model.
#[derive(Clone, Debug)]
pub(super) struct LocalServer {
    pub(super) base_url: String,
    pub(super) format: ModelFormat,
    /// The first listed model that can answer.
    pub(super) model: String,
}

/// Finds the first server with a model at the usual ports of this machine. Servers of other users
/// aren't asked.
pub(super) async fn find_local_server(
    config: &Config,
    folders: &Folders,
    front_end: &str,
) -> Option<LocalServer> {
    let client = ModelClient::new(door(config, folders, front_end));
    for (port, format) in LOCAL {
        if is_trusted_listener(port)
            && let Some(server) = ask_server(&client, port, format).await
        {
            return Some(server);
        }
    }
    None
}

/// Asks the server at a port for its models. Returns `None` if no server of models answers.
async fn ask_server(client: &ModelClient, port: u16, format: WireFormat) -> Option<LocalServer> {
    let path = if format == WireFormat::Ollama { "" } else { "/v1" };
    let base_url = format!("http://127.0.0.1:{port}{path}");
    let provider = ModelEndpoint::new("local", format, &base_url).ok()?;
    let never = CancellationToken::new();
    let listing = client.list(&provider, &never);
    let listed = tokio::time::timeout(LOOK, listing).await.ok()?.ok()?;
    // Ollama and LM Studio also list the models that make vectors.
    let model = listed.into_iter().find(|model| !model.name.contains("embed"))?.name;
    let format = if format == WireFormat::Ollama { ModelFormat::Ollama } else { ModelFormat::Chat };
    Some(LocalServer { base_url, format, model })
}
