//! Gets approval for a call if the gates decide *ask*. An earlier approval of the session may
//! apply. Otherwise the front end asks, and only its answer is an approval, never text of a model
//! or a call.
//!
//! An approval applies to a [`Fingerprint`] of the call and to the session. The person is asked
//! again if the arguments, the version of the plugin, the session, the state of a file whose change
//! was shown, or the content of a started script differ. An approval replaces only the question:
//! the gates decide again after it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use toolhold_answers::{Approval, Scope};
use toolhold_catalogue::{CallContext, subjects::Lookups};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, Annotations, CancellationToken, Category, Failure, HostError};
use toolhold_policy::{Action, Decision, Gate, ResolvedSubject, Verdict};

use crate::approvals::{
    Always, ApprovalDesk, Approver, Proposal, Question, Reply, WideFingerprints, Wider, always,
    fingerprint, preview, started,
};
use crate::audit::Audit;
use crate::fingerprint::Fingerprint;
use crate::governor::Governor;
use crate::host::{Host, exchange_rules};
use crate::record::call_record;
use crate::session::Session;

/// Most bytes of the reason for a denial.
const MAX_REASON: usize = 2000;

/// The approval of one call.
pub(crate) struct ApprovalStep<'a> {
    asking: &'a ApprovalDesk,
    audit: &'a Audit,
    governor: &'a Governor,
    lookups: &'a Lookups,
    context: &'a CallContext,
    session: &'a Session,
    /// The decision of the gates, which requires approval.
    decision: &'a Decision,
    /// The result of the review by a model.
    review: Option<&'a str>,
}

impl<'a> ApprovalStep<'a> {
    pub(crate) fn new(
        host: &'a Host,
        context: &'a CallContext,
        session: &'a Session,
        decision: &'a Decision,
        review: Option<&'a str>,
    ) -> Self {
        let Host { asking, audit, governor, lookups, .. } = host;
        Self { asking, audit, governor, lookups, context, session, decision, review }
    }
}

