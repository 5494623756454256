//! The parameters of a reviewed call as the reviewing model sees them: truncated, without secrets,
//! one per line.

use serde_json::{Map, Value};
use toolhold_core::{Body, Content};
use toolhold_redaction::Keys;

/// The most characters of one parameter, including its name.
const MAX_PARAMETER: usize = 500;
const MAX_ALL: usize = 2000;

/// Characters of a parameter's name.
const MAX_NAME: usize = 100;

/// Words in names whose values are never sent. Case, `_`, `-` and spaces in a name are ignored.
const SECRET: [&str; 4] = ["password", "secret", "token", "credential"];
const AUTH: [&str; 3] = ["auth", "authorization", "authentication"];

/// Bytes of a secret.
const MAX_SECRET: usize = 4096;

/// The reason why a call can't be judged. A hidden text may do something if it is more than a
/// secret.
const UNSEEN: &str =
    "it has a string in the form of a secret, which may hide something else from the model";

/// Writes the lines of a call's parameters. Each line is a JSON string, a colon and a JSON string.
/// A truncated value has its length in the line. All characters are visible, and no text can end
/// its line or the fence.
///
/// # Errors
///
/// Returns an error if a secret, or a text that looks like a secret, has more than one word. The
/// model would not see everything that the call does.
pub(crate) fn parameter_lines(
    arguments: &Value,
    attachments: &[Content],
) -> Result<String, &'static str> {
    let mut lines = Lines { text: String::new(), left: MAX_ALL, hidden: 0 };
    match hide_secrets(arguments)? {
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
                let shown = toolhold_redaction::text(text, Keys::Settings).into_owned();
                check_hidden(text, &shown)?;
                lines.add(&name, &shown);
            }
            Body::Bytes(bytes) => {
                lines.add(&name, &format!("[{} bytes that are no text]", bytes.len()));
            }
        }
    }
    Ok(lines.finish())
}

struct Lines {
    text: String,
    /// The number of characters that `MAX_ALL` still allows.
    left: usize,
    /// The number of parameters that are left out because `MAX_ALL` is reached.
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

/// Returns the first `most` characters, and the number of all characters.
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

/// Returns a JSON string in which every character is visible and no character can end a fence.
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

/// Checks whether a character needs no escape. Printable ASCII except the backtick, and the letters
/// of all scripts, need no escape. Controls, directions, joiners, tags and similar characters have
/// too many forms to list, so all other characters are escaped.
fn is_plain(c: char) -> bool {
    match c {
        '`' => false,
        ' '..='~' => true,
        // These letters have no visible shape.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        c => c.is_alphanumeric(),
    }
}

/// Replaces secrets in the arguments with marks. A value is secret if its name says so, at any
/// depth, or if it has a known form of a secret. Values are truncated only afterwards, so that no
/// part of a secret remains.
fn hide_secrets(arguments: &Value) -> Result<Value, &'static str> {
    // In this step, the length replaces the secret. A number isn't detected as a secret again.
    let named = by_name(arguments, false, &|value| {
        let text = text_of(value);
        if is_bare(&text) { Ok(Value::from(text.chars().count())) } else { Err(UNSEEN) }
    })?;
    let hidden = toolhold_redaction::json(named.clone(), Keys::Settings);
    check_same(&named, &hidden)?;
    by_name(&hidden, false, &|value| match value {
        Value::Number(length) => Ok(format!("[REDACTED: {length} characters]").into()),
        marked => Ok(marked.clone()),
    })
}

/// A function that replaces a value whose name says that it is secret.
type Hide<'a> = dyn Fn(&Value) -> Result<Value, &'static str> + 'a;

/// Replaces single values with the result of `hide`. A value is replaced if its own name, or the
/// name of a value around it, says that it is secret.
fn by_name(value: &Value, is_hidden: bool, hide: &Hide<'_>) -> Result<Value, &'static str> {
    Ok(match value {
        Value::Object(fields) => {
            let mut replaced = Map::new();
            for (name, value) in fields {
                let value = by_name(value, is_hidden || is_secret(name), hide)?;
                replaced.insert(name.clone(), value);
            }
            Value::Object(replaced)
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| by_name(item, is_hidden, hide));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Null => Value::Null,
        value if is_hidden => hide(value)?,
        value => value.clone(),
    })
}

/// Checks whether a text is one word, which may follow the name of a scheme. Secrets are single
/// words. A text that runs a command, or has several words, contains spaces or shell characters.
fn is_bare(text: &str) -> bool {
    let schemes = ["Bearer ", "Basic ", "Token ", "token "];
    let word = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    word.len() <= MAX_SECRET
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-+/=.~:@%!#^*,?[]".contains(c))
}

/// Checks that a mark in a text replaces one word.
fn check_hidden(text: &str, shown: &str) -> Result<(), &'static str> {
    let text_length = text.chars().count();
    let same_start = count_same(text.chars(), shown.chars());
    // The start and the end may not overlap.
    let most_end = text_length.min(shown.chars().count()) - same_start;
    let same_end = count_same(text.chars().rev().take(most_end), shown.chars().rev());
    let hidden_length = text_length - same_start - same_end;
    let hidden: String = text.chars().skip(same_start).take(hidden_length).collect();
    if is_bare(&hidden) { Ok(()) } else { Err(UNSEEN) }
}

