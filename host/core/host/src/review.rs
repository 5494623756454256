//! Lets a model review calls that the rules allow, if `[tools.adversarial_policy]` is enabled.
//!
//! A denied call isn't sent to the model. The review comes before approval, and an approval doesn't
//! replace the review. A call that can't be reviewed is denied.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolhold_catalogue::CallContext;
use toolhold_config::{Config, MAX_POLICIES, OnReviewDenial};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{BoxFuture, CancellationToken, Category, Content, Failure, HostError};
use toolhold_policy::{Decision, Gate, Origin, OwnTable, Phase, Verdict};

const TABLE: &str = "tools.adversarial_policy";

/// Maximum number of parallel reviews of one host. Further reviews wait, and the wait doesn't use
/// their time limit. Otherwise, an agent could overload the reviewer until `fail_open` allows
/// calls.
const MAX_REVIEWS: usize = 16;

/// Maximum length of a reviewer's reason or error in bytes. A longer text is cut.
const MAX_REASON: usize = 400;

/// Judges calls by the configured policies before they run.
pub trait CallReviewer: Send + Sync + 'static {
    /// Judges a call. The host drops the future after `timeout_ms`, and when the call is cancelled.
    fn review<'a>(&'a self, call: &'a ReviewedCall<'a>) -> BoxFuture<'a, ReviewVerdict>;
}

/// A call to judge. The policies come from the configuration. All other fields are untrusted, not
/// neutralised, and may contain secrets.
#[derive(Clone, Copy, Debug)]
pub struct ReviewedCall<'a> {
    /// The policies. There is at least one.
    pub policies: &'a [String],
    /// The tool's full name.
    pub tool: &'a str,
    /// The source of the tool.
    pub provider: &'a str,
    /// The phase of the agent's work.
    pub phase: Option<Phase>,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub caller: Option<&'a str>,
    /// The arguments in the form for the tool. The default limit is 1 MiB as JSON.
    pub arguments: &'a Value,
    /// Large or binary arguments. The JSON refers to them.
    pub attachments: &'a [Content],
}

/// The verdict of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewVerdict {
    /// The call follows the policies.
    Allow,
    /// The reason why the call violates a policy, or why the model's answer is invalid. Only people
    /// see the reason, because the agent could argue against it.
    Deny(String),
    /// The reason why the call wasn't judged. `fail_open` decides on the call.
    Failed(String),
}

pub(crate) struct Review {
    /// The new decision. `None` means that the call is allowed.
    pub(crate) decision: Option<Decision>,
    /// The text for the audit log: `allow`, `deny: REASON` or `error: MESSAGE`.
    pub(crate) record: String,
}

#[derive(Debug)]
pub(crate) struct ReviewRules {
    policies: Vec<String>,
    exempt_tools: Vec<String>,
    provider: String,
    on_deny: Verdict,
    fail_open: bool,
    time: Duration,
    /// Where the configuration enables the review.
    place: Origin,
    table: OwnTable,
}

impl ReviewRules {
    /// Returns `None` if calls aren't reviewed.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if there are too many policies.
    pub(crate) fn from_config(config: &Config) -> Result<Option<Self>, HostError> {
        let settings = &config.values.tools.adversarial_policy;
        if !settings.enabled {
            return Ok(None);
        }
        let policies: Vec<String> =
            settings.policies.iter().map(|policy| policy.as_str().to_owned()).collect();
        if policies.len() > MAX_POLICIES {
            return Err(HostError::Config(format!(
                "[{TABLE}] has {} policies; the limit is {MAX_POLICIES}, including those of a ceiling",
                policies.len()
            )));
        }
        Ok(Some(Self {
            policies,
            exempt_tools: settings.exempt_tools.clone(),
            provider: settings.provider.clone(),
            on_deny: match settings.on_deny {
                OnReviewDenial::Deny => Verdict::Deny,
                OnReviewDenial::Ask => Verdict::Ask,
            },
            fail_open: settings.fail_open,
            time: Duration::from_millis(settings.timeout_ms.get()),
            place: config.origin(&format!("{TABLE}.enabled")),
            table: config.own_table(TABLE),
        }))
    }

    /// Checks whether `exempt_tools` contains the tool by its full name, even if the call uses an
    /// alias.
    pub(crate) fn exempts(&self, context: &CallContext) -> bool {
        let Some(tool) = &context.tool else { return false };
        self.exempt_tools.contains(&tool.definition.name)
    }

    pub(crate) fn describe(&self) -> String {
        let millis = self.time.as_millis();
        let policies = match self.policies.len() {
            1 => "1 policy".to_owned(),
            count => format!("{count} policies"),
        };
        let consequence = if self.fail_open { "runs (fail_open)" } else { "is denied" };
        format!(
            "the model of [providers.{}] judges the call by {policies}; without an answer within \
             {millis} ms, the call {consequence}",
            self.provider
        )
    }

    fn decide(&self, verdict: Verdict, rule: &'static str, remedy: String) -> Decision {
        Decision {
            verdict,
            gate: Gate::Review,
            rule: rule.into(),
            place: self.place.text.clone(),
            remedy: remedy.into(),
        }
    }

