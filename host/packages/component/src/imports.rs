//! Decides which interfaces a component may import, and names the line that grants a capability.

use toolhold_policy::OwnTable;

use crate::manifest::Manifest;
use crate::versions::{split, version_refusal};

/// The capabilities that a plugin is granted.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// Whether it may start processes.
    pub process: bool,
    /// Whether it may make requests.
    pub http: bool,
    /// Whether it may keep something between its calls.
    pub store: bool,
    /// Whether it may keep documents to search in.
    pub index: bool,
    /// Whether it may run its parts.
    pub parts: bool,
    /// Whether it may have services.
    pub service: bool,
    /// Whether it may make tasks.
    pub schedule: bool,
    /// Whether it may have vectors made.
    pub embeddings: bool,
    /// Whether the plugin is only inspected. Then what it asks for may be imported.
    pub inspect_only: bool,
    /// The table of the configuration that grants, for remedies.
    pub table: &'a OwnTable,
}

/// Interfaces that are always linked, by package and name, in any compatible version.
const BASE: [&str; 35] = [
    "toolhold:host/call",
    "toolhold:host/config",
    "toolhold:host/log",
    "toolhold:host/search",
    "toolhold:host/secrets",
    "toolhold:host/types",
    "toolhold:tool/types",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
    // Of a module, which gets the adapter to WASI 0.2. No component can import a name like this.
    "wasi_snapshot_preview1",
];

/// A capability that an operator grants.
struct Capability {
    /// Its name in manifests.
    name: &'static str,
    /// The interfaces that it admits.
    interfaces: &'static [&'static str],
    /// What the operator grants, and a line that grants it, for example.
    grants: &'static str,
    line: &'static str,
    is_granted: fn(&Granted<'_>) -> bool,
}

const CAPABILITIES: [Capability; 8] = [
    Capability {
        name: "process",
        interfaces: &["toolhold:host/process"],
        grants: "the programs that it may start, with their arguments",
        line: r#"programs = ["git {status,diff} **"]"#,
        is_granted: |granted| granted.process,
    },
    // There is no capability to serve requests.
    Capability {
        name: "http",
        interfaces: &["wasi:http/outgoing-handler", "wasi:http/types"],
        grants: "the hosts that it may reach",
        line: r#"hosts = ["api.example.com"]"#,
        is_granted: |granted| granted.http,
    },
    Capability {
        name: "store",
        interfaces: &["toolhold:host/store"],
        grants: "what it may keep between its calls, in MiB",
        line: "store_mib = 16",
        is_granted: |granted| granted.store,
    },
    Capability {
        name: "index",
        interfaces: &["toolhold:host/index"],
        grants: "what it may keep to search in between its calls, in MiB",
        line: "index_mib = 16",
        is_granted: |granted| granted.index,
    },
    Capability {
        name: "parts",
        interfaces: &["toolhold:host/parts"],
        grants: "the processor time of its parts, in seconds for each call",
        line: "parts_cpu_secs = 60",
        is_granted: |granted| granted.parts,
    },
    Capability {
        name: "service",
        interfaces: &["toolhold:host/service"],
        grants: "how many of its programs may outlive a call",
        line: "services = 1",
        is_granted: |granted| granted.service,
    },
    Capability {
        name: "schedule",
        interfaces: &["toolhold:host/schedule"],
        grants: "the number of tasks that it may have",
        line: "schedule_tasks = 16",
        is_granted: |granted| granted.schedule,
    },
    Capability {
        name: "embeddings",
        interfaces: &["toolhold:host/embeddings"],
        grants: "the table of [providers] whose model makes vectors for it",
        line: "embeddings = \"ollama\"",
        is_granted: |granted| granted.embeddings,
    },
];

/// A line of the plugin's table that grants a capability, for example. `None`: Toolhold doesn't
/// have that capability.
pub fn grant_line(capability: &str) -> Option<&'static str> {
    match capability {
        "files" | "search" => Some("allowed_paths = [\".\"]"),
        "session" => Some("instance = \"session\""),
        _ => CAPABILITIES.iter().find(|one| one.name == capability).map(|one| one.line),
    }
}

