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

/// A name of a server, for people.
pub(crate) fn shown(name: &str) -> String {
    neutral_line(cut(name, 128))
}

/// The host's name for a tool or prompt: other characters become `_`, and capitals small letters.
pub(crate) fn fitted(server: &str, tool: &str) -> Option<String> {
    // The count of bytes is no less than that of characters.
    let fits = !tool.is_empty() && server.len() + 2 + tool.len() <= MAX_NAME;
    fits.then(|| format!("{server}__{}", tool.chars().map(fitted_letter).collect::<String>()))
}

fn fitted_letter(letter: char) -> char {
    match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '_' | '-') => letter,
        _ => '_',
    }
}

/// Whether a tool of the server would have the name of a tool that gets its resources or prompts.
pub(crate) fn is_reserved(offers: &PinnedOffers, server: &str, tool: &str) -> bool {
    (offers.has_resources() && fitted(server, READER).as_deref() == Some(tool))
        || (!offers.prompts.is_empty() && fitted(server, PROMPTER).as_deref() == Some(tool))
}
