//! Finds credentials by their place: in a URL, after `Bearer`, or in a `.netrc` file.

use super::found::{Found, count_examined};
use super::shapes::{begins, varied};

/// Bytes of the user part of a URL, before the `@`.
const MAX_USER: usize = 1024;

/// Returns the password of a URL, `scheme://user:password@host`, or a token in place of the user.
/// The `://` of the URL is at `at`.
pub(super) fn url(text: &[u8], at: usize) -> Option<Found> {
    if at == 0 || !text[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let start = at + 3;
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

    // Without a password, the user may be the key of a service. User names are shorter or are
    // words.
    let is_token = user.len() >= 20 && user.iter().all(u8::is_ascii_alphanumeric) && varied(user);
    is_token.then_some(Found { start, end, kind: "url-token" })
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

/// Checks whether the text in the place of a password is a password, and not a placeholder.
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
    let is_placeholder = words.contains(&&*lower)
        || placeholder_parts.iter().any(|part| lower.contains(part))
        || lower.eq_ignore_ascii_case(user)
        || password.bytes().all(|byte| byte.is_ascii_punctuation());
    password.len() >= 4 && !is_placeholder
}

/// Returns the token after `Bearer `, or the name and password after `Basic `.
pub(super) fn scheme(text: &[u8], at: usize) -> Option<Found> {
    if !begins(text, at) {
        return None;
    }
    // A token must follow, so a text of fewer than 6 bytes contains no secret after either word.
    let first_six = text[at..].get(..6)?;
    let is_bearer = first_six.eq_ignore_ascii_case(b"bearer");
    if !is_bearer && !first_six[..5].eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let scheme_length = if is_bearer { 6 } else { 5 };
    let after_scheme = &text[at + scheme_length..];
    let spaces = after_scheme.iter().take(4).take_while(|byte| **byte == b' ').count();
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
        let is_secret = value.len() >= 20 && varied(value) && value.iter().any(u8::is_ascii_digit);
        return is_secret.then_some(Found { start, end, kind: "bearer-token" });
    }
    if value.len() < 8 {
        return None;
    }
    let name_and_password = super::encoded::decoded(value)?;
    if !name_and_password.contains(':') || name_and_password.contains(' ') {
        return None;
    }
    Some(Found { start, end, kind: "basic-auth" })
}

/// Returns the password of a line in `.netrc`: `login NAME password WORD`.
pub(super) fn netrc(text: &[u8], at: usize) -> Option<Found> {
    let spaces = text[at..]
        .strip_prefix(b"password")?
        .iter()
        .take(8)
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    if spaces == 0 {
        return None;
    }
    let before = &text[at.saturating_sub(256)..at];
    // The login may be on the same line or on an earlier one.
    let login = before.windows(6).rposition(|window| window == b"login ")?;
    let name = before[login + 6..].trim_ascii();
    let start = at + 8 + spaces;
    let length = text[start..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    let is_name = !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace);
    if !is_name || length < 4 || matches!(text[start], b'$' | b'=' | b':' | b'[') {
        return None;
    }
    Some(Found { start, end: start + length, kind: "password" })
}
