//! Rules over all tools: the organisation's ceiling, `[tools.policy]` and `[tools.authorization]`.
//!
//! Each set is decided on its own, and can only take away: a denial wins over everything, and where
//! a set has rules that allow, nothing passes it that none of them matches. So an `allow` in one
//! set never undoes what another one denies.

use std::borrow::Cow;
use std::path::Path;

use berth_contract::Access;
use regex::Regex;
use serde_json::Value;

use crate::action::{Action, Phase, ResolvedSubject, Trust};
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::{Origin, OriginKind};
use crate::path_globs::PathGlobs;
use crate::pattern::TextGlob;

/// Rules of one set. More nobody overlooks, and each one takes time on every call.
pub const MAX_RULES: usize = 256;

/// The tool that reads the rest of an answer, which its model is told to call. It needs no rule
/// that allows: what it shows, a call came to that was allowed.
const REST: &str = "read_overflow";

/// A set of rules.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules, in no order that matters.
    pub rules: Vec<Rule>,
}

/// One rule. It matches where everything that it says does; what it doesn't say matches anything.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Whether it lets pass or refuses.
    pub effect: Effect,
    /// Names of tools. Empty: every tool.
    pub tools: Vec<TextGlob>,
    /// The paths that are acted on. None: whatever is.
    pub paths: Option<PathGlobs>,
    /// How they are acted on.
    pub access: Option<Access>,
    /// Arguments, all of them.
    pub arguments: Vec<Argument>,
    /// For a rule that allows: what is trusted at least so far. For one that denies: what is
    /// trusted no further.
    pub trust: Option<Trust>,
    /// Parts of an agent's work. Empty: any, also where nothing is said of it.
    pub phases: Vec<Phase>,
    /// As it is written.
    pub rule: String,
    /// Where it stands.
    pub place: Origin,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Lets pass.
    Allow,
    /// Refuses.
    Deny,
}

/// What an argument has to be.
#[derive(Clone, Debug)]
pub struct Argument {
    /// RFC 6901 pointer into the arguments.
    pub pointer: String,
    /// What is looked for there.
    pub test: Test,
}

/// What is looked for in an argument. A number or truth value counts as its JSON text, of a list
/// each element.
#[derive(Clone, Debug)]
pub enum Test {
    /// The whole text.
    Glob(TextGlob),
    /// Anywhere in the text.
    Expression(Regex),
}

impl RuleSet {
    /// What this gate says: a denial, or nothing.
    pub(crate) fn say(
        &self,
        gate: Gate,
        table: &str,
        action: &Action<'_>,
        trust: Trust,
    ) -> Option<Decision> {
        if self.rules.is_empty() {
            return None;
        }
        let denial = self
            .rules
            .iter()
            .find(|rule| rule.effect == Effect::Deny && rule.denies(action, trust));
        if let Some(rule) = denial {
            return Some(Decision {
                verdict: Verdict::Deny,
                gate,
                rule: rule.rule.clone().into(),
                place: rule.place.text.clone(),
                remedy: rule.remedy(table),
            });
        }
        let allowing = self.rules.iter().filter(|rule| rule.effect == Effect::Allow);
        let first = allowing.clone().next()?;
        if action.tool == REST && action.built_in {
            return None;
        }
        let allowed = |subject| {
            allowing
                .clone()
                .any(|rule| rule.matches(action, trust) && rule.matches_subject(action, subject))
        };
        let passes = (!as_a_whole(action) || allowed(None))
            && action.subjects.iter().all(|subject| allowed(Some(subject)));
        (!passes).then(|| Decision {
            verdict: Verdict::Deny,
            gate,
            rule: none_allows(table).into(),
            place: first.place.text.clone(),
            remedy: to_allow(&first.place, table, action.tool, ""),
        })
    }

    /// Whether it denies the tool whatever it is called with.
    pub(crate) fn denies_all(&self, tool: &str) -> bool {
        let named = |rule: &&Rule| rule.names(tool);
        let whatever = |rule: &Rule| {
            rule.paths.is_none()
                && rule.access.is_none()
                && rule.arguments.is_empty()
                && rule.trust.is_none()
                && rule.phases.is_empty()
        };
        let mut allowing = self.rules.iter().filter(|rule| rule.effect == Effect::Allow).peekable();
        self.rules.iter().filter(|rule| rule.effect == Effect::Deny).filter(named).any(whatever)
            || allowing.peek().is_some() && tool != REST && !allowing.any(|rule| rule.names(tool))
    }
}

/// The rule that a set makes which has rules that allow.
pub(crate) fn none_allows(table: &str) -> String {
    format!("the rules of {table} that allow, none of which matches")
}

