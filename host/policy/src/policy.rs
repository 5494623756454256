//! The gates, in their order.

use std::borrow::Cow;
use std::sync::Arc;

use berth_commands::{Blocked, Command, Risk};
use berth_contract::SubjectKind;
use berth_contract::text::toml;

use crate::Blocklist;
use crate::action::Action;
use crate::autonomy::Autonomy;
use crate::decision::{Decision, Gate, Verdict};
use crate::network::Network;
use crate::origin::{Origin, OriginKind, Placed};
use crate::permissions::{PermissionMatch, Permissions};
use crate::rules::RuleSet;
use crate::trust::ProviderTrust;
use crate::web::Web;

/// The order in which a call is decided on. It is fixed, and every gate is asked for every call:
///
/// 1. the blocklist: commands that never run;
/// 2. the organisation's ceiling, `[tools.policy]` and `[tools.authorization]`: rules that only
///    take away;
/// 3. the tool's permissions: the first rule that matches allows, asks or denies;
/// 4. autonomy: what becomes of a call that no permission is about, and whether anything acts at
///    all;
/// 5. the risk of commands, which asks even where a permission allows;
/// 6. the network that commands want;
/// 7. the hosts that the web tools go to;
/// 8. trust in the plugin and in what asks for the call.
///
/// The first that denies decides; else the first that asks; else the first that allows.
/// [`Gate::Grants`] stands behind the blocklist, and is decided where paths are resolved;
/// dependencies, quota and rate, which count calls, come last, when the call is sure to run.
pub const GATES: [Gate; 10] = [
    Gate::Blocklist,
    Gate::Ceiling,
    Gate::Policy,
    Gate::Authorization,
    Gate::Permissions,
    Gate::Autonomy,
    Gate::Risk,
    Gate::Network,
    Gate::Hosts,
    Gate::Trust,
];

/// Everything that calls are decided by. The default is what holds where nobody says anything,
/// except for the blocklist, which is empty.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Commands that never run.
    pub blocklist: Blocklist,
    /// The organisation's rules: a set for each ceiling, each decided on by itself.
    pub ceiling: Vec<RuleSet>,
    /// `[tools.policy]`.
    pub policy: RuleSet,
    /// `[tools.authorization]`, empty where it is not switched on.
    pub authorization: RuleSet,
    /// `[tools.permissions.TOOL]`.
    pub permissions: Permissions,
    /// `[tools] autonomy`.
    pub autonomy: Placed<Autonomy>,
    /// `[tools.shell] only_commands`: the programs that commands may start. Empty: any.
    pub only_commands: Placed<Vec<String>>,
    /// `[tools.shell] strict_parse`: whether commands that can't be seen through are refused,
    /// rather than asked for.
    pub strict_parse: Placed<bool>,
    /// Whether commands of high risk are refused rather than asked for.
    pub block_high_risk: Placed<bool>,
    /// Whether commands of medium risk are asked for, unless a permission allows them.
    pub ask_for_medium_risk: Placed<bool>,
    /// `[tools.shell] network`.
    pub network: Placed<Network>,
    /// `[tools.web]`. None: the web tools aren't there.
    pub web: Option<Web>,
    /// `[plugins.NAME] trust`.
    pub trusted: ProviderTrust,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            blocklist: Blocklist::default(),
            ceiling: Vec::new(),
            policy: RuleSet::default(),
            authorization: RuleSet::default(),
            permissions: Permissions::default(),
            autonomy: Placed::default(),
            only_commands: Placed::default(),
            strict_parse: Placed::default(),
            block_high_risk: Placed::default(),
            ask_for_medium_risk: Placed { value: true, ..Placed::default() },
            network: Placed::default(),
            web: None,
            trusted: ProviderTrust::default(),
        }
    }
}

impl Policy {
    /// Decides on a call.
    ///
    /// Every gate is asked, in the order of [`GATES`]. The first that denies decides; else the
    /// first that asks; else the first that allows. `confirmed`: a person has agreed, so what would
    /// ask is allowed. Nothing else changes.
    pub fn decide(&self, action: &Action<'_>, confirmed: bool) -> Decision {
        let seen = Seen::new(self, action);
        let mut decided: Option<Decision> = None;
        for gate in GATES {
            let Some(said) = self.say(gate, action, &seen) else { continue };
            if said.verdict == Verdict::Deny {
                return said;
            }
            if decided.as_ref().is_none_or(|known| said.verdict > known.verdict) {
                decided = Some(said);
            }
        }
        let mut decision = decided.unwrap_or_else(undecided);
        if confirmed && decision.verdict == Verdict::Ask {
            decision.verdict = Verdict::Allow;
        }
        decision
    }

    /// What each gate says of a call, in their order; None where it has nothing against it and
    /// nothing for it.
    pub fn explain(&self, action: &Action<'_>) -> Vec<(Gate, Option<Decision>)> {
        let seen = Seen::new(self, action);
        GATES.iter().map(|gate| (*gate, self.say(*gate, action, &seen))).collect()
    }

