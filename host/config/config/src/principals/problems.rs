//! Finds the problems of the tables of `[principals]`.

use std::collections::BTreeSet;

use toolhold_config_keys::Narrowing;
use toolhold_contract::text::neutral_line;

use super::template;
use crate::keys::{PRINCIPALS, dotted, dotted_name, rule};
use crate::leaf::Leaf;
use crate::loaded::is_provider_name;
use crate::narrow::{effective, is_known};
use crate::principal_tables::{ALL_MODELS, Table, Tables};
use crate::{AllowedPath, Config, Problem};

impl Tables {
    /// Finds the problems of all tables. `operator` is the operator's whole configuration.
    pub(crate) fn problems(&self, operator: &Config) -> Vec<Problem> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let current = serde_json::to_value(effective(operator)).unwrap_or_default();
        let mut problems = Vec::new();
        for table in &self.0 {
            if !is_provider_name(&table.name) {
                let message = format!(
                    "`{}` isn't a valid name of a principal's table: use 1 to 24 of a-z, 0-9 and \
                     `-`, the first a letter",
                    neutral_line(&table.name)
                );
                problems.push(Problem::new(table.source.clone(), message));
                continue;
            }
            problems
                .extend(table.limits.iter().flat_map(|leaf| table.limit_problems(leaf, &current)));
            problems.extend(table.name_problems(operator));
        }
        problems.extend(self.shared_templates());
        problems
    }

    /// Finds directories with placeholders that two callers may share: two issuers may use the same
    /// subject, and a client may have the name of a subject.
    fn shared_templates(&self) -> Vec<Problem> {
        let mut known: Vec<(&str, &str, String)> = Vec::new();
        let mut problems = Vec::new();
        for table in &self.0 {
            let [issuer] = table.principal.issuer.as_slice() else { continue };
            for (_, AllowedPath { path, .. }, source) in table.directories() {
                if template::placeholders(&path).next().is_none() {
                    continue;
                }
                let shared = known.iter().find(|(_, other_issuer, other)| {
                    template::may_share(&path, other, issuer == other_issuer)
                });
                if let Some((other_table, _, other)) = shared {
                    let message = format!(
                        "[{}] {path:?} and [{PRINCIPALS}.{other_table}] {other:?} may lead two \
                         callers to the same directory, because two issuers may use the same \
                         subject, and a client may have the name of a subject; use another \
                         directory",
                        table.key()
                    );
                    problems.push(Problem::new(source, message));
                }
                known.push((&table.name, issuer, path));
            }
        }
        problems
    }
}

impl Table {
    /// Finds the problems of one limit. `current` has the operator's values.
    fn limit_problems(&self, leaf: &Leaf, current: &serde_json::Value) -> Vec<Problem> {
        let key = dotted(&leaf.path);
        if !is_limitable(&leaf.path) {
            let message =
                format!("`{}.{key}`: a principal can't have this key; remove the key", self.key());
            return vec![Problem::new(leaf.source(), message)];
        }
        // A plugin of the plugin folder needs no table.
        if leaf.path[0] != "plugins" && !is_known(&leaf.path, current) {
            let message = format!(
                "`{}.{key}`: the configuration has no such table outside of [{PRINCIPALS}]; add \
                 it, or remove the key",
                self.key()
            );
            return vec![Problem::new(leaf.source(), message)];
        }
        let items = leaf.value.as_array().into_iter().flatten().zip(&leaf.elements);
        if leaf.path[..leaf.path.len() - 1] == ["tools", "permissions"] {
            let allowing = items.filter(|(item, _)| {
                item.get("action").and_then(toml::Value::as_str) == Some("allow")
            });
            let message = format!(
                "`{}.{key}`: the rules of a principal can't allow a call; write the rule into \
                 [tools.permissions], or remove it",
                self.key()
            );
            return allowing
                .map(|(_, source)| Problem::new(source.clone(), message.clone()))
                .collect();
        }
        Vec::new()
    }

    /// Finds problems of the table's directories, secrets and models.
    fn name_problems(&self, operator: &Config) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (_, directory, source) in self.directories() {
            if let Err(error) = template::check(&directory.path) {
                let message = format!("[{}] {:?}: {error}", self.key(), directory.path);
                problems.push(Problem::new(source, message));
                continue;
            }
            let placeholder = template::placeholders(&directory.path).next();
            if let Some(placeholder) = placeholder
                && self.principal.issuer.len() != 1
            {
                let message = format!(
                    "`{}` needs exactly one `issuer` in [{}], because two issuers may use the same \
                     {}",
                    placeholder.text(),
                    self.key(),
                    placeholder.meaning()
                );
                problems.push(Problem::new(source, message));
            }
        }

        let known_secrets: BTreeSet<&str> = operator.secrets().map(|(_, name, _)| name).collect();
        for (index, name) in self.principal.secrets.iter().enumerate() {
            if !known_secrets.contains(name.as_str()) {
                let message = format!(
                    "[{}] a secret named `{}` isn't in the configuration",
                    self.key(),
                    neutral_line(name)
                );
                let source = operator.source(&format!("{}.secrets.{index}", self.key()));
                problems.push(Problem::new(source, message));
            }
        }
        let providers = &operator.values.providers;
        for (index, name) in self.principal.models.iter().enumerate() {
            if name != ALL_MODELS && !providers.contains_key(name) {
                let message = format!(
                    "[{}] `models` has `{1}`, but there is no [providers.{1}]",
                    self.key(),
                    neutral_line(name)
                );
                let source = operator.source(&format!("{}.models.{index}", self.key()));
                problems.push(Problem::new(source, message));
            }
        }
        // Without its model, the review would deny every call.
        let review = &operator.values.tools.adversarial_policy;
        if review.enabled && !review.provider.is_empty() && !self.lists_model(&review.provider) {
            let message = format!(
                "[{}] `models` needs `{}`, the `provider` of [tools.adversarial_policy]",
                self.key(),
                dotted_name(&review.provider)
            );
            problems.push(Problem::new(self.source.clone(), message));
        }
        problems
    }
}

/// Checks whether a principal's table can limit the key, and whether the limit would apply to one
/// caller alone.
fn is_limitable(path: &[String]) -> bool {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let applies = match parts[..] {
        // All callers share the engine, which counts these calls.
        ["tools", "max_concurrent" | "authorization", ..] | ["plugins", "*", ..] => false,
        ["serve", key] => matches!(key, "max_requests" | "requests_per_minute"),
        [table, ..] => matches!(
            table,
            "tools" | "approvals" | "plugins" | "mcp" | "index" | "skills" | "agent" | "providers"
        ),
        [] => false,
    };
    let rule = match rule(path) {
        Some(Narrowing::InCeiling(rule)) => Some(*rule),
        rule => rule,
    };
    applies && !matches!(rule, None | Some(Narrowing::Ignored | Narrowing::Free))
}
