//! Warns about names in the configuration that no tool or plugin has, because a rule with a
//! misspelt name protects nothing. An unknown name isn't an error, because the plugin may be added
//! later.

use std::sync::Arc;

use toolhold_config::{Config, PathGlob, PolicyEffect, Problem, Problems, Source, dotted_name};
use toolhold_contract::{Definition, HostError};
use toolhold_policy::{TextGlob, ToolGlob};

use super::{Plugins, folder};
use crate::catalogue::{Catalogue, Tool, hint_about_other_hosts};

/// A name in the configuration that no tool or plugin has.
pub struct UnknownName {
    /// The warning with the name, its place, and a similar name.
    pub message: String,
    /// Whether the name is in a ceiling, which the user can't change.
    in_ceiling: bool,
}

impl Plugins {
    /// Warns about unknown names in the user's own files. Names in a ceiling aren't reported,
    /// because an administrator writes a ceiling for many machines.
    pub fn warn_about_unknown_names(&self) {
        for unknown in self.unknown_names().into_iter().chain(self.uninstalled_plugins()) {
            if !unknown.in_ceiling {
                tracing::warn!("{}", unknown.message);
            }
        }
    }

    /// Checks that the permission patterns of path tools can match a path. A pattern that never
    /// matches protects nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] with all patterns that can't match.
    pub fn check_patterns(&self) -> Result<(), HostError> {
        self.check_patterns_of(self.catalogue().tools())
    }

