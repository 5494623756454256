//! Makes a component of a core module, as some compilers make them.

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;

use crate::pack_error::PackError;

/// The beginning of the names of the sections in which bindings describe a module's interfaces.
const DESCRIPTION: &str = "component-type";

/// Makes a component of a core module that describes its interfaces. Functions of WASI's first
/// version go through the adapter.
///
/// # Errors
///
/// The module doesn't describe its interfaces, or it has other ones.
pub(crate) fn to_component(core: &[u8]) -> Result<Vec<u8>, PackError> {
    if !describes_itself(core)? {
        return Err(PackError::Undescribed);
    }
    let name = WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
    let adapter = WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
    let encoder = ComponentEncoder::default().validate(true);
    encoder
        .module(core)
        .and_then(|encoder| encoder.adapter(name, adapter))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| PackError::NotEncodable(format!("{error:#}")))
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
    fn described_module_becomes_a_component() {
        let folder = tempfile::tempdir().unwrap();
        let mut core = wat::parse_str(CORE).unwrap();
        assert!(to_component(&core).unwrap_err().to_string().contains("toolhold plugin wit"));

        crate::wit::describe(&mut core, folder.path()).unwrap();
        let component = to_component(&core).unwrap();
        assert!(Parser::is_component(&component));
    }
}
