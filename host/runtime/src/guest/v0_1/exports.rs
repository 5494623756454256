//! The exports of a component that was built for 0.1.

use wasmtime::Store;
use wasmtime::component::{Instance, TypedFunc};

use super::bindings::berth::tool::types as old;
use super::bindings::exports::berth::tool::tools as old_tools;
use super::bindings::filter::Filters;
use super::bindings::filter::exports::berth::tool::filter as old_filter;
use super::{bindings, definition, types};
use crate::guest::bindings::berth::tool::types as now;
use crate::guest::bindings::exports::berth::tool::tools;
use crate::guest::bindings::filter::exports::berth::tool::filter;
use crate::guest::state::CallState;

/// The function of an instance that calls a tool.
pub(crate) type CallTool =
    TypedFunc<(old_tools::Invocation,), (Result<old::Output, old::Failure>,)>;

/// Asks an instance for its tools.
pub(crate) async fn list_tools(
    indices: &bindings::PluginIndices,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> wasmtime::Result<Result<Vec<tools::Definition>, String>> {
    let plugin = indices.load(&mut *store, instance)?;
    let listed = plugin.berth_tool_tools().call_list_tools(store).await?;
    let convert =
        |listed: Vec<old_tools::Definition>| listed.into_iter().map(definition::convert).collect();
    Ok(listed.map(convert).map_err(|failure| failure.message))
}

/// Calls a tool.
pub(crate) async fn call_tool(
    function: &CallTool,
    store: &mut Store<CallState>,
    invocation: tools::Invocation,
) -> wasmtime::Result<Result<now::Output, now::Failure>> {
    let tools::Invocation { tool, arguments, attachments, meta } = invocation;
    let attachments = types::contents_out(attachments);
    let invocation = old_tools::Invocation { tool, arguments, attachments, meta };
    let (answer,) = function.call_async(store, (invocation,)).await?;
    Ok(types::answer(answer))
}

/// Lists the filters. The rules, which are a setting today, were an argument.
pub(crate) async fn list_filters(
    filters: &Filters,
    store: &mut Store<CallState>,
) -> wasmtime::Result<Result<filter::Listing, String>> {
    let rules = store.data().call.config.rules();
    let listed = filters.berth_tool_filter().call_list_filters(store, rules.as_deref()).await?;
    Ok(listed.map(|listing| filter::Listing {
        filters: listing.filters.into_iter().map(registration).collect(),
        problems: listing.problems,
    }))
}

/// Applies a filter to an output.
pub(crate) async fn apply(
    filters: &Filters,
    store: &mut Store<CallState>,
    name: &str,
    input: &filter::FilterInput,
) -> wasmtime::Result<Result<filter::Verdict, String>> {
    let input = old_filter::Input {
        tool: input.tool.clone(),
        subject: input.subject.clone(),
        failed: input.failed.map(types::category_out),
        exit_code: input.exit_code,
        content: types::contents_out(input.content.clone()),
        meta: (!input.alone).then(|| r#"{"berth:alone":false}"#.to_owned()),
    };
    let verdict = filters.berth_tool_filter().call_apply(store, name, &input).await?;
    Ok(verdict.map(|verdict| match verdict {
        old_filter::Verdict::Keep => filter::Verdict::Keep,
        old_filter::Verdict::Block(reason) => filter::Verdict::Block(reason),
        old_filter::Verdict::Replace(replacement) => {
            filter::Verdict::Replace(filter::Replacement {
                content: types::contents_in(replacement.content),
                confidence: match replacement.confidence {
                    old_filter::Confidence::Full => filter::Confidence::Full,
                    old_filter::Confidence::Partial => filter::Confidence::Partial,
                    old_filter::Confidence::Fallback => filter::Confidence::Fallback,
                },
                rule: replacement.rule,
                meta: replacement.meta,
            })
        }
    }))
}

fn registration(registration: old_filter::Registration) -> filter::Registration {
    let matcher = |matcher: old_filter::Matcher| filter::Matcher {
        tool: matcher.tool,
        subject: match matcher.subject {
            old_filter::Pattern::Any => filter::TextPattern::Any,
            old_filter::Pattern::Exact(text) => filter::TextPattern::Exact(text),
            old_filter::Pattern::Prefix(text) => filter::TextPattern::Prefix(text),
            old_filter::Pattern::Regex(text) => filter::TextPattern::Regex(text),
        },
        meta: None,
    };
    filter::Registration {
        name: registration.name,
        purpose: match registration.purpose {
            old_filter::Purpose::Cosmetic => filter::Purpose::Cosmetic,
            old_filter::Purpose::Security => filter::Purpose::Security,
        },
        matchers: registration.matchers.into_iter().map(matcher).collect(),
        fallback: definition::is_fallback(registration.meta.as_deref()),
        meta: registration.meta,
    }
}
