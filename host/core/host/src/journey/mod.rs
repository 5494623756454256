//! The steps of a call from its start to its answer.

pub(crate) mod chosen_commands;
mod govern;
mod host_questions;
pub(crate) mod prepare;
mod run;

use std::sync::Arc;

use toolhold_answers::Answer;
use toolhold_answers::CacheResult;
use toolhold_answers::ShapeReport;
use toolhold_catalogue::CallContext;
use toolhold_contract::{Category, Failure, Outcome};

use crate::call_inputs::{CallInputs, Steps};
use crate::governor::ReachRules;
use crate::host::{Host, ObservedCall};
use crate::record::{DropRecorder, Governance, RunReport, call_record};
use crate::request::Request;
use crate::session::Session;
use run::CallRun;

#[derive(Clone, Copy)]
struct Journey<'a> {
    host: &'a Host,
    session: &'a Session,
    inputs: &'a CallInputs,
}

impl Host {
    /// Runs one call. Always returns an answer: if a tool, a rule or a limit ends the call, the
    /// answer is a [`Failure`](crate::Failure).
    ///
    /// Each step runs only if the previous step succeeded. The host finds the tool and checks the
    /// arguments against its schema. The rules decide on the subjects of the call. If the rules
    /// require it, a model reviews the call and a person approves it. Then the tool runs within its
    /// limits. Every answer, including a denial, is shaped and recorded before it leaves the host.
    ///
    /// Cancelling [`Request::cancel`] ends the call with
    /// [`Category::Cancelled`](crate::Category::Cancelled). Dropping the future also ends the call,
    /// without an answer.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with its time driver, if a plugin offers the tool.
    pub async fn call(&self, request: Request) -> Answer {
        let mut steps = Steps::begin();
        let (context, session, inputs) = request.begin(&self.session);
        let mut call = DropRecorder {
            audit: &self.audit,
            observer: self.observer.as_deref(),
            context,
            governance: Governance::default(),
            run: RunReport::default(),
            recorded: false,
        };
        let cancel = inputs.cancel.clone();
        let outcome = match self.refusal.get() {
            None => self.journey(&mut call, &session, inputs, &mut steps).await,
            Some(reason) => Err(Failure::new(Category::PolicyBlocked, reason)),
        };
        let catalogue = self.plugins.catalogue();
        let spool = call.run.spool.take();
        let (outcome, shape) = self
            .shaping
            .shape(&catalogue.filters, &call.context, &call.run.report, outcome, spool, &cancel)
            .await;
        let has_answer = call.run.attempts > 0 || call.run.cached;
        if shape.has_untrusted && has_answer {
            remember_untrusted(&session);
        }
        steps.finish_step("shape");

        // `outcome` writes the entry before it waits for anything, so a drop of the future can't
        // lose the entry.
        call.recorded = true;
        let recorded = self.audit.outcome(&call.record(&outcome, &shape)).await;
        let outcome = recorded.and(outcome);
        steps.finish_step("record");
        let ShapeReport { filtered, truncated, untrusted, notices, rest, .. } = shape;
        let answer = Answer {
            id: call.context.id.clone(),
            tool: call.context.tool.as_ref().map(|tool| tool.definition.name.clone()),
            provider: call.context.tool.as_ref().map(|tool| tool.provider.name().to_owned()),
            outcome,
            decision: call.governance.decision.take(),
            approval: call.governance.approval.take(),
            cached: call.run.cached,
            truncated,
            untrusted,
            notices,
            rest,
            filtered,
            snapshot: call.run.snapshot,
            report: Arc::clone(&call.run.report),
            steps: steps.finished,
        };
        if let Some(observer) = &self.observer {
            observer.called(&ObservedCall {
                arguments: &call.context.arguments,
                meta: call.context.meta.as_deref(),
                session: &call.context.session,
                user: self.user(),
                answer: &answer,
                started_at: call.context.started_at,
                took: call.context.started.elapsed(),
                waited: call.governance.waited,
                attempts: call.run.attempts,
            });
        }
        answer
    }

    /// Runs the steps of a call until its outcome.
    ///
    /// A call that relies on undo may run twice: if one of its changes can't be saved, a person can
    /// approve the call without undo.
    async fn journey(
        &self,
        call: &mut DropRecorder<'_>,
        session: &Session,
        inputs: CallInputs,
        steps: &mut Steps,
    ) -> Outcome {
        let journey = Journey { host: self, session, inputs: &inputs };
        let name = &call.context.requested_tool;
        let catalogue = self.plugins.catalogue_for(name, &inputs.cancel).await;
        let prepared = journey.prepare(call, &catalogue, steps).await?;
        let DropRecorder { context, governance, run, .. } = call;
        // From here on, the context doesn't change.
        let context = &*context;
        journey.govern(governance, context, &catalogue, steps).await?;
        journey.record_intent(governance, context, steps).await?;
        let key = match journey.find_answer(governance, context, run).await {
            CacheResult::Hit(output) => {
                run.cached = true;
                steps.finish_step("cache");
                return Ok(output);
            }
            CacheResult::Miss(key) => Some(key),
            CacheResult::Unused => None,
        };
        let mut running = CallRun::start(journey, prepared, context, governance, run, steps);
        loop {
            let outcome = running.attempt().await;
            // `None` means that a person has approved that the call runs again without undo.
            if let Some(changes) = running.settle(&outcome).await? {
                return running.finish(outcome, &changes, key);
            }
        }
    }
}

impl Journey<'_> {
    /// Records a call that acts, before it runs.
    async fn record_intent(
        &self,
        governance: &Governance,
        context: &CallContext,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        if !context.acts() {
            return Ok(());
        }
        let record = call_record(
            context,
            governance.decision.as_ref(),
            governance.approval.as_ref(),
            governance.review.as_deref(),
        );
        self.host.audit.intent(&record).await?;
        steps.finish_step("intent");
        Ok(())
    }

    /// Finds a stored answer, and sets the report of the call.
    async fn find_answer(
        &self,
        governance: &Governance,
        context: &CallContext,
        run: &mut RunReport,
    ) -> CacheResult {
        let search = self.host.results.find(context, self.session.answers(), || {
            governance.path_rules.as_ref().map(ReachRules::identity)
        });
        let result = search.await;
        run.report = Arc::new(result.report());
        result
    }
}

fn remember_untrusted(session: &Session) {
    if let Err(error) = session.mark_untrusted() {
        // A later call that can't read the state assumes that the session has untrusted text.
        tracing::warn!("writing the session's state failed: {error}");
    }
}
