//! Reads the documentation inside a component: the custom section `package-docs`, which WIT tools
//! write. The section is in the component itself, or in a section `component-type…` of a module
//! inside the component. That section describes the world for which the module was built.

use serde_json::Value;
use wasmparser::{Parser, Payload};

/// The custom section with the documentation. It contains a version byte and JSON.
const SECTION: &str = "package-docs";

/// The known versions of the format. The parts that are read are the same in all of them.
const VERSIONS: [u8; 2] = [0, 1];

/// The beginning of the names of sections that describe a module's world.
const WORLD: &str = "component-type";

/// Most bytes of one documentation section, and most sections that are read.
const MAX_SECTION: usize = 256 * 1024;
const MAX_SECTIONS: usize = 8;

/// The documentation of a component and of its functions.
#[derive(Debug, Default)]
pub struct Docs(Vec<Value>);

impl Docs {
    /// Reads the documentation of a component. A section that is damaged or too large is ignored.
    pub fn read(wasm: &[u8]) -> Self {
        let mut all = Vec::new();
        for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
            let Payload::CustomSection(section) = payload else { continue };
            if section.data().len() > MAX_SECTION {
                continue;
            }
            if section.name() == SECTION {
                all.extend(parse(section.data()));
            } else if section.name().starts_with(WORLD) {
                for payload in Parser::new(0).parse_all(section.data()).map_while(Result::ok) {
                    if let Payload::CustomSection(inner) = payload
                        && inner.name() == SECTION
                    {
                        all.extend(parse(inner.data()));
                    }
                }
            }
            if all.len() >= MAX_SECTIONS {
                break;
            }
        }
        all.truncate(MAX_SECTIONS);
        Self(all)
    }

    /// Returns the documentation of the package, or else of its world.
    pub fn package(&self) -> Option<&str> {
        let package = self.0.iter().find_map(|docs| docs.get("docs")?.as_str());
        package.or_else(|| self.worlds().find_map(|world| world.get("docs")?.as_str()))
    }

    /// Returns the documentation of a function. `interface` is the full name of its interface, or
    /// `None` if the function belongs to the world itself.
    pub(crate) fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let Some(interface) = interface else {
            return self
                .world_entries(["func_exports", "funcs"])
                .find_map(|functions| find_docs(functions, function));
        };
        let unversioned = interface.split_once('@').map_or(interface, |(name, _)| name);
        match unversioned.rsplit_once('/') {
            Some((_, name)) => self
                .0
                .iter()
                .filter_map(|docs| docs.get("interfaces"))
                .find_map(|interfaces| find_interface_docs(interfaces, name, function)),
            // An interface without a package belongs to the world.
            None => self
                .world_entries(["interface_exports", "interfaces"])
                .find_map(|interfaces| find_interface_docs(interfaces, unversioned, function)),
        }
    }

    /// Returns the entries with these keys in all worlds.
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

/// Finds a function's documentation, which is a string, or an object with a string. Returns `None`
/// if the string is blank.
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

/// Parses a section. Returns `None` if its version is unknown or it isn't JSON.
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
