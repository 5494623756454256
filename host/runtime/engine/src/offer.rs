//! Remembers the offer of a component (its tools and filters), so that later starts needn't ask the
//! component.
//!
//! The host asks a component once on each machine. The answer is stored next to the compiled code,
//! so that a start needs neither the code nor the component.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolhold_compiler::typed::ComponentKind;
use toolhold_component::{Manifest, PluginConfig};
use toolhold_contract::{Definition, FilterDefinition};

use crate::code::Source;
use crate::plugin::{LoadedPlugin, Origin, Plugin, PluginInfo, Tool};
use crate::{Runtime, known_files};

/// The offer of a component. Names are the names inside the component.
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

/// The format of the files. The file names contain it, so that the host ignores files of another
/// format.
const FORMAT: u32 = 2;

/// Returns the name of the file with the offer of a component. `config`: the plugin's settings,
/// since the offer may depend on them.
fn file_name(runtime: &Runtime, digest: &str, config: &PluginConfig) -> String {
    let code = toolhold_compiler::key(&runtime.engine.wasm, digest);
    // Another version of Toolhold may interpret the same component in another way.
    let version = env!("CARGO_PKG_VERSION");
    if config.is_empty() {
        return format!("{code}.{version}.{FORMAT}.offer");
    }
    // The default hasher has fixed keys. This is safe because the settings come from the operator,
    // who has no reason to search for a collision.
    let mut hasher = DefaultHasher::new();
    config.all().hash(&mut hasher);
    let settings = hasher.finish();
    format!("{code}.{settings:016x}.{version}.{FORMAT}.offer")
}

impl Offer {
    /// Reads the stored offer of a component. Blocks. Returns `None` if the component has never run
    /// on this machine.
    pub(crate) fn read_kept(
        runtime: &Runtime,
        digest: &str,
        config: &PluginConfig,
    ) -> Option<Self> {
        let stored = runtime.compiler.read_kept(&file_name(runtime, digest, config))?;
        serde_json::from_slice(&stored).ok()
    }

    /// Collects the offer of a plugin that has listed its tools and filters.
    fn from_plugin(plugin: &LoadedPlugin) -> Self {
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

    /// Returns the facts about the component.
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
    /// Stores the offer of the plugin and the digest of its file. Later starts then neither ask the
    /// plugin nor read the file. Call this after the whole offer was checked.
    pub async fn remember(&self) {
        let is_file_known = match self.0.code.source() {
            Source::BuiltIn(..) => true,
            // A file without a stamp is never recalled.
            Source::File(file) => file.recalled || file.stamp.is_none(),
        };
        if self.is_known() && is_file_known {
            return;
        }

        let plugin = self.clone();
        // Writing takes milliseconds.
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

    fn store_offer(&self) {
        let plugin = &self.0;
        let name = file_name(&plugin.runtime, &plugin.info.digest, &plugin.policy.config);
        let stored = serde_json::to_vec(&Offer::from_plugin(plugin))
            .map_err(std::io::Error::from)
            .and_then(|offer| plugin.runtime.compiler.keep(&name, &offer));
        if let Err(error) = stored {
            tracing::warn!("can't store what the plugin `{}` offers: {error}", plugin.name);
        }
    }
}

impl LoadedPlugin {
    /// Gives a tool the name that callers use.
    pub(crate) fn named(&self, mut definition: Definition) -> Tool {
        let guest_name = definition.name.clone();
        let requested_aliases = definition.aliases.clone();
        let acts_as_built_in = self.info.origin == Origin::BuiltIn || self.policy.replaces_built_in;
        if !acts_as_built_in {
            definition.name = format!("{}__{guest_name}", self.name);
            // Only built-in plugins may have aliases. An alias of a third-party plugin could take
            // the calls of a missing tool.
            definition.aliases.clear();
        }
        Tool { definition: Arc::new(definition), guest_name, requested_aliases }
    }
}
