//! Refuses a component that was built for an unknown version of the contract.
//!
//! Released interfaces of a version never change, and an addition doesn't change the version's
//! number. A component must import and export interfaces in exactly this version, although the
//! linker accepts 0.1.1 for 0.1.0.

/// The version of the contract.
pub const CONTRACT_VERSION: &str = "0.1.0";

const PACKAGES: [&str; 2] = ["toolhold:tool", "toolhold:host"];

/// Returns the reason why a component with this import or export is refused because of its version.
/// Returns `None` if the version is known, or if the interface isn't a part of the contract.
pub fn version_refusal(interface: &str) -> Option<String> {
    let (name, version) = split(interface);
    let package = name.split_once('/').map_or(name, |(package, _)| package);
    if PACKAGES.contains(&package) && version != Some(CONTRACT_VERSION) {
        let version = version.unwrap_or("no version");
        return Some(format!(
            "the component was built for {package} {version}, but this Toolhold has \
             {CONTRACT_VERSION}: update Toolhold, or build the component with an SDK for \
             {CONTRACT_VERSION}"
        ));
    }
    let is_wasi = package.starts_with("wasi:");
    let is_version_0_3 = version.is_some_and(|version| version.starts_with("0.3."));
    if is_wasi && is_version_0_3 {
        return Some(format!(
            "the component was built for WASI 0.3 (`{interface}`), which this version of Toolhold \
             doesn't run; build the component for wasm32-wasip2"
        ));
    }
    None
}

/// Splits an interface into its name and its version, if it has one.
pub(crate) fn split(interface: &str) -> (&str, Option<&str>) {
    match interface.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (interface, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_of_the_contract_is_known() {
        for known in [
            "toolhold:tool/tools@0.1.0",
            "toolhold:tool/filter@0.1.0",
            "toolhold:host/log@0.1.0",
            "wasi:io/poll@0.2.12",
            "other:tool/tools@0.3.0",
            "toolhold:toolbox/tools@9.0.0",
        ] {
            assert_eq!(version_refusal(known), None, "{known}");
        }
        for (unknown, version) in [
            ("toolhold:tool/tools@0.3.0", "0.3.0"),
            ("toolhold:tool/tools@0.1.1", "0.1.1"),
            ("toolhold:tool/tools@0.2.0", "0.2.0"),
            ("toolhold:tool/tools@0.1.0-rc.1", "0.1.0-rc.1"),
            ("toolhold:host/log@1.0.0", "1.0.0"),
            ("toolhold:host/log", "no version"),
        ] {
            let refusal = version_refusal(unknown).expect("it is refused");
            for part in [version, "has 0.1.0", "update Toolhold"] {
                assert!(refusal.contains(part), "{refusal}");
            }
        }
        let refusal = version_refusal("wasi:cli/environment@0.3.0").expect("it is refused");
        assert!(refusal.contains("WASI 0.3") && refusal.contains("wasm32-wasip2"), "{refusal}");
    }
}
