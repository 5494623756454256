//! Helpers for unit tests of tools and filters. Such tests run natively and need no host.

use serde_json::{Value, json};

use crate::filter::{Filters, Input, Listing, Pattern, Verdict};
use crate::plugin::{Invocation, Plugin, ToolEntry};
use crate::{Content, Failure, Output, Preview, Tool};

/// Calls `T` as the host does: it decodes the arguments from JSON. Paths in them have to be
/// absolute; in a real call the host makes them so.
///
/// # Errors
///
/// The failure that a caller would get: an error in the arguments, or the tool's failure.
pub fn call<T: Tool>(arguments: Value) -> Result<Output, Failure> {
    call_with::<T>(arguments, Vec::new())
}

/// Calls `T` as [`call`] does, with attachments.
///
/// # Errors
///
/// The same as [`call`].
pub fn call_with<T: Tool>(arguments: Value, attachments: Vec<Content>) -> Result<Output, Failure> {
    let plugin = Plugin { tools: const { &[ToolEntry::new::<T>()] }, filters: 0 };
    plugin.call(Invocation {
        tool: T::NAME.to_owned(),
        arguments: arguments.to_string(),
        attachments,
        meta: None,
    })
}

/// Sets the plugin's [settings](crate::config) for the tests of this thread.
///
/// # Panics
///
/// If `config` isn't an object.
#[cfg(not(target_arch = "wasm32"))]
pub fn set_config(config: Value) {
    match config {
        Value::Object(fields) => crate::config::host::set(fields),
        other => panic!("the settings of a plugin are an object, not {other}"),
    }
}

/// Sets who makes the calls of this thread's tests.
#[cfg(not(target_arch = "wasm32"))]
pub fn set_caller(caller: crate::Caller) {
    crate::call::host::set_caller(caller);
}

/// Sets what a [part](crate::parts) answers in the tests of this thread.
#[cfg(not(target_arch = "wasm32"))]
pub fn set_part(part: &str, standin: fn(&[u8]) -> Result<Vec<u8>, String>) {
    crate::parts::host::set(part, standin);
}

/// Sets the [model](crate::embeddings) of this thread's tests, and the vector that it makes of a
/// text. `None`: there is no model.
#[cfg(not(target_arch = "wasm32"))]
pub fn set_embeddings(model: Option<&str>, standin: fn(&str) -> Result<Vec<i8>, String>) {
    crate::embeddings::host::set(model.map(|model| (model.to_owned(), standin)));
}

/// How the catalogue shows `T`: name, title, description, schemas, promises, subjects,
/// arguments, preview, aliases and fence.
///
/// # Panics
///
/// If a subject, or an argument that a constant names, isn't one of the arguments. Such a plugin
/// doesn't load.
pub fn definition<T: Tool>() -> Value {
    let tool = ToolEntry::new::<T>();
    let subjects = tool
        .subjects
        .iter()
        .map(|subject| json!({ "pointer": subject.pointer, "kind": subject.kind.as_str(), "access": subject.access.as_str() }));
    let schema = tool.checked_schema().unwrap_or_else(|failure| panic!("{failure}"));
    let entries = tool.arguments(&schema).unwrap_or_else(|failure| panic!("{failure}"));
    let arguments = entries.iter().map(|argument| {
        json!({
            "name": argument.name,
            "aliases": argument.aliases,
            "roles": argument.roles,
            "base": argument.base,
            "reads_with": argument.reads_with,
        })
    });
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": schema,
        "output_schema": (tool.output_schema)(),
        "promises": tool.promises.names().collect::<Vec<_>>(),
        "subjects": subjects.collect::<Vec<_>>(),
        "aliases": tool.aliases,
        "arguments": arguments.collect::<Vec<_>>(),
        "preview": tool.preview.map(preview),
        "answers_in_text": tool.answers_in_text,
        "fence": tool.fence,
    })
}

fn preview(preview: Preview) -> Value {
    match preview {
        Preview::Whole { file, content } => json!({ "file": file, "content": content }),
        Preview::Part { file, old, new, all } => {
            json!({ "file": file, "old": old, "new": new, "all": all })
        }
    }
}

/// Asks the filter `filter` of `T` for its verdict, as the host does if a matcher fits.
///
/// # Errors
///
/// The error of the filters, or a missing filter.
///
/// # Panics
///
/// If [`filters`] panics, or if the verdict breaks the contract: the number of parts must not
/// change.
pub fn filter<T: Filters>(
    rules: Option<&str>,
    filter: &str,
    input: &Input,
) -> Result<Verdict, String> {
    if !filters::<T>(rules)?.filters.iter().any(|registration| registration.name == filter) {
        return Err(format!("filter {filter:?} is missing in the listing"));
    }
    let verdict = T::new(rules)?.apply(filter, input)?;
    if let Verdict::Replace(replacement) = &verdict {
        assert_eq!(
            replacement.content.len(),
            input.content.len(),
            "{filter}: the number of parts must not change"
        );
    }
    Ok(verdict)
}

/// The listing of `T`.
///
/// # Errors
///
/// The error of the filters.
///
/// # Panics
///
/// If the listing breaks the contract. Such a plugin doesn't load. This doesn't check whether
/// regular expressions compile.
pub fn filters<T: Filters>(rules: Option<&str>) -> Result<Listing, String> {
    let listing = T::new(rules)?.list();
    assert!(
        listing.filters.len() <= 512,
        "the plugin has {} filters; the limit is 512",
        listing.filters.len()
    );
    for (index, filter) in listing.filters.iter().enumerate() {
        let name = filter.name.as_ref();
        let fits = name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        });
        assert!(
            (1..=64).contains(&name.len()) && fits,
            "the filter name {name:?} isn't valid: use 1 to 64 characters out of a-z, 0-9, `_` and `-`"
        );
        assert!(
            listing.filters[..index].iter().all(|other| other.name != filter.name),
            "two filters have the name {name:?}"
        );
        assert!(
            filter.matchers.len() <= 32,
            "{name}: the filter has {} matchers; the limit is 32",
            filter.matchers.len()
        );
        for matcher in &filter.matchers {
            let short =
                !matches!(&matcher.subject, Pattern::Regex(regex) if regex.chars().count() > 512);
            assert!(short, "{name}: a regular expression is too long; the limit is 512 characters");
        }
        let meta = filter.meta.as_deref().map(serde_json::from_str::<Value>);
        assert!(
            meta.is_none_or(|meta| meta.is_ok_and(|meta| meta.is_object())),
            "{name}: meta isn't a JSON object"
        );
    }
    Ok(listing)
}
