//! Decides whether a tool is blocked by its dependencies. A tool may be called after each tool that
//! it requires has succeeded in the session.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::{Decision, Gate, Verdict};

/// The tools that one tool depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Tools that have to succeed first.
    pub requires: Vec<String>,
    /// Tools whose success raises the rank of this tool.
    pub prefers: Vec<String>,
    /// Place of `requires` in the configuration, for denials.
    pub place: String,
}

/// The dependencies of all tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependencies {
    tools: BTreeMap<String, Needs>,
    always_on: BTreeSet<String>,
    boost_per_dependency: f64,
    max_boost: f64,
}

impl Dependencies {
    /// Makes the rules from the needs of tools. All tools have their full names.
    ///
    /// A tool can require itself, directly or through other tools. The requirements of such a tool
    /// are dropped, because the tool could never be called. Also returns the sorted names of these
    /// tools.
    pub fn new(
        tools: BTreeMap<String, Needs>,
        always_on: BTreeSet<String>,
        boost_per_dependency: f64,
        max_boost: f64,
    ) -> (Self, Vec<String>) {
        let mut rules = Self { tools, always_on, boost_per_dependency, max_boost };
        let cyclic: Vec<String> =
            rules.tools.keys().filter(|tool| rules.requires_itself(tool)).cloned().collect();
        for tool in &cyclic {
            if let Some(needs) = rules.tools.get_mut(tool) {
                needs.requires.clear();
            }
        }
        (rules, cyclic)
    }

    fn requires_itself(&self, tool: &str) -> bool {
        let mut pending: Vec<&str> = self.required(tool).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while let Some(required_tool) = pending.pop() {
            if required_tool == tool {
                return true;
            }
            if seen.insert(required_tool) {
                pending.extend(self.required(required_tool));
            }
        }
        false
    }

    fn required(&self, tool: &str) -> impl Iterator<Item = &str> {
        let needs = self.tools.get(tool).into_iter();
        needs.flat_map(|needs| &needs.requires).map(String::as_str)
    }

    /// Checks whether a tool requires other tools.
    pub fn concern(&self, tool: &str) -> bool {
        !self.always_on.contains(tool)
            && self.tools.get(tool).is_some_and(|needs| !needs.requires.is_empty())
    }

    /// Checks whether any tool requires or prefers `tool`.
    pub fn is_awaited(&self, tool: &str) -> bool {
        self.tools
            .values()
            .any(|needs| needs.requires.iter().chain(&needs.prefers).any(|name| name == tool))
    }

