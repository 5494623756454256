//! For the unit tests of tools and filters, which run natively and need no host.

use serde_json::{Value, json};

use crate::filter::{Filters, Input, Listing, Pattern, Verdict};
use crate::plugin::{Invocation, Plugin, ToolEntry};
use crate::{Content, Failure, Output, Tool};

/// Calls `T` as the host would: the arguments are decoded from JSON. Paths in them have to be
/// absolute, as the host makes them.
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
    let plugin = Plugin { tools: const { &[ToolEntry::new::<T>()] }, filters: 0 };
    plugin.call(Invocation {
        tool: T::NAME.to_owned(),
        arguments: arguments.to_string(),
        attachments,
    })
}

/// How the catalogue shows `T`: name, title, description, schemas, annotations, subjects, aliases,
/// fence and meta.
///
/// # Panics
///
/// If a subject isn't one of the arguments: such a plugin doesn't load.
pub fn definition<T: Tool>() -> Value {
    let tool = ToolEntry::new::<T>();
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

/// Asks the filter `filter` of `T` for its verdict, as the host would once a matcher has fitted.
///
/// # Errors
///
/// What the filters answer with, or that there is no such filter.
///
/// # Panics
///
/// Where [`filters`] does, or where the verdict breaks the contract: another number of parts than
/// came in.
pub fn filter<T: Filters>(
    rules: Option<&str>,
    filter: &str,
    input: &Input,
) -> Result<Verdict, String> {
    if !filters::<T>(rules)?.filters.iter().any(|registration| registration.name == filter) {
        return Err(format!("no filter {filter:?} is listed"));
    }
    let verdict = T::new(rules)?.apply(filter, input)?;
    if let Verdict::Replace(replacement) = &verdict {
        assert_eq!(
            replacement.content.len(),
            input.content.len(),
            "{filter}: as many parts go out as came in"
        );
    }
    Ok(verdict)
}

/// What `T` offers.
///
/// # Errors
///
/// What the filters answer with.
///
/// # Panics
///
/// Where the listing breaks the contract: such a plugin doesn't load. Whether a regular expression
/// compiles is not looked at.
pub fn filters<T: Filters>(rules: Option<&str>) -> Result<Listing, String> {
    let listing = T::new(rules)?.list();
    assert!(listing.filters.len() <= 512, "a plugin has at most 512 filters");
    for (index, filter) in listing.filters.iter().enumerate() {
        let name = filter.name.as_ref();
        let fits = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        };
        assert!(
            (1..=64).contains(&name.len()) && name.bytes().all(fits),
            "{name:?} isn't a valid filter name"
        );
        assert!(
            listing.filters[..index].iter().all(|other| other.name != filter.name),
            "there are two filters {name:?}"
        );
        assert!(filter.matchers.len() <= 32, "{name}: a filter has at most 32 matchers");
        for matcher in &filter.matchers {
            let short =
                !matches!(&matcher.subject, Pattern::Regex(regex) if regex.chars().count() > 512);
            assert!(short, "{name}: a regular expression has at most 512 characters");
        }
        let meta = filter.meta.as_deref().map(serde_json::from_str::<Value>);
        assert!(
            meta.is_none_or(|meta| meta.is_ok_and(|meta| meta.is_object())),
            "{name}: meta is a JSON object"
        );
    }
    Ok(listing)
}
