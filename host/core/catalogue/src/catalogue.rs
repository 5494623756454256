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

/// The same for the name of a destructive tool: a model that wants to rename a file, and is asked
/// whether it meant to delete it, may do so.
const ALMOST: f64 = 0.85;

/// A tool that can be called.
pub struct Tool {
    /// The tool's own definition.
    pub definition: Arc<Definition>,
    /// The annotations that the host trusts. It always trusts *read-only*, since it enforces that.
    /// It trusts other relaxing claims (that nothing is destroyed, for example) only for tools that
    /// are built in or approved.
    pub annotations: Annotations,
    /// Whether the host trusts the tool's claims about itself.
    pub claims_trusted: bool,
    /// The provider that runs it.
    pub provider: Arc<dyn ToolSource>,
    /// The plugin behind the provider. `None` if the provider isn't a plugin.
    pub plugin: Option<Plugin>,
    /// Counters of the plugin's calls.
    pub tally: Arc<Tally>,
    /// The compiled input schema. A third-party schema is compiled when it is first loaded on this
    /// machine, so that an invalid one is refused. Others are compiled at their first call:
    /// otherwise a process that makes one call would wait for all schemas.
    validator: OnceLock<Validator>,
    /// See [`cost`](Self::cost). Counted at the first call, as the schema is compiled.
    cost: OnceLock<SchemaCost>,
}

impl Tool {
    /// The tools of a plugin, ready to be called. `claims_trusted`: a person has approved the
    /// plugin's claims, or the plugin is built in.
    ///
    /// # Errors
    ///
    /// A schema isn't valid.
    pub fn from_plugin(
        plugin: &Plugin,
        tally: &Arc<Tally>,
        claims_trusted: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let provider = Arc::new(plugin.clone()) as Arc<dyn ToolSource>;
        Self::all(&provider, Some(plugin), tally, claims_trusted)
    }

