//! The operator's configuration: its keys, its sources, and the resulting values.
//!
//! The sources in order: the defaults, the organisation's `toolhold.toml`, the user's
//! `toolhold.toml`, the working directory's `toolhold.toml`, `TOOLHOLD_*` variables, `--set`. A
//! later source has precedence, key by key. `--allow` and `--allow-read` add to
//! `tools.file.allowed_paths`.
//!
//! Unless the user trusts the working directory's file, the file can only narrow the configuration.
//! Each key has a rule for narrowing. A [`Ceiling`] is applied last, and can only narrow, by the
//! same rules.
//!
//! With an unknown key, a wrong type or a file that other users can write, Toolhold doesn't start
//! and reports every problem. If an invalid setting silently became its default, a protection might
//! be lost.
//!
//! [`ConfigValues`] has all keys, [`load`] reads them, and [`Config`] is the result with the source
//! of each value.

mod bound;
mod ceiling;
mod describe;
mod egress;
mod file;
mod filter_rules;
mod folders;
mod gates;
mod inline;
mod inputs;
pub mod insert;
mod keys;
mod leaf;
mod load;
mod loaded;
mod migrate;
pub mod migration;
mod narrow;
mod new_rule;
mod organisation;
mod plugin_config;
mod policy;
mod principal_tables;
mod principals;
mod problem;
mod processes;
mod program_hosts;
mod project;
mod provider_problems;
mod removed;
mod renamed;
mod resolved;
mod secret_problems;
mod server_problems;
mod signed;
mod skills;
mod source;
mod switches;
mod task_bounds;
mod tool_hosts;
mod unnamed_limits;
mod variables;
mod who;

pub use crate::migration::Migration;
pub use ceiling::check_ceiling;
pub use describe::{KeyDescription, TableDescription, describe};
pub use egress::secret_key;
pub use filter_rules::{FilterRules, FilterRulesError, ProjectFilterRules, ProjectRulesTrust};
pub use folders::{Folders, OperatorFolders};
pub use inline::inline;
pub use inputs::{Inputs, SYSTEM_CEILING, SYSTEM_DEFAULTS, ceiling_keys_path, working_directory};
pub use keys::{dotted_name, schema};
pub use load::load;
pub use loaded::{Ceiling, Config, ConfigEntry, Ignored, Project, ProjectTrust, Taken};
pub use migrate::migrate;
pub use new_rule::{HostEntry, NewRule};
pub use policy::FileGrants;
pub use principal_tables::AppliedPrincipal;
pub use principals::{DeniedPrincipal, KnownPrincipal};
pub use problem::{Problem, Problems};
pub use processes::{ProcessContext, ProcessGrants, ProcessKind};
pub use project::{add_trust, forget, trusted};
pub use renamed::Renamed;
pub use signed::CeilingFiles;
pub use source::Source;
pub use task_bounds::TaskBounds;
pub use toolhold_config_keys::presets;
pub use toolhold_config_keys::{
    AdversarialPolicy, Agent, AllowedPath, AllowedPlugin, Amount, Approvals, ArgumentPart,
    ArgumentTest, Audit, Authorization, Autonomy, BUILT_IN_FILTERS, Bounded, ConfigValues,
    Dependencies, DependencyRule, FileTools, FilterSecurity, Filters, HeaderName, HostGrant,
    InstallKey, Installing, InstanceLifetime, JobSettings, KNOWN_PROVIDERS, KnownProvider, Limits,
    MAX_POLICIES, Mcp, McpApprovals, McpOauth, McpServer, Method, ModelFormat, Network,
    NetworkGrant, OAuth, OnFailure, OnReviewDenial, OtherDomains, Overflow, PathAccess, PathGlob,
    PathPrefix, PermissionAction, PermissionRule, Plugin, PluginFolder, PluginLimits,
    PluginSettings, PolicyAccess, PolicyEffect, PolicyPhase, PolicyRule, PolicyRules,
    PolicySentence, Prefix, PresetName, Prices, Principal, ProcessLimits, ProviderSettings, Qdrant,
    QueryName, Ratio, Redaction, Reload, ResultCache, Retry, SandboxMode, Scheduler, Secret, Serve,
    ServerSecret, Sha256, Shell, Skills, Structured, Tafc, ThinkingEffort, ToolFilter, Tools,
    TrustLevel, Undo, UrlScheme, Utility, VariableName, VectorBackend, Web, WithoutProxy,
    WrittenExpression, WrittenHost, WrittenPathPattern, WrittenPattern, WrittenPrivateHosts,
    WrittenProgram, WrittenProxy, WrittenSecretHost, fill_in_secrets, referenced_secrets,
};
pub use toolhold_policy::files::OwnFolder;
pub use watch::ConfigWatch;
pub use who::{PrincipalId, Who};

#[cfg(test)]
mod tests;
mod watch;
