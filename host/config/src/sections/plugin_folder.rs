//! `[plugin_folder]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};

section! {
    /// A folder whose plugins are loaded, and loaded anew when they change.
    #[derive(Eq)]
    pub struct PluginFolder {
        /// The folder; where empty, `plugins` in Berth's data folder. `~` is the home directory; a
        /// relative path starts at the folder of the `berth.toml` that names it, or at the working
        /// directory where a variable or a flag does. Tools don't write there.
        pub path: String, Rule::Ignored;
        /// What happens to a plugin that is new there or has changed.
        pub reload: Reload, Rule::Approve;
    }
}

/// What happens to a component that nobody has approved yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Reload {
    /// It waits for `berth plugin approve`, and the one that was approved serves meanwhile.
    #[default]
    Approve,
    /// It is used at once, with the grants of its name.
    Trust,
}
