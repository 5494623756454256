//! The network gate: decides whether commands reach the network.

use toolhold_contract::SubjectKind;
use toolhold_shell_commands::analyze;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// `[tools.shell] network`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Commands never reach the network.
    Deny,
    /// Commands reach the network if a person approves.
    #[default]
    Ask,
    /// Commands reach the granted hosts, and further hosts or the whole network if a person
    /// approves. The person is asked about a host when a program connects.
    Hosts,
    /// Commands reach the granted hosts, and further hosts if a person approves. A ceiling limits
    /// the hosts, so nobody may approve the whole network.
    OnlyHosts,
    /// Commands always reach the network.
    Allow,
}

enum NetworkNeed {
    Call,
    Command {
        program: String,
        /// Whether all programs of the command are known and need the network.
        all_need_network: bool,
    },
}

/// Returns the reason why a call of the built-in shell needs the network. Returns `None` if the
/// call doesn't need the network. Also returns `None` for calls of plugins, because each plugin has
/// its own grant for the network.
fn network_need(action: &Action<'_>) -> Option<NetworkNeed> {
    if !action.built_in {
        return None;
    }
    let subjects = action.subjects.iter();
    let commands: Vec<_> =
        subjects.filter(|subject| subject.kind == SubjectKind::Command).collect();
    if commands.is_empty() {
        return None;
    }
    let arguments_ask_for_network = action.network;
    if arguments_ask_for_network {
        return Some(NetworkNeed::Call);
    }

    for subject in commands {
        let analysis = analyze(&subject.text);
        // A command that only sets variables has no program.
        let simple_commands: Vec<_> =
            analysis.commands.iter().filter(|simple| !simple.program.is_empty()).collect();
        if let Some(first) = simple_commands.iter().find(|simple| simple.needs_network) {
            let all_need_network = analysis.unresolved.is_none()
                && simple_commands.iter().all(|simple| simple.needs_network);
            return Some(NetworkNeed::Command { program: first.program.clone(), all_need_network });
        }
    }
    None
}

impl Placed<Network> {
    pub(crate) fn commands_reach_network(&self, action: &Action<'_>) -> bool {
        match self.value {
            Network::Deny | Network::OnlyHosts => false,
            Network::Ask => network_need(action).is_some(),
            Network::Hosts => matches!(network_need(action), Some(NetworkNeed::Call)),
            Network::Allow => true,
        }
    }

    /// Returns the decision of this gate. `exactly` means that a permission allows exactly this
    /// command. `allowed` means that any permission allows it.
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
            // The command runs without the network, or reaches only the granted hosts. A command
            // that needs more fails by itself.
            (Network::Deny | Network::Hosts | Network::OnlyHosts, NetworkNeed::Command { .. }) => {
                return None;
            }
            (Network::Deny, NetworkNeed::Call) => (
                Verdict::Deny,
                "network = \"deny\", and the call asks for the network".to_owned(),
                (
                    "Call the tool without `network`; or, to be asked for approval",
                    "network = \"ask\"",
                ),
            ),
            (Network::OnlyHosts, NetworkNeed::Call) => (
                Verdict::Deny,
                "the ceiling limits `hosts`, and the call asks for the whole network".to_owned(),
                ("Call the tool without `network`; or, to allow all hosts", "hosts = [\"*\"]"),
            ),
            // A permission for exactly this command includes the network. A permission with a
            // wildcard includes the network only if every program of the line needs the network.
            (Network::Ask, NetworkNeed::Command { all_need_network, .. })
                if exactly || allowed && all_need_network =>
            {
                return None;
            }
            (Network::Ask, NetworkNeed::Command { program, .. }) => (
                Verdict::Ask,
                format!("network = \"ask\": `{program}` needs the network"),
                TO_ALLOW,
            ),
            (Network::Ask | Network::Hosts, NetworkNeed::Call) => (
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
