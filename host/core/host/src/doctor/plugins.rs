//! `toolhold doctor`: checks whether a host starts with every plugin and its modules.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolhold_contract::text::{counted, shell_word};
use toolhold_engine::{Origin, PluginInfo, parts_of_plugin};
use toolhold_policy::ConfigFile;

use super::configuration::ReadConfig;
use super::{Examination, Finding};
use crate::doctor::machine::{late, within};
use crate::{Host, HostError, PluginState};

/// Builds a host with the configuration, and reports the state of its plugins.
pub(super) async fn findings(
    examination: Examination,
    read: ReadConfig,
    patience: Duration,
) -> Vec<Finding> {
    let Some(folders) = read.folders else { return Vec::new() };
    if !read.is_valid {
        return vec![Finding::warning(
            "loading",
            "not tried: the configuration is invalid",
            "fix the configuration first",
        )];
    }
    let config_file = read.loaded.own_file();
    let mut builder =
        Host::builder().config(read.loaded).folders(folders).builtins(&examination.builtins);
    for plugin_file in examination.plugin_files {
        builder = builder.plugin_file(plugin_file);
    }
    if let Some(helper) = examination.helper {
        builder = builder.helper(helper);
    }
    // The host is built on a separate task, because the timeout must work even if the building
    // blocks.
    let building = tokio::time::timeout(patience, tokio::spawn(builder.build()));
    let Ok(result) = building.await else { return vec![late(patience)] };
    match result {
        Ok(Ok(host)) => within(patience, move || check_plugins(&host, &config_file)).await,
        Ok(Err(error)) => {
            vec![Finding::failure("loading", error.to_string(), start_fix(&error, &config_file))]
        }
        Err(error) => vec![Finding::failure(
            "loading",
            format!("the check crashed: {error}"),
            "report this bug of Toolhold",
        )],
    }
}

/// Reports the state of all plugins of a host, and names in the configuration without a plugin.
fn check_plugins(host: &Host, config_file: &ConfigFile) -> Vec<Finding> {
    // A plugin is listed once for each of its tools.
    let plugins_of_tools: Vec<_> =
        host.tools().iter().filter_map(|tool| host.plugin_of(&tool.name)).collect();
    let plugins = host.plugins();
    let mut findings = Vec::new();
    for plugin in &plugins {
        findings.push(loading(plugin, &plugins_of_tools, config_file));
    }
    for plugin in &plugins {
        let info = plugins_of_tools.iter().find(|info| info.manifest.name == plugin.name);
        if let Some(info) = info {
            findings.extend(modules(info));
        }
    }
    for message in host.unknown_names() {
        findings.push(Finding::warning("names", message, NAMES_FIX));
    }
    for message in host.uninstalled_plugins() {
        findings.push(Finding::warning("not installed", message, "toolhold plugin install"));
    }
    findings
}

/// Reports whether a plugin is loaded. `plugins_of_tools` has the plugin of each tool.
fn loading(
    plugin: &PluginState,
    plugins_of_tools: &[Arc<PluginInfo>],
    config_file: &ConfigFile,
) -> Finding {
    match &plugin.waiting {
        Some(waiting) if waiting.held => Finding::warning(
            &plugin.name,
            &waiting.reason,
            format!("toolhold plugin approve {}", shell_word(&plugin.name)),
        ),
        Some(waiting) => {
            // A plugin without a file is named in the remedy.
            let component = plugin.file.as_deref().unwrap_or(Path::new(&plugin.name));
            Finding::failure(&plugin.name, &waiting.reason, inspect_fix(component, config_file))
        }
        None => {
            let tools =
                plugins_of_tools.iter().filter(|info| info.manifest.name == plugin.name).count();
            Finding::ok(&plugin.name, counted(tools, "tool"))
        }
    }
}

/// Reports whether the modules of a plugin exist. Returns `None` if the plugin uses no modules.
fn modules(info: &PluginInfo) -> Option<Finding> {
    let manifest = &info.manifest;
    if !manifest.capabilities.iter().any(|request| request.name == "parts") {
        return None;
    }
    let name = format!("modules of {}", manifest.name);
    let modules = parts_of_plugin(info);
    let folders: Vec<String> =
        modules.folders().iter().map(|folder| folder.display().to_string()).collect();
    let fix = match &info.origin {
        Origin::BuiltIn => "install Toolhold from a package, which contains the modules, or build \
                            the modules from source with `cargo xtask plugins`"
            .to_owned(),
        Origin::File(_) => {
            format!("put the modules of the same build into {}", folders.join(" or "))
        }
    };
    if manifest.parts.is_empty() {
        let found = "none: the plugin was built without modules, so it can't parse any language";
        return match info.origin {
            Origin::BuiltIn => Some(Finding::warning(name, found, fix)),
            Origin::File(_) => None,
        };
    }
    let missing = modules.missing();
    if missing.is_empty() {
        return Some(Finding::ok(name, counted(manifest.parts.len(), "module")));
    }
    let found = format!(
        "missing, or from another build: {}; searched in {}",
        missing.join(", "),
        folders.join(" and ")
    );
    Some(Finding::warning(name, found, fix))
}

const NAMES_FIX: &str = "write the name as shown by `toolhold tools` or `toolhold plugin list`, or \
                     remove the name, because a rule with an unknown name protects nothing";

/// Returns the remedy for a plugin that can't be loaded. `file` is the user's configuration file.
fn inspect_fix(component: &Path, file: &ConfigFile) -> String {
    let component = shell_word(&component.display().to_string());
    format!(
        "`toolhold plugin inspect {component}` shows details; to remove the plugin, delete the \
         plugin's table in {file}, or the plugin's file"
    )
}

fn start_fix(error: &HostError, file: &ConfigFile) -> String {
    match error {
        HostError::Config(_) => {
            "change the value in the message; `toolhold config show` shows where each value comes from"
                .to_owned()
        }
        HostError::Load { plugin, .. } => inspect_fix(Path::new(plugin), file),
        HostError::Engine(_) | HostError::Io { .. } => "see the checks above".to_owned(),
    }
}