    fn missing<'a>(&'a self, tool: &str, completed: &BTreeSet<String>) -> Vec<&'a str> {
        if self.always_on.contains(tool) {
            return Vec::new();
        }
        self.required(tool).filter(|name| !completed.contains(*name)).collect()
    }

    /// Checks whether every tool in `tools` is blocked by its dependencies, apart from tools that
    /// are always on. In such a deadlock no tool can ever succeed, so the caller must not block any
    /// tool.
    pub fn deadlocked<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a str>,
        completed: &BTreeSet<String>,
    ) -> bool {
        let mut has_blocked_tool = false;
        for tool in tools {
            if self.always_on.contains(tool) {
                continue;
            }
            if self.missing(tool, completed).is_empty() {
                return false;
            }
            has_blocked_tool = true;
        }
        has_blocked_tool
    }

    /// Decides on a call of `tool`. `completed` are the tools that have succeeded in the session.
    /// Don't call this if the tools are [deadlocked](Self::deadlocked), because every call would be
    /// denied.
    ///
    /// # Errors
    ///
    /// Returns the denial if `tool` is blocked by its dependencies.
    pub fn decide(&self, tool: &str, completed: &BTreeSet<String>) -> Result<(), Decision> {
        let missing = self.missing(tool, completed);
        let Some(first) = missing.first() else { return Ok(()) };
        let needs = &self.tools[tool];
        Err(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Dependencies,
            rule: Cow::Owned(format!("requires = {:?}", needs.requires)),
            place: Cow::Owned(needs.place.clone()),
            remedy: Cow::Owned(format!(
                "Call `{}` first, until the call succeeds; or remove {first:?} from `requires`.",
                missing.join("`, `")
            )),
        })
    }

    /// Returns the number that is added to the rank of `tool`. Each preferred tool that has
    /// succeeded increases the number, up to the largest boost.
    pub fn boost(&self, tool: &str, completed: &BTreeSet<String>) -> f64 {
        let mut boost: f64 = 0.0;
        if let Some(needs) = self.tools.get(tool) {
            for preferred_tool in &needs.prefers {
                if completed.contains(preferred_tool) {
                    boost += self.boost_per_dependency;
                }
            }
        }
        boost.min(self.max_boost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn completed(text: &str) -> BTreeSet<String> {
        names(text).into_iter().collect()
    }

    /// `tool: required required`, separated by `;`.
    fn rules(text: &str, always_on: &str) -> (Dependencies, Vec<String>) {
        let needs =
            text.split(';').filter_map(|line| line.split_once(':')).map(|(tool, requires)| {
                let needs = Needs {
                    requires: names(requires),
                    place: "[here]".to_owned(),
                    ..Needs::default()
                };
                (tool.trim().to_owned(), needs)
            });
        Dependencies::new(needs.collect(), completed(always_on), 0.15, 0.2)
    }

    #[test]
    fn tool_is_blocked_until_all_its_requirements_succeed() {
        let (rules, cyclic) = rules("edit: read grep", "");
        assert_eq!(cyclic, [""; 0]);
        let check = |done: &str, allowed: bool| {
            assert_eq!(rules.decide("edit", &completed(done)).is_ok(), allowed, "{done}");
        };
        check("", false);
        check("read", false);
        check("read write", false);
        check("grep read", true);
        assert!(
            rules.decide("read", &completed("")).is_ok(),
            "a tool without a rule isn't blocked"
        );
        let denial = rules.decide("edit", &completed("read")).expect_err("the tool is blocked");
        assert_eq!(
            (denial.gate, denial.verdict, &*denial.place),
            (Gate::Dependencies, Verdict::Deny, "[here]")
        );
        assert!(
            denial.rule.contains("requires = [\"read\", \"grep\"]")
                && denial.remedy.starts_with("Call `grep` first"),
            "{denial:?}"
        );
    }

    #[test]
    fn tools_that_are_always_on_are_not_blocked() {
        let (rules, _) = rules("edit: read; write: read", "edit");
        assert!(
            rules.decide("edit", &completed("")).is_ok()
                && rules.decide("write", &completed("")).is_err()
        );
        assert!(!rules.concern("edit") && rules.concern("write") && !rules.concern("read"));
    }

    #[test]
    fn requirements_of_tools_on_a_cycle_are_dropped_and_named() {
        for (text, expected) in [
            ("a: a", "a"),
            ("a: b; b: a; c: a", "a b"),
            ("a: b; b: c; c: a; d: c", "a b c"),
            // Two cycles that share a tool. The second one is reached through a tool that was
            // searched before.
            ("a: b c; b: a; c: d; d: a", "a b c d"),
            ("a: b; b: c; c: d", ""),
            ("a: b c; b: d; c: d", ""),
        ] {
            let (rules, cyclic) = rules(text, "");
            assert_eq!(cyclic, names(expected), "{text}");
            assert!(cyclic.iter().all(|tool| rules.decide(tool, &completed("")).is_ok()), "{text}");
        }
        let (rules, _) = rules("a: b; b: a; c: a", "");
        assert!(
            rules.decide("c", &completed("")).is_err(),
            "a tool that only leads to a cycle stays blocked"
        );
    }

    #[test]
    fn deadlock_is_when_every_tool_is_blocked() {
        let (rules, _) = rules("a: x; b: a", "always");
        let check = |tools: &[&str], done: &str, expected: bool| {
            assert_eq!(
                rules.deadlocked(tools.iter().copied(), &completed(done)),
                expected,
                "{tools:?} {done}"
            );
        };
        check(&["a", "b"], "", true);
        check(&["a", "b", "always"], "", true);
        check(&["a", "b", "free"], "", false);
        check(&["a", "b"], "x", false);
        check(&["a", "b"], "a", false);
        check(&["always"], "", false);
        check(&[], "", false);
    }

    #[test]
    fn each_completed_preference_raises_rank_up_to_bound() {
        let needs = Needs { prefers: names("a b c"), ..Needs::default() };
        let (rules, _) =
            Dependencies::new([("t".to_owned(), needs)].into(), BTreeSet::new(), 0.15, 0.2);
        let boost = |done: &str| rules.boost("t", &completed(done));
        assert_eq!((boost(""), boost("a"), boost("a b"), boost("a b c")), (0.0, 0.15, 0.2, 0.2));
        assert!(rules.boost("other", &completed("a")).abs() < f64::EPSILON);
        assert!(rules.decide("t", &completed("")).is_ok(), "a preference doesn't block");
    }
}
