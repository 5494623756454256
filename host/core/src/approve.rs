//! The step of a call at which a person approves it, where the gates say so.
//!
//! A yes is bound to a [`Fingerprint`] of the call and to the session: other arguments, another version of the plugin, another session, or
//! another file than the one whose change was shown ask again. It skips the asking and nothing else, since the journey decides anew with it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use berth_contract::{Access, Annotations, CancellationToken, Category, Failure, HostError};
use berth_policy::{ActedOn, Action, Decision, Gate, Verdict};

use crate::answer::{Approval, Scope};
use crate::approvals::{Always, Approver, Question, Reply, always, fingerprint, preview};
use crate::facts::Facts;
use crate::fingerprint::Fingerprint;
use crate::host::Host;
use berth_config::Loaded;

impl Host {
    /// Has a call approved that the gates want a yes for: by what was said before, or by asking.
    ///
    /// # Errors
    ///
    /// A person said no, nobody could be asked, the caller went away meanwhile, or what was said can't be recorded.
    pub(crate) async fn approved(
        &self,
        facts: &mut Facts,
        decision: &Decision,
        approver: Option<&dyn Approver>,
        cancel: &CancellationToken,
    ) -> Result<Approval, Failure> {
        let seen = self.told(facts, preview::of(facts).await)?;
        let before = seen.as_ref().map(|seen| seen.before);
        let settled = seen.as_ref().and_then(|seen| seen.settled);
        let fingerprint = Fingerprint::of(facts, before.as_ref());
        let of_hosts = of_hosts(facts, decision);
        if let Some(by) = approved_before(facts, [Some(fingerprint), of_hosts]).map_err(|error| failed(&error))? {
            return Ok(Approval { by, scope: Scope::Session });
        }
        let Some(approver) = approver else {
            return Err(unasked(facts, decision, "nobody can be asked here"));
        };
        let _place = self.asking.places.take(facts.session.name()).map_err(|why| unasked(facts, decision, &why))?;
        let question = question(facts, decision, fingerprint, seen, self.asking.config()).await;
        let always = question.always.clone();
        let asked = Instant::now();
        let reply = cancel.run_until_cancelled(approver.ask(question)).await;
        if approver.waits() {
            facts.waited = asked.elapsed();
        }
        let Some(reply) = reply else {
            return Err(Failure::new(Category::Cancelled, "the call was cancelled while a person was asked"));
        };
        let (scope, by) = match reply {
            Reply::Yes { scope, by } => (scope, by),
            Reply::No { by } => {
                self.audit.approval(facts, &by, "no", None).await?;
                return Err(said_no(facts, decision, &by));
            }
            Reply::Unasked(why) => return Err(unasked(facts, decision, &why)),
        };
        self.audit.approval(facts, &by, "yes", Some(scope.as_str())).await?;
        self.acts_on_the_same(facts, decision, before, cancel).await?;
        match scope {
            Scope::Once => {}
            Scope::Session => {
                let lasting = Duration::from_secs(self.asking.config().config.approvals.expire_secs.get());
                // Made again where it was made already, such a call changes nothing: that is agreed to as well.
                let again = settled.map(|file| Fingerprint::of(facts, Some(&file)));
                let kept = facts.session.change(|state| {
                    for fingerprint in [Some(fingerprint), again, of_hosts].into_iter().flatten() {
                        state.approve(fingerprint, &by, SystemTime::now(), lasting);
                    }
                });
                kept.map_err(|error| failed(&error))?;
            }
            Scope::Always => self.allow_for_good(always).await,
        }
        Ok(Approval { by, scope })
    }

    /// Who has agreed for the session to a call that would be asked about otherwise. Blocks: it looks at the file that the call changes.
    ///
    /// # Errors
    ///
    /// What the call comes to before anybody is asked.
    pub(crate) fn agreed_already(&self, facts: &Facts, decision: &Decision) -> Result<Option<String>, Failure> {
        let before = self.told(facts, preview::at_once(facts))?.map(|seen| seen.before);
        let fingerprints = [Some(Fingerprint::of(facts, before.as_ref())), of_hosts(facts, decision)];
        approved_before(facts, fingerprints).map_err(|error| failed(&error))
    }

    /// What the call would change, where that can be shown.
    ///
    /// # Errors
    ///
    /// What the tool would fail with, so that nobody is asked in vain. It tells of the file's text, and so only who may read it is told.
    fn told(&self, facts: &Facts, looked: Result<Option<preview::Seen>, Failure>) -> Result<Option<preview::Seen>, Failure> {
        match looked {
            Err(failure) if self.may_be_read(facts) => Err(failure),
            looked => Ok(looked.ok().flatten()),
        }
    }

