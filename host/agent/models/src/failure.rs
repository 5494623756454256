//! The errors of models. Some errors may pass if the request is repeated.

use std::time::Duration;

use http::StatusCode;
use toolhold_contract::text::in_words;
use toolhold_net::requests::OutboundError;

use crate::wire_types::ServerError;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelErrorKind {
    /// The key is missing, refused, or has no permission for the request.
    Key,
    /// The account has no funds or no quota left.
    Funds,
    /// The provider doesn't have the model, or its base URL is wrong.
    Model,
    /// The conversation is longer than the model's context.
    Context,
    /// The provider's rules refuse the request.
    Refused,
    /// The provider refuses the request for another reason.
    Request,
    /// The provider is overloaded, or the account sends too many requests.
    Busy,
    /// The provider failed.
    Server,
    /// There is no connection.
    Unreachable,
    /// A rule of Toolhold denies the request.
    Blocked,
    /// The request took too long.
    Time,
    /// The answer ended early.
    Cut,
    /// The answer exceeded a limit.
    Cap,
    /// The answer can't be read as a model's answer.
    Malformed,
    /// The caller cancelled the request.
    Cancelled,
}

impl ModelErrorKind {
    fn may_succeed_later(self) -> bool {
        matches!(self, Self::Busy | Self::Server | Self::Unreachable | Self::Cut)
    }
}

/// The error for a missing answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct ModelError {
    /// The kind of the failure.
    pub kind: ModelErrorKind,
    /// The name of the provider.
    pub provider: String,
    /// The fault and the remedy.
    pub message: String,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// The wait that the provider asks for.
    pub retry_after: Option<Duration>,
    /// Whether the provider says that further attempts will fail.
    pub(crate) is_final: bool,
}

impl ModelError {
    pub(crate) fn new(kind: ModelErrorKind, provider: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            provider: provider.to_owned(),
            message: message.into(),
            status: None,
            retry_after: None,
            is_final: false,
        }
    }

    pub(crate) fn may_succeed_later(&self) -> bool {
        self.kind.may_succeed_later() && !self.is_final
    }

    /// Converts an error of a request, such as a lost connection or a blocked address.
    pub(crate) fn from_outbound_error(provider: &str, error: &OutboundError) -> Self {
        let kind = match error {
            OutboundError::Blocked { .. } => ModelErrorKind::Blocked,
            OutboundError::Url(_) | OutboundError::Setup(_) | OutboundError::Unrecorded(..) => {
                ModelErrorKind::Request
            }
            OutboundError::Name(..) | OutboundError::Connection(..) => ModelErrorKind::Unreachable,
            OutboundError::Idle(..) | OutboundError::Time(..) => ModelErrorKind::Time,
            OutboundError::TooLarge(..) => ModelErrorKind::Cap,
            OutboundError::Incomplete(..) => ModelErrorKind::Cut,
            OutboundError::Redirects(_)
            | OutboundError::Redirect { .. }
            | OutboundError::Encoded(..) => ModelErrorKind::Malformed,
        };
        Self::new(kind, provider, error.to_string())
    }

    /// Adds the number of attempts to the message, and the wait that the provider asks for.
    pub(crate) fn after(mut self, attempts: u32) -> Self {
        if attempts > 1 {
            self.message = format!("{} (after {attempts} attempts)", self.message);
        }
        if let Some(wait) = self.retry_after {
            self.message =
                format!("{}; the provider asks to wait {}", self.message, in_words(wait));
        }
        self
    }
}

/// Words in errors about a conversation that is too long. Servers have no common error codes for
/// this, so the texts of errors are searched.
const CONTEXT: [&str; 18] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "context length",
    "context size",
    "context window",
    "context limit",
    "maximum context",
    "max_model_len",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input length",
    "too many tokens",
    "input token count",
    "maximum number of tokens allowed",
    "reduce the length of the messages",
    "request_too_large",
];

const FUNDS: [&str; 5] = [
    "insufficient_quota",
    "billing",
    "credit balance",
    "insufficient credits",
    "insufficient balance",
];

const REFUSED: [&str; 4] =
    ["content_policy", "content_filter", "invalid_prompt", "flagged as potentially"];

const BUSY: [&str; 6] =
    ["overloaded", "rate_limit", "rate limit", "too many requests", "server_busy", "at capacity"];

const KEY: [&str; 7] = [
    "api key not valid",
    "authentication_error",
    "invalid_api_key",
    "incorrect api key",
    "invalid x-api-key",
    "permission_error",
    "invalid token",
];

const MODEL: [&str; 6] = [
    "model_not_found",
    "not_found_error",
    "not a valid model",
    "model not found",
    "unknown model",
    "does not exist",
];

