//! Stores the running servers of a process. The next host of the process uses the servers that
//! didn't change.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use toolhold_core::config::{Config, Folders};
use toolhold_core::{HostError, ToolSource};

use crate::launch::{Launch, Surroundings};
use crate::pins::{Pins, start_digest};
use crate::running::Running;
use crate::server::Server;

/// The servers of a process. The next host uses a running server if no setting of its start has
/// changed. The server then keeps its state.
pub struct Servers {
    front_end: &'static str,
    running: Mutex<HashMap<String, Weak<Running>>>,
}

impl Servers {
    /// Makes a registry without servers. `front_end` is the front end in the records of requests to
    /// servers at a URL.
    pub fn new(front_end: &'static str) -> Self {
        Self { front_end, running: Mutex::default() }
    }

    /// Returns the approved servers of the configuration. A server starts only when a call needs
    /// it. If `tool` is the only tool that will be called, returns only the server of this tool.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the approvals can't be read.
    pub fn providers(
        &self,
        config: &Config,
        folders: &Folders,
        directory: &Path,
        tool: Option<&str>,
    ) -> Result<Vec<Arc<dyn ToolSource>>, HostError> {
        let mut providers: Vec<Arc<dyn ToolSource>> = Vec::new();
        let mcp = &config.values.mcp;
        let mut servers = mcp
            .servers
            .iter()
            .filter(|(_, server)| mcp.enabled && server.enabled)
            .filter(|(name, _)| tool.is_none_or(|tool| has_tool(name, tool)))
            .peekable();
        if servers.peek().is_none() {
            return Ok(providers);
        }
        let around = Arc::new(Surroundings::new(config, folders, directory, self.front_end));
        for (name, server) in servers {
            let pins = Pins::load(folders, name)?;
            if pins.start != start_digest(server) {
                let state = if pins.start.is_empty() { "isn't approved" } else { "has changed" };
                tracing::warn!("the server `{name}` {state}: run `toolhold mcp approve {name}`");
                continue;
            }
            let launch = Launch::new(&around, name, server, pins.lock.clone());
            providers.push(Arc::new(Server::new(name, self.running(name, launch, pins))));
        }
        Ok(providers)
    }

    /// Returns the known server if its start and its approval haven't changed. Otherwise returns a
    /// new server.
    fn running(&self, name: &str, launch: Launch, pins: Pins) -> Arc<Running> {
        let mut known = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let current = known.get(name).and_then(Weak::upgrade);
        if let Some(running) = current
            && *running.launch == launch
            && running.pins == pins
        {
            return running;
        }
        let running = Arc::new(Running::new(launch, pins));
        known.insert(name.to_owned(), Arc::downgrade(&running));
        running
    }
}

/// Checks whether a tool of this name belongs to the server.
fn has_tool(server: &str, tool: &str) -> bool {
    tool.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
}
