//! Rules for all tools: the organisation's ceiling and `[tools.policy]`.
//!
//! Each set decides separately, and can only deny. A rule that denies takes precedence over all
//! other rules. A set with rules that allow denies all calls that these rules don't match. For this
//! reason, an `allow` in one set never changes a denial of another set.

use std::borrow::Cow;
use std::path::Path;

use regex::Regex;
use serde_json::Value;
use toolhold_contract::Access;

use crate::action::{Action, Phase, ResolvedSubject, Trust};
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Origin;
use crate::path_globs::PathGlobs;
use crate::pattern::TextGlob;

/// Most rules in one set. Each rule takes time on every call.
pub const MAX_RULES: usize = 256;

/// Tools of the host that follow an allowed call of the same session. They show the rest of its
/// output and stop its jobs. Answers instruct the model to call these tools. The tools need no rule
/// that allows them.
pub(crate) const FOLLOWING: [&str; 4] = ["read_overflow", "job_output", "job_list", JOB_STOP];

/// The tool that stops jobs of a session. It needs no approval with any value of `autonomy`.
pub(crate) const JOB_STOP: &str = "job_stop";

/// The tool that runs the checkers of a project.
pub(crate) const DIAGNOSTICS: &str = "diagnostics";

/// The tool that searches in code. Its calls act if they use language servers.
pub(crate) const SEARCH_CODE: &str = "search_code";

/// The tool that hands work to another agent.
pub(crate) const DELEGATE: &str = "delegate";

/// A set of rules.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules. Their order has no effect.
    pub rules: Vec<Rule>,
}

/// One rule. The rule matches if all its conditions match. A condition that isn't set always
/// matches.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Whether the rule allows or denies.
    pub effect: Effect,
    /// Globs for names of tools. Empty means every tool.
    pub tools: Vec<TextGlob>,
    /// Globs for paths of the call. `None` means every subject.
    pub paths: Option<PathGlobs>,
    /// The access to the subjects. `None` means any access.
    pub access: Option<Access>,
    /// Conditions on arguments. All have to match.
    pub arguments: Vec<Argument>,
    /// The trust in the call. A rule that allows matches calls with this trust or more. A rule that
    /// denies matches calls with this trust or less. `None` means any trust.
    pub trust: Option<Trust>,
    /// Phases of the agent's work. Empty means any phase, including an unknown phase.
    pub phases: Vec<Phase>,
    /// The rule as written.
    pub rule: String,
    /// Place of the rule in the configuration.
    pub place: Origin,
}

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rule allows.
    Allow,
    /// The rule denies.
    Deny,
}

/// A condition on an argument.
#[derive(Clone, Debug)]
pub struct Argument {
    /// RFC 6901 pointer into the arguments.
    pub pointer: String,
    /// The test of the value at this place.
    pub test: Test,
}

/// A test of an argument. For a number or boolean, its JSON text is tested. For a list, each
/// element is tested.
#[derive(Clone, Debug)]
pub enum Test {
    /// The glob matches the whole text.
    Glob(TextGlob),
    /// The expression matches anywhere in the text.
    Expression(Regex),
}

impl RuleSet {
    /// Returns the denial of this set. Returns `None` if the set doesn't deny the call.
    pub(crate) fn decide(
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
        let mut allowing = self.rules.iter().filter(|rule| rule.effect == Effect::Allow);
        let first = allowing.next()?;
        if action.built_in && FOLLOWING.contains(&action.tool) {
            return None;
        }
        if self.allows_call(action, trust) {
            return None;
        }
        Some(Decision {
            verdict: Verdict::Deny,
            gate,
            rule: none_allows(table).into(),
            place: first.place.text.clone(),
            remedy: to_allow(&first.place, table, action.tool, ""),
        })
    }

    fn allows_call(&self, action: &Action<'_>, trust: Trust) -> bool {
        if checks_whole_call(action) && !self.allows(action, trust, None) {
            return false;
        }
        action.subjects.iter().all(|subject| self.allows(action, trust, Some(subject)))
    }

    fn allows(&self, action: &Action<'_>, trust: Trust, subject: Option<&ResolvedSubject>) -> bool {
        self.rules.iter().any(|rule| {
            rule.effect == Effect::Allow
                && rule.matches(action, trust)
                && rule.matches_subject(action, subject)
        })
    }

    /// Checks whether the set denies every call of the tool, with any arguments.
    pub(crate) fn denies_all(&self, tool: &str) -> bool {
        let is_denied = self.rules.iter().any(|rule| {
            rule.effect == Effect::Deny && rule.names(tool) && rule.has_no_other_condition()
        });
        if is_denied {
            return true;
        }
        if FOLLOWING.contains(&tool) {
            return false;
        }
        // A set with rules that allow denies all tools that these rules don't name.
        let mut allowing = self.rules.iter().filter(|rule| rule.effect == Effect::Allow).peekable();
        allowing.peek().is_some() && !allowing.any(|rule| rule.names(tool))
    }
}

/// Returns the rule text for the denial of a call that no allowing rule of a set matches.
pub(crate) fn none_allows(table: &str) -> String {
    format!("no allow rule of {table} matches")
}

