//! `[plugins.NAME]`: the component of a plugin, its grants and its settings.

use std::collections::BTreeMap;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};
use crate::{
    AllowedPath, Bounded, HostGrant, PluginLimits, Reload, Secret, VariableName, WrittenHost,
    WrittenPrivateHosts, WrittenProgram,
};

section! {
    /// A plugin that is not built in.
    pub struct Plugin {
        /// Whether the plugin's tools are offered. `false` removes them from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The component, a `.wasm` file. If empty, the plugin of that name in `[plugin_folder]` is
        /// used. `~` is the home directory. A relative path starts at the folder of the
        /// `toolhold.toml` that names it. In a variable or a flag, the path starts at the working
        /// directory.
        pub path: String, Narrowing::Ignored;
        /// The source from which the plugin is installed: a file, `"https://…"` or `"oci://…"`.
        /// `toolhold plugin install` and `toolhold trust` show the plugin, ask for your approval,
        /// and install it.
        pub source: String, Narrowing::Ignored;
        /// SHA-256 of the only component that is installed and served under this name. If empty,
        /// any approved component. In `/etc/toolhold/toolhold.toml`, it also approves the component
        /// for every user.
        pub digest: Sha256, Narrowing::Ignored;
        /// The action for a changed component. The default is `"approve"` for a plugin with a
        /// `path`, and `reload` of `[plugin_folder]` for a plugin in that folder.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reload: Option<Reload>, Narrowing::Approve;
        /// The built-in plugin that this plugin replaces, for example `"file"`. If empty, the
        /// plugin replaces nothing.
        pub replaces: String, Narrowing::Ignored;
        /// Directories that the plugin may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether the component is a WASI command: a program with arguments, a standard output and
        /// an exit code. The plugin then has one tool, `NAME__run`.
        pub command: bool, Narrowing::Ignored;
        /// The arguments of the command. `"{name}"` is replaced by an argument of the tool, always
        /// as one word. `"{name...}"` is replaced by a list, with each string as a word.
        /// `"{name:read}"` and `"{name:write}"` are paths, which are checked before the command
        /// runs. A list of words is omitted if the call lacks one of its arguments:
        /// `["--max-count", "{count}"]`. For an argument that is true or false, write `["-i",
        /// "{ignore_case?}"]`.
        pub arguments: Vec<ArgumentPart>, Narrowing::Ignored;
        /// The argument whose text is the command's standard input. If empty, the input is empty.
        pub stdin: String, Narrowing::Ignored;
        /// The description of the command's tool, for models. If empty, the component's own
        /// description.
        pub description: String, Narrowing::Ignored;
        /// The descriptions of the tool's arguments, by name.
        #[schemars(extend("examples" = [{ "pattern": "A regular expression" }]))]
        pub argument_descriptions: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// The plugin's trust level.
        pub trust: TrustLevel, Narrowing::Stricter(&["blocked", "quarantined", "verified", "trusted"]);
        /// Programs that the plugin may start, each with a glob for every argument, as in `"git
        /// {status,diff} **"`. A `**` at the end matches any further arguments. The programs run in
        /// the sandbox of `[tools.shell]`.
        pub programs: Vec<WrittenProgram>, Narrowing::Subset;
        /// Whether the plugin may also start other programs, if the rules for `bash` allow them.
        /// All rules about commands apply, including rules that ask. The programs may use the
        /// grants of this table.
        pub judged_programs: bool, Narrowing::OnlyFalse;
        /// The number of the plugin's programs in one session that may keep running after a call,
        /// such as language servers. These programs must be in `programs`, because no rule checks
        /// their input. They have no network, can only read, and end after ten idle minutes.
        pub services: Bounded<0, 8> = Bounded::clamped(0), Narrowing::Smaller;
        /// Whether the plugin may run commands with a shell, and so any program.
        pub shell: bool, Narrowing::OnlyFalse;
        /// Whether programs of the plugin may use the whole network. Without it, they reach `hosts`.
        pub network: bool, Narrowing::OnlyFalse;
        /// Variables of your environment, by name, that programs of the plugin get in addition to
        /// the usual variables.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Hosts that the plugin's requests and its programs may reach: `"api.example.com"`,
        /// `"*.example.com"` for all names below `example.com`, or `"https://example.com:8443"`. A
        /// table can also name the `methods` and `paths`.
        pub hosts: Vec<HostGrant>, Narrowing::Covered(HostGrant::covers_written);
        /// Private hosts that the plugin's requests may reach: `"localhost:3000"`, an address or a
        /// range, each with or without a port.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Narrowing::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached with TLS only.
        pub https_only: bool = true, Narrowing::OnlyTrue;
        /// Hosts to which the plugin's requests may send text that looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Narrowing::Covered(WrittenHost::covers_written);
        /// Secrets that Toolhold adds to the plugin's requests, by names of your choice. The plugin
        /// doesn't see the secrets.
        pub secrets: BTreeMap<String, Secret>, Narrowing::Named(Secret::RULES);
        /// MiB of keys and values that the plugin may store between its calls, with 4,096 keys for
        /// each MiB. Other plugins can't see the store. 0 means no store.
        pub store_mib: Bounded<0, 65_536> = Bounded::clamped(0), Narrowing::Smaller;
        /// MiB of documents that the plugin may store between its calls and search, with 6,250
        /// documents for each MiB. Other plugins can't see the index. 0 means no index.
        pub index_mib: Bounded<0, 65_536> = Bounded::clamped(0), Narrowing::Smaller;
        /// Processor seconds that the plugin's modules may use in one call, in addition to
        /// `cpu_secs`. Modules are pure components in the plugin. 0 means no modules.
        pub parts_cpu_secs: Bounded<0, 86_400> = Bounded::clamped(0), Narrowing::Smaller;
        /// The number of the plugin's scheduled tasks, which are later calls of its own tools.
        /// `[tools.scheduler]` must be enabled. 0 means no tasks.
        pub schedule_tasks: Bounded<0, 1000> = Bounded::clamped(0), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of texts for the plugin. The
        /// provider needs an `/embeddings` endpoint, and gets the plugin's texts without text that
        /// looks like a secret. If empty, the plugin can't make vectors.
        pub embeddings: String, Narrowing::OnlyEmpty;
        /// The lifetime of an instance of the plugin. With `"session"`, a plugin can request that
        /// its memory is preserved between the calls of one session. The memory is lost if the
        /// instance is lost.
        pub instance: InstanceLifetime, Narrowing::Stricter(&["call", "session"]);
        /// The plugin's own settings. The plugin defines the keys, and `toolhold plugin inspect`
        /// shows the keys that the plugin describes. The settings have at most 64 KiB and 32
        /// levels. A `toolhold.toml` in the working directory can't set them. Don't put secrets
        /// here, because the plugin can read the settings.
        pub config: PluginSettings, Narrowing::Free;
        /// Limits of the plugin's calls that differ from `[tools.limits]`.
        pub limits: PluginLimits, Narrowing::Table(PluginLimits::RULES);
    }
}

