//! The built-in rules, as the build script writes them from `rules/*.toml`.

mod branches;
mod read;

use toolhold_sdk::filter::Pattern;

pub use branches::Branches;
pub use read::{MAX_RULES, MAX_TEXT, OperatorRule, OperatorRules, read};

/// A built-in rule, as the build script writes it.
pub struct BuiltIn {
    /// The name.
    pub name: &'static str,
    /// A glob over tools' names.
    pub tool: &'static str,
    /// The pattern for the subject of a call.
    pub subject: StaticPattern,
    /// Whether it gets only outputs that no other rule matches.
    pub fallback: bool,
    /// The steps as a JSON array.
    pub steps: &'static str,
    /// The metadata in the listing, as a JSON object.
    pub meta: &'static str,
}

/// A [`Pattern`] that a static can hold.
#[derive(Clone, Copy)]
pub enum StaticPattern {
    /// Any subject, and a missing one.
    Any,
    /// The whole subject.
    Exact(&'static str),
    /// The first words of the subject.
    Prefix(&'static str),
    /// A regular expression, anywhere in the subject.
    Regex(&'static str),
}

impl From<StaticPattern> for Pattern {
    fn from(pattern: StaticPattern) -> Self {
        match pattern {
            StaticPattern::Any => Self::Any,
            StaticPattern::Exact(text) => Self::Exact(text.into()),
            StaticPattern::Prefix(text) => Self::Prefix(text.into()),
            StaticPattern::Regex(text) => Self::Regex(text.into()),
        }
    }
}

/// The rules in `rules/*.toml`, ordered by file and position.
pub static BUILT_IN: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

#[cfg(test)]
mod tests;
