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
        /// Whether its tools are offered. `false` takes them out of the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// The component, a `.wasm` file. If empty, it is the plugin of that name in
        /// `[plugin_folder]`. `~` is the home directory. A relative path starts at the folder of
        /// the `toolhold.toml` that names it; in a variable or a flag, at the working directory.
        pub path: String, Narrowing::Ignored;
        /// Where the plugin is installed from if it isn't installed yet: a file, `"https://…"` or
        /// `"oci://…"`. `toolhold plugin install` and `toolhold trust` show it, ask, and install
        /// it.
        pub source: String, Narrowing::Ignored;
        /// SHA-256 of the only component that is installed and served under this name. If empty,
        /// any that is approved.
        pub digest: Sha256, Narrowing::Ignored;
        /// What happens when the component changes. If absent: `"approve"` for a plugin with a
        /// `path`, and what `[plugin_folder]` says for one that comes from there.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reload: Option<Reload>, Narrowing::Approve;
        /// The built-in plugin that this one replaces, for example `"file"`. If empty, none.
        pub replaces: String, Narrowing::Ignored;
        /// Directories that the plugin may use. Nothing is granted by default.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether the component is run as a command: it is a program for WASI, with arguments, a
        /// standard output and an exit code. Its one tool is `NAME__run`.
        pub command: bool, Narrowing::Ignored;
        /// The arguments of the command. `"{name}"` stands for an argument of the tool, always as
        /// one word; `"{name...}"` for a list, each text as a word. `"{name:read}"` and
        /// `"{name:write}"` are paths, which are checked before the command runs. A list of words
        /// is left out if the call lacks one of their arguments: `["--max-count", "{count}"]`, or
        /// `["-i", "{ignore_case?}"]` for an argument that is true or false.
        pub arguments: Vec<ArgumentPart>, Narrowing::Ignored;
        /// The argument whose text is the command's standard input. If empty, there is none.
        pub stdin: String, Narrowing::Ignored;
        /// What the tool of the command does, for models. If empty, what the component says.
        pub description: String, Narrowing::Ignored;
        /// What the arguments of the tool mean, by name.
        #[schemars(extend("examples" = [{ "pattern": "A regular expression" }]))]
        pub argument_descriptions: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// How far the plugin is trusted.
        pub trust: TrustLevel, Narrowing::Stricter(&["blocked", "quarantined", "verified", "trusted"]);
        /// Programs that the plugin may start, each with a glob for every argument, as in `"git
        /// {status,diff} **"`. A `**` at the end stands for any further arguments. The programs run
        /// in the sandbox of `[tools.shell]`.
        pub programs: Vec<WrittenProgram>, Narrowing::Subset;
        /// Whether the plugin may start other programs too, if they would be allowed as commands of
        /// `bash`: all rules about these hold, and where they ask, a person is asked. What the
        /// programs may use is what this table grants.
        pub judged_programs: bool, Narrowing::OnlyFalse;
        /// How many programs of the plugin may outlive a call, such as language servers, for each
        /// session. They have to be in `programs`: no rule sees what is written to them. They have
        /// no network, can only read, and end when they are idle for ten minutes.
        pub services: Bounded<0, 8> = Bounded::clamped(0), Narrowing::Smaller;
        /// Whether the plugin may run commands with a shell, and so any program.
        pub shell: bool, Narrowing::OnlyFalse;
        /// Whether programs of the plugin may reach the network. The plugin's own requests need
        /// `hosts`.
        pub network: bool, Narrowing::OnlyFalse;
        /// Variables of your environment that programs of the plugin get in addition to the usual
        /// ones, by name.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Hosts that the plugin's own requests may reach: `"api.example.com"`, `"*.example.com"`
        /// for all names below one, or `"https://example.com:8443"`. A table can also name the
        /// `methods`. For programs that it starts, see `network`.
        pub hosts: Vec<HostGrant>, Narrowing::Covered(HostGrant::covers_written);
        /// Private hosts that these requests may reach: `"localhost:3000"`, an address or a range,
        /// each with or without a port.
        pub allowed_private_hosts: Vec<WrittenPrivateHosts>, Narrowing::Covered(WrittenPrivateHosts::covers_written);
        /// Whether other hosts are reached with TLS only.
        pub https_only: bool = true, Narrowing::OnlyTrue;
        /// Hosts to which its requests may carry something that looks like a secret.
        pub credentials_to: Vec<WrittenHost>, Narrowing::Covered(WrittenHost::covers_written);
        /// Secrets that Toolhold adds to its requests, by names that you choose. The plugin sees
        /// none of them.
        pub secrets: BTreeMap<String, Secret>, Narrowing::Named(Secret::RULES);
        /// MiB of keys and values that the plugin may keep between its calls, in a store that no
        /// other plugin sees, with 4,096 keys for each MiB. 0: it keeps nothing.
        pub store_mib: Bounded<0, 65_536> = Bounded::clamped(0), Narrowing::Smaller;
        /// MiB of documents that the plugin may keep between its calls and search in, in an index
        /// that no other plugin sees, 6,250 for each MiB. 0: it keeps none.
        pub index_mib: Bounded<0, 65_536> = Bounded::clamped(0), Narrowing::Smaller;
        /// Processor seconds that the plugin's parts may use in one call: pure components that it
        /// brings along. They count apart from `cpu_secs`. 0: it may run none.
        pub parts_cpu_secs: Bounded<0, 86_400> = Bounded::clamped(0), Narrowing::Smaller;
        /// Tasks that the plugin may have: calls of its own tools at a later time, while
        /// `[tools.scheduler]` is enabled. 0: none.
        pub schedule_tasks: Bounded<0, 1000> = Bounded::clamped(0), Narrowing::Smaller;
        /// The table of `[providers]` whose model makes vectors of texts for the plugin. It needs
        /// an `/embeddings`, and gets whatever the plugin sends, without what looks like a secret.
        /// If empty, the plugin may send nothing.
        pub embeddings: String, Narrowing::OnlyEmpty;
        /// How long an instance of the plugin lasts. With `"session"`, a plugin that asks for it
        /// keeps its memory between the calls of one session, as long as nothing goes wrong.
        pub instance: InstanceLifetime, Narrowing::Stricter(&["call", "session"]);
        /// The plugin's own settings: its keys are whatever the plugin reads, and `toolhold plugin
        /// inspect` shows them if the plugin describes them. At most 64 KiB and 32 levels. A
        /// `toolhold.toml` in the working directory can't set them. They are no place for secrets:
        /// the plugin reads them.
        pub config: PluginSettings, Narrowing::Free;
        /// What one call of the plugin may use if it differs from `[tools.limits]`.
        pub limits: PluginLimits, Narrowing::Table(PluginLimits::RULES);
    }
}

