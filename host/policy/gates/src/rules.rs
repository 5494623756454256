//! Rules for all tools: the organisation's ceiling and `[tools.policy]`.
//!
//! Each set decides separately, and can only deny. A rule that denies takes precedence over rules
//! that allow. If a set has rules that allow, it denies all calls that none of them matches. So an
//! `allow` in one set never changes a denial of another set.

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

/// Most rules of a set. The number is limited because each rule takes time on every call.
pub const MAX_RULES: usize = 256;

/// Tools of the host that continue an allowed call: they show more of its output, and control its
/// jobs. Answers tell the model to call these tools, so no rule has to allow them.
pub(crate) const CONTINUING_TOOLS: [&str; 4] =
    ["read_overflow", "job_output", "job_list", JOB_STOP];

/// The tool that stops jobs of a session. It never needs approval because of `autonomy`.
pub(crate) const JOB_STOP: &str = "job_stop";

pub(crate) const DIAGNOSTICS: &str = "diagnostics";

/// The tool that searches in code. A call acts if it uses language servers.
pub(crate) const SEARCH_CODE: &str = "search_code";

pub(crate) const DELEGATE: &str = "delegate";

/// A set of rules.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules. Their order has no effect.
    pub rules: Vec<Rule>,
}

/// A rule matches if all its conditions match. A condition that isn't set always matches.
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
    /// Conditions on arguments.
    pub arguments: Vec<Argument>,
    /// The trust in the call. An allowing rule matches calls with this trust or more. A denying
    /// rule matches calls with this trust or less. `None` means any trust.
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
    /// Location of the argument, as an RFC 6901 pointer.
    pub pointer: String,
    /// The test of the argument.
    pub test: Test,
}

/// A test of an argument. A number or boolean is tested as JSON text. A list is tested element by
/// element.
#[derive(Clone, Debug)]
pub enum Test {
    /// The glob matches the whole text.
    Glob(TextGlob),
    /// The expression matches anywhere in the text.
    Expression(Regex),
}

impl RuleSet {
    /// Returns the denial of a call by the rules. Returns `None` if the rules allow the call.
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
        if action.built_in && CONTINUING_TOOLS.contains(&action.tool) {
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

    /// Checks whether the rules deny every call of a tool.
    pub(crate) fn denies_all(&self, tool: &str) -> bool {
        let is_denied = self.rules.iter().any(|rule| {
            rule.effect == Effect::Deny && rule.names(tool) && rule.has_no_other_condition()
        });
        if is_denied {
            return true;
        }
        if CONTINUING_TOOLS.contains(&tool) {
            return false;
        }
        // A set with allowing rules denies each tool that no allowing rule names.
        let mut has_allowing_rule = false;
        for rule in &self.rules {
            if rule.effect == Effect::Allow {
                has_allowing_rule = true;
                if rule.names(tool) {
                    return false;
                }
            }
        }
        has_allowing_rule
    }
}

pub(crate) fn none_allows(table: &str) -> String {
    format!("no allow rule of {table} matches")
}

/// Returns the remedy for a call that no allowing rule of a set matches: a rule that allows the
/// tool. `more` contains further lines of that rule.
pub(crate) fn to_allow(place: &Origin, table: &str, tool: &str, more: &str) -> Cow<'static, str> {
    let name = table.trim_matches(['[', ']']);
    let rule = format!("[[{name}.rules]]\neffect = \"allow\"\ntools = [\"{tool}\"]{more}");
    place.remedy_to_add(&rule)
}

/// Checks whether the rules check the whole call and not only its subjects. They do if the call has
/// no subjects, or if its tool isn't trusted to name all of them.
fn checks_whole_call(action: &Action<'_>) -> bool {
    action.subjects.is_empty() || !action.subjects_trusted
}

impl Rule {
    fn names(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool))
    }

    /// Checks whether this denying rule matches the call or one of its subjects.
    fn denies(&self, action: &Action<'_>, trust: Trust) -> bool {
        if !self.matches(action, trust) {
            return false;
        }
        let no_subject = None;
        if checks_whole_call(action) && self.matches_subject(action, no_subject) {
            return true;
        }
        action.subjects.iter().any(|subject| self.matches_subject(action, Some(subject)))
    }

    /// Returns the remedy for a call that this denying rule matches. `table` contains the rule.
    pub(crate) fn remedy(&self, table: &str) -> Cow<'static, str> {
        self.place.remedy(|| {
            format!(
                "No allow rule can override this rule. To allow the call, remove this rule from \
                 {table}, or make the rule match less."
            )
        })
    }

    /// Checks whether the rule applies to paths that a call reaches without naming them. A rule
    /// that denies all reading applies only to calls.
    pub(crate) fn is_about_paths(&self) -> bool {
        self.paths.is_some() || self.access == Some(Access::Write)
    }

    pub(crate) fn denies_path(&self, path: &Path, access: Access) -> bool {
        self.has_access(access) && self.covers(path)
    }

    /// Checks whether the rule allows access to a path. A path that may be written may also be
    /// read.
    pub(crate) fn allows_path(&self, path: &Path, access: Access) -> bool {
        let allows_access = self.has_access(access) || self.has_access(Access::Write);
        allows_access && self.covers(path)
    }

    /// Checks whether the rule is about this access. A rule that denies reading a path also denies
    /// writing, because a call could move the path to read it.
    fn has_access(&self, access: Access) -> bool {
        let Some(bound) = self.access else { return true };
        let denies_paths = self.effect == Effect::Deny && self.paths.is_some();
        bound == access || (bound == Access::Read && denies_paths)
    }

    fn covers(&self, path: &Path) -> bool {
        self.paths.as_ref().is_none_or(|globs| globs.covers(path))
    }

    /// Checks whether the call meets the conditions of the rule on the tool, the trust, the phase
    /// and the arguments. The conditions on subjects are checked separately.
    pub(crate) fn matches(&self, action: &Action<'_>, trust: Trust) -> bool {
        // An allowing rule must match the name of the tool itself, so that an alias can't widen
        // what the rule allows. A denying rule also matches by an alias.
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
            // Later variants of `Trust` are trusted less.
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

    fn has_no_other_condition(&self) -> bool {
        self.paths.is_none()
            && self.access.is_none()
            && self.arguments.is_empty()
            && self.trust.is_none()
            && self.phases.is_empty()
    }

    /// Checks the conditions on the subject. Without a subject, checks the whole call.
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
            // Paths can't match a command, a URL or the whole call.
            Some(_) | None => false,
        }
    }
}

impl Argument {
    /// Checks whether the value of the argument passes the test. A missing value fails.
    fn matches(&self, arguments: &Value, effect: Effect) -> bool {
        match arguments.pointer(&self.pointer) {
            // An allowing rule has to match every element.
            Some(Value::Array(items)) if effect == Effect::Allow => {
                !items.is_empty() && items.iter().all(|item| self.matches_value(item))
            }
            // A denying rule has to match one element.
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
