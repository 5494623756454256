//! Builds the switches (`enabled`) and the dependencies of tools from the configuration.

use std::borrow::Cow;

use toolhold_contract::BUILT_IN_PLUGINS;
use toolhold_policy::{
    Decision, Dependencies, Gate, Needs, OnlyTools, OriginKind, Switches, Verdict,
};

use super::Config;

impl Config {
    /// Returns the denial of the tools that `key` disables. `key` ends in `enabled`.
    pub fn disabled(&self, key: &str) -> Decision {
        let place = self.origin(key);
        let table = key.trim_end_matches(".enabled");
        let remedy = place.remedy(|| match &place.kind {
            // A default has no line in a file, so the remedy shows the lines to add.
            OriginKind::Default(_) => {
                let lines = self.own_table(table).lines("enabled = true");
                format!("To enable it, {lines}")
            }
            _ => "To enable it, set `enabled` to true there.".to_owned(),
        });
        Decision {
            verdict: Verdict::Deny,
            gate: Gate::Switches,
            rule: Cow::Borrowed("enabled = false"),
            remedy,
            place: place.text,
        }
    }

    /// Returns the denial of the tools of a built-in plugin that is disabled in `table`.
    fn disabled_built_in(&self, plugin: &str, table: &str) -> Decision {
        let mut denial = self.disabled(&format!("{table}.enabled"));
        // `leaves_no_directory` takes the name of a table inside `tools`, such as `file`. For
        // `index`, which is outside `tools`, the name of the plugin is passed.
        let short_name = table.strip_prefix("tools.").unwrap_or(plugin);
        if self.ceilings.iter().any(|ceiling| ceiling.leaves_no_directory(short_name)) {
            denial.rule = Cow::Borrowed("allowed_paths: the ceiling leaves no directory");
        }
        denial
    }

    /// Returns `enabled` of a built-in plugin's `table`.
    fn is_enabled(&self, table: &str) -> bool {
        let tools = &self.values.tools;
        match table {
            "index" => self.values.index.enabled,
            "tools.diagnostics" => tools.diagnostics.enabled,
            "tools.file" => tools.file.enabled,
            "tools.memory" => tools.memory.enabled,
            "tools.scheduler" => tools.scheduler.enabled,
            "tools.shell" => tools.shell.enabled,
            "tools.web" => tools.web.enabled,
            table => unreachable!("no built-in plugin has the switch `{table}`"),
        }
    }

    /// Returns the denials of the disabled tools.
    pub fn switches(&self) -> Switches {
        let mut switches = Switches::default();
        if !self.values.tools.enabled {
            switches.all = Some(self.disabled("tools.enabled"));
        }
        let plugins = &self.values.plugins;
        let tables = BUILT_IN_PLUGINS
            .iter()
            .flat_map(|plugin| plugin.switches.iter().map(|table| (plugin.name, *table)));
        for (builtin, table) in tables {
            if self.is_enabled(table) {
                continue;
            }
            let denial = self.disabled_built_in(builtin, table);
            // The switch also disables the plugins that replace the built-in tool.
            for (name, _) in plugins.iter().filter(|(_, plugin)| plugin.replaces == builtin) {
                switches.providers.insert(name.clone(), denial.clone());
            }
            switches.providers.insert(builtin.to_owned(), denial);
        }
        for (name, _) in plugins.iter().filter(|(_, plugin)| !plugin.enabled) {
            let denial = self.disabled(&format!("plugins.{name}.enabled"));
            switches.providers.insert(name.clone(), denial);
        }
        switches.only = self.only_tools();
        switches
    }

    /// Returns the tools of `--tools`, with the denial of all other tools. Returns `None` without
    /// this flag.
    fn only_tools(&self) -> Option<OnlyTools> {
        let (_, inputs) = self.read_from.as_ref()?;
        let names = inputs.only_tools.clone()?;
        let refusal = Decision {
            verdict: Verdict::Deny,
            gate: Gate::Switches,
            rule: Cow::Owned(format!("--tools {}", names.join(","))),
            place: Cow::Borrowed("the command line of this program"),
            remedy: Cow::Borrowed("To offer the tool, start the program with its name in --tools."),
        };
        Some(OnlyTools { names, refusal })
    }

    /// Builds the dependencies between tools. Returns `None` if dependencies are disabled.
    pub fn dependencies(&self) -> Option<Dependencies> {
        let table = &self.values.tools.dependencies;
        if !table.enabled {
            return None;
        }
        let needs = table.rules.iter().map(|(tool, rule)| {
            let key = ["tools", "dependencies", "rules", tool, "requires"].map(str::to_owned);
            let tool_needs = Needs {
                requires: rule.requires.clone(),
                prefers: rule.prefers.clone(),
                place: self.place(&super::keys::dotted(&key)),
            };
            (tool.clone(), tool_needs)
        });
        let always_on = table.always_on.iter().cloned().collect();
        let (dependencies, cyclic) = Dependencies::new(
            needs.collect(),
            always_on,
            table.boost_per_dep.get(),
            table.max_total_boost.get(),
        );
        if !cyclic.is_empty() {
            let names = toolhold_contract::text::neutral_line(&cyclic.join("`, `"));
            tracing::warn!(
                "[tools.dependencies]: `{names}` depend on each other in a circle, so `requires` \
                 of these tools is ignored"
            );
        }
        Some(dependencies)
    }
}
