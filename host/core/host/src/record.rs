//! Makes the audit entries of a call from the results of its steps. Calls that nobody waits for any
//! more get entries too.

use std::sync::Arc;
use std::time::Duration;

use toolhold_answers::{Approval, ShapeReport, Spool};
use toolhold_audit::{
    CallRecord, FilteredRecord, OutcomeRecord, SnapshotRecord, SourceRecord, ToolRecord,
};
use toolhold_catalogue::{CallContext, Tool};
use toolhold_contract::{Category, Failure, Outcome, Report, Snapshot};
use toolhold_jobs::{CallShell, JobStart};
use toolhold_policy::Decision;

use crate::audit::Audit;
use crate::counting::QuotaReservation;
use crate::governor::ReachRules;
use crate::host::CallObserver;
use crate::undo::CallJournal;

/// The decisions of the gates and of a person.
#[derive(Default)]
pub(crate) struct Governance {
    /// The decision of the gates. `None` if the call didn't reach the gates.
    pub(crate) decision: Option<Decision>,
    pub(crate) approval: Option<Approval>,
    /// The result of the model's review of the call, for the audit log.
    pub(crate) review: Option<String>,
    /// Time spent waiting for a person.
    pub(crate) waited: Duration,
    /// The rules for resources that the call may reach and doesn't name.
    pub(crate) reached: Option<ReachRules>,
    /// The reservation in the quota and rate of the session. The reservation is cancelled if the
    /// call doesn't run.
    pub(crate) place: Option<QuotaReservation>,
}

impl Governance {
    /// Stores a decision that refuses a call, and returns the failure of the call.
    pub(crate) fn refuse(&mut self, context: &CallContext, decision: Decision) -> Failure {
        let failure = Failure::denied(decision.denial(format!("call {}", context.requested_tool)));
        self.decision = Some(decision);
        failure
    }
}

/// The result of a call in its provider.
#[derive(Default)]
pub(crate) struct RunReport {
    /// How often the tool ran.
    pub(crate) attempts: u32,
    /// Whether an earlier answer was used.
    pub(crate) cached: bool,
    /// The provider's report.
    pub(crate) report: Arc<Report>,
    /// The journal that saves the changes of the call, while it runs.
    pub(crate) journal: Option<CallJournal>,
    /// The store for the complete output of the call's command.
    pub(crate) spool: Option<Arc<Spool>>,
    /// The right to start a command that outlives the call.
    pub(crate) job: Option<Arc<JobStart>>,
    /// The shell state with which the call's commands start. Their changes to it apply to later
    /// commands.
    pub(crate) shell: Option<Arc<CallShell>>,
    /// The snapshot of the call's changes.
    pub(crate) snapshot: Option<Snapshot>,
}

/// Records a call whose future is dropped.
pub(crate) struct DropRecorder<'a> {
    pub(crate) audit: &'a Audit,
    /// The observer of calls.
    pub(crate) observer: Option<&'a dyn CallObserver>,
    pub(crate) context: CallContext,
    pub(crate) governance: Governance,
    pub(crate) run: RunReport,
    /// Whether the outcome is recorded and there is nothing more to do.
    pub(crate) recorded: bool,
}

impl DropRecorder<'_> {
    /// Makes the record of an outcome.
    pub(crate) fn record<'r>(
        &'r self,
        outcome: &'r Outcome,
        shape: &'r ShapeReport,
    ) -> OutcomeRecord<'r> {
        let governance = &self.governance;
        OutcomeRecord {
            call: call_record(
                &self.context,
                governance.decision.as_ref(),
                governance.approval.as_ref(),
                governance.review.as_deref(),
            ),
            outcome,
            duration: self.context.started.elapsed(),
            waited: governance.waited,
            attempts: self.run.attempts,
            acts: self.context.acts(),
            cached: self.run.cached,
            truncated: shape.truncated,
            filtered: shape.filtered.as_ref().map(|filtered| FilteredRecord {
                filters: &filtered.filters,
                confidence: filtered.confidence,
                lines: filtered.lines,
                bytes: filtered.bytes,
            }),
            injections: &shape.injections,
            report: &self.run.report,
            snapshot: self.run.snapshot.map(|snapshot| SnapshotRecord {
                paths: snapshot.paths as u64,
                bytes: snapshot.bytes,
                lost: snapshot.lost as u64,
            }),
        }
    }
}

impl Drop for DropRecorder<'_> {
    fn drop(&mut self) {
        if let Some(journal) = self.run.journal.take() {
            // Dropping the journal reads the changed files.
            tokio::task::spawn_blocking(move || drop(journal));
        }
        if let Some(job) = self.run.job.take() {
            job.abandon();
        }
        if !self.recorded {
            let outcome = Err(Failure::new(Category::Cancelled, "nobody waited for the answer")
                .with_code("dropped"));
            self.audit.dropped(&self.record(&outcome, &ShapeReport::default()));
            if let Some(observer) = self.observer {
                let tool = self.context.tool.as_ref().map(|tool| &*tool.definition.name);
                observer.dropped(tool, self.context.started.elapsed());
            }
        }
    }
}

/// Makes the record of a call.
pub(crate) fn call_record<'a>(
    context: &'a CallContext,
    decision: Option<&'a Decision>,
    approval: Option<&'a Approval>,
    review: Option<&'a str>,
) -> CallRecord<'a> {
    CallRecord {
        id: &context.id,
        requested_tool: &context.requested_tool,
        tool: context.tool.as_deref().map(tool_record),
        arguments: &context.arguments,
        subjects: &context.subjects,
        attachments: context.attachments.len(),
        decision,
        approval: approval.map(|approval| (&*approval.by, approval.scope.as_str())),
        review,
        session: &context.session,
        caller: context.caller.as_deref(),
        phase: context.phase,
        trust: context.trust,
    }
}

fn tool_record(tool: &Tool) -> ToolRecord<'_> {
    let provider = match &tool.plugin {
        Some(plugin) => SourceRecord::Plugin {
            name: &plugin.info().manifest.name,
            digest: &plugin.info().digest,
        },
        None => SourceRecord::Other {
            name: tool.provider.name(),
            version: tool.provider.version(),
            is_server: tool.provider.is_third_party(),
        },
    };
    ToolRecord { definition: &tool.definition, provider }
}
