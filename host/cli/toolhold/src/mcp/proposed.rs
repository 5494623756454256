//! The grants that are proposed for a server: their lines, and the folders that they need.

use std::io::Write;

use toolhold_core::config::McpServer;
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::{GrantProposal, changed_keys};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::new_file;

/// Shows the reasons of proposals, and the lines that grant them.
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

/// Makes the folders that proposals are about.
pub(crate) fn make_folders(proposals: &[GrantProposal]) -> Result<(), CommandError> {
    for folder in proposals.iter().filter_map(GrantProposal::new_folder) {
        new_file::private_folder(folder)?;
    }
    Ok(())
}
