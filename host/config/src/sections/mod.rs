//! The tables of `berth.toml`, one file for each.

mod approvals;
mod audit;
mod dependencies;
mod file;
mod filters;
mod limits;
mod network;
mod overflow;
mod permissions;
mod plugin_folder;
mod plugins;
mod policy;
mod redaction;
mod result_cache;
mod retry;
mod secrets;
mod serve;
mod shell;
mod tools;
mod undo;
mod web;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};

pub use approvals::{Approvals, McpApprovals};
pub use audit::{Audit, OnFailure};
pub use dependencies::{Dependencies, DependencyRule, Ratio};
pub use file::FileTools;
pub use filters::{BUILT_IN_FILTERS, FilterSecurity, Filters, WrittenExpression};
pub use limits::{Limits, PluginLimits};
pub use network::{Network, WithoutProxy, WrittenProxy};
pub use overflow::Overflow;
pub use permissions::{PermissionAction, PermissionRule, WrittenPattern};
pub use plugin_folder::{PluginFolder, Reload};
pub use plugins::{ArgumentPart, InstanceLifetime, Plugin, PluginSettings, TrustLevel};
pub use policy::{
    ArgumentTest, Authorization, PolicyAccess, PolicyEffect, PolicyPhase, PolicyRule, PolicyRules,
};
pub use redaction::Redaction;
pub use result_cache::ResultCache;
pub use retry::Retry;
pub(crate) use secrets::is_in_secrets;
pub use secrets::{HeaderName, Keyring, PathPrefix, Prefix, QueryName, Secret, WrittenSecretHost};
pub use serve::{OAuth, Serve, Structured};
pub use shell::{
    NetworkGrant, PresetName, ProcessLimits, SandboxMode, Shell, VariableName, WrittenProgram,
};
pub use tools::{Autonomy, Tools};
pub use undo::Undo;
pub use web::{OtherDomains, Web};

section! {
    /// The whole configuration. Every key has a safe default: without any file, the tools work on
    /// the working directory.
    pub struct Config {
        /// Settings of all tools.
        pub tools: Tools, Rule::Table(Tools::RULES);
        /// How a person approves calls.
        pub approvals: Approvals, Rule::Table(Approvals::RULES);
        /// How `berth serve` serves its clients. `structured` says what they get; every other key
        /// is about HTTP.
        pub serve: Serve, Rule::Table(Serve::RULES);
        /// How requests of all plugins leave this machine.
        pub network: Network, Rule::Table(Network::RULES);
        /// A folder whose plugins are loaded without being named one by one.
        pub plugin_folder: PluginFolder, Rule::Table(PluginFolder::RULES);
        /// The record of every call: `audit/audit.jsonl` in Berth's data folder.
        pub audit: Audit, Rule::Table(Audit::RULES);
        /// Plugins that are not built in. The key is the name that stands before `__` in the names
        /// of their tools: at most 24 of `[a-z0-9-]`, a letter first.
        pub plugins: BTreeMap<String, Plugin>, Rule::Named(Plugin::RULES);
    }
}
