//! Turns the errors of a provider into errors for the person, with a way to fix them.

use http::StatusCode;

use crate::endpoint::ModelEndpoint;
use crate::failure::{ModelError, ModelErrorKind, classify};
use crate::wire_types::{ServerError, WireError};

/// Returns the error for an answer that can't be used.
pub(crate) fn wire_failure(provider: &ModelEndpoint, error: &WireError) -> ModelError {
    let kind = match error {
        WireError::Cap { .. } | WireError::Count { .. } => ModelErrorKind::Cap,
        WireError::Malformed(_) => ModelErrorKind::Malformed,
        WireError::Cut => ModelErrorKind::Cut,
        WireError::Server(error) => return server_failure(provider, None, error, ""),
    };
    ModelError::new(kind, provider.name(), error.to_string())
}

/// Returns the error for an error that the server reported. The server reports an error with a
/// status, or inside an answer with a successful status.
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
            format!("it needs a key, but has none{status_text}: {error}")
        }
        ModelErrorKind::Key => {
            let secrets: Vec<String> =
                provider.keys().iter().map(|key| format!("`{}`", key.secret())).collect();
            format!(
                "it refuses the key of the secret {}{status_text}: {error}. Check the secret, and what the key may do",
                secrets.join(" and ")
            )
        }
        ModelErrorKind::Model if model.is_empty() => {
            format!("there is nothing at {base_url}{status_text}: {error}. Check the base URL")
        }
        ModelErrorKind::Model => format!(
            "it doesn't know the model `{model}`, or the base URL {base_url} is wrong{status_text}: {error}"
        ),
        ModelErrorKind::Context => {
            format!("the conversation is longer than the model's context{status_text}: {error}")
        }
        ModelErrorKind::Funds => {
            format!("the account has no funds or quota left{status_text}: {error}")
        }
        ModelErrorKind::Busy => format!("it is busy{status_text}: {error}"),
        ModelErrorKind::Refused => format!("its rules refuse this request{status_text}: {error}"),
        ModelErrorKind::Request => format!("it doesn't accept the request{status_text}: {error}"),
        _ => format!("it failed{status_text}: {error}"),
    };
    let mut model_error = ModelError::new(kind, provider.name(), explanation);
    model_error.status = code;
    model_error
}
