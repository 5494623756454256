//! The declaration of a filter: the outputs that it matches, its purpose, and its verdict.

use serde::{Deserialize, Serialize};

use crate::{Category, Content};

/// A filter of a plugin, as the plugin declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterDefinition {
    /// The name of the filter, unique in its plugin: at most 64 characters of `[a-z0-9_-]`.
    pub name: String,
    /// Decides what happens to the output when the filter fails.
    pub purpose: Purpose,
    /// The matchers of the outputs that the filter gets. An output must match one of them.
    pub matchers: Vec<Matcher>,
    /// Whether a cosmetic filter gets only outputs that no other filter matches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// A JSON object with fields that this type doesn't have, as the plugin wrote it. The object is
    /// parsed on demand, since few callers need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
}

/// The purpose of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Makes output shorter or clearer. If it fails, the output isn't changed.
    Cosmetic,
    /// Blocks unwanted output. If it fails, the output is withheld.
    Security,
}

/// The outputs that a filter gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    /// A tool's name, or a glob over names.
    pub tool: String,
    /// The text that the call must act on.
    pub subject: Pattern,
}

/// The comparison with the text that a call acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Matches anything, and also nothing.
    Any,
    /// Equal to the whole text.
    Exact(String),
    /// The prefix of the subject, in whole words.
    Prefix(String),
    /// A regular expression that matches anywhere in the subject.
    Regex(String),
}

/// The input of a filter: the output of a call, without secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterInput {
    /// The tool's full name.
    pub tool: String,
    /// The text with which the filter's matcher was compared.
    pub subject: Option<String>,
    /// The category of the failure, if the call failed.
    pub failed: Option<Category>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// Whether other commands of the line may have written a part of the output.
    pub among_others: bool,
    /// The parts of the answer. For a command, the parts are its standard output and its standard
    /// error, without empty ones.
    pub content: Vec<Content>,
}

/// A filter's confidence that it removed nothing important. The highest confidence comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The filter knows the content of the omitted part.
    Full,
    /// The filter omitted the middle without analysing it.
    Partial,
    /// The filter doesn't know this kind of output.
    Fallback,
}

impl Confidence {
    /// Returns the name in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Fallback => "fallback",
        }
    }
}

/// The result of a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterVerdict {
    /// The output isn't changed.
    Keep,
    /// Replaces the input with these parts, in the same order.
    Replace {
        /// As many parts as the input has.
        content: Vec<Content>,
        /// How sure the filter is.
        confidence: Confidence,
        /// The rule that changed the output, if its name differs from the filter's name.
        rule: Option<String>,
    },
    /// The output is withheld for this reason.
    Block(String),
}
