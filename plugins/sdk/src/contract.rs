//! The contract as Rust types for a plugin, generated from its WIT, and the conversion of those
//! that all plugins share.

use crate::content::{Body, Content};
use crate::failure::{Category, Failure, MAX_MESSAGE};
use bindings::toolhold::tool::types as wit;

#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["wit/io", "wit/tool", "wit/host", "wit"],
        world: "toolhold:sdk/plugin",
        with: { "wasi:io/poll@0.2.6": wasip2::io::poll },
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_component",
        default_bindings_module: "toolhold_sdk::private::bindings",
    });
}
pub use bindings::export_component;

pub(crate) fn failure(mut failure: Failure) -> wit::Failure {
    failure.message.truncate(failure.message.floor_char_boundary(MAX_MESSAGE));
    wit::Failure {
        category: match failure.category {
            Category::InvalidParameters => wit::Category::InvalidParameters,
            Category::TypeMismatch => wit::Category::TypeMismatch,
            Category::PermanentFailure => wit::Category::PermanentFailure,
            Category::RateLimited => wit::Category::RateLimited,
            Category::ServerError => wit::Category::ServerError,
            Category::NetworkError => wit::Category::NetworkError,
            Category::Timeout => wit::Category::Timeout,
        },
        code: failure.code.map(String::from),
        message: failure.message,
        suggestion: failure.suggestion,
        retry_after_ms: failure
            .retry_after
            .map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        content: failure.content.into_iter().map(content_out).collect(),
        structured: failure.structured.map(|value| value.to_string()),
        meta: failure.meta.map(|meta| meta.to_string()),
    }
}

pub(crate) fn content_out(part: Content) -> wit::Content {
    let body = match part.body {
        Body::Text(text) => wit::Body::Text(text),
        Body::Bytes(bytes) => wit::Body::Bytes(bytes),
        Body::Link(uri) => wit::Body::Link(uri),
    };
    let meta = part.untrusted.then(|| r#"{"toolhold:untrusted":true}"#.to_owned());
    wit::Content { body, media_type: part.media_type, meta }
}

pub(crate) fn content_in(part: wit::Content) -> Content {
    let body = match part.body {
        wit::Body::Text(text) => Body::Text(text),
        wit::Body::Bytes(bytes) => Body::Bytes(bytes),
        wit::Body::Link(uri) => Body::Link(uri),
        // The SDK knows no other kind. The part keeps its place: arguments name attachments by
        // their index.
        wit::Body::Other(_) => Body::Text(String::new()),
    };
    Content { body, media_type: part.media_type, untrusted: false }
}
