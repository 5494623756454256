//! Refuses calls of tools that are switched off.

use std::collections::BTreeMap;

use crate::rules::CONTINUING_TOOLS;
use crate::{Decision, TextGlob};

/// The tools that are switched off. Each switch has its decision.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// The decision that switches off all tools.
    pub all: Option<Decision>,
    /// The decisions that switch off plugins and providers, by name.
    pub providers: BTreeMap<String, Decision>,
    /// The only tools that are switched on. `None` means every tool.
    pub only: Option<OnlyTools>,
}

/// The tools that a program offers. All other tools are switched off.
#[derive(Clone, Debug)]
pub struct OnlyTools {
    /// The names and globs of the tools.
    pub names: Vec<String>,
    /// The decision for all other tools.
    pub refusal: Decision,
}

impl Switches {
    /// Returns the decision that switches a tool off. Returns `None` if the tool is switched on.
    pub fn refusal(&self, provider: &str, tool: &str) -> Option<&Decision> {
        let switched_off = self.all.as_ref().or_else(|| self.providers.get(provider));
        if switched_off.is_some() {
            return switched_off;
        }
        let OnlyTools { names, refusal } = self.only.as_ref()?;
        // Answers tell the model to call these tools, so they are also switched on.
        let continues_answer = CONTINUING_TOOLS.contains(&tool);
        if continues_answer || names.iter().any(|name| matches(name, tool)) {
            return None;
        }
        Some(refusal)
    }

    /// Returns the names and globs of [`OnlyTools`] that match none of `tools`.
    pub fn unmatched<'t>(&self, tools: impl Iterator<Item = &'t str> + Clone) -> Vec<&str> {
        let names = self.only.iter().flat_map(|only| &only.names);
        let unmatched = names.filter(|name| !tools.clone().any(|tool| matches(name, tool)));
        unmatched.map(String::as_str).collect()
    }
}

/// Checks whether a name or glob matches a tool. Unlike a glob of `[tools.permissions]`, a glob
/// here allows nothing, so it needs no plugin or server before its wildcard. A glob that is too
/// long matches no tool.
fn matches(name: &str, tool: &str) -> bool {
    TextGlob::new(name).is_ok_and(|glob| glob.matches(tool))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::{Gate, Verdict};

    fn switches(names: &[&str]) -> Switches {
        let refusal = Decision {
            verdict: Verdict::Deny,
            gate: Gate::Switches,
            rule: Cow::Borrowed("--tools"),
            place: Cow::Borrowed("the command line"),
            remedy: Cow::Borrowed(""),
        };
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Switches { only: Some(OnlyTools { names, refusal }), ..Switches::default() }
    }

    #[test]
    fn tools_that_are_not_chosen_are_refused() {
        let switches = switches(&["read", "git__*"]);
        for (tool, is_refused) in [
            ("read", false),
            ("git__log", false),
            ("read_overflow", false),
            ("job_stop", false),
            ("reads", true),
            ("write", true),
            ("git", true),
            ("git-evil__log", true),
        ] {
            assert_eq!(switches.refusal("any", tool).is_some(), is_refused, "{tool}");
        }
        assert!(Switches::default().refusal("any", "write").is_none());
    }

    #[test]
    fn names_without_a_tool_are_listed() {
        let switches = switches(&["read", "reed", "git__*", ""]);
        let tools = ["read", "write"];
        assert_eq!(switches.unmatched(tools.into_iter()), ["reed", "git__*", ""]);
    }
}
