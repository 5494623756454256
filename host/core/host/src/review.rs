//! Asks a model to judge calls that the gates allow, if `[tools.adversarial_policy]` is enabled.
//!
//! The review comes after the gates that need no model, so calls that they deny aren't sent to a
//! provider. The review comes before approval, and no approval skips it. A call that can't be
//! judged is denied.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolhold_catalogue::CallContext;
use toolhold_config::{Config, MAX_POLICIES, OnReviewDenial};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{BoxFuture, CancellationToken, Category, Content, Failure, HostError};
use toolhold_policy::{Decision, Gate, Origin, OwnTable, Phase, Verdict};

/// The configuration table of the review.
const TABLE: &str = "tools.adversarial_policy";

/// Reviews at a time in one host. Further reviews wait, and the wait doesn't use up their time
/// limit. Otherwise an agent could make many calls at once so that `fail_open` allows some of them.
const MAX_REVIEWS: usize = 16;

/// Bytes of a reason or an error of a reviewer.
const MAX_REASON: usize = 400;

/// Judges calls by the operator's policies before the calls run. Implemented by types that can ask
/// a model.
pub trait CallReviewer: Send + Sync + 'static {
    /// Judges a call. The host drops the future when `timeout_ms` is over, and when the call is
    /// cancelled.
    fn review<'a>(&'a self, call: &'a ReviewedCall<'a>) -> BoxFuture<'a, ReviewVerdict>;
}

/// A call to judge. The operator wrote the policies. All other fields are untrusted, not
/// neutralised, and may contain secrets.
#[derive(Clone, Copy, Debug)]
pub struct ReviewedCall<'a> {
    /// The policies for calls. There is at least one.
    pub policies: &'a [String],
    /// The tool's full name.
    pub tool: &'a str,
    /// The plugin or provider that offers the tool.
    pub provider: &'a str,
    /// The part of an agent's work that makes the call.
    pub phase: Option<Phase>,
    /// The agent that calls, unless it is the primary agent.
    pub caller: Option<&'a str>,
    /// The arguments in the form that the tool gets. At most 1 MiB as JSON text.
    pub arguments: &'a Value,
    /// Larger or binary arguments. The JSON refers to them.
    pub attachments: &'a [Content],
}

/// The answer of a reviewer about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewVerdict {
    /// The call keeps to the policies.
    Allow,
    /// The call breaks a policy, or the answer isn't valid. Contains the reason. People see the
    /// reason. The agent doesn't see it, because the agent could use it to argue.
    Deny(String),
    /// The call wasn't judged. Contains the fault. `fail_open` decides on the call.
    Failed(String),
}

/// The result of a review.
pub(crate) struct Review {
    /// The denial. `None` if the call is allowed.
    pub(crate) decision: Option<Decision>,
    /// The text for the audit log: `allow`, `deny: REASON` or `error: MESSAGE`.
    pub(crate) record: String,
}

/// The settings of the review, if it is enabled.
#[derive(Debug)]
pub(crate) struct ReviewRules {
    policies: Vec<String>,
    exempt_tools: Vec<String>,
    provider: String,
    on_deny: Verdict,
    fail_open: bool,
    time: Duration,
    /// The place in the configuration that enables the review.
    place: Origin,
    table: OwnTable,
}

impl ReviewRules {
    /// Reads the settings of the review. Returns `None` if no call is reviewed.
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

    /// Checks whether the policy exempts calls of this tool. The check compares the tool's full
    /// name. The name in the call may differ.
    pub(crate) fn exempts(&self, context: &CallContext) -> bool {
        let Some(tool) = &context.tool else { return false };
        self.exempt_tools.contains(&tool.definition.name)
    }

