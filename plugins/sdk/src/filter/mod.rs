//! Filters of a Rust plugin, which rewrite the output of tools before a model reads it.
//!
//! A plugin has one type for all its filters. The host does the matching. If a matcher fits, it
//! starts the plugin, lists its filters and passes it one output after another. A filter has no
//! capability: no file, no request, no log.
//!
//! ```
//! use toolhold_sdk::filter::{Confidence, Filters, Input, Listing, Matcher, Purpose, Registration, Replacement, Verdict};
//!
//! /// Counts the packages that were fetched instead of naming each.
//! struct Quiet;
//!
//! impl Filters for Quiet {
//!     fn new(_rules: Option<&str>) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//!
//!     fn list(&self) -> Listing {
//!         Listing::from(vec![Registration::new("quiet-zig", Purpose::Cosmetic, [Matcher::prefix("bash", "zig build")])])
//!     }
//!
//!     fn apply(&mut self, _filter: &str, input: &Input) -> Result<Verdict, String> {
//!         if !input.passed() {
//!             return Ok(Verdict::Keep);
//!         }
//!         let rewritten = input.map_texts(|text| {
//!             let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("fetch ")).collect();
//!             let left_out = text.lines().count() - kept.len();
//!             (left_out > 1).then(|| format!("{left_out} packages fetched\n{}", kept.join("\n")))
//!         });
//!         Ok(rewritten.map_or(Verdict::Keep, |content| Replacement::new(content, Confidence::Full).into()))
//!     }
//! }
//!
//! toolhold_sdk::plugin! {
//!     name: "zig",
//!     description: "Shortens the output of the Zig compiler",
//!     filters: Quiet,
//! }
//!
//! // A unit test needs no host.
//! let input = Input::command("zig build", 0, ["fetch a\nfetch b\nfetch c\nbuilt in 3 s"]);
//! let verdict = toolhold_sdk::testing::filter::<Quiet>(None, "quiet-zig", &input).unwrap();
//! assert_eq!(verdict.joined_text().as_deref(), Some("3 packages fetched\nbuilt in 3 s"));
//! ```

use std::borrow::Cow;

use serde_json::Value;

use crate::Content;

#[cfg(target_arch = "wasm32")]
pub(crate) mod guest;

/// The filters of a plugin.
pub trait Filters: Sized + 'static {
    /// Creates the filters, once for each instance. `rules` is the setting `rules` of the plugin
    /// ([`config`](crate::config)), or `None` if it isn't set: for the built-in filters, it is the
    /// text of the operator's `filters.toml`.
    ///
    /// # Errors
    ///
    /// If no filter can work. An error in a single rule belongs in the problems of the [`Listing`].
    fn new(rules: Option<&str>) -> Result<Self, String>;

    /// Lists the filters.
    fn list(&self) -> Listing;

    /// Decides what happens to one output.
    ///
    /// # Errors
    ///
    /// An error counts as a failure of the filter. If the filter is cosmetic, the output stays as
    /// it was. If it is a security filter, the output is withheld.
    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String>;
}

/// The filters that a plugin offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// At most 512 filters, in the order in which they are applied.
    pub filters: Vec<Registration>,
    /// Errors in the operator's rules: each rule that is left out, and why.
    pub problems: Vec<String>,
}

impl From<Vec<Registration>> for Listing {
    fn from(filters: Vec<Registration>) -> Self {
        Self { filters, problems: Vec::new() }
    }
}

/// An entry for a filter in the listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// The name: at most 64 characters of `[a-z0-9_-]`, unique in the plugin.
    pub name: Cow<'static, str>,
    /// The purpose.
    pub purpose: Purpose,
    /// At most 32 matchers. The filter runs if one of them fits.
    pub matchers: Vec<Matcher>,
    /// Whether a cosmetic filter gets only outputs that no other filter matches.
    pub fallback: bool,
    /// A JSON object as text. The host reads it at every start, so keep it short.
    pub meta: Option<Cow<'static, str>>,
}

impl Registration {
    /// A filter without meta.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        purpose: Purpose,
        matchers: impl IntoIterator<Item = Matcher>,
    ) -> Self {
        let matchers = matchers.into_iter().collect();
        Self { name: name.into(), purpose, matchers, fallback: false, meta: None }
    }
}

/// The purpose of a filter. It decides what happens if the filter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The filter makes output shorter or clearer. If it fails, the output stays as it was.
    Cosmetic,
    /// The filter blocks unwanted content. If it fails, the output is withheld.
    Security,
}

/// When a filter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// A tool's name, or a glob over tools' names.
    pub tool: Cow<'static, str>,
    /// The pattern for the subject of the call: a path, a URL or a text. Of a command line, the
    /// subject is the last command. It lacks the commands that its output is piped to,
    /// redirections, variables, commands that only start it, and the folder of its program. One
    /// space separates its words.
    pub subject: Pattern,
}

impl Matcher {
    /// Fits if the subject starts with these words.
    pub fn prefix(tool: impl Into<Cow<'static, str>>, words: impl Into<Cow<'static, str>>) -> Self {
        Self { tool: tool.into(), subject: Pattern::Prefix(words.into()) }
    }

    /// Fits if the expression is found in the subject.
    pub fn regex(
        tool: impl Into<Cow<'static, str>>,
        expression: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { tool: tool.into(), subject: Pattern::Regex(expression.into()) }
    }

