//! Looks for model servers at the usual places of this machine.

use std::time::Duration;

use toolhold_core::config::{Config, Folders};
use toolhold_core::{CancellationToken, door};

use crate::{ModelClient, ModelEndpoint, WireFormat};

/// The usual addresses of servers on this machine, with their format.
const LOCAL: [(&str, WireFormat); 4] = [
    ("http://127.0.0.1:11434", WireFormat::Ollama),
    ("http://127.0.0.1:8080/v1", WireFormat::Chat),
    ("http://127.0.0.1:1234/v1", WireFormat::Chat),
    ("http://127.0.0.1:8000/v1", WireFormat::Chat),
];

/// Time for a server on this machine to list its models.
const LOOK: Duration = Duration::from_millis(500);

/// A server on this machine that has models.
#[derive(Clone, Debug)]
pub struct LocalServer {
    /// Its base URL.
    pub base_url: &'static str,
    /// How its format is written in the configuration.
    pub format: &'static str,
    /// Its models.
    pub models: Vec<String>,
}

/// Looks for servers at the usual places of this machine.
pub async fn find_local_servers(
    config: &Config,
    folders: &Folders,
    front_end: &str,
) -> Vec<LocalServer> {
    let client = ModelClient::new(door(config, folders, front_end));
    let mut searches = tokio::task::JoinSet::new();
    for (base_url, format) in LOCAL {
        searches.spawn(find_server(client.clone(), base_url, format));
    }
    let mut servers: Vec<LocalServer> = searches.join_all().await.into_iter().flatten().collect();
    servers.sort_by_key(|server| LOCAL.iter().position(|(url, _)| *url == server.base_url));
    servers
}

/// Lists the models of the server at a URL. Returns `None` if no such server answers.
async fn find_server(
    client: ModelClient,
    base_url: &'static str,
    format: WireFormat,
) -> Option<LocalServer> {
    let provider = ModelEndpoint::new("local", format, base_url).ok()?;
    let never = CancellationToken::new();
    let listing = client.list(&provider, &never);
    let listed = tokio::time::timeout(LOOK, listing).await.ok()?.ok()?;
    let models = listed.into_iter().map(|model| model.name).collect();
    let format = if format == WireFormat::Ollama { "ollama" } else { "chat" };
    Some(LocalServer { base_url, format, models })
}
