//! The grants of third-party plugins, for the engine and in words.

use std::sync::Arc;
use std::time::Duration;

use toolhold_config::{Config, InstanceLifetime, Method, Plugin};
use toolhold_contract::HostError;
use toolhold_contract::text::counted;
use toolhold_engine::capability::CapabilityGrants;
use toolhold_engine::capability::embeddings::EmbeddingsGrant;
use toolhold_engine::capability::index::IndexGrant;
use toolhold_engine::capability::schedule::ScheduleGrant;
use toolhold_engine::{Capability, PluginGrants};
use toolhold_store::index::{DocumentIndex, IndexQuota};
use toolhold_store::{Quota, Store};

use super::policies::{GrantResolver, INDEXES, MIB, STORES};

impl GrantResolver {
    /// Returns the grant of the embedding model in a table of `[providers]`. An empty name grants
    /// no model.
    pub(super) fn embeddings(&self, table: &str) -> EmbeddingsGrant {
        EmbeddingsGrant { model: self.providers.embedding_models.get(table).cloned() }
    }

    /// Returns the grants of the third-party plugin with this name.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a grant isn't possible.
    pub fn third_party(&self, name: &str) -> Result<PluginGrants, HostError> {
        let files = self.config.plugin_files(name, &self.folders, &self.directory)?;
        let table = format!("plugins.{name}");
        let policy = self.policy(&table, files, self.config.plugin_limits(name))?;
        let default = Plugin::default();
        let plugin = self.config.values.plugins.get(name).unwrap_or(&default);
        Ok(PluginGrants {
            capabilities: self.capabilities(name, plugin)?,
            command: self.config.command_of_plugin(name)?.map(Arc::new),
            session: plugin.instance == InstanceLifetime::Session,
            replaces_built_in: self.replaced_by(name).is_some(),
            ..policy
        })
    }

    /// Returns the configured capabilities of a third-party plugin.
    fn capabilities(&self, name: &str, plugin: &Plugin) -> Result<CapabilityGrants, HostError> {
        let egress = self.config.egress_of_plugin(name, &self.folders, &self.directory)?;
        let embeddings = if plugin.embeddings.is_empty() {
            None
        } else {
            Some(self.embeddings(&plugin.embeddings))
        };
        let parts = match plugin.parts_cpu_secs.get() {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        let schedule = match plugin.schedule_tasks.get() {
            0 => None,
            _ => Some(ScheduleGrant),
        };
        let mut capabilities = CapabilityGrants {
            http: egress.map(|settings| self.egress(settings)),
            process: None,
            service: None,
            store: self.store(name, plugin),
            index: self.index(name, plugin),
            embeddings,
            parts,
            schedule,
        };
        let processes = self.config.processes_of_plugin(name, &self.folders, &self.directory)?;
        if let Some(grants) = processes {
            let hosts = capabilities.http.clone();
            self.add_processes(&mut capabilities, &format!("plugins.{name}"), grants, hosts)?;
        }
        Ok(capabilities)
    }

    /// Returns the store of a plugin, or `None` for a plugin without bytes for a store.
    fn store(&self, name: &str, plugin: &Plugin) -> Option<Arc<Store>> {
        let bytes = plugin.store_mib.get().saturating_mul(MIB);
        if bytes == 0 {
            return None;
        }
        let quota = Quota { bytes, keys: plugin.store_keys() };
        Some(Arc::new(Store::named(self.folders.data.join(STORES), name, quota)))
    }

    /// Returns the search index of a plugin, or `None` for a plugin without bytes for an index.
    fn index(&self, name: &str, plugin: &Plugin) -> Option<IndexGrant> {
        let bytes = plugin.index_mib.get().saturating_mul(MIB);
        if bytes == 0 {
            return None;
        }
        let quota = IndexQuota { bytes, documents: plugin.index_documents() };
        let is_derived = false;
        let folder = self.folders.data.join(INDEXES);
        let documents = Arc::new(DocumentIndex::named(folder, name, quota, is_derived));
        Some(IndexGrant { documents, is_derived, vectors: None })
    }
}

/// Describes what a plugin's table grants for a capability, or returns `None` for no grant.
pub fn grant_in_words(config: &Config, plugin: &str, capability: &str) -> Option<String> {
    let plugin = config.values.plugins.get(plugin)?;
    match Capability::named(capability)? {
        Capability::Files | Capability::Search => {
            join(plugin.allowed_paths.iter().map(|allowed| allowed.path.as_str().to_owned()))
        }
        Capability::Process => {
            let mut grants: Vec<String> =
                plugin.programs.iter().map(|program| program.as_str().to_owned()).collect();
            if plugin.judged_programs {
                grants.push("all programs that `bash` may run".to_owned());
            }
            if plugin.shell {
                grants.push("every program, through a shell".to_owned());
            }
            join(grants.into_iter())
        }
        Capability::Http => {
            let hosts = plugin.hosts.iter().map(|grant| {
                let methods: Vec<&str> = grant.methods.iter().map(Method::as_str).collect();
                if methods.is_empty() {
                    grant.to_string()
                } else {
                    format!("{grant} ({})", methods.join(", "))
                }
            });
            let private = plugin.allowed_private_hosts.iter();
            join(hosts.chain(private.map(|hosts| format!("{} (private)", hosts.as_str()))))
        }
        Capability::Store => {
            let mib = plugin.store_mib.get();
            (mib > 0).then(|| format!("{mib} MiB, {} keys", plugin.store_keys()))
        }
        Capability::Index => {
            let mib = plugin.index_mib.get();
            (mib > 0).then(|| format!("{mib} MiB, {} documents", plugin.index_documents()))
        }
        Capability::Parts => {
            let secs = plugin.parts_cpu_secs.get();
            (secs > 0).then(|| format!("{secs} s of CPU time for each call"))
        }
        Capability::Service => {
            let services = plugin.services.get();
            (services > 0).then(|| format!("{services} for each session"))
        }
        Capability::Schedule => {
            let tasks = plugin.schedule_tasks.get();
            (tasks > 0).then(|| counted(tasks, "task"))
        }
        Capability::Embeddings => {
            let table = &plugin.embeddings;
            (!table.is_empty()).then(|| format!("by [providers.{table}]"))
        }
        Capability::Session => (plugin.instance == InstanceLifetime::Session)
            .then(|| "an instance for each session".to_owned()),
    }
}

fn join(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}
