//! `Host::check`, which returns the decision of each gate on a call without running the call.

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

/// The result of checking a call. A check doesn't run anything, ask anyone, use a quota or write to
/// the log.
#[derive(Clone, Debug)]
pub struct Check {
    /// The tool's full name, if the requested tool exists.
    pub tool: Option<String>,
    /// The arguments. Resolved paths are absolute.
    pub arguments: Value,
    /// The paths, commands and addresses that the call would use.
    pub subjects: Vec<ResolvedSubject>,
    /// The results of the gates, in the order in which a call passes them.
    pub gates: Vec<GateCheck>,
    /// The final decision: the call would run, need approval or be denied. `Err` means that the
    /// call is invalid and reaches no gate, or that it would fail before anyone is asked.
    pub outcome: Result<Decision, Failure>,
    /// The person who has already approved the call for the session, if the call would otherwise
    /// need approval.
    pub approved_by: Option<String>,
    /// The decisions that are made only while the call runs, as a sentence. `None` means that
    /// everything is decided.
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
    /// The answer is unknown, because an earlier gate denies something that this gate would check.
    Unknown,
    /// A model decides, and isn't asked during a check. The text names the model and the policies.
    Unasked(String),
}

/// A placeholder for a command that isn't known yet.
const ANY_COMMAND: &str = "unknown-command";

/// The gates after [`Gate::Grants`], which check the subjects of a call.
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
    /// Checks what would happen to a call, and why. Every gate decides as in [`call`](Self::call).
    /// No person or model is asked, nothing runs, no quota is used, and nothing is recorded.
    ///
    /// The result is true at this moment. Files, rules and the session can change before the call
    /// runs.
    pub fn check(&self, request: Request) -> Check {
        let (mut context, session, _) = request.begin(&self.session);
        let mut gates = Vec::new();
        let mut outcome = check_gates(self, &mut context, &session, &mut gates);
        let mut approved_by = None;
        if let Ok(decision) = &outcome
            && decision.verdict == Verdict::Ask
        {
            let step = ApprovalStep::new(self, &context, &session, decision, None);
            match step.find_earlier() {
                Ok(by) => approved_by = by,
                Err(failure) => outcome = Err(failure),
            }
        }
        let open = match &outcome {
            Ok(decision) if decision.verdict != Verdict::Deny => {
                describe_chosen_commands(self, &context)
            }
            _ => None,
        };
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

    /// Checks whether a call would run without a question and contains a path that doesn't exist.
    /// Like [`check`](Self::check), this function has no other effect. Waits for a file system.
    pub fn has_missing_path(&self, request: Request) -> bool {
        let (mut context, session, _) = request.begin(&self.session);
        match check_gates(self, &mut context, &session, &mut Vec::new()) {
            Ok(decision) if decision.verdict == Verdict::Allow => {}
            _ => return false,
        }
        let plugin = context.tool.as_ref().and_then(|tool| tool.plugin.as_ref());
        let Some(grants) = plugin.and_then(|plugin| plugin.policy().files.clone()) else {
            return false;
        };
        let view = FileView::new(grants, true);
        context.subjects.iter().filter(|subject| subject.kind.is_path()).any(|subject| {
            let result = view.find(subject.text.as_ref());
            matches!(result, Err(FileError::Errno(Errno::NOENT | Errno::NOTDIR)))
        })
    }
}

/// Describes the decision of the `bash` gates on any command that the call's tool chooses. Returns
/// `None` if the tool chooses no commands.
fn describe_chosen_commands(host: &Host, context: &CallContext) -> Option<String> {
    if !context.acts() {
        return None;
    }
    let tool = context.tool.as_ref()?;
    PluginCommands::for_tool(tool)?;
    let begin = "Each command that the tool chooses is checked as a call of `bash`";
    let catalogue = host.plugins.catalogue();
    let bash = catalogue.resolve(BASH).ok()?;
    // No rule matches this command, so the decision on it applies to any command.
    let mut any = as_command(&host.governor, context, bash, ANY_COMMAND.to_owned());
    let lookup = host.lookups.decide_here(bash, &mut any.arguments, &mut any.subjects);
    if lookup.is_err() {
        return Some(format!("{begin}."));
    }
    let (decision, _) = host.governor.decide(&any, false);
    let Decision { verdict, gate, rule, place, .. } = decision;
    Some(match (verdict, gate) {
        (Verdict::Ask, Gate::Autonomy) => {
            format!("{begin}. It needs approval unless a permission decides, by {rule} ({place}).")
        }
        (Verdict::Deny, Gate::Autonomy) => {
            format!("{begin} and denied, by {rule} ({place}).")
        }
        _ => format!("{begin}."),
    })
}

/// Adds the answers of all gates to `gates`. Returns the final decision.
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
    validate::rename(&tool.definition, &mut context.arguments)?;
    validate::arguments(&tool, &mut context.arguments, host.settings.max_arguments)?;

    let switched_off = rules.switches.refusal(tool.provider.name(), &tool.definition.name);
    add_gate(gates, Gate::Switches, switched_off.cloned());
    let blocked_command = rules.policy.blocked(subjects::commands(&tool, &context.arguments));
    let lookup = host.lookups.decide_here(&tool, &mut context.arguments, &mut context.subjects);
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
        .unwrap_or_else(|error| Some(dependencies::unknown_decision(&error)));
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
    let limit = rules.counting.look(session, context.acts());
    for gate in [Gate::Quota, Gate::Rate] {
        add_gate(gates, gate, limit.clone().filter(|decision| decision.gate == gate));
    }
    Ok(task_refusal.unwrap_or_else(|| most_severe(gates)))
}

/// Returns the denial of the task that a call would create. Returns `None` if the task may run, or
/// if the call creates no task.
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
    let decision = match host.lookups.decide_here(&tool, &mut call.arguments, &mut call.subjects) {
        Ok(()) => {
            let plugin = tool.plugin.as_ref();
            let lasting = LastingRules::load(
                &host.asking.config(),
                plugin.map(|plugin| &*plugin.policy().table.name),
                &host.asking.folders,
                &host.tasks.directory,
            )?;
            decide_planned(&host.governor, &call, lasting.as_ref()).0
        }
        Err(failure) => match &failure.denial {
            Some(denial) => Decision::from_grants(denial),
            None => return Err(failure),
        },
    };
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

/// Returns the most severe decision of the gates. If several are equally severe, returns the first
/// of them.
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
