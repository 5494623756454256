//! The operator's configuration: what it may say, where it comes from, and what it comes to.
//!
//! Sources, the later ones winning key by key: the defaults, the user's `berth.toml`, the working
//! directory's, `BERTH_*` variables, `--set`; `--allow` and `--allow-read` add to
//! `tools.file.allowed_paths`. The working directory's file only narrows, by a rule for each key,
//! unless the user trusts it. A [`Ceiling`] comes last and only takes away, by the same rules.
//! Nothing is guessed: an unknown key, a wrong type or a file that others may write ends the start
//! with every problem named, since a setting that silently fell back to its default might have been
//! the one that protects something.
//!
//! [`Config`] is what can be said, [`load`] reads it, [`Loaded`] is the outcome together with where
//! each value came from.

mod advice;
mod answers;
mod bounded;
mod ceiling;
mod dependencies;
mod describe;
mod egress;
mod file;
mod filter_rules;
mod filters;
mod folders;
mod gates;
mod governing;
mod hosts;
mod inline;
mod inputs;
pub mod insert;
mod keys;
mod leaf;
mod load;
mod loaded;
mod narrow;
mod network;
mod output;
mod paths;
mod policy;
pub mod presets;
mod problem;
mod processes;
mod project;
mod renamed;
mod rule;
mod secret;
mod secret_problems;
mod serve;
mod shell;
mod source;
mod switches;
mod types;
mod variables;
mod web;
mod written;

pub use advice::{Advisor, CommandEnd};
pub use answers::{ResultCache, Retry};
pub use bounded::Bounded;
pub use dependencies::{Dependencies, DependencyRule, Ratio};
pub use describe::{KeyDescription, TableDescription, describe};
pub use filter_rules::FilterRules;
pub use filters::{BUILT_IN_FILTERS, FilterSecurity, Filters, WrittenExpression};
pub use folders::Folders;
pub use governing::{
    ArgumentTest, Authorization, Autonomy, PermissionAction, PermissionRule, PolicyAccess,
    PolicyEffect, PolicyPhase, PolicyRule, PolicyRules, TrustLevel, WrittenPattern,
};
pub use hosts::{HostGrant, Method, UrlScheme, WrittenHost, WrittenPrivateHosts};
pub use inline::inline;
pub use inputs::{Inputs, SYSTEM_CEILING, working_directory};
pub use keys::{dotted_name, schema};
pub use load::load;
pub use loaded::{Ceiling, ConfigEntry, Ignored, Loaded, Project, ProjectTrust, Taken};
pub use network::{Network, WithoutProxy, WrittenProxy};
pub use output::{Overflow, Redaction};
pub use paths::{AllowedPath, PathAccess, PathGlob};
pub use policy::FilePolicy;
pub use problem::{Problem, Problems};
pub use processes::ProcessGrants;
pub use project::{forget, trusted};
pub use renamed::Renamed;
pub use secret::{HeaderName, Keyring, PathPrefix, Prefix, QueryName, Secret, WrittenSecretHost};
pub use serve::{OAuth, Serve, Structured};
pub use shell::{
    NetworkGrant, PresetName, ProcessLimits, SandboxMode, Shell, VariableName, WrittenProgram,
};
pub use source::Source;
pub use types::{
    Approvals, Audit, Config, FileTools, Limits, McpApprovals, OnFailure, Plugin, PluginFolder,
    PluginLimits, Reload, Tools,
};
pub use web::{OtherDomains, Web};

#[cfg(test)]
mod tests;
