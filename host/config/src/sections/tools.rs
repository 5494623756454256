//! `[tools]`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};
use crate::{
    Authorization, Bounded, Dependencies, FileTools, Filters, Limits, Overflow, PermissionRule,
    PolicyRules, Redaction, ResultCache, Retry, Shell, Web,
};

section! {
    /// What holds for all tools.
    pub struct Tools {
        /// Whether there are tools: `false` takes all of them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// Seconds that a call may take where the tool asks for no other time; never more than
        /// `max_call`.
        pub call: Bounded<1, 86_400> = Bounded::clamped(30), Rule::Smaller;
        /// The most seconds that a tool's `timeout` argument can ask for.
        pub max_call: Bounded<1, 86_400> = Bounded::clamped(600), Rule::Smaller;
        /// Calls that run at once; more wait for a place. 0: eight for each processor, at least 16.
        pub max_concurrent: Bounded<0, 1024> = Bounded::clamped(0), Rule::SmallerOrAutomatic;
        /// Seconds that a plugin which was called has a few fresh instances waiting for its next
        /// call. 0: none is made before it is asked for.
        pub keep_ready: Bounded<0, 86_400> = Bounded::clamped(30), Rule::Smaller;
        /// How much may happen without a person, where no permission says so.
        pub autonomy: Autonomy, Rule::Stricter(&["read-only", "supervised", "full"]);
        /// Acting calls that one session may make within an hour, whenever it begins; more are
        /// answered with `rate`. 0: any number.
        pub max_actions_per_hour: Bounded<0, 10_000> = Bounded::clamped(0), Rule::SmallerOrUnbounded;
        /// Calls that one session may make, each counted once however often it is tried; more are
        /// answered with `quota_blocked`. 0: any number.
        pub max_tool_calls_per_session: Bounded<0, 1_000_000> = Bounded::clamped(0), Rule::SmallerOrUnbounded;
        /// What a tool may do, by its name or an alias: a list of rules, the first of which that
        /// matches counts. A pattern is compared with what the tool acts on: a path (as in
        /// `deny_read`, but case doesn't matter), a command, a URL; else with the tool's name and
        /// its arguments as JSON. With `exact = true`, which is for what is allowed, the pattern is
        /// that very text: no wildcard, the case counts, and nothing below.
        #[schemars(extend("examples" = [{ "write": [{ "pattern": "notes/**", "action": "allow" }] }]))]
        pub permissions: BTreeMap<String, Vec<PermissionRule>>, Rule::Each(&Rule::Denials("action"));
        /// Rules over all tools.
        pub policy: PolicyRules, Rule::Table(PolicyRules::RULES);
        /// More rules over all tools.
        pub authorization: Authorization, Rule::Table(Authorization::RULES);
        /// What commands may do, whichever tool runs them, and what the processes of calls see and
        /// use.
        pub shell: Shell, Rule::Table(Shell::RULES);
        /// Where the built-in web tools reach, and what of an answer they take.
        pub web: Web, Rule::Table(Web::RULES);
        /// What one call may use.
        pub limits: Limits, Rule::Table(Limits::RULES);
        /// What file tools may reach.
        pub file: FileTools, Rule::Table(FileTools::RULES);
        /// Which tools wait for others.
        pub dependencies: Dependencies, Rule::Table(Dependencies::RULES);
        /// How calls that failed are tried again.
        pub retry: Retry, Rule::Table(Retry::RULES);
        /// Answers that serve again in their session.
        pub result_cache: ResultCache, Rule::Table(ResultCache::RULES);
        /// Secrets in answers.
        pub redaction: Redaction, Rule::Table(Redaction::RULES);
        /// What is left out of answers.
        pub filters: Filters, Rule::Table(Filters::RULES);
        /// Answers that are too long for a model.
        pub overflow: Overflow, Rule::Table(Overflow::RULES);
    }
}

impl Tools {
    /// How long a call may take that asks for no other time.
    pub fn call_time(&self) -> Duration {
        Duration::from_secs(self.call.get().min(self.max_call.get()))
    }

    /// The longest time that a call can ask for.
    pub fn max_call_time(&self) -> Duration {
        Duration::from_secs(self.max_call.get())
    }
}

/// How much may happen without a person. What only reads is allowed within its grants, whatever
/// stands here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Autonomy {
    /// Nothing acts.
    ReadOnly,
    /// What acts asks a person, unless a permission allows it.
    #[default]
    Supervised,
    /// What acts is allowed, unless a permission asks or denies.
    Full,
}
