//! `toolhold plugin pack`: writes a manifest into a component, and compares manifest and imports.

use toolhold_component::{Capability, CapabilityFacts, Manifest, Unasked};
use wasmparser::{Parser, Payload};

use crate::manifest::Authored;
use crate::module;
use crate::pack_error::{PackError, describe_unasked, how_to_ask};
use crate::section::with_section;

pub(crate) struct Packed {
    pub(crate) component: Vec<u8>,
    /// Notices for the author, which don't keep a host from loading the component.
    pub(crate) notices: Vec<String>,
}

/// Writes the manifest into a component, and replaces an earlier manifest. Makes a component from a
/// core module first. Refuses a component that imports more than the manifest requests, because no
/// host loads this component.
pub(crate) fn pack(wasm: &[u8], authored: &Authored) -> Result<Packed, PackError> {
    let component = if Parser::is_core_wasm(wasm) { &module::to_component(wasm)? } else { wasm };
    let component = with_section(component, authored.json().as_bytes())?;
    let notices = compare(&component)?;
    Ok(Packed { component, notices })
}

/// Compares the requests in a component's manifest with the component's imports. Returns notices
/// for the author. Fails if an import isn't requested.
pub(crate) fn compare(component: &[u8]) -> Result<Vec<String>, PackError> {
    let manifest = Manifest::read(component)?;
    let imports = imports(component)?;
    let mut notices = Vec::new();
    for capability in Capability::ALL {
        let CapabilityFacts { name, interfaces, unasked, .. } = capability.facts();
        let import = imports.iter().find(|import| shows_use(capability, import));
        match (manifest.asks_for(capability), import) {
            (Some(_), None) => {
                if let Some(interface) = interfaces.first() {
                    notices.push(format!(
                        "the manifest asks for `{name}`, but the component imports no {}: use the \
                         capability, or remove the request",
                        without_version(interface)
                    ));
                }
            }
            (None, Some(import)) => match unasked {
                Unasked::Usual => {}
                Unasked::Refused => {
                    return Err(PackError::Unasked { import: import.clone(), capability: name });
                }
                Unasked::Allowed => {
                    let import = describe_unasked(import, name);
                    notices.push(format!("{import}. {}", how_to_ask(name)));
                }
            },
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    notices.extend(note_unknown_capabilities(&manifest));
    Ok(notices)
}

fn note_unknown_capabilities(manifest: &Manifest) -> Vec<String> {
    let known = Capability::ALL.map(Capability::name).join(", ");
    let mut notices = Vec::new();
    for request in &manifest.capabilities {
        if Capability::named(&request.name).is_none() {
            notices.push(format!(
                "the manifest asks for `{}`, which this version of Toolhold doesn't have; the \
                 capabilities are: {known}",
                request.name
            ));
        }
    }
    notices
}

/// Checks whether a component with this import uses a capability.
fn shows_use(capability: Capability, import: &str) -> bool {
    let interface = without_version(import);
    match capability {
        // Programs and searches need the paths that `files` grants, so their imports also show a
        // use of `files`.
        Capability::Files => {
            Capability::Files.admits(interface)
                || Capability::Process.admits(interface)
                || Capability::Search.admits(interface)
        }
        _ => capability.admits(interface),
    }
}

fn without_version(interface: &str) -> &str {
    interface.split('@').next().unwrap_or_default()
}

fn imports(component: &[u8]) -> Result<Vec<String>, PackError> {
    Ok(imports_with_ends(component)?.into_iter().map(|(name, _)| name).collect())
}

/// Replaces the prefix of imports in place. Both prefixes must have the same length.
pub(crate) fn rename_imports(component: &mut [u8], from: &str, to: &str) -> Result<(), PackError> {
    for (name, end) in imports_with_ends(component)? {
        if name.starts_with(from) {
            let start = end - name.len();
            component[start..start + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    Ok(())
}

/// Returns the names of the imports, each with the position of its end in `component`.
fn imports_with_ends(component: &[u8]) -> Result<Vec<(String, usize)>, PackError> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(PackError::Damaged)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            // Deeper imports belong to nested components.
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section.into_iter_with_offsets() {
                    let (start, import) = import.map_err(PackError::Damaged)?;
                    let name = import.name.name;
                    let end = end_of_name(component, start, name)
                        .ok_or_else(|| PackError::UnknownImport(name.to_owned()))?;
                    names.push((name.to_owned(), end));
                }
            }
            _ => {}
        }
    }
    Ok(names)
}

/// Returns the end of an import's name. `import` is the position of the import. Returns `None` if
/// the name isn't at its usual place.
fn end_of_name(component: &[u8], import: usize, name: &str) -> Option<usize> {
    // Before the name are the kind, and the name's length as an LEB128 number of 7 bits per byte.
    let kind_size = 1;
    let length_size = if name.len() < 1 << 7 { 1 } else { 2 };
    let end = import + kind_size + length_size + name.len();
    if component.get(end - name.len()..end)? == name.as_bytes() { Some(end) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(wat: &str) -> Vec<u8> {
        wat::parse_str(wat).expect("it is a component")
    }

    fn authored(capabilities: &str) -> Authored {
        let text =
            format!("name = \"sample\"\nversion = \"1.0.0\"\ndescription = \"d\"\n{capabilities}");
        Authored::parse(&text).expect("it is a manifest")
    }

    fn asks(name: &str) -> String {
        format!("[[capabilities]]\nname = \"{name}\"\nreason = \"r\"\n")
    }

    const STARTS_PROGRAMS: &str =
        r#"(component (import "toolhold:host/process@0.1.0" (instance)))"#;

    #[test]
    fn manifest_is_written_once_and_replaced_by_the_next() {
        let first = pack(&component("(component)"), &authored("")).unwrap().component;
        assert_eq!(Manifest::read(&first).unwrap().version, "1.0.0");
        let second =
            Authored::parse("name = \"sample\"\nversion = \"2.0.0\"\ndescription = \"d\"\n")
                .unwrap();
        let second = pack(&first, &second).unwrap().component;
        assert_eq!(Manifest::read(&second).unwrap().version, "2.0.0");
        assert_eq!(first.len(), second.len());
    }

    #[test]
    fn other_sections_survive() {
        let with = component(
            r#"(component (@custom "a" "1") (core module (@custom "toolhold:manifest" "inner")) (@custom "b" "2"))"#,
        );
        let packed = pack(&with, &authored("")).unwrap().component;
        assert_eq!(&packed[..with.len()], &with[..]);
    }

    #[test]
    fn padded_header_is_removed_whole() {
        // The length 19 in two bytes instead of one.
        let mut bytes = component("(component)");
        bytes.extend_from_slice(b"\x00\x93\x00\x11toolhold:manifest{");
        let packed = pack(&bytes, &authored("")).unwrap().component;
        assert_eq!(Manifest::read(&packed).unwrap().name, "sample");
    }

    #[test]
    fn unasked_import_is_refused_with_the_lines_to_add() {
        let Err(error) = pack(&component(STARTS_PROGRAMS), &authored("")) else {
            panic!("it is packed");
        };
        let error = error.to_string();
        assert!(
            error.contains("`toolhold:host/process@0.1.0`") && error.contains("name = \"process\"")
        );
        assert!(
            pack(&component(STARTS_PROGRAMS), &authored(&asks("process")))
                .unwrap()
                .notices
                .is_empty()
        );
    }

    #[test]
    fn paths_may_be_for_programs_alone() {
        let asks = asks("process") + &asks("files") + "access = \"read\"\n";
        let notices = pack(&component(STARTS_PROGRAMS), &authored(&asks)).unwrap().notices;
        assert!(notices.is_empty(), "{notices:?}");
    }

    #[test]
    fn unused_and_unknown_requests_are_noticed() {
        let asks = asks("http") + &asks("telepathy");
        let notices = pack(&component("(component)"), &authored(&asks)).unwrap().notices;
        assert_eq!(notices.len(), 2);
        assert!(notices[0].contains("imports no wasi:http/outgoing-handler"), "{notices:?}");
        assert!(notices[1].contains("`telepathy`"), "{notices:?}");
    }

    #[test]
    fn renamed_import_is_the_only_change() {
        let before = r#"(component (import "wasx:io/poll@0.2.6" (instance)) (core module (@custom "s" "wasx:")))"#;
        let mut renamed = component(before);
        rename_imports(&mut renamed, "wasx:", "wasi:").unwrap();
        assert_eq!(renamed, component(&before.replace("wasx:io", "wasi:io")));
    }

    #[test]
    fn what_is_no_component_is_refused_with_what_to_do() {
        let module = wat::parse_str("(module)").unwrap();
        let cases: [(&[u8], &str); 3] = [
            (&module, "core module"),
            (b"text", "not a WebAssembly component"),
            (b"\0asm\x0d\0\x01\0\x00\xff", "damaged"),
        ];
        for (bytes, expected) in cases {
            let Err(error) = pack(bytes, &authored("")) else { panic!("it is packed") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
