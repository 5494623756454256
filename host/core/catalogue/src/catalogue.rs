//! Finds the tool with a name or alias, and suggests similar names.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use jsonschema::Validator;
use serde_json::Value;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Annotations, Category, Definition, Failure, HostError, ToolSource};
use toolhold_engine::{Origin, Plugin, SchemaCost};
use toolhold_policy::TextGlob;

use crate::filter_chain::Chain;
use crate::schema::{self, InvalidSchemaError};
use crate::tally::Tally;

/// Minimum similarity of a suggested name.
const SIMILAR: f64 = 0.75;

/// Minimum similarity of a suggested destructive tool. A model that misspells the tool for renaming
/// must not get a suggestion to delete.
const SIMILAR_DESTRUCTIVE: f64 = 0.85;

const MAX_SIMILAR: usize = 3;

/// Maximum length of a requested name in bytes, for messages and for comparing names.
const MAX_REQUESTED: usize = 128;

/// A tool that can be called.
pub struct Tool {
    /// The definition from the tool's source.
    pub definition: Arc<Definition>,
    /// The annotations that the host trusts. *Read-only* is always trusted, because the host
    /// enforces it. Other promises are trusted only if the tool is built in or approved.
    pub annotations: Annotations,
    /// Whether the host trusts the tool's claims about itself.
    pub claims_trusted: bool,
    /// The source that runs the tool.
    pub provider: Arc<dyn ToolSource>,
    /// The tool's plugin. `None` if the source isn't a plugin.
    pub plugin: Option<Plugin>,
    /// Counters for the plugin's calls.
    pub tally: Arc<Tally>,
    /// The compiled input schema.
    ///
    /// A third-party schema is compiled when it is first loaded on this machine, so that an invalid
    /// schema is refused early. Other schemas are compiled at the first call, because most
    /// processes call few tools.
    validator: OnceLock<Validator>,
    cost: OnceLock<SchemaCost>,
}

impl Tool {
    /// Creates the callable tools of a plugin. `claims_trusted` means that the plugin is built in,
    /// or that a person has approved its claims.
    ///
    /// # Errors
    ///
    /// Returns an error if a schema is invalid.
    pub fn from_plugin(
        plugin: &Plugin,
        tally: &Arc<Tally>,
        claims_trusted: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let provider = Arc::new(plugin.clone()) as Arc<dyn ToolSource>;
        Self::create_all(&provider, Some(plugin), tally, claims_trusted)
    }

    /// Creates the tools of a source that isn't a plugin.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_plugin`](Self::from_plugin).
    pub fn from_provider(provider: &Arc<dyn ToolSource>) -> Result<Vec<Arc<Self>>, HostError> {
        let no_plugin = None;
        let claims_trusted = true;
        Self::create_all(provider, no_plugin, &Arc::default(), claims_trusted)
    }

    /// Creates the tools of a source. Schemas of a plugin that is new to this machine are compiled
    /// at once.
    fn create_all(
        provider: &Arc<dyn ToolSource>,
        plugin: Option<&Plugin>,
        tally: &Arc<Tally>,
        claims_trusted: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let needs_check = match plugin {
            Some(plugin) => plugin.info().origin != Origin::BuiltIn && !plugin.is_known(),
            // The tools of a server aren't checked here, because a tool with an invalid schema only
            // fails its own calls.
            None => !provider.is_third_party(),
        };
        let only_reads = plugin.is_some_and(|plugin| plugin.policy().only_reads);
        let mut tools = Vec::new();
        for mut definition in provider.tools() {
            if only_reads {
                Arc::make_mut(&mut definition).make_read_only();
            }
            let annotations = trusted_annotations(definition.annotations, claims_trusted);
            let tool = Self {
                definition,
                annotations,
                claims_trusted,
                provider: Arc::clone(provider),
                plugin: plugin.cloned(),
                tally: Arc::clone(tally),
                validator: OnceLock::new(),
                cost: OnceLock::new(),
            };
            if needs_check && let Err(error) = tool.compile_once() {
                return Err(HostError::Load {
                    plugin: tool.provider.name().to_owned(),
                    reason: error.to_string(),
                });
            }
            tools.push(Arc::new(tool));
        }
        Ok(tools)
    }

