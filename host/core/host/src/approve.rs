//! Gets approval for a call if the rules require it. An earlier approval of the session may apply.
//! Otherwise the front end asks a person. Text of a model or a call is never an approval.
//!
//! An approval applies to a [`Fingerprint`] of the call and to the session. The person is asked
//! again if the arguments, the plugin's digest, the previewed file or a started script have
//! changed. The rules decide again after an approval.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use toolhold_answers::{Approval, Scope};
use toolhold_catalogue::{CallContext, subjects::Lookups};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{
    Access, Annotations, CancellationToken, Category, Failure, HostError, WantedHost,
};
use toolhold_policy::egress::ProgramTarget;
use toolhold_policy::{Action, Decision, Gate, Verdict};

use crate::approvals::{
    Always, ApprovalDesk, Approver, Proposal, Question, QuestionSlot, Reply, WideFingerprints,
    WiderRules, always, fingerprint, preview, started,
};
use crate::audit::Audit;
use crate::fingerprint::Fingerprint;
use crate::governor::Governor;
use crate::host::{Host, exchange_rules};
use crate::record::call_record;
use crate::session::Session;

/// Maximum length of a person's reason in bytes. A longer reason is cut.
const MAX_REASON: usize = 2000;

pub(crate) struct ApprovalStep<'a> {
    asking: &'a ApprovalDesk,
    audit: &'a Audit,
    governor: &'a Governor,
    lookups: &'a Lookups,
    context: &'a CallContext,
    session: &'a Session,
    decision: &'a Decision,
    review: Option<&'a str>,
    /// The host that a program of the running call connects to. `None` for the approval of the call
    /// itself.
    host: Option<&'a WantedHost>,
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
        Self { asking, audit, governor, lookups, context, session, decision, review, host: None }
    }

    /// Returns an earlier approval of a host for programs, or asks for one. `waited` is set to the
    /// time spent waiting for a person.
    ///
    /// # Errors
    ///
    /// Returns an error if the host is denied, if nobody can be asked, or if the answer can't be
    /// recorded.
    pub(crate) async fn approve_host(
        mut self,
        target: &ProgramTarget,
        wanted: &'a WantedHost,
        approver: Option<&dyn Approver>,
        waited: &mut Duration,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        self.host = Some(wanted);
        let fingerprint = Fingerprint::for_program_host(self.context, &wanted.entry);
        if self.earlier_approval([Some(fingerprint), None], None)?.is_some() {
            return Ok(());
        }
        let (approver, _slot) = self.take_slot(approver)?;
        let config = self.asking.config();
        let always = always::propose_host(target, &config).await;
        let question = Question {
            host: Some(wanted.clone()),
            secrets: config.secrets_of_host(target),
            always: always.clone(),
            ..self.question_about_call(fingerprint)
        };
        let (scope, by) = self.ask(approver, question, waited, cancel).await?;
        match scope {
            Scope::Once => {}
            Scope::Always | Scope::AlwaysTool | Scope::AlwaysSource => {
                self.write_rule(always.proposal()).await;
            }
            Scope::Session | Scope::SessionTool | Scope::SessionSource => {
                self.approve_for_session([Some(fingerprint), None, None], &by)?;
            }
        }
        Ok(())
    }
}

