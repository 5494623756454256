//! Stores the running servers of a process, for the next host of the process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use toolhold_core::config::{Config, Folders};
use toolhold_core::{HostError, ToolSource};
use toolhold_net::Network;

use crate::launch::{Launch, Surroundings};
use crate::pins::{Pins, start_digest};
use crate::running::Running;
use crate::server::Server;

/// The running servers of a process. A new host takes over each server whose start settings and
/// approval are unchanged.
pub struct Servers {
    front_end: &'static str,
    network: Network,
    running: Mutex<HashMap<String, Weak<Running>>>,
}

impl Servers {
    /// Makes an empty registry. `front_end` names the front end in the audit log.
    pub fn new(front_end: &'static str) -> Self {
        Self { front_end, network: Network::default(), running: Mutex::default() }
    }

    /// Sets the network settings that aren't in the configuration, such as the addresses where this
    /// process listens. Servers can't connect to these addresses, even with a grant.
    #[must_use]
    pub fn with_network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Returns the approved servers of the configuration. A server starts at its first call. With
    /// `tool`, returns only the server of that tool. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the approvals can't be read.
    pub fn providers(
        &self,
        config: &Config,
        folders: &Folders,
        directory: &Path,
        tool: Option<&str>,
    ) -> Result<Vec<Arc<dyn ToolSource>>, HostError> {
        let mut providers: Vec<Arc<dyn ToolSource>> = Vec::new();
        let mcp = &config.values.mcp;
        let mut servers = Vec::new();
        for (name, server) in &mcp.servers {
            let is_enabled = mcp.enabled && server.enabled;
            let is_needed = tool.is_none_or(|tool| has_tool(name, tool));
            if is_enabled && is_needed {
                servers.push((name, server));
            }
        }
        if servers.is_empty() {
            return Ok(providers);
        }

        let surroundings = Surroundings::new(config, folders, directory, self.front_end);
        // A trust store keeps the authorities of its first use, so another configuration needs
        // another one.
        let network = Network { trust: Arc::default(), ..self.network.clone() };
        let surroundings = Arc::new(surroundings.with_network(network));
        for (name, server) in servers {
            let approved = config.approved_server(name).unwrap_or(server);
            let pins = Pins::load(config, folders, name, approved)?;
            if pins.start != start_digest(approved) {
                let state = if pins.start.is_empty() { "isn't approved" } else { "has changed" };
                tracing::warn!("the server `{name}` {state}: run `toolhold mcp approve {name}`");
                continue;
            }
            let launch = Launch::new(&surroundings, name, server, pins.lock.clone());
            providers.push(Arc::new(Server::new(name, self.running(name, launch, pins))));
        }
        Ok(providers)
    }

    /// Returns the running server if its start settings and approval are unchanged, or a new
    /// server.
    fn running(&self, name: &str, launch: Launch, pins: Pins) -> Arc<Running> {
        let mut servers = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let present_server = servers.get(name).and_then(Weak::upgrade);
        if let Some(running) = present_server
            && *running.launch == launch
            && running.pins == pins
        {
            return running;
        }
        let new_server = Arc::new(Running::new(launch, pins));
        servers.insert(name.to_owned(), Arc::downgrade(&new_server));
        new_server
    }
}

fn has_tool(server: &str, tool: &str) -> bool {
    tool.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_core::config::{Inputs, load};
    use toolhold_net::TrustStore;

    /// Makes the providers of a configuration with files of authorities. Returns the trust store of
    /// the server `s`.
    fn trust_with(servers: &Servers, folder: &Path, authorities: &str) -> Arc<TrustStore> {
        let folders = Folders { home: Some(folder.join("home")), ..Folders::inside(folder) };
        let file = folder.join("toolhold.toml");
        let text = format!(
            "[network]\nauthorities = [{authorities}]\n[mcp.servers.s]\ncommand = \"x\"\n\
             hosts = [\"api.example.com\"]\n"
        );
        std::fs::write(&file, text).expect("it is written");
        let inputs = Inputs { file: Some(file), ..Inputs::default() };
        let config = load(&folders, &inputs).expect("it is valid");
        let start = start_digest(&config.values.mcp.servers["s"]);
        let pins = Pins { start, ..Pins::default() };
        pins.store(&folders, "s").expect("it is approved");
        let tool = None;
        let providers = servers.providers(&config, &folders, folder, tool).expect("the pins");
        assert_eq!(providers.len(), 1);
        let running = servers.running.lock().expect("nobody panicked")["s"].upgrade();
        let launch = Arc::clone(&running.expect("the provider has it").launch);
        let hosts = launch.places().expect("it is configured").hosts.expect("a host is granted");
        hosts.network.trust
    }

    #[test]
    fn servers_of_a_changed_configuration_do_not_keep_the_authorities() {
        let folder = tempfile::tempdir().expect("a folder is made");
        std::fs::write(folder.path().join("ca.pem"), "").expect("it is written");
        let servers = Servers::new("toolhold test");
        let before = trust_with(&servers, folder.path(), "");
        let after = trust_with(&servers, folder.path(), "\"ca.pem\"");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
