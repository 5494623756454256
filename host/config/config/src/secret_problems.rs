//! Finds problems in the secrets of a configuration, such as two secrets for one header.

use std::collections::BTreeSet;

use toolhold_redaction::{self as redaction, Keys};

use super::egress::secret_key;
use super::{Config, Problem, Secret, ServerSecret, dotted_name};

/// Most characters of a secret's name. A longer name is refused.
const MAX_NAME: usize = 64;

/// Most secrets in one table. A table with more secrets is refused.
const MAX_SECRETS: usize = 64;

impl Config {
    /// Returns the secrets that are put into requests: those of `[tools.web]` and of each plugin.
    /// Each secret comes with the dotted key of its table (`tools.web` or `plugins.NAME`) and its
    /// name.
    pub fn request_secrets(&self) -> impl Iterator<Item = (String, &str, &Secret)> {
        let web_secrets = self.values.tools.web.secrets.iter();
        let of_web =
            web_secrets.map(|(name, secret)| ("tools.web".to_owned(), name.as_str(), secret));
        let of_plugins = self.values.plugins.iter().flat_map(|(plugin, settings)| {
            let secrets = settings.secrets.iter();
            secrets.map(move |(name, secret)| (format!("plugins.{plugin}"), name.as_str(), secret))
        });
        of_web.chain(of_plugins)
    }

    /// Returns every secret with its table (`tools.web`, `tools.shell`, `plugins.NAME`,
    /// `mcp.servers.NAME`, `mcp.servers.NAME.oauth`, `providers.NAME`, `index.qdrant` or
    /// `telemetry`) and its name.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str, ServerSecret)> {
        let config = &self.values;
        let mut tables = Vec::new();
        for (server, settings) in &config.mcp.servers {
            let table = format!("mcp.servers.{server}");
            tables.push((format!("{table}.oauth"), &settings.oauth.secrets));
            tables.push((table, &settings.secrets));
        }
        for (provider, settings) in &config.providers {
            tables.push((format!("providers.{provider}"), &settings.secrets));
        }
        tables.push(("index.qdrant".to_owned(), &config.index.qdrant.secrets));
        tables.push(("telemetry".to_owned(), &config.telemetry.secrets));

        let mut secrets = Vec::new();
        for (table, name, secret) in self.request_secrets() {
            secrets.push((table, name, ServerSecret::from(secret)));
        }
        for (name, secret) in &config.tools.shell.secrets {
            secrets.push(("tools.shell".to_owned(), name.as_str(), secret.into()));
        }
        for (table, table_secrets) in tables {
            for (name, secret) in table_secrets {
                secrets.push((table.clone(), name.as_str(), secret.clone()));
            }
        }
        secrets.into_iter()
    }

    /// Finds problems of secrets that concern several values.
    pub(super) fn secret_problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self
            .secrets()
            .flat_map(|(table, name, secret)| self.source_problems(&table, name, &secret))
            .collect();
        problems.extend(self.telemetry_problems());
        problems.extend(self.request_secret_problems());
        problems.extend(self.shell_secret_problems());
        problems
    }

    /// Finds secrets of commands that name no variable, no host, or the same variable as another
    /// secret. Also finds too many secrets.
    fn shell_secret_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut variables = BTreeSet::new();
        let secrets = &self.values.tools.shell.secrets;
        for (index, (name, secret)) in secrets.iter().enumerate() {
            let key = format!("tools.shell.secrets.{}", dotted_name(name));
            let mut messages = Vec::new();
            if index == MAX_SECRETS {
                messages.push(format!("[tools.shell.secrets] has more than {MAX_SECRETS} secrets"));
            }
            match &secret.env {
                None => messages.push(format!(
                    "[{key}] names no variable for the placeholder; write `env = \"GH_TOKEN\"`"
                )),
                Some(variable) => {
                    let is_new = variables.insert(variable.as_str());
                    if !is_new {
                        messages.push(format!(
                            "[{key}] and another secret have the same variable in `env`; name another \
                             variable"
                        ));
                    }
                }
            }
            if secret.hosts.is_empty() {
                messages.push(no_hosts(&key));
            }
            for message in messages {
                problems.push(Problem::new(self.source_below(&key), message));
            }
        }
        problems
    }

    /// Finds secrets of `[telemetry]` with the same header. All of these secrets are sent in one
    /// request, so each secret needs its own header.
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

    /// Finds secrets of requests without a host, with two places, or with the place of another
    /// secret. Also finds tables with too many secrets.
    fn request_secret_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut seen: Vec<(String, &str, &Secret)> = Vec::new();
        for (table, name, secret) in self.request_secrets() {
            let key = format!("{table}.secrets.{}", dotted_name(name));
            let mut messages = host_and_place_problems(&key, secret);
            let earlier: Vec<_> = seen.iter().filter(|(known, ..)| *known == table).collect();
            // Only the first secret after the limit is reported.
            if earlier.len() == MAX_SECRETS {
                messages.push(format!("[{table}.secrets] has more than {MAX_SECRETS} secrets"));
            }
            let conflict = earlier.into_iter().find(|(_, _, other)| secret.conflicts_with(other));
            if let Some((_, other, _)) = conflict {
                messages.push(format!(
                    "[{key}] and [{table}.secrets.{other}] could use the same header or query \
                     parameter of one request; use different `hosts`, `methods` or `paths`, or \
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
        let key = secret_key(table, name);
        if !is_secret_name(name) {
            let message = format!(
                "[{table}.secrets] has an invalid name: names are 1 to {MAX_NAME} of A-Z, a-z, 0-9, `-` and `_`"
            );
            return vec![Problem::new(self.source_below(&key), message)];
        }
        let mut problems = Vec::new();
        let sources: Vec<&str> = secret.sources().collect();
        if sources.is_empty() {
            let message =
                format!("[{key}] names no source of the secret; set `env`, `file` or `command`");
            problems.push(Problem::new(self.source_below(&key), message));
        } else if sources.len() > 1 {
            let sources = sources.join(", ");
            let message = format!("[{key}] has more than one source: {sources}; keep only one");
            problems.push(Problem::new(self.source_below(&key), message));
        }
        // Redaction changes a text only if the text looks like a secret. In that case, the user has
        // probably written the secret itself in place of a variable's name.
        if let Some(variable) = &secret.env
            && redaction::text(variable.as_str(), Keys::Settings) != variable.as_str()
        {
            let message = format!(
                "[{key}] `env` takes the name of a variable, but this value looks like a secret"
            );
            problems.push(Problem::new(self.source_below(&format!("{key}.env")), message));
        }
        problems
    }
}

/// Finds problems of one secret of requests. Returns the messages of the problems.
fn host_and_place_problems(key: &str, secret: &Secret) -> Vec<String> {
    let mut messages = Vec::new();
    if secret.hosts.is_empty() {
        messages.push(no_hosts(key));
    }
    let is_in_header = secret.header.is_some() || secret.prefix.is_some();
    if secret.query.is_some() && is_in_header {
        messages.push(format!(
            "[{key}] puts the secret into a header and into the query; keep only one"
        ));
    }
    messages
}

fn no_hosts(key: &str) -> String {
    format!("[{key}] names no host for the secret; write `hosts = [\"api.example.com\"]`")
}

fn is_secret_name(name: &str) -> bool {
    let has_valid_length = !name.is_empty() && name.len() <= MAX_NAME;
    let has_valid_characters =
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let looks_like_secret = redaction::text(name, Keys::Settings) != name;
    has_valid_length && has_valid_characters && !looks_like_secret
}