    /// Returns the denial of all calls if a requirement of reviews is missing, or else `None`.
    fn missing(&self, has_reviewer: bool) -> Option<Decision> {
        if self.provider.is_empty() {
            let rule = "a model has to judge every call, but `provider` is missing";
            return Some(self.deny_by_missing_line(rule, "provider = \"NAME\""));
        }
        if self.policies.is_empty() {
            let rule = "a model has to judge every call, but there are no policies";
            return Some(self.deny_by_missing_line(rule, "policies = [\"…\"]"));
        }
        if !has_reviewer {
            let rule = "a model has to judge every call, but this program has no reviewer";
            let remedy = "The program that embeds Toolhold has to give the host a reviewer.";
            return Some(self.decide(Verdict::Deny, rule, remedy.to_owned()));
        }
        None
    }

    fn deny_by_missing_line(&self, rule: &'static str, line: &str) -> Decision {
        let remedy = format!("To let a model judge calls, {}", self.table.lines(line));
        self.decide(Verdict::Deny, rule, remedy)
    }

    /// Converts a verdict. Only the audit log gets the reason.
    fn conclude(&self, verdict: ReviewVerdict, context: &CallContext) -> Review {
        let remedy = format!(
            "`toolhold policy explain {}` shows the user the reason; the policies are in {}.",
            context.id, self.table
        );
        match verdict {
            ReviewVerdict::Allow => Review { decision: None, record: "allow".to_owned() },
            ReviewVerdict::Deny(reason) => {
                let rule = "a model judged the call by the policies and denied the call";
                let decision = self.decide(self.on_deny, rule, remedy);
                let record = format!("deny: {}", shorten(&reason));
                Review { decision: Some(decision), record }
            }
            ReviewVerdict::Failed(why) if self.fail_open => {
                let reason = shorten(&why);
                tracing::warn!(call = %context.id, "a call runs without a model's judgement, because `fail_open` is true: {reason}");
                Review { decision: None, record: format!("error: {reason} (fail_open)") }
            }
            ReviewVerdict::Failed(why) => {
                let rule = "calls that no model could judge are denied";
                let decision = self.decide(Verdict::Deny, rule, remedy);
                let record = format!("error: {}", shorten(&why));
                Review { decision: Some(decision), record }
            }
        }
    }
}

fn shorten(text: &str) -> String {
    neutral_line(cut(text.trim(), MAX_REASON))
}

pub(crate) struct Reviews {
    reviewer: Option<Arc<dyn CallReviewer>>,
    review_permits: Semaphore,
}

impl Reviews {
    pub(crate) fn new(reviewer: Option<Arc<dyn CallReviewer>>) -> Self {
        Self { reviewer, review_permits: Semaphore::new(MAX_REVIEWS) }
    }

    /// Returns the denial of all calls if no call can be reviewed.
    pub(crate) fn missing(&self, rules: &ReviewRules) -> Option<Decision> {
        rules.missing(self.reviewer.is_some())
    }

    /// Lets the model review a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is cancelled.
    pub(crate) async fn judge(
        &self,
        rules: &ReviewRules,
        context: &CallContext,
        cancel: &CancellationToken,
    ) -> Result<Review, Failure> {
        if let Some(denial) = self.missing(rules) {
            // `fail_open` is for a model that doesn't answer, not for an incomplete configuration.
            let record = format!("error: {}", denial.rule);
            return Ok(Review { decision: Some(denial), record });
        }
        // This never happens, because `missing` returns a denial if there is no reviewer.
        let Some(reviewer) = &self.reviewer else {
            return Ok(Review { decision: None, record: String::new() });
        };
        let asking = cancel.run_until_cancelled(self.ask(&**reviewer, rules, context));
        let Some(verdict) = asking.await else {
            let message = "the call was cancelled while a model judged it";
            return Err(Failure::new(Category::Cancelled, message));
        };
        Ok(rules.conclude(verdict, context))
    }

    async fn ask(
        &self,
        reviewer: &dyn CallReviewer,
        rules: &ReviewRules,
        context: &CallContext,
    ) -> ReviewVerdict {
        let Ok(_permit) = self.review_permits.acquire().await else {
            return ReviewVerdict::Failed("the host is shutting down".to_owned());
        };
        let tool = context.tool.as_deref();
        let call = ReviewedCall {
            policies: &rules.policies,
            tool: tool.map_or(&*context.requested_tool, |tool| &tool.definition.name),
            provider: tool.map_or("", |tool| tool.provider.name()),
            phase: context.phase,
            caller: context.caller.as_deref(),
            arguments: &context.arguments,
            attachments: &context.attachments,
        };
        match tokio::time::timeout(rules.time, reviewer.review(&call)).await {
            Ok(verdict) => verdict,
            Err(_) => {
                let millis = rules.time.as_millis();
                ReviewVerdict::Failed(format!("the model didn't answer within {millis} ms"))
            }
        }
    }
}
