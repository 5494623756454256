//! Inspects a component without granting it anything, and finds the differences between two
//! versions.

use std::sync::Arc;

use serde::Serialize;
use toolhold_contract::{Annotations, Definition, HostError, ToolSource};
use toolhold_engine::{Candidate, PluginGrants, PluginInfo, Request, Runtime, RuntimeConfig};
use toolhold_policy::CommandTemplate;

use toolhold_config::Folders;

use super::lock_file::PluginSource;

/// A component with the tools that it offers.
#[derive(Clone, Debug)]
pub struct PluginInspection {
    /// Facts that are read without running the component.
    pub info: Arc<PluginInfo>,
    /// The tools of the component.
    pub tools: Vec<Arc<Definition>>,
    /// The exported functions that aren't tools, each with the reason. Only used for a component
    /// that doesn't know Toolhold.
    pub left_out: Vec<String>,
}

impl PluginInspection {
    /// Loads a component without grants, gets its tools, and drops it. `command` is the template of
    /// its arguments, if the operator's table makes the component a command.
    ///
    /// # Errors
    ///
    /// [`HostError`] with the reason if the component can't be loaded.
    pub async fn new(
        candidate: Candidate,
        folders: &Folders,
        command: Option<CommandTemplate>,
    ) -> Result<Self, HostError> {
        let limits = toolhold_engine::Limits::default();
        let cache = Some(folders.cache.join("compiled"));
        let runtime = Runtime::new(RuntimeConfig {
            concurrency: 1,
            memory: limits.memory,
            cache,
            helper: None,
            ..RuntimeConfig::default()
        })?;
        let command = command.map(Arc::new);
        let policy = PluginGrants { inspect_only: true, command, ..PluginGrants::default() };
        let plugin = runtime.load(candidate, policy).await?;
        let info = Arc::clone(plugin.info());
        let left_out = plugin.left_out().to_vec();
        Ok(Self { info, tools: plugin.tools(), left_out })
    }
}

/// The names of the trusted keys that signed the active version and another version. `None` means
/// that no trusted key signed the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerChange {
    /// The signer of the version in force.
    pub old: Option<String>,
    /// The signer of the other version.
    pub new: Option<String>,
}

impl SignerChange {
    /// Returns the change between the sources of two versions, or `None` if the sources are equal.
    pub fn between(old: Option<&PluginSource>, new: Option<&PluginSource>) -> Option<Self> {
        let old = old.and_then(|source| source.signer.clone());
        let new = new.and_then(|source| source.signer.clone());
        if old == new { None } else { Some(Self { old, new }) }
    }

    /// Checks whether the active version has a signer that the other version lacks. This may mean
    /// that someone else controls the source.
    pub fn is_loss(&self) -> bool {
        self.old.is_some()
    }
}

/// The differences between a plugin's version and the previous version. If all fields are empty,
/// only the code differs.
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

/// The old value and the new value.
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
        Self {
            version: change(&old_manifest.version, &new_manifest.version),
            description: change(&old_manifest.description, &new_manifest.description),
            capabilities_added: without(&new_capabilities, &old_capabilities),
            capabilities_removed: without(&old_capabilities, &new_capabilities),
            imports_added: without(&new.info.imports, &old.info.imports),
            imports_removed: without(&old.info.imports, &new.info.imports),
            tools_added: without(&new_tools, &old_tools),
            tools_removed: without(&old_tools, &new_tools),
            tools_changed: new
                .tools
                .iter()
                .flat_map(|tool| find_changes(&old.tools, tool))
                .collect(),
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
    (old != new).then(|| Change { old: old.to_owned(), new: new.to_owned() })
}

/// A function that returns the text of a part of a tool's definition.
type DefinitionPart = fn(&Definition) -> String;

/// Compares each part of a tool with the old tool of the same name.
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
    for (what, part) in parts {
        if let Some(change) = change(&part(old), &part(tool)) {
            changes.push(ToolChange { tool: tool.name.clone(), what, change });
        }
    }
    changes
}

/// Lists the annotations that are true.
fn describe_annotations(annotations: Annotations) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, cacheable } = annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
        (cacheable, "cacheable"),
    ];
    let true_words: Vec<&str> =
        words.iter().filter(|(is_true, _)| *is_true).map(|(_, word)| *word).collect();
    true_words.join(", ")
}
