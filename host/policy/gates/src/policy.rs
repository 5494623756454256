//! Decides on a call. Asks the gates in their order.

use std::borrow::Cow;
use std::sync::Arc;

use toolhold_contract::SubjectKind;
use toolhold_contract::text::toml;
use toolhold_shell_commands::{Blocked, Command, Risk};

use crate::Blocklist;
use crate::action::{Action, Trust};
use crate::autonomy::{Autonomy, Containment};
use crate::decision::{Decision, Gate, Verdict};
use crate::network::Network;
use crate::origin::{Origin, OriginKind, Placed, TablePlace};
use crate::permissions::{PermissionMatch, Permissions};
use crate::rules::RuleSet;
use crate::trust::ProviderTrust;
use crate::web::Web;

/// The fixed order of the gates. Every gate decides on every call:
///
/// 1. the blocklist: commands that never run;
/// 2. the organisation's ceiling and `[tools.policy]`: rules that can only deny;
/// 3. the permissions of the tool: the first rule that matches allows, asks or denies;
/// 4. autonomy: the verdict on a call without a matching permission, and whether calls may act;
/// 5. the risk of commands, which asks even if a permission allows the command;
/// 6. the network for commands;
/// 7. the hosts that the web tools request;
/// 8. trust in the plugin and in the caller.
///
/// The first gate that denies decides. If no gate denies, the first gate that asks decides, and
/// then the first gate that allows. [`Gate::Grants`] comes after the blocklist, and is decided when
/// paths are resolved. The other gates come last: dependencies, the review, quota and rate. The
/// review checks only calls that may otherwise run. Quota and rate count only calls that run.
pub const GATES: [Gate; 9] = [
    Gate::Blocklist,
    Gate::Ceiling,
    Gate::Policy,
    Gate::Permissions,
    Gate::Autonomy,
    Gate::Risk,
    Gate::Network,
    Gate::Hosts,
    Gate::Trust,
];

/// All rules for calls. The default has the rules of an empty configuration, but with an empty
/// blocklist.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Commands that never run.
    pub blocklist: Blocklist,
    /// Rules of the organisation, one set for each ceiling. Each set decides separately.
    pub ceiling: Vec<RuleSet>,
    /// `[tools.policy]`.
    pub policy: RuleSet,
    /// `[tools.permissions.TOOL]`.
    pub permissions: Permissions,
    /// `[tools] autonomy`.
    pub autonomy: Placed<Autonomy>,
    /// The parts of the sandbox that `autonomy = "sandboxed"` relies on.
    pub containment: Containment,
    /// `[tools.shell] only_commands`: the programs that commands may start. Empty means any
    /// program.
    pub only_commands: Placed<Vec<String>>,
    /// `[tools.shell] strict_parse`: whether unresolved commands are denied. Otherwise they need
    /// approval.
    pub strict_parse: Placed<bool>,
    /// Whether commands of high risk are denied. Otherwise they need approval.
    pub block_high_risk: Placed<bool>,
    /// Whether commands of medium risk need approval at every level, unless a permission allows
    /// them.
    pub ask_for_medium_risk: Placed<bool>,
    /// `[tools.shell] network`.
    pub network: Placed<Network>,
    /// `[tools.web]`. `None` if the web tools aren't available.
    pub web: Option<Web>,
    /// `[plugins.NAME] trust`.
    pub trusted: ProviderTrust,
}

impl Policy {
    /// Decides on a call.
    ///
    /// Every gate decides, in the order of [`GATES`]. The first gate that denies decides. If no
    /// gate denies, the first gate that asks decides, and then the first gate that allows.
    /// `confirmed` means that a person has approved the call. It only changes *ask* to *allow*.
    pub fn decide(&self, action: &Action<'_>, confirmed: bool) -> Decision {
        let inputs = GateInputs::new(self, action);
        let mut decided: Option<Decision> = None;
        for gate in GATES {
            let Some(next) = self.decide_at(gate, action, &inputs) else { continue };
            if next.verdict == Verdict::Deny {
                return next;
            }
            if decided.as_ref().is_none_or(|known| next.verdict > known.verdict) {
                decided = Some(next);
            }
        }
        let mut decision = decided.unwrap_or_else(undecided);
        if confirmed && decision.verdict == Verdict::Ask {
            decision.verdict = Verdict::Allow;
        }
        decision
    }

