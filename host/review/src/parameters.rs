//! The parameters of a call as a model sees them: bounded, without secrets, one a line.

use berth_core::{Body, Content};
use berth_redaction::Keys;
use serde_json::{Map, Value};

/// Characters of one parameter, and of all of them, names included.
const MAX_PARAMETER: usize = 500;
const MAX_ALL: usize = 2000;

/// Characters of a parameter's name.
const MAX_NAME: usize = 100;

/// Words of names whose values are never sent. The names are compared without case, `_`, `-` and
/// spaces.
const SECRET: [&str; 7] =
    ["password", "secret", "token", "apikey", "privatekey", "credential", "auth"];

/// The lines of a call's parameters. Each is a JSON string, a colon and a JSON string, and says how
/// much of the value it leaves out. Nothing in them ends a line or a fence, or is invisible.
pub(crate) fn parameter_lines(arguments: &Value, attachments: &[Content]) -> String {
    let mut lines = Lines { text: String::new(), left: MAX_ALL, hidden: 0 };
    match hide_secrets(arguments.clone()) {
        Value::Object(fields) => {
            for (name, value) in &fields {
                lines.add(name, &text_of(value));
            }
        }
        other => lines.add("arguments", &text_of(&other)),
    }
    for (index, part) in attachments.iter().enumerate() {
        let name = format!("attachment {index}");
        match &part.body {
            Body::Text(text) | Body::Link(text) => {
                lines.add(&name, &berth_redaction::text(text, Keys::Settings));
            }
            Body::Bytes(bytes) => {
                lines.add(&name, &format!("[{} bytes that are no text]", bytes.len()));
            }
        }
    }
    lines.finish()
}

struct Lines {
    text: String,
    /// Characters that are left of `MAX_ALL`.
    left: usize,
    /// Parameters for which nothing was left.
    hidden: usize,
}

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        if self.left == 0 {
            self.hidden += 1;
            return;
        }
        let (name, named) = head(name, MAX_NAME.min(self.left));
        self.left -= named;
        let (shown, count) = head(value, MAX_PARAMETER.min(self.left));
        self.left -= count;
        self.text += &format!("{}: {}", quoted(name), quoted(shown));
        if shown.len() < value.len() {
            let all = value.chars().count();
            self.text += &format!(" (CUT: these are the first {count} of {all} characters)");
        }
        self.text.push('\n');
    }

    fn finish(mut self) -> String {
        if self.hidden > 0 {
            self.text += &format!("(CUT: {} more parameters are not shown)\n", self.hidden);
        }
        self.text
    }
}

/// The first `most` characters, and how many they are.
fn head(text: &str, most: usize) -> (&str, usize) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], most),
        None => (text, text.chars().count()),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A JSON string in which every character is visible and none can be part of a fence.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_plain(c) => quoted.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a character is shown as it is: printable ASCII without the backtick of fences, and
/// letters of all scripts. Everything else is escaped: controls, directions, joiners, tags and the
/// like have too many forms to list.
fn is_plain(c: char) -> bool {
    match c {
        '`' => false,
        ' '..='~' => true,
        // These "letters" are blank.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        c => c.is_alphanumeric(),
    }
}

/// The arguments with marks instead of secrets: those whose name says so at any depth, and texts in
/// a known form. All of it happens before anything is cut, so that no half of a secret is left.
fn hide_secrets(arguments: Value) -> Value {
    // The length is a number meanwhile, which isn't taken for a secret again.
    let length = |value: Value| Value::from(text_of(&value).chars().count());
    let hidden = berth_redaction::json(by_name(arguments, &length), Keys::Settings);
    by_name(hidden, &|length| Value::from(format!("[REDACTED: {length} characters]")))
}

/// With what `hide` makes of each value whose name says that it is secret.
fn by_name(value: Value, hide: &dyn Fn(Value) -> Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (String, Value)| {
                let is_hidden = is_secret(&name) && !value.is_null();
                let value = if is_hidden { hide(value) } else { by_name(value, hide) };
                (name, value)
            };
            Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| by_name(item, hide)).collect())
        }
        other => other,
    }
}

fn is_secret(name: &str) -> bool {
    let name: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    SECRET.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_cut_and_say_so() {
        let lines =
            parameter_lines(&json!({ "path": "a.txt", "content": "x".repeat(1_000_000) }), &[]);
        assert!(lines.starts_with("\"path\": \"a.txt\"\n"), "{lines}");
        assert!(lines.contains("(CUT: these are the first 500 of 1000000 characters)"), "{lines}");
        let many: Map<String, Value> =
            (0..1000).map(|n| (format!("p{n:03}"), Value::from("y".repeat(400)))).collect();
        let lines = parameter_lines(&Value::Object(many), &[]);
        assert!(lines.chars().filter(|c| *c == 'y').count() < MAX_ALL && lines.len() < 2 * MAX_ALL);
        assert!(lines.contains("more parameters are not shown"), "{lines}");
        let long = json!({ "n".repeat(10_000): 1 });
        assert!(parameter_lines(&long, &[]).len() < 200);
    }

    #[test]
    fn secrets_are_hidden_by_name_and_by_form() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        let arguments = json!({
            "Password": "hunter2", "apiKey": "k-1", "x-api_key": "k-2", "PRIVATE-KEY": ["k-3"],
            "headers": { "Authorization": "Bearer k-4" }, "list": [{ "client_secret": { "k-5": 6 } }],
            "credentials": 77_123, "token": null, "text": format!("use {token} now"), "path": "k-9",
        });
        let lines = parameter_lines(&arguments, &[Content::text(format!("key {token}"))]);
        for secret in ["hunter2", "k-1", "k-2", "k-3", "k-4", "k-5", "77123", &token[4..]] {
            assert!(!lines.contains(secret), "{secret} is in:\n{lines}");
        }
        assert!(lines.contains("\"Password\": \"[REDACTED: 7 characters]\"\n"), "{lines}");
        assert!(lines.contains("k-9") && lines.contains("\"attachment 0\""), "{lines}");
    }

    #[test]
    fn secret_at_the_cut_leaves_no_half() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        for before in 440..=500 {
            let text = format!("{} {token}", "x".repeat(before));
            let lines = parameter_lines(&json!({ "text": text }), &[]);
            assert!(!lines.contains("a1B2"), "{before}: {lines}");
        }
    }

    #[test]
    fn nothing_steers_or_hides() {
        let text = "a\u{202e}b\u{200b}c\u{1b}[2J\u{e0041}\u{3164}\u{feff}`é漢\r\u{2028}\"\\";
        let escaped = quoted(text);
        assert_eq!(serde_json::from_str::<String>(&escaped).expect("it is JSON"), text);
        let plain =
            |c: char| c == 'é' || c == '漢' || (c.is_ascii_graphic() || c == ' ') && c != '`';
        assert!(escaped.chars().all(plain), "{escaped}");
    }
}
