//! Writes the rule of a permanent approval into the user's configuration.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use toolhold_catalogue::CallContext;
use toolhold_config::insert::{AllowRule, InsertError};
use toolhold_config::{Config, Folders, HostEntry, NewRule};
use toolhold_contract::text::neutral_line;
use toolhold_contract::{HostError, SubjectKind};
use toolhold_policy::egress::ProgramTarget;
use toolhold_policy::{Decision, Verdict, canonical, source_name, wide_pattern};

/// The effect of a permanent approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Always {
    /// The approval writes this rule.
    Writes(Proposal),
    /// The reason why no rule can express the approval.
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

/// A rule for the user's configuration that allows the approved call or the approved host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The rule.
    #[serde(flatten)]
    pub rule: NewRule,
    /// The file for the rule.
    #[serde(default)]
    pub file: String,
}

impl Proposal {
    /// Returns the rule as TOML.
    pub fn text(&self) -> String {
        self.rule.text()
    }

    /// Adds the rule to the user's `toolhold.toml`, and returns the file's path. Changes nothing if
    /// the file already has the rule. Blocks the thread.
    ///
    /// # Errors
    ///
    /// [`HostError`] with the line to add manually if the file can't be changed.
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        self.rule.write(folders)
    }
}

/// Rules for approvals of more calls than one: all calls of the tool, or all calls of its plugin or
/// server. Approvals for a session are always offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WiderRules {
    /// The permanent rule for the tool. `None` means that the rule can't be written or wouldn't be
    /// enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<Proposal>,
    /// The permanent rule for every tool of the plugin or server. `None` has the same meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<Proposal>,
}

impl WiderRules {
    /// Returns the permanent rule for the tool.
    pub fn tool(&self) -> Option<&Proposal> {
        self.tool.as_ref()
    }

    /// Returns the permanent rule for every tool of the plugin or server.
    pub fn all(&self) -> Option<&Proposal> {
        self.all.as_ref()
    }

    /// Describes the answers that approve more than this call, such as `session tool`.
    pub(super) fn describe(&self, tool: &str, source: &str) -> String {
        let tool_answers_allow = answers_allow("tool", self.tool.as_ref());
        let shown_tool = neutral_line(tool);
        let source_answers_allow = answers_allow("all", self.all.as_ref());
        let shown_source = neutral_line(source);
        format!(
            "{tool_answers_allow} any call of {shown_tool}; {source_answers_allow} every tool of \
             {shown_source}, except tools that say that they may destroy something"
        )
    }
}

/// Returns the start of a sentence that names the possible answers. `always` needs a rule.
fn answers_allow(word: &str, rule: Option<&Proposal>) -> String {
    if rule.is_some() {
        format!("`session {word}` or `always {word}` allows")
    } else {
        format!("`session {word}` allows")
    }
}

