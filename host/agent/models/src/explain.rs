//! Turns the errors of a provider into errors for the person, with what to do about them.

use http::StatusCode;

use crate::endpoint::ModelEndpoint;
use crate::failure::{ModelError, ModelErrorKind, classify};
use crate::wire_types::{ServerError, WireError};

/// The error of an answer that can't be used.
pub(crate) fn wire_failure(provider: &ModelEndpoint, error: &WireError) -> ModelError {
    let kind = match error {
        WireError::Cap { .. } | WireError::Count { .. } => ModelErrorKind::Cap,
        WireError::Malformed(_) => ModelErrorKind::Malformed,
        WireError::Cut => ModelErrorKind::Cut,
        WireError::Server(error) => return server_failure(provider, None, error, ""),
    };
    ModelError::new(kind, provider.name(), error.to_string())
}

/// An error of a server: with a status, or within an answer that began well.
pub(crate) fn server_failure(
    provider: &ModelEndpoint,
    status: Option<StatusCode>,
    error: &ServerError,
    model: &str,
) -> ModelError {
    let kind = classify(status, error);
    let status_text = status.map(|status| format!(" ({})", status.as_u16())).unwrap_or_default();
    let words = error.to_string();
    let secrets: Vec<String> =
        provider.keys().iter().map(|key| format!("`{}`", key.secret())).collect();
    let message = match (kind, secrets.is_empty()) {
        (ModelErrorKind::Key, false) => format!(
            "it refuses the key of the secret {}{status_text}: {words}. Check the secret, and what the key may do",
            secrets.join(" and ")
        ),
        (ModelErrorKind::Key, true) => {
            format!("it needs a key, but has none{status_text}: {words}")
        }
        (ModelErrorKind::Model, _) if model.is_empty() => format!(
            "there is nothing at {}{status_text}: {words}. Check the base URL",
            provider.base_url()
        ),
        (ModelErrorKind::Model, _) => format!(
            "it doesn't know the model `{model}`, or the base URL {} is wrong{status_text}: {words}",
            provider.base_url()
        ),
        (ModelErrorKind::Context, _) => {
            format!("the conversation is longer than the model's context{status_text}: {words}")
        }
        (ModelErrorKind::Funds, _) => {
            format!("the account has no funds or quota left{status_text}: {words}")
        }
        (ModelErrorKind::Busy, _) => format!("it is busy{status_text}: {words}"),
        (ModelErrorKind::Refused, _) => {
            format!("its rules refuse this request{status_text}: {words}")
        }
        (ModelErrorKind::Request, _) => {
            format!("it doesn't accept the request{status_text}: {words}")
        }
        _ => format!("it failed{status_text}: {words}"),
    };
    ModelError {
        status: status.map(|status| status.as_u16()),
        ..ModelError::new(kind, provider.name(), message)
    }
}
