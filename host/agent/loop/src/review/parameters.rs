//! The parameters of a reviewed call as the reviewing model reads them: cut, without secrets, one
//! per line.

use serde_json::{Map, Value};
use toolhold_core::{Body, Content};
use toolhold_redaction::Keys;

/// The most characters of one parameter, including its name.
const MAX_PARAMETER: usize = 500;

/// The most characters of all parameters.
const MAX_TOTAL: usize = 2000;

const MAX_NAME: usize = 100;

/// Values are secret if a word in their name starts with one of these words, in any case.
const SECRET_WORDS: [&str; 4] = ["password", "secret", "token", "credential"];

/// Values are secret if a word in their name is one of these words, in any case.
const AUTH_WORDS: [&str; 3] = ["auth", "authorization", "authentication"];

/// Values are secret if their name contains one of these names, in any case. For example,
/// `api_key`, `API-Key` and `api key` contain `apikey`.
const KEY_NAMES: [&str; 2] = ["apikey", "privatekey"];

/// If a longer text would be hidden, the call can't be judged, because the text may be more than a
/// secret.
const MAX_SECRET: usize = 4096;

/// The reason why a call can't be judged. The reviewing model must see every command, and a hidden
/// text could contain a command.
const UNSEEN_MESSAGE: &str =
    "the call has a string in the form of a secret, which may hide something else from the model";

/// Writes the parameters of a call, one per line, as two JSON strings with a colon. A cut value is
/// followed by its full length. Secrets are replaced. All characters are visible, and no text can
/// end its line or the fence around the data.
///
/// # Errors
///
/// Fails if a secret has more than one word. A text of several words may be a command, which the
/// reviewing model must see.
pub(crate) fn parameter_lines(
    arguments: &Value,
    attachments: &[Content],
) -> Result<String, &'static str> {
    let mut lines = Lines { text: String::new(), total_left: MAX_TOTAL, left_out: 0 };
    match hide_secrets(arguments)? {
        Value::Object(fields) => {
            for (name, value) in &fields {
                lines.add(name, &text_of(value));
            }
        }
        other => lines.add("arguments", &text_of(&other)),
    }
    for (index, part) in attachments.iter().enumerate() {
        lines.add_attachment(index, part)?;
    }
    Ok(lines.finish())
}

struct Lines {
    text: String,
    /// The number of characters that are left of [`MAX_TOTAL`].
    total_left: usize,
    /// The number of parameters that didn't fit into [`MAX_TOTAL`].
    left_out: usize,
}

impl Lines {
    /// Adds the line of a parameter, or only counts the parameter if no characters are left.
    fn add(&mut self, name: &str, value: &str) {
        if self.total_left == 0 {
            self.left_out += 1;
            return;
        }
        let (shown_name, name_length) = head(name, MAX_NAME.min(self.total_left));
        self.total_left -= name_length;
        let (shown, shown_length) = head(value, MAX_PARAMETER.min(self.total_left));
        self.total_left -= shown_length;
        self.text += &format!("{}: {}", quoted(shown_name), quoted(shown));
        let is_cut = shown.len() < value.len();
        if is_cut {
            let all = value.chars().count();
            self.text += &format!(" (CUT: these are the first {shown_length} of {all} characters)");
        }
        self.text.push('\n');
    }

