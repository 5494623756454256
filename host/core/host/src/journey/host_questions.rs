//! Decides on hosts that programs of a running call connect to, and that no entry grants.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use toolhold_catalogue::{CallContext, Tool};
use toolhold_contract::{BoxFuture, Denial, Failure, HostApprover, HostError, Outcome, WantedHost};
use toolhold_policy::egress::ProgramTarget;
use toolhold_policy::{Decision, Verdict};

use super::Journey;
use crate::approve::ApprovalStep;
use crate::record::Governance;

/// Maximum number of hosts of one call that a person is asked about. Further hosts are denied.
const MAX_ASKED: usize = 16;

/// Maximum number of connections whose questions wait in the channel. Further connections wait at
/// its other end.
const MAX_WAITING: usize = 16;

/// The hosts that programs of a call connect to, and the decisions on them.
pub(super) struct ProgramHosts {
    asker: Arc<Asker>,
    asked: Receiver<Asked>,
    /// The decisions of this call, by the entry of the host.
    decided: HashMap<String, Result<(), Denial>>,
}

/// Passes hosts to [`answer_host_questions`].
#[derive(Debug)]
struct Asker(Sender<Asked>);

/// A host whose connection waits for the decision.
#[derive(Debug)]
struct Asked {
    wanted: WantedHost,
    answer: oneshot::Sender<Result<(), Denial>>,
}

impl HostApprover for Asker {
    fn approve(&self, wanted: WantedHost) -> BoxFuture<'_, Result<(), Denial>> {
        Box::pin(async move {
            let ended = call_ended(&wanted);
            let (answer, decision) = oneshot::channel();
            if self.0.send(Asked { wanted, answer }).await.is_err() {
                return Err(ended);
            }
            decision.await.unwrap_or(Err(ended))
        })
    }
}

impl ProgramHosts {
    /// Starts to receive the hosts of the tool's programs. Returns `None` if nobody is asked about
    /// them.
    pub(super) fn for_tool(tool: &Tool) -> Option<Self> {
        let process = tool.plugin.as_ref()?.policy().capabilities.process.as_ref()?;
        let hosts = process.hosts.as_ref()?;
        if !hosts.asks() {
            return None;
        }
        let (sender, asked) = channel(MAX_WAITING);
        Some(Self { asker: Arc::new(Asker(sender)), asked, decided: HashMap::new() })
    }

    pub(super) fn approver(&self) -> Arc<dyn HostApprover> {
        Arc::clone(&self.asker) as _
    }
}

/// Runs a call to its end, and decides on the hosts of its programs. The call goes on while a
/// person is asked, so a call that ends withdraws its question.
pub(super) async fn answer_host_questions(
    journey: Journey<'_>,
    context: &CallContext,
    governance: &mut Governance,
    questions: &mut ProgramHosts,
    running: impl Future<Output = Outcome>,
) -> Outcome {
    let mut running = pin!(running);
    loop {
        let asked = tokio::select! {
            biased;
            outcome = &mut running => return outcome,
            asked = questions.asked.recv() => asked,
        };
        // This never happens, because `questions` has a sender, which keeps the channel open.
        let Some(Asked { wanted, answer }) = asked else { return running.await };
        let decision = match questions.decided.get(&wanted.entry) {
            Some(decision) => decision.clone(),
            None if questions.decided.len() >= MAX_ASKED => Err(too_many(&wanted)),
            None => {
                let decision = tokio::select! {
                    biased;
                    outcome = &mut running => return outcome,
                    decision = decide(journey, context, governance, &wanted) => decision,
                };
                questions.decided.insert(wanted.entry, decision.clone());
                decision
            }
        };
        // The connection may have been closed meanwhile.
        let _ = answer.send(decision);
    }
}

/// Decides on a host by the current rules. If they ask, a person decides.
async fn decide(
    journey: Journey<'_>,
    context: &CallContext,
    governance: &mut Governance,
    wanted: &WantedHost,
) -> Result<(), Denial> {
    let action = format!("connect `{}` to {}", wanted.program, wanted.entry);
    let target = ProgramTarget::from_entry(&wanted.entry)
        .map_err(|error| denial(wanted, error.to_string(), ""))?;
    let decision = current_decision(journey, &target, wanted)?;
    match decision.verdict {
        Verdict::Allow => return Ok(()),
        Verdict::Deny => return Err(decision.denial(action)),
        Verdict::Ask => {}
    }
    let review = None;
    let step = ApprovalStep::new(journey.host, context, journey.session, &decision, review);
    let mut waited = Duration::ZERO;
    let approver = journey.inputs.approver.as_deref();
    let cancel = &journey.inputs.cancel;
    let approved = step.approve_host(&target, wanted, approver, &mut waited, cancel).await;
    governance.waited += waited;
    approved.map_err(|failure| refusal(&decision, action.clone(), failure))?;

    // The rules may have changed while the connection waited.
    let current = current_decision(journey, &target, wanted)?;
    if current.verdict == Verdict::Deny { Err(current.denial(action)) } else { Ok(()) }
}

fn current_decision(
    journey: Journey<'_>,
    target: &ProgramTarget,
    wanted: &WantedHost,
) -> Result<Decision, Denial> {
    let config = journey.host.asking.config();
    // The grants of commands don't change while Toolhold runs, and a connection that is allowed
    // here is for all requests. So a newer entry that limits the requests can't apply.
    if config.limits_requests(target).map_err(|error| failed(wanted, &error))? {
        let rule =
            "an entry of `hosts` that limits the requests to this host is newer than this run";
        return Err(denial(wanted, rule.to_owned(), "Start Toolhold again."));
    }
    config.decide_on_host(target).map_err(|error| failed(wanted, &error))
}

/// Returns the denial for a host on which the rules couldn't decide.
fn failed(wanted: &WantedHost, error: &HostError) -> Denial {
    denial(wanted, error.to_string(), "")
}

/// Returns the denial of a host that wasn't approved.
fn refusal(decision: &Decision, action: String, failure: Failure) -> Denial {
    let denial = decision.denial(action);
    if failure.code.as_deref() == Some("denied_by_user") {
        let remedy = failure.suggestion.unwrap_or_default();
        return Denial { rule: failure.message, remedy, ..denial };
    }
    // Nobody was asked, so the line that grants the host is the remedy.
    let remedy = format!("{}. {}", failure.message, denial.remedy);
    Denial { remedy, ..denial }
}

fn too_many(wanted: &WantedHost) -> Denial {
    let rule = format!("the call has asked about {MAX_ASKED} hosts, the limit");
    denial(wanted, rule, "Repeat the call, or add its hosts to `hosts` in [tools.shell].")
}

fn call_ended(wanted: &WantedHost) -> Denial {
    denial(wanted, "the call has ended".to_owned(), "")
}

/// Makes a denial by a rule that is built in.
fn denial(wanted: &WantedHost, rule: String, remedy: &str) -> Denial {
    Denial {
        capability: "http".to_owned(),
        action: format!("connect `{}` to {}", wanted.program, wanted.entry),
        rule,
        place: "built in".to_owned(),
        remedy: remedy.to_owned(),
    }
}