    /// Checks whether a call needs approval only because no permission allows it: no other gate
    /// asks, such as the one for risky commands. Only such calls can share an approval.
    pub fn asks_for_permission_only(&self, action: &Action<'_>) -> bool {
        let inputs = GateInputs::new(self, action);
        for gate in GATES {
            let Some(decision) = self.decide_at(gate, action, &inputs) else { continue };
            let is_permission = matches!(gate, Gate::Permissions | Gate::Autonomy);
            if decision.verdict > Verdict::Allow && !is_permission {
                return false;
            }
        }
        true
    }

    /// Returns the decision of each gate on a call, in their order. `None` means that a gate has no
    /// rule about the call.
    pub fn explain(&self, action: &Action<'_>) -> Vec<(Gate, Option<Decision>)> {
        let inputs = GateInputs::new(self, action);
        GATES.iter().map(|gate| (*gate, self.explain_at(*gate, action, &inputs))).collect()
    }

    fn explain_at(
        &self,
        gate: Gate,
        action: &Action<'_>,
        inputs: &GateInputs<'_>,
    ) -> Option<Decision> {
        let mut decision = self.decide_at(gate, action, inputs)?;
        // A call that another rule allows doesn't change with the autonomy.
        if gate == Gate::Autonomy
            && decision.verdict == Verdict::Allow
            && decision.rule == self.autonomy.value.rule()
        {
            decision.remedy = self.autonomy.to_be_asked();
        }
        Some(decision)
    }