    /// Checks whether the tool is built in or belongs to the embedding program.
    pub fn is_built_in(&self) -> bool {
        match &self.plugin {
            Some(plugin) => plugin.info().origin == Origin::BuiltIn,
            None => !self.provider.is_third_party(),
        }
    }

    /// Returns the annotations of a call with these arguments. Some arguments make a call
    /// read-only. The claim of a third-party server about this is ignored, because the host can't
    /// enforce it.
    pub fn annotations_with(&self, arguments: &Value) -> Annotations {
        let mut annotations = self.annotations;
        if !annotations.read_only && !self.provider.is_third_party() {
            annotations.read_only = self.definition.is_read_only_call(arguments);
        }
        annotations
    }

    /// Returns the cost of checking arguments.
    pub fn cost(&self) -> SchemaCost {
        *self.cost.get_or_init(|| SchemaCost::from_schema(&self.definition.input_schema))
    }

    /// Returns the validator for the arguments of a call.
    pub fn validator(&self) -> Result<&Validator, Failure> {
        self.compile_once().map_err(|error| {
            Failure::new(Category::PermanentFailure, error.to_string()).with_code("host")
        })
    }

    /// Returns the validator of the schema. The first call compiles the schema.
    fn compile_once(&self) -> Result<&Validator, ToolSchemaError> {
        if let Some(validator) = self.validator.get() {
            return Ok(validator);
        }
        let Definition { name, input_schema, .. } = &*self.definition;
        let validator = schema::compile(input_schema)
            .map_err(|error| ToolSchemaError { tool: name.clone(), error })?;
        Ok(self.validator.get_or_init(|| validator))
    }
}

/// Returns the annotations that the host trusts. Untrusted annotations get their strictest value,
/// except *read-only*, which the host enforces.
fn trusted_annotations(claimed: Annotations, claims_trusted: bool) -> Annotations {
    if claims_trusted {
        return claimed;
    }
    Annotations {
        read_only: claimed.read_only,
        destructive: true,
        idempotent: false,
        open_world: true,
        cacheable: false,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the input schema of the tool `{tool}` can't be used: {error}")]
struct ToolSchemaError {
    tool: String,
    error: InvalidSchemaError,
}

/// The tools at one moment. A catalogue never changes: changed plugins get a new catalogue. A call
/// uses the same catalogue until its end.
#[derive(Default)]
pub struct Catalogue {
    tools: Vec<Arc<Tool>>,
    /// Names and aliases, with the index in `tools`.
    names: HashMap<String, usize>,
    /// Plugins whose expected component isn't loaded: the name and a sentence with the reason.
    missing: Vec<(String, String)>,
    /// The plugins that are still loading.
    loading: Vec<String>,
    /// The filters for answers.
    pub filters: Chain,
}

/// Maximum number of tools that a failure lists by name if no tool has the called name.
const MAX_NAMED: usize = 40;

/// Returns the first [`MAX_NAMED`] names, and globs for the plugins and servers of the other names.
/// Tools without a source in their name are always listed.
fn shortened(names: &[&str]) -> Vec<String> {
    let mut shown = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let is_shortened = index >= MAX_NAMED;
        let entry = match name.split_once("__") {
            Some((source, _)) if is_shortened => format!("{source}__*"),
            _ => (*name).to_owned(),
        };
        if !shown.contains(&entry) {
            shown.push(entry);
        }
    }
    shown
}

/// Returns a hint about a tool that only some hosts have, or `None` for other names.
pub(crate) fn hint_about_other_hosts(name: &str) -> Option<&'static str> {
    match name {
        "call_tool" | "compress_context" | "delegate" | "find_tools" => {
            Some("Only the agent of `toolhold run` and `toolhold chat` has this tool.")
        }
        "invoke_skill" | "load_skill" => Some(
            "The tool exists only if there are skills; `toolhold skills` shows the folders of \
             skills.",
        ),
        _ => None,
    }
}

impl Catalogue {
    /// Creates a catalogue. `missing` are plugins whose expected component isn't loaded: the name
    /// and a sentence with the reason.
    ///
    /// # Errors
    ///
    /// Returns an error if two tools have the same name.
    pub fn new(
        tools: Vec<Arc<Tool>>,
        filters: Chain,
        missing: Vec<(String, String)>,
    ) -> Result<Self, HostError> {
        let mut names = HashMap::new();
        for (index, tool) in tools.iter().enumerate() {
            let Definition { name, aliases, .. } = &*tool.definition;
            for name in std::iter::once(name).chain(aliases) {
                let is_used = names.insert(name.clone(), index).is_some();
                if is_used {
                    let reason = format!("another source already has a tool `{name}`");
                    return Err(HostError::Load {
                        plugin: tool.provider.name().to_owned(),
                        reason,
                    });
                }
            }
        }
        Ok(Self { tools, names, missing, loading: Vec::new(), filters })
    }

