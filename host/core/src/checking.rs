//! What would become of a call, gate by gate, without making it.

use std::sync::Arc;

use berth_catalogue::{CallContext, subjects, validate};
use berth_contract::Failure;
use berth_policy::{Decision, Gate, ResolvedSubject, Verdict};
use serde_json::Value;

use crate::dependencies;
use crate::host::{Host, Request};
use crate::session::Session;

/// What would become of a call. Nothing was run, asked, counted or recorded for it.
#[derive(Clone, Debug)]
pub struct Check {
    /// The tool's full name, where there is one of the name that was asked for.
    pub tool: Option<String>,
    /// The arguments, with absolute paths as far as the call got.
    pub arguments: Value,
    /// What it would act on.
    pub subjects: Vec<ResolvedSubject>,
    /// What each gate says, in the order in which a call comes to them.
    pub gates: Vec<GateCheck>,
    /// What decides: the call would run, be asked for, or be refused. `Err`: it is wrong in itself,
    /// and comes to no gate, or it would fail before anybody is asked.
    pub outcome: Result<Decision, Failure>,
    /// Who has agreed already, for the session, where a person would be asked otherwise.
    pub approved_by: Option<String>,
}

/// One gate's word on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCheck {
    /// The gate.
    pub gate: Gate,
    /// What it says.
    pub said: GateAnswer,
}

/// What a gate says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// It has a rule for it.
    Rule(Decision),
    /// It has nothing against it, and nothing for it.
    Nothing,
    /// Nobody can tell, since an earlier gate refuses what it would look at.
    Unknown,
}

/// The gates that look at what a call acts on, and so come after [`Gate::Grants`].
const AFTER_GRANTS: [Gate; 12] = [
    Gate::Ceiling,
    Gate::Policy,
    Gate::Authorization,
    Gate::Permissions,
    Gate::Autonomy,
    Gate::Risk,
    Gate::Network,
    Gate::Hosts,
    Gate::Trust,
    Gate::Dependencies,
    Gate::Quota,
    Gate::Rate,
];

impl Host {
    /// Says what would become of a call, and why: every gate is asked, as by [`call`](Self::call),
    /// and nothing else happens. Nobody is asked, nothing runs, counts against a quota or is
    /// recorded.
    ///
    /// What it says holds for this moment: files, rules and the session may be others when the call
    /// is made.
    pub fn check(&self, request: Request) -> Check {
        let (mut context, session, _) = self.begin(request);
        let mut gates = Vec::new();
        let (outcome, approved_by) = match self.look_at(&mut context, &session, &mut gates) {
            Ok(decision) if decision.verdict == Verdict::Ask => {
                match self.approval_step(&context, &session, &decision).find_earlier() {
                    Ok(by) => (Ok(decision), by),
                    Err(failure) => (Err(failure), None),
                }
            }
            outcome => (outcome, None),
        };
        Check {
            tool: context.tool.as_ref().map(|tool| tool.definition.name.clone()),
            arguments: Arc::unwrap_or_clone(std::mem::take(&mut context.arguments)),
            subjects: context.subjects,
            gates,
            outcome,
            approved_by,
        }
    }

    fn look_at(
        &self,
        context: &mut CallContext,
        session: &Session,
        gates: &mut Vec<GateCheck>,
    ) -> Result<Decision, Failure> {
        let (rules, catalogue) = (self.governor.rules(), self.plugins.catalogue());
        let tool = Arc::clone(catalogue.resolve(&context.requested_tool)?);
        context.tool = Some(Arc::clone(&tool));
        validate::rename(&tool.definition, &mut context.arguments)?;
        validate::arguments(&tool, &mut context.arguments, self.settings.arguments)?;

        say(gates, Gate::Switches, rules.switches.refusal(tool.provider.name()).cloned());
        let blocked = rules.policy.blocked(subjects::commands(&tool, &context.arguments));
        match self.lookups.decide_here(&tool, &mut context.arguments, &mut context.subjects) {
            Ok(()) => {}
            Err(failure) => {
                let Some(denial) = &failure.denial else { return Err(failure) };
                say(gates, Gate::Blocklist, blocked);
                say(gates, Gate::Grants, Some(Decision::from_grants(denial)));
                gates
                    .extend(AFTER_GRANTS.map(|gate| GateCheck { gate, said: GateAnswer::Unknown }));
                return Ok(deciding(gates));
            }
        }
        self.shaping.check(context)?;
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
        let counted = rules.counting.look(session, context.acts());
        for gate in [Gate::Quota, Gate::Rate] {
            say(gates, gate, counted.clone().filter(|decision| decision.gate == gate));
        }
        Ok(deciding(gates))
    }
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
    decided.cloned().unwrap_or_else(berth_policy::undecided)
}
