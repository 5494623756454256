//! A loaded plugin: its metadata, its policy, its tools and filters. A plugin is immutable, and its
//! calls share it.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use toolhold_compiler::Precompiled;
use toolhold_compiler::parts::Parts;
use toolhold_compiler::typed::ComponentKind;
use toolhold_component::Manifest;
use toolhold_component::file::EmbeddedFile;
use toolhold_contract::{Category, Definition, Failure, FilterDefinition};

use crate::Runtime;
use crate::code::{Code, LazyCode};
use crate::guest::capability::PluginGrants;
use crate::session::PluginInstances;
use crate::timing::CallWatch;

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
    /// The component, at most 64 MiB.
    pub wasm: EmbeddedFile,
    /// SHA-256 of the component, in hexadecimal, if the build computed it. Otherwise, each start
    /// computes it.
    pub digest: Option<&'static str>,
    /// The parts that are shipped with the program: names, and SHA-256 in hexadecimal. They replace
    /// the parts in the manifest.
    pub parts: &'static [(&'static str, &'static str)],
    /// The code, if the build compiled it ahead of time. With `None`, the first use compiles it.
    pub compiled: Option<Precompiled>,
}

/// Metadata of a plugin, which the host reads without running the plugin.
#[derive(Clone, Debug, Serialize)]
pub struct PluginInfo {
    /// The manifest of the plugin.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// The plugin's source.
    pub origin: Origin,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Bytes of the component.
    pub size: usize,
    /// The interfaces that the plugin imports.
    pub imports: Vec<String>,
    /// The interfaces that the plugin exports.
    pub exports: Vec<String>,
    /// The kind of the component, which determines how Toolhold uses it.
    pub kind: ComponentKind,
    /// Whether the component has no manifest. The host then makes a manifest from the imports and
    /// the file name.
    pub without_manifest: bool,
}

/// One loaded version of a plugin, ready for calls. A plugin is immutable and cheap to clone.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<LoadedPlugin>);

impl Plugin {
    /// Returns the facts that are read without running the plugin.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// Returns the policy of the plugin: the requested grants that the plugin got.
    pub fn policy(&self) -> &PluginGrants {
        &self.0.policy
    }

    /// Returns the filters of the plugin, in the order in which they are applied.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        &self.0.filters
    }

    /// Returns the problems with the operator's filter rules: each ignored rule, with the reason.
    pub fn filter_problems(&self) -> &[String] {
        &self.0.filter_problems
    }

    /// Returns the exported functions that aren't offered as tools, each with the reason. Only
    /// components that don't know Toolhold have such functions.
    pub fn left_out(&self) -> &[String] {
        &self.0.left_out
    }

    /// Returns the number of the plugin's warm instances.
    pub fn ready(&self) -> usize {
        self.0.code.get().map_or(0, |code| code.warm_pool.count())
    }

    /// Checks whether the first use found another component in the file, although the stamp is the
    /// same. All calls fail until the file is read again.
    pub fn differs_from_file(&self) -> bool {
        self.0.code.differs()
    }

    /// Checks whether the plugin had run on this machine before this start (see
    /// [`remember`](Self::remember)).
    pub fn is_known(&self) -> bool {
        self.0.known
    }
}

/// The data of a [`Plugin`], which its calls share.
pub(crate) struct LoadedPlugin {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) policy: PluginGrants,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Vec<Arc<FilterDefinition>>,
    pub(crate) filter_problems: Vec<String>,
    /// The exported functions that aren't offered as tools.
    pub(crate) left_out: Vec<String>,
    /// Whether the offer was stored before the plugin was loaded.
    pub(crate) known: bool,
    pub(crate) code: LazyCode,
    /// The plugin's pure components.
    pub(crate) parts: Arc<Parts>,
    /// The plugin's instances that live as long as their sessions.
    pub(crate) instances: PluginInstances,
}

impl LoadedPlugin {
    /// Returns the code for a call. The first call compiles or maps the code.
    ///
    /// # Errors
    ///
    /// Returns a failure if the call is cancelled or out of time. If there is no code, the failure
    /// is the host's.
    pub(crate) async fn code_for(&self, watch: &CallWatch) -> Result<Arc<Code>, Failure> {
        if let Some(code) = self.code.get() {
            return Ok(Arc::clone(code));
        }
        let making = self.code.make_once(&self.runtime, &self.info.digest);
        let code = watch.in_time(making).await.map_err(|stop| watch.stop_failure(stop))?;
        code.map_err(|reason| {
            let message = format!("the plugin `{}` can't be loaded: {reason}", self.name);
            Failure::new(Category::PermanentFailure, message).with_code("host")
        })
    }
}

/// A tool of a plugin.
pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    /// The tool's name inside the guest.
    pub(crate) guest_name: String,
    /// All aliases that the tool requests, even those that it may not have.
    pub(crate) requested_aliases: Vec<String>,
}