impl Plugin {
    /// Keys in the plugin's store: one for each 256 bytes.
    pub fn store_keys(&self) -> u64 {
        self.store_mib.get() * 4096
    }

    /// Documents in the plugin's index: 100,000 in the 16 MiB that a plugin usually gets.
    pub fn index_documents(&self) -> u64 {
        self.index_mib.get() * 6_250
    }
}

/// SHA-256 in 64 hexadecimal digits, in lower case; or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sha256(String);

as_written!(Sha256);

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        let digits = written.strip_prefix("sha256:").unwrap_or(&written).to_ascii_lowercase();
        let is_valid = digits.is_empty()
            || digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_valid {
            return Err(serde::de::Error::custom(
                "takes a SHA-256 of 64 hexadecimal digits, as `toolhold plugin inspect` prints it",
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

/// The table of a plugin's settings. Its keys are the plugin's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PluginSettings(pub toml::Table);

inline_schema!(
    PluginSettings,
    "PluginSettings",
    json_schema!({ "type": "object", "additionalProperties": true })
);

/// A part of a command's arguments: a word, or words that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ArgumentPart {
    /// One word.
    Word(String),
    /// Words that are left out if the call lacks one of their arguments.
    Optional(Vec<String>),
}

/// How long an instance of a plugin lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum InstanceLifetime {
    /// For one call.
    #[default]
    Call,
    /// For the calls of one session.
    Session,
}

/// How far a plugin is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum TrustLevel {
    /// Like Toolhold's own plugins.
    Trusted,
    /// Like a plugin that you have checked.
    #[default]
    Verified,
    /// It may read, but neither act nor reach the network.
    Quarantined,
    /// It may do nothing.
    Blocked,
}
