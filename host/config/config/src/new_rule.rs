//! The rule that a permanent approval writes into the user's `toolhold.toml`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml_edit::Array;
use toolhold_contract::HostError;
use toolhold_contract::text::toml;

use super::insert::{
    self, AllowRule, ConfigEditError, InsertError, change, check_host, check_writable, insert_item,
    insert_rule,
};
use super::load::load_with;
use super::{Config, ConfigValues, Folders, PermissionAction, Problems, file};

/// A host that programs of commands may reach: an element of `hosts` in `[tools.shell]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// The element, such as `registry.example.org`.
    pub host: String,
}

/// The line that a permanent approval writes into the user's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NewRule {
    /// An allowing rule for calls.
    Permission(AllowRule),
    /// A host for commands.
    Host(HostEntry),
}

impl NewRule {
    /// Returns the rule as TOML.
    pub fn text(&self) -> String {
        match self {
            Self::Permission(rule) => rule.text(),
            Self::Host(HostEntry { host }) => {
                format!("[tools.shell]\nhosts = [{}]\n", toml(host))
            }
        }
    }

    /// Writes the rule into the user's file, and returns the path of the file. Changes nothing if
    /// the file already has the rule. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`insert::permission`].
    pub fn write(&self, folders: &Folders) -> Result<PathBuf, HostError> {
        match self {
            Self::Permission(rule) => insert::permission(folders, rule),
            Self::Host(HostEntry { host }) => {
                check_host(host)?;
                let by_hand =
                    format!("add this to `hosts` in [tools.shell] by hand: {}", toml(host));
                change(folders, &by_hand, |text| self.insert_into(text))
            }
        }
    }

    /// Inserts the rule into the text of a file. Returns `None` if the text has the rule.
    fn insert_into(&self, text: &str) -> Result<Option<String>, ConfigEditError> {
        match self {
            Self::Permission(rule) => insert_rule(text, rule),
            Self::Host(HostEntry { host }) => {
                let host = host.as_str().into();
                insert_item(text, &["tools", "shell"], "hosts", host, Array::new())
            }
        }
    }
}

impl Config {
    /// Returns the configuration that would apply after [`NewRule::write`]. Writes nothing. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule can't be written into the file or wouldn't apply.
    pub fn with_rule(&self, rule: &NewRule) -> Result<Self, InsertError> {
        let (folders, inputs) = self.read_from.as_ref().ok_or(InsertError::NoFile)?;
        // The rule would apply to all callers and to the operator. A token with limits of its own
        // makes a principal even if there are no tables.
        if self.is_of_principal() || folders.is_of_principal() {
            return Err(InsertError::Principal);
        }
        // `write` changes the user's own file. A rule in it has no effect if another file is read.
        if let Some(file) = &inputs.file {
            return Err(InsertError::OtherFile(file.clone()));
        }
        let path = folders.config_file();
        check_writable(&path)?;
        let file = file::read(&path).map_err(Problems::from)?;
        let (before, identity) = match &file {
            Some(file) => (file.text.clone(), file.identity),
            // The file doesn't exist yet, so it has no device and no inode.
            None => (String::new(), (0, 0)),
        };
        // `load_with` only reads files, and no file names the providers that were found on this
        // machine. Copy them from `self`, because the values would otherwise differ from `self`
        // even if the file hasn't changed.
        let current = load_with(folders, inputs, path.clone(), file)?.with_found_providers_of(self);
        // The user approved only this rule, so other changes of the file must not apply with it.
        // The file may already have the rule, because another process may have written it for the
        // same approval.
        let is_unchanged = current.values == self.values;
        if !is_unchanged && current.without(rule) != self.values {
            return Err(InsertError::Changed);
        }
        let Some(text) = rule.insert_into(&before)? else { return Ok(current) };
        let changed = load_with(folders, inputs, path, Some(file::Text { text, identity }))?;
        Ok(changed.with_found_providers_of(self))
    }

    /// Returns the values without the first copy of the rule, or all values if there is no copy.
    fn without(&self, rule: &NewRule) -> ConfigValues {
        match rule {
            NewRule::Permission(rule) => self.without_permission(rule),
            NewRule::Host(HostEntry { host }) => {
                let mut config = self.values.clone();
                let hosts = &mut config.tools.shell.hosts;
                if let Some(index) = hosts.iter().position(|known| known.to_string() == *host) {
                    hosts.remove(index);
                }
                config
            }
        }
    }

    fn without_permission(&self, rule: &AllowRule) -> ConfigValues {
        let mut config = self.values.clone();
        if let Some(rules) = config.tools.permissions.get_mut(&rule.tool) {
            let index = rules.iter().position(|known| {
                let is_glob = !known.exact;
                is_glob == rule.is_glob
                    && known.pattern.as_str() == rule.pattern
                    && known.action == PermissionAction::Allow
            });
            if let Some(index) = index {
                rules.remove(index);
            }
            if rules.is_empty() {
                config.tools.permissions.remove(&rule.tool);
            }
        }
        config
    }
}
