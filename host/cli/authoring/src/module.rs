//! Makes a component from a core module.

use std::borrow::Cow;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;

use crate::pack_error::PackError;
use crate::section::push_section;
use crate::wit;

/// The prefix of sections that describe a module's interfaces.
const DESCRIPTION: &str = "component-type";

/// The section with the documentation of interfaces.
const DOCS: &str = "package-docs";

/// The prefix of the exports in Toolhold's contract.
const CONTRACT: &str = "toolhold:tool/";

/// Makes a component from a core module, which must describe its interfaces or export Toolhold's
/// interfaces. An adapter implements the functions of WASI's first version.
pub(crate) fn to_component(core: &[u8]) -> Result<Vec<u8>, PackError> {
    let module = if describes_itself(core)? {
        Cow::Borrowed(core)
    } else if exports_contract(core)? {
        Cow::Owned(describe(core)?)
    } else {
        return Err(PackError::Undescribed);
    };
    let adapter_name = WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
    let adapter = WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
    let encoder = ComponentEncoder::default().validate(true);
    let mut component = encoder
        .module(&module)
        .and_then(|encoder| encoder.adapter(adapter_name, adapter))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| PackError::NotEncodable(format!("{error:#}")))?;
    for docs in documentation(&module)? {
        push_section(&mut component, DOCS, &docs)?;
    }
    Ok(component)
}

/// Adds a description of the contract's interfaces to a module, so that the encoder can check the
/// types of the exports.
fn describe(core: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut described = core.to_vec();
    let folder = tempfile::tempdir().map_err(|error| PackError::NotEncodable(error.to_string()))?;
    wit::describe(&mut described, folder.path())
        .map_err(|error| PackError::NotEncodable(error.to_string()))?;
    Ok(described)
}

/// Returns the documentation of the interfaces, which the encoder drops. The documentation is in
/// sections inside the sections about the interfaces. A module with Toolhold's contract needs no
/// documentation, because its tools describe themselves.
fn documentation(core: &[u8]) -> Result<Vec<Vec<u8>>, PackError> {
    let mut all = Vec::new();
    if exports_contract(core)? {
        return Ok(all);
    }
    for payload in Parser::new(0).parse_all(core) {
        let Payload::CustomSection(section) = payload.map_err(PackError::Damaged)? else {
            continue;
        };
        if !section.name().starts_with(DESCRIPTION) {
            continue;
        }
        for payload in Parser::new(0).parse_all(section.data()) {
            if let Payload::CustomSection(docs) = payload.map_err(PackError::Damaged)?
                && docs.name() == DOCS
            {
                all.push(docs.data().to_vec());
            }
        }
    }
    Ok(all)
}

fn exports_contract(core: &[u8]) -> Result<bool, PackError> {
    for payload in Parser::new(0).parse_all(core) {
        let Payload::ExportSection(exports) = payload.map_err(PackError::Damaged)? else {
            continue;
        };
        for export in exports {
            if export.map_err(PackError::Damaged)?.name.starts_with(CONTRACT) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn describes_itself(core: &[u8]) -> Result<bool, PackError> {
    for payload in Parser::new(0).parse_all(core) {
        if let Payload::CustomSection(section) = payload.map_err(PackError::Damaged)?
            && section.name().starts_with(DESCRIPTION)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest plugin: it has no tools.
    const CORE: &str = r#"(module
        (memory (export "memory") 1)
        (data (i32.const 16) "\00\00\00\00\20\00\00\00\00\00\00\00")
        (func (export "toolhold:tool/tools@0.1.0#list-tools") (result i32) i32.const 16)
        (func (export "toolhold:tool/tools@0.1.0#call-tool") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 64))"#;

    #[test]
    fn module_with_the_exports_of_the_contract_becomes_a_component() {
        let other = wat::parse_str(CORE.replace("toolhold:tool/", "example:tool/")).unwrap();
        assert!(to_component(&other).unwrap_err().to_string().contains("toolhold plugin wit"));

        // The exports are those of the contract, so they need no description.
        let core = wat::parse_str(CORE).unwrap();
        assert!(Parser::is_component(&to_component(&core).unwrap()));
        let wrong = wat::parse_str(CORE.replace("(param i32 i32 i32 i32 i32", "(param i32 i32"));
        let refused = to_component(&wrong.unwrap()).unwrap_err().to_string();
        assert!(refused.contains("can't be converted to a component"), "{refused}");
    }

    #[test]
    fn documentation_of_own_interfaces_is_kept() {
        let core = r#"(module
            (memory (export "memory") 1)
            (func (export "area") (param f64) (result f64) local.get 0))"#;
        let mut resolve = wit_parser::Resolve::default();
        let text = "package example:shapes; world shapes { export area: func(r: f64) -> f64; }";
        let package = resolve.push_str("shapes.wit", text).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let mut described = wat::parse_str(core).unwrap();
        let encoding = wit_component::StringEncoding::UTF8;
        let mut description =
            wit_component::metadata::encode(&resolve, world, encoding, None).unwrap();
        // This build of the encoder writes no documentation, as generators of bindings do.
        push_section(&mut description, DOCS, b"\x01{\"docs\":\"About shapes\"}").unwrap();
        push_section(&mut described, "component-type:shapes", &description).unwrap();
        let component = to_component(&described).unwrap();
        let mut kept = Vec::new();
        for payload in Parser::new(0).parse_all(&component) {
            if let Payload::CustomSection(section) = payload.unwrap()
                && section.name() == DOCS
            {
                kept.push(section.data().to_vec());
            }
        }
        assert_eq!(kept, [b"\x01{\"docs\":\"About shapes\"}".to_vec()]);
    }
}
