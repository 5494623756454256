//! The keys of `toolhold.toml`. Each table has a file with the type, the default and the meaning of
//! every key, and the rule for changes by a file in the working directory.
//!
//! `toolhold-config` loads the values and narrows them.
//!
//! [`presets`] are named sets of grants.

mod agent;
mod amount;
mod approvals;
mod audit;
mod bounded;
mod code;
mod code_index;
mod dependencies;
mod diagnostics;
mod file;
mod filters;
mod hosts;
mod installing;
mod known_providers;
mod limits;
mod mcp;
mod memory;
mod narrowing;
mod network;
mod overflow;
mod paths;
mod permissions;
mod plugin_folder;
mod plugins;
mod policy;
pub mod presets;
mod principals;
mod redaction;
mod result_cache;
mod retry;
mod review;
mod scheduler;
mod secret_references;
mod secrets;
mod serve;
mod shell;
mod skills;
mod string_types;
mod telemetry;
mod tools;
mod undo;
mod variable_name;
mod web;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::section;

pub use agent::{
    Agent, Delegate, ModelFormat, Prices, ProviderSettings, Tafc, ThinkingEffort, ToolFilter,
    Utility,
};
pub use amount::Amount;
pub use approvals::{Approvals, McpApprovals};
pub use audit::{Audit, OnFailure};
pub use bounded::Bounded;
pub use code::{CodeSearch, LanguageServers, ServerLanguage};
pub use code_index::{CodeIndex, Qdrant, VectorBackend};
pub use dependencies::{Dependencies, DependencyRule, Ratio};
pub use diagnostics::{Checker, Diagnostics};
pub use file::FileTools;
pub use filters::{BUILT_IN_FILTERS, FilterSecurity, Filters, WrittenExpression};
pub use hosts::{
    HostGrant, Method, UrlScheme, WrittenHost, WrittenPathPattern, WrittenPrivateHosts,
};
pub use installing::{AllowedPlugin, InstallKey, Installing, Parsed};
pub use known_providers::{KNOWN_PROVIDERS, KnownProvider};
pub use limits::{Limits, PluginLimits};
pub use mcp::{Mcp, McpOauth, McpServer};
pub use memory::Memory;
pub use narrowing::Narrowing;
pub use network::{Network, WithoutProxy, WrittenProxy};
pub use overflow::Overflow;
pub use paths::{AllowedPath, PathAccess, PathGlob, PathGlobError};
pub use permissions::{PermissionAction, PermissionRule, WrittenPattern};
pub use plugin_folder::{PluginFolder, Reload};
pub use plugins::{ArgumentPart, InstanceLifetime, Plugin, PluginSettings, Sha256, TrustLevel};
pub use policy::{
    ArgumentTest, Authorization, PolicyAccess, PolicyEffect, PolicyPhase, PolicyRule, PolicyRules,
};
pub use principals::Principal;
pub use redaction::Redaction;
pub use result_cache::ResultCache;
pub use retry::Retry;
pub use review::{
    AdversarialPolicy, MAX_POLICIES, OnReviewDenial, PolicySentence, PolicySentenceError,
};
pub use scheduler::Scheduler;
pub use secret_references::{fill_in_secrets, referenced_secrets};
pub use secrets::{
    HeaderName, PathPrefix, Prefix, QueryName, Secret, SecretOrigin, ServerSecret, ShellSecret,
    WrittenSecretHost, is_in_secrets,
};
pub use serve::{OAuth, Serve, Structured};
pub use shell::{
    JobSettings, NetworkGrant, PresetName, ProcessLimits, SandboxMode, Shell, WrittenProgram,
};
pub use skills::Skills;
pub use telemetry::Telemetry;
pub use tools::{Autonomy, Tools};
pub use undo::Undo;
pub use variable_name::VariableName;
pub use web::{OtherDomains, Web};

section! {
    /// The whole configuration. Every key has a safe default: without any file, the tools work in
    /// the working directory.
    pub struct ConfigValues {
        /// Settings of all tools.
        pub tools: Tools, Narrowing::Table(Tools::RULES);
        /// Approvals of calls.
        pub approvals: Approvals, Narrowing::Table(Approvals::RULES);
        /// The server of `toolhold serve`. `structured` is about answers. All other keys are about
        /// HTTP.
        pub serve: Serve, Narrowing::Table(Serve::RULES);
        /// The proxy and the certificate authorities for the requests of plugins and of Toolhold
        /// itself.
        pub network: Network, Narrowing::Table(Network::RULES);
        /// A folder whose plugins are loaded even if the configuration doesn't name them.
        pub plugin_folder: PluginFolder, Narrowing::Table(PluginFolder::RULES);
        /// The plugins that may be installed and loaded, from any source.
        pub installing: Installing, Narrowing::Table(Installing::RULES);
        /// The audit log of all calls: `audit/audit.jsonl` in Toolhold's data folder.
        pub audit: Audit, Narrowing::Table(Audit::RULES);
        /// Traces and metrics of calls, for OpenTelemetry.
        pub telemetry: Telemetry, Narrowing::Table(Telemetry::RULES);
        /// Plugins that are not built in. The key is the plugin's name, which comes before `__` in
        /// the names of its tools. A name has at most 24 characters of `[a-z0-9-]` and starts with
        /// a letter.
        pub plugins: BTreeMap<String, Plugin>, Narrowing::Named(Plugin::RULES);
        /// Servers of the Model Context Protocol whose tools Toolhold offers.
        pub mcp: Mcp, Narrowing::Table(Mcp::RULES);
        /// The index of the code that `search_code` searches.
        pub index: CodeIndex, Narrowing::Table(CodeIndex::RULES);
        /// Skills: folders with instructions for models.
        pub skills: Skills, Narrowing::Table(Skills::RULES);
        /// Toolhold's own agent.
        pub agent: Agent, Narrowing::Table(Agent::RULES);
        /// Providers of models. The key is a name of your choice. A name has at most 24 characters
        /// of `[a-z0-9-]` and starts with a letter.
        pub providers: BTreeMap<String, ProviderSettings>, Narrowing::Named(ProviderSettings::RULES);
        /// Callers of `toolhold serve --http` with a token, and their rights. The key is a name of
        /// your choice, for errors and the audit log. A name has at most 24 characters of
        /// `[a-z0-9-]` and starts with a letter. The first table that matches a caller applies, in
        /// the order of the file. If there is a table, callers with a token that no table matches
        /// are refused. Tables below, such as `[principals.NAME.tools.file]`, limit the caller like
        /// a ceiling. What they don't name isn't granted.
        pub principals: BTreeMap<String, Principal>, Narrowing::Named(Principal::RULES);
    }
}
