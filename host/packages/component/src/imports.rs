//! Decides which interfaces a component may import.

use toolhold_policy::OwnTable;

use crate::capability::{Capability, CapabilityFacts};
use crate::manifest::Manifest;
use crate::versions::{split, version_refusal};

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
    // Modules inside a component import this name for WASI 0.1. A component itself can't import it.
    "wasi_snapshot_preview1",
];

/// Returns the reason why an import of a component is refused, or `None` if the import is allowed.
/// `manifest` has the requested capabilities. The reason proposes a change of `table`, the
/// configuration table that grants capabilities. `is_admitted` returns whether the component may
/// import the interfaces of a capability.
pub fn refusal(
    import: &str,
    manifest: &Manifest,
    table: &OwnTable,
    is_admitted: &dyn Fn(Capability) -> bool,
) -> Option<String> {
    if let Some(refusal) = version_refusal(import) {
        return Some(refusal);
    }
    let (name, _) = split(import);
    if BASE.contains(&name) {
        return None;
    }
    let capability = Capability::ALL.into_iter().find(|capability| capability.admits(name));
    let remedy = match capability {
        Some(capability) if is_admitted(capability) => return None,
        Some(capability) => capability_remedy(capability, manifest, table),
        None => unknown_remedy(name).to_owned(),
    };
    Some(format!("the component imports `{import}`, which is not granted. {remedy}"))
}

/// Returns the remedy for an import that needs a capability: a request in the plugin's manifest, or
/// an example of a grant in the configuration.
fn capability_remedy(capability: Capability, manifest: &Manifest, table: &OwnTable) -> String {
    let CapabilityFacts { name, granted, line: example_line, .. } = capability.facts();
    if manifest.asks_for(capability).is_none() {
        return format!(
            "The plugin's manifest doesn't ask for `{name}`, so `{name}` can't be granted. The \
             plugin's author must add the request."
        );
    }
    let plugin_table = OwnTable { name: format!("plugins.{}", manifest.name), ..table.clone() };
    format!("To grant {granted}, for example, {}", plugin_table.lines(example_line))
}

/// Returns the remedy for an import that no capability allows.
fn unknown_remedy(interface: &str) -> &'static str {
    let package = interface.split_once('/').map_or(interface, |(package, _)| package);
    match package {
        "wasi:http" => {
            "Plugins can send requests but can't serve them, so no configuration key grants this \
             import. Build the plugin without the import."
        }
        "toolhold:host" => {
            "This version of Toolhold doesn't have this interface. A newer version may have the \
             interface."
        }
        _ => {
            "Toolhold doesn't have this interface, so no configuration key grants the import. \
             Build the plugin without the import."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(import: &str, capabilities: &str) -> Option<String> {
        let manifest = format!(
            r#"{{"manifest": 1, "name": "tester", "version": "1", "description": "d", "capabilities": [{capabilities}]}}"#
        );
        let manifest = serde_json::from_str(&manifest).expect("it is a manifest");
        refusal(import, &manifest, &OwnTable::default(), &|_| false)
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
            text.contains("`wasi:http/incoming-handler@0.2.3`")
                && text.contains("no configuration key"),
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
