//! Creates the audit entries of a call from the results of its steps, even if the call's future is
//! dropped.

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

#[derive(Default)]
pub(crate) struct Governance {
    /// The decision of the rules. `None` means that the call failed before this step.
    pub(crate) decision: Option<Decision>,
    pub(crate) approval: Option<Approval>,
    /// The result of the review by a model, for the audit log.
    pub(crate) review: Option<String>,
    pub(crate) waited: Duration,
    /// The rules for paths that the call opens, even if its arguments don't contain them.
    pub(crate) path_rules: Option<ReachRules>,
    /// The reservation in the quota and rate of the session. A call that doesn't run gives the
    /// reservation back.
    pub(crate) reservation: Option<QuotaReservation>,
}

impl Governance {
    pub(crate) fn refuse(&mut self, context: &CallContext, decision: Decision) -> Failure {
        let failure = Failure::denied(decision.denial(format!("call {}", context.requested_tool)));
        self.decision = Some(decision);
        failure
    }
}

#[derive(Default)]
pub(crate) struct RunReport {
    pub(crate) attempts: u32,
    pub(crate) cached: bool,
    pub(crate) report: Arc<Report>,
    /// Saves the changes of the call while it runs.
    pub(crate) journal: Option<CallJournal>,
    pub(crate) spool: Option<Arc<Spool>>,
    pub(crate) job: Option<Arc<JobStart>>,
    /// The shell state at the start of the call's commands, and the place for their changes.
    pub(crate) shell: Option<Arc<CallShell>>,
    pub(crate) snapshot: Option<Snapshot>,
}

/// Records a call whose future is dropped.
pub(crate) struct DropRecorder<'a> {
    pub(crate) audit: &'a Audit,
    pub(crate) observer: Option<&'a dyn CallObserver>,
    pub(crate) context: CallContext,
    pub(crate) governance: Governance,
    pub(crate) run: RunReport,
    pub(crate) recorded: bool,
}

impl DropRecorder<'_> {
    /// Returns the data for the audit entry of the outcome. `shape` says how the answer was
    /// filtered and shortened.
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
            // A drop of the journal reads the changed files, which blocks.
            tokio::task::spawn_blocking(move || drop(journal));
        }
        if let Some(job) = self.run.job.take() {
            job.abandon();
        }
        if self.recorded {
            return;
        }

        let outcome =
            Err(Failure::new(Category::Cancelled, "nobody waited for the answer")
                .with_code("dropped"));
        self.audit.dropped(&self.record(&outcome, &ShapeReport::default()));
        if let Some(observer) = self.observer {
            let tool = self.context.tool.as_ref().map(|tool| &*tool.definition.name);
            observer.dropped(tool, self.context.started.elapsed());
        }
    }
}

/// Returns the data of a call for the audit log.
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
