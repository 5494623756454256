//! The journey of a call, top to bottom, the same for every front end and every provider.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use berth_contract::{Call, CallId, CancellationToken, Content, Denial, Events, Failure, Outcome, Report};
use berth_policy::{Decision, Verdict};
use serde_json::Value;

use crate::answer::{Answer, Step};
use crate::approvals::Approver;
use crate::audit::Audit;
use crate::facts::Facts;
use crate::host::{Host, Request};
use crate::waiting;
use berth_catalogue::{Catalogue, Tool};
use berth_catalogue::{subjects, validate};

impl Host {
    /// Runs one call. It always comes to an answer: what a tool, a rule or a bound made of it is a [`Failure`](crate::Failure).
    ///
    /// In this order, each step only where the one before it held: the name is resolved, the arguments are checked against the tool's
    /// schema, what the call acts on is decided on, a person is asked where the rules want that, and the tool runs, under its bounds.
    /// Whatever that comes to, a refusal as well as an output, is shaped and recorded before it leaves.
    ///
    /// Cancelling [`Request::cancel`] ends the call with [`Category::Cancelled`](crate::Category::Cancelled), and so does dropping the
    /// future, which then nobody hears of.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its time driver, where the tool is a plugin's.
    pub async fn call(&self, request: Request) -> Answer {
        let mut steps = Steps::begin();
        let (facts, rest) = self.begin(request);
        let mut call = Unanswered { audit: &self.audit, facts, recorded: false };
        let cancel = rest.cancel.clone();
        let outcome = self.journey(&mut call.facts, rest, &mut steps).await;
        let outcome = self.shaping.shaped(&self.plugins.catalogue().filters, &mut call.facts, outcome, &cancel).await;
        steps.done("shape");
        // It is written before anything is waited for.
        call.recorded = true;
        let recorded = self.audit.outcome(&call.facts, &outcome).await;
        let outcome = recorded.and(outcome);
        steps.done("record");
        let Facts { id, tool, decision, approval, cached, truncated, untrusted, notices, rest, filtered, .. } = &mut call.facts;
        let provider = tool.as_ref().map(|tool| tool.provider.name().to_owned());
        let tool = tool.as_ref().map(|tool| tool.definition.name.clone());
        let (decision, approval, filtered) = (decision.take(), approval.take(), filtered.take());
        let (notices, rest) = (std::mem::take(notices), rest.take());
        Answer {
            id: id.clone(),
            tool,
            provider,
            outcome,
            decision,
            approval,
            cached: *cached,
            truncated: *truncated,
            untrusted: *untrusted,
            notices,
            rest,
            filtered,
            steps: steps.taken,
        }
    }

    pub(crate) fn begin(&self, request: Request) -> (Facts, Rest) {
        let Request { tool, arguments, attachments, caller, session, phase, trust, audience, approver, events, cancel } = request;
        let facts = Facts {
            id: next_id(),
            asked: tool,
            session: session.unwrap_or_else(|| self.session.clone()),
            caller,
            phase,
            trust,
            audience,
            began: SystemTime::now(),
            since: Instant::now(),
            ran: Instant::now(),
            tool: None,
            arguments: Arc::new(arguments),
            attachments,
            subjects: Vec::new(),
            decision: None,
            reached: None,
            place: None,
            approval: None,
            waited: Duration::ZERO,
            attempts: 0,
            cached: false,
            answer: None,
            filtered: None,
            injections: Vec::new(),
            truncated: false,
            untrusted: false,
            notices: Vec::new(),
            rest: None,
            report: Arc::new(Report::default()),
        };
        (facts, Rest { approver, events, cancel })
    }

