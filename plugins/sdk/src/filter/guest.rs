//! Converts between the contract's types of filters and the SDK's own. Filters and tools have
//! different worlds, so neither kind of plugin exports functions that it doesn't have.

use std::cell::RefCell;

use serde_json::Value;

use super::{
    Confidence, FailureCategory, Filters, Input, Listing, Matcher, Pattern, Purpose, Registration,
    Verdict,
};
use crate::contract::bindings::toolhold::tool::types as common;
use crate::contract::{content_in, content_out, failure};
use crate::{Failure, config};
use bindings::exports::toolhold::tool::filter as wit;

#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit/tool",
        world: "toolhold:tool/filter-plugin",
        // Both worlds share one set of types, and one conversion to the SDK's own.
        with: { "toolhold:tool/types@0.1.0": crate::contract::bindings::toolhold::tool::types },
        pub_export_macro: true,
        export_macro_name: "export_filters",
        default_bindings_module: "toolhold_sdk::private::filter_bindings",
    });
}
pub use bindings::export_filters;

/// The trait that `plugin!` implements for a plugin with filters. It gives the component its
/// exports.
pub trait FilterComponent {
    /// The type of the plugin's filters.
    type Filters: Filters;
}

thread_local! {
    /// The filters of this instance, set by its first call.
    static INSTANCE: RefCell<Option<Box<dyn Running>>> = const { RefCell::new(None) };
}

/// Filters with their type erased, since a static can't be generic.
trait Running {
    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String>;
}

impl<T: Filters> Running for T {
    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String> {
        Filters::apply(self, filter, input)
    }
}

impl<T: FilterComponent> wit::Guest for T {
    fn list_filters() -> Result<wit::Listing, common::Failure> {
        let rules = config::get::<String>("rules").map_err(failure)?;
        let filters = T::Filters::new(rules.as_deref()).map_err(failed)?;
        let listing = listing(filters.list());
        INSTANCE.set(Some(Box::new(filters)));
        Ok(listing)
    }

    fn apply(filter: String, asked: wit::FilterInput) -> Result<wit::Verdict, common::Failure> {
        INSTANCE.with_borrow_mut(|instance| match instance {
            Some(filters) => filters.apply(&filter, &input(asked)).map(verdict).map_err(failed),
            None => Err(failed("`list-filters` has to be the first call".to_owned())),
        })
    }
}

/// The failure of a filter.
fn failed(message: String) -> common::Failure {
    failure(Failure::permanent("filter", message))
}

fn listing(listing: Listing) -> wit::Listing {
    wit::Listing {
        filters: listing.filters.into_iter().map(registration).collect(),
        problems: listing.problems,
    }
}

fn registration(registration: Registration) -> wit::Registration {
    wit::Registration {
        name: registration.name.into_owned(),
        purpose: match registration.purpose {
            Purpose::Cosmetic => wit::Purpose::Cosmetic,
            Purpose::Security => wit::Purpose::Security,
        },
        matchers: registration.matchers.into_iter().map(matcher).collect(),
        fallback: registration.fallback,
        meta: registration.meta.map(String::from),
    }
}

fn matcher(matcher: Matcher) -> wit::Matcher {
    let subject = match matcher.subject {
        Pattern::Any => wit::TextPattern::Any,
        Pattern::Exact(text) => wit::TextPattern::Exact(text.into_owned()),
        Pattern::Prefix(text) => wit::TextPattern::Prefix(text.into_owned()),
        Pattern::Regex(text) => wit::TextPattern::Regex(text.into_owned()),
    };
    wit::Matcher { tool: matcher.tool.into_owned(), subject, meta: None }
}

fn input(input: wit::FilterInput) -> Input {
    Input {
        tool: input.tool,
        subject: input.subject,
        failed: input.failed.map(failure_category),
        exit_code: input.exit_code,
        content: input.content.into_iter().map(content_in).collect(),
        among_others: !input.alone,
        meta: input.meta.and_then(|meta| serde_json::from_str(&meta).ok()),
    }
}

fn failure_category(category: common::Category) -> FailureCategory {
    match category {
        common::Category::ToolNotFound => FailureCategory::ToolNotFound,
        common::Category::InvalidParameters => FailureCategory::InvalidParameters,
        common::Category::TypeMismatch => FailureCategory::TypeMismatch,
        common::Category::PolicyBlocked => FailureCategory::PolicyBlocked,
        common::Category::ConfirmationRequired => FailureCategory::ConfirmationRequired,
        common::Category::PermanentFailure => FailureCategory::PermanentFailure,
        common::Category::Cancelled => FailureCategory::Cancelled,
        common::Category::RateLimited => FailureCategory::RateLimited,
        common::Category::ServerError => FailureCategory::ServerError,
        common::Category::NetworkError => FailureCategory::NetworkError,
        common::Category::Timeout => FailureCategory::Timeout,
    }
}

fn verdict(verdict: Verdict) -> wit::Verdict {
    match verdict {
        Verdict::Keep => wit::Verdict::Keep,
        Verdict::Block(reason) => wit::Verdict::Block(reason),
        Verdict::Replace(replacement) => wit::Verdict::Replace(wit::Replacement {
            content: replacement.content.into_iter().map(content_out).collect(),
            confidence: match replacement.confidence {
                Confidence::Full => wit::Confidence::Full,
                Confidence::Partial => wit::Confidence::Partial,
                Confidence::Fallback => wit::Confidence::Fallback,
            },
            rule: replacement.rule,
            meta: replacement.meta.as_ref().map(Value::to_string),
        }),
    }
}
