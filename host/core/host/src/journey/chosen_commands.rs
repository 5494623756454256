//! Decides on commands that a plugin chooses during its call, such as `cargo check`, as on calls of
//! `bash`.

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

/// The tool whose rules decide.
pub(crate) const BASH: &str = "bash";

/// Most commands that one call may choose. Each may ask a person.
const MAX_CHOSEN: usize = 32;

/// The commands that the plugin of a call has chosen.
pub(crate) struct PluginCommands {
    asker: Arc<Asker>,
    asked: UnboundedReceiver<Asked>,
    count: usize,
    /// The first refusal, which explains the call's failure.
    refused: Option<Failure>,
    /// A person said no. Nobody is asked again in this call.
    denied: Option<Failure>,
}

/// Hands commands to the journey of their call.
#[derive(Debug)]
struct Asker(UnboundedSender<Asked>);

/// A command on which its call waits for a decision.
#[derive(Debug)]
struct Asked {
    line: String,
    answer: SyncSender<Result<JudgedCommand, Failure>>,
}

impl CommandApprover for Asker {
    fn judge(&self, line: &str) -> Result<JudgedCommand, Failure> {
        let (answer, decided) = sync_channel(1);
        self.0.send(Asked { line: line.to_owned(), answer }).map_err(|_| call_over())?;
        decided.recv().map_err(|_| call_over())?
    }
}

fn call_over() -> Failure {
    Failure::new(Category::Cancelled, "the call is over")
}

impl PluginCommands {
    /// `None`: the tool's plugin may choose none.
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

    /// The call's outcome: if it failed after a refusal, that explains it, whatever the plugin
    /// says.
    fn finish(&self, outcome: Outcome) -> Outcome {
        match (outcome, &self.refused) {
            (Err(failure), Some(refused)) if failure.category == Category::PermanentFailure => {
                Err(Failure {
                    content: failure.content,
                    structured: failure.structured,
                    ..refused.clone()
                })
            }
            (outcome, _) => outcome,
        }
    }
}

/// Runs a call to its end, and decides on the commands that its plugin chooses meanwhile.
pub(super) async fn judge_commands(
    journey: Journey<'_>,
    context: &CallContext,
    governance: &mut Governance,
    chosen: &mut PluginCommands,
    running: impl Future<Output = Outcome>,
) -> Outcome {
    let mut running = pin!(running);
    loop {
        let next = poll_fn(|task| match running.as_mut().poll(task) {
            Poll::Ready(outcome) => Poll::Ready(Err(outcome)),
            // This journey holds a sender too, so the channel never ends.
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

/// Decides on a command. `outer` and `outer_governance` are those of the call that chose it.
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
    let decided = decide(journey, &mut governance, &mut context, &tool, &catalogue).await;
    outer_governance.waited += governance.waited;
    let record = call_record(
        &context,
        governance.decision.as_ref(),
        governance.approval.as_ref(),
        governance.review.as_deref(),
    );
    host.audit.command(&record, &outer.requested_tool, decided.is_ok()).await?;
    decided?;
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

/// The command as a call of `bash`, with the ID and the origin of the call that chose it.
pub(crate) fn as_command(
    governor: &Governor,
    outer: &CallContext,
    tool: &Arc<Tool>,
    line: String,
) -> CallContext {
    let rules = governor.rules();
    let trust = outer.action().map_or(outer.trust, |action| rules.policy.trust_in(&action));
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
