//! Writes the rule of a permanent approval (*always*) into the user's configuration.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use toolhold_catalogue::CallContext;
use toolhold_config::insert::{self, AllowRule, InsertError};
use toolhold_config::{Config, Folders};
use toolhold_contract::text::neutral_line;
use toolhold_contract::{HostError, SubjectKind};
use toolhold_policy::{Decision, Verdict, canonical, source_name, wide_pattern};

/// The effect of a permanent approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Always {
    /// This rule.
    Writes(Proposal),
    /// No rule can express the approval, for this reason.
    Unavailable(String),
}

impl Always {
    /// Returns the rule.
    pub fn proposal(&self) -> Option<&Proposal> {
        match self {
            Self::Writes(proposal) => Some(proposal),
            Self::Unavailable(_) => None,
        }
    }
}

/// A rule for the user's configuration that allows what was approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The rule.
    #[serde(flatten)]
    pub rule: AllowRule,
    /// The file that the rule is written into.
    #[serde(default)]
    pub file: String,
}

impl Proposal {
    /// Returns the rule as TOML.
    pub fn text(&self) -> String {
        self.rule.text()
    }

    /// Writes the rule into the user's `toolhold.toml`, before the other rules of its tool. Writes
    /// nothing if the file already has the rule. Returns the file's path. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`] with the line to add manually, if the file can't be changed.
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        insert::permission(folders, &self.rule)
    }
}

/// The approvals of more calls than the one that asks: those of its tool, or of every tool of its
/// plugin or server. For a session, both are offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wider {
    /// The permanent rule for the tool. `None`: it can't be written, or wouldn't be enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<Proposal>,
    /// The permanent rule for every tool of the plugin or server, as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<Proposal>,
}

impl Wider {
    /// Returns the permanent rule for the tool.
    pub fn tool(&self) -> Option<&Proposal> {
        self.tool.as_ref()
    }

    /// Returns the permanent rule for every tool of the plugin or server.
    pub fn all(&self) -> Option<&Proposal> {
        self.all.as_ref()
    }

    /// Names the answers, for people.
    pub(super) fn in_words(&self, tool: &str, source: &str) -> String {
        format!(
            "add `tool` to {} for any call of {}, `all` to {} for every tool of {}",
            answers_with(self.tool.as_ref()),
            neutral_line(tool),
            answers_with(self.all.as_ref()),
            neutral_line(source)
        )
    }
}

/// Names the answers that can be widened, by the permanent rule.
fn answers_with(rule: Option<&Proposal>) -> &'static str {
    if rule.is_some() { "session or always" } else { "session" }
}

/// The reason why no rule can express an approval.
#[derive(Debug, thiserror::Error)]
enum ProposalError {
    #[error("there is no such tool")]
    NoTool,
    /// The call removes a directory with its whole content at that moment, which a rule can't
    /// express.
    #[error("the call acts on a path with all its contents, and a rule covers one path")]
    WholeTree,
    /// The call sends data. A rule can name the URL, but not the data.
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

/// Proposes the rule that a person would write to allow this call and others like it, or else the
/// narrowest one. The rule is tried with the other rules: it is offered only if it would really
/// allow the call.
pub(crate) async fn propose(context: &CallContext, config: &Arc<Config>) -> Always {
    if let Some(rule) = wide_rule(context)
        && let Ok(proposal) = try_rule(context, config, rule).await
    {
        return Always::Writes(proposal);
    }
    let proposal = match exact_rule(context) {
        Ok(rule) => try_rule(context, config, rule).await,
        Err(error) => Err(error),
    };
    match proposal {
        Ok(proposal) => Always::Writes(proposal),
        Err(error) => Always::Unavailable(error.to_string()),
    }
}

/// Proposes the rules for all calls of the tool, and for every tool of its plugin or server.
pub(crate) async fn propose_wider(context: &CallContext, config: &Arc<Config>) -> Wider {
    let Some(tool) = &context.tool else { return Wider::default() };
    let names = [tool.definition.name.clone(), format!("{}__*", source_name(tool.provider.name()))];
    let [of_tool, of_source] =
        names.map(|tool| AllowRule { tool, pattern: "*".to_owned(), is_glob: true });
    Wider {
        tool: try_rule(context, config, of_tool).await.ok(),
        all: try_rule(context, config, of_source).await.ok(),
    }
}

/// Returns the rule that a person would write. Returns `None` if only the call itself should be
/// allowed.
fn wide_rule(context: &CallContext) -> Option<AllowRule> {
    let action = context.action()?;
    if action.says_destructive || !context.carried.variables.is_empty() {
        return None;
    }
    let pattern = wide_pattern(&action)?;
    Some(AllowRule { tool: action.tool.to_owned(), pattern, is_glob: true })
}

/// Returns the rule that allows exactly this call.
fn exact_rule(context: &CallContext) -> Result<AllowRule, ProposalError> {
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
    Ok(AllowRule { tool, pattern, is_glob: false })
}

/// Tries a rule with the other rules.
///
/// # Errors
///
/// It can't be written, or it wouldn't allow the call.
async fn try_rule(
    context: &CallContext,
    config: &Arc<Config>,
    rule: AllowRule,
) -> Result<Proposal, ProposalError> {
    let file = config.own_file().to_string();
    let config = Arc::clone(config);
    let tried = rule.clone();
    // The change of the configuration reads files.
    let changed = tokio::task::spawn_blocking(move || config.with_permission(&tried)).await??;
    let action = context.action().ok_or(ProposalError::NoTool)?;
    let decision = changed.policy()?.decide(&action, false);
    match decision.verdict {
        Verdict::Allow => Ok(Proposal { rule, file }),
        Verdict::Ask | Verdict::Deny => {
            Err(ProposalError::Ineffective { file, decision: Box::new(decision) })
        }
    }
}
