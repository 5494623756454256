//! Placeholders: texts that stand for secrets in the environment of programs. In the headers of
//! requests to a secret's hosts, the secret takes the place of its placeholder.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request};
use toolhold_policy::egress::{Placement, PrivateHosts, SecretRule, Target};

use crate::record::Record;
use crate::{Egress, Error, Settings};

/// Bytes of the headers of a request or a response.
pub(super) const MAX_HEADER_BYTES: usize = 128 * 1024;

/// The start of each placeholder. Redaction leaves a text with this word as it is.
const START: &str = "placeholder_";

/// Random bytes in a placeholder, so that no program can guess the placeholder of another session.
const RANDOM_BYTES: usize = 16;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The placeholders for the secrets of one table.
#[derive(Debug)]
pub(super) struct Placeholders(Vec<Placeholder>);

#[derive(Debug)]
struct Placeholder {
    /// The index of the secret in the settings.
    secret: usize,
    /// The variable and its value, the placeholder.
    variable: (String, String),
}

impl Placeholders {
    /// Makes the placeholders for all secrets that programs get.
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let mut placeholders = Vec::new();
        for (secret, known) in settings.secrets.iter().enumerate() {
            if let Placement::Placeholder { variable } = &known.rule.placement {
                let variable = (variable.clone(), new_placeholder()?);
                placeholders.push(Placeholder { secret, variable });
            }
        }
        Ok(Self(placeholders))
    }

    /// Returns the environment variables with the placeholders.
    pub(super) fn variables(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().map(|placeholder| &placeholder.variable)
    }

    /// Puts the secrets of a request's host in place of their placeholders. Records the secrets,
    /// and a notice for each placeholder that stays.
    pub(super) async fn insert_secrets<B>(
        &self,
        egress: &Egress,
        request: &mut Request<B>,
        target: &Target,
        record: &Record,
    ) -> Result<(), Error> {
        let settings = egress.settings();
        let private: Vec<PrivateHosts> =
            settings.reach.private.iter().map(|placed| placed.value.clone()).collect();
        let mut has_secrets = false;
        for Placeholder { secret: index, variable: (_, placeholder) } in &self.0 {
            if !has_placeholder(request.headers(), placeholder) {
                continue;
            }
            let rule = &settings.secrets[*index].rule;
            let path = request.uri().path();
            if !rule.applies_to(target, request.method().as_str(), path, &private) {
                let method = request.method();
                record.notice(withheld(egress, rule, target, method, path, &private));
                continue;
            }
            let value = egress.secret(*index).await?;
            replace_in_headers(request.headers_mut(), placeholder, value)
                .ok_or(Error::RequestHeaders(MAX_HEADER_BYTES))?;
            record.add_secret(&rule.name);
            has_secrets = true;
        }
        if has_secrets {
            egress.update_echoes();
        }
        Ok(())
    }
}

fn withheld(
    egress: &Egress,
    rule: &SecretRule,
    target: &Target,
    method: &Method,
    path: &str,
    private: &[PrivateHosts],
) -> String {
    let mismatch = rule.mismatch(target, method.as_str(), path, private);
    egress.describe_withheld(rule, mismatch, target, method)
}

fn new_placeholder() -> Result<String, Error> {
    let mut random = [0; RANDOM_BYTES];
    let provider = rustls::crypto::ring::default_provider();
    if provider.secure_random.fill(&mut random).is_err() {
        return Err(Error::Setup("the system has no random numbers".to_owned()));
    }
    let mut text = START.to_owned();
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn has_placeholder(headers: &HeaderMap, placeholder: &str) -> bool {
    headers.iter().any(|(name, value)| replaced(name, value, placeholder, placeholder).is_some())
}

/// Puts a secret in place of its placeholder. Returns `None` if a header becomes too long or isn't
/// valid.
fn replace_in_headers(headers: &mut HeaderMap, placeholder: &str, secret: &str) -> Option<()> {
    for (name, value) in headers.iter_mut() {
        let Some(text) = replaced(name, value, placeholder, secret) else { continue };
        if text.len() > MAX_HEADER_BYTES {
            return None;
        }
        *value = HeaderValue::from_bytes(&text).ok()?;
        value.set_sensitive(true);
    }
    Some(())
}

/// Returns the value of a header with the secret in place of the placeholder. Returns `None` if the
/// value has no placeholder.
fn replaced(
    name: &HeaderName,
    value: &HeaderValue,
    placeholder: &str,
    secret: &str,
) -> Option<Vec<u8>> {
    if name == AUTHORIZATION
        && let Some(credentials) = basic_credentials(value)
    {
        let text = replaced_text(&credentials, placeholder, secret)?;
        return Some(format!("Basic {}", STANDARD.encode(text)).into_bytes());
    }
    replaced_text(value.as_bytes(), placeholder, secret)
}

/// Returns the user name and the password of basic authentication.
fn basic_credentials(value: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("basic") { BASE64.decode(credentials.trim()).ok() } else { None }
}

fn replaced_text(text: &[u8], placeholder: &str, secret: &str) -> Option<Vec<u8>> {
    // A value that isn't UTF-8 keeps its placeholder.
    let text = std::str::from_utf8(text).ok()?;
    if text.contains(placeholder) {
        Some(text.replace(placeholder, secret).into_bytes())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_is_replaced_in_values_and_basic_authentication() {
        let placeholder = new_placeholder().expect("a placeholder");
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let unpadded = |text: &str| basic(text).trim_end_matches('=').to_owned();
        let cases = [
            ("authorization", format!("Bearer {placeholder}"), Some("Bearer s3cret".to_owned())),
            ("x-token", placeholder.clone(), Some("s3cret".to_owned())),
            ("authorization", basic(&format!("me:{placeholder}")), Some(basic("me:s3cret"))),
            ("authorization", unpadded(&format!("{placeholder}:")), Some(basic("s3cret:"))),
            ("x-token", basic(&format!("me:{placeholder}")), None),
            ("authorization", placeholder[..placeholder.len() - 1].to_owned(), None),
            ("authorization", "Basic !".to_owned(), None),
        ];
        for (name, written, expected) in cases {
            let name = HeaderName::from_static(name);
            let value = HeaderValue::try_from(&written).expect("a value");
            let replaced = replaced(&name, &value, &placeholder, "s3cret");
            assert_eq!(replaced, expected.map(String::into_bytes), "{written}");
        }
    }

    #[test]
    fn too_long_header_is_refused() {
        let placeholder = new_placeholder().expect("a placeholder");
        let mut headers = HeaderMap::new();
        let value = HeaderValue::try_from(placeholder.repeat(100)).expect("a value");
        headers.insert("x-many", value);
        assert!(replace_in_headers(&mut headers, &placeholder, &"x".repeat(4096)).is_none());
    }
}
