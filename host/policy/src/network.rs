//! Whether commands reach the network.

use berth_commands::analyze;
use berth_contract::SubjectKind;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// `[tools.shell] network`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Never.
    Deny,
    /// If a person approves.
    #[default]
    Ask,
    /// Always.
    Allow,
}

/// What wants the network in a call.
enum Wants {
    /// The call says so.
    Call,
    /// A command in it that is known to need it.
    Command {
        program: String,
        /// Whether nothing else is in it that could use what that one gets.
        alone: bool,
    },
}

/// What wants it, of the calls that this is about: those of the built-in shell. Plugins have a
/// grant of their own.
fn wants(action: &Action<'_>) -> Option<Wants> {
    let mut commands = action
        .subjects
        .iter()
        .filter(|subject| subject.kind == SubjectKind::Command)
        .filter(|_| action.built_in)
        .peekable();
    commands.peek()?;
    if action.arguments.get("network").and_then(serde_json::Value::as_bool) == Some(true) {
        return Some(Wants::Call);
    }
    commands.find_map(|subject| {
        let looked = analyze(&subject.text);
        let mut programs = looked.commands.iter().filter(|simple| !simple.program.is_empty());
        let alone =
            looked.unresolved.is_none() && programs.clone().all(|simple| simple.needs_network);
        programs
            .find(|simple| simple.needs_network)
            .map(|simple| Wants::Command { program: simple.program.clone(), alone })
    })
}

impl Placed<Network> {
    /// Whether what the call starts reaches the network, if it may run at all: where a person is
    /// asked, it runs only after their yes.
    pub(crate) fn reaches(&self, action: &Action<'_>) -> bool {
        match self.value {
            Network::Deny => false,
            Network::Ask => wants(action).is_some(),
            Network::Allow => true,
        }
    }

    /// `exactly`, `allowed`: whether a permission allows the very command, or one like it.
    pub(crate) fn say(
        &self,
        action: &Action<'_>,
        exactly: bool,
        allowed: bool,
    ) -> Option<Decision> {
        let (verdict, rule, remedy) = match (self.value, wants(action)?) {
            (Network::Allow, _) => return None,
            // It runs without, and finds out.
            (Network::Deny, Wants::Command { .. }) => return None,
            (Network::Deny, Wants::Call) => (
                Verdict::Deny,
                "network = \"deny\", while the call asks for it".to_owned(),
                "To have it ask, set `network = \"ask\"` in [tools.shell]; or call it without `network`.",
            ),
            // A yes to a command is one to what it needs; but not to what a call asks for beside
            // it, of which the permission says nothing, and where it is one for many commands, not
            // to what the others in the line would do with it.
            (Network::Ask, Wants::Command { alone, .. }) if exactly || allowed && alone => {
                return None;
            }
            (Network::Ask, Wants::Command { program, .. }) => (
                Verdict::Ask,
                format!("network = \"ask\": `{program}` needs the network"),
                "To have commands reach the network unasked, set `network = \"allow\"` in [tools.shell].",
            ),
            (Network::Ask, Wants::Call) => (
                Verdict::Ask,
                "network = \"ask\", and the call asks for it".to_owned(),
                "To have commands reach the network unasked, set `network = \"allow\"` in [tools.shell].",
            ),
        };
        let remedy = self.place.remedy(|| remedy.to_owned());
        Some(Decision {
            verdict,
            gate: Gate::Network,
            rule: rule.into(),
            place: self.place.text.clone(),
            remedy,
        })
    }
}
