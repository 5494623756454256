use std::path::Path;
use std::time::Duration;

use berth_contract::text::{counted, shell_word};
use berth_policy::ConfigFile;

use super::configuration::Read;
use super::finding::late;
use super::{Examination, Finding};
use crate::{Host, HostError, PluginState};

/// Whether a host starts with every plugin.
pub(super) async fn findings(
    examination: Examination,
    read: Read,
    patience: Duration,
) -> Vec<Finding> {
    let Some(folders) = read.folders else { return Vec::new() };
    if !read.is_right {
        return vec![Finding::warning(
            "loading",
            "not tried with a configuration that is wrong",
            "fix the configuration first",
        )];
    }
    let file = read.loaded.own_file();
    let mut builder =
        Host::builder().config(read.loaded).folders(folders).builtins(&examination.builtins);
    for file in examination.plugin_files {
        builder = builder.plugin_file(file);
    }
    if let Some(helper) = examination.helper {
        builder = builder.helper(helper);
    }
    // On its own task: if it blocks, waiting for it still ends.
    match tokio::time::timeout(patience, tokio::spawn(builder.build())).await {
        Ok(Ok(Ok(host))) => findings_of(&host, &file),
        Ok(Ok(Err(error))) => {
            vec![Finding::failure("loading", error.to_string(), fix(&error, &file))]
        }
        Ok(Err(error)) => vec![Finding::failure(
            "loading",
            format!("it broke: {error}"),
            "report it: this is a fault of Berth's",
        )],
        Err(_) => vec![late(patience)],
    }
}

fn findings_of(host: &Host, file: &ConfigFile) -> Vec<Finding> {
    let tools = host.tools();
    let count = |name: &str| {
        tools
            .iter()
            .filter(|tool| {
                host.plugin_of(&tool.name).is_some_and(|plugin| plugin.manifest.name == name)
            })
            .count()
    };
    let finding = |plugin: PluginState| match &plugin.waiting {
        Some(waiting) if waiting.held => Finding::warning(
            &plugin.name,
            &waiting.reason,
            format!("berth plugin approve {}", shell_word(&plugin.name)),
        ),
        Some(waiting) => {
            let inspect = plugin.file.as_deref().map_or(Path::new(&plugin.name), |file| file);
            Finding::failure(&plugin.name, &waiting.reason, look(inspect, file))
        }
        None => Finding::ok(&plugin.name, counted(count(&plugin.name), "tool")),
    };
    let unknown =
        host.unknown_names().into_iter().map(|message| Finding::warning("names", message, NAMES));
    host.plugins().into_iter().map(finding).chain(unknown).collect()
}

const NAMES: &str = "write the name as `berth tools` and `berth plugin list` have it, or take it out: what names nothing protects nothing";

/// What to do about a plugin that doesn't load. `file`: the user's own.
fn look(component: &Path, file: &ConfigFile) -> String {
    let component = shell_word(&component.display().to_string());
    format!(
        "`berth plugin inspect {component}` shows what it is; to do without it, take its table out of {file}, or its file away"
    )
}

fn fix(error: &HostError, file: &ConfigFile) -> String {
    match error {
        HostError::Config(_) => {
            "change what the message names; `berth config show` tells where each value comes from"
                .to_owned()
        }
        HostError::Load { plugin, .. } => look(Path::new(plugin), file),
        HostError::Engine(_) | HostError::Io { .. } => "see the checks above".to_owned(),
    }
}
