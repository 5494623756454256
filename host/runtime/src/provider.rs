//! The loaded plugins, as a provider of tools.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use berth_contract::{BoxFuture, Call, Category, Definition, Failure, HostError, Outcome, Provider};

use crate::load::Source;
use crate::plugin::{Builtin, Origin, Plugin, PluginInfo, PluginPolicy};
use crate::{Runtime, RuntimeConfig, run};

/// Loads plugins and runs their tools.
pub struct Plugins {
    runtime: Arc<Runtime>,
    plugins: Vec<Arc<Plugin>>,
    /// Where each tool is: the plugin and its tool.
    tools: HashMap<String, (usize, usize)>,
}

impl Plugins {
    /// Starts the engine, with no plugin yet.
    ///
    /// # Errors
    ///
    /// [`HostError::Engine`] where this machine can't run it.
    pub fn new(config: RuntimeConfig) -> Result<Self, HostError> {
        Ok(Self { runtime: Arc::new(Runtime::new(config)?), plugins: Vec::new(), tools: HashMap::new() })
    }

    /// Loads a plugin that is part of the program. `policy` is asked for what it is granted.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`]; the plugins that were there stay.
    pub async fn load_builtin(
        &mut self,
        builtin: &Builtin,
        policy: impl FnOnce(&PluginInfo) -> Result<PluginPolicy, HostError>,
    ) -> Result<(), HostError> {
        self.load(Source::built_in(builtin), policy).await
    }

    /// Loads a component from a file. `policy` is asked for what it is granted, once it is known what it is.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`]; the plugins that were there stay.
    pub async fn load_file(
        &mut self,
        path: &Path,
        policy: impl FnOnce(&PluginInfo) -> Result<PluginPolicy, HostError>,
    ) -> Result<(), HostError> {
        let path = path.to_owned();
        let source = tokio::task::spawn_blocking(move || Source::file(&path)).await;
        let source = source.map_err(|error| HostError::Engine(error.to_string()))??;
        self.load(source, policy).await
    }

    async fn load(&mut self, source: Source, policy: impl FnOnce(&PluginInfo) -> Result<PluginPolicy, HostError>) -> Result<(), HostError> {
        let plugin = self.runtime.load(source, policy).await?;
        if let Some(other) = self.plugins.iter().find(|other| other.name == plugin.name) {
            let reason = match &other.info.origin {
                Origin::BuiltIn => "a built-in plugin has that name; give this one another".to_owned(),
                Origin::File(path) => {
                    format!("{} has that name already; where the configuration names it, leave out `--plugin`", path.display())
                }
            };
            return Err(HostError::Load { plugin: plugin.name.to_string(), reason });
        }
        let index = self.plugins.len();
        for (tool_index, tool) in plugin.tools.iter().enumerate() {
            self.tools.insert(tool.definition.name.clone(), (index, tool_index));
        }
        self.plugins.push(Arc::new(plugin));
        Ok(())
    }

    /// What is known of each plugin, in the order of loading.
    pub fn infos(&self) -> Vec<PluginInfo> {
        self.plugins.iter().map(|plugin| plugin.info.clone()).collect()
    }

    /// The plugin that offers a tool.
    pub fn plugin_of(&self, tool: &str) -> Option<&PluginInfo> {
        self.tools.get(tool).map(|(plugin, _)| &self.plugins[*plugin].info)
    }

    /// What a tool's plugin is granted.
    pub fn policy_of(&self, tool: &str) -> Option<&PluginPolicy> {
        self.tools.get(tool).map(|(plugin, _)| &self.plugins[*plugin].policy)
    }
}

impl Provider for Plugins {
    fn name(&self) -> &str {
        "plugins"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        self.plugins.iter().flat_map(|plugin| &plugin.tools).map(|tool| Arc::clone(&tool.definition)).collect()
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let Some((plugin, tool)) = self.tools.get(&call.tool).copied() else {
            let failure = Failure::new(Category::ToolNotFound, format!("no tool is named `{}`", call.tool));
            return Box::pin(std::future::ready(Err(failure)));
        };
        Box::pin(run::call(&self.runtime, &self.plugins[plugin], tool, call))
    }
}
