//! Writes the rule of a permanent approval (*always*) into the user's configuration: the narrowest
//! that allows the call.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use toolhold_catalogue::CallContext;
use toolhold_config::insert::{self, InsertError};
use toolhold_config::{Config, Folders};
use toolhold_contract::{HostError, SubjectKind};
use toolhold_policy::{Decision, Verdict, canonical};

/// The effect of a permanent approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Always {
    /// This rule.
    Writes(Proposal),
    /// No rule can express it; the reason.
    Unavailable(String),
}

/// A rule for the user's configuration that allows exactly what was approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The tool of the rule.
    pub tool: String,
    /// The path, command or text that the rule allows, compared character by character.
    pub pattern: String,
    /// The file that the rule is written into.
    #[serde(default)]
    pub file: String,
}

impl Proposal {
    /// Returns the rule as TOML.
    pub fn text(&self) -> String {
        insert::rule(&self.tool, &self.pattern)
    }

    /// Writes the rule into the user's `toolhold.toml`, before the other rules of its tool. Writes
    /// nothing if the rule is there already. Returns the file's path. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be changed; it says which line to write by hand.
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        insert::permission(folders, &self.tool, &self.pattern)
    }
}

/// The reason why no rule can express an approval.
#[derive(Debug, thiserror::Error)]
enum ProposalError {
    #[error("there is no such tool")]
    NoTool,
    /// Removing a directory removes whatever is in it at that moment, and a rule can't say what
    /// that is.
    #[error("the call acts on a path with all its contents, and a rule covers one path")]
    WholeTree,
    /// A rule can name the URL, but not what is sent there.
    #[error("the call sends data, and a rule would allow any data and any method for that URL")]
    Sends,
    #[error("the command uses variables of an earlier command, and a rule would keep their values")]
    Variables,
    #[error("the call acts on several things, and a rule covers one")]
    SeveralSubjects,
    /// The rule can't be written into the configuration.
    #[error(transparent)]
    Unwritable(#[from] InsertError),
    #[error(transparent)]
    Interrupted(#[from] JoinError),
    #[error(transparent)]
    Policy(#[from] HostError),
    #[error("a rule in {file} would not be enough; this rule still applies: {}, {}", .decision.rule, .decision.place)]
    Ineffective { file: String, decision: Box<Decision> },
}

/// Proposes the narrowest rule that would allow this call. The rule is tried with the other rules:
/// it is offered only if it would really allow the call.
pub(crate) async fn propose(context: &CallContext, config: Arc<Config>) -> Always {
    match find_rule(context, config).await {
        Ok(proposal) => Always::Writes(proposal),
        Err(error) => Always::Unavailable(error.to_string()),
    }
}

async fn find_rule(context: &CallContext, config: Arc<Config>) -> Result<Proposal, ProposalError> {
    let Some(tool) = &context.tool else { return Err(ProposalError::NoTool) };
    let tool = tool.definition.name.clone();
    let pattern = match &context.subjects[..] {
        [] => format!("{tool} {}", canonical(&context.arguments)),
        [subject] if subject.kind == SubjectKind::Name => return Err(ProposalError::WholeTree),
        [subject] if subject.kind == SubjectKind::Url && context.acts() => {
            return Err(ProposalError::Sends);
        }
        [_] if !context.carried.variables.is_empty() => return Err(ProposalError::Variables),
        [subject] => subject.text.clone(),
        _ => return Err(ProposalError::SeveralSubjects),
    };

    let proposal = Proposal { tool, pattern, file: config.own_file().to_string() };
    let Proposal { tool, pattern, file } = proposal.clone();
    // The change of the configuration reads files.
    let changed =
        tokio::task::spawn_blocking(move || config.with_permission(&tool, &pattern)).await??;
    let policy = changed.policy()?;
    let action = context.action().ok_or(ProposalError::NoTool)?;
    let decision = policy.decide(&action, false);
    match decision.verdict {
        Verdict::Allow => Ok(proposal),
        Verdict::Ask | Verdict::Deny => {
            Err(ProposalError::Ineffective { file, decision: Box::new(decision) })
        }
    }
}
