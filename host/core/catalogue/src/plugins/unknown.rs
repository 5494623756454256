//! Warns about names in the configuration that no tool or plugin has. A rule with a misspelt name
//! protects nothing. It is only a warning, since a plugin with that name may come later.

use std::sync::Arc;

use toolhold_config::{Config, PathGlob, PolicyEffect, Problem, Problems, Source, dotted_name};
use toolhold_contract::HostError;
use toolhold_policy::TextGlob;

use super::{Plugins, folder};
use crate::catalogue::{Catalogue, Tool, elsewhere};

/// A name that no tool or plugin has.
pub struct UnknownName {
    /// The warning: the name, its place, and the most similar existing name.
    pub message: String,
    /// Whether the name is in a ceiling, which the user can't change.
    in_ceiling: bool,
}

impl Plugins {
    /// Warns about unknown names in the user's own files. A ceiling is for many machines, so its
    /// unknown names aren't reported.
    pub fn warn_about_unknown_names(&self) {
        for unknown in self.unknown_names().into_iter().filter(|unknown| !unknown.in_ceiling) {
            tracing::warn!("{}", unknown.message);
        }
    }

    /// Checks that the patterns in permissions of path tools can match a path. A pattern that never
    /// matches denies nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] with every pattern that can't match.
    pub fn check_patterns(&self) -> Result<(), HostError> {
        self.check_patterns_of(self.catalogue().tools())
    }