    /// Whether one of the commands never runs. This is looked at before anything else is: before
    /// the paths of a call, too.
    pub fn blocked<'c>(&self, commands: impl IntoIterator<Item = &'c str>) -> Option<Decision> {
        commands.into_iter().find_map(|text| {
            self.blocklisted(&Command::read(text)).filter(|said| said.verdict == Verdict::Deny)
        })
    }

    /// What is against a command line that a plugin starts by itself, sure or not: nobody can be
    /// asked in the middle of a call.
    pub fn against(&self, line: &str) -> Option<Decision> {
        self.blocklisted(&Command::read(line))
    }

    /// Whether what a call starts reaches the network, once it may run.
    pub fn reaches_network(&self, action: &Action<'_>) -> bool {
        self.network.reaches(action)
    }

    /// Whether every call of a tool is denied, whatever it is called with. Such a tool isn't worth
    /// showing. `harmless`: it neither acts nor reaches the world.
    pub fn denies_all(&self, tool: &Definition<'_>) -> bool {
        let Definition { name, aliases, provider, acts, harmless } = *tool;
        self.autonomy.value == Autonomy::ReadOnly && acts
            || self
                .ceiling
                .iter()
                .chain([&self.policy, &self.authorization])
                .any(|rules| rules.denies_all(name))
            || self.permissions.denies_all(name, aliases)
            || self.trusted.denies_all(provider, harmless)
    }

    fn say(&self, gate: Gate, action: &Action<'_>, seen: &Seen<'_>) -> Option<Decision> {
        match gate {
            Gate::Blocklist => seen
                .commands
                .iter()
                .filter_map(|command| self.say_of_blocklist(command, seen))
                .reduce(more_severe),
            Gate::Ceiling => self.ceiling.iter().find_map(|rules| {
                rules.say(gate, "the ceiling", action, self.trusted.least(action))
            }),
            Gate::Policy => {
                self.policy.say(gate, "[tools.policy]", action, self.trusted.least(action))
            }
            Gate::Authorization => self.authorization.say(
                gate,
                "[tools.authorization]",
                action,
                self.trusted.least(action),
            ),
            Gate::Permissions => {
                seen.permitted.map(|permitted| self.permissions.say(permitted, action))
            }
            Gate::Autonomy => {
                self.autonomy.say(action, &self.permissions, seen.permitted.is_some())
            }
            Gate::Risk => seen
                .commands
                .iter()
                .filter_map(|command| self.say_of_risk(command, action, seen))
                .reduce(more_severe),
            Gate::Network => self.network.say(action, seen.exactly(), seen.allowed()),
            Gate::Hosts => self.web.as_ref().and_then(|web| web.say(action, seen.allowed())),
            Gate::Trust => self.trusted.say(action),
            Gate::Switches | Gate::Grants | Gate::Dependencies | Gate::Quota | Gate::Rate => None,
        }
    }

    /// What the blocklist says of a command, and what the list of what alone may run does: the most
    /// severe, of those the first.
    fn blocklisted(&self, command: &Command) -> Option<Decision> {
        let listed = self.blocklist.find(command).map(|blocked| self.on_the_list(&blocked));
        let said = [listed, self.beside_the_only(command), self.unclear_at_all(command)];
        said.into_iter().flatten().reduce(more_severe)
    }

    fn beside_the_only(&self, command: &Command) -> Option<Decision> {
        let Placed { value: only, place } = &self.only_commands;
        if only.is_empty() {
            return None;
        }
        let deny = |rule: String, remedy: String| {
            let remedy = place.remedy(|| remedy);
            Some(Decision {
                verdict: Verdict::Deny,
                gate: Gate::Blocklist,
                rule: rule.into(),
                place: place.text.clone(),
                remedy,
            })
        };
        match (command.beside(only), command.unclear) {
            (Some(program), _) => deny(
                format!("only_commands, which doesn't have `{}`", bounded(program)),
                format!("To allow it, add {} to `only_commands` of [tools.shell].", toml(program)),
            ),
            // Whether it starts only those can't be told.
            (None, Some(why)) => deny(
                format!("only_commands, since its programs are unknown: {why}"),
                "To allow such commands, take `only_commands` out of [tools.shell].".to_owned(),
            ),
            (None, None) => None,
        }
    }

    /// What is refused because it can't be seen through, where that is so.
    fn unclear_at_all(&self, command: &Command) -> Option<Decision> {
        let Placed { value: true, place } = &self.strict_parse else { return None };
        let substitutes =
            command.substitutes.then_some("the output of a command is part of another one");
        let why = command.unclear.or(substitutes)?;
        Some(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Blocklist,
            rule: format!("strict_parse = true: {why}").into(),
            place: place.text.clone(),
            remedy: place.remedy(|| {
                "To have such commands ask, set `strict_parse = false` in [tools.shell].".to_owned()
            }),
        })
    }

    fn on_the_list(&self, blocked: &Blocked<'_, Origin>) -> Decision {
        let entry = blocked.entry;
        match blocked.certain {
            true => Decision {
                verdict: Verdict::Deny,
                gate: Gate::Blocklist,
                rule: format!("the blocked command `{entry}`").into(),
                place: blocked.place.text.clone(),
                remedy: blocked.place.remedy(|| match blocked.place.kind {
                    OriginKind::Default(None) => {
                        format!("To take it from the list, write in berth.toml:\n[tools.shell]\nallowed_commands = [{entry:?}]")
                    }
                    OriginKind::Default(Some(ref place)) => {
                        format!("To unblock it, put {entry:?} into `allowed_commands` in [tools.shell], in {place}.")
                    }
                    _ => format!("To allow it, take {entry:?} out of `blocked_commands`."),
                }),
            },
            false => self.unclear(format!("the rule that a command asks which may be the blocked `{entry}`").into()),
        }
    }

    fn say_of_blocklist(&self, command: &Command, seen: &Seen<'_>) -> Option<Decision> {
        let blocked = self.blocklisted(command);
        let unclear = || {
            command.unclear.map(|why| {
                self.unclear(
                    format!("the rule that a command asks which can't be seen through: {why}")
                        .into(),
                )
            })
        };
        blocked.or_else(unclear).filter(|said| said.verdict == Verdict::Deny || !seen.exactly())
    }

    fn unclear(&self, rule: Cow<'static, str>) -> Decision {
        Decision {
            verdict: Verdict::Ask,
            gate: Gate::Blocklist,
            rule,
            place: "built in".into(),
            remedy: "To have it run without asking, allow exactly this command, by a permission without `*` and `?`.".into(),
        }
    }

    fn say_of_risk(
        &self,
        command: &Command,
        action: &Action<'_>,
        seen: &Seen<'_>,
    ) -> Option<Decision> {
        let (risk, program) = command.risk();
        let say = |verdict, place: &Origin, remedy: Cow<'static, str>| {
            let rule = format!("the {} risk of `{}`", risk.as_str(), bounded(&program));
            Some(Decision {
                verdict,
                gate: Gate::Risk,
                rule: rule.into(),
                place: place.text.clone(),
                remedy,
            })
        };
        match risk {
            Risk::High if self.block_high_risk.value => say(
                Verdict::Deny,
                &self.block_high_risk.place,
                self.block_high_risk.place.remedy(|| {
                    "To have it ask, set `block_high_risk_commands = false` in [tools.shell]."
                        .to_owned()
                }),
            ),
            // A person's yes to exactly this is one to its risk.
            Risk::High if self.autonomy.value != Autonomy::Full && !seen.exactly() => {
                say(Verdict::Ask, &Origin::default(), self.permissions.to_allow(action).into())
            }
            Risk::Medium
                if self.autonomy.value != Autonomy::Full
                    && self.ask_for_medium_risk.value
                    && !seen.allowed() =>
            {
                say(
                    Verdict::Ask,
                    &self.ask_for_medium_risk.place,
                    self.permissions.to_allow(action).into(),
                )
            }
            _ => None,
        }
    }
}

