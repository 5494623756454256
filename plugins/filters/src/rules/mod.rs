//! The rules: those that are built in, and those that the operator writes.

mod read;

use berth_sdk::filter::Pattern;

pub use read::{MAX_RULES, MAX_TEXT, OperatorRule, OperatorRules, read};

/// A built-in rule, as the build script leaves it.
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// A glob over tools' names.
    pub tool: &'static str,
    /// What it is for.
    pub subject: StaticPattern,
    /// Its steps as a JSON array.
    pub steps: &'static str,
    /// Its metadata in the listing, as a JSON object.
    pub meta: &'static str,
}

/// A [`Pattern`] for a static.
#[derive(Clone, Copy)]
pub enum StaticPattern {
    /// The whole subject.
    Exact(&'static str),
    /// Its first words.
    Prefix(&'static str),
    /// Found in it.
    Regex(&'static str),
}

impl From<StaticPattern> for Pattern {
    fn from(pattern: StaticPattern) -> Self {
        match pattern {
            StaticPattern::Exact(text) => Self::Exact(text.into()),
            StaticPattern::Prefix(text) => Self::Prefix(text.into()),
            StaticPattern::Regex(text) => Self::Regex(text.into()),
        }
    }
}

/// What is in `rules/*.toml`, by file and place.
pub static BUILT_IN: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

#[cfg(test)]
mod tests;
