//! Decides on a call with all gates.

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

/// The gates in their fixed order. Every gate decides on every call:
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
/// The first gate that denies decides. If no gate denies, the first gate that asks decides. If no
/// gate asks, the first gate that allows decides.
///
/// [`Gate::Grants`] comes after the blocklist, when paths are resolved. The dependencies, the
/// review, the quota and the rate come after all these gates.
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

/// All rules for calls. The default has the rules of an empty configuration, but an empty
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
    /// The settings that stop calls from being contained. `autonomy = "sandboxed"` asks about these
    /// calls.
    pub containment: Containment,
    /// `[tools.shell] only_commands`: the programs that commands may start. Empty means any
    /// program.
    pub only_commands: Placed<Vec<String>>,
    /// `[tools.shell] strict_parse`: whether unresolved commands are denied. If not, they need
    /// approval.
    pub strict_parse: Placed<bool>,
    /// Whether commands of high risk are denied. If not, they need approval.
    pub block_high_risk: Placed<bool>,
    /// Whether commands of medium risk need approval at every level of autonomy, unless a
    /// permission allows them.
    pub ask_for_medium_risk: Placed<bool>,
    /// `[tools.shell] network`.
    pub network: Placed<Network>,
    /// `[tools.web]`. `None` if there are no web tools.
    pub web: Option<Web>,
    /// `[plugins.NAME] trust`.
    pub trusted: ProviderTrust,
}

impl Policy {
    /// Decides on a call, as described at [`GATES`]. `confirmed` means that a person has approved
    /// the call. It changes only *ask* to *allow*.
    pub fn decide(&self, action: &Action<'_>, confirmed: bool) -> Decision {
        let inputs = GateInputs::new(self, action);
        let mut decided: Option<Decision> = None;
        for gate in GATES {
            let Some(decision) = self.decide_at(gate, action, &inputs) else { continue };
            if decision.verdict == Verdict::Deny {
                return decision;
            }
            // The verdict *ask* is greater than *allow*.
            if decided.as_ref().is_none_or(|earlier| decision.verdict > earlier.verdict) {
                decided = Some(decision);
            }
        }
        let mut decision = decided.unwrap_or_else(undecided);
        if confirmed && decision.verdict == Verdict::Ask {
            decision.verdict = Verdict::Allow;
        }
        decision
    }

    /// Checks whether only the gates of permissions and autonomy ask about a call or deny it. If
    /// another gate asks, such as about a risky command, the approval can't cover other calls.
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

    /// Returns the decision of each gate on a call, in the order of [`GATES`]. `None` means that
    /// the gate has no rule about the call.
    pub fn explain(&self, action: &Action<'_>) -> Vec<(Gate, Option<Decision>)> {
        let inputs = GateInputs::new(self, action);
        GATES.iter().map(|gate| (*gate, self.explain_at(*gate, action, &inputs))).collect()
    }

    /// Returns the decision of a gate, with a remedy for a call that `autonomy` allows.
    fn explain_at(
        &self,
        gate: Gate,
        action: &Action<'_>,
        inputs: &GateInputs<'_>,
    ) -> Option<Decision> {
        let mut decision = self.decide_at(gate, action, inputs)?;
        // A change of `autonomy` is a remedy only if `autonomy` itself allows the call.
        if gate == Gate::Autonomy
            && decision.verdict == Verdict::Allow
            && decision.rule == self.autonomy.value.rule()
        {
            decision.remedy = self.autonomy.to_be_asked();
        }
        Some(decision)
    }

