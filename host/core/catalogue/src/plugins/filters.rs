//! Loads the built-in filters with the operator's rules, and reloads them when the rules change.

use std::path::PathBuf;
use std::sync::PoisonError;

use serde::Serialize;
use serde_json::Map;
use toolhold_config::{BUILT_IN_FILTERS, FilterRules};
use toolhold_contract::HostError;
use toolhold_engine::{Builtin, Plugin, PluginConfig};

use super::slot::Slot;
use super::{Plugins, blocking};
use crate::filter_chain::Chain;

/// The built-in filters, and the operator's rules that were read last.
#[derive(Clone)]
pub(super) struct BuiltInFilters {
    builtin: Builtin,
    rules: FilterRules,
}

/// The operator's own rules for filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterRulesState {
    /// The file with the rules. The file may be missing.
    pub path: PathBuf,
    /// Problems with the rules. A problem with the whole file disables all rules. A problem with
    /// one rule disables this rule.
    pub problems: Vec<String>,
}

impl Plugins {
    /// Returns the built-in filters with the operator's rules.
    pub(super) async fn load_filters(&self, builtin: &Builtin) -> Result<Plugin, HostError> {
        let mut rules = self.read_rules().await?;
        if let Some(reason) = &rules.unusable {
            tracing::warn!("the rules for filters are ignored: {reason}");
        }
        let plugin = match self.filters_with(builtin, rules.text.clone()).await {
            Err(error) if rules.text.is_some() => {
                let reason =
                    format!("{}: the rules can't be used together: {error}", rules.path.display());
                tracing::warn!("the rules for filters are ignored: {reason}");
                rules.text = None;
                rules.unusable = Some(reason);
                self.filters_with(builtin, None).await?
            }
            result => result?,
        };
        *self.filters.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(BuiltInFilters { builtin: *builtin, rules });
        Ok(plugin)
    }

    /// Reloads the operator's rules if they have changed. If the rules can't be read, nothing
    /// changes.
    pub(super) async fn reload_rules(&self) {
        let Some(BuiltInFilters { builtin, rules }) =
            self.filters.lock().unwrap_or_else(PoisonError::into_inner).clone()
        else {
            return;
        };
        let Ok(new_rules) = self.read_rules().await else { return };
        if new_rules == rules {
            return;
        }
        let loaded = match new_rules.unusable.clone() {
            None => {
                let result = self.filters_with(&builtin, new_rules.text.clone()).await;
                result.map_err(|error| error.to_string())
            }
            Some(reason) => Err(reason),
        };
        *self.filters.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(BuiltInFilters { builtin, rules: new_rules });

        let served = loaded.and_then(|plugin| {
            self.serve_filters(&plugin).map_err(|error| error.to_string())?;
            Ok(plugin)
        });
        match served {
            Ok(plugin) => {
                plugin.remember().await;
                tracing::info!("the rules for filters have changed");
            }
            Err(reason) => tracing::warn!("the rules for filters are unchanged: {reason}"),
        }
    }

    /// Puts the built-in filters into their slot, and publishes them.
    fn serve_filters(&self, plugin: &Plugin) -> Result<(), HostError> {
        let mut slots = self.slots();
        if let Some(slot) = slots.iter_mut().find(|slot| slot.name == BUILT_IN_FILTERS) {
            slot.serve(plugin, true)?;
        }
        self.publish_slots(&slots)
    }

    /// Returns the file of the operator's filter rules, and the problems of the rules.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        let BuiltInFilters { rules, .. } =
            self.filters.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut problems = Vec::from_iter(rules.unusable);
        problems.extend(rules.problems);
        let slots = self.slots();
        if let Some(slot) = slots.iter().find(|slot| slot.name == BUILT_IN_FILTERS)
            && let Some(running) = &slot.running
        {
            problems.extend_from_slice(running.plugin.filter_problems());
        }
        Some(FilterRulesState { path: rules.path, problems })
    }

    /// Returns the filters of the running plugins, in the configured order.
    pub(super) fn chain(&self, slots: &[Slot]) -> Chain {
        let mut plugins = Vec::new();
        let mut missing = None;
        for name in &self.policies.config.values.tools.filters.chain {
            let slot = self.find_in_chain(slots, name);
            let running = slot.and_then(|slot| slot.running.as_ref());
            // The built-in filters may be missing, since an embedding program may omit them. They
            // never block an answer.
            let may_be_missing = name == BUILT_IN_FILTERS && slot.is_none();
            if let Some(running) = running {
                plugins.push(&running.plugin);
            } else if missing.is_none() && !may_be_missing {
                let reason = match slot.and_then(|slot| slot.waiting.as_ref()) {
                    Some(waiting) => waiting.reason.clone(),
                    None => "no plugin has that name".to_owned(),
                };
                missing = Some((name.clone(), reason));
            }
        }
        Chain::new(plugins, missing)
    }

    /// Returns the first plugin that has this name or replaces the plugin of this name.
    fn find_in_chain<'s>(&self, slots: &'s [Slot], name: &str) -> Option<&'s Slot> {
        let plugins = &self.policies.config.values.plugins;
        slots.iter().find(|slot| {
            slot.name == name
                || plugins.get(&slot.name).is_some_and(|plugin| plugin.replaces == name)
        })
    }

    /// Loads the built-in filters with the given rules.
    async fn filters_with(
        &self,
        builtin: &Builtin,
        rules: Option<String>,
    ) -> Result<Plugin, HostError> {
        let mut policy = self.policies.built_in(builtin.name)?;
        if let Some(rules) = rules {
            let config = Map::from_iter([(PluginConfig::RULES.to_owned(), rules.into())]);
            policy.config = PluginConfig::new(config).into();
        }
        let plugin = self.runtime.load_built_in(builtin, policy).await?;
        for problem in plugin.filter_problems() {
            tracing::warn!("a rule for filters is ignored: {problem}");
        }
        Ok(plugin)
    }

    async fn read_rules(&self) -> Result<FilterRules, HostError> {
        let config = self.policies.config.clone();
        let folders = self.policies.folders.clone();
        let directory = self.policies.directory.clone();
        blocking(move || config.filter_rules(&folders, &directory)).await
    }
}
