//! `Host::check`: says what each gate decides about a call, without making the call.

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

/// The result of checking a call. A check runs, asks, counts and records nothing.
#[derive(Clone, Debug)]
pub struct Check {
    /// The tool's full name, if the requested tool exists.
    pub tool: Option<String>,
    /// The arguments, with absolute paths as far as they were resolved.
    pub arguments: Value,
    /// The paths, commands and addresses that it would act on.
    pub subjects: Vec<ResolvedSubject>,
    /// The answer of each gate, in the order in which a call passes them.
    pub gates: Vec<GateCheck>,
    /// The deciding result: the call would run, need approval or be refused. `Err`: the call itself
    /// is wrong and reaches no gate, or it would fail before anyone is asked.
    pub outcome: Result<Decision, Failure>,
    /// The person who approved it for the session already, if it would need approval otherwise.
    pub approved_by: Option<String>,
    /// The part that is decided only while it runs, as a sentence. `None`: everything is decided.
    pub open: Option<String>,
}

/// The result of one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCheck {
    /// The gate.
    pub gate: Gate,
    /// Its answer.
    pub said: GateAnswer,
}

/// The answer of a gate about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// A rule of the gate decides.
    Rule(Decision),
    /// No rule of the gate applies.
    Nothing,
    /// Unknown, since an earlier gate refuses what it would look at.
    Unknown,
    /// A model decides, which isn't asked now: which one, and by what.
    Unasked(String),
}

/// A stand-in for a command that isn't known yet.
const ANY_COMMAND: &str = "unknown-command";

/// The gates that look at what a call acts on, and so come after [`Gate::Grants`].
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
    /// Says what would happen to a call, and why: every gate is asked as by [`call`](Self::call),
    /// and nothing else happens. Neither a person nor a model is asked, and nothing runs, counts
    /// against a quota or is recorded.
    ///
    /// The result is true for this moment: files, rules and the session can change before the call
    /// is made.
    pub fn check(&self, request: Request) -> Check {
        let (mut context, session, _) = request.begin(&self.session);
        let mut gates = Vec::new();
        let (outcome, approved_by) = match look_at(self, &mut context, &session, &mut gates) {
            Ok(decision) if decision.verdict == Verdict::Ask => {
                let step = ApprovalStep::new(self, &context, &session, &decision, None);
                match step.find_earlier() {
                    Ok(by) => (Ok(decision), by),
                    Err(failure) => (Err(failure), None),
                }
            }
            outcome => (outcome, None),
        };
        let begins = outcome.as_ref().is_ok_and(|decision| decision.verdict != Verdict::Deny);
        let open = begins.then(|| judged_later(self, &context)).flatten();
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

    /// Whether a call would run without a question, and names a path that doesn't exist. As with
    /// [`check`](Self::check), nothing else happens. It waits for a file system.
    pub fn has_missing_path(&self, request: Request) -> bool {
        let (mut context, session, _) = request.begin(&self.session);
        let decided = look_at(self, &mut context, &session, &mut Vec::new());
        if !decided.is_ok_and(|decision| decision.verdict == Verdict::Allow) {
            return false;
        }
        let plugin = context.tool.as_ref().and_then(|tool| tool.plugin.as_ref());
        let Some(grants) = plugin.and_then(|plugin| plugin.policy().files.clone()) else {
            return false;
        };
        let view = FileView::new(grants, true);
        context.subjects.iter().filter(|subject| subject.kind.is_path()).any(|subject| {
            let found = view.find(subject.text.as_ref());
            matches!(found, Err(FileError::Errno(Errno::NOENT | Errno::NOTDIR)))
        })
    }
}

