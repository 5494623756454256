//! Describes in words what a plugin is granted of a request in its manifest.

use toolhold_core::config::{Config, InstanceLifetime, Method};
use toolhold_core::text::counted;
use toolhold_core::{CapabilityRequest, PluginInfo};

/// The grant for a request, in words; `None` if there is none.
pub(super) fn grant_for(
    loaded: &Config,
    info: &PluginInfo,
    request: &CapabilityRequest,
) -> Option<String> {
    let plugin = loaded.values.plugins.get(&info.manifest.name);
    match request.name.as_str() {
        // Both reach only the granted directories.
        "files" | "search" => {
            let paths: Vec<&str> = plugin
                .iter()
                .flat_map(|plugin| &plugin.allowed_paths)
                .map(|allowed| allowed.path.as_str())
                .collect();
            (!paths.is_empty()).then(|| paths.join(", "))
        }
        "process" => {
            let plugin = plugin?;
            let programs = plugin.programs.iter().map(|program| program.as_str().to_owned());
            let judged = plugin.judged_programs.then(|| "what `bash` may run".to_owned());
            let shell = plugin.shell.then(|| "every program, by a shell".to_owned());
            join(programs.chain(judged).chain(shell))
        }
        "http" => {
            let plugin = plugin?;
            let hosts = plugin.hosts.iter().map(|grant| {
                let methods: Vec<&str> = grant.methods.iter().map(Method::as_str).collect();
                if methods.is_empty() {
                    grant.to_string()
                } else {
                    format!("{grant} ({})", methods.join(", "))
                }
            });
            join(
                hosts.chain(
                    plugin
                        .allowed_private_hosts
                        .iter()
                        .map(|hosts| format!("{} (private)", hosts.as_str())),
                ),
            )
        }
        "store" => plugin
            .filter(|plugin| plugin.store_mib.get() > 0)
            .map(|plugin| format!("{} MiB, {} keys", plugin.store_mib.get(), plugin.store_keys())),
        "index" => plugin.filter(|plugin| plugin.index_mib.get() > 0).map(|plugin| {
            format!("{} MiB, {} documents", plugin.index_mib.get(), plugin.index_documents())
        }),
        "parts" => plugin
            .filter(|plugin| plugin.parts_cpu_secs.get() > 0)
            .map(|plugin| format!("{} s of processor time a call", plugin.parts_cpu_secs.get())),
        "service" => plugin
            .filter(|plugin| plugin.services.get() > 0)
            .map(|plugin| format!("{} for each session", plugin.services.get())),
        "schedule" => plugin
            .filter(|plugin| plugin.schedule_tasks.get() > 0)
            .map(|plugin| counted(plugin.schedule_tasks.get(), "task")),
        "embeddings" => plugin
            .filter(|plugin| !plugin.embeddings.is_empty())
            .map(|plugin| format!("by [providers.{}]", plugin.embeddings)),
        "session" => plugin
            .filter(|plugin| plugin.instance == InstanceLifetime::Session)
            .map(|_| "an instance for each session".to_owned()),
        _ => None,
    }
}

fn join(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}
