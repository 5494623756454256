//! Finds credentials by their place: in a URL, after `Bearer`, in a `.netrc` file.

use super::found::{Found, count_examined};
use super::shapes::{begins, varied};

/// Bytes of the user part of a URL, before the `@`.
const MAX_USER: usize = 1024;

/// The password of a URL, found by its `://`: in `scheme://user:password@host`, or a token that is
/// the user.
pub(super) fn url(text: &[u8], at: usize) -> Option<Found> {
    if at == 0 || !text[at - 1].is_ascii_alphanumeric() {
        return None;
    }
    let start = at + 3;
    let rest = &text[start..text.len().min(start + MAX_USER)];
    let end = rest.iter().position(|byte| ends_authority(*byte));
    let authority = &rest[..end.unwrap_or(rest.len())];
    let user = &authority[..authority.iter().rposition(|byte| *byte == b'@')?];
    match user.iter().position(|byte| *byte == b':') {
        Some(colon) => {
            let password = std::str::from_utf8(&user[colon + 1..]).ok()?;
            let name = std::str::from_utf8(&user[..colon]).ok()?;
            is_password(name, password).then_some(Found {
                start: start + colon + 1,
                end: start + user.len(),
                kind: "url-password",
            })
        }
        // The key of a service. A user name is shorter, or a word.
        None => (user.len() >= 20 && user.iter().all(u8::is_ascii_alphanumeric) && varied(user))
            .then_some(Found { start, end: start + user.len(), kind: "url-token" }),
    }
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

/// Whether the text in the place of a password is a password, and not a placeholder.
fn is_password(user: &str, password: &str) -> bool {
    let lower = password.to_ascii_lowercase();
    let word = [
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
    let placeholder = [
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
    password.len() >= 4
        && !word.contains(&&*lower)
        && !placeholder.iter().any(|text| lower.contains(text))
        && !lower.eq_ignore_ascii_case(user)
        && !password.bytes().all(|byte| byte.is_ascii_punctuation())
}

/// The token after `Bearer `, or the name and password after `Basic `.
pub(super) fn scheme(text: &[u8], at: usize) -> Option<Found> {
    if !begins(text, at) {
        return None;
    }
    let (kind, length) = if text[at..].get(..6)?.eq_ignore_ascii_case(b"bearer") {
        ("bearer-token", 6)
    } else {
        ("basic-auth", 5)
    };
    if kind == "basic-auth" && !text[at..].get(..5)?.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let spaces = text[at + length..].iter().take(4).take_while(|byte| **byte == b' ').count();
    if spaces == 0 {
        return None;
    }
    let start = at + length + spaces;
    let token = text[start..].iter().take_while(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    });
    let end = start + token.count();
    count_examined(end - start);
    let value = &text[start..end];
    let is_secret = match kind {
        "bearer-token" => {
            value.len() >= 20 && varied(value) && value.iter().any(u8::is_ascii_digit)
        }
        _ => {
            value.len() >= 8
                && super::encoded::decoded(value)
                    .is_some_and(|plain| plain.contains(':') && !plain.contains(' '))
        }
    };
    is_secret.then_some(Found { start, end, kind })
}

/// The password of a line in `.netrc`: `login NAME password WORD`.
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
    let whole = !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace) && length >= 4;
    (whole && !matches!(text[start], b'$' | b'=' | b':' | b'[')).then_some(Found {
        start,
        end: start + length,
        kind: "password",
    })
}
