//! What a component offers, asked with nothing granted, and how one version differs from another.

use std::sync::Arc;

use berth_contract::{Annotations, Definition, HostError, Provider};
use berth_runtime::{Candidate, PluginInfo, PluginPolicy, Request, Runtime, RuntimeConfig};
use serde::Serialize;

use berth_config::Folders;

/// A component and what it says that it offers.
#[derive(Clone, Debug)]
pub struct PluginInspection {
    /// What is known without running it.
    pub info: Arc<PluginInfo>,
    /// Its tools.
    pub tools: Vec<Arc<Definition>>,
}

impl PluginInspection {
    /// Loads a component with nothing granted, asks it for its tools, and drops it.
    ///
    /// # Errors
    ///
    /// [`HostError`]: why it does not load.
    pub async fn new(candidate: Candidate, folders: &Folders) -> Result<Self, HostError> {
        let limits = berth_runtime::Limits::default();
        let cache = Some(folders.cache.join("compiled"));
        let runtime = Runtime::new(RuntimeConfig {
            concurrency: 1,
            memory: limits.memory,
            cache,
            helper: None,
            ..RuntimeConfig::default()
        })?;
        let plugin = runtime
            .load(candidate, PluginPolicy { looked_at: true, ..PluginPolicy::default() })
            .await?;
        Ok(Self { info: Arc::clone(plugin.info()), tools: plugin.tools() })
    }
}

/// How a version of a plugin differs from the one before. Where it is empty, only the code does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The versions, where they are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Change>,
    /// The description, where it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Change>,
    /// What it asks for and did not before.
    pub capabilities_added: Vec<String>,
    /// What it does not ask for any more.
    pub capabilities_removed: Vec<String>,
    /// Interfaces that it imports and did not before.
    pub imports_added: Vec<String>,
    /// Interfaces that it does not import any more.
    pub imports_removed: Vec<String>,
    /// Tools that it did not have before.
    pub tools_added: Vec<String>,
    /// Tools that it does not have any more.
    pub tools_removed: Vec<String>,
    /// Tools that say something else of themselves.
    pub tools_changed: Vec<ToolChange>,
}

/// Something that was one way and is another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// How it was.
    pub old: String,
    /// How it is.
    pub new: String,
}

/// What a tool says of itself that it did not before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolChange {
    /// Its name.
    pub tool: String,
    /// What changed: `description`, `input schema`, `annotations`, …
    pub what: &'static str,
    /// From what to what.
    #[serde(flatten)]
    pub change: Change,
}

impl Difference {
    /// What `new` has that `old` has not, and the other way round.
    pub fn between(old: &PluginInspection, new: &PluginInspection) -> Self {
        let (before, after) = (&old.info.manifest, &new.info.manifest);
        let capabilities =
            |requests: &[Request]| requests.iter().map(capability).collect::<Vec<_>>();
        let (before_asked, after_asked) =
            (capabilities(&before.capabilities), capabilities(&after.capabilities));
        let names = |tools: &[Arc<Definition>]| {
            tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
        };
        let (before_tools, after_tools) = (names(&old.tools), names(&new.tools));
        Self {
            version: change(&before.version, &after.version),
            description: change(&before.description, &after.description),
            capabilities_added: without(&after_asked, &before_asked),
            capabilities_removed: without(&before_asked, &after_asked),
            imports_added: without(&new.info.imports, &old.info.imports),
            imports_removed: without(&old.info.imports, &new.info.imports),
            tools_added: without(&after_tools, &before_tools),
            tools_removed: without(&before_tools, &after_tools),
            tools_changed: new.tools.iter().flat_map(|tool| changes(&old.tools, tool)).collect(),
        }
    }
}

fn capability(request: &Request) -> String {
    let access = request.access.as_deref().map(|access| format!(" ({access})")).unwrap_or_default();
    format!("{}{access}: {}", request.name, request.reason)
}

fn without(some: &[String], others: &[String]) -> Vec<String> {
    some.iter().filter(|item| !others.contains(item)).cloned().collect()
}

fn change(old: &str, new: &str) -> Option<Change> {
    (old != new).then(|| Change { old: old.to_owned(), new: new.to_owned() })
}

fn changes(before: &[Arc<Definition>], tool: &Definition) -> Vec<ToolChange> {
    let Some(old) = before.iter().find(|old| old.name == tool.name) else { return Vec::new() };
    let text = |of: &dyn Fn(&Definition) -> String| change(&of(old), &of(tool));
    let parts: [(&str, Option<Change>); 7] = [
        ("title", text(&|tool| tool.title.clone().unwrap_or_default())),
        ("description", text(&|tool| tool.description.clone())),
        ("input schema", text(&|tool| tool.input_schema.to_string())),
        (
            "output schema",
            text(&|tool| tool.output_schema.as_ref().map(ToString::to_string).unwrap_or_default()),
        ),
        ("annotations", text(&|tool| annotations(tool.annotations))),
        ("subjects", text(&|tool| serde_json::to_string(&tool.subjects).unwrap_or_default())),
        ("fence", text(&|tool| tool.fence.clone().unwrap_or_default())),
    ];
    let changed = parts.into_iter().filter_map(|(what, change)| Some((what, change?)));
    changed.map(|(what, change)| ToolChange { tool: tool.name.clone(), what, change }).collect()
}

fn annotations(annotations: Annotations) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, cacheable } = annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
        (cacheable, "cacheable"),
    ];
    words.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
