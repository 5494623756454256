//! The types that hosts and tools exchange.

use crate::guest::bindings::berth::tool::types as now;
use crate::guest::v0_1::bindings::berth::tool::types as old;

pub(super) fn content_in(part: old::Content) -> now::Content {
    let body = match part.body {
        old::Body::Text(text) => now::Body::Text(text),
        old::Body::Bytes(bytes) => now::Body::Bytes(bytes),
        old::Body::Link(uri) => now::Body::Link(uri),
    };
    now::Content { body, media_type: part.media_type, meta: part.meta }
}

pub(super) fn content_out(part: now::Content) -> old::Content {
    let body = match part.body {
        now::Body::Text(text) => old::Body::Text(text),
        now::Body::Bytes(bytes) => old::Body::Bytes(bytes),
        now::Body::Link(uri) => old::Body::Link(uri),
        // The host has no content of another kind. Its place is kept: arguments name attachments
        // by their index.
        now::Body::Other(_) => old::Body::Text(String::new()),
    };
    old::Content { body, media_type: part.media_type, meta: part.meta }
}

pub(super) fn contents_in(parts: Vec<old::Content>) -> Vec<now::Content> {
    parts.into_iter().map(content_in).collect()
}

pub(super) fn contents_out(parts: Vec<now::Content>) -> Vec<old::Content> {
    parts.into_iter().map(content_out).collect()
}

pub(super) fn answer(
    answer: Result<old::Output, old::Failure>,
) -> Result<now::Output, now::Failure> {
    match answer {
        Ok(output) => Ok(now::Output {
            content: contents_in(output.content),
            structured: output.structured,
            after_emitted: false,
            meta: output.meta,
        }),
        Err(failure) => Err(now::Failure {
            category: category_in(failure.category),
            code: failure.code,
            message: failure.message,
            suggestion: failure.suggestion,
            retry_after_ms: failure.retry_after_ms,
            content: contents_in(failure.content),
            structured: failure.structured,
            meta: failure.meta,
        }),
    }
}

fn category_in(category: old::Category) -> now::Category {
    match category {
        old::Category::ToolNotFound => now::Category::ToolNotFound,
        old::Category::InvalidParameters => now::Category::InvalidParameters,
        old::Category::TypeMismatch => now::Category::TypeMismatch,
        old::Category::PolicyBlocked => now::Category::PolicyBlocked,
        old::Category::ConfirmationRequired => now::Category::ConfirmationRequired,
        old::Category::PermanentFailure => now::Category::PermanentFailure,
        old::Category::Cancelled => now::Category::Cancelled,
        old::Category::RateLimited => now::Category::RateLimited,
        old::Category::ServerError => now::Category::ServerError,
        old::Category::NetworkError => now::Category::NetworkError,
        old::Category::Timeout => now::Category::Timeout,
    }
}

pub(super) fn category_out(category: now::Category) -> old::Category {
    match category {
        now::Category::ToolNotFound => old::Category::ToolNotFound,
        now::Category::InvalidParameters => old::Category::InvalidParameters,
        now::Category::TypeMismatch => old::Category::TypeMismatch,
        now::Category::PolicyBlocked => old::Category::PolicyBlocked,
        now::Category::ConfirmationRequired => old::Category::ConfirmationRequired,
        now::Category::PermanentFailure => old::Category::PermanentFailure,
        now::Category::Cancelled => old::Category::Cancelled,
        now::Category::RateLimited => old::Category::RateLimited,
        now::Category::ServerError => old::Category::ServerError,
        now::Category::NetworkError => old::Category::NetworkError,
        now::Category::Timeout => old::Category::Timeout,
    }
}