/// Where the blocked commands stand that nobody wrote.
pub const BUILT_IN_COMMANDS: &str = "the default of [tools.shell]";

/// A tool, as far as it matters whether it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// Its full name.
    pub name: &'a str,
    /// Its other names.
    pub aliases: &'a [String],
    /// What offers it.
    pub provider: &'a str,
    /// Whether it can change something.
    pub acts: bool,
    /// Whether it neither acts nor reaches the world.
    pub harmless: bool,
}

/// What several gates look at.
struct Seen<'p> {
    /// The commands that the call runs, looked into.
    commands: Vec<Arc<Command>>,
    permitted: Option<PermissionMatch<'p>>,
}

impl<'p> Seen<'p> {
    fn new(policy: &'p Policy, action: &Action<'_>) -> Self {
        let commands =
            action.subjects.iter().filter(|subject| subject.kind == SubjectKind::Command);
        let commands: Vec<Arc<Command>> =
            commands.map(|subject| Command::read(&subject.text)).collect();
        let permitted = policy.permissions.answer(action, &commands);
        Self { commands, permitted }
    }

    /// Whether a person has allowed exactly this.
    fn exactly(&self) -> bool {
        self.permitted.is_some_and(|permitted| permitted.exactly)
    }

    fn allowed(&self) -> bool {
        self.permitted.is_some_and(|permitted| permitted.permission.verdict == Verdict::Allow)
    }
}

/// The beginning of what a model wrote, where it is long.
fn bounded(text: &str) -> String {
    let mut shown: String = text.chars().take(120).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn more_severe(known: Decision, next: Decision) -> Decision {
    if next.verdict > known.verdict { next } else { known }
}

/// The refusal of what no gate has said anything about.
pub fn undecided() -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Permissions,
        rule: Cow::Borrowed("the rule that what no gate decides is refused"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed("It is a fault of Berth's; please tell its maintainers."),
    }
}
