//! `Host::check`: decides on a call without running it.

use std::sync::Arc;

use rustix::io::Errno;
use serde_json::Value;
use toolhold_catalogue::{CallContext, Catalogue, subjects, validate};
use toolhold_contract::Failure;
use toolhold_policy::{Decision, Gate, ResolvedSubject, Verdict};
use toolhold_system::files::{FileError, FileView};

use crate::approve::ApprovalStep;
use crate::host::Host;
use crate::journey::chosen_commands::{BASH, PluginCommands, as_command};
use crate::journey::prepare::carry;
use crate::planned_task::{LastingRules, decide_planned, planned_call};
use crate::request::Request;
use crate::session::Session;
use crate::{dependencies, planned_task};

/// The result of a check of a call. A check runs nothing, asks nobody, uses no quota and records
/// nothing.
#[derive(Clone, Debug)]
pub struct Check {
    /// The tool's full name, if the requested tool exists.
    pub tool: Option<String>,
    /// The arguments. Resolved paths are absolute.
    pub arguments: Value,
    /// The paths, commands and URLs of the call.
    pub subjects: Vec<ResolvedSubject>,
    /// The results of the gates, in the order of a call.
    pub gates: Vec<GateCheck>,
    /// The final decision: the call would run, need approval or be denied. `Err` means that the
    /// call is invalid, or fails before anyone is asked.
    pub outcome: Result<Decision, Failure>,
    /// The person who has already approved the call for the session, if the call needs approval.
    pub approved_by: Option<String>,
    /// A sentence about decisions that are only made while the call runs, or `None`.
    pub open: Option<String>,
}

/// The result of one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCheck {
    /// The gate.
    pub gate: Gate,
    /// The answer of the gate.
    pub said: GateAnswer,
}

/// The answer of a gate about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// A rule of the gate decides.
    Rule(Decision),
    /// No rule of the gate applies.
    Nothing,
    /// Unknown, because an earlier gate denies a subject that this gate checks.
    Unknown,
    /// A model decides, but a check asks no model. The text names the model and the policies.
    Unasked(String),
}

/// A command that no rule matches.
const ANY_COMMAND: &str = "unknown-command";

/// The gates after [`Gate::Grants`]. They check the subjects of a call, so their answers are
/// unknown if the subjects can't be resolved.
const AFTER_GRANTS: [Gate; 12] = [
    Gate::Ceiling,
    Gate::Policy,
    Gate::Permissions,
    Gate::Autonomy,
    Gate::Risk,
    Gate::Network,
    Gate::Hosts,
    Gate::Trust,
    Gate::Dependencies,
    Gate::Review,
    Gate::Quota,
    Gate::Rate,
];

impl Host {
    /// Checks what happens to a call, and why. Every gate decides as in [`call`](Self::call).
    /// Nobody is asked, nothing runs, no quota is used, and nothing is recorded.
    ///
    /// Files, rules and the session can change before the call runs.
    pub fn check(&self, request: Request) -> Check {
        let (mut context, session, _call_inputs) = request.begin(&self.session);
        let mut gates = Vec::new();
        let mut outcome = check_gates(self, &mut context, &session, &mut gates);
        let mut approved_by = None;
        if let Ok(decision) = &outcome
            && decision.verdict == Verdict::Ask
        {
            let review = None;
            let step = ApprovalStep::new(self, &context, &session, decision, review);
            match step.find_earlier_approval_blocking() {
                Ok(by) => approved_by = by,
                Err(failure) => outcome = Err(failure),
            }
        }
        let may_run = outcome.as_ref().is_ok_and(|decision| decision.verdict != Verdict::Deny);
        let open = if may_run { describe_chosen_commands(self, &context) } else { None };
        Check {
            open,
            tool: context.tool.as_ref().map(|tool| tool.definition.name.clone()),
            arguments: Arc::unwrap_or_clone(std::mem::take(&mut context.arguments)),
            subjects: context.subjects,
            gates,
            outcome,
            approved_by,
        }
    }

    /// Checks whether a call would run without approval although one of its paths doesn't exist.
    /// Like [`check`](Self::check), this function has no effect. May wait for a file system.
    pub fn has_missing_path(&self, request: Request) -> bool {
        let (mut context, session, _call_inputs) = request.begin(&self.session);
        let outcome = check_gates(self, &mut context, &session, &mut Vec::new());
        let is_allowed = outcome.is_ok_and(|decision| decision.verdict == Verdict::Allow);
        if !is_allowed {
            return false;
        }
        let plugin = context.tool.as_ref().and_then(|tool| tool.plugin.as_ref());
        let Some(grants) = plugin.and_then(|plugin| plugin.policy().files.clone()) else {
            return false;
        };
        let read_only = true;
        let view = FileView::new(grants, read_only);
        for subject in context.subjects.iter().filter(|subject| subject.kind.is_path()) {
            let result = view.find(subject.text.as_ref());
            if matches!(result, Err(FileError::Errno(Errno::NOENT | Errno::NOTDIR))) {
                return true;
            }
        }
        false
    }
}