    /// Whether what a call acts on could be read without asking anybody.
    fn may_be_read(&self, facts: &Facts) -> bool {
        let read_only = Annotations { read_only: true, ..Annotations::default() };
        let subjects: Vec<_> = facts.subjects.iter().map(|subject| ActedOn { access: Access::Read, ..subject.clone() }).collect();
        facts.action().is_some_and(|action| {
            let reading = Action { tool: "read", aliases: &[], annotations: read_only, subjects: &subjects, ..action };
            self.governor.rules().policy.decide(&reading, false).verdict == Verdict::Allow
        })
    }

    /// Looks again at what a call acts on: while a person thinks, a link can come to lead elsewhere, or the file come to hold something in
    /// which the call changes more than was shown (`before` is the one that was shown), and the yes wasn't for that.
    async fn acts_on_the_same(
        &self,
        facts: &Facts,
        decision: &Decision,
        before: Option<[u8; 32]>,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let Some(tool) = &facts.tool else { return Ok(()) };
        let (mut arguments, mut acted_on) = (Arc::clone(&facts.arguments), Vec::new());
        self.lookups.decide(tool, &mut arguments, &mut acted_on, cancel).await?;
        match acted_on == facts.subjects && self.told(facts, preview::of(facts).await)?.map(|seen| seen.before) == before {
            true => Ok(()),
            false => Err(unasked(facts, decision, "what it acts on has changed while one was asked")),
        }
    }

    /// Writes the rule of a yes for good, and lets it count. Where that fails, the yes still holds for this call.
    async fn allow_for_good(&self, always: Always) {
        let Always::Writes(proposal) = always else { return };
        let (folders, config) = (self.asking.folders.clone(), self.asking.config());
        let written = tokio::task::spawn_blocking(move || {
            let changed = config.with_permission(&proposal.tool, &proposal.pattern).map_err(HostError::Config)?;
            proposal.write(&folders).map(|_| changed)
        });
        let counts = match written.await {
            Ok(changed) => changed.and_then(|changed| self.reload_rules(&changed)),
            Err(error) => Err(HostError::Engine(error.to_string())),
        };
        if let Err(error) = counts {
            tracing::warn!("this call is made, but the rule for the next is not written: {error}");
        }
    }
}

async fn question(
    facts: &Facts,
    decision: &Decision,
    fingerprint: Fingerprint,
    seen: Option<preview::Seen>,
    config: Arc<Loaded>,
) -> Question {
    let provider = facts.tool.as_ref().map_or_else(String::new, |tool| tool.provider.name().to_owned());
    Question {
        id: facts.id.clone(),
        session: facts.session.name().to_string(),
        caller: facts.caller.clone(),
        fingerprint,
        tool: facts.tool.as_ref().map_or_else(|| facts.asked.clone(), |tool| tool.definition.name.clone()),
        provider,
        subjects: facts.subjects.clone(),
        secrets: facts.action().map(|action| config.secrets_along(&action)).unwrap_or_default(),
        arguments: (*facts.arguments).clone(),
        attachments: facts.attachments.iter().map(fingerprint::attached).collect(),
        preview: seen.map(|seen| seen.preview),
        decision: decision.clone(),
        always: always::proposal(facts, config).await,
    }
}

/// Who has agreed to such calls before, for the session.
///
/// # Errors
///
/// [`HostError::Io`]: what the session remembers can't be read.
fn approved_before(facts: &Facts, fingerprints: [Option<Fingerprint>; 2]) -> Result<Option<String>, HostError> {
    facts.session.look(|state| {
        let mut by = fingerprints.iter().flatten().filter_map(|fingerprint| state.approved_by(fingerprint, facts.began));
        by.next().map(str::to_owned)
    })
}

/// What a yes for the session is bound to, where a call is asked about only since it goes to hosts that nothing is said of.
fn of_hosts(facts: &Facts, decision: &Decision) -> Option<Fingerprint> {
    (decision.gate == Gate::Hosts).then(|| Fingerprint::of_hosts(facts)).flatten()
}

/// What a call comes to that nobody agreed to, because nobody was asked.
fn unasked(facts: &Facts, decision: &Decision, why: &str) -> Failure {
    let denial = decision.denial(format!("call {}", facts.asked));
    let message = format!("a person has to agree to this call of `{}` first: {why}", facts.asked);
    Failure { denial: Some(denial), ..Failure::new(Category::ConfirmationRequired, message) }
}

/// What a call comes to that a person doesn't want.
fn said_no(facts: &Facts, decision: &Decision, by: &str) -> Failure {
    let denial = decision.denial(format!("call {}", facts.asked));
    let message = format!("denied by the user ({by}): this call of `{}` was not made", facts.asked);
    let failure = Failure { denial: Some(denial), ..Failure::new(Category::PolicyBlocked, message) };
    failure.with_code("denied_by_user").with_suggestion("Don't make the same call again; ask the user what to do instead.")
}

/// What is remembered of approvals can't be looked at, so nobody has agreed.
fn failed(error: &HostError) -> Failure {
    Failure::new(Category::PermanentFailure, format!("what was approved before can't be told: {error}")).with_code("host")
}
