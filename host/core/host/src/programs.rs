//! Asks running hosts about the state of the programs behind their sources, such as upstream
//! servers.

use std::sync::Arc;
use std::time::Duration;

use toolhold_catalogue::plugins::control::ask_each;
use toolhold_config::Folders;
use toolhold_contract::{HostError, ToolSource, ToolSourceState};

/// How long a host may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The question of another process.
const QUESTION: &str = "programs";

/// The programs of every running host of this user that watches its plugins, as `toolhold serve`
/// does, with the host's process ID. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if others can use the folder of the hosts' sockets.
pub fn provider_states(folders: &Folders) -> Result<Vec<(u32, Vec<ToolSourceState>)>, HostError> {
    let answers = ask_each(folders, QUESTION, PATIENCE)?.into_iter();
    let parsed =
        answers.filter_map(|(pid, answer)| Some((pid, serde_json::from_slice(&answer).ok()?)));
    Ok(parsed.collect())
}

/// The answer to a question of another process. `None`: it isn't about programs.
pub(crate) fn answer(providers: &[Arc<dyn ToolSource>], question: &str) -> Option<Vec<u8>> {
    if question != QUESTION {
        return None;
    }
    let states: Vec<_> = providers.iter().filter_map(|provider| provider.state()).collect();
    serde_json::to_vec(&states).ok()
}