/// Returns a sentence on what the gates of `bash` say of any command that the call's tool chooses,
/// if it may choose some.
fn judged_later(host: &Host, context: &CallContext) -> Option<String> {
    if !context.acts() {
        return None;
    }
    let tool = context.tool.as_ref()?;
    PluginCommands::for_tool(tool)?;
    let begin = "Each command that the tool chooses is checked as a call of `bash`";
    let catalogue = host.plugins.catalogue();
    let bash = catalogue.resolve(BASH).ok()?;
    // No rule knows this command, so its decision is the decision on any command.
    let mut any = as_command(&host.governor, context, bash, ANY_COMMAND.to_owned());
    let found = host.lookups.decide_here(bash, &mut any.arguments, &mut any.subjects);
    if found.is_err() {
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

fn look_at(
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

    say(gates, Gate::Switches, rules.switches.refusal(tool.provider.name()).cloned());
    let blocked = rules.policy.blocked(subjects::commands(&tool, &context.arguments));
    match host.lookups.decide_here(&tool, &mut context.arguments, &mut context.subjects) {
        Ok(()) => {}
        Err(failure) => {
            let Some(denial) = &failure.denial else { return Err(failure) };
            say(gates, Gate::Blocklist, blocked);
            say(gates, Gate::Grants, Some(Decision::from_grants(denial)));
            gates.extend(AFTER_GRANTS.map(|gate| GateCheck { gate, said: GateAnswer::Unknown }));
            return Ok(deciding(gates));
        }
    }
    carry(&host.governor, context, session);
    host.shaping.check(context)?;
    let refused = refuse_planned(host, context, session, &catalogue)?;
    if let Some(action) = context.action() {
        for (gate, said) in rules.policy.explain(&action) {
            say(gates, gate, said);
            if gate == Gate::Blocklist {
                say(gates, Gate::Grants, None);
            }
        }
    }
    let blocked = dependencies::check(&rules, &catalogue, context, session)
        .unwrap_or_else(|error| Some(dependencies::unknown_decision(&error)));
    say(gates, Gate::Dependencies, blocked);
    let said = match rules.review.as_ref().filter(|review| !review.exempts(context)) {
        None => GateAnswer::Nothing,
        Some(_) if deciding(gates).verdict == Verdict::Deny => GateAnswer::Unknown,
        Some(review) => match host.reviews.missing(review) {
            Some(missing) => GateAnswer::Rule(missing),
            None => GateAnswer::Unasked(review.describe()),
        },
    };
    gates.push(GateCheck { gate: Gate::Review, said });
    let counted = rules.counting.look(session, context.acts());
    for gate in [Gate::Quota, Gate::Rate] {
        say(gates, gate, counted.clone().filter(|decision| decision.gate == gate));
    }
    Ok(refused.unwrap_or_else(|| deciding(gates)))
}

/// The refusal of what a call would have a task do. `None`: it may, or makes no task.
fn refuse_planned(
    host: &Host,
    context: &CallContext,
    session: &Session,
    catalogue: &Catalogue,
) -> Result<Option<Decision>, Failure> {
    let Some(planned) = planned_call(context, &host.asking.config())? else { return Ok(None) };
    let begun = planned_task::begin(host, context, session, planned, catalogue)?;
    let Some((mut call, tool)) = begun.and_then(|call| call.tool.clone().map(|tool| (call, tool)))
    else {
        return Ok(None);
    };
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
    Ok(Some(decision).filter(|decision| decision.verdict == Verdict::Deny))
}

fn say(gates: &mut Vec<GateCheck>, gate: Gate, said: Option<Decision>) {
    gates.push(GateCheck { gate, said: said.map_or(GateAnswer::Nothing, GateAnswer::Rule) });
}

/// The first of the most severe.
fn deciding(gates: &[GateCheck]) -> Decision {
    let mut decided: Option<&Decision> = None;
    for said in gates {
        if let GateAnswer::Rule(decision) = &said.said
            && decided.is_none_or(|known| decision.verdict > known.verdict)
        {
            decided = Some(decision);
        }
    }
    decided.cloned().unwrap_or_else(toolhold_policy::undecided)
}
