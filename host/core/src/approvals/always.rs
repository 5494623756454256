//! What a yes for good writes into the user's configuration.

use std::path::PathBuf;
use std::sync::Arc;

use berth_catalogue::CallContext;
use berth_config::{Folders, Loaded, insert};
use berth_contract::{HostError, SubjectKind};
use berth_policy::{Verdict, canonical};
use serde::{Deserialize, Serialize};

use super::Always;

/// A rule for the user's configuration that allows exactly what was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The tool that it is for.
    pub tool: String,
    /// What it allows, by the letter: this very path, command or text.
    pub pattern: String,
}

impl Proposal {
    /// The rule as it is written.
    pub fn text(&self) -> String {
        insert::rule(&self.tool, &self.pattern)
    }

    /// Writes the rule into the user's `berth.toml`, before the other rules of its tool; nothing
    /// where it stands there already. Returns the file. It blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`] where the file can't be changed, with what to write there.
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        insert::permission(folders, &self.tool, &self.pattern)
    }
}

/// The rule that would allow this call, and as little else as a rule can say. It is tried out: what
/// is offered counts once it is written, whatever else is configured.
pub(crate) async fn proposal(context: &CallContext, config: Arc<Loaded>) -> Always {
    match tried(context, config).await {
        Ok(proposal) => Always::Writes(proposal),
        Err(why) => Always::Unavailable(why),
    }
}

async fn tried(context: &CallContext, config: Arc<Loaded>) -> Result<Proposal, String> {
    let tool = context
        .tool
        .as_ref()
        .map(|tool| tool.definition.name.clone())
        .ok_or("there is no such tool")?;
    let pattern = match &context.subjects[..] {
        [] => format!("{tool} {}", canonical(&context.arguments)),
        // A directory goes with all that is in it by then, and a rule can't say what that is.
        [subject] if subject.kind == SubjectKind::Name => {
            return Err("it acts on whatever stands at that path with all that is in it, and a rule is about one thing".to_owned());
        }
        // A rule can say the URL, and not what is sent there.
        [subject] if subject.kind == SubjectKind::Url && context.acts() => {
            return Err("it sends something to that URL, and a rule would allow whatever is sent there, by any method".to_owned());
        }
        [subject] => subject.text.clone(),
        _ => return Err("it acts on several things, and a rule is about one".to_owned()),
    };
    let proposal = Proposal { tool, pattern };
    let Proposal { tool, pattern } = proposal.clone();
    // Files are read.
    let changed =
        tokio::task::spawn_blocking(move || config.with_permission(&tool, &pattern)).await;
    let changed = changed.map_err(|error| error.to_string())??;
    let policy = changed.policy().map_err(|error| error.to_string())?;
    let decision = context
        .action()
        .map(|action| policy.decide(&action, false))
        .ok_or("there is no such tool")?;
    match decision.verdict {
        Verdict::Allow => Ok(proposal),
        Verdict::Ask | Verdict::Deny => Err(format!(
            "a rule in your berth.toml would not change it: {}, {}",
            decision.rule, decision.place
        )),
    }
}
