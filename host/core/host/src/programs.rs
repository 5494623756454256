//! Asks running hosts for the state of the programs of their sources, such as upstream servers.

use std::sync::Arc;
use std::time::Duration;

use toolhold_catalogue::plugins::control::ask_each;
use toolhold_config::Folders;
use toolhold_contract::{HostError, ToolSource, ToolSourceState};

const PATIENCE: Duration = Duration::from_secs(2);

const QUESTION: &str = "programs";

/// Lists the programs of this user's running hosts that watch their plugins, such as `toolhold
/// serve`, with the process IDs of the hosts. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if other users can write to the folder of the sockets.
pub fn provider_states(folders: &Folders) -> Result<Vec<(u32, Vec<ToolSourceState>)>, HostError> {
    let mut hosts = Vec::new();
    for (pid, answer) in ask_each(folders, QUESTION, PATIENCE)? {
        if let Ok(states) = serde_json::from_slice(&answer) {
            hosts.push((pid, states));
        }
    }
    Ok(hosts)
}

/// Answers a question of another process about programs. Returns `None` for other questions.
pub(crate) fn answer(providers: &[Arc<dyn ToolSource>], question: &str) -> Option<Vec<u8>> {
    if question != QUESTION {
        return None;
    }
    let states: Vec<_> = providers.iter().filter_map(|provider| provider.state()).collect();
    serde_json::to_vec(&states).ok()
}