#[derive(Debug, thiserror::Error)]
enum ProposalError {
    #[error("the tool doesn't exist")]
    NoTool,
    /// The call removes a directory with its current content. A rule can't express this content.
    #[error("the call acts on a path with all its contents, but a rule covers only one path")]
    WholeTree,
    /// The call sends data. A rule can name the URL, but not the data.
    #[error("the call sends data, and a rule would allow any data and any method for this URL")]
    Sends,
    #[error("the command uses variables of an earlier command, and a rule would store the values")]
    Variables,
    #[error("the call acts on several paths or other things, but a rule covers only one")]
    SeveralSubjects,
    #[error(transparent)]
    Unwritable(#[from] InsertError),
    #[error(transparent)]
    Interrupted(#[from] JoinError),
    #[error(transparent)]
    Policy(#[from] HostError),
    #[error("a rule in {file} would have no effect, because this rule still applies: {}, \
             {}", .decision.rule, .decision.place)]
    Ineffective { file: String, decision: Box<Decision> },
}

/// Proposes a rule for this call and similar calls, or else a rule for exactly this call. If
/// neither rule would allow the call, returns the reason.
pub(crate) async fn propose(context: &CallContext, config: &Arc<Config>) -> Always {
    if let Some(rule) = wide_rule(context)
        && let Ok(proposal) = try_rule(context, config, rule).await
    {
        return Always::Writes(proposal);
    }
    let exact_rule = match exact_rule(context) {
        Ok(rule) => rule,
        Err(error) => return Always::Unavailable(error.to_string()),
    };
    match try_rule(context, config, exact_rule).await {
        Ok(proposal) => Always::Writes(proposal),
        Err(error) => Always::Unavailable(error.to_string()),
    }
}

/// Proposes rules for all calls of the tool, and for every tool of its plugin or server. Omits a
/// rule that can't be written or wouldn't allow the call.
pub(crate) async fn propose_wider(context: &CallContext, config: &Arc<Config>) -> WiderRules {
    let Some(tool) = &context.tool else { return WiderRules::default() };
    let tool_rule = rule_for_any_call(tool.definition.name.clone());
    // A tool's full name is the source's name, `__`, and the tool's own name.
    let source_rule = rule_for_any_call(format!("{}__*", source_name(tool.provider.name())));
    WiderRules {
        tool: try_rule(context, config, tool_rule).await.ok(),
        all: try_rule(context, config, source_rule).await.ok(),
    }
}

/// Proposes the entry for a host that a program connects to.
pub(crate) async fn propose_host(target: &ProgramTarget, config: &Arc<Config>) -> Always {
    let rule = NewRule::Host(HostEntry { host: target.to_string() });
    match try_entry(target, config, rule).await {
        Ok(proposal) => Always::Writes(proposal),
        Err(error) => Always::Unavailable(error.to_string()),
    }
}

/// Proposes `rule` if the host is granted with it.
async fn try_entry(
    target: &ProgramTarget,
    config: &Arc<Config>,
    rule: NewRule,
) -> Result<Proposal, ProposalError> {
    let changed_config = with_rule(config, &rule).await?;
    let decision = changed_config.decide_on_host(target)?;
    proposal(rule, config, decision)
}

fn rule_for_any_call(tool: String) -> AllowRule {
    AllowRule { tool, pattern: "*".to_owned(), is_glob: true }
}

/// Returns a rule for this call and similar calls. Returns `None` if only exactly this call should
/// be allowed.
fn wide_rule(context: &CallContext) -> Option<AllowRule> {
    let action = context.action()?;
    // A similar call could destroy something else.
    if action.says_destructive {
        return None;
    }
    // The rule would store the values of variables that an earlier command has set.
    let uses_earlier_variables = !context.carried.variables.is_empty();
    if uses_earlier_variables {
        return None;
    }
    let pattern = wide_pattern(&action)?;
    Some(AllowRule { tool: action.tool.to_owned(), pattern, is_glob: true })
}

/// Returns a rule for exactly this call, or the reason why no rule can describe it.
fn exact_rule(context: &CallContext) -> Result<AllowRule, ProposalError> {
    let Some(tool) = &context.tool else { return Err(ProposalError::NoTool) };
    let tool_name = tool.definition.name.clone();
    let subject = match &context.subjects[..] {
        [] => {
            // A call without paths, commands or URLs is described by its arguments.
            let pattern = format!("{tool_name} {}", canonical(&context.arguments));
            return Ok(AllowRule { tool: tool_name, pattern, is_glob: false });
        }
        [subject] => subject,
        _ => return Err(ProposalError::SeveralSubjects),
    };
    // If the subject is the name of a path, the call moves or removes the path. This affects
    // everything below the path, but a rule can't say what may be there.
    let acts_on_contents = subject.kind == SubjectKind::Name;
    if acts_on_contents {
        return Err(ProposalError::WholeTree);
    }
    // The call may send data to a URL, unless it only reads.
    let may_send_data = subject.kind == SubjectKind::Url && context.acts();
    if may_send_data {
        return Err(ProposalError::Sends);
    }
    let uses_earlier_variables = !context.carried.variables.is_empty();
    if uses_earlier_variables {
        return Err(ProposalError::Variables);
    }
    Ok(AllowRule { tool: tool_name, pattern: subject.text.clone(), is_glob: false })
}

/// Proposes `rule` if the configured rules and `rule` together allow the call.
///
/// # Errors
///
/// Returns an error if the rule can't be written, or if it wouldn't allow the call.
async fn try_rule(
    context: &CallContext,
    config: &Arc<Config>,
    rule: AllowRule,
) -> Result<Proposal, ProposalError> {
    let rule = NewRule::Permission(rule);
    let changed_config = with_rule(config, &rule).await?;
    let action = context.action().ok_or(ProposalError::NoTool)?;
    let is_approved = false;
    let decision = changed_config.policy()?.decide(&action, is_approved);
    proposal(rule, config, decision)
}

/// Returns the configuration with a further rule.
async fn with_rule(config: &Arc<Config>, rule: &NewRule) -> Result<Config, ProposalError> {
    let config = Arc::clone(config);
    let rule = rule.clone();
    // Changing the configuration reads files.
    let changing = tokio::task::spawn_blocking(move || config.with_rule(&rule));
    let changed = changing.await?;
    Ok(changed?)
}

/// Returns the proposal of a rule, if the rule leads to a decision that allows.
fn proposal(rule: NewRule, config: &Config, decision: Decision) -> Result<Proposal, ProposalError> {
    let file = config.own_file().to_string();
    match decision.verdict {
        Verdict::Allow => Ok(Proposal { rule, file }),
        Verdict::Ask | Verdict::Deny => {
            Err(ProposalError::Ineffective { file, decision: Box::new(decision) })
        }
    }
}
