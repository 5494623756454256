//! Finds model servers at the usual ports of this machine.

use std::time::Duration;

use toolhold_core::config::{Config, Folders, KnownProvider, ModelFormat};
use toolhold_core::{CancellationToken, outbound_client};

use crate::choice::listeners::is_trusted_listener;
use crate::{ListedModel, ModelClient, ModelEndpoint, WireFormat};

/// The usual ports of Ollama, llama.cpp, LM Studio and vLLM.
const LOCAL_SERVERS: [(u16, WireFormat); 4] = [
    (11434, WireFormat::Ollama),
    (8080, WireFormat::Chat),
    (1234, WireFormat::Chat),
    (8000, WireFormat::Chat),
];

/// The name of Ollama's provider.
const OLLAMA: &str = "ollama";

/// The name of the provider for a local server that isn't Ollama.
pub(super) const LOCAL: &str = "local";

/// The names of local servers that aren't the names of known providers.
pub(super) const SERVER_NAMES: [&str; 4] = [LOCAL, "llama.cpp", "lmstudio", "vllm"];

/// The time limit for the list of a local server's models.
const LOCAL_LIST_TIME: Duration = Duration::from_millis(500);

/// The time limit for the list of any other server's models.
const REMOTE_LIST_TIME: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct LocalServer {
    /// The name of the server's provider.
    pub(super) name: &'static str,
    pub(super) base_url: String,
    pub(super) format: ModelFormat,
    /// The first listed model that isn't an embedding model.
    pub(super) model: String,
}

/// Finds the servers of [`LOCAL_SERVERS`] that have a model: Ollama, and the first other server.
/// Servers of other users get no request.
pub(super) async fn find_local_servers(
    config: &Config,
    folders: &Folders,
    front_end: &str,
) -> Vec<LocalServer> {
    let outbound_client = outbound_client(config, folders, front_end);
    let client = ModelClient::new(outbound_client);
    let mut found: Vec<LocalServer> = Vec::new();
    for (port, format) in LOCAL_SERVERS {
        let name = if format == WireFormat::Ollama { OLLAMA } else { LOCAL };
        let is_name_taken = found.iter().any(|server| server.name == name);
        if !is_name_taken && is_trusted_listener(port) {
            found.extend(ask_server(&client, name, port, format).await);
        }
    }
    found
}

/// Returns the server at a port, or `None` if the server lists no model in time.
async fn ask_server(
    client: &ModelClient,
    name: &'static str,
    port: u16,
    format: WireFormat,
) -> Option<LocalServer> {
    let is_ollama = format == WireFormat::Ollama;
    let path = if is_ollama { "" } else { "/v1" };
    let base_url = format!("http://127.0.0.1:{port}{path}");
    let provider = ModelEndpoint::new("local", format, &base_url).ok()?;
    let never = CancellationToken::new();
    let listing = client.list(&provider, &never);
    let Ok(Ok(listed)) = tokio::time::timeout(LOCAL_LIST_TIME, listing).await else { return None };
    let model = first_model(listed)?;
    let format = if is_ollama { ModelFormat::Ollama } else { ModelFormat::Chat };
    Some(LocalServer { name, base_url, format, model })
}

/// Returns the first model that isn't an embedding model. Ollama and LM Studio list both kinds.
fn first_model(listed: Vec<ListedModel>) -> Option<String> {
    Some(listed.into_iter().find(|model| !model.name.contains("embed"))?.name)
}

/// Returns the model for a server that replaces a known provider's server: the provider's default
/// model, or the first listed model if the list lacks the default model.
pub(super) async fn listed_model(client: &ModelClient, provider: &ModelEndpoint) -> String {
    let known = KnownProvider::find(provider.name());
    let default_model = known.map_or("", |known| known.default_model);
    let never = CancellationToken::new();
    let listing = client.list(provider, &never);
    let listed = match tokio::time::timeout(REMOTE_LIST_TIME, listing).await {
        Ok(Ok(listed)) => listed,
        _ => Vec::new(),
    };
    let has_default = listed.iter().any(|model| model.name == default_model);
    match first_model(listed) {
        Some(first) if !has_default => first,
        _ => default_model.to_owned(),
    }
}
