//! Refuses calls of tools that are switched off: all tools, the tools of a plugin, or all tools but
//! the chosen ones.

use std::collections::BTreeMap;

use crate::rules::FOLLOWING;
use crate::{Decision, TextGlob};

/// The disabled tools. Each has the decision with the line that disables it.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// The decision that switches off all tools.
    pub all: Option<Decision>,
    /// The decisions that switch off plugins and providers, by name.
    pub providers: BTreeMap<String, Decision>,
    /// The only tools that are switched on. `None`: every tool is.
    pub only: Option<OnlyTools>,
}

/// The tools that a program offers, and no others.
#[derive(Clone, Debug)]
pub struct OnlyTools {
    /// The names and globs of the tools.
    pub names: Vec<String>,
    /// The decision that switches off the other tools.
    pub refusal: Decision,
}

impl Switches {
    /// Returns the refusal of calls of a tool of `provider`. Returns `None` if the tool is switched
    /// on.
    pub fn refusal(&self, provider: &str, tool: &str) -> Option<&Decision> {
        let switched_off = self.all.as_ref().or_else(|| self.providers.get(provider));
        if switched_off.is_some() {
            return switched_off;
        }
        let only = self.only.as_ref()?;
        // Answers of the chosen tools tell the model to call these.
        if FOLLOWING.contains(&tool) || only.names.iter().any(|name| matches(name, tool)) {
            return None;
        }
        Some(&only.refusal)
    }

    /// Lists the names and globs of [`OnlyTools`] that match none of the tools.
    pub fn unmatched<'t>(&self, tools: impl Iterator<Item = &'t str> + Clone) -> Vec<&str> {
        let names = self.only.iter().flat_map(|only| &only.names);
        let unmatched = names.filter(|name| !tools.clone().any(|tool| matches(name, tool)));
        unmatched.map(String::as_str).collect()
    }
}

/// Checks whether a name or glob means a tool. A glob that is too long means none.
fn matches(name: &str, tool: &str) -> bool {
    name == tool || TextGlob::new(name).is_ok_and(|glob| glob.matches(tool))
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
