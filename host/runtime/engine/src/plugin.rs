//! A loaded plugin. It is immutable, and its calls share it.

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
    /// A file that the user named.
    File(PathBuf),
}

/// A built-in plugin.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The plugin's name, as in its manifest.
    pub name: &'static str,
    /// The component, at most 64 MiB.
    pub wasm: EmbeddedFile,
    /// SHA-256 of the component in hexadecimal. If it is `None`, each start computes it.
    pub digest: Option<&'static str>,
    /// Names and SHA-256 of the parts that the program contains. They replace the parts in the
    /// manifest.
    pub parts: &'static [(&'static str, &'static str)],
    /// The compiled code. If it is `None`, the first use compiles the component.
    pub compiled: Option<Precompiled>,
}

/// Metadata of a plugin, which is read without running it.
#[derive(Clone, Debug, Serialize)]
pub struct PluginInfo {
    /// The manifest.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// The plugin's source.
    pub origin: Origin,
    /// SHA-256 of the component in hexadecimal.
    pub digest: String,
    /// The size of the component in bytes.
    pub size: usize,
    /// The imported interfaces.
    pub imports: Vec<String>,
    /// The exported interfaces.
    pub exports: Vec<String>,
    /// The kind of the component.
    pub kind: ComponentKind,
    /// Whether the component has no manifest. The host then makes a manifest from the imports and
    /// the file name.
    pub without_manifest: bool,
}

/// A loaded version of a plugin. It is immutable and cheap to clone.
#[derive(Clone)]
pub struct Plugin(pub(crate) Arc<LoadedPlugin>);

impl Plugin {
    /// Returns the metadata.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.0.info
    }

    /// Returns the effective policy.
    pub fn policy(&self) -> &PluginGrants {
        &self.0.policy
    }

    /// Returns the filters in the order of their application.
    pub fn filters(&self) -> &[Arc<FilterDefinition>] {
        &self.0.filters
    }

    /// Returns the user's filter rules that are ignored, with the reasons.
    pub fn filter_problems(&self) -> &[String] {
        &self.0.filter_problems
    }

    /// Returns the exported functions that aren't offered as tools, with the reasons. Only
    /// components without Toolhold's interfaces have such functions.
    pub fn left_out(&self) -> &[String] {
        &self.0.left_out
    }

    /// Returns the number of warm instances.
    pub fn ready(&self) -> usize {
        self.0.code.get().map_or(0, |code| code.warm_pool.count())
    }

    /// Checks whether the content of the file has changed, although its stamp is the same. All
    /// calls then fail until a reload.
    pub fn differs_from_file(&self) -> bool {
        self.0.code.differs_from_file()
    }

    /// Checks whether the offer was remembered (see [`remember`](Self::remember)).
    pub fn is_known(&self) -> bool {
        self.0.known
    }
}

pub(crate) struct LoadedPlugin {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) name: Arc<str>,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) policy: PluginGrants,
    pub(crate) tools: Vec<Tool>,
    pub(crate) filters: Vec<Arc<FilterDefinition>>,
    pub(crate) filter_problems: Vec<String>,
    /// Exported functions that aren't offered as tools.
    pub(crate) left_out: Vec<String>,
    /// Whether the offer was remembered.
    pub(crate) known: bool,
    pub(crate) code: LazyCode,
    pub(crate) parts: Arc<Parts>,
    /// Instances that live as long as their sessions.
    pub(crate) instances: PluginInstances,
}

impl LoadedPlugin {
    /// Returns the code for a call. The first call maps or compiles the code. Returns a failure if
    /// the code can't be made before the call's end.
    pub(crate) async fn code_for(&self, watch: &CallWatch) -> Result<Arc<Code>, Failure> {
        if let Some(code) = self.code.get() {
            return Ok(Arc::clone(code));
        }
        let making = self.code.make_once(&self.runtime, &self.info.digest);
        match watch.in_time(making).await {
            Ok(Ok(code)) => Ok(code),
            Ok(Err(reason)) => {
                let message = format!("the plugin `{}` can't be loaded: {reason}", self.name);
                Err(Failure::new(Category::PermanentFailure, message).with_code("host"))
            }
            Err(stop) => Err(watch.stop_failure(stop)),
        }
    }
}

pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    /// The name in the plugin.
    pub(crate) guest_name: String,
    /// All requested aliases, including those that the plugin may not use.
    pub(crate) requested_aliases: Vec<String>,
}
