//! Reads the documentation inside a component: the custom section `package-docs`, which the tools
//! of WIT write. It is in the component itself, or in a section `component-type…` of a module
//! inside it, which describes the world that the module was built for.

use serde_json::Value;
use wasmparser::{Parser, Payload};

/// The custom section with the documentation: a byte for the version, and JSON.
const SECTION: &str = "package-docs";

/// The versions of its format that are known, which differ in nothing that is read here.
const VERSIONS: [u8; 2] = [0, 1];

/// The beginning of the names of sections that describe a module's world.
const WORLD: &str = "component-type";

/// Most bytes of one such section, and most sections that are read.
const MAX_SECTION: usize = 256 * 1024;
const MAX_SECTIONS: usize = 8;

/// The documentation of a component and of its functions.
#[derive(Debug, Default)]
pub struct Docs(Vec<Value>);

impl Docs {
    /// Reads the documentation of a component. A section that is damaged or too large is left out.
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
                let inside = Parser::new(0).parse_all(section.data()).map_while(Result::ok);
                all.extend(inside.filter_map(|payload| match payload {
                    Payload::CustomSection(section) if section.name() == SECTION => {
                        parse(section.data())
                    }
                    _ => None,
                }));
            }
            if all.len() >= MAX_SECTIONS {
                break;
            }
        }
        all.truncate(MAX_SECTIONS);
        Self(all)
    }

    /// The documentation of the package, or else of its world.
    pub fn package(&self) -> Option<&str> {
        let package = self.0.iter().find_map(|docs| docs.get("docs")?.as_str());
        package.or_else(|| self.worlds().find_map(|world| world.get("docs")?.as_str()))
    }

    /// The documentation of a function. `interface`: the full name of its interface. `None`: the
    /// function belongs to the world itself.
    pub(crate) fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let Some(interface) = interface else {
            let places = ["func_exports", "funcs"];
            return self.worlds().find_map(|world| {
                places.iter().find_map(|place| said(world.get(place)?, function))
            });
        };
        let name = interface.split_once('@').map_or(interface, |(name, _)| name);
        let Some((_, name)) = name.rsplit_once('/') else {
            let places = ["interface_exports", "interfaces"];
            return self.worlds().find_map(|world| {
                places
                    .iter()
                    .find_map(|place| said(world.get(place)?.get(name)?.get("funcs")?, function))
            });
        };
        self.0
            .iter()
            .find_map(|docs| said(docs.get("interfaces")?.get(name)?.get("funcs")?, function))
    }

    fn worlds(&self) -> impl Iterator<Item = &Value> {
        self.0
            .iter()
            .filter_map(|docs| docs.get("worlds")?.as_object())
            .flat_map(|all| all.values())
    }
}

/// A function's documentation: a text, or an object with it.
fn said<'d>(functions: &'d Value, name: &str) -> Option<&'d str> {
    let entry = functions.get(name)?;
    entry.as_str().or_else(|| entry.get("docs")?.as_str()).filter(|text| !text.trim().is_empty())
}

fn parse(section: &[u8]) -> Option<Value> {
    let (version, json) = section.split_first()?;
    VERSIONS.contains(version).then(|| serde_json::from_slice(json).ok()).flatten()
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
