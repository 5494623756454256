//! A loaded plugin. It is immutable and shared by its calls.

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

/// The source of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The program itself.
    BuiltIn,
    /// A file that the operator named.
    File(PathBuf),
}

/// A built-in plugin.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The plugin's name, as in its manifest.
    pub name: &'static str,
    /// The component, at most 64 MiB: from `include_bytes!`, or read from a file and leaked.
    pub wasm: &'static [u8],
    /// Its code, if the build compiled it ahead of time. `None` if it has to be compiled at its
    /// first use.
    pub compiled: Option<Precompiled>,
}

/// Facts about a plugin that are read without running it.
#[derive(Clone, Debug, Serialize)]
pub struct PluginInfo {
    /// Its manifest.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// The plugin's source.
    pub origin: Origin,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Bytes of the component.
    pub size: usize,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
}

/// One version of a plugin, loaded and ready to be called. It never changes and is cheap to clone.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<Loaded>);

impl Plugin {
    /// Facts that are read without running the plugin.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// Its policy: what it asks for and was granted, both.
    pub fn policy(&self) -> &PluginPolicy {
        &self.0.policy
    }

    /// Its filters, in the order in which they are applied.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.definitions)
    }

    /// Problems with the operator's rules for its filters: each rule that is left out, and why.
    pub fn filter_problems(&self) -> &[String] {
        self.0.filters.as_ref().map_or(&[], |filters| &filters.problems)
    }

    /// The number of its warm instances.
    pub fn ready(&self) -> usize {
        self.0.warm_pool.count()
    }
}

/// The data of a [`Plugin`], shared by its calls.
pub(crate) struct Loaded {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) pre: InstancePre<CallState>,
    pub(crate) policy: PluginPolicy,
    /// The indices of its exports for tools. `None` if it exports no tools.
    pub(crate) exports: Option<PluginIndices>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Option<Filters>,
    /// Its warm instances.
    pub(crate) warm_pool: WarmPool,
}

/// A tool of a plugin.
pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    /// The tool's name inside the guest.
    pub(crate) guest_name: String,
}