    /// Adds the line of an attachment. Fails if the text has a secret of more than one word.
    fn add_attachment(&mut self, index: usize, part: &Content) -> Result<(), &'static str> {
        let name = format!("attachment {index}");
        match &part.body {
            Body::Text(text) | Body::Link(text) => {
                let shown = toolhold_redaction::text(text, Keys::Settings);
                check_hidden(text, &shown)?;
                self.add(&name, &shown);
            }
            Body::Bytes(bytes) => {
                self.add(&name, &format!("[{} bytes that are no text]", bytes.len()));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> String {
        if self.left_out > 0 {
            self.text += &format!("(CUT: {} more parameters are not shown)\n", self.left_out);
        }
        self.text
    }
}

/// Returns the first `max_chars` characters, and their number.
fn head(text: &str, max_chars: usize) -> (&str, usize) {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => (&text[..end], max_chars),
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
    let mut quoted = String::with_capacity(text.len() + "\"\"".len());
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_plain(c) => quoted.push(c),
            c => {
                // A character has one or two UTF-16 units.
                for unit in c.encode_utf16(&mut [0; 2]) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Checks whether a character is shown without an escape: printable ASCII except the backtick, and
/// letters and digits of all scripts. All other characters are escaped, because some of them are
/// invisible.
fn is_plain(c: char) -> bool {
    match c {
        '`' => false,
        ' '..='~' => true,
        // These letters have no visible shape.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => false,
        c => c.is_alphanumeric(),
    }
}

/// Replaces secrets in the arguments with `[REDACTED…]`. A value is secret if its name is secret,
/// or if it has a known form of a secret. Must run before values are cut, because a part of a
/// secret isn't recognised. Fails if a secret has more than one word.
fn hide_secrets(arguments: &Value) -> Result<Value, &'static str> {
    let is_in_secret = false;
    // Replace values with a secret name in two steps: first by their lengths, because redaction
    // doesn't change numbers, and after the redaction by texts with these lengths.
    let with_lengths = replace_secrets(arguments, is_in_secret, &secret_length)?;
    let hidden = toolhold_redaction::json(with_lengths.clone(), Keys::Settings);
    check_json_hidden(&with_lengths, &hidden)?;
    replace_secrets(&hidden, is_in_secret, &|value| match value {
        Value::Number(length) => Ok(format!("[REDACTED: {length} characters]").into()),
        redacted => Ok(redacted.clone()),
    })
}

/// Returns the number of characters of a secret.
fn secret_length(secret: &Value) -> Result<Value, &'static str> {
    let text = text_of(secret);
    if is_one_word(&text) { Ok(Value::from(text.chars().count())) } else { Err(UNSEEN_MESSAGE) }
}

type Hide<'a> = dyn Fn(&Value) -> Result<Value, &'static str> + 'a;

/// Replaces the values in fields with secret names. `hide` returns the replacement of a value.
/// `is_in_secret` tells whether `value` itself is in such a field.
fn replace_secrets(
    value: &Value,
    is_in_secret: bool,
    hide: &Hide<'_>,
) -> Result<Value, &'static str> {
    match value {
        Value::Object(fields) => {
            let mut replaced = Map::new();
            for (name, field) in fields {
                let field = replace_secrets(field, is_in_secret || is_secret_name(name), hide)?;
                replaced.insert(name.clone(), field);
            }
            Ok(Value::Object(replaced))
        }
        Value::Array(items) => {
            let mut replaced = Vec::new();
            for item in items {
                replaced.push(replace_secrets(item, is_in_secret, hide)?);
            }
            Ok(Value::Array(replaced))
        }
        Value::Null => Ok(Value::Null),
        value if is_in_secret => hide(value),
        value => Ok(value.clone()),
    }
}

/// Checks whether a text is one word, as real secrets are, except for a scheme such as `Bearer`
/// before it. A command isn't one word, because it contains spaces or shell characters.
fn is_one_word(text: &str) -> bool {
    let schemes = ["Bearer ", "Basic ", "Token ", "token "];
    let scheme_removed = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    let secret = scheme_removed.unwrap_or(text);
    secret.len() <= MAX_SECRET
        && secret.chars().all(|c| c.is_ascii_alphanumeric() || "_-+/=.~:@%!#^*,?[]".contains(c))
}

/// Checks that redaction replaced at most one word of `text`. `shown` is the redacted text. The
/// replaced part is between the start and the end that both texts have in common.
fn check_hidden(text: &str, shown: &str) -> Result<(), &'static str> {
    let text_length = text.chars().count();
    let same_start = count_same(text.chars(), shown.chars());
    // The common start and the common end must not overlap.
    let max_same_end = text_length.min(shown.chars().count()) - same_start;
    let same_end = count_same(text.chars().rev().take(max_same_end), shown.chars().rev());
    let hidden_length = text_length - same_start - same_end;
    let hidden: String = text.chars().skip(same_start).take(hidden_length).collect();
    if is_one_word(&hidden) { Ok(()) } else { Err(UNSEEN_MESSAGE) }
}

fn count_same(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Checks that redaction replaced at most one word in each string of `value`. `shown` is the
/// redacted value.
fn check_json_hidden(value: &Value, shown: &Value) -> Result<(), &'static str> {
    match (value, shown) {
        (Value::Object(fields), Value::Object(shown_fields)) => {
            if fields.len() != shown_fields.len() {
                return Err(UNSEEN_MESSAGE);
            }
            for (field, shown_field) in fields.values().zip(shown_fields.values()) {
                check_json_hidden(field, shown_field)?;
            }
            Ok(())
        }
        (Value::Array(items), Value::Array(shown_items)) => {
            if items.len() != shown_items.len() {
                return Err(UNSEEN_MESSAGE);
            }
            for (item, shown_item) in items.iter().zip(shown_items) {
                check_json_hidden(item, shown_item)?;
            }
            Ok(())
        }
        (Value::String(text), Value::String(shown)) => check_hidden(text, shown),
        (Value::Object(_) | Value::Array(_), _) => Err(UNSEEN_MESSAGE),
        // Redaction doesn't change other values.
        _ => Ok(()),
    }
}

/// Checks whether the name of a value says that the value is secret. The words of a name are
/// separated by camel case, or by any character except letters and digits.
fn is_secret_name(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_lowercase = false;
    for c in name.chars() {
        let begins_camel_word = c.is_uppercase() && was_lowercase;
        if !c.is_alphanumeric() || begins_camel_word {
            words.push(String::new());
        }
        was_lowercase = c.is_lowercase();
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    for word in &words {
        let starts_like_secret = SECRET_WORDS.iter().any(|secret| word.starts_with(secret));
        if starts_like_secret || AUTH_WORDS.contains(&word.as_str()) {
            return true;
        }
    }
    let joined_words = words.concat();
    KEY_NAMES.iter().any(|key_name| joined_words.contains(key_name))
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
        assert!(
            lines.chars().filter(|c| *c == 'y').count() < MAX_TOTAL && lines.len() < 2 * MAX_TOTAL
        );
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