    /// The same for these tools.
    pub(super) fn check_patterns_of(&self, tools: &[Arc<Tool>]) -> Result<(), HostError> {
        let config = &self.policies.config;
        let mut problems = Vec::new();
        for (name, rules) in &config.values.tools.permissions {
            let named = tools.iter().find(|tool| {
                tool.definition.name == *name || tool.definition.aliases.contains(name)
            });
            if !named.is_some_and(|tool| acts_on_paths(tool)) {
                continue;
            }
            for (index, rule) in rules.iter().enumerate() {
                // Other patterns are always valid, and compiling them takes a while.
                let pattern = rule.pattern.as_str();
                if rule.exact {
                    if !pattern.starts_with('/') {
                        let why = "with `exact = true`, the pattern has to be an absolute path";
                        problems.push(wrong_pattern(config, name, index, why));
                    }
                } else if (pattern.contains(['[', '{', '\\'])
                    || pattern.contains("..")
                    || pattern.starts_with(['!', '~']))
                    && let Err(why) = PathGlob::new(pattern)
                {
                    problems.push(wrong_pattern(config, name, index, &why.to_string()));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
    }

    /// The names of tools and plugins that rules use and that don't exist now.
    pub fn unknown_names(&self) -> Vec<UnknownName> {
        let catalogue = self.catalogue();
        let config = &self.policies.config;
        let mut found = UnknownNames { catalogue: &catalogue, unknown: Vec::new() };
        let tools = &config.values.tools;
        for name in tools.permissions.keys().filter(|name| !catalogue.knows(name)) {
            found.add(
                config,
                &format!("tools.permissions.{}", dotted_name(name)),
                name,
                "which has permissions",
            );
        }
        found.add_rules(config);
        config.ceilings.iter().for_each(|ceiling| found.add_rules(&ceiling.contents));
        for (index, name) in
            tools.redaction.exempt.iter().enumerate().filter(|(_, name)| !catalogue.knows(name))
        {
            found.add(
                config,
                &format!("tools.redaction.exempt.{index}"),
                name,
                "which `exempt` names",
            );
        }
        for (index, name) in config.values.agent.tool_filter.always_on.iter().enumerate() {
            let key = format!("agent.tool_filter.always_on.{index}");
            if !catalogue.knows(name) && config.source(&key) != Source::Default {
                found.add(config, &key, name, "which `always_on` names");
            }
        }
        if tools.dependencies.enabled {
            found.add_dependencies(config);
        }
        let slots = self.slots();
        // A table with a path is left out: loading reports a file that can't be read.
        let tables = config.values.plugins.iter().filter(|(_, plugin)| plugin.path.is_empty());
        for (name, _) in tables {
            let is_known = slots.iter().any(|slot| slot.name == *name)
                || catalogue.tools().iter().any(|tool| tool.provider.name() == name);
            if is_known {
                continue;
            }
            let key = format!("plugins.{}", dotted_name(name));
            let source = config.source_below(&key);
            let message = format!(
                "no plugin is named `{}`, which has the table [{key}] ({source})",
                folder::shown(name)
            );
            found.push(config, &source, message);
        }
        found.unknown
    }
}

fn acts_on_paths(tool: &Tool) -> bool {
    let subjects = &tool.definition.subjects;
    tool.claims_trusted
        && !subjects.is_empty()
        && subjects.iter().all(|subject| subject.kind.is_path())
}

/// A permission of the tool with this name whose pattern is wrong.
fn wrong_pattern(config: &Config, name: &str, index: usize, why: &str) -> Problem {
    let key = format!("tools.permissions.{}", dotted_name(name));
    Problem::new(config.source(&format!("{key}.{index}")), format!("{key}: {why}"))
}

/// The unknown names found so far.
struct UnknownNames<'c> {
    catalogue: &'c Catalogue,
    unknown: Vec<UnknownName>,
}

impl UnknownNames<'_> {
    fn add(&mut self, config: &Config, key: &str, name: &str, why: &str) {
        if elsewhere(name).is_some()
            || self.catalogue.may_come(name)
            || self.may_be_of_server(config, name)
        {
            return;
        }
        let similar = self.catalogue.similar(name);
        let near =
            similar.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let message = format!(
            "no tool is named `{}`, {why} ({}){near}",
            folder::shown(name),
            config.place(key)
        );
        self.push(config, &config.source(key), message);
    }

    /// Whether a server of the configuration may have the tool, and isn't there: a process that
    /// makes one call offers no other server than that of its tool.
    fn may_be_of_server(&self, config: &Config, name: &str) -> bool {
        let Some((server, _)) = name.split_once("__") else { return false };
        config.values.mcp.servers.contains_key(server)
            && !self.catalogue.tools().iter().any(|tool| {
                tool.definition.name.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
            })
    }

    fn push(&mut self, config: &Config, source: &Source, message: String) {
        // A file that is neither the user's nor the project's is a ceiling.
        let in_ceiling = match source {
            Source::File { path, .. } => {
                let path = path.as_path();
                config.file.as_deref() != Some(path)
                    && config.project.as_ref().is_none_or(|project| project.path != path)
            }
            _ => false,
        };
        if !self.unknown.iter().any(|unknown| unknown.message == message) {
            self.unknown.push(UnknownName { message, in_ceiling });
        }
    }

    fn add_rules(&mut self, config: &Config) {
        for (index, rule) in config.values.tools.policy.rules.iter().enumerate() {
            let unmatched: Vec<_> = rule
                .tools
                .iter()
                .filter(|glob| !self.matches(rule.effect, glob.as_str()))
                .collect();
            for glob in unmatched {
                let wild = glob.as_str().contains(['[', '{']);
                let why = if wild {
                    "which a rule names; the wildcards in it are `*` and `?` only"
                } else {
                    "which a rule names"
                };
                self.add(config, &format!("tools.policy.rules.{index}"), glob.as_str(), why);
            }
        }
    }

    /// Whether a rule's glob matches any tool. Rules that deny match aliases too.
    fn matches(&self, effect: PolicyEffect, glob: &str) -> bool {
        let Ok(glob) = TextGlob::new(glob) else { return false };
        self.catalogue.tools().iter().any(|tool| {
            let aliases = &tool.definition.aliases;
            glob.matches(&tool.definition.name)
                || effect == PolicyEffect::Deny && aliases.iter().any(|alias| glob.matches(alias))
        })
    }

    fn add_dependencies(&mut self, config: &Config) {
        let dependencies = &config.values.tools.dependencies;
        let mut named: Vec<(String, &String)> = Vec::new();
        named.extend(
            dependencies
                .always_on
                .iter()
                .enumerate()
                .map(|(index, name)| (format!("tools.dependencies.always_on.{index}"), name)),
        );
        for (tool, rule) in &dependencies.rules {
            let requires = format!("tools.dependencies.rules.{}.requires", dotted_name(tool));
            let prefers = format!("tools.dependencies.rules.{}.prefers", dotted_name(tool));
            named.push((
                if rule.requires.is_empty() { prefers.clone() } else { requires.clone() },
                tool,
            ));
            named.extend(rule.requires.iter().map(|name| (requires.clone(), name)));
            named.extend(rule.prefers.iter().map(|name| (prefers.clone(), name)));
        }
        named.retain(|(_, name)| {
            !self.catalogue.tools().iter().any(|tool| tool.definition.name == **name)
        });
        for (key, name) in named {
            self.add(config, &key, name, "which [tools.dependencies] names");
        }
    }
}
