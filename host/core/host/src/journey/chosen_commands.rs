//! Decides on commands that a plugin chooses during its call, such as `cargo check`. The rules for
//! `bash` apply.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::Poll;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use toolhold_catalogue::{CallContext, Catalogue, Tool};
use toolhold_contract::{Category, CommandApprover, Failure, JudgedCommand, Outcome};
use toolhold_policy::commands::ShellState;

use super::Journey;
use crate::call_inputs::Steps;
use crate::governor::Governor;
use crate::record::{Governance, call_record};

/// The tool whose rules apply to chosen commands.
pub(crate) const BASH: &str = "bash";

/// Maximum number of commands that one call may choose. A person may be asked about each. Further
/// commands are refused.
const MAX_CHOSEN: usize = 32;

pub(crate) struct PluginCommands {
    asker: Arc<Asker>,
    asked: UnboundedReceiver<Asked>,
    count: usize,
    /// The first denial of a command. It explains the call's failure.
    first_denial: Option<Failure>,
    /// The denial by a person. After it, nobody is asked again in this call.
    denial_by_person: Option<Failure>,
}

/// Passes commands of the plugin to [`judge_commands`].
#[derive(Debug)]
struct Asker(UnboundedSender<Asked>);

/// A command of the plugin. The plugin waits for the decision.
#[derive(Debug)]
struct Asked {
    line: String,
    answer_sender: SyncSender<Result<JudgedCommand, Failure>>,
}

impl CommandApprover for Asker {
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure> {
        let (answer_sender, answer_receiver) = sync_channel(1);
        let asked = Asked { line: line.to_owned(), answer_sender };
        self.0.send(asked).map_err(|_| call_over())?;
        answer_receiver.recv().map_err(|_| call_over())?
    }
}

fn call_over() -> Failure {
    Failure::new(Category::Cancelled, "the call has ended")
}

impl PluginCommands {
    /// Starts to receive the commands that the tool's plugin chooses. Returns `None` if the plugin
    /// may not choose commands.
    pub(crate) fn for_tool(tool: &Tool) -> Option<Self> {
        let process = tool.plugin.as_ref()?.policy().capabilities.process.as_ref()?;
        if !process.judged {
            return None;
        }
        let (sender, asked) = unbounded_channel();
        Some(Self {
            asker: Arc::new(Asker(sender)),
            asked,
            count: 0,
            first_denial: None,
            denial_by_person: None,
        })
    }

    pub(crate) fn judge(&self) -> Arc<dyn CommandApprover> {
        Arc::clone(&self.asker) as _
    }

    /// Returns the outcome of the call. If the call failed after the denial of a command, the
    /// failure has the reason of the denial, because the denial explains the failure.
    fn finish(&self, outcome: Outcome) -> Outcome {
        let failure = match outcome {
            Err(failure) if failure.category == Category::PermanentFailure => failure,
            other => return other,
        };
        let Some(denial) = &self.first_denial else { return Err(failure) };
        let mut explained = denial.clone();
        explained.content = failure.content;
        explained.structured = failure.structured;
        Err(explained)
    }
}

/// Runs a call to its end, and decides on the commands that its plugin chooses.
pub(super) async fn judge_commands(
    journey: Journey<'_>,
    context: &CallContext,
    governance: &mut Governance,
    chosen: &mut PluginCommands,
    running: impl Future<Output = Outcome>,
) -> Outcome {
    let mut running = pin!(running);
    loop {
        // Waits for the end of the call (`Err`) or the next chosen command (`Ok`).
        let end_or_command = poll_fn(|task| match running.as_mut().poll(task) {
            Poll::Ready(outcome) => Poll::Ready(Err(outcome)),
            Poll::Pending => chosen.asked.poll_recv(task).map(Ok),
        });
        let Asked { line, answer_sender } = match end_or_command.await {
            Err(outcome) => return chosen.finish(outcome),
            // This never happens, because `chosen` has a sender, which keeps the channel open.
            Ok(None) => return chosen.finish(running.await),
            Ok(Some(command)) => command,
        };
        let decided = judge_command(journey, context, governance, chosen, line).await;
        if let Err(failure) = &decided {
            chosen.first_denial.get_or_insert_with(|| failure.clone());
            if failure.code.as_deref() == Some("denied_by_user") {
                chosen.denial_by_person = Some(failure.clone());
            }
        }
        // The plugin may have been stopped, so that it doesn't receive the answer.
        let _ = answer_sender.send(decided);
    }
}

/// Decides on a command. `outer` is the call whose plugin chose the command.
async fn judge_command(
    journey: Journey<'_>,
    outer: &CallContext,
    outer_governance: &mut Governance,
    chosen: &mut PluginCommands,
    line: String,
) -> Result<JudgedCommand, Failure> {
    chosen.count += 1;
    if chosen.count > MAX_CHOSEN {
        let message = format!("the call has chosen too many commands; the limit is {MAX_CHOSEN}");
        return Err(Failure::new(Category::PermanentFailure, message).with_code("limit"));
    }
    // After a person has denied a command, all further commands of the call are denied.
    if let Some(denial) = &chosen.denial_by_person {
        return Err(denial.clone());
    }

    let host = journey.host;
    let catalogue = host.plugins.catalogue();
    let tool = Arc::clone(catalogue.resolve(BASH)?);
    let mut context = as_command(&host.governor, outer, &tool, line);
    let mut governance = Governance::default();
    let result = decide(journey, &mut governance, &mut context, &tool, &catalogue).await;
    outer_governance.waited += governance.waited;
    let record = call_record(
        &context,
        governance.decision.as_ref(),
        governance.approval.as_ref(),
        governance.review.as_deref(),
    );
    host.audit.command(&record, &outer.requested_tool, result.is_ok()).await?;
    result?;
    if let Some(reservation) = governance.reservation.take() {
        reservation.used();
    }
    Ok(JudgedCommand {
        network: host.governor.reaches_network(&context),
        path_rules: governance.path_rules.map(|rules| rules.paths as _),
    })
}

/// Decides on a command by the steps for a call of `bash`.
async fn decide(
    journey: Journey<'_>,
    governance: &mut Governance,
    context: &mut CallContext,
    tool: &Arc<Tool>,
    catalogue: &Catalogue,
) -> Result<(), Failure> {
    let mut steps = Steps::begin();
    journey.resolve_subjects(governance, context, tool, &mut steps).await?;
    journey.host.shaping.check(context)?;
    journey.govern(governance, context, catalogue, &mut steps).await
}

/// Creates a call of `bash` for the command `line`, with the ID and the origin of the call `outer`
/// that chose the command.
pub(crate) fn as_command(
    governor: &Governor,
    outer: &CallContext,
    tool: &Arc<Tool>,
    line: String,
) -> CallContext {
    let trust = match outer.action() {
        Some(action) => governor.rules().policy.trust_in(&action),
        None => outer.trust,
    };
    CallContext {
        id: outer.id.clone(),
        requested_tool: BASH.to_owned(),
        session: Arc::clone(&outer.session),
        caller: outer.caller.clone(),
        phase: outer.phase,
        trust,
        doubtful: outer.doubtful,
        audience: outer.audience,
        started_at: outer.started_at,
        started: outer.started,
        tool: Some(Arc::clone(tool)),
        arguments: Arc::new(json!({ "command": line })),
        attachments: Vec::new(),
        meta: None,
        subjects: Vec::new(),
        carried: ShellState::default(),
        carried_shown: ShellState::default(),
    }
}