    pub(crate) fn with_loading(mut self, loading: Vec<String>) -> Self {
        self.loading = loading;
        self
    }

    pub(crate) fn loading(&self) -> &[String] {
        &self.loading
    }

    /// Checks whether a plugin that is still loading may have a tool with this name or glob. Names
    /// of third-party tools begin with the name of their plugin.
    pub(crate) fn may_be_loading(&self, name: &str) -> bool {
        let Some((plugin, _)) = name.split_once("__") else { return false };
        if self.loading.is_empty() || self.knows(name) {
            return false;
        }
        if self.loading.iter().any(|loading| loading == plugin) {
            return true;
        }
        let Ok(plugin_glob) = TextGlob::new(plugin) else { return false };
        self.loading.iter().any(|loading| plugin_glob.matches(loading))
    }

    /// Returns all tools, in the order of their sources.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Checks whether a tool has that name or alias.
    pub fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the tool with this name or alias.
    ///
    /// # Errors
    ///
    /// [`Category::ToolNotFound`] with similar names if no tool has this name.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
        self.resolve_among(name, || {
            self.tools.iter().map(|tool| Arc::clone(&tool.definition)).collect()
        })
    }

    /// Returns the tool with this name or alias. A failure lists only tools of `offered`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`resolve`](Self::resolve).
    pub fn resolve_among(
        &self,
        name: &str,
        offered: impl FnOnce() -> Vec<Arc<Definition>>,
    ) -> Result<&Arc<Tool>, Failure> {
        if let Some(index) = self.names.get(name) {
            return Ok(&self.tools[*index]);
        }
        let failure = Failure::new(
            Category::ToolNotFound,
            format!("no tool is named `{}`", neutral_line(cut(name, MAX_REQUESTED))),
        );
        let plugin = name.split_once("__").map_or(name, |(plugin, _)| plugin);
        for (missing_plugin, reason) in &self.missing {
            if missing_plugin == plugin {
                return Err(failure.with_suggestion(reason.clone()));
            }
        }
        if let Some(hint) = hint_about_other_hosts(name) {
            return Err(failure.with_suggestion(hint));
        }

        Err(failure.with_suggestion(self.suggest(name, &offered())))
    }

    fn suggest(&self, name: &str, offered: &[Arc<Definition>]) -> String {
        let names: Vec<&str> = offered.iter().map(|tool| &*tool.name).collect();
        let similar = self.similar(name);
        let closest = similar.iter().find(|similar| names.contains(&similar.as_str()));
        match closest {
            Some(closest) => format!("Did you mean `{closest}`?"),
            None if names.is_empty() => "No tools are loaded.".to_owned(),
            None => format!("Available tools: {}.", shortened(&names).join(", ")),
        }
    }

    /// Returns at most three similar names, the most similar first.
    pub fn similar(&self, name: &str) -> Vec<String> {
        let requested = cut(name, MAX_REQUESTED).to_ascii_lowercase();
        let mut scored: Vec<(f64, &str)> = Vec::new();
        for (known, index) in &self.names {
            let tool = &self.tools[*index];
            let score = strsim::jaro_winkler(known, &requested);
            let threshold =
                if tool.annotations.destructive { SIMILAR_DESTRUCTIVE } else { SIMILAR };
            if score >= threshold {
                scored.push((score, &tool.definition.name));
            }
        }
        scored.sort_by(|(score_a, name_a), (score_b, name_b)| {
            score_b.total_cmp(score_a).then(name_a.cmp(name_b))
        });

        // Several aliases of a tool may be similar, but suggest its name only once.
        let mut suggestions: Vec<String> = Vec::new();
        for (_score, name) in scored {
            if suggestions.len() == MAX_SIMILAR {
                break;
            }
            if !suggestions.iter().any(|known| known == name) {
                suggestions.push(name.to_owned());
            }
        }
        suggestions
    }
}
