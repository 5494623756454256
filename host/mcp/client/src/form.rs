//! Checks the forms of an upstream server's elicitations, and their answers.

use rmcp::model::ElicitationSchema;
use serde_json::{Map, Value};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{InvalidSchemaError, compile_schema};

const MAX_FIELDS: usize = 16;

const MAX_CHOICES: usize = 64;

/// Largest form as JSON text, in bytes.
const MAX_FORM: usize = 16 * 1024;

/// Longest name of a field in bytes.
const MAX_NAME: usize = 64;

/// Longest title, description or choice in bytes. Longer titles and descriptions are cut. A form
/// with a longer choice is refused.
const MAX_TEXT: usize = 512;

/// Largest answer as JSON text, in bytes.
const MAX_ANSWER: usize = 16 * 1024;

/// Words in the name or title of a field that ask for a secret.
const SECRET_WORDS: [&str; 21] = [
    "apikey",
    "contraseña",
    "credential",
    "credentials",
    "cvc",
    "cvv",
    "kennwort",
    "mnemonic",
    "motdepasse",
    "otp",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "passwort",
    "pin",
    "pw",
    "pwd",
    "secret",
    "senha",
    "token",
];

/// Secret words with at least this number of letters are also found inside of other words.
const MIN_LONG_WORD: usize = 8;

/// The form of a date. The letters stand for digits.
const DATE_FORM: &str = "YYYY-MM-DD";

/// Words that ask for a value, and words that forbid to enter it.
const ENTER_WORDS: [&str; 6] = ["enter", "give", "input", "paste", "provide", "type"];
const NEGATIONS: [&str; 6] = ["don", "never", "no", "not", "nothing", "without"];

/// Pairs of words that ask for a secret.
const SECRET_PAIRS: [(&str, &str); 5] = [
    ("access", "key"),
    ("api", "key"),
    ("card", "number"),
    ("private", "key"),
    ("recovery", "code"),
];

/// The reason why a form isn't shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error(transparent)]
    Schema(#[from] serde_json::Error),
    #[error("the form is {0} bytes; the limit is {MAX_FORM}")]
    TooLarge(usize),
    #[error("the form has no fields")]
    NoFields,
    #[error("the form has {0} fields; the limit is {MAX_FIELDS}")]
    TooManyFields(usize),
    #[error("the form requires an unknown field")]
    MissingField,
    #[error(
        "the name of a field must have 1 to {MAX_NAME} characters: letters and digits of ASCII, \
         `_`, `.` and `-`"
    )]
    FieldName,
    #[error("the field `{0}` seems to ask for a secret, which forms must not do")]
    AsksForSecret(String),
    #[error("a field has {0} choices; the limit is {MAX_CHOICES}")]
    TooManyChoices(usize),
    #[error("a choice is too long, or has control characters")]
    Choice,
}

/// Checks a form. Returns the form without control characters in its texts.
pub(crate) fn check_form(schema: &ElicitationSchema) -> Result<Value, FormError> {
    let schema = serde_json::to_value(schema)?;
    let size = schema.to_string().len();
    if size > MAX_FORM {
        return Err(FormError::TooLarge(size));
    }
    let fields = schema["properties"].as_object().ok_or(FormError::NoFields)?;
    if fields.len() > MAX_FIELDS {
        return Err(FormError::TooManyFields(fields.len()));
    }
    let mut neutral_fields = Map::new();
    for (name, field) in fields {
        neutral_fields.insert(name.clone(), check_field(name, field)?);
    }
    let mut form = serde_json::json!({ "type": "object", "properties": neutral_fields });
    if let Some(required) = schema["required"].as_array() {
        for name in required {
            let is_known = name.as_str().is_some_and(|name| fields.contains_key(name));
            if !is_known {
                return Err(FormError::MissingField);
            }
        }
        form["required"] = required.clone().into();
    }
    Ok(form)
}

/// Checks a field of a form. Returns the field without control characters in its texts.
fn check_field(name: &str, field: &Value) -> Result<Value, FormError> {
    let has_valid_length = (1..=MAX_NAME).contains(&name.len());
    if !has_valid_length || !name.chars().all(can_be_in_field_name) {
        return Err(FormError::FieldName);
    }
    // A person can type a secret only into a field without choices.
    let has_choices = ["enum", "oneOf", "items"].iter().any(|key| field.get(key).is_some());
    let can_type_secret = !has_choices && field["type"] != "boolean";
    let mut field = field.clone();
    for key in ["title", "description"] {
        if let Some(text) = field.get(key).and_then(Value::as_str) {
            // A description may mention a secret, but must not tell a person to enter one.
            let wants_secret =
                if key == "title" { asks_for_secret(text) } else { tells_to_enter_secret(text) };
            if can_type_secret && wants_secret {
                return Err(FormError::AsksForSecret(name.to_owned()));
            }
            field[key] = neutral_line(cut(text, MAX_TEXT)).into();
        }
    }
    if can_type_secret && asks_for_secret(name) {
        return Err(FormError::AsksForSecret(name.to_owned()));
    }
    check_choices(&mut field)?;
    if let Some(default) = field.get("default").and_then(Value::as_str) {
        field["default"] = neutral_line(cut(default, MAX_TEXT)).into();
    }
    Ok(field)
}

