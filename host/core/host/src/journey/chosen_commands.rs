//! Decides on commands that a plugin chooses during its call, such as `cargo check`. The decision
//! is the same as for a call of `bash`.

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

/// Maximum number of commands that one call may choose. A person may be asked about each.
const MAX_CHOSEN: usize = 32;

/// The commands that the plugin of a call has chosen.
pub(crate) struct PluginCommands {
    asker: Arc<Asker>,
    asked: UnboundedReceiver<Asked>,
    count: usize,
    /// The first denial, which explains the call's failure.
    refused: Option<Failure>,
    /// The denial by a person. After it, nobody is asked again in this call.
    denied: Option<Failure>,
}

/// Hands commands to the journey of their call.
#[derive(Debug)]
struct Asker(UnboundedSender<Asked>);

/// A command for whose decision the call waits.
#[derive(Debug)]
struct Asked {
    line: String,
    answer: SyncSender<Result<JudgedCommand, Failure>>,
}

impl CommandApprover for Asker {
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure> {
        let (answer, decision) = sync_channel(1);
        self.0.send(Asked { line: line.to_owned(), answer }).map_err(|_| call_over())?;
        decision.recv().map_err(|_| call_over())?
    }
}

fn call_over() -> Failure {
    Failure::new(Category::Cancelled, "the call is over")
}

impl PluginCommands {
    /// Creates the queue for the commands of a tool's plugin. Returns `None` if the plugin may not
    /// choose commands.
    pub(crate) fn for_tool(tool: &Tool) -> Option<Self> {
        let process = tool.plugin.as_ref()?.policy().capabilities.process.as_ref()?;
        if !process.judged {
            return None;
        }
        let (sender, asked) = unbounded_channel();
        Some(Self { asker: Arc::new(Asker(sender)), asked, count: 0, refused: None, denied: None })
    }

    /// Hands the plugin's commands over.
    pub(crate) fn judge(&self) -> Arc<dyn CommandApprover> {
        Arc::clone(&self.asker) as _
    }

    /// Replaces the failure of a call with the denial of a command, which explains the failure
    /// better than the plugin's own message.
    fn finish(&self, outcome: Outcome) -> Outcome {
        match (outcome, &self.refused) {
            (Err(failure), Some(refused)) if failure.category == Category::PermanentFailure => {
                let mut explained = refused.clone();
                explained.content = failure.content;
                explained.structured = failure.structured;
                Err(explained)
            }
            (outcome, _) => outcome,
        }
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
        // `Err` has the outcome of the call, and `Ok` has a command that its plugin has chosen.
        let next = poll_fn(|task| match running.as_mut().poll(task) {
            Poll::Ready(outcome) => Poll::Ready(Err(outcome)),
            // This journey also has a sender, so the channel never closes.
            Poll::Pending => chosen.asked.poll_recv(task).map(Ok),
        });
        match next.await {
            Err(outcome) => return chosen.finish(outcome),
            Ok(None) => return chosen.finish(running.await),
            Ok(Some(Asked { line, answer })) => {
                let decided = judge_command(journey, context, governance, chosen, line).await;
                if let Err(failure) = &decided {
                    chosen.refused.get_or_insert_with(|| failure.clone());
                    if failure.code.as_deref() == Some("denied_by_user") {
                        chosen.denied = Some(failure.clone());
                    }
                }
                // The plugin may have been stopped meanwhile.
                let _ = answer.send(decided);
            }
        }
    }
}

/// Decides on a command. `outer` and `outer_governance` belong to the call that chose the command.
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
    if let Some(denied) = &chosen.denied {
        return Err(denied.clone());
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
    if let Some(place) = governance.place.take() {
        place.used();
    }
    Ok(JudgedCommand {
        network: host.governor.reaches_network(&context),
        path_rules: governance.reached.map(|reached| reached.paths as _),
    })
}

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

/// Creates a call of `bash` for a command. The ID and the origin are those of the call that chose
/// the command.
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