/// Returns the number of characters that are the same before the first difference.
fn count_same(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Checks that each mark in the texts of a value replaces one word.
fn check_same(value: &Value, shown: &Value) -> Result<(), &'static str> {
    match (value, shown) {
        (Value::Object(fields), Value::Object(others)) => {
            if fields.len() != others.len() {
                return Err(UNSEEN);
            }
            let mut both = fields.iter().zip(others);
            both.try_for_each(|((_, one), (_, other))| check_same(one, other))
        }
        (Value::Array(items), Value::Array(others)) => {
            if items.len() != others.len() {
                return Err(UNSEEN);
            }
            items.iter().zip(others).try_for_each(|(one, other)| check_same(one, other))
        }
        (Value::String(text), Value::String(shown)) => check_hidden(text, shown),
        (Value::Object(_) | Value::Array(_), _) => Err(UNSEEN),
        _ => Ok(()),
    }
}

/// Checks whether a word of a name says that the value is secret.
fn is_secret(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        let begins_camel_word = c.is_uppercase() && was_small;
        if !c.is_alphanumeric() || begins_camel_word {
            words.push(String::new());
        }
        was_small = c.is_lowercase();
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    let all = words.concat();
    words
        .iter()
        .any(|word| SECRET.iter().any(|secret| word.starts_with(secret)) || AUTH.contains(&&**word))
        || ["apikey", "privatekey"].iter().any(|secret| all.contains(secret))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_cut_and_say_so() {
        let lines =
            parameter_lines(&json!({ "path": "a.txt", "content": "x".repeat(1_000_000) }), &[])
                .unwrap();
        assert!(lines.starts_with("\"path\": \"a.txt\"\n"), "{lines}");
        assert!(lines.contains("(CUT: these are the first 500 of 1000000 characters)"), "{lines}");
        let many: Map<String, Value> =
            (0..1000).map(|n| (format!("p{n:03}"), Value::from("y".repeat(400)))).collect();
        let lines = parameter_lines(&Value::Object(many), &[]).unwrap();
        assert!(lines.chars().filter(|c| *c == 'y').count() < MAX_ALL && lines.len() < 2 * MAX_ALL);
        assert!(lines.contains("more parameters are not shown"), "{lines}");
        let long = json!({ "n".repeat(10_000): 1 });
        assert!(parameter_lines(&long, &[]).unwrap().len() < 200);
    }

    #[test]
    fn secrets_are_hidden_by_name_and_by_form() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        let arguments = json!({
            "Password": "hunter2", "apiKey": "k-1", "x-api_key": "k-2", "PRIVATE-KEY": ["k-3"],
            "headers": { "Authorization": "Bearer k-4" }, "list": [{ "client_secret": { "inner": "k-5" } }],
            "credentials": 77_123, "token": null, "text": format!("use {token} now"), "path": "k-9",
        });
        let lines = parameter_lines(&arguments, &[Content::text(format!("key {token}"))]).unwrap();
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
            let lines = parameter_lines(&json!({ "text": text }), &[]).unwrap();
            assert!(!lines.contains("a1B2"), "{before}: {lines}");
        }
    }

    #[test]
    fn what_may_hide_more_than_a_secret_is_not_judged() {
        let key = "a1B2c3D4e5F6g7H8".repeat(3);
        for arguments in [
            json!({ "command": format!(": -----BEGIN PRIVATE KEY-----\n: {key}\ntouch x\n: {key}\n: -----END PRIVATE KEY-----") }),
            json!({ "command": "PASSWORD=\"x9Kd82mZqPw1$(touch x)\" true" }),
            json!({ "command": "PASSWORD=x9Kd82mZqPw1 touch x" }),
            json!({ "content": "PASSWORD=\"x9Kd82mZqPw1$(touch x)\"\n" }),
            json!({ "json": { "token": { "do": "sink the harbour" } } }),
            json!({ "token": "rm -rf ." }),
            json!({ "secrets": ["a", "b; c"] }),
        ] {
            match parameter_lines(&arguments, &[]) {
                Err(_) => {}
                // What is shown is all that it does.
                Ok(lines) => assert!(lines.contains("touch x"), "{arguments}: {lines}"),
            }
        }
        let shown = parameter_lines(&json!({ "author": "harbour", "authors": ["b c"] }), &[]);
        assert!(shown.unwrap().contains("harbour"));
        let nested = parameter_lines(&json!({ "token": { "do": "k-7" } }), &[]).unwrap();
        assert!(nested.contains("do") && !nested.contains("k-7"), "{nested}");
        let attached =
            Content::text(": -----BEGIN PRIVATE KEY-----\nsink it\n-----END PRIVATE KEY-----");
        if let Ok(lines) = parameter_lines(&json!({}), &[attached]) {
            assert!(lines.contains("sink it"), "{lines}");
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