fn can_be_in_field_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.".contains(letter)
}

/// Checks the choices of a field and of its `items`.
fn check_choices(field: &mut Value) -> Result<(), FormError> {
    for list in ["enum", "oneOf", "anyOf", "enumNames"] {
        let Some(choices) = field.get_mut(list).and_then(Value::as_array_mut) else { continue };
        if choices.len() > MAX_CHOICES {
            return Err(FormError::TooManyChoices(choices.len()));
        }
        for choice in choices {
            // The value of a choice with a title is in `const`.
            let value = if choice.is_object() { &mut choice["const"] } else { &mut *choice };
            // A value that isn't a string has no text to check.
            let text = value.as_str().unwrap_or_default();
            if list == "enumNames" {
                *value = neutral_line(cut(text, MAX_TEXT)).into();
            } else if text.len() > MAX_TEXT || neutral_line(text) != text {
                // A choice is sent to the server unchanged, so Toolhold can't correct its text.
                return Err(FormError::Choice);
            }
            if let Some(title) = choice.get("title").and_then(Value::as_str) {
                choice["title"] = neutral_line(cut(title, MAX_TEXT)).into();
            }
        }
    }
    match field.get_mut("items") {
        Some(items) => check_choices(items),
        None => Ok(()),
    }
}

/// Returns whether a name or title asks for a secret.
fn asks_for_secret(text: &str) -> bool {
    let words = split_words(text);
    if names_secret(&words) {
        return true;
    }
    // Long words are also found inside of words or with spaces, as in `mypassword` or `pass word`.
    let letters = words.concat();
    for secret in SECRET_WORDS {
        let is_long = secret.chars().count() >= MIN_LONG_WORD;
        if is_long && letters.contains(secret) {
            return true;
        }
    }
    false
}

/// Checks whether a sentence of a description asks for a secret. A sentence such as "never enter a
/// password" doesn't.
fn tells_to_enter_secret(text: &str) -> bool {
    text.split(['.', '!', '?', ';', '\n']).any(sentence_tells_to_enter_secret)
}

/// Returns whether a sentence tells a person to enter a secret, as in "Enter your password".
/// Returns `false` for a warning, such as "Never enter your password".
fn sentence_tells_to_enter_secret(sentence: &str) -> bool {
    let words = split_words(sentence);
    if words.iter().any(|word| NEGATIONS.contains(&word.as_str())) {
        return false;
    }
    match words.iter().position(|word| ENTER_WORDS.contains(&word.as_str())) {
        Some(verb) => names_secret(&words[verb..]),
        None => false,
    }
}

fn names_secret(words: &[String]) -> bool {
    let has_word = words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()));
    let mut pairs = words.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    has_word || pairs.any(|pair| SECRET_PAIRS.contains(&pair))
}

