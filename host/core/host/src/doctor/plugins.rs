//! `toolhold doctor`: checks whether a host starts with every plugin and the plugins' modules.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolhold_contract::text::{counted, shell_word};
use toolhold_engine::{Origin, PluginInfo, parts_of_plugin};
use toolhold_policy::ConfigFile;

use super::configuration::Read;
use super::{Examination, Finding};
use crate::doctor::machine::{late, within};
use crate::{Host, HostError, PluginState};

/// Checks whether a host starts with every plugin.
pub(super) async fn findings(
    examination: Examination,
    read: Read,
    patience: Duration,
) -> Vec<Finding> {
    let Some(folders) = read.folders else { return Vec::new() };
    if !read.is_right {
        return vec![Finding::warning(
            "loading",
            "not tried: the configuration is invalid",
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
    // The host is built on a separate task, so that the timeout also works if the task blocks.
    match tokio::time::timeout(patience, tokio::spawn(builder.build())).await {
        Ok(Ok(Ok(host))) => within(patience, move || check_plugins(&host, &file)).await,
        Ok(Ok(Err(error))) => {
            vec![Finding::failure("loading", error.to_string(), fix(&error, &file))]
        }
        Ok(Err(error)) => vec![Finding::failure(
            "loading",
            format!("the check crashed: {error}"),
            "report this bug of Toolhold",
        )],
        Err(_) => vec![late(patience)],
    }
}

fn check_plugins(host: &Host, file: &ConfigFile) -> Vec<Finding> {
    let of_tools: Vec<_> =
        host.tools().iter().filter_map(|tool| host.plugin_of(&tool.name)).collect();
    let unknown_names = host.unknown_names();
    let plugins = host.plugins();
    let mut findings: Vec<_> =
        plugins.iter().map(|plugin| loading(plugin, &of_tools, file)).collect();
    for plugin in &plugins {
        if let Some(info) = of_tools.iter().find(|info| info.manifest.name == plugin.name) {
            findings.extend(parts(info));
        }
    }
    for message in unknown_names {
        findings.push(Finding::warning("names", message, NAMES));
    }
    findings
}

/// Reports whether a plugin is loaded. `of_tools` has the plugins of all tools, one for each tool.
fn loading(plugin: &PluginState, of_tools: &[Arc<PluginInfo>], file: &ConfigFile) -> Finding {
    match &plugin.waiting {
        Some(waiting) if waiting.held => Finding::warning(
            &plugin.name,
            &waiting.reason,
            format!("toolhold plugin approve {}", shell_word(&plugin.name)),
        ),
        Some(waiting) => {
            let inspect = plugin.file.as_deref().map_or(Path::new(&plugin.name), |file| file);
            Finding::failure(&plugin.name, &waiting.reason, inspect_fix(inspect, file))
        }
        None => {
            let own = of_tools.iter().filter(|info| info.manifest.name == plugin.name);
            Finding::ok(&plugin.name, counted(own.count(), "tool"))
        }
    }
}

/// Reports whether the modules of a plugin exist. Returns `None` if the plugin doesn't use modules.
fn parts(info: &PluginInfo) -> Option<Finding> {
    let manifest = &info.manifest;
    if !manifest.capabilities.iter().any(|request| request.name == "parts") {
        return None;
    }
    let name = format!("parts of {}", manifest.name);
    let of_files = parts_of_plugin(info);
    let folders: Vec<String> =
        of_files.folders().iter().map(|folder| folder.display().to_string()).collect();
    let fix = match &info.origin {
        Origin::BuiltIn => "install Toolhold from a package, which contains the parts, or build them from source with `cargo xtask plugins`".to_owned(),
        Origin::File(_) => format!("put the parts of the same build into {}", folders.join(" or ")),
    };
    if manifest.parts.is_empty() {
        let found = "none: the plugin was built without parts, so it can't parse any language";
        return match info.origin {
            Origin::BuiltIn => Some(Finding::warning(name, found, fix)),
            Origin::File(_) => None,
        };
    }
    let missing = of_files.missing();
    if missing.is_empty() {
        return Some(Finding::ok(name, counted(manifest.parts.len(), "part")));
    }
    let found = format!(
        "missing, or from another build: {}; searched in {}",
        missing.join(", "),
        folders.join(" and ")
    );
    Some(Finding::warning(name, found, fix))
}

const NAMES: &str = "write the name as `toolhold tools` or `toolhold plugin list` shows it, or remove it: a rule with an unknown name protects nothing";

/// Returns the remedy for a plugin that can't be loaded. `file` is the user's own configuration.
fn inspect_fix(component: &Path, file: &ConfigFile) -> String {
    let component = shell_word(&component.display().to_string());
    format!(
        "`toolhold plugin inspect {component}` shows details; to remove the plugin, delete its table in {file}, or its file"
    )
}

fn fix(error: &HostError, file: &ConfigFile) -> String {
    match error {
        HostError::Config(_) => {
            "change the value in the message; `toolhold config show` shows where each value comes from"
                .to_owned()
        }
        HostError::Load { plugin, .. } => inspect_fix(Path::new(plugin), file),
        HostError::Engine(_) | HostError::Io { .. } => "see the checks above".to_owned(),
    }
}