    /// Returns the denial if one of the commands never runs. This check comes first, before the
    /// paths of a call are checked.
    pub fn blocked<'c>(&self, commands: impl IntoIterator<Item = &'c str>) -> Option<Decision> {
        for text in commands {
            if let Some(decision) = self.command_refusal(&Command::read(text))
                && decision.verdict == Verdict::Deny
            {
                return Some(decision);
            }
        }
        None
    }

    /// Returns the denial of a command line that a plugin starts during a call. The verdict *ask*
    /// also denies it, because a running call can't ask.
    pub fn line_refusal(&self, line: &str) -> Option<Decision> {
        self.command_refusal(&Command::read(line))
    }

    /// Returns the trust in a call. This is the lower of the trust in its origin and the trust in
    /// its provider.
    pub fn trust_in(&self, action: &Action<'_>) -> Trust {
        self.trusted.least(action)
    }

    /// Checks whether acting calls may run because their changes can be undone.
    pub fn is_sandboxed(&self) -> bool {
        self.autonomy.value == Autonomy::Sandboxed
    }

    /// Checks whether the commands of an allowed call reach the network.
    pub fn reaches_network(&self, action: &Action<'_>) -> bool {
        self.network.reaches(action)
    }

    /// Returns a further remedy for a denied call to the servers of the session's jobs.
    pub fn remedy_by_jobs(&self, action: &Action<'_>, refusal: &Decision) -> Option<String> {
        if refusal.gate != Gate::Hosts {
            return None;
        }
        self.web.as_ref()?.remedy_by_jobs(action)
    }

    /// Checks whether a call is allowed only because its changes can be undone.
    pub fn relies_on_undo(&self, action: &Action<'_>, decision: &Decision) -> bool {
        decision.gate == Gate::Autonomy
            && decision.verdict == Verdict::Allow
            && action.acts()
            && self.is_sandboxed()
    }

    /// Returns the question about a call that relies on undo, and changes something that can't be
    /// saved.
    pub fn not_undoable(&self, action: &Action<'_>, what: &str) -> Decision {
        Decision {
            verdict: Verdict::Ask,
            gate: Gate::Autonomy,
            rule: format!("autonomy = \"sandboxed\", which asks because {what}").into(),
            place: self.autonomy.place.text.clone(),
            remedy: self.permissions.to_allow(action).into(),
        }
    }

    /// Checks whether every call of a tool is denied, with any arguments. Such a tool isn't listed.
    pub fn denies_all(&self, tool: &Definition<'_>) -> bool {
        let Definition { name, aliases, provider, acts, harmless } = *tool;
        if acts && self.autonomy.value == Autonomy::ReadOnly {
            return true;
        }
        self.ceiling.iter().any(|rules| rules.denies_all(name))
            || self.policy.denies_all(name)
            || self.permissions.denies_all(provider, name, aliases)
            || self.trusted.denies_all(provider, harmless)
    }

    fn decide_at(
        &self,
        gate: Gate,
        action: &Action<'_>,
        inputs: &GateInputs<'_>,
    ) -> Option<Decision> {
        match gate {
            Gate::Blocklist => inputs
                .commands
                .iter()
                .filter_map(|command| self.decide_at_blocklist(command, inputs))
                .reduce(more_severe),
            Gate::Ceiling => self.ceiling.iter().find_map(|rules| {
                rules.decide(gate, "the ceiling", action, self.trusted.least(action))
            }),
            Gate::Policy => {
                self.policy.decide(gate, "[tools.policy]", action, self.trusted.least(action))
            }
            Gate::Permissions => {
                inputs.permission.map(|matched| self.permissions.decide(matched, action))
            }
            Gate::Autonomy => self.autonomy.decide(
                action,
                &self.containment,
                &self.permissions,
                inputs.permission.is_some(),
            ),
            Gate::Risk => inputs
                .commands
                .iter()
                .filter_map(|command| self.decide_at_risk(command, action, inputs))
                .reduce(more_severe),
            Gate::Network => {
                self.network.decide(action, inputs.is_exactly_allowed(), inputs.is_allowed())
            }
            Gate::Hosts => {
                self.web.as_ref().and_then(|web| web.decide(action, inputs.is_allowed()))
            }
            Gate::Trust => self.trusted.decide(action),
            Gate::Switches
            | Gate::Grants
            | Gate::Dependencies
            | Gate::Review
            | Gate::Quota
            | Gate::Rate => None,
        }
    }

    /// Returns the decision on a command by `blocked_commands`, `only_commands` and `strict_parse`.
    /// If there are several, returns the first of the most severe decisions.
    fn command_refusal(&self, command: &Command) -> Option<Decision> {
        let blocked = self.blocklist.find(command).map(|blocked| self.decide_on_blocked(&blocked));
        let decisions = [blocked, self.only_commands_denial(command), self.strict_denial(command)];
        decisions.into_iter().flatten().reduce(more_severe)
    }

    fn only_commands_denial(&self, command: &Command) -> Option<Decision> {
        let Placed { value: only, place } = &self.only_commands;
        if only.is_empty() {
            return None;
        }
        let (rule, remedy) = match (command.beside(only), command.unclear) {
            (Some(program), _) => (
                format!("only_commands, which doesn't have `{}`", shorten(program)),
                format!("To allow it, add {} to `only_commands` of {}.", toml(program), place.text),
            ),
            // An unresolved command may start other programs.
            (None, Some(why)) => (
                format!("only_commands, since its programs are unknown: {why}"),
                format!("To allow such commands, take `only_commands` out of {}.", place.text),
            ),
            (None, None) => return None,
        };
        Some(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Blocklist,
            rule: rule.into(),
            place: place.text.clone(),
            remedy: place.remedy(|| remedy),
        })
    }

    /// Returns the denial of an unresolved command, if `strict_parse` is on.
    fn strict_denial(&self, command: &Command) -> Option<Decision> {
        if !self.strict_parse.value {
            return None;
        }
        let reason = match command.unclear {
            Some(reason) => reason,
            None if command.substitutes => "the output of a command is part of another command",
            None => return None,
        };
        let place = &self.strict_parse.place;
        let goal = "To be asked about such commands";
        Some(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Blocklist,
            rule: format!("strict_parse = true: {reason}").into(),
            place: place.text.clone(),
            remedy: place.remedy_to_set(goal, "tools.shell", "strict_parse = false"),
        })
    }

    fn decide_on_blocked(&self, blocked: &Blocked<'_, Origin>) -> Decision {
        let entry = blocked.entry;
        if !blocked.certain {
            let rule = format!("the command may be the blocked command `{entry}`");
            return self.ask_for_unresolved(rule.into());
        }
        Decision {
            verdict: Verdict::Deny,
            gate: Gate::Blocklist,
            rule: format!("the blocked command `{entry}`").into(),
            place: blocked.place.text.clone(),
            remedy: blocked.place.remedy(|| match &blocked.place.kind {
                OriginKind::Default(TablePlace { file, line: Some(line) }) => {
                    format!("To allow it, add {entry:?} to `allowed_commands` in [tools.shell], in {file}, line {line}.")
                }
                OriginKind::Default(table) => format!(
                    "To allow it, {}",
                    table.lines("tools.shell", &format!("allowed_commands = [{entry:?}]"))
                ),
                _ => format!("To allow it, take {entry:?} out of `blocked_commands`."),
            }),
        }
    }

    fn decide_at_blocklist(&self, command: &Command, inputs: &GateInputs<'_>) -> Option<Decision> {
        let decision = match (self.command_refusal(command), command.unclear) {
            (Some(refusal), _) => refusal,
            (None, Some(reason)) => {
                self.ask_for_unresolved(format!("the command is unresolved: {reason}").into())
            }
            (None, None) => return None,
        };
        if decision.verdict != Verdict::Deny && inputs.is_exactly_allowed() {
            return None;
        }
        Some(decision)
    }

    fn ask_for_unresolved(&self, rule: Cow<'static, str>) -> Decision {
        Decision {
            verdict: Verdict::Ask,
            gate: Gate::Blocklist,
            rule,
            place: "built in".into(),
            remedy: "To allow it without asking, allow exactly this command, by a permission without `*` and `?`.".into(),
        }
    }

    fn decide_at_risk(
        &self,
        command: &Command,
        action: &Action<'_>,
        inputs: &GateInputs<'_>,
    ) -> Option<Decision> {
        let level = self.autonomy.level(action, &self.containment);
        let (risk, program) = match level {
            Autonomy::Sandboxed => command.risk_if_undoable(),
            _ => command.risk(),
        };
        // Undo has no effect on this setting, so the risk without undo applies.
        if self.block_high_risk.value && command.risk().0 == Risk::High {
            let place = &self.block_high_risk.place;
            return Some(Decision {
                verdict: Verdict::Deny,
                gate: Gate::Risk,
                rule: describe_risk(risk, &program).into(),
                place: place.text.clone(),
                remedy: place.remedy_to_set(
                    "To be asked",
                    "tools.shell",
                    "block_high_risk_commands = false",
                ),
            });
        }
        let place = match risk {
            // A permission for exactly this command includes its risk.
            Risk::High if level != Autonomy::Full && !inputs.is_exactly_allowed() => {
                Origin::default().text
            }
            Risk::Medium if self.ask_for_medium_risk.value && !inputs.is_allowed() => {
                self.ask_for_medium_risk.place.text.clone()
            }
            _ => return None,
        };
        Some(Decision {
            verdict: Verdict::Ask,
            gate: Gate::Risk,
            rule: describe_risk(risk, &program).into(),
            place,
            remedy: self.permissions.to_allow(action).into(),
        })
    }
}