    /// Fits every call of the tools.
    pub fn any(tool: impl Into<Cow<'static, str>>) -> Self {
        Self { tool: tool.into(), subject: Pattern::Any }
    }
}

/// How a text is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every text, and also no text.
    Any,
    /// The whole text.
    Exact(Cow<'static, str>),
    /// Its first words: `make` fits `make -j4` and not `makepkg`.
    Prefix(Cow<'static, str>),
    /// A regular expression of at most 512 characters, in the syntax of the Rust crate `regex`,
    /// anywhere in the text.
    Regex(Cow<'static, str>),
}

/// The output of a tool and facts about its call. Secrets are redacted already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The tool's name.
    pub tool: String,
    /// The subject that matchers are compared with.
    pub subject: Option<String>,
    /// Why the call failed. `None` if it didn't.
    pub failed: Option<FailureCategory>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// The parts of the answer. For a command, they are its standard output and its standard error,
    /// without the empty ones.
    pub content: Vec<Content>,
    /// Whether other commands of the line may have written a part of the output.
    pub among_others: bool,
    /// A JSON object.
    pub meta: Option<Value>,
}

impl Input {
    /// The output of a shell command, for unit tests: the subject, the exit code and one or two
    /// texts.
    pub fn command<'a>(
        subject: &str,
        exit_code: i32,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            tool: "bash".to_owned(),
            subject: Some(subject.to_owned()),
            failed: (exit_code != 0).then_some(FailureCategory::PermanentFailure),
            exit_code: Some(exit_code),
            content: texts.into_iter().map(Content::text).collect(),
            among_others: false,
            meta: None,
        }
    }

    /// Whether the call succeeded: it has no failure, and no exit code other than 0.
    pub fn passed(&self) -> bool {
        self.failed.is_none() && self.exit_code.unwrap_or(0) == 0
    }

    /// The parts with the texts that `rewrite` replaced. `None` if it replaced none.
    pub fn map_texts(
        &self,
        mut rewrite: impl FnMut(&str) -> Option<String>,
    ) -> Option<Vec<Content>> {
        let mut rewritten: Vec<_> =
            self.content.iter().map(|part| part.as_text().and_then(&mut rewrite)).collect();
        if rewritten.iter().all(Option::is_none) {
            return None;
        }
        let parts = self.content.iter().zip(&mut rewritten).map(|(part, text)| match text.take() {
            Some(text) => Content { media_type: part.media_type.clone(), ..Content::text(text) },
            None => part.clone(),
        });
        Some(parts.collect())
    }
}

/// Why a call failed. These categories include the host's own, which a tool can't use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Category` and of the contract")]
pub enum FailureCategory {
    ToolNotFound,
    InvalidParameters,
    TypeMismatch,
    PolicyBlocked,
    ConfirmationRequired,
    PermanentFailure,
    Cancelled,
    RateLimited,
    ServerError,
    NetworkError,
    Timeout,
}

/// The decision on an output.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The output stays as it is.
    Keep,
    /// The output is replaced.
    Replace(Replacement),
    /// The output is withheld, for this reason. Only a security filter may do this.
    Block(String),
}

impl Verdict {
    /// The text parts of a replacement, joined by line ends.
    pub fn joined_text(&self) -> Option<String> {
        match self {
            Self::Replace(replacement) => Some(crate::content::joined_text(&replacement.content)),
            Self::Keep | Self::Block(_) => None,
        }
    }
}

/// The replacement of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// The parts. They have the same number and order as the parts of the input. A part without
    /// text is dropped.
    pub content: Vec<Content>,
    /// How sure the filter is.
    pub confidence: Confidence,
    /// The rule that applied, if it is more specific than the filter's name.
    pub rule: Option<String>,
    /// A JSON object.
    pub meta: Option<Value>,
}

impl Replacement {
    /// A replacement without a rule and meta.
    pub fn new(content: Vec<Content>, confidence: Confidence) -> Self {
        Self { content, confidence, rule: None, meta: None }
    }
}

impl From<Replacement> for Verdict {
    fn from(replacement: Replacement) -> Self {
        Self::Replace(replacement)
    }
}

/// How sure a filter is that nothing important was lost. A greater value is worse. The worst value
/// of a chain is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The filter left out only content that it knows.
    Full,
    /// The filter left out content that it doesn't know.
    Partial,
    /// The filter doesn't know the format of the output.
    Fallback,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_parts_stay() {
        let mut input = Input::command("x", 0, ["a", "b"]);
        input.content.insert(1, Content::bytes([1], "image/png"));
        assert_eq!(input.map_texts(|_| None), None);
        let parts = input.map_texts(|text| (text == "b").then(|| "c".to_owned())).unwrap();
        assert_eq!(
            parts,
            [Content::text("a"), Content::bytes([1], "image/png"), Content::text("c")]
        );
    }

    #[test]
    fn call_passes_without_failure_and_exit_code() {
        assert!(Input::default().passed());
        assert!(Input::command("x", 0, []).passed());
        assert!(!Input::command("x", 1, []).passed());
        assert!(!Input { exit_code: None, ..Input::command("x", 1, []) }.passed());
    }

    #[test]
    fn worst_confidence_is_the_greatest() {
        assert_eq!(
            [Confidence::Partial, Confidence::Full, Confidence::Fallback].into_iter().max(),
            Some(Confidence::Fallback)
        );
    }
}
