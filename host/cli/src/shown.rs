//! Formats values and paths for people.

use std::path::Path;
use std::time::Duration;

use berth_core::Definition;
pub(crate) use berth_core::config::inline as toml;
pub(crate) use berth_core::text::shell_word;
use berth_core::text::{cut, neutral_line};

/// Characters of a description in the list.
pub(crate) const SUMMARY: usize = 96;

/// The first sentence of the description.
pub(crate) fn summary(tool: &Definition) -> String {
    let line = neutral_line(&tool.description);
    let sentence =
        line.split_once(". ").map_or(line.trim_end_matches('.'), |(first, _)| first).trim();
    let short = cut(sentence, SUMMARY);
    if short.len() < sentence.len() { format!("{}…", short.trim_end()) } else { short.to_owned() }
}

/// A path on one line, without characters that could steer a terminal.
pub(crate) fn path(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

/// A duration for people.
pub(crate) fn time(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros => format!("{:.1} s", micros as f64 / 1e6),
    }
}
