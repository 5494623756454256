//! The network gate: decides whether commands reach the network.

use toolhold_contract::SubjectKind;
use toolhold_shell_commands::analyze;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// `[tools.shell] network`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Commands never reach it.
    Deny,
    /// Commands reach it if a person approves.
    #[default]
    Ask,
    /// Commands always reach it.
    Allow,
}

/// Why a call needs the network.
enum NetworkNeed {
    /// The call requests the network.
    Call,
    /// A command of the call is known to need the network.
    Command {
        program: String,
        /// Whether all programs of the command are known and need the network.
        alone: bool,
    },
}

/// Returns the reason why a call of the built-in shell needs the network. Returns `None` if the
/// call doesn't need it. Also returns `None` for calls of plugins, because plugins have their own
/// grant.
fn network_need(action: &Action<'_>) -> Option<NetworkNeed> {
    if !action.built_in {
        return None;
    }
    let mut commands =
        action.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command).peekable();
    commands.peek()?;
    if action.network {
        return Some(NetworkNeed::Call);
    }
    for subject in commands {
        let analysis = analyze(&subject.text);
        let mut programs = analysis.commands.iter().filter(|simple| !simple.program.is_empty());
        let alone =
            analysis.unresolved.is_none() && programs.clone().all(|simple| simple.needs_network);
        if let Some(needing) = programs.find(|simple| simple.needs_network) {
            return Some(NetworkNeed::Command { program: needing.program.clone(), alone });
        }
    }
    None
}

impl Placed<Network> {
    /// Checks whether the commands of an allowed call reach the network. A call that needs approval
    /// runs only after the approval.
    pub(crate) fn reaches(&self, action: &Action<'_>) -> bool {
        match self.value {
            Network::Deny => false,
            Network::Ask => network_need(action).is_some(),
            Network::Allow => true,
        }
    }

    /// Decides for this gate. `exactly` means that a permission allows exactly this command.
    /// `allowed` means that any permission allows it.
    pub(crate) fn decide(
        &self,
        action: &Action<'_>,
        exactly: bool,
        allowed: bool,
    ) -> Option<Decision> {
        const TO_ALLOW: (&str, &str) =
            ("To allow the network without asking", "network = \"allow\"");
        let (verdict, rule, (goal, line)) = match (self.value, network_need(action)?) {
            (Network::Allow, _) => return None,
            // The command runs without the network and fails by itself.
            (Network::Deny, NetworkNeed::Command { .. }) => return None,
            (Network::Deny, NetworkNeed::Call) => (
                Verdict::Deny,
                "network = \"deny\", and the call asks for the network".to_owned(),
                ("Call it without `network`; or, to be asked", "network = \"ask\""),
            ),
            // A permission for a command includes the network that the command needs. It doesn't
            // include the network that the call requests. A permission with a wildcard also doesn't
            // include the network for other programs of the same line.
            (Network::Ask, NetworkNeed::Command { alone, .. }) if exactly || allowed && alone => {
                return None;
            }
            (Network::Ask, NetworkNeed::Command { program, .. }) => (
                Verdict::Ask,
                format!("network = \"ask\": `{program}` needs the network"),
                TO_ALLOW,
            ),
            (Network::Ask, NetworkNeed::Call) => (
                Verdict::Ask,
                "network = \"ask\", and the call asks for the network".to_owned(),
                TO_ALLOW,
            ),
        };
        let remedy = self.place.remedy_to_set(goal, "tools.shell", line);
        Some(Decision {
            verdict,
            gate: Gate::Network,
            rule: rule.into(),
            place: self.place.text.clone(),
            remedy,
        })
    }
}