    /// Checks the permission patterns of these tools, if the tools act on paths.
    pub(super) fn check_patterns_of(&self, tools: &[Arc<Tool>]) -> Result<(), HostError> {
        let config = &self.policies.config;
        let mut problems = Vec::new();
        for (name, rules) in &config.values.tools.permissions {
            let has_path_tool =
                tools.iter().any(|tool| is_named(tool, name) && acts_on_paths(tool));
            if !has_path_tool {
                continue;
            }
            for (index, rule) in rules.iter().enumerate() {
                let pattern = rule.pattern.as_str();
                if rule.exact && !pattern.starts_with('/') {
                    let why = "with `exact = true`, the pattern has to be an absolute path";
                    problems.push(wrong_pattern(config, name, index, why));
                }
                if !rule.exact
                    && may_be_invalid(pattern)
                    && let Err(why) = PathGlob::new(pattern)
                {
                    problems.push(wrong_pattern(config, name, index, &why.to_string()));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
    }

    /// Returns names in the configuration that no tool or plugin has.
    pub fn unknown_names(&self) -> Vec<UnknownName> {
        let catalogue = self.catalogue();
        let config = &self.policies.config;
        let mut names = UnknownNames { catalogue: &catalogue, unknown: Vec::new() };
        let tools = &config.values.tools;
        for name in tools.permissions.keys() {
            if !catalogue.tools().iter().any(|tool| is_named(tool, name)) {
                let key = format!("tools.permissions.{}", dotted_name(name));
                names.add(config, &key, name, "which has permissions");
            }
        }
        names.add_rules(config);
        config.ceilings.iter().for_each(|ceiling| names.add_rules(&ceiling.contents));
        for (index, name) in tools.redaction.exempt.iter().enumerate() {
            let key = format!("tools.redaction.exempt.{index}");
            if !catalogue.knows(name) {
                names.add(config, &key, name, "which `exempt` names");
            }
        }
        for (index, name) in config.values.agent.tool_filter.always_on.iter().enumerate() {
            let key = format!("agent.tool_filter.always_on.{index}");
            if !catalogue.knows(name) && config.source(&key) != Source::Default {
                names.add(config, &key, name, "which `always_on` names");
            }
        }
        if tools.dependencies.enabled {
            names.add_dependencies(config);
        }
        for name in self.missing_plugins(&catalogue) {
            if !config.values.plugins[name].source.is_empty() {
                continue;
            }
            let key = format!("plugins.{}", dotted_name(name));
            let source = config.source_below(&key);
            let message = format!(
                "no plugin is named `{}`, which has the table [{key}] ({source})",
                folder::shown(name)
            );
            names.push(config, &source, message);
        }
        names.unknown
    }

    /// Returns the plugins that have a `source` in the configuration and aren't installed.
    pub fn uninstalled_plugins(&self) -> Vec<UnknownName> {
        let catalogue = self.catalogue();
        let config = &self.policies.config;
        let mut names = UnknownNames { catalogue: &catalogue, unknown: Vec::new() };
        for name in self.missing_plugins(&catalogue) {
            if config.values.plugins[name].source.is_empty() {
                continue;
            }
            let source = config.source(&format!("plugins.{}.source", dotted_name(name)));
            let message = format!(
                "the plugin `{}` isn't installed ({source}); `toolhold plugin install` installs it",
                folder::shown(name)
            );
            names.push(config, &source, message);
        }
        names.unknown
    }

    /// Returns the names of tables `[plugins.NAME]` without a plugin.
    fn missing_plugins(&self, catalogue: &Catalogue) -> Vec<&String> {
        let slots = self.slots();
        let mut missing = Vec::new();
        for (name, plugin) in &self.policies.config.values.plugins {
            // A plugin with a configured path isn't reported here, because loading reports a path
            // that can't be read.
            let has_path = !plugin.path.is_empty();
            let has_slot = slots.iter().any(|slot| slot.name == *name);
            let has_tool = catalogue.tools().iter().any(|tool| tool.provider.name() == name);
            if !has_path && !has_slot && !has_tool {
                missing.push(name);
            }
        }
        missing
    }
}

/// Checks whether a name in `[tools.permissions]` is the tool's name, its alias, or a matching
/// glob.
fn is_named(tool: &Tool, name: &str) -> bool {
    let Definition { name: tool_name, aliases, .. } = &*tool.definition;
    match ToolGlob::new(name) {
        Ok(Some(glob)) => glob.matches(tool.provider.name(), tool_name, aliases),
        Ok(None) | Err(_) => tool_name == name || aliases.iter().any(|alias| alias == name),
    }
}

/// Checks whether all subjects of a trusted tool are paths.
fn acts_on_paths(tool: &Tool) -> bool {
    let subjects = &tool.definition.subjects;
    tool.claims_trusted
        && !subjects.is_empty()
        && subjects.iter().all(|subject| subject.kind.is_path())
}

/// Checks whether a pattern may be invalid. Compiling takes time, so all other patterns are
/// skipped.
fn may_be_invalid(pattern: &str) -> bool {
    pattern.contains(['[', '{', '\\']) || pattern.contains("..") || pattern.starts_with(['!', '~'])
}

fn wrong_pattern(config: &Config, name: &str, index: usize, why: &str) -> Problem {
    let key = format!("tools.permissions.{}", dotted_name(name));
    Problem::new(config.source(&format!("{key}.{index}")), format!("{key}: {why}"))
}

struct UnknownNames<'c> {
    catalogue: &'c Catalogue,
    unknown: Vec<UnknownName>,
}

impl UnknownNames<'_> {
    /// Reports the name of an unknown tool, unless another host may have the tool or the tool may
    /// be added later. `key` is the configuration key of the name. `clause` describes the key in
    /// the message.
    fn add(&mut self, config: &Config, key: &str, name: &str, clause: &str) {
        let is_of_other_hosts = hint_about_other_hosts(name).is_some();
        let may_be_added_later =
            self.catalogue.may_be_loading(name) || self.may_be_of_server(config, name);
        if is_of_other_hosts || may_be_added_later {
            return;
        }
        let suggestion = match self.catalogue.similar(name).first() {
            Some(similar) => format!("; did you mean `{similar}`?"),
            None => String::new(),
        };
        let message = format!(
            "no tool is named `{}`, {clause} ({}){suggestion}",
            folder::shown(name),
            config.place(key)
        );
        self.push(config, &config.source(key), message);
    }

    /// Checks whether the name belongs to a server that hasn't listed its tools. This can happen,
    /// because a process for a single call starts only one server.
    fn may_be_of_server(&self, config: &Config, name: &str) -> bool {
        let Some((server, _)) = name.split_once("__") else { return false };
        let is_configured = config.values.mcp.servers.contains_key(server);
        let prefix = format!("{server}__");
        let tools = self.catalogue.tools();
        let has_tools = tools.iter().any(|tool| tool.definition.name.starts_with(&prefix));
        is_configured && !has_tools
    }

    /// Adds a message about a name. A repeated message is dropped.
    fn push(&mut self, config: &Config, source: &Source, message: String) {
        let mut in_ceiling = false;
        if let Source::File { path, .. } = source {
            let is_of_user = config.file.as_ref().is_some_and(|file| file == path);
            let is_of_project =
                config.project.as_ref().is_some_and(|project| project.path == path.as_path());
            in_ceiling = !is_of_user && !is_of_project;
        }
        if !self.unknown.iter().any(|unknown| unknown.message == message) {
            self.unknown.push(UnknownName { message, in_ceiling });
        }
    }

    /// Reports the globs in policy rules that match no tool.
    fn add_rules(&mut self, config: &Config) {
        for (index, rule) in config.values.tools.policy.rules.iter().enumerate() {
            let key = format!("tools.policy.rules.{index}");
            for glob in &rule.tools {
                let pattern = glob.as_str();
                if self.matches(rule.effect, pattern) {
                    continue;
                }
                let clause = if pattern.contains(['[', '{']) {
                    "which a rule names; the only wildcards in a rule are `*` and `?`"
                } else {
                    "which a rule names"
                };
                self.add(config, &key, pattern, clause);
            }
        }
    }

    /// Checks whether a rule's glob matches any tool. Deny rules also match aliases.
    fn matches(&self, effect: PolicyEffect, pattern: &str) -> bool {
        let Ok(glob) = TextGlob::new(pattern) else { return false };
        let matches_aliases = effect == PolicyEffect::Deny;
        for tool in self.catalogue.tools() {
            let Definition { name, aliases, .. } = &*tool.definition;
            if glob.matches(name) {
                return true;
            }
            if matches_aliases && aliases.iter().any(|alias| glob.matches(alias)) {
                return true;
            }
        }
        false
    }

    /// Reports the names in `[tools.dependencies]` that no tool has.
    fn add_dependencies(&mut self, config: &Config) {
        let dependencies = &config.values.tools.dependencies;
        let mut keys_and_names: Vec<(String, &String)> = Vec::new();
        for (index, name) in dependencies.always_on.iter().enumerate() {
            keys_and_names.push((format!("tools.dependencies.always_on.{index}"), name));
        }
        for (tool, rule) in &dependencies.rules {
            let requires = format!("tools.dependencies.rules.{}.requires", dotted_name(tool));
            let prefers = format!("tools.dependencies.rules.{}.prefers", dotted_name(tool));
            // A table's name has no place of its own, so its message gives the place of a key in
            // the table.
            let key_in_table = if rule.requires.is_empty() { &prefers } else { &requires };
            keys_and_names.push((key_in_table.clone(), tool));
            keys_and_names.extend(rule.requires.iter().map(|name| (requires.clone(), name)));
            keys_and_names.extend(rule.prefers.iter().map(|name| (prefers.clone(), name)));
        }
        for (key, name) in keys_and_names {
            let is_known = self.catalogue.tools().iter().any(|tool| tool.definition.name == *name);
            if !is_known {
                self.add(config, &key, name, "which [tools.dependencies] names");
            }
        }
    }
}