/// Returns the kind of a server's error. `status` is `None` for an error inside an answer.
pub(crate) fn classify(status: Option<StatusCode>, error: &ServerError) -> ModelErrorKind {
    let words = format!("{} {}", error.kind, error.message).to_ascii_lowercase();
    // 0 stands for an error inside an answer.
    let code = status.map_or(0, |status| status.as_u16());
    let is_fault_of_request = matches!(code, 0 | 400 | 413 | 422 | 500);
    // The order matters: words in the message take precedence over a general status.
    match code {
        _ if is_fault_of_request && has_any(&words, &CONTEXT) => ModelErrorKind::Context,
        402 => ModelErrorKind::Funds,
        0 | 400 | 403 | 429 if has_any(&words, &FUNDS) => ModelErrorKind::Funds,
        401 => ModelErrorKind::Key,
        413 => ModelErrorKind::Context,
        0 | 400 | 403 | 422 if has_any(&words, &REFUSED) => ModelErrorKind::Refused,
        0 | 400 | 403 if has_any(&words, &KEY) => ModelErrorKind::Key,
        403 => ModelErrorKind::Key,
        404 => ModelErrorKind::Model,
        0 | 400 | 422 if has_any(&words, &MODEL) => ModelErrorKind::Model,
        429 | 503 | 529 => ModelErrorKind::Busy,
        0 if has_any(&words, &BUSY) => ModelErrorKind::Busy,
        408 | 409 | 425 | 500.. => ModelErrorKind::Server,
        0 if words.contains("invalid_request") => ModelErrorKind::Request,
        0 => ModelErrorKind::Server,
        300..400 => ModelErrorKind::Malformed,
        _ => ModelErrorKind::Request,
    }
}

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ModelErrorKind as Kind;

    /// Bodies as servers send them.
    #[test]
    fn errors_of_servers_are_told_apart() {
        let cases: [(u16, &str, Kind); 31] = [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                Kind::Key,
            ),
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided: sk-1","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Kind::Key,
            ),
            (403, r#"{"error":{"type":"permission_error","message":"no"}}"#, Kind::Key),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 205000 tokens > 200000 maximum"}}"#,
                Kind::Context,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
                Kind::Context,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                Kind::Context,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}"#,
                Kind::Context,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                Kind::Context,
            ),
            (400, r#"{"error":"the input length exceeds the context length"}"#, Kind::Context),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                Kind::Context,
            ),
            (
                0,
                r#"{"type":"response.failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}"#,
                Kind::Context,
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#,
                Kind::Model,
            ),
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                Kind::Model,
            ),
            (400, r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#, Kind::Model),
            (404, r#"{"error":"model 'x' not found"}"#, Kind::Model),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Kind::Funds,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Kind::Funds,
            ),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Kind::Funds),
            (
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
                Kind::Busy,
            ),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Busy,
            ),
            (
                503,
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                Kind::Busy,
            ),
            (
                0,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Busy,
            ),
            (
                500,
                r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#,
                Kind::Server,
            ),
            (502, "<html>", Kind::Server),
            (0, r#"{"error":{"message":"ToolSource returned error","code":502}}"#, Kind::Server),
            (
                400,
                r#"{"error":{"message":"flagged","type":"invalid_request_error","code":"content_policy_violation"}}"#,
                Kind::Refused,
            ),
            (
                400,
                r#"{"error":{"message":"Unrecognized request argument supplied: x","type":"invalid_request_error"}}"#,
                Kind::Request,
            ),
            (422, r#"{"detail":"extra fields not permitted"}"#, Kind::Request),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
                Kind::Key,
            ),
            (
                429,
                r#"[{ "error": {"code": 429, "message": "try later", "status": "RESOURCE_EXHAUSTED"}}]"#,
                Kind::Busy,
            ),
            (302, "", Kind::Malformed),
        ];
        for (status, body, expected) in cases {
            let error = ServerError::find(body).unwrap_or_default();
            let status = StatusCode::from_u16(status).ok();
            assert_eq!(classify(status, &error), expected, "{status:?} {body}");
            assert_eq!(error.message.is_empty(), !body.starts_with(['{', '[']), "{body}");
        }
    }

    #[test]
    fn words_of_servers_are_found_bounded_and_neutral() {
        let inner = r#"{"error":{"message":"{\"error\":{\"message\":\"the inner one\",\"type\":\"t\"}}","code":500}}"#;
        assert_eq!(ServerError::find(inner).expect("is one").to_string(), "the inner one (t)");
        let long = format!(r#"{{"error":{{"message":"a\u001b[2J\n{}"}}}}"#, "b".repeat(10_000));
        let found = ServerError::find(&long).expect("is one").to_string();
        assert!(found.len() < 600 && !found.contains(['\u{1b}', '\n']), "{found}");
    }
}