/// Why a component's import is refused. `None` if it is allowed. `manifest`: the requested
/// capabilities. `granted`: the granted ones.
pub fn refusal(import: &str, manifest: &Manifest, granted: &Granted<'_>) -> Option<String> {
    if let Some(refusal) = version_refusal(import) {
        return Some(refusal);
    }
    let (name, _) = split(import);
    if BASE.contains(&name) {
        return None;
    }
    let capability = CAPABILITIES.iter().find(|one| one.interfaces.contains(&name));
    if let Some(Capability { name: capability, grants, line, is_granted, .. }) = capability {
        let asks = manifest.asks_for(capability).is_some();
        if is_granted(granted) || granted.inspect_only && asks {
            return None;
        }
        let remedy = if asks {
            let name = format!("plugins.{}", manifest.name);
            let table = OwnTable { name, ..granted.table.clone() };
            format!("To grant {grants}, for example, {}", table.lines(line))
        } else {
            format!(
                "Its manifest doesn't ask for `{capability}`, so it can't be granted. The plugin's author has to add that."
            )
        };
        return Some(format!("it imports `{import}`, which is not granted. {remedy}"));
    }
    let remedy = match name.split_once('/').map_or(name, |(package, _)| package) {
        "wasi:http" => {
            "Plugins can make requests but can't serve them, so no line of the configuration grants it. Build the plugin without it."
        }
        "toolhold:host" => {
            "This version of Toolhold doesn't have that interface. A newer version may."
        }
        _ => {
            "Toolhold doesn't have that interface, so no line of the configuration grants it. Build the plugin without it."
        }
    };
    Some(format!("it imports `{import}`, which is not granted. {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(import: &str, capabilities: &str) -> Option<String> {
        let manifest = format!(
            r#"{{"manifest": 1, "name": "tester", "version": "1", "description": "d", "capabilities": [{capabilities}]}}"#
        );
        let manifest = serde_json::from_str(&manifest).expect("it is a manifest");
        let table = OwnTable::default();
        let granted = Granted {
            process: false,
            http: false,
            store: false,
            index: false,
            parts: false,
            service: false,
            schedule: false,
            embeddings: false,
            inspect_only: false,
            table: &table,
        };
        refusal(import, &manifest, &granted)
    }

    #[test]
    fn base_is_allowed_in_every_compatible_version() {
        for import in [
            "wasi:filesystem/types@0.2.0",
            "wasi:sockets/udp-create-socket@0.2.9",
            "toolhold:host/search@0.1.0",
            "toolhold:host/config@0.1.0",
            "toolhold:host/types@0.1.0",
            "toolhold:tool/types@0.1.0",
        ] {
            assert_eq!(refusal_of(import, ""), None, "{import}");
        }
    }

    #[test]
    fn refusal_names_the_import_and_the_remedy() {
        let text = refusal_of("wasi:http/incoming-handler@0.2.3", "").expect("is refused");
        assert!(
            text.contains("`wasi:http/incoming-handler@0.2.3`") && text.contains("no line"),
            "{text}"
        );
        let text = refusal_of("wasi:http/outgoing-handler@0.2.3", "").expect("is refused");
        assert!(text.contains("doesn't ask for `http`"), "{text}");
        let text = refusal_of("wasi:http/types@0.2.3", r#"{"name": "http", "reason": "r"}"#)
            .expect("is refused");
        assert!(text.contains("[plugins.tester]\nhosts = "), "{text}");
        assert!(refusal_of("evil:host/run", "").expect("is refused").contains("`evil:host/run`"));
        for (interface, capability, line) in [
            ("process", "process", "programs"),
            ("store", "store", "store_mib"),
            ("index", "index", "index_mib"),
            ("parts", "parts", "parts_cpu_secs"),
            ("embeddings", "embeddings", "embeddings"),
        ] {
            let import = format!("toolhold:host/{interface}@0.1.0");
            let text = refusal_of(&import, "").expect("is refused");
            assert!(text.contains(&format!("doesn't ask for `{capability}`")), "{text}");
            let asks = format!(r#"{{"name": "{capability}", "reason": "r"}}"#);
            let text = refusal_of(&import, &asks).expect("is refused");
            assert!(text.contains(&format!("[plugins.tester]\n{line} = ")), "{text}");
        }
        for missing in ["toolhold:host/telepathy@0.1.0", "toolhold:host/store@0.1.0"] {
            let text = refusal_of(missing, "").expect("is refused");
            assert!(text.contains("not granted") && text.contains(missing), "{text}");
        }
    }
}
