//! A loaded plugin: immutable, shared by the calls that run on it.

use std::path::PathBuf;
use std::sync::Arc;

use berth_contract::{Definition, FilterDefinition};
use serde::Serialize;
use wasmtime::component::InstancePre;

use crate::Runtime;
use crate::compiled::Precompiled;
use crate::filters::Filters;
use crate::guest::bindings::PluginIndices;
use crate::guest::state::CallState;
use crate::manifest::Manifest;
use crate::policy::PluginPolicy;
use crate::warm_pool::WarmPool;

/// Where a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// A file that the operator named.
    File(PathBuf),
}

/// A plugin that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The plugin's name, as in its manifest.
    pub name: &'static str,
    /// The component, at most 64 MiB: from `include_bytes!`, or read from a file and leaked.
    pub wasm: &'static [u8],
    /// Its code, where the build compiled it ahead of time; otherwise `None`, and it is compiled at
    /// its first use.
    pub compiled: Option<Precompiled>,
}

/// What is known of a plugin without running it.
#[derive(Clone, Debug, Serialize)]
pub struct PluginInfo {
    /// What it says about itself.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// Where it comes from.
    pub origin: Origin,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Bytes of the component.
    pub size: usize,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
}

/// A plugin that can be called: one version of it, whole and unchanging. Cheap to share.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<Loaded>);

impl Plugin {
    /// What is known of it.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// What it may do: what it asked for and was granted, both.
    pub fn policy(&self) -> &PluginPolicy {
        &self.0.policy
    }

    /// Its filters, in the order in which they are applied.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.definitions)
    }

    /// What is wrong with the operator's rules for its filters: each that is left out, and why.
    pub fn filter_problems(&self) -> &[String] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.problems)
    }

    /// How many fresh instances wait for its next calls.
    pub fn ready(&self) -> usize {
        self.0.warm_pool.count()
    }
}

/// What stands behind a [`Plugin`], shared by the calls that run on it.
pub(crate) struct Loaded {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) policy: PluginPolicy,
    /// Where its exports for tools are. None: it has none.
    pub(crate) exports: Option<PluginIndices>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Option<Filters>,
    /// Instances that wait for its calls.
    pub(crate) warm_pool: WarmPool,
}

/// A tool of a plugin.
pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    /// The name that the guest knows.
    pub(crate) guest_name: String,
}
