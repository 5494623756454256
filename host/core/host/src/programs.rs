//! Asks running hosts for the state of the programs behind their sources, such as upstream servers.

use std::sync::Arc;
use std::time::Duration;

use toolhold_catalogue::plugins::control::ask_each;
use toolhold_config::Folders;
use toolhold_contract::{HostError, ToolSource, ToolSourceState};

/// Time limit for the answer of a host.
const PATIENCE: Duration = Duration::from_secs(2);

/// The question of another process.
const QUESTION: &str = "programs";

/// Lists the programs of this user's running hosts, each with the process ID of its host. Only
/// hosts that watch their plugins answer, such as `toolhold serve`. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if others can use the folder of the hosts' sockets.
pub fn provider_states(folders: &Folders) -> Result<Vec<(u32, Vec<ToolSourceState>)>, HostError> {
    let mut hosts = Vec::new();
    for (pid, answer) in ask_each(folders, QUESTION, PATIENCE)? {
        if let Ok(states) = serde_json::from_slice(&answer) {
            hosts.push((pid, states));
        }
    }
    Ok(hosts)
}

/// Answers a question of another process. Returns `None` if the question isn't about programs.
pub(crate) fn answer(providers: &[Arc<dyn ToolSource>], question: &str) -> Option<Vec<u8>> {
    if question != QUESTION {
        return None;
    }
    let states: Vec<_> = providers.iter().filter_map(|provider| provider.state()).collect();
    serde_json::to_vec(&states).ok()
}
