//! The versions of the contract that this host knows.
//!
//! What a released version has never changes, and what is added to it keeps its number. A component
//! exports and imports interfaces in exactly a version that is known; the linker's idea that 0.1.1
//! is as good as 0.1.0 isn't asked.

/// The newest version.
pub const CURRENT: &str = "0.2.0";

/// The version before, which an adapter serves.
pub const FROZEN: &str = "0.1.0";

/// The packages of the contract.
const PACKAGES: [&str; 2] = ["berth:tool", "berth:host"];

/// Why a component that imports or exports this interface is refused because of its version. `None`
/// if the interface isn't of the contract, or its version is known.
pub fn version_refusal(interface: &str) -> Option<String> {
    let (name, version) = split(interface);
    let package = name.split_once('/').map_or(name, |(package, _)| package);
    if PACKAGES.contains(&package) && ![Some(CURRENT), Some(FROZEN)].contains(&version) {
        let version = version.map_or_else(|| "no version".to_owned(), str::to_owned);
        return Some(format!(
            "it was built for {package} {version}; this Berth knows {FROZEN} and {CURRENT}: update Berth, or build it with an SDK for one of these"
        ));
    }
    let is_wasi = package.starts_with("wasi:");
    if is_wasi && version.is_some_and(|version| version.starts_with("0.3.")) {
        return Some(format!(
            "it was built for WASI 0.3 (`{interface}`), which this version of Berth doesn't run; build it for wasm32-wasip2"
        ));
    }
    None
}

/// The name of an interface and its version.
pub(crate) fn split(interface: &str) -> (&str, Option<&str>) {
    interface.split_once('@').map_or((interface, None), |(name, version)| (name, Some(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_released_versions_of_the_contract_are_known() {
        for known in [
            "berth:tool/tools@0.1.0",
            "berth:tool/filter@0.2.0",
            "berth:host/log@0.1.0",
            "berth:host/config@0.2.0",
            "wasi:io/poll@0.2.12",
            "other:tool/tools@0.3.0",
            "berth:toolbox/tools@9.0.0",
        ] {
            assert_eq!(version_refusal(known), None, "{known}");
        }
        for (unknown, version) in [
            ("berth:tool/tools@0.3.0", "0.3.0"),
            ("berth:tool/tools@0.1.1", "0.1.1"),
            ("berth:tool/tools@0.2.0-rc.1", "0.2.0-rc.1"),
            ("berth:host/log@1.0.0", "1.0.0"),
            ("berth:host/log", "no version"),
        ] {
            let refusal = version_refusal(unknown).expect("it is refused");
            for part in [version, "0.1.0", "0.2.0", "update Berth"] {
                assert!(refusal.contains(part), "{refusal}");
            }
        }
        let refusal = version_refusal("wasi:cli/environment@0.3.0").expect("it is refused");
        assert!(refusal.contains("WASI 0.3") && refusal.contains("wasm32-wasip2"), "{refusal}");
    }
}
