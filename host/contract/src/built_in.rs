//! The table of built-in plugins. The host knows plugins by name only in this table.

/// A built-in plugin: the tables that configure it, and its grants.
#[derive(Debug)]
pub struct BuiltInPlugin {
    /// The name of the plugin.
    pub name: &'static str,
    /// The configuration table that grants the plugin's files and commands.
    pub table: &'static str,
    /// The configuration tables with an `enabled` key. Each of them can disable the plugin.
    pub switches: &'static [&'static str],
    /// Resources that the plugin may use.
    pub grants: &'static [BuiltInGrant],
    /// The origin of statements in the plugin's answers. With `None`, the subjects of a call
    /// determine the origin.
    pub claims: Option<&'static str>,
}

/// A resource that a built-in plugin may use. The configuration sets its limits.
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
    /// A search index of stored notes.
    Memory,
    /// A search index of source code.
    CodeIndex,
    /// Scheduled tasks.
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
        // A user who disables the shell must not get a tool that starts the same programs.
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

    /// Checks whether the built-in plugin with this name has the grant.
    pub fn has(name: &str, grant: BuiltInGrant) -> bool {
        Self::named(name).is_some_and(|plugin| plugin.grants.contains(&grant))
    }
}
