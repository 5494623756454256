//! `[tools]`: the time limits of calls, how much an agent may do without approval, and the tables
//! of single tools.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{
    AdversarialPolicy, Authorization, Bounded, CodeSearch, Dependencies, Diagnostics, FileTools,
    Filters, Limits, Memory, Overflow, PermissionRule, PolicyRules, Redaction, ResultCache, Retry,
    Scheduler, Shell, Undo, Web,
};

section! {
    /// Settings of all tools.
    pub struct Tools {
        /// Whether there are tools. `false` takes all of them out of the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Seconds that a call may take if it names no other time; never more than `max_call`.
        pub call: Bounded<1, 86_400> = Bounded::clamped(30), Narrowing::Smaller;
        /// The largest number of seconds that a tool's `timeout` argument can ask for.
        pub max_call: Bounded<1, 86_400> = Bounded::clamped(600), Narrowing::Smaller;
        /// Calls that run at the same time; further calls wait for a slot. 0 means eight for each
        /// processor, at least 16.
        pub max_concurrent: Bounded<0, 1024> = Bounded::clamped(0), Narrowing::SmallerOrAutomatic;
        /// Seconds after a call of a plugin in which a few warm instances are ready for its next
        /// call. 0 means that no instance is made in advance.
        pub keep_ready: Bounded<0, 86_400> = Bounded::clamped(30), Narrowing::Smaller;
        /// What may happen without approval if no permission decides. `"supervised"` is an older
        /// name of `"ask"`.
        pub autonomy: Autonomy, Narrowing::Stricter(&["read-only", "ask|supervised", "sandboxed", "full"]);
        /// Acting calls that one session may make in any period of one hour; further calls fail
        /// with `rate`. 0 means any number.
        pub max_actions_per_hour: Bounded<0, 10_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// Calls that one session may make, each counted once however often it is retried; further
        /// calls fail with `quota_blocked`. 0 means any number.
        pub max_tool_calls_per_session: Bounded<0, 1_000_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// What a tool may do, by its name or an alias: a list of rules, of which the first that
        /// matches decides. A pattern is compared with what the tool acts on: a path (as in
        /// `deny_read`, but without regard to case), a command, a URL; otherwise with the tool's
        /// name and its arguments as JSON. `exact = true` is for rules that allow: the pattern is
        /// then compared as it is, without wildcards, with regard to case, and doesn't cover what
        /// lies below.
        #[schemars(extend("examples" = [{ "write": [{ "pattern": "notes/**", "action": "allow" }] }]))]
        pub permissions: BTreeMap<String, Vec<PermissionRule>>, Narrowing::Each(&Narrowing::Denials("action"));
        /// Rules over all tools.
        pub policy: PolicyRules, Narrowing::Table(PolicyRules::RULES);
        /// More rules of `[tools.policy]`, appended when the configuration is loaded.
        #[schemars(extend("deprecated" = true))]
        pub authorization: Authorization, Narrowing::Table(Authorization::RULES);
        /// A model that judges calls before they run.
        pub adversarial_policy: AdversarialPolicy, Narrowing::Table(AdversarialPolicy::RULES);
        /// What commands may do, whichever tool runs them, and what the processes of calls see and
        /// use.
        pub shell: Shell, Narrowing::Table(Shell::RULES);
        /// What the built-in web tools may reach, and how much of an answer they take.
        pub web: Web, Narrowing::Table(Web::RULES);
        /// What the built-in memory keeps of what models save.
        pub memory: Memory, Narrowing::Table(Memory::RULES);
        /// The tool that runs the compilers and linters of a project.
        pub diagnostics: Diagnostics, Narrowing::Table(Diagnostics::RULES);
        /// Whom `search_code` asks beside its index.
        pub code: CodeSearch, Narrowing::Table(CodeSearch::RULES);
        /// What one call may use.
        pub limits: Limits, Narrowing::Table(Limits::RULES);
        /// What file tools may reach.
        pub file: FileTools, Narrowing::Table(FileTools::RULES);
        /// Which tools are blocked until other tools have succeeded.
        pub dependencies: Dependencies, Narrowing::Table(Dependencies::RULES);
        /// How failed calls are retried.
        pub retry: Retry, Narrowing::Table(Retry::RULES);
        /// Answers that may serve again in their session.
        pub result_cache: ResultCache, Narrowing::Table(ResultCache::RULES);
        /// How secrets are removed from answers.
        pub redaction: Redaction, Narrowing::Table(Redaction::RULES);
        /// What filters leave out of answers.
        pub filters: Filters, Narrowing::Table(Filters::RULES);
        /// Answers that are too long for a model.
        pub overflow: Overflow, Narrowing::Table(Overflow::RULES);
        /// What is saved of the changes in files.
        pub undo: Undo, Narrowing::Table(Undo::RULES);
        /// Tasks that run at a later time.
        pub scheduler: Scheduler, Narrowing::Table(Scheduler::RULES);
    }
}

impl Tools {
    /// The time limit of a call that names no other time.
    pub fn call_time(&self) -> Duration {
        Duration::from_secs(self.call.get().min(self.max_call.get()))
    }

    /// The longest time that a call can ask for.
    pub fn max_call_time(&self) -> Duration {
        Duration::from_secs(self.max_call.get())
    }
}

/// What may happen without approval. Calls that only read are allowed within their grants at every
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Autonomy {
    /// Nothing may act.
    ReadOnly,
    /// Acting calls need approval, unless a permission allows them. `"supervised"` is the same.
    #[serde(alias = "supervised")]
    Ask,
    /// Commands of low and medium risk, and file tools that write, are allowed: they act only where
    /// they were granted, without the network, and can be undone. All other acting calls need
    /// approval, unless a permission allows them.
    #[default]
    Sandboxed,
    /// Acting calls are allowed, unless a permission asks or denies.
    Full,
}
