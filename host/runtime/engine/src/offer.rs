//! Remembers the offer of a component: its tools and filters.
//!
//! The host asks a component once on each machine, and stores the answer next to the compiled code.
//! A later start needs neither the code nor the component.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolhold_compiler::typed::ComponentKind;
use toolhold_component::{Manifest, PluginConfig};
use toolhold_contract::{Definition, FilterDefinition};

use crate::code::Source;
use crate::plugin::{LoadedPlugin, Origin, Plugin, PluginInfo, Tool};
use crate::{Runtime, known_files};

/// The offer of a component. Names are those in the component.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Offer {
    manifest: Manifest,
    size: usize,
    imports: Vec<String>,
    exports: Vec<String>,
    kind: ComponentKind,
    without_manifest: bool,
    pub(crate) left_out: Vec<String>,
    pub(crate) tools: Vec<Definition>,
    pub(crate) filters: Vec<FilterDefinition>,
    pub(crate) filter_problems: Vec<String>,
}

/// The format of the files. The format is in their names, so files in other formats are ignored.
const FORMAT: u32 = 2;

/// Returns the name of the file with an offer. An offer may depend on the plugin's settings.
fn file_name(runtime: &Runtime, digest: &str, config: &PluginConfig) -> String {
    let code = toolhold_compiler::key(&runtime.engine.wasm, digest);
    // Another version of Toolhold may convert the same component differently.
    let version = env!("CARGO_PKG_VERSION");
    if config.is_empty() {
        return format!("{code}.{version}.{FORMAT}.offer");
    }
    // A hash that isn't cryptographic is enough. Only somebody who chooses the settings could make
    // a collision, and the settings belong to the user.
    let mut hasher = DefaultHasher::new();
    config.all().hash(&mut hasher);
    let settings_hash = hasher.finish();
    format!("{code}.{settings_hash:016x}.{version}.{FORMAT}.offer")
}

impl Offer {
    /// Reads the stored offer of a component. Returns `None` if there is no valid file. Blocks.
    pub(crate) fn read_kept(
        runtime: &Runtime,
        digest: &str,
        config: &PluginConfig,
    ) -> Option<Self> {
        let stored = runtime.compiler.read_kept(&file_name(runtime, digest, config))?;
        serde_json::from_slice(&stored).ok()
    }

    /// Makes the offer that is stored for later starts.
    fn from_plugin(plugin: &LoadedPlugin) -> Self {
        // Stored definitions have the names that the guest chose.
        let tools = plugin.tools.iter().map(|tool| Definition {
            name: tool.guest_name.clone(),
            aliases: tool.requested_aliases.clone(),
            ..(*tool.definition).clone()
        });
        Self {
            manifest: plugin.info.manifest.clone(),
            size: plugin.info.size,
            imports: plugin.info.imports.clone(),
            exports: plugin.info.exports.clone(),
            kind: plugin.info.kind,
            without_manifest: plugin.info.without_manifest,
            left_out: plugin.left_out.clone(),
            tools: tools.collect(),
            filters: plugin.filters.iter().map(|filter| (**filter).clone()).collect(),
            filter_problems: plugin.filter_problems.clone(),
        }
    }

    pub(crate) fn info(&self, digest: &str, origin: Origin) -> PluginInfo {
        PluginInfo {
            manifest: self.manifest.clone(),
            origin,
            digest: digest.to_owned(),
            size: self.size,
            imports: self.imports.clone(),
            exports: self.exports.clone(),
            kind: self.kind,
            without_manifest: self.without_manifest,
        }
    }
}

impl Plugin {
    /// Stores the offer and the file's digest for later starts. Must be called only after the whole
    /// offer was checked, because a later start trusts a stored offer.
    pub async fn remember(&self) {
        let is_file_known = match self.0.code.source() {
            Source::BuiltIn(..) => true,
            // The digest of a file without a stamp is never stored.
            Source::File(file) => file.recalled || file.stamp.is_none(),
        };
        if self.is_known() && is_file_known {
            return;
        }

        let plugin = self.clone();
        // Ignore a panic of the task. Without the stored offer, the next start only takes longer.
        let _ = tokio::task::spawn_blocking(move || {
            if !plugin.is_known() {
                plugin.store_offer();
            }
            let LoadedPlugin { runtime, code, info, .. } = &*plugin.0;
            if let Source::File(file) = code.source() {
                known_files::keep(runtime, file, &info.digest);
            }
        })
        .await;
    }

    /// Stores the offer for later starts. Logs an error.
    fn store_offer(&self) {
        let plugin = &self.0;
        let name = file_name(&plugin.runtime, &plugin.info.digest, &plugin.policy.config);
        let stored = match serde_json::to_vec(&Offer::from_plugin(plugin)) {
            Ok(json) => plugin.runtime.compiler.keep(&name, &json),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = stored {
            tracing::warn!("can't store what the plugin `{}` offers: {error}", plugin.name);
        }
    }
}

impl LoadedPlugin {
    /// Makes a tool from a definition, with the tool's name for callers.
    pub(crate) fn make_tool(&self, mut definition: Definition) -> Tool {
        let guest_name = definition.name.clone();
        let requested_aliases = definition.aliases.clone();
        let acts_as_built_in = self.info.origin == Origin::BuiltIn || self.policy.replaces_built_in;
        if !acts_as_built_in {
            definition.name = format!("{}__{guest_name}", self.name);
            // Only built-in plugins have aliases. A third-party plugin must not take the calls of a
            // missing tool.
            definition.aliases.clear();
        }
        Tool { definition: Arc::new(definition), guest_name, requested_aliases }
    }
}
