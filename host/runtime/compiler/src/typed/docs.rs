//! Reads the documentation in a component: the section `package-docs`, which WIT tools write. The
//! section is in the component, or in a section `component-type…` of a module, which describes the
//! module's world.

use serde_json::Value;
use wasmparser::{Parser, Payload};

/// The section with the documentation: a version byte, and JSON.
const SECTION: &str = "package-docs";

/// Known versions of the format. They differ only in parts that aren't used.
const VERSIONS: [u8; 2] = [0, 1];

/// Prefix of sections that describe a module's world.
const WORLD: &str = "component-type";

/// Largest section in bytes, and most sections. Further and larger sections are ignored.
const MAX_SECTION: usize = 256 * 1024;
const MAX_SECTIONS: usize = 8;

/// The documentation of a component and its functions.
#[derive(Debug, Default)]
pub struct Docs(Vec<Value>);

impl Docs {
    /// Reads the documentation. Ignores invalid sections, and everything after damaged bytes.
    pub fn read(wasm: &[u8]) -> Self {
        let mut docs = Vec::new();
        for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
            let Payload::CustomSection(section) = payload else { continue };
            if section.data().len() > MAX_SECTION {
                continue;
            }
            if section.name() == SECTION {
                docs.extend(parse(section.data()));
            } else if section.name().starts_with(WORLD) {
                // The section contains a component, which has the documentation.
                for payload in Parser::new(0).parse_all(section.data()).map_while(Result::ok) {
                    let Payload::CustomSection(inner) = payload else { continue };
                    if inner.name() == SECTION {
                        docs.extend(parse(inner.data()));
                    }
                }
            }
            if docs.len() >= MAX_SECTIONS {
                break;
            }
        }
        docs.truncate(MAX_SECTIONS);
        Self(docs)
    }

    /// Returns the documentation of the package, or else of the world.
    pub fn package(&self) -> Option<&str> {
        let package = self.0.iter().find_map(|docs| docs.get("docs")?.as_str());
        package.or_else(|| self.worlds().find_map(|world| world.get("docs")?.as_str()))
    }

    /// Returns the documentation of a function. `interface` is `None` for a function of the world.
    pub(crate) fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let Some(interface) = interface else {
            let mut entries = self.world_entries(["func_exports", "funcs"]);
            return entries.find_map(|functions| find_docs(functions, function));
        };
        let unversioned = interface.split_once('@').map_or(interface, |(name, _)| name);
        match unversioned.rsplit_once('/') {
            // The documentation lists the interfaces of the package without the package's name.
            Some((_package, name)) => {
                let mut packages = self.0.iter().filter_map(|docs| docs.get("interfaces"));
                packages.find_map(|interfaces| find_interface_docs(interfaces, name, function))
            }
            // A name without a package is an interface of the world.
            None => {
                let mut entries = self.world_entries(["interface_exports", "interfaces"]);
                entries
                    .find_map(|interfaces| find_interface_docs(interfaces, unversioned, function))
            }
        }
    }

    fn world_entries(&self, keys: [&'static str; 2]) -> impl Iterator<Item = &Value> {
        self.worlds().flat_map(move |world| keys.into_iter().filter_map(move |key| world.get(key)))
    }

    fn worlds(&self) -> impl Iterator<Item = &Value> {
        self.0
            .iter()
            .filter_map(|docs| docs.get("worlds")?.as_object())
            .flat_map(|all| all.values())
    }
}

fn find_interface_docs<'d>(
    interfaces: &'d Value,
    interface: &str,
    function: &str,
) -> Option<&'d str> {
    let functions = interfaces.get(interface)?.get("funcs")?;
    find_docs(functions, function)
}

/// Finds the documentation of a function. The entry of a function is either a string, or an object
/// with the string `docs`. Returns `None` if the text is blank.
fn find_docs<'d>(functions: &'d Value, name: &str) -> Option<&'d str> {
    let entry = functions.get(name)?;
    let text = match entry.as_str() {
        Some(text) => text,
        None => entry.get("docs")?.as_str()?,
    };
    if text.trim().is_empty() {
        return None;
    }
    Some(text)
}

/// Parses a section. Returns `None` if it is invalid or of an unknown version.
fn parse(section: &[u8]) -> Option<Value> {
    let (version, json) = section.split_first()?;
    if !VERSIONS.contains(version) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docs() -> Docs {
        Docs(vec![json!({
            "docs": "All about units",
            "worlds": { "w": {
                "docs": "A world",
                "func_exports": { "top": { "docs": "At the top" } },
                "interface_exports": { "own": { "funcs": { "inline": { "docs": "Inline" } } } },
            }},
            "interfaces": { "convert": { "funcs": {
                "to-feet": { "docs": "Converts metres" }, "old": "As version 0 had it", "empty": " ",
            }}},
        })])
    }

    #[test]
    fn documentation_is_found_by_name() {
        let docs = docs();
        assert_eq!(docs.package(), Some("All about units"));
        for (interface, function, text) in [
            (Some("acme:units/convert@1.2.0"), "to-feet", Some("Converts metres")),
            (Some("acme:units/convert"), "old", Some("As version 0 had it")),
            (Some("acme:units/convert"), "empty", None),
            (Some("acme:units/other"), "to-feet", None),
            (Some("own"), "inline", Some("Inline")),
            (None, "top", Some("At the top")),
            (None, "to-feet", None),
        ] {
            assert_eq!(docs.function(interface, function), text, "{interface:?} {function}");
        }
    }

    #[test]
    fn damaged_and_deep_documentation_is_left_out() {
        for section in [&b""[..], b"\x01", b"\x01{", b"\x02{}", b"{}"] {
            assert!(parse(section).is_none(), "{section:?}");
        }
        let deep = format!("\u{1}{}{}", r#"{"docs":"#.repeat(100_000), "}".repeat(100_000));
        assert!(parse(deep.as_bytes()).is_none());
        assert!(parse(b"\x01{\"docs\":\"yes\"}").is_some());
    }
}