    /// The tools of a provider that isn't a plugin.
    ///
    /// # Errors
    ///
    /// As [`from_plugin`](Self::from_plugin).
    pub fn from_provider(provider: &Arc<dyn ToolSource>) -> Result<Vec<Arc<Self>>, HostError> {
        Self::all(provider, None, &Arc::default(), true)
    }

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
            let provider = Arc::clone(provider);
            let plugin = plugin.cloned();
            let tally = Arc::clone(tally);
            let claimed = definition.annotations;
            let annotations = Annotations {
                read_only: claimed.read_only,
                destructive: claimed.destructive || !claims_trusted,
                idempotent: claimed.idempotent && claims_trusted,
                open_world: claimed.open_world || !claims_trusted,
                cacheable: claimed.cacheable && claims_trusted,
            };
            let tool = Self {
                definition,
                annotations,
                claims_trusted,
                provider,
                plugin,
                tally,
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

    /// Whether the tool is built in or the program's own, and not written by a third party.
    pub fn is_built_in(&self) -> bool {
        match &self.plugin {
            Some(plugin) => plugin.info().origin == Origin::BuiltIn,
            None => !self.provider.is_third_party(),
        }
    }

    /// How a call with these arguments behaves. The claim that a call with certain arguments only
    /// reads counts for plugins alone, since the host enforces it there.
    pub fn annotations_with(&self, arguments: &Value) -> Annotations {
        let reads = self.annotations.read_only
            || !self.provider.is_third_party() && self.definition.reads_with(arguments);
        Annotations { read_only: reads, ..self.annotations }
    }

    /// The cost of checking arguments.
    pub fn cost(&self) -> SchemaCost {
        *self.cost.get_or_init(|| SchemaCost::from_schema(&self.definition.input_schema))
    }

    /// The validator for the arguments of a call.
    pub fn validator(&self) -> Result<&Validator, Failure> {
        self.compiled().map_err(|error| {
            Failure::new(Category::PermanentFailure, error.to_string()).with_code("host")
        })
    }

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

/// A tool whose input schema isn't valid.
#[derive(Debug, thiserror::Error)]
#[error("the input schema of its tool `{tool}` can't be used: {error}")]
struct ToolSchemaError {
    tool: String,
    error: InvalidSchemaError,
}

/// The tools of one moment. A catalogue never changes: when plugins change, a new one replaces it.
/// A call uses the catalogue that it started with.
#[derive(Default)]
pub struct Catalogue {
    tools: Vec<Arc<Tool>>,
    /// Names and aliases.
    names: HashMap<String, usize>,
    /// Names of expected plugins that aren't loaded, each with the reason.
    missing: Vec<(String, String)>,
    /// Names of plugins that are being loaded.
    loading: Vec<String>,
    /// The filters for answers.
    pub filters: Chain,
}

/// Names that are told when there is no tool of that name.
const MAX_NAMED: usize = 40;

/// Where a tool is that isn't in every host.
pub(crate) fn elsewhere(name: &str) -> Option<&'static str> {
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
    /// A catalogue of `tools` and `filters`. `missing` names the expected plugins that aren't
    /// loaded, each with the reason.
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

    /// The same while these plugins are being loaded.
    pub(crate) fn with_loading(self, loading: Vec<String>) -> Self {
        Self { loading, ..self }
    }

    /// Names of plugins that are being loaded.
    pub(crate) fn loading(&self) -> &[String] {
        &self.loading
    }

    /// Whether a plugin that isn't loaded yet may bring a tool of that name or glob, which doesn't
    /// exist yet. Third-party tools are named after their plugin.
    pub(crate) fn may_come(&self, name: &str) -> bool {
        let Some((plugin, _)) = name.split_once("__") else { return false };
        !self.knows(name)
            && self.loading.iter().any(|loading| {
                loading == plugin
                    || TextGlob::new(plugin).is_ok_and(|plugin| plugin.matches(loading))
            })
    }

    /// All tools, in the order of their providers.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// Whether a tool has that name or alias.
    pub fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The tool of that name or alias.
    ///
    /// # Errors
    ///
    /// [`Category::ToolNotFound`], with similar names.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
        self.resolve_among(name, || {
            self.tools.iter().map(|it| Arc::clone(&it.definition)).collect()
        })
    }

    /// The same. Only the names of `offered` are told if there is no such tool.
    ///
    /// # Errors
    ///
    /// The errors of [`resolve`](Self::resolve).
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
        if let Some((_, reason)) = self.missing.iter().find(|(missing, _)| missing == plugin) {
            return Err(
                failure.with_suggestion(format!("The plugin `{plugin}` is not loaded: {reason}"))
            );
        }
        if let Some(elsewhere) = elsewhere(name) {
            return Err(failure.with_suggestion(elsewhere));
        }
        let offered = offered();
        let names: Vec<&str> = offered.iter().take(MAX_NAMED).map(|tool| &*tool.name).collect();
        let similar = self.similar(name);
        let closest = similar.iter().find(|similar| offered.iter().any(|it| it.name == **similar));
        Err(failure.with_suggestion(match closest {
            Some(closest) => format!("Did you mean `{closest}`?"),
            None if names.is_empty() => "No tools are loaded.".to_owned(),
            None => format!("Available tools: {}.", names.join(", ")),
        }))
    }

    /// At most three similar names, the most similar first.
    pub fn similar(&self, name: &str) -> Vec<String> {
        let name = cut(name, 128).to_ascii_lowercase();
        let mut scored: Vec<(f64, &str)> = self
            .names
            .iter()
            .filter_map(|(known, index)| {
                let tool = &self.tools[*index];
                let score = strsim::jaro_winkler(known, &name);
                let least = if tool.annotations.destructive { ALMOST } else { SIMILAR };
                (score >= least).then_some((score, &*tool.definition.name))
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let mut names: Vec<String> = Vec::new();
        for (_, name) in scored {
            if !names.iter().any(|known| known == name) && names.len() < 3 {
                names.push(name.to_owned());
            }
        }
        names
    }
}