/// Splits a text into words in lower case, also at the borders in `camelCase` and `snake_case`.
fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut was_lowercase = false;
    for letter in text.chars() {
        let starts_word = letter.is_uppercase() && was_lowercase;
        if starts_word || !letter.is_alphanumeric() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        was_lowercase = letter.is_lowercase();
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The reason why an answer is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the form has no field `{0}`")]
    UnknownField(String),
    #[error("the answer is {0} bytes; the limit is {MAX_ANSWER}")]
    TooLarge(usize),
    /// The form can't be compiled.
    #[error(transparent)]
    Form(#[from] InvalidSchemaError),
    #[error("{0}")]
    Value(String),
    #[error("`{name}` doesn't have the format `{format}`")]
    Format { name: String, format: String },
}

/// Checks an answer to a form: its fields, its size and its values.
pub(crate) fn check_answer(form: &Value, answer: &Map<String, Value>) -> Result<(), AnswerError> {
    let fields = &form["properties"];
    if let Some(name) = answer.keys().find(|name| fields.get(*name).is_none()) {
        return Err(AnswerError::UnknownField(neutral_line(cut(name, MAX_NAME))));
    }
    let value = Value::Object(answer.clone());
    let size = value.to_string().len();
    if size > MAX_ANSWER {
        return Err(AnswerError::TooLarge(size));
    }
    let schema = compile_schema(form)?;
    if let Err(error) = schema.validate(&value) {
        return Err(AnswerError::Value(neutral_line(cut(&error.to_string(), MAX_TEXT))));
    }
    for (name, value) in answer {
        if let Some(format) = fields[name]["format"].as_str()
            && let Some(text) = value.as_str()
            && !has_format(text, format)
        {
            return Err(AnswerError::Format { name: name.clone(), format: format.to_owned() });
        }
    }
    Ok(())
}

/// Returns whether a value has a format of JSON Schema. Returns `true` for an unknown format.
/// The checks are lenient, because only the server knows which addresses exist.
fn has_format(text: &str, format: &str) -> bool {
    let is_one_word = !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    match format {
        "email" => match text.split_once('@') {
            Some((user, host)) => is_one_word && !user.is_empty() && !host.is_empty(),
            None => false,
        },
        "uri" => match text.split_once(':') {
            Some((scheme, _)) => is_one_word && !scheme.is_empty(),
            None => false,
        },
        "date" => is_date(text),
        "date-time" => match text.split_at_checked(DATE_FORM.len()) {
            Some((date, time)) => is_one_word && is_date(date) && time.starts_with(['T', 't']),
            None => false,
        },
        _ => true,
    }
}

/// Returns whether a text has the form of a date. The month and the day may be too large.
fn is_date(text: &str) -> bool {
    if text.len() != DATE_FORM.len() {
        return false;
    }
    for (byte, form_byte) in text.bytes().zip(DATE_FORM.bytes()) {
        let is_valid = if form_byte == b'-' { byte == b'-' } else { byte.is_ascii_digit() };
        if !is_valid {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(fields: Value) -> Result<Value, FormError> {
        let schema = json!({ "type": "object", "properties": fields });
        check_form(&serde_json::from_value(schema)?)
    }

    #[test]
    fn forms_for_secrets_are_refused() {
        for name in ["password", "dbPassword", "API_KEY", "github-token", "pin", "pw", "privateKey"]
        {
            assert!(form(json!({ name: { "type": "string" } })).is_err(), "{name}");
        }
        let is_shown =
            |key: &str, text: &str| form(json!({ "a": { "type": "string", key: text } }));
        for title in
            ["Your API key", "Pass\u{200b}word", "P a s s w o r d", "Kennwort", "Mot de passe"]
        {
            assert!(is_shown("title", title).is_err(), "{title}");
        }
        let asks = "Welcome back. Enter your GitHub password here";
        assert!(is_shown("description", asks).is_err());
        for description in ["No PIN, please", "Never enter a password", "The token limit"] {
            assert!(is_shown("description", description).is_ok(), "{description}");
        }
        for name in ["max_tokens", "spinner", "keyboard", "path"] {
            assert!(form(json!({ name: { "type": "string" } })).is_ok(), "{name}");
        }
        // Nobody types a secret into a choice.
        assert!(form(json!({ "reset_password": { "type": "boolean" } })).is_ok());
    }

    #[test]
    fn hostile_forms_are_refused_or_neutral() {
        let many: Map<String, Value> =
            (0..17).map(|at| (format!("f{at}"), json!({ "type": "string" }))).collect();
        assert!(form(Value::Object(many)).is_err());
        let choices: Vec<String> = (0..65).map(|at| at.to_string()).collect();
        assert!(form(json!({ "a": { "type": "string", "enum": choices } })).is_err());
        assert!(form(json!({ "a": { "type": "string", "enum": ["\u{1b}[2J"] } })).is_err());
        assert!(form(json!({ "\u{202e}": { "type": "string" } })).is_err());
        assert!(form(json!({ "a": { "type": "string", "title": "x".repeat(MAX_FORM) } })).is_err());
        for nested in [json!({ "type": "object" }), json!({ "$ref": "https://example.com" })] {
            assert!(form(json!({ "a": nested })).is_err(), "only flat fields");
        }
        let shown = form(json!({ "a": { "type": "string", "title": "\u{1b}[2J\u{202e}x" } }));
        let shown = shown.expect("it is shown");
        assert!(!shown.to_string().contains("\\u"), "{shown}");
    }

    #[test]
    fn answers_fit_the_form() {
        let form = form(json!({
            "name": { "type": "string", "minLength": 2 },
            "mail": { "type": "string", "format": "email" },
            "day": { "type": "string", "format": "date" },
            "count": { "type": "integer", "minimum": 1, "maximum": 3 },
            "sure": { "type": "boolean" },
            "one": { "type": "string", "enum": ["a", "b"] },
        }));
        let form = form.expect("it is shown");
        let fits =
            |answer: Value| check_answer(&form, answer.as_object().expect("an object")).is_ok();
        assert!(fits(json!({})));
        assert!(fits(
            json!({ "name": "ab", "mail": "a@b", "day": "2026-01-31", "count": 2, "sure": true, "one": "b" })
        ));
        for bad in [
            json!({ "name": "a" }),
            json!({ "name": ["ab"] }),
            json!({ "mail": "nobody" }),
            json!({ "day": "tomorrow" }),
            json!({ "count": 4 }),
            json!({ "count": "2" }),
            json!({ "sure": "yes" }),
            json!({ "one": "c" }),
            json!({ "more": 1 }),
            json!({ "name": "x".repeat(MAX_ANSWER) }),
        ] {
            assert!(!fits(bad.clone()), "{bad}");
        }
    }
}
