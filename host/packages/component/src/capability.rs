//! The capabilities of plugins, with their imports, grant keys and texts.

use crate::versions::split;

macro_rules! capabilities {
    ($($(#[$doc:meta])* $capability:ident { $($fact:ident: $value:expr,)* })*) => {
        /// A capability that a plugin requests in its manifest. People see the capabilities in this
        /// order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Capability {
            $($(#[$doc])* $capability,)*
        }

        impl Capability {
            /// All capabilities.
            pub const ALL: [Self; [$(Self::$capability),*].len()] = [$(Self::$capability),*];

            /// The facts of this capability.
            pub const fn facts(self) -> CapabilityFacts {
                match self {
                    $(Self::$capability => CapabilityFacts { $($fact: $value,)* },)*
                }
            }
        }
    };
}

capabilities! {
    /// Files of the granted directories.
    Files {
        name: "files",
        interfaces: &["wasi:filesystem/types@0.2.6", "wasi:filesystem/preopens@0.2.6"],
        unasked: Unasked::Usual,
        noun: "files",
        ability: "read and change files in granted directories",
        granted: "directories",
        line: r#"allowed_paths = ["."]"#,
        keys: &["allowed_paths"],
    }
    // The directories that are granted for `files` are also granted for `search`.
    /// The host's search in the granted directories.
    Search {
        name: "search",
        interfaces: &["toolhold:host/search@0.1.0"],
        unasked: Unasked::Allowed,
        noun: "search in files",
        ability: "search granted directories",
        granted: "directories",
        line: r#"allowed_paths = ["."]"#,
        keys: &[],
    }
    // A plugin can only send requests. No capability exists for serving requests.
    /// Requests to the network.
    Http {
        name: "http",
        interfaces: &["wasi:http/outgoing-handler@0.2.6", "wasi:http/types@0.2.6"],
        unasked: Unasked::Refused,
        noun: "network requests",
        ability: "send requests to granted hosts",
        granted: "hosts",
        line: r#"hosts = ["api.example.com"]"#,
        keys: &["hosts", "allowed_private_hosts", "https_only", "credentials_to"],
    }
    /// Programs that run during a call.
    Process {
        name: "process",
        interfaces: &["toolhold:host/process@0.1.0"],
        unasked: Unasked::Refused,
        noun: "programs",
        ability: "start granted programs in the sandbox",
        granted: "programs with their arguments",
        line: r#"programs = ["git {status,diff} **"]"#,
        keys: &["programs", "judged_programs", "shell", "network", "env"],
    }
    /// Programs that run longer than a call.
    Service {
        name: "service",
        interfaces: &["toolhold:host/service@0.1.0"],
        unasked: Unasked::Refused,
        noun: "background programs",
        ability: "keep programs running after a call",
        granted: "the number of programs that may run after a call",
        line: "services = 1",
        keys: &["services"],
    }
    /// Keys and values that the plugin stores.
    Store {
        name: "store",
        interfaces: &["toolhold:host/store@0.1.0"],
        unasked: Unasked::Refused,
        noun: "storage",
        ability: "store data between calls",
        granted: "storage between calls, in MiB",
        line: "store_mib = 16",
        keys: &["store_mib"],
    }
    /// Documents that the plugin stores and searches.
    Index {
        name: "index",
        interfaces: &["toolhold:host/index@0.1.0"],
        unasked: Unasked::Refused,
        noun: "a search index",
        ability: "store and search its own documents",
        granted: "storage for the search index, in MiB",
        line: "index_mib = 16",
        keys: &["index_mib"],
    }
    /// Vectors of texts.
    Embeddings {
        name: "embeddings",
        interfaces: &["toolhold:host/embeddings@0.1.0"],
        unasked: Unasked::Refused,
        noun: "an embedding model",
        ability: "send strings to an embedding model",
        granted: "an embedding model, by its table in [providers]",
        line: r#"embeddings = "ollama""#,
        keys: &["embeddings"],
    }
    /// Pure components of the plugin.
    Parts {
        name: "parts",
        interfaces: &["toolhold:host/parts@0.1.0"],
        unasked: Unasked::Refused,
        noun: "its own modules",
        ability: "run its own modules",
        granted: "CPU time for the plugin's modules, in seconds per call",
        line: "parts_cpu_secs = 60",
        keys: &["parts_cpu_secs"],
    }
    /// Later calls of the plugin's own tools.
    Schedule {
        name: "schedule",
        interfaces: &["toolhold:host/schedule@0.1.0"],
        unasked: Unasked::Refused,
        noun: "scheduled tasks",
        ability: "schedule calls of its own tools",
        granted: "a number of scheduled tasks",
        line: "schedule_tasks = 16",
        keys: &["schedule_tasks"],
    }
    // This capability is about the lifetime of the instance, so it has no imports.
    /// An instance for each session.
    Session {
        name: "session",
        interfaces: &[],
        unasked: Unasked::Allowed,
        noun: "session memory",
        ability: "keep its memory between the calls of a session",
        granted: "an instance that lasts for the session",
        line: r#"instance = "session""#,
        keys: &["instance"],
    }
}

/// The facts of a capability. They are the same for every plugin.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityFacts {
    /// The capability's name in manifests.
    pub name: &'static str,
    /// The interfaces that a plugin imports for the capability, with their versions.
    pub interfaces: &'static [&'static str],
    /// The treatment of a component that imports the interfaces without requesting the capability.
    pub unasked: Unasked,
    /// A word or two for the capability, for lists.
    pub noun: &'static str,
    /// The use of the capability, in words that follow "asks to".
    pub ability: &'static str,
    /// The thing that the operator grants, for remedies.
    pub granted: &'static str,
    /// An example of a line that grants the capability in the plugin's table.
    pub line: &'static str,
    /// The keys of the plugin's table that grant the capability. A ceiling limits these keys.
    pub keys: &'static [&'static str],
}

/// The treatment of a component that imports an interface without requesting its capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// The host doesn't load the component.
    Refused,
    /// The host loads the component. The functions of the interface refuse every use.
    Allowed,
    /// Like `Allowed`, but the import is no reason for a notice, because language runtimes import
    /// the interface even if the plugin's code doesn't use it.
    Usual,
}

impl Capability {
    /// Returns the capability `name`, or `None` if this version of Toolhold doesn't have it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name() == name)
    }

    /// Returns the capability's name in manifests.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Checks whether an interface belongs to the capability. `interface` is a name without a
    /// version.
    pub fn admits(self, interface: &str) -> bool {
        self.facts().interfaces.iter().any(|versioned| split(versioned).0 == interface)
    }
}

// A ceiling limits a capability by its keys, so each capability needs keys. `search` uses the keys
// of `files`.
const _: () = {
    let mut index = 0;
    while index < Capability::ALL.len() {
        let capability = Capability::ALL[index];
        let has_keys = !capability.facts().keys.is_empty();
        assert!(has_keys || matches!(capability, Capability::Search), "a capability has no keys");
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_each_capability_once() {
        for capability in Capability::ALL {
            assert_eq!(Capability::named(capability.name()), Some(capability));
            let line = capability.facts().line;
            assert!(
                capability == Capability::Search
                    || capability.facts().keys.iter().any(|key| line.starts_with(key)),
                "{line} is none of the keys of {capability:?}"
            );
        }
    }
}
