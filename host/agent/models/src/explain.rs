//! Turns errors of a provider into messages with remedies.

use http::StatusCode;

use crate::endpoint::{ModelEndpoint, ModelKey};
use crate::failure::{ModelError, ModelErrorKind, classify};
use crate::wire_types::{ServerError, WireError};

pub(crate) fn wire_failure(provider: &ModelEndpoint, error: &WireError) -> ModelError {
    let kind = match error {
        WireError::Cap { .. } | WireError::Count { .. } => ModelErrorKind::Cap,
        WireError::Malformed(_) => ModelErrorKind::Malformed,
        WireError::Cut => ModelErrorKind::Cut,
        WireError::Server(error) => {
            let no_model = "";
            return server_failure(provider, None, error, no_model);
        }
    };
    ModelError::new(kind, provider.name(), error.to_string())
}

/// Converts a server's error, which comes with a status or inside a successful answer.
pub(crate) fn server_failure(
    provider: &ModelEndpoint,
    status: Option<StatusCode>,
    error: &ServerError,
    model: &str,
) -> ModelError {
    let kind = classify(status, error);
    let code = status.map(|status| status.as_u16());
    let status_text = code.map(|code| format!(" ({code})")).unwrap_or_default();
    let base_url = provider.base_url();
    let explanation = match kind {
        ModelErrorKind::Key if provider.keys().is_empty() => {
            format!("the provider needs a key, but no key is configured{status_text}: {error}")
        }
        ModelErrorKind::Key => {
            let keys: Vec<String> = provider.keys().iter().map(ModelKey::in_words).collect();
            format!(
                "the provider refuses {}{status_text}: {error}. Check the key, and what it may do",
                keys.join(" and ")
            )
        }
        ModelErrorKind::Model if model.is_empty() => {
            format!(
                "the address {base_url} doesn't exist{status_text}: {error}. Check the base URL"
            )
        }
        ModelErrorKind::Model => format!(
            "the provider doesn't know the model `{model}`, or the base URL {base_url} is \
             wrong{status_text}: {error}"
        ),
        ModelErrorKind::Context => {
            format!("the conversation is longer than the model's context{status_text}: {error}")
        }
        ModelErrorKind::Funds => {
            format!("the account has no funds or quota left{status_text}: {error}")
        }
        ModelErrorKind::Busy => format!("the provider is busy{status_text}: {error}"),
        ModelErrorKind::Refused => {
            format!("the provider's rules refuse this request{status_text}: {error}")
        }
        ModelErrorKind::Request => {
            format!("the provider doesn't accept the request{status_text}: {error}")
        }
        _ => format!("the provider failed{status_text}: {error}"),
    };
    let mut model_error = ModelError::new(kind, provider.name(), explanation);
    model_error.status = code;
    model_error
}
