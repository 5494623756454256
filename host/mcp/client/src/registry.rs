//! Keeps the running servers of a process, so that the next host takes over those that didn't
//! change.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use toolhold_core::config::{Config, Folders, McpServer};
use toolhold_core::{HostError, ToolSource};

use crate::launch::{Launch, Surroundings};
use crate::pins::{Pins, start_digest};
use crate::running::Running;
use crate::server::Server;

/// The servers of a process. A server that runs is taken over by the next host if nothing that it
/// was started with has changed, so that it keeps what it knows.
pub struct Servers {
    front_end: &'static str,
    running: Mutex<HashMap<String, Weak<Running>>>,
}

impl Servers {
    /// None yet. `front_end`: who makes the requests to servers at a URL, in their records.
    pub fn new(front_end: &'static str) -> Self {
        Self { front_end, running: Mutex::default() }
    }

    /// The approved servers of the configuration. None is started before a call needs it. `tool`: a
    /// tool that is to be called, if no other is; then only its server is looked at. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`]: the approvals can't be read.
    pub fn providers(
        &self,
        config: &Config,
        folders: &Folders,
        directory: &Path,
        tool: Option<&str>,
    ) -> Result<Vec<Arc<dyn ToolSource>>, HostError> {
        let mut providers: Vec<Arc<dyn ToolSource>> = Vec::new();
        let mcp = &config.values.mcp;
        let has = |tool: &str, name: &str| {
            tool.strip_prefix(name).is_some_and(|rest| rest.starts_with("__"))
        };
        let is_wanted = |(name, server): &(&String, &McpServer)| {
            mcp.enabled && server.enabled && tool.is_none_or(|tool| has(tool, name))
        };
        let mut servers = mcp.servers.iter().filter(is_wanted).peekable();
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

    /// The one that was started in the same way and approved as it is now, or a new one.
    fn running(&self, name: &str, launch: Launch, pins: Pins) -> Arc<Running> {
        let mut known = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let current = known.get(name).and_then(Weak::upgrade);
        let is_same = |running: &Arc<Running>| *running.launch == launch && running.pins == pins;
        if let Some(running) = current.filter(is_same) {
            return running;
        }
        let running = Arc::new(Running::new(launch, pins));
        known.insert(name.to_owned(), Arc::downgrade(&running));
        running
    }
}
