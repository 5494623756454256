//! Shows the grants that are proposed for a server, and creates the folders for them.

use std::io::Write;
use std::path::PathBuf;

use toolhold_core::config::McpServer;
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::{GrantProposal, changed_keys};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::new_file;

/// Shows the reasons of proposals, and the keys that they change. `before` is the server without
/// the proposed grants, and `granted` the server with them.
pub(crate) fn show_proposals(
    out: &mut impl Write,
    margin: &str,
    before: &McpServer,
    granted: &McpServer,
    proposals: &[GrantProposal],
) -> std::io::Result<()> {
    for proposal in proposals {
        writeln!(out, "{margin}# {}", neutral_line(&proposal.reason))?;
    }
    for (key, value) in changed_keys(before, granted) {
        writeln!(out, "{margin}{key} = {value}")?;
    }
    Ok(())
}

/// Makes the folders that the proposals grant, because a grant of a missing folder has no effect.
/// Returns the new folders.
pub(crate) fn make_folders(proposals: &[GrantProposal]) -> Result<Vec<PathBuf>, CommandError> {
    let mut made = Vec::new();
    for folder in proposals.iter().filter_map(GrantProposal::new_folder) {
        let is_new = !folder.is_dir();
        new_file::private_folder(folder)?;
        if is_new {
            made.push(folder.to_owned());
        }
    }
    Ok(made)
}
