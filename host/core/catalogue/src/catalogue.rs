//! Finds the tool that a name or alias means, or suggests similar names.

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

/// How similar a name has to be to be suggested.
const SIMILAR: f64 = 0.75;

/// Minimum similarity at which a destructive tool is suggested for an unknown name. The limit is
/// higher than for other tools, since a model that wants to rename a file may follow a suggestion
/// to delete it.
const SIMILAR_DESTRUCTIVE: f64 = 0.85;

/// A tool that can be called.
pub struct Tool {
    /// The tool's own definition.
    pub definition: Arc<Definition>,
    /// The annotations that the host trusts. The host always trusts *read-only*, because it
    /// enforces this annotation. It trusts other relaxing claims (for example, that nothing is
    /// destroyed) only if the tool is built in or approved.
    pub annotations: Annotations,
    /// Whether the host trusts the tool's claims about itself.
    pub claims_trusted: bool,
    /// The provider that runs the tool.
    pub provider: Arc<dyn ToolSource>,
    /// The plugin of the provider. `None` if the provider isn't a plugin.
    pub plugin: Option<Plugin>,
    /// Counters of the plugin's calls.
    pub tally: Arc<Tally>,
    /// The compiled input schema.
    ///
    /// A third-party schema is compiled when it is first loaded on this machine, so that an invalid
    /// schema is refused. Other schemas are compiled at the first call, because a process that
    /// makes one call doesn't need all of them.
    validator: OnceLock<Validator>,
    /// The value of [`cost`](Self::cost). It is computed at the first call, when the schema is
    /// compiled.
    cost: OnceLock<SchemaCost>,
}

impl Tool {
    /// Creates the callable tools of a plugin. `claims_trusted` is `true` if a person has approved
    /// the plugin's claims, or if the plugin is built in.
    ///
    /// # Errors
    ///
    /// Returns an error if a schema isn't valid.
    pub fn from_plugin(
        plugin: &Plugin,
        tally: &Arc<Tally>,
        claims_trusted: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let provider = Arc::new(plugin.clone()) as Arc<dyn ToolSource>;
        Self::all(&provider, Some(plugin), tally, claims_trusted)
    }

    /// Creates the tools of a provider that isn't a plugin.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_plugin`](Self::from_plugin).
    pub fn from_provider(provider: &Arc<dyn ToolSource>) -> Result<Vec<Arc<Self>>, HostError> {
        Self::all(provider, None, &Arc::default(), true)
    }

    /// Returns the tools of a provider. A third-party schema that is new to this machine is
    /// compiled at once.
    fn all(
        provider: &Arc<dyn ToolSource>,
        plugin: Option<&Plugin>,
        tally: &Arc<Tally>,
        claims_trusted: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let was_checked = match plugin {
            Some(plugin) => plugin.info().origin == Origin::BuiltIn || plugin.is_known(),
            None => provider.is_third_party(),
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
            if !was_checked {
                tool.compiled().map_err(|error| HostError::Load {
                    plugin: tool.provider.name().to_owned(),
                    reason: error.to_string(),
                })?;
            }
            tools.push(Arc::new(tool));
        }
        Ok(tools)
    }

    /// Checks whether the tool is built in or the program's own, and not written by a third party.
    pub fn is_built_in(&self) -> bool {
        match &self.plugin {
            Some(plugin) => plugin.info().origin == Origin::BuiltIn,
            None => !self.provider.is_third_party(),
        }
    }

    /// Returns the annotations of a call with these arguments. Only a plugin may claim that a call
    /// with certain arguments only reads, because the host enforces the claim for plugins.
    pub fn annotations_with(&self, arguments: &Value) -> Annotations {
        let mut annotations = self.annotations;
        if !annotations.read_only && !self.provider.is_third_party() {
            annotations.read_only = self.definition.reads_with(arguments);
        }
        annotations
    }

    /// Returns the cost of checking arguments.
    pub fn cost(&self) -> SchemaCost {
        *self.cost.get_or_init(|| SchemaCost::from_schema(&self.definition.input_schema))
    }

    /// Returns the validator for the arguments of a call.
    pub fn validator(&self) -> Result<&Validator, Failure> {
        self.compiled().map_err(|error| {
            Failure::new(Category::PermanentFailure, error.to_string()).with_code("host")
        })
    }

    /// Returns the validator. The first call compiles the schema.
    fn compiled(&self) -> Result<&Validator, ToolSchemaError> {
        if let Some(validator) = self.validator.get() {
            return Ok(validator);
        }
        let Definition { name, input_schema, .. } = &*self.definition;
        let validator = schema::compile(input_schema)
            .map_err(|error| ToolSchemaError { tool: name.clone(), error })?;
        Ok(self.validator.get_or_init(|| validator))
    }
}

/// Returns the annotations that the host trusts. If the claims aren't trusted, each annotation gets
/// its strictest value, except *read-only*, which the host enforces.
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

