//! Warns about names in the configuration that no tool or plugin has. A rule with a misspelt name
//! protects nothing. A warning is enough, because a plugin with the name may be added later.

use std::sync::Arc;

use toolhold_config::{Config, PathGlob, PolicyEffect, Problem, Problems, Source, dotted_name};
use toolhold_contract::{Definition, HostError};
use toolhold_policy::{TextGlob, ToolGlob};

use super::{Plugins, folder};
use crate::catalogue::{Catalogue, Tool, place_elsewhere};

/// A name that no tool or plugin has.
pub struct UnknownName {
    /// The warning with the name, its place, and the most similar existing name.
    pub message: String,
    /// Whether the name is in a ceiling, which the user can't change.
    in_ceiling: bool,
}

impl Plugins {
    /// Warns about unknown names in the user's own files. Unknown names in a ceiling aren't
    /// reported, because a ceiling is for many machines.
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

    /// Checks the patterns in permissions of these tools.
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
                if rule.exact {
                    if !pattern.starts_with('/') {
                        let why = "with `exact = true`, the pattern has to be an absolute path";
                        problems.push(wrong_pattern(config, name, index, why));
                    }
                } else if may_be_invalid(pattern)
                    && let Err(why) = PathGlob::new(pattern)
                {
                    problems.push(wrong_pattern(config, name, index, &why.to_string()));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
    }

    /// Returns the names of tools and plugins that rules use and that don't exist now.
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
        let slots = self.slots();
        for (name, plugin) in &config.values.plugins {
            // If the plugin has a path, loading reports a file that can't be read.
            let has_path = !plugin.path.is_empty();
            let has_slot = slots.iter().any(|slot| slot.name == *name);
            let has_tool = catalogue.tools().iter().any(|tool| tool.provider.name() == name);
            if has_path || has_slot || has_tool {
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
}

/// Checks whether a name in `[tools.permissions]` is that of a tool, an alias of it, or a glob that
/// matches it.
fn is_named(tool: &Tool, name: &str) -> bool {
    let Definition { name: tool_name, aliases, .. } = &*tool.definition;
    match ToolGlob::new(name) {
        Ok(Some(glob)) => glob.matches(tool.provider.name(), tool_name, aliases),
        _ => tool_name == name || aliases.iter().any(|alias| alias == name),
    }
}

/// Checks whether all subjects of a tool are paths, as far as the host trusts the tool's claims.
fn acts_on_paths(tool: &Tool) -> bool {
    let subjects = &tool.definition.subjects;
    tool.claims_trusted
        && !subjects.is_empty()
        && subjects.iter().all(|subject| subject.kind.is_path())
}

/// Checks whether a pattern must be compiled to check that it is valid. Other patterns are always
/// valid, and compiling them takes time.
fn may_be_invalid(pattern: &str) -> bool {
    pattern.contains(['[', '{', '\\']) || pattern.contains("..") || pattern.starts_with(['!', '~'])
}

/// Returns the problem of a permission whose pattern is invalid. `name` is the tool of the
/// permission.
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
    /// Adds a name, unless another host may have a tool with this name or the tool may be added
    /// later.
    fn add(&mut self, config: &Config, key: &str, name: &str, why: &str) {
        if place_elsewhere(name).is_some()
            || self.catalogue.may_come(name)
            || self.may_be_of_server(config, name)
        {
            return;
        }
        let suggestion = match self.catalogue.similar(name).first() {
            Some(similar) => format!("; did you mean `{similar}`?"),
            None => String::new(),
        };
        let message = format!(
            "no tool is named `{}`, {why} ({}){suggestion}",
            folder::shown(name),
            config.place(key)
        );
        self.push(config, &config.source(key), message);
    }

    /// Checks whether a server of the configuration may have the tool although the catalogue has no
    /// tool of this server. A process that makes one call starts only the server of that call's
    /// tool.
    fn may_be_of_server(&self, config: &Config, name: &str) -> bool {
        let Some((server, _)) = name.split_once("__") else { return false };
        let prefix = format!("{server}__");
        let tools = self.catalogue.tools();
        config.values.mcp.servers.contains_key(server)
            && !tools.iter().any(|tool| tool.definition.name.starts_with(&prefix))
    }

    fn push(&mut self, config: &Config, source: &Source, message: String) {
        // A file that is neither the user's nor the project's is a ceiling.
        let in_ceiling = match source {
            Source::File { path, .. } => {
                let is_users = config.file.as_deref() == Some(path.as_path());
                let is_projects = match &config.project {
                    Some(project) => project.path == path.as_path(),
                    None => false,
                };
                !is_users && !is_projects
            }
            _ => false,
        };
        if !self.unknown.iter().any(|unknown| unknown.message == message) {
            self.unknown.push(UnknownName { message, in_ceiling });
        }
    }

    fn add_rules(&mut self, config: &Config) {
        for (index, rule) in config.values.tools.policy.rules.iter().enumerate() {
            let key = format!("tools.policy.rules.{index}");
            for glob in &rule.tools {
                let glob = glob.as_str();
                if self.matches(rule.effect, glob) {
                    continue;
                }
                let why = if glob.contains(['[', '{']) {
                    "which a rule names; the wildcards in it are `*` and `?` only"
                } else {
                    "which a rule names"
                };
                self.add(config, &key, glob, why);
            }
        }
    }

    /// Checks whether a rule's glob matches any tool. Rules that deny also match aliases.
    fn matches(&self, effect: PolicyEffect, glob: &str) -> bool {
        let Ok(glob) = TextGlob::new(glob) else { return false };
        for tool in self.catalogue.tools() {
            if glob.matches(&tool.definition.name) {
                return true;
            }
            let aliases = &tool.definition.aliases;
            if effect == PolicyEffect::Deny && aliases.iter().any(|alias| glob.matches(alias)) {
                return true;
            }
        }
        false
    }

    fn add_dependencies(&mut self, config: &Config) {
        let dependencies = &config.values.tools.dependencies;
        // Each element has a key of the configuration and the tool name in its value.
        let mut named: Vec<(String, &String)> = Vec::new();
        for (index, name) in dependencies.always_on.iter().enumerate() {
            named.push((format!("tools.dependencies.always_on.{index}"), name));
        }
        for (tool, rule) in &dependencies.rules {
            let requires = format!("tools.dependencies.rules.{}.requires", dotted_name(tool));
            let prefers = format!("tools.dependencies.rules.{}.prefers", dotted_name(tool));
            let first_key = if rule.requires.is_empty() { &prefers } else { &requires };
            named.push((first_key.clone(), tool));
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
