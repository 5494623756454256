//! Finds errors in the secrets of a configuration, such as two secrets for one header.

use std::collections::BTreeSet;

use toolhold_redaction::{self as redaction, Keys};

use super::{Config, Problem, Secret, ServerSecret, dotted_name};

/// Most characters of a secret's name.
const MAX_NAME: usize = 64;

/// Maximum number of secrets in one table.
const MAX_SECRETS: usize = 64;

impl Config {
    /// Returns the secrets of requests, each with its table (`tools.web` or `plugins.NAME`) and its
    /// name.
    pub fn request_secrets(&self) -> impl Iterator<Item = (String, &str, &Secret)> {
        let secrets = self.values.tools.web.secrets.iter();
        let web = secrets.map(|(name, secret)| ("tools.web".to_owned(), name.as_str(), secret));
        web.chain(self.values.plugins.iter().flat_map(|(plugin, table)| {
            table
                .secrets
                .iter()
                .map(move |(name, secret)| (format!("plugins.{plugin}"), name.as_str(), secret))
        }))
    }

    /// Returns the source of every secret, with its table (`tools.web`, `plugins.NAME`,
    /// `mcp.servers.NAME`, `mcp.servers.NAME.oauth`, `providers.NAME`, `index.qdrant` or
    /// `telemetry`) and its name.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str, ServerSecret)> {
        let config = &self.values;
        let servers = config.mcp.servers.iter().flat_map(|(server, table)| {
            let table_of = format!("mcp.servers.{server}");
            [(format!("{table_of}.oauth"), &table.oauth.secrets), (table_of, &table.secrets)]
        });
        let providers = config
            .providers
            .iter()
            .map(|(provider, table)| (format!("providers.{provider}"), &table.secrets));
        let others = [
            ("index.qdrant".to_owned(), &config.index.qdrant.secrets),
            ("telemetry".to_owned(), &config.telemetry.secrets),
        ];
        let of_servers = servers.chain(providers).chain(others).flat_map(|(table, secrets)| {
            secrets.iter().map(move |(name, secret)| (table.clone(), name.as_str(), secret.clone()))
        });
        self.request_secrets()
            .map(|(table, name, secret)| (table, name, secret.into()))
            .chain(of_servers)
    }

    /// Finds problems of secrets that can't be found in a single value.
    pub(super) fn secret_problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self
            .secrets()
            .flat_map(|(table, name, secret)| self.source_problems(&table, name, &secret))
            .collect();
        problems.extend(self.telemetry_problems());
        problems.extend(self.request_secret_problems());
        problems
    }

    /// Finds headers that two secrets of `[telemetry]` use.
    fn telemetry_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut headers = BTreeSet::new();
        for (name, secret) in &self.values.telemetry.secrets {
            let (header, _) = secret.placement();
            if headers.contains(&header) {
                let key = format!("telemetry.secrets.{}", dotted_name(name));
                let message = format!(
                    "[{key}] and another secret use the header `{header}` in one request; name \
                     another `header`"
                );
                problems.push(Problem::new(self.source_below(&key), message));
            }
            headers.insert(header);
        }
        problems
    }

    fn request_secret_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut seen: Vec<(String, &str, &Secret)> = Vec::new();
        for (table, name, secret) in self.request_secrets() {
            let key = format!("{table}.secrets.{}", dotted_name(name));
            let mut messages = Vec::new();
            if secret.hosts.is_empty() {
                messages.push(format!(
                    "[{key}] names no host for the secret; write `hosts = [\"api.example.com\"]`"
                ));
            }
            if secret.query.is_some() && (secret.header.is_some() || secret.prefix.is_some()) {
                messages.push(format!(
                    "[{key}] puts the secret into a header and into the query; remove one of them"
                ));
            }
            let mut same_table = seen.iter().filter(|(known, ..)| *known == table);
            if same_table.clone().count() == MAX_SECRETS {
                messages.push(format!("[{table}.secrets] has more than {MAX_SECRETS} secrets"));
            }
            let conflict = same_table.find(|(_, _, other)| secret.conflicts_with(other));
            if let Some((_, other, _)) = conflict {
                messages.push(format!(
                    "[{key}] and [{table}.secrets.{other}] could go to the same place of one \
                     request; make their `hosts`, `methods` or `paths` differ, or put one into \
                     another header or query parameter"
                ));
            }
            for message in messages {
                problems.push(Problem::new(self.source_below(&key), message));
            }
            seen.push((table, name, secret));
        }
        problems
    }

    /// Finds problems of a secret's name and source.
    fn source_problems(&self, table: &str, name: &str, secret: &ServerSecret) -> Vec<Problem> {
        let key = format!("{table}.secrets.{}", dotted_name(name));
        if !is_secret_name(name) {
            let message = format!(
                "[{table}.secrets] has an invalid name: names are 1 to {MAX_NAME} of A-Z, a-z, 0-9, `-` and `_`"
            );
            return vec![Problem::new(self.source_below(&key), message)];
        }
        let mut problems = Vec::new();
        let sources: Vec<&str> = secret.sources().collect();
        if sources.is_empty() {
            let message = format!(
                "[{key}] names no source of the secret; write one of `env`, `file` and `command`"
            );
            problems.push(Problem::new(self.source_below(&key), message));
        } else if sources.len() > 1 {
            let sources = sources.join(", ");
            let message = format!("[{key}] has more than one source: {sources}; keep only one");
            problems.push(Problem::new(self.source_below(&key), message));
        }
        if let Some(variable) = &secret.env
            && redaction::text(variable.as_str(), Keys::Settings) != variable.as_str()
        {
            let message = format!(
                "[{key}] `env` takes the name of a variable; this value looks like a secret"
            );
            problems.push(Problem::new(self.source_below(&format!("{key}.env")), message));
        }
        problems
    }
}

fn is_secret_name(name: &str) -> bool {
    let has_valid_length = !name.is_empty() && name.len() <= MAX_NAME;
    let has_valid_characters =
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let looks_like_secret = redaction::text(name, Keys::Settings) != name;
    has_valid_length && has_valid_characters && !looks_like_secret
}