/// The rule that would let a tool pass such a set, `more` lines of it included.
pub(crate) fn to_allow(place: &Origin, table: &str, tool: &str, more: &str) -> Cow<'static, str> {
    let table = table.trim_matches(['[', ']']);
    let rule = || format!("[[{table}.rules]]\neffect = \"allow\"\ntools = [\"{tool}\"]{more}");
    match &place.kind {
        // The rules of such a file and those of the user's own are one list.
        OriginKind::Trusted(_) => {
            format!("To allow it, add a rule to your own berth.toml:\n{}", rule()).into()
        }
        _ => place.remedy(|| format!("To allow it, add a rule:\n{}", rule())),
    }
}

/// Whether a call is looked at beside its subjects: it has none, or what it says of them is not
/// believed, so that it may do anything else.
fn as_a_whole(action: &Action<'_>) -> bool {
    action.subjects.is_empty() || !action.subjects_believed
}

impl Rule {
    fn names(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool))
    }

    fn denies(&self, action: &Action<'_>, trust: Trust) -> bool {
        self.matches(action, trust)
            && (as_a_whole(action) && self.matches_subject(action, None)
                || action
                    .subjects
                    .iter()
                    .any(|subject| self.matches_subject(action, Some(subject))))
    }

    /// What undoes it where it denies.
    pub(crate) fn remedy(&self, table: &str) -> Cow<'static, str> {
        self.place
            .remedy(|| format!("No rule that allows changes that. To allow it, take this rule out of {table}, or have it match less."))
    }

    /// Whether it says something of paths that a call reaches without naming them. One that denies
    /// all reading is about calls that read.
    pub(crate) fn is_about_paths(&self) -> bool {
        self.paths.is_some() || self.access == Some(Access::Write)
    }

    /// Whether it denies a path to a call that it [`matches`](Self::matches).
    pub(crate) fn denies_path(&self, path: &Path, access: Access) -> bool {
        self.bounds(access) && self.covers(path)
    }

    /// Whether it lets such a call have a path. What may be written may be read for that.
    pub(crate) fn allows_path(&self, path: &Path, access: Access) -> bool {
        (self.bounds(access) || self.bounds(Access::Write)) && self.covers(path)
    }

    /// Whether it is about such an access. Who may not read a path may not write it either: moved,
    /// it could be read.
    fn bounds(&self, access: Access) -> bool {
        let reading = self.effect == Effect::Deny && self.paths.is_some();
        self.access.is_none_or(|bound| bound == access || bound == Access::Read && reading)
    }

    fn covers(&self, path: &Path) -> bool {
        self.paths.as_ref().is_none_or(|globs| globs.covers(path))
    }

    /// Whether everything but the subject is as the rule says.
    pub(crate) fn matches(&self, action: &Action<'_>, trust: Trust) -> bool {
        let trusted = |bound: Trust| match self.effect {
            Effect::Allow => trust <= bound,
            Effect::Deny => trust >= bound,
        };
        (self.names(action.tool)
            || action.aliases.iter().any(|alias| self.effect == Effect::Deny && self.names(alias)))
            && self.trust.is_none_or(trusted)
            && (self.phases.is_empty()
                || action.phase.is_some_and(|phase| self.phases.contains(&phase)))
            && self.arguments.iter().all(|argument| argument.matches(action.arguments, self.effect))
    }

    fn matches_subject(&self, action: &Action<'_>, subject: Option<&ResolvedSubject>) -> bool {
        let access = subject
            .map_or(if action.acts() { Access::Write } else { Access::Read }, |subject| {
                subject.access
            });
        let path = || {
            subject.filter(|subject| subject.kind.is_path()).map(|subject| Path::new(&subject.text))
        };
        self.bounds(access)
            && (self.paths.is_none() || path().is_some_and(|path| self.covers(path)))
    }
}

impl Argument {
    fn matches(&self, arguments: &Value, effect: Effect) -> bool {
        let test = |value: &Value| match value {
            Value::String(text) => self.test.matches(text),
            Value::Null | Value::Array(_) | Value::Object(_) => false,
            other => self.test.matches(&other.to_string()),
        };
        match arguments.pointer(&self.pointer) {
            // What is allowed has to be so throughout.
            Some(Value::Array(items)) if effect == Effect::Allow => {
                !items.is_empty() && items.iter().all(test)
            }
            Some(Value::Array(items)) => items.iter().any(test),
            Some(value) => test(value),
            None => false,
        }
    }
}

impl Test {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(text),
            Self::Expression(expression) => expression.is_match(text),
        }
    }
}