impl ApprovalStep<'_> {
    /// Returns an earlier approval, or asks for one. `waited` is set to the time spent waiting for
    /// a person.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is denied or cancelled, if nobody can be asked, or if the
    /// answer can't be recorded.
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
        let final_digest = change.as_ref().and_then(|change| change.final_digest);
        let fingerprint = self.fingerprint(before.as_ref());
        let of_hosts = self.fingerprint_of_hosts();
        let wide = self.wide_fingerprints();
        if let Some(by) = self.earlier_approval([Some(fingerprint), of_hosts], wide)? {
            return Ok(Approval { by, scope: Scope::Session });
        }

        let (approver, _slot) = self.take_slot(approver)?;
        let question = self.make_question(fingerprint, change, wide.is_some()).await;
        let always = question.always.clone();
        let wider = question.wider.clone();
        let (scope, by) = self.ask(approver, question, waited, cancel).await?;
        self.check_unchanged(before, cancel).await?;
        // A repetition of the call changes nothing more, so it is approved, too.
        let repeated = final_digest.map(|file| self.fingerprint(Some(&file)));
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
            Scope::AlwaysTool => self.write_rule(wider.as_ref().and_then(WiderRules::tool)).await,
            Scope::AlwaysSource => self.write_rule(wider.as_ref().and_then(WiderRules::all)).await,
        }
        Ok(Approval { by, scope })
    }

    /// Returns the approver, and reserves a place for a question.
    ///
    /// # Errors
    ///
    /// Returns an error if nobody can be asked.
    fn take_slot<'s>(
        &'s self,
        approver: Option<&'s dyn Approver>,
    ) -> Result<(&'s dyn Approver, QuestionSlot<'s>), Failure> {
        let approver = approver.ok_or_else(|| self.not_asked("there is no terminal to ask at"))?;
        let slot = self.asking.question_slots.take(&self.context.session);
        let slot = slot.map_err(|error| self.not_asked(&error.to_string()))?;
        Ok((approver, slot))
    }

    /// Asks the person, and records the answer. Returns the scope of the approval and the person.
    ///
    /// # Errors
    ///
    /// Returns an error if the person denies, if nobody was asked, or if the answer can't be
    /// recorded.
    async fn ask(
        &self,
        approver: &dyn Approver,
        question: Question,
        waited: &mut Duration,
        cancel: &CancellationToken,
    ) -> Result<(Scope, String), Failure> {
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

        let record = call_record(self.context, Some(self.decision), None, self.review);
        match reply {
            Reply::Yes { scope, by } => {
                self.audit.approval(&record, &by, "yes", Some(scope.as_str())).await?;
                Ok((scope, by))
            }
            Reply::No { by, reason } => {
                self.audit.approval(&record, &by, "no", None).await?;
                Err(self.denied_failure(&by, &reason))
            }
            Reply::Unasked(why) => Err(self.not_asked(&why)),
        }
    }

    /// Computes the fingerprints for approvals of more calls. Returns `None` if only exactly this
    /// call can be approved, because the tool is built-in or declares itself destructive, or
    /// because a missing permission isn't the reason for the question.
    fn wide_fingerprints(&self) -> Option<WideFingerprints> {
        let action = self.context.action()?;
        if action.built_in || action.says_destructive {
            return None;
        }
        let lacks_permission = matches!(self.decision.gate, Gate::Permissions | Gate::Autonomy);
        if !lacks_permission {
            return None;
        }
        // If another gate also requires approval, a person has to see each call.
        if !self.governor.rules().policy.asks_for_permission_only(&action) {
            return None;
        }
        WideFingerprints::for_call(self.context, self.decision)
    }

    /// Stores the approval of calls with these fingerprints in the session, for a limited time.
    ///
    /// # Errors
    ///
    /// Returns an error if the session's state can't be read or written.
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
        stored.map_err(|error| approvals_failure(&error))
    }

    /// Returns the person who has approved the call for the session, or `None` without an approval.
    /// Blocks, because the function reads the file that the call changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the call would fail anyway.
    pub(crate) fn find_earlier_approval_blocking(&self) -> Result<Option<String>, Failure> {
        let before = match self.check_preview(preview::preview_blocking(self.context))? {
            Some(change) => Some(change.before),
            None => started::digest_blocking(self.context),
        };
        let fingerprint = self.fingerprint(before.as_ref());
        let wide = self.wide_fingerprints();
        self.earlier_approval([Some(fingerprint), self.fingerprint_of_hosts()], wide)
    }

    /// Computes the fingerprint of the call. After a model's denial, the fingerprint differs, so
    /// that no earlier approval applies.
    fn fingerprint(&self, file: Option<&[u8; 32]>) -> Fingerprint {
        let call = Fingerprint::for_call(self.context, file);
        if self.decision.gate == Gate::Review { call.after_review() } else { call }
    }

    /// Returns the decision as the person sees it, with the reason of a model that denied the call.
    /// The agent never gets this reason.
    fn shown_decision(&self) -> Decision {
        let mut decision = self.decision.clone();
        if decision.gate == Gate::Review
            && let Some(reason) = self.review.and_then(|review| review.strip_prefix("deny: "))
        {
            decision.rule = format!("{}: {reason}", decision.rule).into();
        }
        decision
    }

    /// Returns the preview of the call's change, or `None` if the person sees no preview.
    ///
    /// # Errors
    ///
    /// Returns the failure of the tool, because the person isn't asked about a call that fails. The
    /// failure contains text of the file, so only callers with read access get it.
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

    /// Checks whether the caller may read the subjects of the call without approval.
    fn may_read(&self) -> bool {
        let Some(action) = self.context.action() else { return false };
        // The rules decide on a call of the tool `read` with the same subjects.
        let mut subjects = self.context.subjects.clone();
        for subject in &mut subjects {
            subject.access = Access::Read;
        }
        let reading = Action {
            tool: "read",
            aliases: &[],
            annotations: Annotations { read_only: true, ..Annotations::default() },
            subjects: &subjects,
            ..action
        };
        let is_approved = false;
        let decision = self.governor.rules().policy.decide(&reading, is_approved);
        decision.verdict == Verdict::Allow
    }

    /// Checks that the files and paths of the call haven't changed since the question. `before` is
    /// the digest of the previewed file, or of the files that the call starts.
    ///
    /// While a person decides, a link can get another target, or a file can change. The person
    /// hasn't approved a call with these changes.
    ///
    /// # Errors
    ///
    /// Returns an error if a file or path has changed, or can't be checked.
    async fn check_unchanged(
        &self,
        before: Option<[u8; 32]>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let Some(tool) = &self.context.tool else { return Ok(()) };
        // Only the subjects are compared. The call keeps its own arguments.
        let mut arguments = Arc::clone(&self.context.arguments);
        let mut subjects = Vec::new();
        self.lookups.resolve(tool, &mut arguments, &mut subjects, cancel).await?;
        self.context.carry_into(&mut subjects);
        let current = match self.check_preview(preview::preview(self.context).await)? {
            Some(change) => Some(change.before),
            None => started::digest(self.context).await,
        };
        if subjects != self.context.subjects || current != before {
            return Err(self.not_asked(
                "the files or paths of the call have changed while the call waited; repeat the call",
            ));
        }
        Ok(())
    }

    /// Writes the rule of a permanent approval and applies it. After a failure, the approval is
    /// still valid for this call.
    async fn write_rule(&self, proposal: Option<&Proposal>) {
        let Some(proposal) = proposal.cloned() else { return };
        let folders = self.asking.folders.clone();
        let config = self.asking.config();
        let writing = tokio::task::spawn_blocking(move || {
            let changed_config = config
                .with_rule(&proposal.rule)
                .map_err(|error| HostError::Config(error.to_string()))?;
            proposal.write(&folders)?;
            Ok::<_, HostError>(changed_config)
        });
        let applied = match writing.await {
            Ok(Ok(changed_config)) => exchange_rules(self.governor, self.asking, &changed_config),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(HostError::Engine(error.to_string())),
        };
        if let Err(error) = applied {
            tracing::warn!("the call runs, but the rule of `always` was not written: {error}");
        }
    }

    /// Creates the question for the person. `offers_more_calls` says whether the person can also
    /// approve other calls of the tool or its source.
    async fn make_question(
        &self,
        fingerprint: Fingerprint,
        change: Option<preview::PreviewedChange>,
        offers_more_calls: bool,
    ) -> Question {
        let context = self.context;
        let config = self.asking.config();
        let secrets =
            context.action().map(|action| config.secrets_for(&action)).unwrap_or_default();
        let always = if self.decision.gate == Gate::Review {
            Always::Unavailable("a rule can't override the denial of a model".to_owned())
        } else {
            always::propose(context, &config).await
        };
        let wider = if offers_more_calls {
            Some(always::propose_wider(context, &config).await)
        } else {
            None
        };
        Question {
            secrets,
            attachments: context.attachments.iter().map(fingerprint::summarize).collect(),
            preview: change.map(|change| change.preview),
            always,
            wider,
            ..self.question_about_call(fingerprint)
        }
    }

    /// Creates a question with the parts that every question about the call has.
    fn question_about_call(&self, fingerprint: Fingerprint) -> Question {
        let context = self.context;
        let tool = context.tool.as_deref();
        let tool_name = tool.map_or(&*context.requested_tool, |tool| &tool.definition.name);
        let provider = tool.map_or("", |tool| tool.provider.name());
        Question {
            id: context.id.clone(),
            session: context.session.to_string(),
            caller: context.caller.clone(),
            fingerprint,
            tool: tool_name.to_owned(),
            provider: provider.to_owned(),
            subjects: context.shown_subjects(),
            foreign: tool.is_some_and(|tool| tool.definition.foreign),
            host: None,
            secrets: Vec::new(),
            arguments: (*context.arguments).clone(),
            attachments: Vec::new(),
            preview: None,
            decision: self.shown_decision(),
            always: Always::Unavailable(String::new()),
            wider: None,
        }
    }

    /// Returns the person who has approved calls with one of these fingerprints for the session, or
    /// `None` without an approval.
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
        let mut candidates: Vec<Fingerprint> = fingerprints.into_iter().flatten().collect();
        if let Some(wide) = wide {
            candidates.extend([wide.tool, wide.source]);
        }
        let approved_by = self.session.read(|state| {
            for fingerprint in &candidates {
                if let Some(by) = state.approved_by(fingerprint, started_at) {
                    return Some(by.to_owned());
                }
            }
            None
        });
        approved_by.map_err(|error| approvals_failure(&error))
    }

    /// Computes the fingerprint for an approval of hosts. Returns `None` if the call needs approval
    /// for another reason.
    fn fingerprint_of_hosts(&self) -> Option<Fingerprint> {
        if self.decision.gate != Gate::Hosts {
            return None;
        }
        Fingerprint::for_hosts(self.context)
    }

    fn not_asked(&self, why: &str) -> Failure {
        let denial = self.decision.denial(self.action());
        let message = match self.host {
            Some(WantedHost { entry, program }) => {
                format!("`{program}` needs approval to reach {entry}: {why}")
            }
            None => {
                format!("this call of `{}` needs approval: {why}", self.context.requested_tool)
            }
        };
        Failure { denial: Some(denial), ..Failure::new(Category::ConfirmationRequired, message) }
    }

    /// Describes the action that needs approval.
    fn action(&self) -> String {
        match self.host {
            Some(WantedHost { entry, program }) => format!("connect `{program}` to {entry}"),
            None => format!("call {}", self.context.requested_tool),
        }
    }

    /// Creates the failure of a call that a person has denied, or the denial of a host.
    fn denied_failure(&self, by: &str, reason: &str) -> Failure {
        let denial = self.decision.denial(self.action());
        let (mut message, repeated) = if self.host.is_some() {
            (format!("the user ({by}) said no"), "try to reach this host")
        } else {
            let tool = &self.context.requested_tool;
            let message = format!("denied by the user ({by}): this call of `{tool}` did not run");
            (message, "make the same call")
        };
        let mut instead = "ask the user what to do instead";
        let shown_reason = neutral_line(cut(reason.trim(), MAX_REASON));
        if !shown_reason.is_empty() {
            message += &format!(". The user said: {shown_reason}");
            instead = "do what the user said";
        }
        let suggestion = format!("Don't {repeated} again; {instead}.");
        let failure =
            Failure { denial: Some(denial), ..Failure::new(Category::PolicyBlocked, message) };
        failure.with_code("denied_by_user").with_suggestion(suggestion)
    }
}

fn approvals_failure(error: &HostError) -> Failure {
    Failure::new(Category::PermanentFailure, format!("reading earlier approvals failed: {error}"))
        .with_code("host")
}
