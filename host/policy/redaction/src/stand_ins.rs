//! Recognises placeholders and references: `changeme`, `${TOKEN}`, `os.environ["KEY"]`. They aren't
//! secrets.

/// Checks whether a value is a placeholder for the user to replace, or is already hidden.
pub(super) fn is_placeholder(value: &str) -> bool {
    let value = value.trim_end_matches(['.', ',', ';', '!']);
    let first = value.chars().next();
    if value.chars().all(|c| Some(c) == first || c == '-' || c == '.') {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    const WHOLE: [&str; 26] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "mypassword",
        "my-password",
        "my_password",
        "mysecret",
        "my-secret",
        "token",
        "mytoken",
        "my-token",
        "api_key",
        "apikey",
        "api-key",
        "undefined",
        "required",
        "optional",
        "nullable",
        "disabled",
        "enabled",
        "username",
        "string",
        "boolean",
        "hidden",
        "changed",
    ];
    const WITHIN: [&str; 16] = [
        "example",
        "placeholder",
        "changeme",
        "change-me",
        "change_me",
        "your-",
        "your_",
        "yourpassword",
        "yoursecret",
        "dummy",
        "replace-me",
        "replace_me",
        "insert_",
        "insert-",
        "xxxx",
        "****",
    ];
    // A text that only looks like a mark of Toolhold isn't a placeholder.
    let hidden = lower.trim_start_matches(['[', '<', '*', '(']);
    if hidden.starts_with("redacted") && !hidden.starts_with("redacted:") {
        return true;
    }
    WHOLE.contains(&lower.as_str())
        || WITHIN.iter().any(|word| lower.contains(word))
        || lower.starts_with("<")
        || lower.ends_with("...")
}

/// Checks whether a value isn't a secret itself, but refers to one: a variable, an expression, a
/// file or an entry of a vault. `quoted` means that the value has quotes.
pub(super) fn is_reference(value: &str, quoted: bool) -> bool {
    let first_byte = value.as_bytes()[0];
    if matches!(first_byte, b'$' | b'<' | b'{' | b'[' | b'(') {
        let is_mark = value.starts_with("[REDACTED:");
        let is_hash = quoted && first_byte == b'$' && is_crypt(value);
        if !is_mark && !is_hash {
            return true;
        }
    }
    if value.starts_with("%(")
        || value.starts_with("%{")
        || value.starts_with("#{")
        || value.starts_with("{{")
        || value.contains("${")
    {
        return true;
    }
    if !quoted && is_expression(value) {
        return true;
    }
    for scheme in [
        "env:",
        "env.",
        "file:",
        "vault:",
        "secret:",
        "ref:",
        "op://",
        "arn:",
        "ssm:",
        "keyring:",
        "http://",
        "https://",
        "projects/",
    ] {
        if value.starts_with(scheme) && !value.contains('@') {
            return true;
        }
    }
    let path = value
        .strip_prefix('~')
        .or(value.strip_prefix(".."))
        .or(value.strip_prefix('.'))
        .unwrap_or(value);
    path.starts_with('/')
        && path.bytes().all(|byte| {
            byte.is_ascii_lowercase()
                || byte.is_ascii_digit()
                || matches!(byte, b'/' | b'.' | b'_' | b'-')
        })
}

/// Checks whether a value without quotes is code. Examples are `&NAME`, `get_token(x)`,
/// `os.environ["TOKEN"]`, `config.password` and `Option<String>`.
fn is_expression(value: &str) -> bool {
    let first_byte = value.as_bytes()[0];
    let has_operator = matches!(first_byte, b'!' | b'&' | b'*' | b'@');
    if has_operator && value[1..].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return true;
    }
    // A call, an index or a generic type. Names such as `os.environ` come before the bracket.
    if let Some(bracket) = value.find(['(', '[', '<'])
        && bracket > 0
        && value[..bracket].split(['.', ':', '>']).all(is_name_or_empty)
    {
        return true;
    }
    if value.contains("::") {
        return true;
    }
    if !value.contains('.') {
        return false;
    }
    for part in value.split('.') {
        // A part of a token usually has a digit, so a value with such a part may be a token.
        let has_digit = part.bytes().any(|byte| byte.is_ascii_digit());
        if has_digit || !is_name(part) {
            return false;
        }
    }
    true
}

fn is_name_or_empty(part: &str) -> bool {
    let part = part.trim_end_matches(['-', '!']);
    part.is_empty() || is_name(part)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Checks whether a value is a `crypt` hash, which starts with `$` like a variable.
fn is_crypt(value: &str) -> bool {
    let Some((id, _)) = value[1..].split_once('$') else { return false };
    (1..=10).contains(&id.len())
}
