//! The table of built-in plugins: where each is configured, and what it may use. The host's whole
//! knowledge about a plugin by its name is in this table.

/// A built-in plugin: where it is configured, and what it may use.
#[derive(Debug)]
pub struct BuiltInPlugin {
    /// Its name.
    pub name: &'static str,
    /// The table of the configuration that its files and commands come from.
    pub table: &'static str,
    /// The tables whose `enabled` switches it off.
    pub switches: &'static [&'static str],
    /// Things that the plugin may use.
    pub grants: &'static [BuiltInGrant],
    /// The origin of the claims in its answers. `None`: the subjects of a call determine the
    /// origin.
    pub claims: Option<&'static str>,
}

/// Something that a built-in plugin may use. The configuration says how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInGrant {
    /// Files and folders.
    Files,
    /// All commands of the shell.
    Commands,
    /// Compilers and linters, and a store for their last answers.
    Compilers,
    /// Language servers.
    LanguageServers,
    /// Requests to the network.
    Requests,
    /// An index of what is remembered.
    Memory,
    /// An index of the code.
    CodeIndex,
    /// Tasks that start later.
    Tasks,
}

/// The built-in plugins.
pub const BUILT_IN_PLUGINS: [BuiltInPlugin; 8] = [
    BuiltInPlugin {
        name: "file",
        table: "tools.file",
        switches: &["tools.file"],
        grants: &[BuiltInGrant::Files],
        claims: None,
    },
    BuiltInPlugin {
        name: "shell",
        table: "tools.shell",
        switches: &["tools.shell"],
        grants: &[BuiltInGrant::Commands],
        claims: None,
    },
    BuiltInPlugin {
        name: "web",
        table: "tools.web",
        switches: &["tools.web"],
        grants: &[BuiltInGrant::Requests],
        claims: None,
    },
    BuiltInPlugin {
        name: "filters",
        table: "tools.filters",
        switches: &[],
        grants: &[],
        claims: None,
    },
    BuiltInPlugin {
        name: "memory",
        table: "tools.memory",
        switches: &["tools.memory"],
        grants: &[BuiltInGrant::Memory],
        claims: Some("memory"),
    },
    BuiltInPlugin {
        name: "code",
        table: "tools.file",
        switches: &["index"],
        grants: &[BuiltInGrant::Files, BuiltInGrant::CodeIndex, BuiltInGrant::LanguageServers],
        claims: Some("code_search"),
    },
    BuiltInPlugin {
        name: "diagnostics",
        table: "tools.shell",
        // It starts what `bash` may.
        switches: &["tools.diagnostics", "tools.shell"],
        grants: &[BuiltInGrant::Compilers],
        claims: Some("diagnostics"),
    },
    BuiltInPlugin {
        name: "scheduler",
        table: "tools.scheduler",
        switches: &["tools.scheduler"],
        grants: &[BuiltInGrant::Tasks],
        claims: None,
    },
];

impl BuiltInPlugin {
    /// Returns the built-in plugin with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILT_IN_PLUGINS.iter().find(|plugin| plugin.name == name)
    }

    /// Checks whether the built-in plugin with a name may use something.
    pub fn has(name: &str, grant: BuiltInGrant) -> bool {
        Self::named(name).is_some_and(|plugin| plugin.grants.contains(&grant))
    }
}
