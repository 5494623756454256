//! `[tools]`: the time limits of calls, the actions of an agent that need no approval, and the
//! tables of single tools.

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
        /// Whether tools exist. `false` removes all tools from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Seconds for a call without a `timeout` argument. The value never exceeds `max_call`.
        pub call: Bounded<1, 86_400> = Bounded::clamped(30), Narrowing::Smaller;
        /// The largest number of seconds that a tool's `timeout` argument can ask for.
        pub max_call: Bounded<1, 86_400> = Bounded::clamped(600), Narrowing::Smaller;
        /// Calls that run at the same time. Further calls wait. 0 means eight for each processor,
        /// and at least 16.
        pub max_concurrent: Bounded<0, 1024> = Bounded::clamped(0), Narrowing::SmallerOrAutomatic;
        /// Seconds after a plugin's call for which a few instances stay ready for its next call. 0
        /// means that no instance is created in advance.
        pub keep_ready: Bounded<0, 86_400> = Bounded::clamped(30), Narrowing::Smaller;
        /// The calls that need no approval if no permission decides. `"supervised"` is an older
        /// name of `"ask"`.
        pub autonomy: Autonomy, Narrowing::Stricter(&["read-only", "ask|supervised", "sandboxed", "full"]);
        /// Acting calls that one session may make in any period of one hour. Further calls fail
        /// with `rate`. 0 means any number.
        pub max_actions_per_hour: Bounded<0, 10_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// Calls that one session may make. Retries of a call don't count. Further calls fail with
        /// `quota_blocked`. 0 means any number.
        pub max_tool_calls_per_session: Bounded<0, 1_000_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// Rules for a tool, by its name, an alias, or a glob for tools of one plugin or server
        /// (`"git__*"`). The first rule that matches decides; of several names of a tool, the
        /// strictest answer. A rule of a glob allows no tool that says that it may destroy. A
        /// pattern is compared with the subject of the call: a path (as in `deny_read`, but
        /// ignoring case), a command, a URL; otherwise with the tool's name and its arguments as
        /// JSON. `exact = true` is for rules that allow: the pattern is then compared literally,
        /// without wildcards, case-sensitive, and doesn't cover files below a directory.
        #[schemars(extend("examples" = [{ "write": [{ "pattern": "notes/**", "action": "allow" }] }]))]
        pub permissions: BTreeMap<String, Vec<PermissionRule>>, Narrowing::Each(&Narrowing::Denials("action"));
        /// Rules for all tools.
        pub policy: PolicyRules, Narrowing::Table(PolicyRules::RULES);
        /// More rules of `[tools.policy]`, appended when the configuration is loaded.
        #[schemars(extend("deprecated" = true))]
        pub authorization: Authorization, Narrowing::Table(Authorization::RULES);
        /// A model that judges calls before they run.
        pub adversarial_policy: AdversarialPolicy, Narrowing::Table(AdversarialPolicy::RULES);
        /// Rules for commands of all tools, and the sandbox of their processes.
        pub shell: Shell, Narrowing::Table(Shell::RULES);
        /// The hosts that the built-in web tools may reach, and the limits of their requests.
        pub web: Web, Narrowing::Table(Web::RULES);
        /// The built-in memory, in which models save entries.
        pub memory: Memory, Narrowing::Table(Memory::RULES);
        /// The tool that runs the compilers and linters of a project.
        pub diagnostics: Diagnostics, Narrowing::Table(Diagnostics::RULES);
        /// Language servers for `search_code`.
        pub code: CodeSearch, Narrowing::Table(CodeSearch::RULES);
        /// The limits of one call.
        pub limits: Limits, Narrowing::Table(Limits::RULES);
        /// The directories and files that file tools may use.
        pub file: FileTools, Narrowing::Table(FileTools::RULES);
        /// Tools that are blocked until other tools have succeeded.
        pub dependencies: Dependencies, Narrowing::Table(Dependencies::RULES);
        /// Retries of failed calls.
        pub retry: Retry, Narrowing::Table(Retry::RULES);
        /// The cache of answers in a session.
        pub result_cache: ResultCache, Narrowing::Table(ResultCache::RULES);
        /// The removal of secrets from answers.
        pub redaction: Redaction, Narrowing::Table(Redaction::RULES);
        /// Filters that shorten answers.
        pub filters: Filters, Narrowing::Table(Filters::RULES);
        /// Answers that are too long for a model.
        pub overflow: Overflow, Narrowing::Table(Overflow::RULES);
        /// Saved changes in files, for `toolhold undo`.
        pub undo: Undo, Narrowing::Table(Undo::RULES);
        /// Scheduled tasks.
        pub scheduler: Scheduler, Narrowing::Table(Scheduler::RULES);
    }
}

impl Tools {
    /// Returns the time limit of a call without a `timeout` argument.
    pub fn call_time(&self) -> Duration {
        Duration::from_secs(self.call.get().min(self.max_call.get()))
    }

    /// Returns the longest time limit that a call can ask for.
    pub fn max_call_time(&self) -> Duration {
        Duration::from_secs(self.max_call.get())
    }
}

/// The calls that need no approval. At every level, calls that only read are allowed within their
/// grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Autonomy {
    /// Calls that act are denied.
    ReadOnly,
    /// Acting calls need approval, unless a permission allows them. `"supervised"` has the same
    /// meaning.
    #[serde(alias = "supervised")]
    Ask,
    /// Commands of low and medium risk and file tools that write are allowed. Their changes are
    /// limited to granted directories, don't use the network, and can be undone. All other acting
    /// calls need approval, unless a permission allows them.
    #[default]
    Sandboxed,
    /// Acting calls are allowed, unless a permission asks or denies.
    Full,
}