    async fn journey(&self, facts: &mut Facts, rest: Rest, steps: &mut Steps) -> Outcome {
        let catalogue = self.plugins.catalogue();
        let tool = Arc::clone(catalogue.resolve(&facts.asked)?);
        facts.tool = Some(Arc::clone(&tool));
        steps.done("resolve");
        self.switched_on(facts, &tool)?;

        validate::rename(&tool.definition, &mut facts.arguments)?;
        validate::arguments(&tool, &mut facts.arguments, self.settings.arguments)?;
        steps.done("validate");

        if let Some(blocked) = self.governor.blocked(subjects::commands(&tool, &facts.arguments)) {
            return Err(refused(facts, blocked));
        }
        match self.lookups.decide(&tool, &mut facts.arguments, &mut facts.subjects, &rest.cancel).await {
            Ok(()) => {}
            Err(failure) => {
                facts.decision = failure.denial.as_ref().map(Decision::of_grants);
                return Err(failure);
            }
        }
        self.shaping.check(facts)?;
        self.govern(facts, &catalogue, &rest, steps).await?;

        if facts.acts() {
            self.audit.intent(facts).await?;
            steps.done("intent");
        }
        if let Some(output) = self.results.find(facts).await {
            facts.cached = true;
            steps.done("cache");
            return Ok(output);
        }

        if let Some(place) = facts.place.take() {
            place.used();
        }
        facts.report = Arc::new(self.results.report(facts));
        let time = asked_time(&tool.definition.input_schema, &facts.arguments).map(|time| time.min(self.settings.max_call));
        let heard = self.retry.heard(facts, self.shaping.heard(facts, rest.events));
        let network = self.governor.reaches_network(facts);
        facts.ran = Instant::now();
        let outcome = loop {
            facts.attempts += 1;
            let outcome = tool.provider.call(facts.call(&tool, time, network, heard.attempt(), &rest.cancel)).await;
            if let ControlFlow::Break(outcome) = self.retry.wait(facts, outcome, &rest.cancel).await {
                break outcome;
            }
        };
        let time = steps.done("run");
        tool.tally.count(outcome.is_ok(), time);
        self.results.keep(facts, &outcome, time);
        waiting::completed(&self.governor.rules(), facts, &outcome);
        outcome.map(|mut output| {
            if let Some(notice) = left_out(facts) {
                output.content.push(Content::text(format!("[{notice}]\n")));
                facts.report.told().notices.push(notice);
            }
            output
        })
    }

    /// Refuses a tool that is switched off, before anything else is said of its call.
    fn switched_on(&self, facts: &mut Facts, tool: &Tool) -> Result<(), Failure> {
        let Some(off) = self.governor.rules().switches.off(tool.provider.name()).cloned() else { return Ok(()) };
        let failure = Failure::denied(off.denial(format!("call {}", facts.asked)));
        facts.decision = Some(off);
        Err(failure)
    }

    /// Decides, and has a person agree where that is what was decided.
    async fn govern(&self, facts: &mut Facts, catalogue: &Catalogue, rest: &Rest, steps: &mut Steps) -> Result<(), Failure> {
        let mut decision = self.decide(facts, catalogue, false)?;
        steps.done("govern");
        if decision.verdict == Verdict::Ask {
            facts.decision = Some(decision.clone());
            let approval = self.approved(facts, &decision, rest.approver.as_deref(), &rest.cancel).await?;
            facts.approval = Some(approval);
            // The rules may have changed while the person thought, and a yes skips the asking and nothing else.
            decision = self.decide(facts, catalogue, true)?;
            steps.done("approve");
        }
        if decision.verdict != Verdict::Allow {
            return Err(refused(facts, decision));
        }
        facts.decision = Some(decision);
        match self.governor.count(facts) {
            Ok(place) => facts.place = place,
            Err(refused) => {
                facts.decision = refused.decision.or_else(|| facts.decision.take());
                return Err(refused.failure);
            }
        }
        Ok(())
    }