impl ApprovalStep<'_> {
    /// Has the call approved, by an earlier answer or by asking. `waited` is set to the time spent
    /// waiting for a person.
    ///
    /// # Errors
    ///
    /// The call was denied, nobody could be asked, the caller went away meanwhile, or the answer
    /// can't be recorded.
    pub(crate) async fn approve(
        &self,
        approver: Option<&dyn Approver>,
        waited: &mut Duration,
        cancel: &CancellationToken,
    ) -> Result<Approval, Failure> {
        let context = self.context;
        let change = self.check_preview(preview::preview(context).await)?;
        let before = match &change {
            Some(change) => Some(change.before),
            None => started::digest(context).await,
        };
        let settled = change.as_ref().and_then(|change| change.settled);
        let fingerprint = self.fingerprint(before.as_ref());
        let of_hosts = self.fingerprint_of_hosts();
        let wide = self.wide_fingerprints();
        if let Some(by) = self.earlier_approval([Some(fingerprint), of_hosts], wide)? {
            return Ok(Approval { by, scope: Scope::Session });
        }

        let Some(approver) = approver else {
            return Err(self.not_asked("there is no terminal to ask at"));
        };
        let slot = self.asking.places.take(&context.session);
        let _slot = slot.map_err(|error| self.not_asked(&error.to_string()))?;
        let question = self.make_question(fingerprint, change, wide.is_some()).await;
        let always = question.always.clone();
        let wider = question.wider.clone();
        let asked_at = Instant::now();
        let reply = cancel.run_until_cancelled(approver.ask(question)).await;
        if approver.waits() {
            *waited = asked_at.elapsed();
        }
        let Some(reply) = reply else {
            return Err(Failure::new(
                Category::Cancelled,
                "the call was cancelled while it waited for approval",
            ));
        };

        let record = call_record(context, Some(self.decision), None, self.review);
        let (scope, by) = match reply {
            Reply::Yes { scope, by } => (scope, by),
            Reply::No { by, reason } => {
                self.audit.approval(&record, &by, "no", None).await?;
                return Err(self.denied_failure(&by, &reason));
            }
            Reply::Unasked(why) => return Err(self.not_asked(&why)),
        };
        self.audit.approval(&record, &by, "yes", Some(scope.as_str())).await?;
        self.check_unchanged(before, cancel).await?;
        // The same call changes nothing once it was made, so its repetition is approved too.
        let repeated = settled.map(|file| self.fingerprint(Some(&file)));
        match scope {
            Scope::Once => {}
            Scope::Session => {
                self.approve_for_session([Some(fingerprint), repeated, of_hosts], &by)?;
            }
            Scope::SessionTool => {
                let tool = wide.map(|wide| wide.tool);
                self.approve_for_session([Some(fingerprint), repeated, tool], &by)?;
            }
            Scope::SessionSource => {
                let source = wide.map(|wide| wide.source);
                self.approve_for_session([Some(fingerprint), repeated, source], &by)?;
            }
            Scope::Always => self.write_rule(always.proposal()).await,
            Scope::AlwaysTool => self.write_rule(wider.as_ref().and_then(Wider::tool)).await,
            Scope::AlwaysSource => self.write_rule(wider.as_ref().and_then(Wider::all)).await,
        }
        Ok(Approval { by, scope })
    }

    /// Computes the fingerprints of the approvals that cover more than identical calls. Returns
    /// `None` if only the exact call can be approved: a built-in tool, a tool that says that it may
    /// destroy something, or a call that needs approval for another reason than a missing
    /// permission.
    fn wide_fingerprints(&self) -> Option<WideFingerprints> {
        let action = self.context.action()?;
        let is_permission = matches!(self.decision.gate, Gate::Permissions | Gate::Autonomy);
        if !is_permission || action.built_in || action.says_destructive {
            return None;
        }
        if !self.governor.rules().policy.asks_for_permission_only(&action) {
            return None;
        }
        WideFingerprints::for_call(self.context, self.decision)
    }

    /// Stores an approval for the session.
    ///
    /// # Errors
    ///
    /// The state of the session can't be read or written.
    fn approve_for_session(
        &self,
        fingerprints: [Option<Fingerprint>; 3],
        by: &str,
    ) -> Result<(), Failure> {
        let seconds = self.asking.config().values.approvals.expire_secs.get();
        let lasting = Duration::from_secs(seconds);
        let stored = self.session.change(|state| {
            for fingerprint in fingerprints.into_iter().flatten() {
                state.approve(fingerprint, by, SystemTime::now(), lasting);
            }
        });
        stored.map_err(|error| unreadable(&error))
    }

    /// Returns the person who has approved the call for the session. Blocks, because it reads the
    /// file that the call changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the call fails before anyone is asked.
    pub(crate) fn find_earlier(&self) -> Result<Option<String>, Failure> {
        let before = match self.check_preview(preview::preview_blocking(self.context))? {
            Some(change) => Some(change.before),
            None => started::digest_blocking(self.context),
        };
        let fingerprint = self.fingerprint(before.as_ref());
        let wide = self.wide_fingerprints();
        self.earlier_approval([Some(fingerprint), self.fingerprint_of_hosts()], wide)
    }

    /// Computes the fingerprint of the call that an approval applies to. After a model's denial, an
    /// approval from before doesn't apply.
    fn fingerprint(&self, file: Option<&[u8; 32]>) -> Fingerprint {
        let call = Fingerprint::for_call(self.context, file);
        if self.decision.gate == Gate::Review { call.after_review() } else { call }
    }

    /// Returns the decision for display to the person. The agent never gets a model's reason.
    fn shown_decision(&self) -> Decision {
        let mut decision = self.decision.clone();
        if decision.gate == Gate::Review
            && let Some(reason) = self.review.and_then(|review| review.strip_prefix("deny: "))
        {
            decision.rule = format!("{}: {reason}", decision.rule).into();
        }
        decision
    }

    /// Returns the change that the call would make, if the change can be shown.
    ///
    /// # Errors
    ///
    /// Returns the failure that the tool would return, so that the person isn't asked for nothing.
    /// The failure contains text of the file, so only a caller that may read the file gets it.
    fn check_preview(
        &self,
        preview: Result<Option<preview::PreviewedChange>, Failure>,
    ) -> Result<Option<preview::PreviewedChange>, Failure> {
        match preview {
            Ok(change) => Ok(change),
            Err(failure) if self.may_read() => Err(failure),
            Err(_) => Ok(None),
        }
    }

    /// Checks whether the caller could read the subjects of the call without approval.
    fn may_read(&self) -> bool {
        let Some(action) = self.context.action() else { return false };
        let read_only = Annotations { read_only: true, ..Annotations::default() };
        let subjects: Vec<_> = self
            .context
            .subjects
            .iter()
            .map(|subject| ResolvedSubject { access: Access::Read, ..subject.clone() })
            .collect();
        let reading = Action {
            tool: "read",
            aliases: &[],
            annotations: read_only,
            subjects: &subjects,
            ..action
        };
        self.governor.rules().policy.decide(&reading, false).verdict == Verdict::Allow
    }

    /// Checks that the subjects of the call haven't changed since the question. `before` is the
    /// state that was shown.
    ///
    /// While a person decides, a link can change its target, or a file its content. The call would
    /// then change more than the question showed, so the approval isn't valid.
    async fn check_unchanged(
        &self,
        before: Option<[u8; 32]>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let Some(tool) = &self.context.tool else { return Ok(()) };
        let mut arguments = Arc::clone(&self.context.arguments);
        let mut subjects = Vec::new();
        self.lookups.decide(tool, &mut arguments, &mut subjects, cancel).await?;
        self.context.carry_into(&mut subjects);
        let now = match self.check_preview(preview::preview(self.context).await)? {
            Some(change) => Some(change.before),
            None => started::digest(self.context).await,
        };
        if subjects != self.context.subjects || now != before {
            return Err(self.not_asked("the files or paths that the call uses have changed while it waited; repeat the call"));
        }
        Ok(())
    }

    /// Writes the rule of a permanent approval and applies it. If this fails, the approval is still
    /// valid for this call.
    async fn write_rule(&self, proposal: Option<&Proposal>) {
        let Some(proposal) = proposal.cloned() else { return };
        let folders = self.asking.folders.clone();
        let config = self.asking.config();
        let written = tokio::task::spawn_blocking(move || {
            let changed = config
                .with_permission(&proposal.rule)
                .map_err(|error| HostError::Config(error.to_string()))?;
            proposal.write(&folders).map(|_| changed)
        });
        let applied = match written.await {
            Ok(Ok(changed)) => exchange_rules(self.governor, self.asking, &changed),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(HostError::Engine(error.to_string())),
        };
        if let Err(error) = applied {
            tracing::warn!("the call runs, but the rule of `always` was not written: {error}");
        }
    }

    async fn make_question(
        &self,
        fingerprint: Fingerprint,
        change: Option<preview::PreviewedChange>,
        has_wider: bool,
    ) -> Question {
        let context = self.context;
        let config = self.asking.config();
        let tool = context.tool.as_deref();
        let tool_name = tool.map_or(&*context.requested_tool, |tool| &tool.definition.name);
        let provider = tool.map_or("", |tool| tool.provider.name());
        let secrets =
            context.action().map(|action| config.secrets_for(&action)).unwrap_or_default();
        let always = match self.decision.gate {
            Gate::Review => {
                Always::Unavailable("a rule can't override the denial of a model".to_owned())
            }
            _ => always::propose(context, &config).await,
        };
        let wider =
            if has_wider { Some(always::propose_wider(context, &config).await) } else { None };
        Question {
            id: context.id.clone(),
            session: context.session.to_string(),
            caller: context.caller.clone(),
            fingerprint,
            tool: tool_name.to_owned(),
            provider: provider.to_owned(),
            subjects: context.shown_subjects(),
            foreign: tool.is_some_and(|tool| tool.definition.foreign),
            secrets,
            arguments: (*context.arguments).clone(),
            attachments: context.attachments.iter().map(fingerprint::summarize).collect(),
            preview: change.map(|change| change.preview),
            decision: self.shown_decision(),
            always,
            wider,
        }
    }

    /// Returns the person who has approved calls with these fingerprints for the session.
    ///
    /// # Errors
    ///
    /// Returns an error if the state of the session can't be read.
    fn earlier_approval(
        &self,
        fingerprints: [Option<Fingerprint>; 2],
        wide: Option<WideFingerprints>,
    ) -> Result<Option<String>, Failure> {
        let started_at = self.context.started_at;
        let wide = wide.into_iter().flat_map(|wide| [wide.tool, wide.source]);
        let candidates: Vec<Fingerprint> = fingerprints.into_iter().flatten().chain(wide).collect();
        let approved_by = self.session.look(|state| {
            candidates
                .iter()
                .find_map(|fingerprint| state.approved_by(fingerprint, started_at))
                .map(str::to_owned)
        });
        approved_by.map_err(|error| unreadable(&error))
    }

    /// Computes the fingerprint for an approval of hosts for the session. Returns `None` unless
    /// unlisted hosts are the only reason why the call needs approval.
    fn fingerprint_of_hosts(&self) -> Option<Fingerprint> {
        if self.decision.gate != Gate::Hosts {
            return None;
        }
        Fingerprint::for_hosts(self.context)
    }

    /// Makes the failure of a call that nobody was asked about.
    fn not_asked(&self, why: &str) -> Failure {
        let tool = &self.context.requested_tool;
        let denial = self.decision.denial(format!("call {tool}"));
        let message = format!("this call of `{tool}` needs approval: {why}");
        Failure { denial: Some(denial), ..Failure::new(Category::ConfirmationRequired, message) }
    }

    /// Makes the failure of a call that a person denied.
    fn denied_failure(&self, by: &str, reason: &str) -> Failure {
        let tool = &self.context.requested_tool;
        let denial = self.decision.denial(format!("call {tool}"));
        let mut message = format!("denied by the user ({by}): this call of `{tool}` did not run");
        let reason = neutral_line(cut(reason.trim(), MAX_REASON));
        let suggestion = if reason.is_empty() {
            "Don't make the same call again; ask the user what to do instead."
        } else {
            "Don't make the same call again; do what the user said."
        };
        if !reason.is_empty() {
            message += &format!(". The user said: {reason}");
        }
        let failure =
            Failure { denial: Some(denial), ..Failure::new(Category::PolicyBlocked, message) };
        failure.with_code("denied_by_user").with_suggestion(suggestion)
    }
}

/// Creates the failure of a call if the approvals of its session can't be read.
fn unreadable(error: &HostError) -> Failure {
    Failure::new(Category::PermanentFailure, format!("reading earlier approvals failed: {error}"))
        .with_code("host")
}