    /// Describes the review of a call, for a person.
    pub(crate) fn describe(&self) -> String {
        let millis = self.time.as_millis();
        let policies = match self.policies.len() {
            1 => "1 policy".to_owned(),
            count => format!("{count} policies"),
        };
        let late = if self.fail_open { "runs (fail_open)" } else { "is denied" };
        format!(
            "the model of [providers.{}] judges the call by {policies}; without an answer within {millis} ms the call {late}",
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

    /// Returns the denial of all calls if no call can be judged.
    fn missing(&self, has_reviewer: bool) -> Option<Decision> {
        let (rule, line) = if self.provider.is_empty() {
            ("a model has to judge every call, but `provider` is missing", "provider = \"NAME\"")
        } else if self.policies.is_empty() {
            ("a model has to judge every call, but there are no policies", "policies = [\"…\"]")
        } else if !has_reviewer {
            let rule = "a model has to judge every call, but this program has no reviewer";
            let remedy = "The program that embeds Toolhold has to give its host a reviewer.";
            return Some(self.decide(Verdict::Deny, rule, remedy.to_owned()));
        } else {
            return None;
        };
        let remedy = format!("To have calls judged, {}", self.table.lines(line));
        Some(self.decide(Verdict::Deny, rule, remedy))
    }

    /// Returns the effect of a verdict on a call. Only the record has the reason.
    fn conclude(&self, verdict: ReviewVerdict, context: &CallContext) -> Review {
        let remedy = format!(
            "`toolhold policy explain {}` shows the user the reason; the policies are in {}.",
            context.id, self.table
        );
        match verdict {
            ReviewVerdict::Allow => Review { decision: None, record: "allow".to_owned() },
            ReviewVerdict::Deny(reason) => {
                let rule = "a model judged the call by the policies and denied it";
                let decision = self.decide(self.on_deny, rule, remedy);
                let record = format!("deny: {}", bounded(&reason));
                Review { decision: Some(decision), record }
            }
            ReviewVerdict::Failed(why) if self.fail_open => {
                let why = bounded(&why);
                tracing::warn!(call = %context.id, "a call runs without a model's judgement, by fail_open: {why}");
                Review { decision: None, record: format!("error: {why} (fail_open)") }
            }
            ReviewVerdict::Failed(why) => {
                let rule = "calls that no model could judge are denied";
                let decision = self.decide(Verdict::Deny, rule, remedy);
                let record = format!("error: {}", bounded(&why));
                Review { decision: Some(decision), record }
            }
        }
    }
}

fn bounded(text: &str) -> String {
    neutral_line(cut(text.trim(), MAX_REASON))
}

/// Has calls judged.
pub(crate) struct Reviews {
    reviewer: Option<Arc<dyn CallReviewer>>,
    places: Semaphore,
}

impl Reviews {
    pub(crate) fn new(reviewer: Option<Arc<dyn CallReviewer>>) -> Self {
        Self { reviewer, places: Semaphore::new(MAX_REVIEWS) }
    }

    /// Returns the denial of all calls if no call can be judged by these rules.
    pub(crate) fn missing(&self, rules: &ReviewRules) -> Option<Decision> {
        rules.missing(self.reviewer.is_some())
    }

    /// Has a call judged.
    ///
    /// # Errors
    ///
    /// The call was cancelled meanwhile.
    pub(crate) async fn judge(
        &self,
        rules: &ReviewRules,
        context: &CallContext,
        cancel: &CancellationToken,
    ) -> Result<Review, Failure> {
        if let Some(missing) = self.missing(rules) {
            // `fail_open` is for a model that doesn't answer, not for a gate that can't work.
            let record = format!("error: {}", missing.rule);
            return Ok(Review { decision: Some(missing), record });
        }
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
        let Ok(_place) = self.places.acquire().await else {
            return ReviewVerdict::Failed("the host ends".to_owned());
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
        let verdict = tokio::time::timeout(rules.time, reviewer.review(&call)).await;
        verdict.unwrap_or_else(|_| {
            let millis = rules.time.as_millis();
            ReviewVerdict::Failed(format!("no answer within {millis} ms"))
        })
    }
}
