//! Which tools there are, and which one a name means.

use std::collections::HashMap;
use std::sync::Arc;

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Category, Definition, Failure, HostError, Provider};
use jsonschema::Validator;

use crate::validate;

/// How alike two names have to be for one to be proposed for the other.
const SIMILAR: f64 = 0.75;

/// A tool that can be called.
pub(crate) struct Tool {
    pub(crate) definition: Arc<Definition>,
    pub(crate) provider: Arc<dyn Provider>,
    /// The input schema, compiled once.
    pub(crate) validator: Validator,
    /// What checking one place in the arguments may take, see [`berth_runtime::schema_weight`].
    pub(crate) weight: usize,
}

/// All tools of all providers.
#[derive(Default)]
pub(crate) struct Catalogue {
    tools: Vec<Tool>,
    /// Names and aliases.
    names: HashMap<String, usize>,
}

impl Catalogue {
    /// Adds the tools of a provider.
    ///
    /// # Errors
    ///
    /// Where a name is taken, or a schema is none.
    pub(crate) fn add(&mut self, provider: &Arc<dyn Provider>) -> Result<(), HostError> {
        let fail = |reason| HostError::Load { plugin: provider.name().to_owned(), reason };
        for definition in provider.tools() {
            let name = &definition.name;
            let validator = validate::compile(&definition.input_schema)
                .map_err(|reason| fail(format!("the input schema of its tool `{name}` can't be used: {reason}")))?;
            let index = self.tools.len();
            for name in std::iter::once(name).chain(&definition.aliases) {
                if self.names.insert(name.clone(), index).is_some() {
                    return Err(fail(format!("it offers a tool `{name}`, and so does another provider")));
                }
            }
            let weight = berth_runtime::schema_weight(&definition.input_schema);
            self.tools.push(Tool { definition, provider: Arc::clone(provider), validator, weight });
        }
        Ok(())
    }

    pub(crate) fn definitions(&self) -> Vec<Arc<Definition>> {
        self.tools.iter().map(|tool| Arc::clone(&tool.definition)).collect()
    }

    pub(crate) fn resolve(&self, name: &str) -> Result<&Tool, Failure> {
        if let Some(index) = self.names.get(name) {
            return Ok(&self.tools[*index]);
        }
        let similar = self.similar(name);
        let failure = Failure::new(Category::ToolNotFound, format!("no tool is named `{}`", neutral_line(cut(name, 128))));
        Err(match similar.first() {
            Some(closest) => failure.with_suggestion(format!("Did you mean `{closest}`?")),
            None => failure.with_suggestion(match self.tools.len() {
                0 => "No tools are loaded.".to_owned(),
                _ => {
                    format!("There are: {}.", self.tools.iter().take(40).map(|tool| &*tool.definition.name).collect::<Vec<_>>().join(", "))
                }
            }),
        })
    }

    pub(crate) fn similar(&self, name: &str) -> Vec<String> {
        let name = cut(name, 128);
        let mut scored: Vec<(f64, &str)> = self
            .names
            .iter()
            .map(|(known, index)| (strsim::jaro_winkler(known, name), &*self.tools[*index].definition.name))
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
