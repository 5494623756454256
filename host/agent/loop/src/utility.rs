//! Delays calls that help little. `[agent.utility]` enables this.
//!
//! The utility of a call starts from the usual gain of its tool. Used budget and an equal earlier
//! call lower the utility. The first calls of a task have a higher utility. Below `threshold`, the
//! model gets a message instead of a result. If the model repeats the call, the call is made. Calls
//! that act, calls that the person asked for, and `exempt_tools` are never delayed.

use std::collections::HashSet;

use toolhold_core::config::Utility;

use crate::environment::ReadyCall;
use crate::selection::names_tool;

/// Most calls that are delayed in a task. The number is low, because each delay costs a turn.
const MAX_PUT_OFF: usize = 3;

/// The number of calls after which the model is assumed to know enough.
const KNOWN_AFTER: f64 = 10.0;

/// Phrases with which a person asks for a call.
const PHRASES: [&str; 7] = [
    "using a tool",
    "show me the result of:",
    "run:",
    "execute:",
    "what is the output of",
    "what does the output of",
    "what would be the output of",
];

#[derive(Default)]
pub(crate) struct UtilityGate {
    /// The text of the task, in lower case.
    task: String,
    calls: u32,
    made_calls: HashSet<String>,
    put_off_calls: HashSet<String>,
}

impl UtilityGate {
    pub(crate) fn new(task: &str) -> Self {
        Self { task: task.to_lowercase(), ..Self::default() }
    }

    /// Returns the message about a delayed call, or `None` if the call is made. `used` is the used
    /// part of the task's tokens, from 0 to 1.
    pub(crate) fn refusal(
        &mut self,
        settings: &Utility,
        call: &ReadyCall,
        used: f64,
    ) -> Option<String> {
        if !settings.enabled {
            return None;
        }
        let threshold = settings.threshold.get();
        let key = format!("{} {}", call.name, call.arguments);
        let is_repeated = self.made_calls.contains(&key);
        let is_exempt = !call.read_only
            || settings.exempt_tools.contains(&call.name)
            || self.is_requested(&call.name);
        let was_put_off = self.put_off_calls.contains(&key);
        let total = utility(&call.name, used, is_repeated, self.calls);
        let is_useful = total >= threshold;
        let is_list_full = self.put_off_calls.len() >= MAX_PUT_OFF;
        if is_exempt || was_put_off || is_useful || is_list_full {
            self.calls = self.calls.saturating_add(1);
            self.made_calls.insert(key);
            return None;
        }
        self.put_off_calls.insert(key);
        Some(format!(
            "[not made] This call seems of little use ({total:.2}, less than {threshold:.2}: \
             `threshold` in [agent.utility]). If you need the call, make the same call again; the \
             second call runs."
        ))
    }

    /// Checks whether the person asked for a call of `tool` or for calls in general.
    fn is_requested(&self, tool: &str) -> bool {
        names_tool(&self.task, tool)
            || names_tool(&self.task, own_name(tool))
            || PHRASES.iter().any(|phrase| self.task.contains(phrase))
            || has_command(&self.task)
    }
}

fn own_name(tool: &str) -> &str {
    tool.rsplit("__").next().unwrap_or(tool)
}

/// Checks whether a text has shell characters between backticks.
fn has_command(text: &str) -> bool {
    let mut codes = text.split('`').skip(1).step_by(2);
    codes.any(|code| code.contains(['|', '&', ';', '<', '>', '$']))
}

/// Returns the utility of a call, from the used part of the task's tokens and the number of calls
/// so far.
fn utility(tool: &str, used: f64, is_repeated: bool, calls: u32) -> f64 {
    let cost = used.clamp(0.0, 1.0);
    let redundancy = if is_repeated { 1.0 } else { 0.0 };
    let uncertainty = (1.0 - f64::from(calls) / KNOWN_AFTER).max(0.0);
    gain(tool) - 0.5 * cost - 0.3 * redundancy + 0.2 * uncertainty
}

