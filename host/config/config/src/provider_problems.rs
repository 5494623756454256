//! Finds errors in the tables of `[providers]`, in the keys that name one of these tables, and in
//! `[index.qdrant]`.

use std::collections::BTreeSet;

use toolhold_contract::text::neutral_line;
use toolhold_policy::egress::Target;

use super::loaded::is_provider_name;
use super::{Config, Problem, ProviderSettings, Qdrant, VectorBackend, dotted_name};

/// Most characters of the beginning of a collection's name.
const MAX_COLLECTION: usize = 64;

impl Config {
    /// Finds problems of the agent and its providers that concern more than one value.
    pub(super) fn provider_problems(&self) -> Vec<Problem> {
        let providers = &self.values.providers;
        let of_providers = providers.iter().filter_map(|(name, provider)| {
            let message = if is_provider_name(name) {
                format!("[providers.{name}] {}", problem(name, provider)?)
            } else {
                format!(
                    "`{}` isn't a valid name of a provider: 1 to 24 of a-z, 0-9 and `-`, starting with a letter",
                    neutral_line(name)
                )
            };
            let table = format!("providers.{}", dotted_name(name));
            Some(Problem::new(self.source_below(&table), message))
        });
        let agent = &self.values.agent;
        let review = &self.values.tools.adversarial_policy;
        let named = [
            ("agent", "provider", &agent.provider),
            ("agent", "compress_provider", &agent.compress_provider),
            ("agent", "tool_filter.embeddings", &agent.tool_filter.embeddings),
            ("agent", "delegate.provider", &agent.delegate.provider),
            ("agent", "parameter_reformat_provider", &agent.parameter_reformat_provider),
            ("tools.adversarial_policy", "provider", &review.provider),
        ]
        .map(|(table, key, name)| (table.to_owned(), key, name));
        let unknown = named
            .into_iter()
            .chain(self.embeddings())
            .filter(|(.., name)| !name.is_empty() && !providers.contains_key(*name));
        let of_names = unknown.map(|(table, key, name)| {
            let message = format!(
                "[{table}] {key} is `{0}`, but there is no [providers.{0}]",
                neutral_line(name)
            );
            Problem::new(self.source_below(&format!("{table}.{key}")), message)
        });
        of_providers.chain(of_names).chain(self.qdrant_problem()).collect()
    }

    /// Finds an error in the keys of `[index.qdrant]` if the table is used.
    fn qdrant_problem(&self) -> Option<Problem> {
        let index = &self.values.index;
        let Qdrant { url, collection, secrets } = &index.qdrant;
        if index.vector_backend != VectorBackend::Qdrant {
            return None;
        }
        let (key, why) = if url.is_empty() {
            // The key that needs the `url` has a line.
            (
                "index.vector_backend",
                "has no `url`, and `vector_backend` of [index] is \"qdrant\"".to_owned(),
            )
        } else if let Err(why) = Target::with_url(url) {
            ("index.qdrant.url", format!("has a `url` that can't be used: {why}"))
        } else if url.contains(['?', '#']) {
            ("index.qdrant.url", "has a `url` with a query or a fragment; remove them".to_owned())
        } else if !(1..=MAX_COLLECTION).contains(&collection.len())
            || !collection.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        {
            let why = format!(
                "has an invalid `collection`: names are 1 to {MAX_COLLECTION} of A-Z, a-z, 0-9, `-` and `_`"
            );
            ("index.qdrant.collection", why)
        } else if secrets.len() > 1 {
            ("index.qdrant.secrets", "has more than one secret; keep only one".to_owned())
        } else {
            return None;
        };
        Some(Problem::new(self.source_below(key), format!("[index.qdrant] {why}")))
    }

    /// Returns the keys of tools and plugins that name a model for vectors. Each item has the
    /// table, the key and the name.
    fn embeddings(&self) -> impl Iterator<Item = (String, &'static str, &String)> {
        let of_plugins =
            self.values.plugins.iter().map(|(name, plugin)| {
                (format!("plugins.{}", dotted_name(name)), &plugin.embeddings)
            });
        let of_tools = [
            ("tools.memory".to_owned(), &self.values.tools.memory.embeddings),
            ("index".to_owned(), &self.values.index.embeddings),
        ];
        of_plugins.chain(of_tools).map(|(table, name)| (table, "embeddings", name))
    }

    /// Returns the names of the tables of `[providers]` that make vectors for tools and plugins.
    pub fn embedding_providers(&self) -> BTreeSet<&str> {
        let named = self.embeddings().map(|(.., name)| name.as_str());
        named.filter(|name| !name.is_empty()).collect()
    }
}

/// Finds an error in the keys of one provider. Returns a phrase after the name of its table.
fn problem(name: &str, provider: &ProviderSettings) -> Option<String> {
    // Another file can set the other keys. An error about a missing key is reported at the first
    // use.
    let (_, base_url) = provider.place(name)?;
    if let Err(why) = Target::with_url(base_url) {
        return Some(format!("has a `base_url` that can't be used: {why}"));
    }
    if base_url.contains(['?', '#']) {
        return Some("has a `base_url` with a query or a fragment; remove them".to_owned());
    }
    if provider.secrets.len() > 1 {
        return Some("has more than one secret; keep only one".to_owned());
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    let secrets = provider.secrets.values().map(|secret| {
        if secret.header.is_some() {
            secret.placement().0
        } else {
            // A secret without a header uses the place that the format has for its key.
            "the key of the format".to_owned()
        }
    });
    let written = provider.headers.keys().map(|name| name.to_ascii_lowercase());
    let duplicate = secrets.chain(written).find(|name| !used.insert(name.clone()))?;
    Some(format!("sets {} twice", neutral_line(&duplicate)))
}
