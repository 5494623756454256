//! Decides on a call. If the rules require it, a model reviews the call and a person approves it.

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
    /// Decides on the call, with review and approval if the rules require them. Reserves the quota
    /// of an allowed call.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is denied or cancelled.
    pub(super) async fn govern(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        catalogue: &Catalogue,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let mut is_approved = false;
        let mut decision = self.decide(governance, context, catalogue, is_approved)?;
        steps.finish_step("govern");
        let rules = self.host.governor.rules();
        decision = self.review(governance, context, &rules, decision).await?;
        if rules.review.is_some() {
            steps.finish_step("review");
        }
        if decision.verdict == Verdict::Ask {
            self.approve(governance, context, &decision).await?;
            // The rules decide again, because they may have changed while the call waited.
            is_approved = true;
            decision = self.decide(governance, context, catalogue, is_approved)?;
            let current_rules = self.host.governor.rules();
            if current_rules.generation != rules.generation {
                decision = self.review(governance, context, &current_rules, decision).await?;
            }
            steps.finish_step("approve");
        }
        if decision.verdict != Verdict::Allow {
            return Err(governance.refuse(context, decision));
        }
        governance.decision = Some(decision);
        governance.reservation = self.reserve(governance, context)?;
        Ok(())
    }

    /// Returns the decision of the rules and the dependencies.
    ///
    /// # Errors
    ///
    /// Returns an error if the state of the dependencies can't be read. The decision of the rules
    /// is then stored for the audit log.
    fn decide(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        catalogue: &Catalogue,
        is_approved: bool,
    ) -> Result<Decision, Failure> {
        let governor = &self.host.governor;
        let (mut decision, path_rules) = governor.decide(context, is_approved);
        governance.path_rules = path_rules;
        if decision.verdict == Verdict::Deny {
            let has_jobs = self.session.job_servers().is_some();
            if has_jobs {
                governor.add_job_remedy(context, &mut decision);
            }
            return Ok(decision);
        }
        match dependencies::check(&governor.rules(), catalogue, context, self.session) {
            Ok(Some(denial_by_dependencies)) => Ok(denial_by_dependencies),
            Ok(None) => Ok(decision),
            Err(error) => {
                governance.decision = Some(decision);
                Err(dependencies::unreadable_failure(&error))
            }
        }
    }

    /// Lets a model review the call if the rules require a review, and returns the new decision. A
    /// denied call isn't sent to the model.
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
        // Store the decision, so that the audit log gets it if the future is dropped.
        governance.decision = Some(decision.clone());
        // Check the limits first, because a call over a limit isn't sent to the model. Drop the
        // reservation again, because the call is counted when it is about to run.
        drop(self.reserve(governance, context)?);
        let reviewed = self.host.reviews.judge(review, context, &self.inputs.cancel).await?;
        governance.review = Some(reviewed.record);
        Ok(reviewed.decision.unwrap_or(decision))
    }

    /// Asks for approval of the call, unless an earlier approval applies.
    pub(super) async fn approve(
        &self,
        governance: &mut Governance,
        context: &CallContext,
        decision: &Decision,
    ) -> Result<(), Failure> {
        // Store the decision, so that the audit log gets it if the future is dropped.
        governance.decision = Some(decision.clone());
        let review = governance.review.as_deref();
        let step = ApprovalStep::new(self.host, context, self.session, decision, review);
        let approver = self.inputs.approver.as_deref();
        let approval = step.approve(approver, &mut governance.waited, &self.inputs.cancel).await?;
        governance.approval = Some(approval);
        Ok(())
    }

    /// Counts the call in its session. Returns `None` if no limit applies to the call.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached. The denial then becomes the stored decision.
    fn reserve(
        &self,
        governance: &mut Governance,
        context: &CallContext,
    ) -> Result<Option<QuotaReservation>, Failure> {
        match self.host.governor.count(context, self.session) {
            Ok(reservation) => Ok(reservation),
            Err(refusal) => {
                if let Some(denial) = refusal.decision {
                    governance.decision = Some(denial);
                }
                Err(refusal.failure)
            }
        }
    }
}