/// Returns how much a call of the tool usually helps, from 0 to 1.
fn gain(tool: &str) -> f64 {
    match own_name(tool) {
        name if name.starts_with("memory") => 0.8,
        "diagnostics" => 0.75,
        "search_code" | "grep" | "glob" | "find_path" | "list_directory" => 0.65,
        "bash" => 0.6,
        "read" => 0.55,
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> Utility {
        Utility { enabled: true, ..Utility::default() }
    }

    fn call(name: &str) -> ReadyCall {
        let mut call = ReadyCall::without_arguments("c", name);
        call.arguments = json!({ "x": 1 });
        call.read_only = true;
        call
    }

    /// A gate for which a repeated call of a tool is of no use.
    fn gate(task: &str, name: &str) -> UtilityGate {
        let mut gate = UtilityGate::new(task);
        for at in 0..10 {
            let mut other = call(name);
            other.arguments = json!({ "at": at });
            assert_eq!(gate.refusal(&settings(), &other, 0.0), None);
        }
        assert_eq!(gate.refusal(&settings(), &call(name), 0.0), None);
        gate
    }

    #[test]
    fn nothing_is_put_off_unless_it_is_enabled() {
        let mut gate = gate("look", "web__search");
        assert_eq!(gate.refusal(&Utility::default(), &call("web__search"), 1.0), None);
    }

    #[test]
    fn useless_call_is_put_off_once_and_made_if_the_model_insists() {
        let mut gate = gate("look", "web__search");
        let told = gate.refusal(&settings(), &call("web__search"), 1.0).unwrap();
        assert!(told.contains("threshold") && told.contains("make the same call again"), "{told}");
        for _ in 0..5 {
            assert_eq!(gate.refusal(&settings(), &call("web__search"), 1.0), None);
        }
    }

    #[test]
    fn acting_call_is_never_put_off() {
        let mut gate = gate("look", "web__search");
        let acting = ReadyCall { read_only: false, ..call("web__search") };
        assert_eq!(gate.refusal(&settings(), &acting, 1.0), None);
    }

    #[test]
    fn exempt_tool_is_never_put_off() {
        for name in ["load_skill", "invoke_skill"] {
            let mut gate = gate("look", name);
            assert_eq!(gate.refusal(&settings(), &call(name), 1.0), None);
        }
    }

    #[test]
    fn what_the_person_asks_for_is_never_put_off() {
        for task in [
            "Use web__search for it",
            "call the SEARCH tool",
            "find it out using a tool",
            "Run: the search",
            "what is the output of it",
            "what does `ls | wc -l` say",
        ] {
            let mut gate = gate(task, "web__search");
            assert_eq!(gate.refusal(&settings(), &call("web__search"), 1.0), None, "{task}");
        }
        let mut gate = gate("what does `x` mean", "web__find");
        assert!(gate.refusal(&settings(), &call("web__find"), 1.0).is_some());
    }

    #[test]
    fn use_that_cannot_be_computed_is_none() {
        let mut gate = UtilityGate::new("look");
        assert!(gate.refusal(&settings(), &call("web__search"), f64::NAN).is_some());
        assert_eq!(gate.refusal(&settings(), &call("web__search"), f64::NAN), None);
    }

    #[test]
    fn task_is_never_stopped_by_the_gate() {
        let mut gate = UtilityGate::new("look");
        let strict = settings();
        let put_off = (0..100).filter(|at| {
            let mut call = call("web__search");
            call.arguments = json!({ "at": at });
            gate.refusal(&strict, &call, f64::NAN).is_some()
        });
        assert_eq!(put_off.count(), MAX_PUT_OFF);
    }

    #[test]
    fn use_follows_the_formula() {
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        close(utility("memory_search", 0.0, false, 0), 1.0);
        close(utility("grep", 0.5, true, 5), 0.65 - 0.25 - 0.3 + 0.1);
        close(utility("x__other", 2.0, true, 99), 0.5 - 0.5 - 0.3);
    }
}
