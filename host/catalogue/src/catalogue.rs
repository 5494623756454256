//! Which tools there are, and which one a name means.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Annotations, Category, Definition, Failure, HostError, Provider};
use berth_runtime::{Origin, Plugin};
use jsonschema::Validator;
use serde_json::Value;

use crate::filter_chain::Chain;
use crate::schema;
use crate::tally::Tally;

/// How alike two names have to be for one to be proposed for the other.
const SIMILAR: f64 = 0.75;

/// A tool that can be called.
pub struct Tool {
    /// What it says of itself.
    pub definition: Arc<Definition>,
    /// How it behaves, as far as that is believed. That it only reads is, since it is enforced;
    /// what else relaxes something (that nothing is destroyed, say) only of tools that are part of
    /// the program or were approved.
    pub annotations: Annotations,
    /// Whether it is believed in what it says of itself.
    pub believed: bool,
    /// What runs it.
    pub provider: Arc<dyn Provider>,
    /// The plugin behind the provider, where it is one.
    pub plugin: Option<Plugin>,
    /// What is counted of the plugin's calls.
    pub tally: Arc<Tally>,
    /// The input schema, compiled once: a stranger's when it is loaded, so that a wrong one is
    /// refused, a built-in one at its first call, since a process that makes one call would wait
    /// for all of them.
    validator: OnceLock<Validator>,
    /// What checking one place in the arguments may take, see [`berth_runtime::schema_weight`].
    pub weight: usize,
}

impl Tool {
    /// The tools of a plugin, ready to be called. `seen`: a person has approved what it says of
    /// itself, or it is part of the program.
    ///
    /// # Errors
    ///
    /// Where a schema is none.
    pub fn from_plugin(
        plugin: &Plugin,
        tally: &Arc<Tally>,
        seen: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        Self::all(&(Arc::new(plugin.clone()) as Arc<dyn Provider>), Some(plugin), tally, seen)
    }

    /// The tools of a provider that is no plugin.
    ///
    /// # Errors
    ///
    /// As [`from_plugin`](Self::from_plugin).
    pub fn from_provider(provider: &Arc<dyn Provider>) -> Result<Vec<Arc<Self>>, HostError> {
        Self::all(provider, None, &Arc::default(), true)
    }

    fn all(
        provider: &Arc<dyn Provider>,
        plugin: Option<&Plugin>,
        tally: &Arc<Tally>,
        believed: bool,
    ) -> Result<Vec<Arc<Self>>, HostError> {
        let known = plugin.is_some_and(|plugin| plugin.info().origin == Origin::BuiltIn);
        let tool = |definition: Arc<Definition>| {
            let weight = berth_runtime::schema_weight(&definition.input_schema);
            let (provider, plugin, tally) =
                (Arc::clone(provider), plugin.cloned(), Arc::clone(tally));
            let said = definition.annotations;
            let annotations = Annotations {
                read_only: said.read_only,
                destructive: said.destructive || !believed,
                idempotent: said.idempotent && believed,
                open_world: said.open_world || !believed,
                cacheable: said.cacheable && believed,
            };
            let tool = Self {
                definition,
                annotations,
                believed,
                provider,
                plugin,
                tally,
                validator: OnceLock::new(),
                weight,
            };
            if !known {
                tool.compiled().map_err(|reason| HostError::Load {
                    plugin: tool.provider.name().to_owned(),
                    reason,
                })?;
            }
            Ok(Arc::new(tool))
        };
        provider.tools().into_iter().map(tool).collect()
    }

    /// Whether it is part of the program, and no stranger's plugin.
    pub fn is_built_in(&self) -> bool {
        self.plugin.as_ref().is_none_or(|plugin| plugin.info().origin == Origin::BuiltIn)
    }

    /// How a call with these arguments behaves. Only of a plugin it is believed that a call reads
    /// where others act, since it is enforced there.
    pub fn annotations_with(&self, arguments: &Value) -> Annotations {
        let reads = self.annotations.read_only
            || self.plugin.is_some() && self.definition.reads_with(arguments);
        Annotations { read_only: reads, ..self.annotations }
    }

    /// What checks the arguments of a call.
    pub fn validator(&self) -> Result<&Validator, Failure> {
        self.compiled()
            .map_err(|reason| Failure::new(Category::PermanentFailure, reason).with_code("host"))
    }

    fn compiled(&self) -> Result<&Validator, String> {
        if let Some(validator) = self.validator.get() {
            return Ok(validator);
        }
        let Definition { name, input_schema, .. } = &*self.definition;
        let validator = schema::compile(input_schema);
        let validator = validator.map_err(|reason| {
            format!("the input schema of its tool `{name}` can't be used: {reason}")
        })?;
        Ok(self.validator.get_or_init(|| validator))
    }
}

/// The tools that there are at one moment. It never changes: when plugins do, another one takes its
/// place, and a call that has begun goes on with the one that it began with.
#[derive(Default)]
pub struct Catalogue {
    tools: Vec<Arc<Tool>>,
    /// Names and aliases.
    names: HashMap<String, usize>,
    /// Why plugins are not there that were expected, by name.
    missing: Vec<(String, String)>,
    /// What answers go through.
    pub filters: Chain,
}

impl Catalogue {
    /// A catalogue of `tools` and `filters`. `missing` has the plugins that were expected, and why
    /// they are not there.
    ///
    /// # Errors
    ///
    /// Where two tools have one name.
    pub fn new(
        tools: Vec<Arc<Tool>>,
        filters: Chain,
        missing: Vec<(String, String)>,
    ) -> Result<Self, HostError> {
        let mut names = HashMap::new();
        for (index, tool) in tools.iter().enumerate() {
            for name in std::iter::once(&tool.definition.name).chain(&tool.definition.aliases) {
                if names.insert(name.clone(), index).is_some() {
                    let reason = format!("it offers a tool `{name}`, and so does another provider");
                    return Err(HostError::Load {
                        plugin: tool.provider.name().to_owned(),
                        reason,
                    });
                }
            }
        }
        Ok(Self { tools, names, missing, filters })
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
    /// [`Category::ToolNotFound`], with the names that are like it.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Tool>, Failure> {
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
        let similar = self.similar(name);
        Err(match similar.first() {
            Some(closest) => failure.with_suggestion(format!("Did you mean `{closest}`?")),
            None => failure.with_suggestion(match self.tools.len() {
                0 => "No tools are loaded.".to_owned(),
                _ => {
                    format!(
                        "There are: {}.",
                        self.tools
                            .iter()
                            .take(40)
                            .map(|tool| &*tool.definition.name)
                            .collect::<Vec<_>>()
                            .join(", ")
                    )
                }
            }),
        })
    }

    /// At most three names that are like this one, the most alike first.
    pub fn similar(&self, name: &str) -> Vec<String> {
        let name = cut(name, 128);
        let mut scored: Vec<(f64, &str)> = self
            .names
            .iter()
            .map(|(known, index)| {
                (strsim::jaro_winkler(known, name), &*self.tools[*index].definition.name)
            })
            .filter(|(score, _)| *score >= SIMILAR)
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
