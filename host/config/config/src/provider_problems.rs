//! Finds problems in the tables of `[providers]`, in the keys that name these tables, and in
//! `[index.qdrant]`.

use std::collections::BTreeSet;

use toolhold_contract::text::neutral_line;
use toolhold_policy::egress::Target;

use super::loaded::is_provider_name;
use super::{Config, Problem, ProviderSettings, Qdrant, VectorBackend, dotted_name};

/// Most characters of `collection`.
const MAX_COLLECTION: usize = 64;

impl Config {
    /// Finds problems of the agent and its providers that concern several values.
    pub(super) fn provider_problems(&self) -> Vec<Problem> {
        let mut problems = self.provider_table_problems();
        problems.extend(self.unknown_provider_problems());
        problems.extend(self.qdrant_problem());
        problems
    }

    /// Finds problems in the tables of `[providers]`.
    fn provider_table_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, provider) in &self.values.providers {
            let message = if is_provider_name(name) {
                let Some(why) = problem(name, provider) else { continue };
                format!("[providers.{name}] {why}")
            } else {
                format!(
                    "`{}` isn't a valid provider name: use 1 to 24 of a-z, 0-9 and `-`, the first \
                     a letter",
                    neutral_line(name)
                )
            };
            let table = format!("providers.{}", dotted_name(name));
            problems.push(Problem::new(self.source_below(&table), message));
        }
        problems
    }

    /// Finds keys that name a provider without a table in `[providers]`.
    fn unknown_provider_problems(&self) -> Vec<Problem> {
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
        let mut problems = Vec::new();
        for (table, key, name) in named.into_iter().chain(self.embedding_keys()) {
            if name.is_empty() || self.values.providers.contains_key(name) {
                continue;
            }
            let message = format!(
                "[{table}] {key} is `{0}`, but there is no [providers.{0}]",
                neutral_line(name)
            );
            problems.push(Problem::new(self.source_below(&format!("{table}.{key}")), message));
        }
        problems
    }

    /// Finds a problem in `[index.qdrant]` if the table is used.
    fn qdrant_problem(&self) -> Option<Problem> {
        let index = &self.values.index;
        let Qdrant { url, collection, secrets } = &index.qdrant;
        if index.vector_backend != VectorBackend::Qdrant {
            return None;
        }
        let is_valid_collection = (1..=MAX_COLLECTION).contains(&collection.len())
            && collection.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let (key, why) = if url.is_empty() {
            // The missing `url` has no line, so the problem names the line of `vector_backend`.
            (
                "index.vector_backend",
                "has no `url`, and `vector_backend` of [index] is \"qdrant\"".to_owned(),
            )
        } else if let Err(why) = Target::with_url(url) {
            ("index.qdrant.url", format!("has an invalid `url`: {why}"))
        } else if url.contains(['?', '#']) {
            (
                "index.qdrant.url",
                "has a `url` with a query or a fragment; remove the query and the fragment"
                    .to_owned(),
            )
        } else if !is_valid_collection {
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

    /// Returns the `embeddings` keys of tools and plugins: table, key and named provider.
    fn embedding_keys(&self) -> impl Iterator<Item = (String, &'static str, &String)> {
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

    /// Returns the names of the providers that make vectors for tools and plugins.
    pub fn embedding_providers(&self) -> BTreeSet<&str> {
        let named = self.embedding_keys().map(|(.., name)| name.as_str());
        named.filter(|name| !name.is_empty()).collect()
    }
}

/// Finds a problem in the table of one provider. Returns a phrase that follows the table's name.
fn problem(name: &str, provider: &ProviderSettings) -> Option<String> {
    // Another file may set the missing keys, so a missing key is reported at the first use.
    let (_, base_url) = provider.place(name)?;
    if let Err(why) = Target::with_url(base_url) {
        return Some(format!("has an invalid `base_url`: {why}"));
    }
    if base_url.contains(['?', '#']) {
        return Some(
            "has a `base_url` with a query or a fragment; remove the query and the fragment"
                .to_owned(),
        );
    }
    if provider.secrets.len() > 1 {
        return Some("has more than one secret; keep only one".to_owned());
    }
    let mut headers = Vec::new();
    for secret in provider.secrets.values() {
        if secret.header.is_some() {
            let (header, _) = secret.placement();
            headers.push(header);
        } else {
            // Without `header`, the format of the provider determines the header.
            headers.push("the key of the format".to_owned());
        }
    }
    headers.extend(provider.headers.keys().map(|name| name.to_ascii_lowercase()));
    let duplicate = first_duplicate(headers)?;
    Some(format!("sets {} twice", neutral_line(&duplicate)))
}

/// Returns the first name that the list has twice, or `None` if each name is different.
pub(super) fn first_duplicate(names: Vec<String>) -> Option<String> {
    let mut known = BTreeSet::new();
    for name in names {
        if known.contains(&name) {
            return Some(name);
        }
        known.insert(name);
    }
    None
}