/// Place of the commands that are blocked by default.
pub const BUILT_IN_COMMANDS: &str = "the default of [tools.shell]";

/// A tool with the facts that decide whether it is listed.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// Full name of the tool.
    pub name: &'a str,
    /// The aliases of the tool.
    pub aliases: &'a [String],
    /// The plugin or provider that offers the tool.
    pub provider: &'a str,
    /// Whether the tool can change something.
    pub acts: bool,
    /// Whether the tool neither acts nor reaches the network.
    pub harmless: bool,
}

/// Inputs that several gates share.
struct GateInputs<'p> {
    /// The commands of the call, analysed.
    commands: Vec<Arc<Command>>,
    /// The permission that matches the call.
    permission: Option<PermissionMatch<'p>>,
}

impl<'p> GateInputs<'p> {
    fn new(policy: &'p Policy, action: &Action<'_>) -> Self {
        let commands: Vec<Arc<Command>> = action
            .subjects
            .iter()
            .filter(|subject| subject.kind == SubjectKind::Command)
            .map(|subject| Command::read(&subject.text))
            .collect();
        let permission = policy.permissions.find(action, &commands);
        Self { commands, permission }
    }

    /// Checks whether permissions allow exactly this call.
    fn is_exactly_allowed(&self) -> bool {
        self.permission.is_some_and(|matched| matched.exactly)
    }

    fn is_allowed(&self) -> bool {
        self.permission.is_some_and(|matched| matched.permission.verdict == Verdict::Allow)
    }
}

fn describe_risk(risk: Risk, program: &str) -> String {
    format!("the {} risk of `{}`", risk.as_str(), shorten(program))
}

/// Shortens a long untrusted text to its start.
fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(120).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn more_severe(known: Decision, next: Decision) -> Decision {
    if next.verdict > known.verdict { next } else { known }
}

/// Returns the refusal of a call that no gate decides.
pub fn undecided() -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Permissions,
        rule: Cow::Borrowed("calls that no gate decides are denied"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed("This is a bug in Toolhold; report it to its maintainers."),
    }
}
