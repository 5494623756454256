use serde::{Deserialize, Serialize};

use crate::{Category, Content};

/// A filter of a plugin, as it says itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterDefinition {
    /// Its name, which no other filter of its plugin has: at most 64 of `[a-z0-9_-]`.
    pub name: String,
    /// What becomes of the output when the filter fails.
    pub purpose: Purpose,
    /// What it looks at: outputs that fit one of them.
    pub matchers: Vec<Matcher>,
    /// The text of a JSON object for what has no field here, as the plugin wrote it: it is read by
    /// whoever asks for it, which few do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
}

/// What a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Makes output shorter or clearer. Where it fails, the output stays as it was.
    Cosmetic,
    /// Keeps something from getting through. Where it fails, the output is withheld.
    Security,
}

/// Which outputs a filter looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    /// A tool's name, or a glob over names.
    pub tool: String,
    /// What the call has to act on.
    pub subject: Pattern,
}

/// How what a call acts on is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Whatever it is, and where there is nothing.
    Any,
    /// The whole text.
    Exact(String),
    /// Its first words.
    Prefix(String),
    /// A regular expression, anywhere in it.
    Regex(String),
}

/// What a filter is given: the output of a call, without secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterInput {
    /// The tool's full name.
    pub tool: String,
    /// What its matcher was compared with.
    pub subject: Option<String>,
    /// How the call failed, where it did.
    pub failed: Option<Category>,
    /// Of a command.
    pub exit_code: Option<i32>,
    /// Whether other commands of the line may have written some of it.
    pub among_others: bool,
    /// The parts of the answer. Of a command, its standard output and its standard error, those
    /// that are not empty.
    pub content: Vec<Content>,
}

/// How sure a filter is that nothing that matters was lost, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// It knows what it left out.
    Full,
    /// It left out what stood in the middle, whatever that was.
    Partial,
    /// It didn't recognise the output.
    Fallback,
}

impl Confidence {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Fallback => "fallback",
        }
    }
}

/// What a filter makes of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterVerdict {
    /// It stays as it is.
    Keep,
    /// These parts take the place of those that came in, in their order.
    Replace {
        /// As many as came in.
        content: Vec<Content>,
        /// How sure that is.
        confidence: Confidence,
        /// The rule that did it, where that is not the filter's name.
        rule: Option<String>,
    },
    /// It is withheld, for this reason.
    Block(String),
}
