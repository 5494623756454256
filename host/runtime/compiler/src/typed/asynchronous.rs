//! Finds exported functions of WASI 0.3, which this engine can't run: async functions, and
//! functions with streams, futures or error contexts. A component with such a function isn't
//! compiled.

use std::collections::HashSet;

use wasmparser::component_types::{
    ComponentDefinedType, ComponentDefinedTypeId, ComponentEntityType, ComponentFuncTypeId,
    ComponentValType,
};
use wasmparser::types::TypesRef;
use wasmparser::{Parser, Payload, PrimitiveValType, ValidPayload, Validator, WasmFeatures};

/// Most functions that are named. Further functions are left out.
const MAX_NAMED: usize = 8;

/// Returns the names of the functions that are async or use streams or futures, which this engine
/// can't run. Returns no names for an invalid component. Takes much time and memory, so an
/// untrusted component must be checked in a process with limits.
pub fn asynchronous_functions(wasm: &[u8]) -> Vec<String> {
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let mut types = None;
    let mut exports = Vec::new();
    // Number of modules and components around the payload. Only the exports of the outermost
    // component can be called.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        let Ok(payload) = payload else { return Vec::new() };
        match &payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section.clone().into_iter().map_while(Result::ok) {
                    exports.push(export.name.name.to_owned());
                }
            }
            _ => {}
        }
        match validator.payload(&payload) {
            Ok(ValidPayload::End(all)) => types = Some(all),
            Ok(_) => {}
            Err(_) => return Vec::new(),
        }
    }
    let Some(types) = &types else { return Vec::new() };
    let mut names = find_async(types.as_ref(), &exports);
    names.truncate(MAX_NAMED);
    names
}

fn find_async(types: TypesRef<'_>, exports: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for export in exports {
        match types.component_item_for_export(export).map(|item| item.ty) {
            Some(ComponentEntityType::Func(function)) if is_async(types, function) => {
                names.push(export.clone());
            }
            Some(ComponentEntityType::Instance(interface)) => {
                for (name, item) in &types[interface].exports {
                    if let ComponentEntityType::Func(function) = item.ty
                        && is_async(types, function)
                    {
                        names.push(format!("{export}.{name}"));
                    }
                }
            }
            // The export isn't async, or contains no functions.
            _ => {}
        }
    }
    names
}

fn is_async(types: TypesRef<'_>, function: ComponentFuncTypeId) -> bool {
    let function = &types[function];
    let mut seen = HashSet::new();
    function.async_
        || function.params.iter().any(|(_, ty)| has_async(types, *ty, &mut seen))
        || function.result.is_some_and(|ty| has_async(types, ty, &mut seen))
}

/// Checks whether a type contains a stream, a future or an error context. Each type is visited only
/// once, because the tree of types may be exponentially large.
fn has_async(
    types: TypesRef<'_>,
    ty: ComponentValType,
    seen: &mut HashSet<ComponentDefinedTypeId>,
) -> bool {
    let id = match ty {
        ComponentValType::Primitive(ty) => return ty == PrimitiveValType::ErrorContext,
        ComponentValType::Type(id) => id,
    };
    let is_new = seen.insert(id);
    if !is_new {
        return false;
    }
    match &types[id] {
        ComponentDefinedType::Primitive(ty) => *ty == PrimitiveValType::ErrorContext,
        ComponentDefinedType::Record(record) => {
            record.fields.values().any(|ty| has_async(types, *ty, seen))
        }
        ComponentDefinedType::Variant(variant) => {
            variant.cases.values().any(|case| case.ty.is_some_and(|ty| has_async(types, ty, seen)))
        }
        ComponentDefinedType::Tuple(tuple) => {
            tuple.types.iter().any(|ty| has_async(types, *ty, seen))
        }
        ComponentDefinedType::List { element, .. }
        | ComponentDefinedType::FixedLengthList { element, .. } => has_async(types, *element, seen),
        ComponentDefinedType::Option { ty, .. } => has_async(types, *ty, seen),
        ComponentDefinedType::Result { ok, err, .. } => {
            [ok, err].into_iter().flatten().any(|ty| has_async(types, *ty, seen))
        }
        ComponentDefinedType::Map { key, value, .. } => {
            has_async(types, *key, seen) || has_async(types, *value, seen)
        }
        ComponentDefinedType::Future { .. } | ComponentDefinedType::Stream { .. } => true,
        ComponentDefinedType::Flags(_)
        | ComponentDefinedType::Enum(_)
        | ComponentDefinedType::Own(_)
        | ComponentDefinedType::Borrow(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        asynchronous_functions(&wat::parse_str(text).expect("the text is a component"))
    }

    #[test]
    fn functions_of_wasi_0_3_are_named() {
        let text = r#"(component
          (core module $m
            (memory (export "memory") 1)
            (func (export "f") (param i32 i32))
            (func (export "g")))
          (core instance $i (instantiate $m))
          (type $s (stream u8))
          (type $t (tuple (option $s)))
          (func $f (param "s" $t) (canon lift (core func $i "f") (memory (core memory $i "memory"))))
          (func $g (canon lift (core func $i "g")))
          (instance $j (export "f" (func $f)) (export "g" (func $g)))
          (export "a:b/c" (instance $j))
          (export "plain" (func $g)))"#;
        assert_eq!(named(text), ["a:b/c.f"]);
        assert!(named("(component)").is_empty());
        assert!(asynchronous_functions(b"\0asm").is_empty());
    }
}
