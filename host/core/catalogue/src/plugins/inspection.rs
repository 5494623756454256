//! Inspects a component without granting it anything, and compares two versions.

use std::sync::Arc;

use serde::Serialize;
use toolhold_contract::{Annotations, Definition, HostError, ToolSource};
use toolhold_engine::{Candidate, PluginGrants, PluginInfo, Request, Runtime, RuntimeConfig};
use toolhold_policy::CommandTemplate;

use toolhold_config::Folders;

use super::lock_file::PluginSource;
use super::policies::compiled_folder;

/// A component and its tools.
#[derive(Clone, Debug)]
pub struct PluginInspection {
    /// Data that is read without running the component.
    pub info: Arc<PluginInfo>,
    /// The tools of the component.
    pub tools: Vec<Arc<Definition>>,
    /// Exported functions that aren't tools, with the reason. Always empty for components that were
    /// written for Toolhold.
    pub left_out: Vec<String>,
}

impl PluginInspection {
    /// Loads a component without grants, reads its tools, and unloads the component. `command` is
    /// the template of its arguments, if the configuration uses the component as a command.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the component can't be loaded.
    pub async fn new(
        candidate: Candidate,
        folders: &Folders,
        command: Option<CommandTemplate>,
    ) -> Result<Self, HostError> {
        let limits = toolhold_engine::Limits::default();
        let cache = Some(compiled_folder(folders));
        let runtime = Runtime::new(RuntimeConfig {
            concurrency: 1,
            memory: limits.memory,
            cache,
            helper: None,
            ..RuntimeConfig::default()
        })?;
        let grants = PluginGrants {
            inspect_only: true,
            command: command.map(Arc::new),
            ..PluginGrants::default()
        };
        let plugin = runtime.load(candidate, grants).await?;
        let info = Arc::clone(plugin.info());
        let left_out = plugin.left_out().to_vec();
        Ok(Self { info, tools: plugin.tools(), left_out })
    }
}

/// The names of the trusted keys that signed two versions. `None` means that no trusted key signed
/// the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerChange {
    /// The signer of the active version.
    pub old: Option<String>,
    /// The signer of the other version.
    pub new: Option<String>,
}

impl SignerChange {
    /// Returns the change of the signer, or `None` if the signer is the same.
    pub fn between(old: Option<&PluginSource>, new: Option<&PluginSource>) -> Option<Self> {
        let old = old.and_then(|source| source.signer.clone());
        let new = new.and_then(|source| source.signer.clone());
        if old == new { None } else { Some(Self { old, new }) }
    }

    /// Checks whether the active version has a signer. An update without this signer may come from
    /// someone who took over the source.
    pub fn is_loss(&self) -> bool {
        self.old.is_some()
    }
}

/// The differences between two versions of a plugin. Empty fields mean that only the code differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The versions, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Change>,
    /// The descriptions, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Change>,
    /// Capabilities that only the new version asks for.
    pub capabilities_added: Vec<String>,
    /// Capabilities that only the old version asks for.
    pub capabilities_removed: Vec<String>,
    /// Interfaces that only the new version imports.
    pub imports_added: Vec<String>,
    /// Interfaces that only the old version imports.
    pub imports_removed: Vec<String>,
    /// Tools that only the new version has.
    pub tools_added: Vec<String>,
    /// Tools that only the old version has.
    pub tools_removed: Vec<String>,
    /// Tools whose definitions differ.
    pub tools_changed: Vec<ToolChange>,
}

/// An old and a new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The old value.
    pub old: String,
    /// The new value.
    pub new: String,
}

/// A change in the definition of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolChange {
    /// The tool's name.
    pub tool: String,
    /// The part of the tool that changed: `description`, `input schema`, `annotations`, …
    pub what: &'static str,
    /// The old and the new value.
    #[serde(flatten)]
    pub change: Change,
}

impl Difference {
    /// Returns the differences between `old` and `new`.
    pub fn between(old: &PluginInspection, new: &PluginInspection) -> Self {
        let old_manifest = &old.info.manifest;
        let new_manifest = &new.info.manifest;
        let old_capabilities: Vec<_> =
            old_manifest.capabilities.iter().map(describe_capability).collect();
        let new_capabilities: Vec<_> =
            new_manifest.capabilities.iter().map(describe_capability).collect();
        let old_tools: Vec<_> = old.tools.iter().map(|tool| tool.name.clone()).collect();
        let new_tools: Vec<_> = new.tools.iter().map(|tool| tool.name.clone()).collect();
        let mut tools_changed = Vec::new();
        for tool in &new.tools {
            tools_changed.extend(find_changes(&old.tools, tool));
        }
        Self {
            version: change(&old_manifest.version, &new_manifest.version),
            description: change(&old_manifest.description, &new_manifest.description),
            capabilities_added: without(&new_capabilities, &old_capabilities),
            capabilities_removed: without(&old_capabilities, &new_capabilities),
            imports_added: without(&new.info.imports, &old.info.imports),
            imports_removed: without(&old.info.imports, &new.info.imports),
            tools_added: without(&new_tools, &old_tools),
            tools_removed: without(&old_tools, &new_tools),
            tools_changed,
        }
    }
}

fn describe_capability(request: &Request) -> String {
    let Request { name, reason, .. } = request;
    match &request.access {
        Some(access) => format!("{name} ({access}): {reason}"),
        None => format!("{name}: {reason}"),
    }
}

fn without(items: &[String], excluded: &[String]) -> Vec<String> {
    items.iter().filter(|item| !excluded.contains(item)).cloned().collect()
}

fn change(old: &str, new: &str) -> Option<Change> {
    if old == new {
        return None;
    }
    Some(Change { old: old.to_owned(), new: new.to_owned() })
}

/// Returns a part of a definition as text.
type DefinitionPart = fn(&Definition) -> String;

/// Returns the changed parts of the definition of `tool`. A new tool has no changes.
fn find_changes(old_tools: &[Arc<Definition>], tool: &Definition) -> Vec<ToolChange> {
    let Some(old) = old_tools.iter().find(|old| old.name == tool.name) else { return Vec::new() };
    let parts: [(&'static str, DefinitionPart); 8] = [
        ("title", |tool| tool.title.clone().unwrap_or_default()),
        ("description", |tool| tool.description.clone()),
        ("input schema", |tool| tool.input_schema.to_string()),
        ("output schema", |tool| {
            tool.output_schema.as_ref().map(ToString::to_string).unwrap_or_default()
        }),
        ("annotations", |tool| describe_annotations(tool.annotations)),
        ("subjects", |tool| serde_json::to_string(&tool.subjects).unwrap_or_default()),
        ("arguments", |tool| serde_json::to_string(&tool.arguments).unwrap_or_default()),
        ("fence", |tool| tool.fence.clone().unwrap_or_default()),
    ];
    let mut changes = Vec::new();
    for (name, to_text) in parts {
        if let Some(change) = change(&to_text(old), &to_text(tool)) {
            changes.push(ToolChange { tool: tool.name.clone(), what: name, change });
        }
    }
    changes
}

fn describe_annotations(annotations: Annotations) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, cacheable } = annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
        (cacheable, "cacheable"),
    ];
    let mut true_words = Vec::new();
    for (is_true, word) in words {
        if is_true {
            true_words.push(word);
        }
    }
    true_words.join(", ")
}
