//! Decides on a call with the gates. If the rules require it, a model reviews the call and a person
//! approves it.

use toolhold_catalogue::{CallContext, Catalogue};
use toolhold_contract::Failure;
use toolhold_policy::{Decision, Verdict};

use super::Journey;
use crate::approve::ApprovalStep;
use crate::call_inputs::Steps;
use crate::counting::QuotaReservation;
use crate::dependencies;
use crate::governor::Rules;
use crate::record::Governance;

impl Journey<'_> {
    /// Decides on the call. If the rules require it, a model reviews the call. If the decision
    /// requires it, a person approves it.
    pub(super) async fn govern(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        catalogue: &Catalogue,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let mut decision = self.decide(governance, context, catalogue, false)?;
        steps.finish_step("govern");
        let rules = self.host.governor.rules();
        decision = self.review(governance, context, &rules, decision).await?;
        if rules.review.is_some() {
            steps.finish_step("review");
        }
        if decision.verdict == Verdict::Ask {
            self.approve(governance, context, &decision).await?;
            // The rules may have changed meanwhile. An approval only replaces the question, so the
            // gates decide again.
            decision = self.decide(governance, context, catalogue, true)?;
            let now = self.host.governor.rules();
            if now.generation != rules.generation {
                decision = self.review(governance, context, &now, decision).await?;
            }
            steps.finish_step("approve");
        }
        if decision.verdict != Verdict::Allow {
            return Err(governance.refuse(context, decision));
        }
        governance.decision = Some(decision);
        governance.place = self.reserve(governance, context)?;
        Ok(())
    }

    /// Returns the decision of the gates. If the dependency state can't be read, the decision of
    /// the earlier gates is stored for the record.
    fn decide(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        catalogue: &Catalogue,
        confirmed: bool,
    ) -> Result<Decision, Failure> {
        let governor = &self.host.governor;
        let (mut decision, reached) = governor.decide(context, confirmed);
        governance.reached = reached;
        if decision.verdict == Verdict::Deny {
            if self.session.job_servers().is_some() {
                governor.add_remedy_by_jobs(context, &mut decision);
            }
            return Ok(decision);
        }
        match dependencies::check(&governor.rules(), catalogue, context, self.session) {
            Ok(blocked) => Ok(blocked.unwrap_or(decision)),
            Err(error) => {
                governance.decision = Some(decision);
                Err(dependencies::unknown(&error))
            }
        }
    }

    /// Has a model judge the call if the rules want that, and returns the new decision. A call that
    /// is refused anyway is sent to no model.
    async fn review(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        rules: &Rules,
        decision: Decision,
    ) -> Result<Decision, Failure> {
        let Some(review) = &rules.review else { return Ok(decision) };
        if review.exempts(context) || decision.verdict == Verdict::Deny {
            return Ok(decision);
        }
        // If the future is dropped, the record has this decision.
        governance.decision = Some(decision.clone());
        // This only checks whether there is a place. The call reserves its place when it is about
        // to run.
        drop(self.reserve(governance, context)?);
        let reviewed = self.host.reviews.judge(review, context, &self.inputs.cancel).await?;
        governance.review = Some(reviewed.record);
        Ok(reviewed.decision.unwrap_or(decision))
    }

    /// Has a call approved that needs approval by this decision.
    pub(super) async fn approve(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        decision: &Decision,
    ) -> Result<(), Failure> {
        // If the future is dropped, the record has this decision.
        governance.decision = Some(decision.clone());
        let review = governance.review.as_deref();
        let step = ApprovalStep::new(self.host, context, self.session, decision, review);
        let approver = self.inputs.approver.as_deref();
        let approval = step.approve(approver, &mut governance.waited, &self.inputs.cancel).await?;
        governance.approval = Some(approval);
        Ok(())
    }

    /// Reserves the call's place in the quota and rate of its session.
    fn reserve(
        &self,
        governance: &mut Governance,
        context: &CallContext,
    ) -> Result<Option<QuotaReservation>, Failure> {
        self.host.governor.count(context, self.session).map_err(|refused| {
            governance.decision = refused.decision.or_else(|| governance.decision.take());
            refused.failure
        })
    }
}
