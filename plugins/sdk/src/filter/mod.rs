//! Filters: what rewrites the output of tools before a model reads it.
//!
//! A plugin has one type for all its filters. The host matches by itself, starts the plugin where
//! something fits, lists its filters and hands over one output after another. Nothing is granted to
//! a filter: no file, no request, no log.
//!
//! ```
//! use berth_sdk::filter::{Confidence, Filters, Input, Listing, Matcher, Purpose, Registration, Replacement, Verdict};
//!
//! /// Says how many dependencies were built instead of naming each.
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
//! berth_sdk::plugin! {
//!     name: "zig",
//!     description: "Shortens what the Zig compiler says",
//!     filters: Quiet,
//! }
//!
//! // A unit test needs no host.
//! let input = Input::command("zig build", 0, ["fetch a\nfetch b\nfetch c\nbuilt in 3 s"]);
//! let verdict = berth_sdk::testing::filter::<Quiet>(None, "quiet-zig", &input).unwrap();
//! assert_eq!(verdict.joined_text().as_deref(), Some("3 packages fetched\nbuilt in 3 s"));
//! ```

use std::borrow::Cow;

use serde_json::Value;

use crate::Content;

#[cfg(target_arch = "wasm32")]
pub(crate) mod guest;

/// The filters of a plugin.
pub trait Filters: Sized + 'static {
    /// Makes them, once for each instance. `rules` is the text of the operator's `filters.toml`;
    /// `None` for plugins that get no rules from the host.
    ///
    /// # Errors
    ///
    /// If no filter can work. Put what is wrong with one rule into the problems of the [`Listing`].
    fn new(rules: Option<&str>) -> Result<Self, String>;

    /// What there is.
    fn list(&self) -> Listing;

    /// Looks at one output.
    ///
    /// # Errors
    ///
    /// Counts as a failure of the filter: the output of a cosmetic filter stays as it was, that of
    /// a security filter is withheld.
    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String>;
}

/// What a plugin offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// At most 512, in the order in which they are applied.
    pub filters: Vec<Registration>,
    /// What is wrong with the operator's rules: each rule that is left out, and why.
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
    /// At most 64 of `[a-z0-9_-]`, and no other filter of the plugin has it.
    pub name: Cow<'static, str>,
    /// What it is for.
    pub purpose: Purpose,
    /// At most 32. One that fits is enough.
    pub matchers: Vec<Matcher>,
    /// A JSON object as text. It is part of every start, so keep it short.
    pub meta: Option<Cow<'static, str>>,
}

impl Registration {
    /// A filter without meta.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        purpose: Purpose,
        matchers: impl IntoIterator<Item = Matcher>,
    ) -> Self {
        Self { name: name.into(), purpose, matchers: matchers.into_iter().collect(), meta: None }
    }
}

/// What a filter is for, which decides what happens when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Makes output shorter or clearer. Where it fails, the output stays as it was.
    Cosmetic,
    /// Keeps something from getting through. Where it fails, the output is withheld.
    Security,
}

/// When a filter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// A tool's name or a glob over tools' names.
    pub tool: Cow<'static, str>,
    /// Compared with what the call acts on: a path, a URL, a text. Of a command line it is the last
    /// command without what its output is piped to, its redirections and variables, what only
    /// starts it and the folder of its program; its words stand one space apart.
    pub subject: Pattern,
}

impl Matcher {
    /// Fits where the subject begins with these words.
    pub fn prefix(tool: impl Into<Cow<'static, str>>, words: impl Into<Cow<'static, str>>) -> Self {
        Self { tool: tool.into(), subject: Pattern::Prefix(words.into()) }
    }

    /// Fits where the expression is found in the subject.
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

/// The output of a tool, and what is known of its call. Secrets are redacted already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The tool's name.
    pub tool: String,
    /// What a matcher was compared with.
    pub subject: Option<String>,
    /// Why the call failed, where it did.
    pub failed: Option<FailureCategory>,
    /// Of a command.
    pub exit_code: Option<i32>,
    /// The parts of the answer. Of a command, its standard output and its standard error, those of
    /// the two that are not empty.
    pub content: Vec<Content>,
    /// A JSON object.
    pub meta: Option<Value>,
}

impl Input {
    /// What a shell command wrote, for unit tests: the subject, the exit code and one or two texts.
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
            meta: None,
        }
    }

    /// Whether nothing says that the call failed.
    pub fn passed(&self) -> bool {
        self.failed.is_none() && self.exit_code.unwrap_or(0) == 0
    }

    /// The parts with each text that `rewrite` has something else for. `None` where it has nothing
    /// for any of them.
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

/// Why a call failed. More than a tool can say: the host's own reasons are among them.
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

/// What happens to an output.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It stays as it is.
    Keep,
    /// Something else takes its place.
    Replace(Replacement),
    /// It is withheld, for this reason. Only a security filter may say so.
    Block(String),
}

impl Verdict {
    /// The text parts of a replacement, joined by line ends.
    pub fn joined_text(&self) -> Option<String> {
        match self {
            Self::Replace(replacement) => Some(crate::output::joined_text(&replacement.content)),
            Self::Keep | Self::Block(_) => None,
        }
    }
}

/// What takes the place of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// As many parts as came in, in their order; one without text is dropped.
    pub content: Vec<Content>,
    /// How sure the filter is.
    pub confidence: Confidence,
    /// The rule that did it, if that is more specific than the filter's name.
    pub rule: Option<String>,
    /// A JSON object.
    pub meta: Option<Value>,
}

impl Replacement {
    /// A replacement with nothing else to say.
    pub fn new(content: Vec<Content>, confidence: Confidence) -> Self {
        Self { content, confidence, rule: None, meta: None }
    }
}

impl From<Replacement> for Verdict {
    fn from(replacement: Replacement) -> Self {
        Self::Replace(replacement)
    }
}

/// How sure a filter is that nothing that matters was lost. The greater is the worse, and the worst
/// of a chain is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// It knew what it left out.
    Full,
    /// It left out what it didn't know.
    Partial,
    /// It didn't know the form of the output.
    Fallback,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_anything_new_stay() {
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
    fn a_call_passed_where_nothing_says_otherwise() {
        assert!(Input::default().passed());
        assert!(Input::command("x", 0, []).passed());
        assert!(!Input::command("x", 1, []).passed());
        assert!(!Input { exit_code: None, ..Input::command("x", 1, []) }.passed());
    }

    #[test]
    fn the_worst_confidence_is_the_greatest() {
        assert_eq!(
            [Confidence::Partial, Confidence::Full, Confidence::Fallback].into_iter().max(),
            Some(Confidence::Fallback)
        );
    }
}
