//! Which tools wait for others: a tool that requires some is offered, and may be called, once each
//! of them has come to an output in the session.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::{Decision, Gate, Verdict};

/// What one tool waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Tools that have to come to an output first.
    pub requires: Vec<String>,
    /// Tools that make this one more likely to be wanted.
    pub prefers: Vec<String>,
    /// Where `requires` stands, for denials.
    pub place: String,
}

/// The rules on what waits for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependencies {
    tools: BTreeMap<String, Needs>,
    always_on: BTreeSet<String>,
    boost_per_dependency: f64,
    max_boost: f64,
}

impl Dependencies {
    /// Rules, by the tools' full names. What requires itself, by whatever way, would wait for ever:
    /// its requirements are dropped, and it is named beside the rules, in alphabetical order.
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
            rules.tools.entry(tool.clone()).and_modify(|needs| needs.requires.clear());
        }
        (rules, cyclic)
    }

    /// Searches all that a tool requires, depth first, for the tool itself.
    fn requires_itself(&self, tool: &str) -> bool {
        let required = |tool: &str| {
            self.tools.get(tool).into_iter().flat_map(|needs| &needs.requires).map(String::as_str)
        };
        let (mut open, mut seen): (Vec<&str>, BTreeSet<&str>) =
            (required(tool).collect(), BTreeSet::new());
        while let Some(next) = open.pop() {
            if next == tool {
                return true;
            }
            if seen.insert(next) {
                open.extend(required(next));
            }
        }
        false
    }

    /// Whether a tool waits for anything, whatever has been called.
    pub fn concern(&self, tool: &str) -> bool {
        !self.always_on.contains(tool)
            && self.tools.get(tool).is_some_and(|needs| !needs.requires.is_empty())
    }

    /// Whether any tool requires or prefers this one.
    pub fn is_awaited(&self, tool: &str) -> bool {
        self.tools
            .values()
            .any(|needs| needs.requires.iter().chain(&needs.prefers).any(|name| name == tool))
    }

    /// What a tool waits for that is not among the `completed` ones.
    fn missing<'a>(&'a self, tool: &str, completed: &BTreeSet<String>) -> Vec<&'a str> {
        let needs = self.tools.get(tool).filter(|_| !self.always_on.contains(tool));
        needs
            .into_iter()
            .flat_map(|needs| &needs.requires)
            .filter(|name| !completed.contains(*name))
            .map(String::as_str)
            .collect()
    }

    /// Whether every one of `tools` waits, those left out that never do: then nothing could ever be
    /// completed, and none of them waits.
    pub fn deadlocked<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a str>,
        completed: &BTreeSet<String>,
    ) -> bool {
        let mut waiting = tools
            .into_iter()
            .filter(|tool| !self.always_on.contains(*tool))
            .map(|tool| !self.missing(tool, completed).is_empty());
        // An empty catalogue is no deadlock.
        waiting.next() == Some(true) && waiting.all(|waits| waits)
    }

    /// What is to become of a call of `tool`. `completed`: the tools that have come to an output in
    /// the session. Asked only where the tools are not [deadlocked](Self::deadlocked).
    ///
    /// # Errors
    ///
    /// The denial, where it waits.
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
                "Call `{}` first, with success; or take {first:?} out of `requires`.",
                missing.join("`, `")
            )),
        })
    }

    /// What is added to the rank of a tool, for each tool that it prefers and that has come to an
    /// output: a number from 0 to 1.
    pub fn boost(&self, tool: &str, completed: &BTreeSet<String>) -> f64 {
        let met = self
            .tools
            .get(tool)
            .into_iter()
            .flat_map(|needs| &needs.prefers)
            .filter(|name| completed.contains(*name));
        met.map(|_| self.boost_per_dependency).sum::<f64>().min(self.max_boost)
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

    /// `tool: required required`, one a line.
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
    fn a_tool_waits_until_all_that_it_requires_has_succeeded() {
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
            "a tool without a rule waits for nothing"
        );
        let denial = rules.decide("edit", &completed("read")).expect_err("it waits");
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
    fn only_what_is_always_on_goes_around_it() {
        let (rules, _) = rules("edit: read; write: read", "edit");
        assert!(
            rules.decide("edit", &completed("")).is_ok()
                && rules.decide("write", &completed("")).is_err()
        );
        assert!(!rules.concern("edit") && rules.concern("write") && !rules.concern("read"));
    }

    #[test]
    fn what_lies_on_a_cycle_waits_for_nothing_and_is_named() {
        for (text, expected) in [
            ("a: a", "a"),
            ("a: b; b: a; c: a", "a b"),
            ("a: b; b: c; c: a; d: c", "a b c"),
            // Two cycles that share a tool, and one that is reached over a way that was searched
            // before.
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
            "what only leads to a cycle waits as before"
        );
    }

    #[test]
    fn where_every_tool_would_wait_none_does() {
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
    fn each_preference_that_is_met_raises_the_rank_up_to_a_bound() {
        let needs = Needs { prefers: names("a b c"), ..Needs::default() };
        let (rules, _) =
            Dependencies::new([("t".to_owned(), needs)].into(), BTreeSet::new(), 0.15, 0.2);
        let boost = |done: &str| rules.boost("t", &completed(done));
        assert_eq!((boost(""), boost("a"), boost("a b"), boost("a b c")), (0.0, 0.15, 0.2, 0.2));
        assert!(rules.boost("other", &completed("a")).abs() < f64::EPSILON);
        assert!(rules.decide("t", &completed("")).is_ok(), "what is preferred holds nothing back");
    }
}