/// Describes how the `bash` rules decide on commands that the call's tool chooses while it runs.
/// Returns `None` if the tool chooses no commands.
fn describe_chosen_commands(host: &Host, context: &CallContext) -> Option<String> {
    if !context.acts() {
        return None;
    }
    let tool = context.tool.as_ref()?;
    let chooses_commands = PluginCommands::for_tool(tool).is_some();
    if !chooses_commands {
        return None;
    }
    let catalogue = host.plugins.catalogue();
    let bash = catalogue.resolve(BASH).ok()?;

    let start = "Each command that the tool chooses is checked like a call of `bash`";
    // No rule matches this command, so the decision applies to any command without a rule.
    let mut any_call = as_command(&host.governor, context, bash, ANY_COMMAND.to_owned());
    let lookup =
        host.lookups.resolve_blocking(bash, &mut any_call.arguments, &mut any_call.subjects);
    if lookup.is_err() {
        return Some(format!("{start}."));
    }
    let is_approved = false;
    let (decision, _path_rules) = host.governor.decide(&any_call, is_approved);
    let Decision { verdict, gate, rule, place, .. } = decision;
    let sentences = match (verdict, gate) {
        (Verdict::Ask, Gate::Autonomy) => {
            format!(
                "{start}. The command needs approval unless a permission decides, by {rule} \
                 ({place})."
            )
        }
        (Verdict::Deny, Gate::Autonomy) => {
            format!("{start} and denied, by {rule} ({place}).")
        }
        _ => format!("{start}."),
    };
    Some(sentences)
}

fn check_gates(
    host: &Host,
    context: &mut CallContext,
    session: &Session,
    gates: &mut Vec<GateCheck>,
) -> Result<Decision, Failure> {
    let rules = host.governor.rules();
    let catalogue = host.plugins.catalogue();
    let tool = Arc::clone(catalogue.resolve(&context.requested_tool)?);
    context.tool = Some(Arc::clone(&tool));
    validate::normalize(&tool.definition, &mut context.arguments)?;
    validate::arguments(&tool, &mut context.arguments, host.settings.max_arguments)?;

    let switched_off = rules.switches.refusal(tool.provider.name(), &tool.definition.name);
    add_gate(gates, Gate::Switches, switched_off.cloned());
    let blocked_command = rules.policy.blocked(subjects::commands(&tool, &context.arguments));
    let lookup =
        host.lookups.resolve_blocking(&tool, &mut context.arguments, &mut context.subjects);
    if let Err(failure) = lookup {
        let Some(denial) = &failure.denial else { return Err(failure) };
        add_gate(gates, Gate::Blocklist, blocked_command);
        add_gate(gates, Gate::Grants, Some(Decision::from_grants(denial)));
        gates.extend(AFTER_GRANTS.map(|gate| GateCheck { gate, said: GateAnswer::Unknown }));
        return Ok(most_severe(gates));
    }
    carry(&host.governor, context, session);
    host.shaping.check(context)?;

    let task_refusal = refuse_planned(host, context, session, &catalogue)?;
    if let Some(action) = context.action() {
        for (gate, decision) in rules.policy.explain(&action) {
            add_gate(gates, gate, decision);
            if gate == Gate::Blocklist {
                add_gate(gates, Gate::Grants, None);
            }
        }
    }
    let blocked_tool = dependencies::check(&rules, &catalogue, context, session)
        .unwrap_or_else(|error| Some(dependencies::unreadable_decision(&error)));
    add_gate(gates, Gate::Dependencies, blocked_tool);
    let said = match &rules.review {
        Some(review) if !review.exempts(context) => {
            if most_severe(gates).verdict == Verdict::Deny {
                GateAnswer::Unknown
            } else if let Some(missing) = host.reviews.missing(review) {
                GateAnswer::Rule(missing)
            } else {
                GateAnswer::Unasked(review.describe())
            }
        }
        _ => GateAnswer::Nothing,
    };
    gates.push(GateCheck { gate: Gate::Review, said });
    let limit = rules.counting.find_denial(session, context.acts());
    for gate in [Gate::Quota, Gate::Rate] {
        add_gate(gates, gate, limit.clone().filter(|decision| decision.gate == gate));
    }
    Ok(task_refusal.unwrap_or_else(|| most_severe(gates)))
}

/// Returns the denial of the scheduled task that a call creates. Returns `None` if the task may run
/// or the call creates no task.
fn refuse_planned(
    host: &Host,
    context: &CallContext,
    session: &Session,
    catalogue: &Catalogue,
) -> Result<Option<Decision>, Failure> {
    let Some(planned) = planned_call(context, &host.asking.config())? else { return Ok(None) };
    let Some(mut call) = planned_task::begin(host, context, session, planned, catalogue)? else {
        return Ok(None);
    };
    let Some(tool) = call.tool.clone() else { return Ok(None) };
    let lookup = host.lookups.resolve_blocking(&tool, &mut call.arguments, &mut call.subjects);
    if let Err(failure) = lookup {
        return match &failure.denial {
            Some(denial) => Ok(Some(Decision::from_grants(denial))),
            None => Err(failure),
        };
    }
    let plugin = tool.plugin.as_ref();
    let lasting_rules = LastingRules::load(
        &host.asking.config(),
        plugin.map(|plugin| &*plugin.policy().table.name),
        &host.asking.folders,
        &host.tasks.directory,
    )?;
    let (decision, _path_rules) = decide_planned(&host.governor, &call, lasting_rules.as_ref());
    if decision.verdict != Verdict::Deny {
        return Ok(None);
    }
    Ok(Some(decision))
}

fn add_gate(gates: &mut Vec<GateCheck>, gate: Gate, decision: Option<Decision>) {
    let said = match decision {
        Some(decision) => GateAnswer::Rule(decision),
        None => GateAnswer::Nothing,
    };
    gates.push(GateCheck { gate, said });
}

/// Returns the first of the most severe decisions of the gates. If no gate decides, returns the
/// decision on a call without rules.
fn most_severe(gates: &[GateCheck]) -> Decision {
    let mut most_severe: Option<&Decision> = None;
    for check in gates {
        if let GateAnswer::Rule(decision) = &check.said
            && most_severe.is_none_or(|other| decision.verdict > other.verdict)
        {
            most_severe = Some(decision);
        }
    }
    most_severe.cloned().unwrap_or_else(toolhold_policy::undecided)
}
