//! All secrets of a configuration, and the problems of each and between them.

use toolhold_redaction::{self as redaction, Keys};

use super::keys::dotted;
use super::{Loaded, Problem, Secret};

/// Characters of a secret's name.
const MAX_NAME: usize = 64;

/// Secrets of one table.
const MAX_SECRETS: usize = 64;

impl Loaded {
    /// Every secret, with its table (`tools.web`, `plugins.NAME`, `mcp.servers.NAME`,
    /// `mcp.servers.NAME.oauth`, `providers.NAME`, `index.qdrant` or `telemetry`) and its name.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str, &Secret)> {
        let web = self
            .config
            .tools
            .web
            .secrets
            .iter()
            .map(|(name, secret)| ("tools.web".to_owned(), name.as_str(), secret));
        let plugin_secrets = self.config.plugins.iter().flat_map(|(plugin, table)| {
            table
                .secrets
                .iter()
                .map(move |(name, secret)| (format!("plugins.{plugin}"), name.as_str(), secret))
        });
        let telemetry = self
            .config
            .telemetry
            .secrets
            .iter()
            .map(|(name, secret)| ("telemetry".to_owned(), name.as_str(), secret));
        let server_secrets = self.config.mcp.servers.iter().flat_map(|(server, table)| {
            let own = table.secrets.iter().map(|secret| ("", secret));
            let oauth = table.oauth.secrets.iter().map(|secret| (".oauth", secret));
            own.chain(oauth).map(move |(below, (name, secret))| {
                (format!("mcp.servers.{server}{below}"), name.as_str(), secret)
            })
        });
        let provider_secrets = self.config.providers.iter().flat_map(|(provider, table)| {
            table
                .secrets
                .iter()
                .map(move |(name, secret)| (format!("providers.{provider}"), name.as_str(), secret))
        });
        let qdrant = self.config.index.qdrant.secrets.iter();
        let qdrant =
            qdrant.map(|(name, secret)| ("index.qdrant".to_owned(), name.as_str(), secret));
        web.chain(plugin_secrets)
            .chain(server_secrets)
            .chain(provider_secrets)
            .chain(qdrant)
            .chain(telemetry)
    }

    /// Problems of secrets that can't be found in a single value.
    pub(super) fn secret_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut seen: Vec<(String, &str, &Secret)> = Vec::new();
        for (table, name, secret) in self.secrets() {
            let key = format!("{table}.secrets.{}", dotted(&[name.to_owned()]));
            let mut problem = |key: &str, message: String| {
                problems.push(Problem::new(self.source_below(key), message));
            };
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.is_empty()
                || name.len() > MAX_NAME
                || !name.chars().all(fits)
                || redaction::text(name, Keys::Settings) != name
            {
                problem(
                    &key,
                    format!(
                        "[{table}.secrets] has an invalid name: names are 1 to {MAX_NAME} of A-Z, a-z, 0-9, `-` and `_`"
                    ),
                );
                continue;
            }
            let sources: Vec<&str> = secret.sources().collect();
            match sources[..] {
                [_] => {}
                [] => problem(
                    &key,
                    format!(
                        "[{key}] doesn't say where the secret comes from; write one of `env`, `file`, `command` and `keyring`"
                    ),
                ),
                _ => problem(
                    &key,
                    format!("[{key}] has more than one source: {}; leave one", sources.join(", ")),
                ),
            }
            // It goes to one place, which the table names.
            let is_of_server = table == "index.qdrant"
                || ["mcp.servers.", "providers."].iter().any(|begin| table.starts_with(begin));
            let rules = [
                ("hosts", secret.hosts.is_empty()),
                ("methods", secret.methods.is_empty()),
                ("paths", secret.paths.is_empty()),
                ("query", secret.query.is_none()),
            ];
            let rule = rules.iter().find(|(_, is_absent)| is_of_server && !is_absent);
            if let Some((rule, _)) = rule {
                let message =
                    format!("[{key}] has `{rule}`, but it goes to its server alone; remove it");
                problem(&format!("{key}.{rule}"), message);
            }
            if secret.hosts.is_empty() && !is_of_server {
                problem(
                    &key,
                    format!(
                        "[{key}] doesn't say where the secret goes; write `hosts = [\"api.example.com\"]`"
                    ),
                );
            }
            if let Some(name) = &secret.env
                && redaction::text(name.as_str(), Keys::Settings) != name.as_str()
            {
                let message = format!(
                    "[{key}] `env` takes the name of a variable, and this value looks like a secret itself"
                );
                problem(&format!("{key}.env"), message);
            }
            if secret.query.is_some() && (secret.header.is_some() || secret.prefix.is_some()) {
                problem(
                    &key,
                    format!("[{key}] puts the secret into a header and into the query; leave one"),
                );
            }
            if !secret.keyring.is_none()
                && (secret.keyring.service.is_empty() || secret.keyring.account.is_empty())
            {
                problem(
                    &format!("{key}.keyring"),
                    format!("[{key}] needs both `service` and `account` of `keyring`"),
                );
            }
            let same_table = seen.iter().filter(|(known, ..)| *known == table);
            if same_table.clone().count() == MAX_SECRETS {
                problem(&key, format!("[{table}.secrets] has more than {MAX_SECRETS} secrets"));
            }
            if let Some((_, other, _)) =
                same_table.clone().find(|(_, _, other)| secret.conflicts_with(other))
            {
                let message = format!(
                    "[{key}] and [{table}.secrets.{other}] could go to the same place of one request; \
                     make their `hosts`, `methods` or `paths` differ, or put one elsewhere"
                );
                problem(&key, message);
            }
            seen.push((table, name, secret));
        }
        problems
    }
}
