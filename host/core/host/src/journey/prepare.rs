//! The first steps of a call: find the tool, validate the arguments, and resolve the subjects.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolhold_catalogue::{CallContext, Catalogue, Tool, subjects, validate};
use toolhold_contract::{Category, Failure};
use toolhold_jobs::CallShell;
use toolhold_policy::Decision;

use super::Journey;
use crate::call_inputs::Steps;
use crate::governor::Governor;
use crate::record::{DropRecorder, Governance};
use crate::session::Session;
use crate::{dependencies, planned_task};

/// Maximum length of the caller's metadata as JSON in bytes. Larger metadata is refused.
const MAX_META: usize = 64 * 1024;

pub(super) struct PreparedCall {
    pub(super) tool: Arc<Tool>,
    /// The notice about the scheduled task that the call creates.
    pub(super) task_notice: Option<String>,
}

impl Journey<'_> {
    /// Completes the context of the call: finds the tool, validates the arguments, and resolves the
    /// subjects. After this step, the context doesn't change.
    pub(super) async fn prepare(
        &self,
        call: &mut DropRecorder<'_>,
        catalogue: &Catalogue,
        steps: &mut Steps,
    ) -> Result<PreparedCall, Failure> {
        let host = self.host;
        let DropRecorder { context, governance, run, .. } = call;
        // If the tool doesn't exist, the failure names similar tools from this list.
        let resolved = catalogue.resolve_among(&context.requested_tool, || {
            dependencies::listed(&host.governor.rules(), catalogue)
        });
        let tool = Arc::clone(resolved?);
        context.tool = Some(Arc::clone(&tool));
        steps.finish_step("resolve");
        self.resolve_subjects(governance, context, &tool, steps).await?;
        run.shell = carry(&host.governor, context, self.session).map(Arc::new);
        host.shaping.check(context)?;
        host.shaping.redact_kept(context);
        let cancel = &self.inputs.cancel;
        let task_notice =
            planned_task::check(host, governance, context, self.session, cancel).await?;
        Ok(PreparedCall { tool, task_notice })
    }

    /// Checks whether the tool is enabled, validates the arguments, checks the blocklist, and
    /// resolves the subjects.
    pub(super) async fn resolve_subjects(
        &self,
        governance: &mut Governance,
        context: &mut CallContext,
        tool: &Arc<Tool>,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let host = self.host;
        let rules = host.governor.rules();
        let name = &tool.definition.name;
        if let Some(disabled) = rules.switches.refusal(tool.provider.name(), name) {
            return Err(governance.refuse(context, disabled.clone()));
        }
        check_meta(context.meta.as_deref())?;
        validate::normalize(&tool.definition, &mut context.arguments)?;
        validate::arguments(tool, &mut context.arguments, host.settings.max_arguments)?;
        steps.finish_step("validate");

        if let Some(blocked) = host.governor.blocked(subjects::commands(tool, &context.arguments)) {
            return Err(governance.refuse(context, blocked));
        }
        let lookup = host.lookups.resolve(
            tool,
            &mut context.arguments,
            &mut context.subjects,
            &self.inputs.cancel,
        );
        if let Err(failure) = lookup.await {
            governance.decision = failure.denial.as_ref().map(Decision::from_grants);
            return Err(failure);
        }
        Ok(())
    }
}

/// Returns the shell state for the commands of a built-in tool, and adds it to the context. Returns
/// `None` if the call uses no shell state.
pub(crate) fn carry(
    governor: &Governor,
    context: &mut CallContext,
    session: &Session,
) -> Option<CallShell> {
    let tool = context.tool.as_deref()?;
    if !tool.is_built_in() {
        return None;
    }
    let has_commands = subjects::commands(tool, &context.arguments).next().is_some();
    if !has_commands {
        return None;
    }
    let shell = session.shell()?;
    if !governor.rules().carries_state {
        return None;
    }
    context.carried = shell.began().clone();
    context.carried_shown = shell.shown();
    // `carry_into` borrows the context, so the subjects are moved out of it meanwhile.
    let mut subjects = std::mem::take(&mut context.subjects);
    context.carry_into(&mut subjects);
    context.subjects = subjects;
    Some(shell)
}

/// Refuses a call whose metadata is too long.
fn check_meta(meta: Option<&Map<String, Value>>) -> Result<(), Failure> {
    let Some(meta) = meta else { return Ok(()) };
    // A JSON object can always be converted to text, so 0 is never used.
    let size = serde_json::to_string(meta).map_or(0, |text| text.len());
    if size <= MAX_META {
        return Ok(());
    }
    let message = format!("the meta of the call is {size} bytes; the limit is {MAX_META}");
    Err(Failure::new(Category::InvalidParameters, message)
        .with_suggestion("Send larger content as an attachment."))
}
