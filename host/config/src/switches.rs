//! From what the operator wrote to what is switched off, and to what waits for what.

use std::borrow::Cow;

use berth_policy::{Decision, Dependencies, Gate, Needs, Switches, Verdict};

use super::Loaded;

impl Loaded {
    /// What is switched off.
    pub fn switches(&self) -> Switches {
        let off = |key: &str| {
            let place = self.origin(key);
            Decision {
                verdict: Verdict::Deny,
                gate: Gate::Switches,
                rule: Cow::Borrowed("enabled = false"),
                remedy: place.remedy(|| {
                    "To have it back, set `enabled` to true there, or take the line out.".to_owned()
                }),
                place: place.text,
            }
        };
        let tools = &self.config.tools;
        let mut switches =
            Switches { all: (!tools.enabled).then(|| off("tools.enabled")), ..Switches::default() };
        for (builtin, enabled) in [
            ("file", tools.file.enabled),
            ("shell", tools.shell.enabled),
            ("web", tools.web.enabled),
        ] {
            if enabled {
                continue;
            }
            let replacing = self
                .config
                .plugins
                .iter()
                .filter(|(_, plugin)| plugin.replaces == builtin)
                .map(|(name, _)| name.as_str());
            let mut off = off(&format!("tools.{builtin}.enabled"));
            if self.ceilings.iter().any(|ceiling| ceiling.leaves_no_directory(builtin)) {
                off.rule = Cow::Borrowed("allowed_paths, none of which is left");
            }
            for name in replacing.chain([builtin]) {
                switches.providers.insert(name.to_owned(), off.clone());
            }
        }
        for name in
            self.config.plugins.iter().filter(|(_, plugin)| !plugin.enabled).map(|(name, _)| name)
        {
            switches.providers.insert(name.clone(), off(&format!("plugins.{name}.enabled")));
        }
        switches
    }

    /// Which tools wait for others. None where that is not asked for.
    pub fn dependencies(&self) -> Option<Dependencies> {
        let said = &self.config.tools.dependencies;
        if !said.enabled {
            return None;
        }
        let needs = said.rules.iter().map(|(tool, rule)| {
            let key = super::keys::dotted(
                &["tools", "dependencies", "rules", tool, "requires"].map(str::to_owned),
            );
            let needs = Needs {
                requires: rule.requires.clone(),
                prefers: rule.prefers.clone(),
                place: self.place(&key),
            };
            (tool.clone(), needs)
        });
        let always_on = said.always_on.iter().cloned().collect();
        let (rules, cyclic) = Dependencies::new(
            needs.collect(),
            always_on,
            said.boost_per_dep.get(),
            said.max_total_boost.get(),
        );
        if !cyclic.is_empty() {
            let cyclic = berth_contract::text::neutral_line(&cyclic.join("`, `"));
            tracing::warn!(
                "[tools.dependencies]: `{cyclic}` would wait for themselves, so what they require doesn't count"
            );
        }
        Some(rules)
    }
}