impl Plugin {
    /// Returns the most keys in the plugin's store: one key for each 256 bytes.
    pub fn store_keys(&self) -> u64 {
        self.store_mib.get() * 4096
    }

    /// Returns the most documents in the plugin's index: 100,000 for 16 MiB.
    pub fn index_documents(&self) -> u64 {
        self.index_mib.get() * 6_250
    }
}

/// Hexadecimal digits of a SHA-256 digest.
const SHA256_DIGITS: usize = 64;

/// A SHA-256 digest of 64 lower-case hexadecimal digits, or an empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sha256(String);

as_written!(Sha256);

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        let digits = written.strip_prefix("sha256:").unwrap_or(&written).to_ascii_lowercase();
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        // The empty string stands for no digest.
        let has_valid_length = digits.is_empty() || digits.len() == SHA256_DIGITS;
        if !is_hexadecimal || !has_valid_length {
            return Err(serde::de::Error::custom(
                "takes a SHA-256 digest of 64 hexadecimal digits, as printed by `toolhold plugin \
                 inspect`",
            ));
        }
        Ok(Self(digits))
    }
}

inline_schema!(
    Sha256,
    "Sha256",
    json_schema!({ "type": "string", "pattern": "^((sha256:)?[0-9A-Fa-f]{64})?$" })
);

/// The table of a plugin's settings. The plugin defines the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PluginSettings(pub toml::Table);

inline_schema!(
    PluginSettings,
    "PluginSettings",
    json_schema!({ "type": "object", "additionalProperties": true })
);

/// A part of a command's arguments: one word, or several words that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ArgumentPart {
    /// One word.
    Word(String),
    /// Words that are omitted if the call lacks one of their arguments.
    Optional(Vec<String>),
}

/// The lifetime of an instance of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum InstanceLifetime {
    /// The instance lasts for one call.
    #[default]
    Call,
    /// The instance lasts for the calls of one session.
    Session,
}

/// The trust level of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum TrustLevel {
    /// Like Toolhold's own plugins.
    Trusted,
    /// Like a plugin that you have checked.
    #[default]
    Verified,
    /// The plugin may read, but neither act nor use the network.
    Quarantined,
    /// All calls of the plugin are denied.
    Blocked,
}