/// Returns the remedy for the denial of a call that no allowing rule of a set matches. The remedy
/// is a rule that allows the tool. `more` are further lines of that rule.
pub(crate) fn to_allow(place: &Origin, table: &str, tool: &str, more: &str) -> Cow<'static, str> {
    let name = table.trim_matches(['[', ']']);
    let rule = format!("[[{name}.rules]]\neffect = \"allow\"\ntools = [\"{tool}\"]{more}");
    place.remedy_to_add(&rule)
}

/// Checks whether the whole call is checked instead of only its subjects. This applies if the call
/// has no subjects, or if its tool isn't trusted to name all of them.
fn checks_whole_call(action: &Action<'_>) -> bool {
    action.subjects.is_empty() || !action.subjects_trusted
}

impl Rule {
    fn names(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool))
    }

    fn denies(&self, action: &Action<'_>, trust: Trust) -> bool {
        if !self.matches(action, trust) {
            return false;
        }
        if checks_whole_call(action) && self.matches_subject(action, None) {
            return true;
        }
        action.subjects.iter().any(|subject| self.matches_subject(action, Some(subject)))
    }

    /// Returns the remedy for a denial by this rule.
    pub(crate) fn remedy(&self, table: &str) -> Cow<'static, str> {
        self.place
            .remedy(|| format!("An allow rule can't override this rule. To allow the call, take this rule out of {table}, or make it match less."))
    }

    /// Checks whether the rule applies to paths that a call reaches without naming them. A rule
    /// that denies all reading applies only to calls.
    pub(crate) fn is_about_paths(&self) -> bool {
        self.paths.is_some() || self.access == Some(Access::Write)
    }

    /// Checks whether the rule denies access to a path for a call that it
    /// [`matches`](Self::matches).
    pub(crate) fn denies_path(&self, path: &Path, access: Access) -> bool {
        self.has_access(access) && self.covers(path)
    }

    /// Checks whether the rule allows access to a path for a call that it
    /// [`matches`](Self::matches). If a path may be written, it may also be read.
    pub(crate) fn allows_path(&self, path: &Path, access: Access) -> bool {
        let allows_access = self.has_access(access) || self.has_access(Access::Write);
        allows_access && self.covers(path)
    }

    /// Checks whether the rule is about this access. A rule that denies reading a path also denies
    /// writing it, because a moved path could be read.
    fn has_access(&self, access: Access) -> bool {
        let Some(bound) = self.access else { return true };
        let denies_paths = self.effect == Effect::Deny && self.paths.is_some();
        bound == access || (bound == Access::Read && denies_paths)
    }

    fn covers(&self, path: &Path) -> bool {
        self.paths.as_ref().is_none_or(|globs| globs.covers(path))
    }

    /// Checks whether all conditions match, except for the conditions on the subject.
    pub(crate) fn matches(&self, action: &Action<'_>, trust: Trust) -> bool {
        let names_tool = match self.effect {
            Effect::Allow => self.names(action.tool),
            Effect::Deny => {
                self.names(action.tool) || action.aliases.iter().any(|alias| self.names(alias))
            }
        };
        if !names_tool {
            return false;
        }
        if let Some(bound) = self.trust {
            let has_trust = match self.effect {
                Effect::Allow => trust <= bound,
                Effect::Deny => trust >= bound,
            };
            if !has_trust {
                return false;
            }
        }
        if !self.phases.is_empty() {
            let Some(phase) = action.phase else { return false };
            if !self.phases.contains(&phase) {
                return false;
            }
        }
        self.arguments.iter().all(|argument| argument.matches(action.arguments, self.effect))
    }

    /// Checks whether the rule has no condition but the name of the tool.
    fn has_no_other_condition(&self) -> bool {
        self.paths.is_none()
            && self.access.is_none()
            && self.arguments.is_empty()
            && self.trust.is_none()
            && self.phases.is_empty()
    }

    /// Checks whether the conditions on the subject match. Without a subject, checks the whole
    /// call.
    fn matches_subject(&self, action: &Action<'_>, subject: Option<&ResolvedSubject>) -> bool {
        let access = match subject {
            Some(subject) => subject.access,
            None if action.acts() => Access::Write,
            None => Access::Read,
        };
        if !self.has_access(access) {
            return false;
        }
        let Some(globs) = &self.paths else { return true };
        match subject {
            Some(subject) if subject.kind.is_path() => globs.covers(Path::new(&subject.text)),
            _ => false,
        }
    }
}

impl Argument {
    fn matches(&self, arguments: &Value, effect: Effect) -> bool {
        match arguments.pointer(&self.pointer) {
            // A rule that allows has to match every element.
            Some(Value::Array(items)) if effect == Effect::Allow => {
                !items.is_empty() && items.iter().all(|item| self.matches_value(item))
            }
            Some(Value::Array(items)) => items.iter().any(|item| self.matches_value(item)),
            Some(value) => self.matches_value(value),
            None => false,
        }
    }

    fn matches_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.test.matches(text),
            Value::Null | Value::Array(_) | Value::Object(_) => false,
            other => self.test.matches(&other.to_string()),
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
