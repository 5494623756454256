//! `[plugin_folder]`: a folder whose plugins are loaded, and reloaded when they change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};

section! {
    /// A folder whose plugins are loaded, and reloaded when they change.
    #[derive(Eq)]
    pub struct PluginFolder {
        /// The folder. If empty, the folder is `plugins` in Toolhold's data folder. `~` is the home
        /// directory. A relative path starts at the folder of the `toolhold.toml` that names it. In
        /// a variable or a flag, the path starts at the working directory. Tools can't write to the
        /// folder.
        pub path: String, Narrowing::Ignored;
        /// The treatment of a plugin that is new or has changed.
        pub reload: Reload, Narrowing::Approve;
    }
}

/// The treatment of a component that isn't approved yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Reload {
    /// The component waits for `toolhold plugin approve`. The approved version is used until then.
    #[default]
    Approve,
    /// The component is used at once, with the grants for the plugin's name.
    Trust,
}