    /// Returns the denial of the first command that is always denied. Returns `None` if there is no
    /// such command. Call this before the paths of a call are resolved, because such a command is
    /// denied whatever its paths are.
    pub fn blocked<'c>(&self, commands: impl IntoIterator<Item = &'c str>) -> Option<Decision> {
        for text in commands {
            if let Some(decision) = self.decide_by_lists(&Command::read(text))
                && decision.verdict == Verdict::Deny
            {
                return Some(decision);
            }
        }
        None
    }

    /// Returns the denial of a command line that a plugin starts during a call. A command that
    /// needs approval is denied too, because a running call can't ask.
    pub fn line_refusal(&self, line: &str) -> Option<Decision> {
        self.decide_by_lists(&Command::read(line))
    }

    /// Returns the trust in a call: the lower of the trust in its caller and the trust in its
    /// provider.
    pub fn trust_in(&self, action: &Action<'_>) -> Trust {
        self.trusted.trust_in(action)
    }

    /// Checks whether `autonomy` is `sandboxed`.
    pub fn is_sandboxed(&self) -> bool {
        self.autonomy.value == Autonomy::Sandboxed
    }

    /// Checks whether the commands of an allowed call reach the network.
    pub fn reaches_network(&self, action: &Action<'_>) -> bool {
        self.network.commands_reach_network(action)
    }

    /// Returns the remedy that lets a denied call request a server of the session's jobs.
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

    /// Returns the decision that asks about a call because one of its changes can't be undone.
    /// `reason` names the change.
    pub fn not_undoable(&self, action: &Action<'_>, reason: &str) -> Decision {
        Decision {
            verdict: Verdict::Ask,
            gate: Gate::Autonomy,
            rule: format!("autonomy = \"sandboxed\", which needs approval because {reason}").into(),
            place: self.autonomy.place.text.clone(),
            remedy: self.permissions.to_allow(action).into(),
        }
    }

    /// Checks whether every call of a tool is denied, with any arguments. The caller doesn't list
    /// such a tool.
    pub fn denies_all(&self, tool: &Definition<'_>) -> bool {
        let Definition { name, aliases, provider, acts, harmless } = *tool;
        if acts && self.autonomy.value == Autonomy::ReadOnly {
            return true;
        }
        let is_denied_by_rules =
            self.ceiling.iter().any(|rules| rules.denies_all(name)) || self.policy.denies_all(name);
        is_denied_by_rules
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
                rules.decide(gate, "the ceiling", action, self.trusted.trust_in(action))
            }),
            Gate::Policy => {
                self.policy.decide(gate, "[tools.policy]", action, self.trusted.trust_in(action))
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
    /// If several decide, returns the most severe decision.
    fn decide_by_lists(&self, command: &Command) -> Option<Decision> {
        let blocked = self.blocklist.find(command).map(|blocked| self.decide_on_blocked(&blocked));
        let decisions = [blocked, self.only_commands_denial(command), self.strict_denial(command)];
        decisions.into_iter().flatten().reduce(more_severe)
    }

    /// Returns the denial of a command that runs, or may run, a program outside of `only_commands`.
    fn only_commands_denial(&self, command: &Command) -> Option<Decision> {
        let Placed { value: listed_programs, place } = &self.only_commands;
        if listed_programs.is_empty() {
            return None;
        }
        let unlisted_program = command.first_unlisted(listed_programs);
        let (rule, remedy) = match (unlisted_program, command.unclear) {
            (Some(program), _) => (
                format!("only_commands, which doesn't have `{}`", shorten(program)),
                format!("To allow it, add {} to `only_commands` of {}.", toml(program), place.text),
            ),
            // An unresolved command may start other programs.
            (None, Some(why)) => (
                format!("only_commands, because the command's programs are unknown: {why}"),
                format!("To allow such commands, remove `only_commands` from {}.", place.text),
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

    /// Returns the denial of a command that `strict_parse` doesn't accept.
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
        let goal = "To be asked for approval of such commands";
        Some(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Blocklist,
            rule: format!("strict_parse = true: {reason}").into(),
            place: place.text.clone(),
            remedy: place.remedy_to_set(goal, "tools.shell", "strict_parse = false"),
        })
    }

    /// Denies a command that is certainly blocked, and asks about a command that may be blocked.
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
            remedy: blocked.place.remedy(|| remedy_to_unblock(entry, &blocked.place.kind)),
        }
    }

    /// Decides on a command that is blocked or unresolved.
    fn decide_at_blocklist(&self, command: &Command, inputs: &GateInputs<'_>) -> Option<Decision> {
        let decision = match (self.decide_by_lists(command), command.unclear) {
            (Some(decision), _) => decision,
            (None, Some(reason)) => {
                self.ask_for_unresolved(format!("unresolved command: {reason}").into())
            }
            (None, None) => return None,
        };
        // A permission for exactly this command answers a question, but can't override a denial.
        if decision.verdict != Verdict::Deny && inputs.is_exactly_allowed() {
            return None;
        }
        Some(decision)
    }

    /// Asks about a command whose programs aren't certain.
    fn ask_for_unresolved(&self, rule: Cow<'static, str>) -> Decision {
        Decision {
            verdict: Verdict::Ask,
            gate: Gate::Blocklist,
            rule,
            place: "built in".into(),
            remedy: "To allow it without asking, add a permission for exactly this command, \
                     without `*` and `?`."
                .into(),
        }
    }

    fn decide_at_risk(
        &self,
        command: &Command,
        action: &Action<'_>,
        inputs: &GateInputs<'_>,
    ) -> Option<Decision> {
        let (risk_without_undo, riskiest) = command.risk();
        // Undo has no effect on this setting, so the risk without undo applies.
        if self.block_high_risk.value && risk_without_undo == Risk::High {
            let place = &self.block_high_risk.place;
            return Some(Decision {
                verdict: Verdict::Deny,
                gate: Gate::Risk,
                rule: describe_risk(risk_without_undo, &riskiest).into(),
                place: place.text.clone(),
                remedy: place.remedy_to_set(
                    "To be asked for approval",
                    "tools.shell",
                    "block_high_risk_commands = false",
                ),
            });
        }
        let level = self.autonomy.level(action, &self.containment);
        let (risk, program) = match level {
            Autonomy::Sandboxed => command.risk_if_undoable(),
            _ => (risk_without_undo, riskiest),
        };
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

/// The facts about a tool that decide whether it is listed.
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

struct GateInputs<'p> {
    commands: Vec<Arc<Command>>,
    permission: Option<PermissionMatch<'p>>,
}

impl<'p> GateInputs<'p> {
    /// Reads the commands of a call, and finds its permission.
    fn new(policy: &'p Policy, action: &Action<'_>) -> Self {
        let mut commands: Vec<Arc<Command>> = Vec::new();
        for subject in action.subjects {
            if subject.kind == SubjectKind::Command {
                commands.push(Command::read(&subject.text));
            }
        }
        let permission = policy.permissions.find(action, &commands);
        Self { commands, permission }
    }

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

/// Returns the remedy that takes an entry out of the blocked commands. `kind` is the place of the
/// entry.
fn remedy_to_unblock(entry: &str, kind: &OriginKind) -> String {
    match kind {
        OriginKind::Default(TablePlace { file, line: Some(line) }) => {
            format!(
                "To allow it, add {entry:?} to `allowed_commands` in [tools.shell], in {file}, line {line}."
            )
        }
        OriginKind::Default(table) => {
            let setting = format!("allowed_commands = [{entry:?}]");
            format!("To allow it, {}", table.lines("tools.shell", &setting))
        }
        _ => format!("To allow it, remove {entry:?} from `blocked_commands`."),
    }
}

/// Returns the denial of a call that no gate decides.
pub fn undecided() -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Permissions,
        rule: Cow::Borrowed("calls that no gate decides are denied"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed("This is a bug in Toolhold; please report it."),
    }
}
