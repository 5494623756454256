//! Loads the built-in filters with the user's rules, and reloads them when the rules change.

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

/// The built-in filters, and the rules of the last load.
#[derive(Clone)]
pub(super) struct BuiltInFilters {
    builtin: Builtin,
    rules: FilterRules,
}

/// The user's own rules for filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterRulesState {
    /// The file with the rules. The file may be missing.
    pub path: PathBuf,
    /// Problems with the rules. A problem with the whole file disables all rules. A problem with a
    /// rule disables only the rule.
    pub problems: Vec<String>,
}

impl Plugins {
    /// Loads the built-in filters with the user's rules. Invalid rules are ignored.
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

    /// Reloads the user's rules if they have changed. Unreadable rules change nothing.
    pub(super) async fn reload_rules(&self) {
        let loaded_filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(BuiltInFilters { builtin, rules }) = loaded_filters else { return };
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

    fn serve_filters(&self, plugin: &Plugin) -> Result<(), HostError> {
        let mut slots = self.slots();
        if let Some(slot) = slots.iter_mut().find(|slot| slot.name == BUILT_IN_FILTERS) {
            let is_approved = true;
            slot.serve(plugin, is_approved)?;
        }
        self.publish_slots(&slots)
    }

    /// Returns the file of the user's filter rules, and their problems, or `None` without the
    /// built-in filters.
    pub fn filter_rules(&self) -> Option<FilterRulesState> {
        let loaded_filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let BuiltInFilters { rules, .. } = loaded_filters?;
        let mut problems = rules.problems;
        if let Some(reason) = rules.unusable {
            problems.insert(0, reason);
        }
        let slots = self.slots();
        if let Some(slot) = slots.iter().find(|slot| slot.name == BUILT_IN_FILTERS)
            && let Some(running) = &slot.running
        {
            problems.extend_from_slice(running.plugin.filter_problems());
        }
        Some(FilterRulesState { path: rules.path, problems })
    }

    /// Returns the filters of the running plugins, in the configured order. The chain also names
    /// the first plugin that should run but doesn't.
    pub(super) fn chain(&self, slots: &[Slot]) -> Chain {
        let mut plugins = Vec::new();
        let mut missing = None;
        for name in &self.policies.config.values.tools.filters.chain {
            let slot = self.find_in_chain(slots, name);
            let running = slot.and_then(|slot| slot.running.as_ref());
            // An embedding program may omit the built-in filters, because they contain no security
            // filters.
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

    /// Returns the plugin with this name, or the plugin that replaces it.
    fn find_in_chain<'s>(&self, slots: &'s [Slot], name: &str) -> Option<&'s Slot> {
        let plugins = &self.policies.config.values.plugins;
        slots.iter().find(|slot| {
            let is_replacement =
                plugins.get(&slot.name).is_some_and(|plugin| plugin.replaces == name);
            slot.name == name || is_replacement
        })
    }

    async fn filters_with(
        &self,
        builtin: &Builtin,
        rules: Option<String>,
    ) -> Result<Plugin, HostError> {
        let mut policy = self.policies.built_in(builtin.name)?;
        if let Some(rules) = rules {
            // The filters get the rules as one of their settings.
            let settings = Map::from_iter([(PluginConfig::RULES.to_owned(), rules.into())]);
            policy.config = PluginConfig::new(settings).into();
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
