//! The host's names for an upstream server's tools and prompts.

use toolhold_core::text::{cut, neutral_line};

use crate::pins::PinnedOffers;

/// Longest description in bytes. Longer ones are cut.
pub(crate) const MAX_DESCRIPTION: usize = 8 * 1024;

/// Longest title in bytes. Longer ones are cut.
pub(crate) const MAX_TITLE: usize = 256;

/// Longest name of a tool in characters. A tool with a longer name isn't offered.
pub(crate) const MAX_NAME: usize = 64;

/// Names, after `SERVER__`, of the tools that read resources and get prompts.
pub(crate) const READER: &str = "read_resource";
pub(crate) const PROMPTER: &str = "get_prompt";

/// Neutralises and cuts a name that a server has chosen, such as the name of a tool.
pub(crate) fn printable_name(name: &str) -> String {
    neutral_line(cut(name, 128))
}

/// Returns the name of a server among the providers of tools.
pub(crate) fn provider_name(server: &str) -> String {
    format!("mcp.{server}")
}

/// Returns the host's name for a tool or prompt: in lower case, and with `_` for characters that a
/// name can't have. Returns `None` if `tool` is empty or the name is too long.
pub(crate) fn offered_name(server: &str, tool: &str) -> Option<String> {
    let length = server.len() + "__".len() + tool.len();
    if tool.is_empty() || length > MAX_NAME {
        return None;
    }
    let tool: String = tool.chars().map(offered_letter).collect();
    Some(format!("{server}__{tool}"))
}

fn offered_letter(letter: char) -> char {
    match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '_' | '-') => letter,
        _ => '_',
    }
}

/// Checks whether `tool` is the name of the tool that reads resources or gets prompts.
pub(crate) fn is_reserved(offers: &PinnedOffers, server: &str, tool: &str) -> bool {
    let is_reader = offered_name(server, READER).as_deref() == Some(tool);
    let is_prompter = offered_name(server, PROMPTER).as_deref() == Some(tool);
    (is_reader && offers.has_resources()) || (is_prompter && !offers.prompts.is_empty())
}
