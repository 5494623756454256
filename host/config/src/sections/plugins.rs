//! `[plugins.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::{Rule, section};
use crate::{
    AllowedPath, HostGrant, PluginLimits, Reload, Secret, VariableName, WrittenHost,
    WrittenPrivateHosts, WrittenProgram,
};

section! {
    /// A plugin that is not built in.
    pub struct Plugin {
        /// Whether its tools are there: `false` takes them out of the catalogue.
        pub enabled: bool = true, Rule::OnlyFalse;
        /// The component, a `.wasm` file; where empty, the plugin of that name in
        /// `[plugin_folder]`. `~` is the home directory; a relative path starts at the folder of
        /// the `berth.toml` that names it, or at the working directory where a variable or a flag
        /// does.
        pub path: String, Rule::Ignored;
        /// What happens when the component changes; where absent, `"approve"` for a plugin with a
        /// `path`, and what `[plugin_folder]` says for one that comes from there.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reload: Option<Reload>, Rule::Approve;
        /// The built-in plugin that this one takes the place of, as `"file"`; where empty, none.
        pub replaces: String, Rule::Ignored;
        /// Directories that the plugin may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Rule::Directories;
        /// How far the plugin is trusted.
        pub trust: TrustLevel, Rule::Stricter(&["blocked", "quarantined", "verified", "trusted"]);
        /// Programs that the plugin may start, each with a glob for every argument, as in
        /// `"git {status,diff} **"`: a last `**` stands for any further ones. They run in the
        /// sandbox of `[tools.shell]`.
        pub programs: Vec<WrittenProgram>, Rule::Subset;
        /// Whether the plugin may run commands by a shell, which reaches every program.
        pub shell: bool, Rule::OnlyFalse;
        /// Whether what the plugin starts may reach the network. Its own requests are another
        /// matter: see `hosts`.
        pub network: bool, Rule::OnlyFalse;
        /// Variables of your environment that what the plugin starts gets beside the usual ones, by
        /// name.
        pub env: Vec<VariableName>, Rule::Subset;
        /// Hosts that the plugin's own requests reach, as in `"api.example.com"`, `"*.example.com"`
        /// for all names below one, or `"https://example.com:8443"`; a table can also say by which
        /// `methods`. What it starts doesn't count: see `network`.
        pub hosts: Vec<HostGrant>, Rule::Covered(HostGrant::covers_written);
        /// Private hosts that are opened to them, as `"localhost:3000"`, an address or a range,
        /// each with or without a port.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Rule::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached by TLS alone.
        pub https_only: bool = true, Rule::OnlyTrue;
        /// Hosts to which its requests may carry what looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Rule::Covered(WrittenHost::covers_written);
        /// Secrets that Berth puts into its requests, by names of yours. The plugin sees none.
        pub secrets: BTreeMap<String, Secret>, Rule::Named(Secret::RULES);
        /// What one call of the plugin may use, where that differs from `[tools.limits]`.
        pub limits: PluginLimits, Rule::Table(PluginLimits::RULES);
    }
}

/// How far a plugin is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum TrustLevel {
    /// As what comes with Berth.
    Trusted,
    /// As what you have looked at.
    #[default]
    Verified,
    /// It may look, but neither act nor reach the world.
    Quarantined,
    /// It may do nothing.
    Blocked,
}
