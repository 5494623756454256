//! The declaration of a filter, and its verdict on an output.

use serde::{Deserialize, Serialize};

use crate::{Category, Content};

/// A filter of a plugin, as the plugin declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterDefinition {
    /// The name of the filter, unique in its plugin: at most 64 characters of `[a-z0-9_-]`.
    pub name: String,
    /// Decides what happens to the output when the filter fails.
    pub purpose: Purpose,
    /// Describes the outputs that the filter gets. One match is enough.
    pub matchers: Vec<Matcher>,
    /// Whether a cosmetic filter gets only outputs that no other filter matches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// A JSON object with fields that this type doesn't have. The object stays a string, because
    /// few callers parse it.
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
    /// The text on which the call acts, such as a command.
    pub subject: Pattern,
}

/// A pattern for the text on which a call acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Matches any text, and calls without a text.
    Any,
    /// Equal to the whole text.
    Exact(String),
    /// A prefix of the text that ends at a word boundary.
    Prefix(String),
    /// A regular expression that matches anywhere in the text.
    Regex(String),
}

/// The input of a filter: the output of a call, with secrets redacted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterInput {
    /// The tool's full name.
    pub tool: String,
    /// The text that matched the filter's pattern.
    pub subject: Option<String>,
    /// The category of the failure, if the call failed.
    pub failed: Option<Category>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// Whether other commands of the same command line may have written a part of the output.
    pub among_others: bool,
    /// The parts of the answer. For a command, the parts are standard output and standard error, if
    /// they aren't empty.
    pub content: Vec<Content>,
}

/// How sure a filter is that it removed nothing important. The highest confidence comes first.
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
    /// Returns the name in lower case.
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
    /// The input is replaced with these parts, in the same order.
    Replace {
        /// Exactly as many parts as the input has.
        content: Vec<Content>,
        /// How sure the filter is.
        confidence: Confidence,
        /// The rule that changed the output, if its name differs from the filter's name.
        rule: Option<String>,
    },
    /// The output is withheld for this reason.
    Block(String),
}
