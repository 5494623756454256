//! Decides the names under which the host offers an upstream server's tools and prompts.

use toolhold_core::text::{cut, neutral_line};

use crate::pins::PinnedOffers;

/// Most bytes of a description.
pub(crate) const MAX_DESCRIPTION: usize = 8 * 1024;

/// Most bytes of a title.
pub(crate) const MAX_TITLE: usize = 256;

/// Most characters of a tool's name.
pub(crate) const MAX_NAME: usize = 64;

/// The names, behind `NAME__`, of the tools that read resources and get prompts.
pub(crate) const READER: &str = "read_resource";
pub(crate) const PROMPTER: &str = "get_prompt";

/// Returns a name that a server gave, for people.
pub(crate) fn printable_name(name: &str) -> String {
    neutral_line(cut(name, 128))
}

/// Returns the host's name for a tool or prompt. Converts upper case to lower case, and replaces
/// invalid characters with `_`. Returns `None` if the name is empty or too long.
pub(crate) fn offered_name(server: &str, tool: &str) -> Option<String> {
    // A name has no more characters than bytes.
    let fits = !tool.is_empty() && server.len() + 2 + tool.len() <= MAX_NAME;
    if !fits {
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

/// Checks whether `tool` is the name of a tool that gets the server's resources or prompts.
pub(crate) fn is_reserved(offers: &PinnedOffers, server: &str, tool: &str) -> bool {
    let is_reader = offered_name(server, READER).as_deref() == Some(tool);
    let is_prompter = offered_name(server, PROMPTER).as_deref() == Some(tool);
    (is_reader && offers.has_resources()) || (is_prompter && !offers.prompts.is_empty())
}
