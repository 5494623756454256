//! Decides which interfaces a component may import.

use berth_policy::OwnTable;

use crate::manifest::Manifest;
use crate::versions::{FROZEN, split, version_refusal};

/// The capabilities that a plugin is granted.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// Whether it may start processes.
    pub process: bool,
    /// Whether it may make requests.
    pub http: bool,
    /// Whether the plugin is only inspected. Then what it asks for may be imported.
    pub inspect_only: bool,
    /// The table of the configuration that grants, for remedies.
    pub table: &'a OwnTable,
}

/// Interfaces that are always linked, by package and name, in any compatible version.
const BASE: [&str; 34] = [
    "berth:host/call",
    "berth:host/config",
    "berth:host/log",
    "berth:host/search",
    "berth:host/secrets",
    "berth:host/types",
    "berth:tool/types",
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
];

/// Interfaces that the frozen version of the contract doesn't have.
const NEW: [&str; 2] = ["berth:host/config", "berth:host/types"];

/// The capability to start programs.
const PROCESS: &str = "berth:host/process";

/// The capability to make requests. There is no capability to serve them.
const HTTP: [&str; 2] = ["wasi:http/outgoing-handler", "wasi:http/types"];

/// Why a component's import is refused. `None` if it is allowed. `manifest`: the requested
/// capabilities. `granted`: the granted ones.
pub fn refusal(import: &str, manifest: &Manifest, granted: &Granted<'_>) -> Option<String> {
    if let Some(refusal) = version_refusal(import) {
        return Some(refusal);
    }
    let (name, version) = split(import);
    let exists = !(version == Some(FROZEN) && NEW.contains(&name));
    let (process, http) = (name == PROCESS, HTTP.contains(&name));
    let inspected = |capability| granted.inspect_only && manifest.asks_for(capability).is_some();
    let is_granted = process && (granted.process || inspected("process"))
        || http && (granted.http || inspected("http"));
    if exists && BASE.contains(&name) || is_granted {
        return None;
    }
    if process || http {
        let plugin = &manifest.name;
        let (capability, what, line) = match process {
            true => (
                "process",
                "the programs that it may start, with their arguments",
                r#"programs = ["git {status,diff} **"]"#,
            ),
            false => ("http", "the hosts that it may reach", r#"hosts = ["api.example.com"]"#),
        };
        let remedy = match manifest.asks_for(capability) {
            None => {
                format!(
                    "Its manifest doesn't ask for `{capability}`, so it can't be granted. The plugin's author has to add that."
                )
            }
            Some(_) => {
                let table = OwnTable { name: format!("plugins.{plugin}"), ..granted.table.clone() };
                format!("To grant {what}, for example, {}", table.lines(line))
            }
        };
        return Some(format!("it imports `{import}`, which is not granted. {remedy}"));
    }
    let remedy = match name.split_once('/').map_or(name, |(package, _)| package) {
        "wasi:http" => {
            "Plugins can make requests but can't serve them, so no line of the configuration grants it. Build the plugin without it."
        }
        "berth:host" => "This version of Berth doesn't have that interface. A newer version may.",
        _ => {
            "Berth doesn't have that interface, so no line of the configuration grants it. Build the plugin without it."
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
        let granted = Granted { process: false, http: false, inspect_only: false, table: &table };
        refusal(import, &manifest, &granted)
    }

    #[test]
    fn base_is_allowed_in_every_compatible_version() {
        for import in [
            "wasi:filesystem/types@0.2.0",
            "wasi:sockets/udp-create-socket@0.2.9",
            "berth:host/search@0.1.0",
            "berth:host/search@0.2.0",
            "berth:host/config@0.2.0",
            "berth:host/types@0.2.0",
            "berth:tool/types@0.1.0",
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
        for version in ["0.1.0", "0.2.0"] {
            let process = format!("berth:host/process@{version}");
            let text = refusal_of(&process, "").expect("is refused");
            assert!(text.contains("doesn't ask for `process`"), "{text}");
            let asks = r#"{"name": "process", "reason": "r"}"#;
            let text = refusal_of(&process, asks).expect("is refused");
            assert!(text.contains("[plugins.tester]\nprograms = "), "{text}");
        }
        for missing in ["berth:host/config@0.1.0", "berth:host/store@0.2.0"] {
            let text = refusal_of(missing, "").expect("is refused");
            assert!(text.contains("not granted") && text.contains(missing), "{text}");
        }
    }
}
