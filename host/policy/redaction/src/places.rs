//! Finds credentials by the text around them: in a URL, after `Bearer`, or in a `.netrc` file.

use super::found::{Found, count_examined};
use super::shapes::{looks_random, may_begin};

/// Bytes before the `@` of a URL. A longer user part isn't searched.
const MAX_USER: usize = 1024;

/// Bytes of a token in place of the user of a URL, or after `Bearer`. Names of users are shorter.
const MIN_TOKEN: usize = 20;

/// Bytes of the shortest credentials after `Basic`.
const MIN_BASIC: usize = 8;

/// Bytes of the shortest password in `.netrc`.
const MIN_PASSWORD: usize = 4;

/// Spaces after `Bearer`, `Basic` or `password`.
const MAX_SPACES_AFTER_SCHEME: usize = 4;
const MAX_SPACES_AFTER_PASSWORD: usize = 8;

/// Bytes before `password` in `.netrc` in which `login` is searched.
const MAX_BEFORE_PASSWORD: usize = 256;

/// Returns the password of a URL, `scheme://user:password@host`, or the token in place of the user.
/// The `://` is at `at`.
pub(super) fn url(text: &[u8], at: usize) -> Option<Found> {
    if at == 0 || !text[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let start = at + b"://".len();
    let after_scheme = &text[start..text.len().min(start + MAX_USER)];
    let authority_end = after_scheme.iter().position(|byte| ends_authority(*byte));
    let authority = &after_scheme[..authority_end.unwrap_or(after_scheme.len())];
    let user_length = authority.iter().rposition(|byte| *byte == b'@')?;
    let user = &authority[..user_length];
    let end = start + user_length;

    if let Some(colon) = user.iter().position(|byte| *byte == b':') {
        let name = std::str::from_utf8(&user[..colon]).ok()?;
        let password = std::str::from_utf8(&user[colon + 1..]).ok()?;
        if !is_password(name, password) {
            return None;
        }
        return Some(Found { start: start + colon + 1, end, kind: "url-password" });
    }

    // Without a password, the user may be a token. A token is long and looks random, unlike the
    // name of a user.
    let is_long_word = user.len() >= MIN_TOKEN && user.iter().all(u8::is_ascii_alphanumeric);
    if !is_long_word || !looks_random(user) {
        return None;
    }
    Some(Found { start, end, kind: "url-token" })
}

fn ends_authority(byte: u8) -> bool {
    matches!(
        byte,
        b'/' | b'?'
            | b'#'
            | b' '
            | b'\t'
            | b'\n'
            | b'\r'
            | b'"'
            | b'\''
            | b'`'
            | b'<'
            | b'>'
            | b'\\'
            | b','
            | b'|'
    )
}

/// Checks whether a password isn't a placeholder.
fn is_password(user: &str, password: &str) -> bool {
    let lower = password.to_ascii_lowercase();
    let words = [
        "pass",
        "password",
        "passwd",
        "pwd",
        "pw",
        "secret",
        "token",
        "user",
        "foo",
        "bar",
        "baz",
        "port",
        "test",
        "hunter2",
        "pass%20word",
    ];
    let placeholder_parts = [
        "$",
        "{",
        "}",
        "<",
        "%s",
        "%v",
        "xxx",
        "***",
        "...",
        "example",
        "placeholder",
        "your",
        "redacted",
        "[redacted:",
    ];
    let is_placeholder = words.contains(&lower.as_str())
        || placeholder_parts.iter().any(|part| lower.contains(part))
        || lower.eq_ignore_ascii_case(user)
        || password.bytes().all(|byte| byte.is_ascii_punctuation());
    password.len() >= 4 && !is_placeholder
}

/// Returns the token after the `Bearer ` at `at`, or the credentials after the `Basic ` at `at`.
pub(super) fn scheme(text: &[u8], at: usize) -> Option<Found> {
    if !may_begin(text, at) {
        return None;
    }
    let first_bytes = text[at..].get(..b"bearer".len())?;
    let is_bearer = first_bytes.eq_ignore_ascii_case(b"bearer");
    let is_basic = first_bytes[..b"basic".len()].eq_ignore_ascii_case(b"basic");
    if !is_bearer && !is_basic {
        return None;
    }
    let scheme_length = if is_bearer { b"bearer".len() } else { b"basic".len() };
    let after_scheme = text[at + scheme_length..].iter().take(MAX_SPACES_AFTER_SCHEME);
    let spaces = after_scheme.take_while(|byte| **byte == b' ').count();
    if spaces == 0 {
        return None;
    }

    let start = at + scheme_length + spaces;
    let token = text[start..].iter().take_while(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    });
    let end = start + token.count();
    count_examined(end - start);
    let value = &text[start..end];

    if is_bearer {
        let has_digit = value.iter().any(u8::is_ascii_digit);
        if value.len() < MIN_TOKEN || !has_digit || !looks_random(value) {
            return None;
        }
        return Some(Found { start, end, kind: "bearer-token" });
    }
    if value.len() < MIN_BASIC {
        return None;
    }
    let name_and_password = super::encoded::decoded(value)?;
    if !name_and_password.contains(':') || name_and_password.contains(' ') {
        return None;
    }
    Some(Found { start, end, kind: "basic-auth" })
}

/// Returns the password of a line in `.netrc`, such as `login NAME password WORD`. The word
/// `password` is at `at`.
pub(super) fn netrc(text: &[u8], at: usize) -> Option<Found> {
    let spaces = text[at..]
        .strip_prefix(b"password")?
        .iter()
        .take(MAX_SPACES_AFTER_PASSWORD)
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    if spaces == 0 {
        return None;
    }
    // The login may be on an earlier line.
    let before = &text[at.saturating_sub(MAX_BEFORE_PASSWORD)..at];
    let login = before.windows(b"login ".len()).rposition(|window| window == b"login ")?;
    let name = before[login + b"login ".len()..].trim_ascii();
    let is_one_word = !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace);
    if !is_one_word {
        return None;
    }

    let start = at + b"password".len() + spaces;
    let length = text[start..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    if length < MIN_PASSWORD {
        return None;
    }
    // A value such as `$PASSWORD` isn't the password itself.
    if matches!(text[start], b'$' | b'=' | b':' | b'[') {
        return None;
    }
    Some(Found { start, end: start + length, kind: "password" })
}
