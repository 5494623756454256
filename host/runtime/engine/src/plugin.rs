//! A loaded plugin: its facts, its policy, its tools and filters. It is immutable and shared by its
//! calls.

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
    /// SHA-256 of the component, in hexadecimal, if the build computed it. Otherwise it is computed
    /// at each start.
    pub digest: Option<&'static str>,
    /// The parts that the program is shipped with: names, and SHA-256 in hexadecimal. They take
    /// the place of those of the manifest.
    pub parts: &'static [(&'static str, &'static str)],
    /// The code, if the build compiled it ahead of time. `None` if it has to be compiled at its
    /// first use.
    pub compiled: Option<Precompiled>,
}

/// Facts about a plugin that are read without running it.
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
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// The interfaces that it exports.
    pub exports: Vec<String>,
    /// The kind of the component, which says how Toolhold uses it.
    pub kind: ComponentKind,
    /// Whether it has no manifest of its own, so that the host made one from its imports and from
    /// the name of its file.
    pub without_manifest: bool,
}

/// One version of a plugin, loaded and ready to be called. It never changes and is cheap to clone.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<LoadedPlugin>);

impl Plugin {
    /// Returns the facts that are read without running the plugin.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// Returns the policy of the plugin: the grants that it asks for and that it got.
    pub fn policy(&self) -> &PluginGrants {
        &self.0.policy
    }

    /// Returns the filters of the plugin, in the order in which they are applied.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        &self.0.filters
    }

    /// Returns the problems with the operator's rules for its filters: each rule that is left out,
    /// with the reason.
    pub fn filter_problems(&self) -> &[String] {
        &self.0.filter_problems
    }

    /// Returns the exported functions that are no tools, each with the reason. Only a component
    /// that doesn't know Toolhold has such functions.
    pub fn left_out(&self) -> &[String] {
        &self.0.left_out
    }

    /// Returns the number of its warm instances.
    pub fn ready(&self) -> usize {
        self.0.code.get().map_or(0, |code| code.warm_pool.count())
    }

    /// Checks whether a first use has found another component in the file, though the stamp of the
    /// file is the same. All calls fail until the file is read again.
    pub fn differs_from_file(&self) -> bool {
        self.0.code.differs()
    }

    /// Checks whether the plugin has served on this machine before it was loaded, see
    /// [`remember`](Self::remember).
    pub fn is_known(&self) -> bool {
        self.0.known
    }
}

/// The data of a [`Plugin`], shared by its calls.
pub(crate) struct LoadedPlugin {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) policy: PluginGrants,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Vec<Arc<FilterDefinition>>,
    pub(crate) filter_problems: Vec<String>,
    /// Its exported functions that are no tools.
    pub(crate) left_out: Vec<String>,
    /// Whether its offer was known before it was loaded.
    pub(crate) known: bool,
    pub(crate) code: LazyCode,
    /// The pure components that it brings along.
    pub(crate) parts: Arc<Parts>,
    /// Its instances that are kept for their sessions.
    pub(crate) instances: PluginInstances,
}

impl LoadedPlugin {
    /// Returns the code for a call. The first call makes it.
    ///
    /// # Errors
    ///
    /// The call is cancelled or late, or there is no code, which is the host's failure.
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
    /// The other names that it asks for, whether it may have them or not.
    pub(crate) requested_aliases: Vec<String>,
}