    /// What the gates say. Where it can't be told whether the tool waits for others, what those before said is kept for the record.
    fn decide(&self, facts: &mut Facts, catalogue: &Catalogue, confirmed: bool) -> Result<Decision, Failure> {
        let (decision, reached) = self.governor.decide(facts, confirmed);
        facts.reached = reached;
        if decision.verdict == Verdict::Deny {
            return Ok(decision);
        }
        match waiting::waits(&self.governor.rules(), catalogue, facts) {
            Ok(waits) => Ok(waits.unwrap_or(decision)),
            Err(error) => {
                facts.decision = Some(decision);
                Err(waiting::unknown(&error))
            }
        }
    }
}

/// What the answer has to say of what it was made without, since it needs approval.
fn left_out(facts: &Facts) -> Option<String> {
    let (denial, count) = facts.report.told().left_out.asked.take()?;
    let Denial { action, rule, place, remedy, .. } = denial;
    let entries = if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") };
    Some(format!("Needs approval: {entries} left out, the first to {action}, by {rule} ({place}). {remedy}"))
}

/// The refusal that a decision comes to.
fn refused(facts: &mut Facts, decision: Decision) -> Failure {
    let failure = Failure::denied(decision.denial(format!("call {}", facts.asked)));
    facts.decision = Some(decision);
    failure
}

/// A call on its way. Where its future is dropped, since nobody waits any more, that is recorded.
struct Unanswered<'a> {
    audit: &'a Audit,
    facts: Facts,
    recorded: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.audit.dropped(&self.facts);
        }
    }
}

/// What the journey uses up of a request.
pub(crate) struct Rest {
    approver: Option<Arc<dyn Approver>>,
    events: Arc<dyn Events>,
    cancel: CancellationToken,
}

impl Facts {
    /// The call as its provider gets it.
    fn call(&self, tool: &Tool, time: Option<Duration>, network: bool, events: Arc<dyn Events>, cancel: &CancellationToken) -> Call {
        Call {
            id: self.id.clone(),
            tool: tool.definition.name.clone(),
            time,
            arguments: Arc::clone(&self.arguments),
            attachments: self.attachments.clone(),
            caller: self.caller.clone(),
            session: Arc::clone(self.session.name()),
            commands: subjects::commands(tool, &self.arguments).map(str::to_owned).collect(),
            network,
            origins: self.action().map(|action| berth_policy::origins(&action)).unwrap_or_default(),
            read_only: tool.annotations_with(&self.arguments).read_only,
            path_rules: self.reached.as_ref().map(|reached| Arc::clone(&reached.paths) as _),
            report: Arc::clone(&self.report),
            events,
            cancel: cancel.clone(),
        }
    }
}

/// The time that a call asks for: its `timeout`, in seconds, where the tool has such an argument.
fn asked_time(schema: &Value, arguments: &Value) -> Option<Duration> {
    schema.pointer("/properties/timeout")?;
    let seconds = arguments.get("timeout")?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// An id that no other call has: this process's, and a number.
fn next_id() -> CallId {
    static PROCESS: LazyLock<String> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, ids are still unique in this process.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        format!("{:016x}-", u64::from_ne_bytes(bytes))
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CallId((PROCESS.clone() + &NEXT.fetch_add(1, Ordering::Relaxed).to_string()).into())
}

/// Takes the time of each step.
struct Steps {
    taken: Vec<Step>,
    since: Instant,
}

impl Steps {
    fn begin() -> Self {
        Self { taken: Vec::with_capacity(8), since: Instant::now() }
    }

    /// Ends a step, and tells how long it took.
    fn done(&mut self, name: &'static str) -> Duration {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.since, now);
        self.taken.push(Step { name, time });
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_timeout_counts_only_where_the_tool_has_one() {
        let with = json!({ "type": "object", "properties": { "timeout": { "type": "number" } } });
        let without = json!({ "type": "object" });
        let arguments = json!({ "timeout": 2.5 });
        assert_eq!(asked_time(&with, &arguments), Some(Duration::from_millis(2500)));
        assert_eq!(asked_time(&without, &arguments), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": -1 })), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": 1e300 })), None);
    }

    #[test]
    fn ids_are_unique() {
        assert_ne!(next_id(), next_id());
    }
}
