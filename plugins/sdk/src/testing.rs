//! For the unit tests of tools, which run natively and need no host.

use serde_json::{Value, json};

use crate::plugin::{Invocation, Offered, Plugin};
use crate::{Content, Failure, Output, Tool};

/// Calls `T` as the host would: the arguments are decoded from JSON. Paths in them have to be absolute, as the host makes them.
///
/// # Errors
///
/// What a caller would get: the arguments' fault, or the tool's failure.
pub fn call<T: Tool>(arguments: Value) -> Result<Output, Failure> {
    call_with::<T>(arguments, Vec::new())
}

/// The same with attachments.
///
/// # Errors
///
/// As [`call`].
pub fn call_with<T: Tool>(arguments: Value, attachments: Vec<Content>) -> Result<Output, Failure> {
    let plugin = Plugin { tools: const { &[Offered::new::<T>()] } };
    plugin.call(Invocation { tool: T::NAME.to_owned(), arguments: arguments.to_string(), attachments })
}

/// How the catalogue shows `T`: name, title, description, schemas, annotations, subjects, aliases, fence and meta.
///
/// # Panics
///
/// Where a subject is none of the arguments: such a plugin doesn't load.
pub fn definition<T: Tool>() -> Value {
    let tool = Offered::new::<T>();
    let annotations = tool.annotations;
    let subjects = tool
        .subjects
        .iter()
        .map(|subject| json!({ "pointer": subject.pointer, "kind": subject.kind.as_str(), "access": subject.access.as_str() }));
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.checked_schema().unwrap_or_else(|failure| panic!("{failure}")),
        "output_schema": (tool.output_schema)(),
        "annotations": {
            "read_only": annotations.read_only,
            "destructive": annotations.destructive,
            "idempotent": annotations.idempotent,
            "open_world": annotations.open_world,
            "cacheable": annotations.cacheable,
        },
        "subjects": subjects.collect::<Vec<_>>(),
        "aliases": tool.aliases,
        "fence": tool.fence,
        "meta": tool.meta(),
    })
}