/// A tool whose input schema isn't valid.
#[derive(Debug, thiserror::Error)]
#[error("the input schema of its tool `{tool}` can't be used: {error}")]
struct ToolSchemaError {
    tool: String,
    error: InvalidSchemaError,
}

/// The tools at one moment. A catalogue never changes: when plugins change, a new catalogue
/// replaces it. A call uses the same catalogue until its end.
#[derive(Default)]
pub struct Catalogue {
    tools: Vec<Arc<Tool>>,
    /// Names and aliases.
    names: HashMap<String, usize>,
    /// Names of plugins whose expected component isn't loaded, each with a sentence that says why.
    missing: Vec<(String, String)>,
    /// Names of plugins that are being loaded.
    loading: Vec<String>,
    /// The filters for answers.
    pub filters: Chain,
}

/// Maximum number of tools that a failure lists if no tool has the called name.
const MAX_NAMED: usize = 40;

/// Returns where a tool can be found that not every host has. Returns `None` for the name of any
/// other tool.
pub(crate) fn place_elsewhere(name: &str) -> Option<&'static str> {
    match name {
        "call_tool" | "compress_context" | "delegate" | "find_tools" => {
            Some("The tool belongs to the agent, which `toolhold run` and `toolhold chat` start.")
        }
        "invoke_skill" | "load_skill" => Some(
            "The tool exists if there are skills; `toolhold skills` shows the folders of skills.",
        ),
        _ => None,
    }
}

impl Catalogue {
    /// Returns a catalogue of `tools` and `filters`. `missing` names the plugins whose expected
    /// component isn't loaded, each with a sentence that says why.
    ///
    /// # Errors
    ///
    /// Two tools have the same name.
    pub fn new(
        tools: Vec<Arc<Tool>>,
        filters: Chain,
        missing: Vec<(String, String)>,
    ) -> Result<Self, HostError> {
        let mut names = HashMap::new();
        for (index, tool) in tools.iter().enumerate() {
            for name in std::iter::once(&tool.definition.name).chain(&tool.definition.aliases) {
                if names.insert(name.clone(), index).is_some() {
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

    /// Sets the plugins that are being loaded.
    pub(crate) fn with_loading(mut self, loading: Vec<String>) -> Self {
        self.loading = loading;
        self
    }

    /// Returns the names of plugins that are being loaded.
    pub(crate) fn loading(&self) -> &[String] {
        &self.loading
    }

    /// Checks whether a plugin that isn't loaded yet may have a tool with this name or glob. The
    /// names of third-party tools begin with the name of their plugin.
    pub(crate) fn may_come(&self, name: &str) -> bool {
        let Some((plugin, _)) = name.split_once("__") else { return false };
        if self.loading.is_empty() || self.knows(name) {
            return false;
        }
        if self.loading.iter().any(|loading| loading == plugin) {
            return true;
        }
        let Ok(glob) = TextGlob::new(plugin) else { return false };
        self.loading.iter().any(|loading| glob.matches(loading))
    }

    /// Returns all tools, in the order of their providers.
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
    /// [`Category::ToolNotFound`], with similar names, if no tool has this name.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
        self.resolve_among(name, || {
            self.tools.iter().map(|tool| Arc::clone(&tool.definition)).collect()
        })
    }

    /// Returns the tool with this name or alias. If there is no such tool, the failure lists only
    /// tools of `offered`.
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
            format!("no tool is named `{}`", neutral_line(cut(name, 128))),
        );
        let plugin = name.split_once("__").map_or(name, |(plugin, _)| plugin);
        if let Some((_, why)) = self.missing.iter().find(|(missing, _)| missing == plugin) {
            return Err(failure.with_suggestion(why.clone()));
        }
        if let Some(place) = place_elsewhere(name) {
            return Err(failure.with_suggestion(place));
        }

        let definitions = offered();
        let names: Vec<&str> = definitions.iter().map(|tool| &*tool.name).collect();
        let similar = self.similar(name);
        let closest = similar.iter().find(|similar| names.contains(&similar.as_str()));
        let suggestion = match closest {
            Some(closest) => format!("Did you mean `{closest}`?"),
            None if names.is_empty() => "No tools are loaded.".to_owned(),
            None => {
                let shown = &names[..names.len().min(MAX_NAMED)];
                format!("Available tools: {}.", shown.join(", "))
            }
        };
        Err(failure.with_suggestion(suggestion))
    }

    /// Returns at most three similar names, the most similar first.
    pub fn similar(&self, name: &str) -> Vec<String> {
        let requested = cut(name, 128).to_ascii_lowercase();
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
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));

        // A tool with several similar aliases is suggested once.
        let mut suggestions: Vec<String> = Vec::new();
        for (_, name) in scored {
            if suggestions.len() == 3 {
                break;
            }
            if !suggestions.iter().any(|known| known == name) {
                suggestions.push(name.to_owned());
            }
        }
        suggestions
    }
}
