//! Shows questions and forms of tools at the terminal.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_core::{Inquiry, InquiryAnswer, Wanted, compile_schema};

use crate::ask::{Dialogue, open_dialogue};
use crate::error::CommandError;

/// The approver's name in the audit log.
const BY: &str = "terminal";

/// Asks the question of a tool until `is_over` is set. Blocks.
pub fn ask(inquiry: &Inquiry, is_over: Arc<AtomicBool>) -> InquiryAnswer {
    let Some(dialogue) = open_dialogue("the question was not answered") else {
        return InquiryAnswer::Unanswered("there is no terminal to ask at".to_owned());
    };
    match ask_in(&mut dialogue.until(is_over), inquiry) {
        Ok(answer) => answer,
        Err(error) => {
            let (_, message) = error.end();
            // The only error without a message is a closed terminal.
            let reason = message.unwrap_or_else(|| "the terminal was closed".to_owned());
            InquiryAnswer::Unanswered(reason)
        }
    }
}

/// Asks whether the person wants to answer and, if so, asks for each field of the form.
fn ask_in<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    inquiry: &Inquiry,
) -> Result<InquiryAnswer, CommandError> {
    dialogue.print(inquiry.to_text().trim_end())?;
    let (question, fields) = match &inquiry.wanted {
        Wanted::Visit(_) => ("Continue?", Vec::new()),
        Wanted::Form(schema) => ("Answer the question?", form_fields(schema)),
    };
    let default = false;
    if !dialogue.yes_or_no(question, default)? {
        return Ok(InquiryAnswer::Declined { by: BY.to_owned() });
    }

    let mut content = Map::new();
    for field in fields {
        for line in field.lines() {
            dialogue.print(&line)?;
        }
        if let Some(value) = ask_for_field(dialogue, &field)? {
            content.insert(field.name, value);
        }
    }
    Ok(InquiryAnswer::Accepted { content, by: BY.to_owned() })
}

/// Asks for a field until the answer is valid. Returns `None` if the person skips the field.
fn ask_for_field<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    field: &FormField,
) -> Result<Option<Value>, CommandError> {
    loop {
        let line = dialogue.ask(&field.question())?;
        match field.read(&line) {
            Ok(value) => return Ok(value),
            Err(error) => dialogue.print(&format!("  {error}"))?,
        }
    }
}

/// A field of a form.
#[derive(Clone, Debug)]
pub struct FormField {
    name: String,
    schema: Value,
    is_required: bool,
    choices: Vec<Choice>,
}

#[derive(Clone, Debug)]
struct Choice {
    value: String,
    title: Option<String>,
}

/// Returns the fields of a form's JSON Schema, in order.
pub fn form_fields(schema: &Value) -> Vec<FormField> {
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let required = schema["required"].as_array();
    let mut fields = Vec::new();
    for (name, field) in properties {
        fields.push(FormField {
            name: name.clone(),
            schema: field.clone(),
            is_required: required.is_some_and(|names| names.iter().any(|other| other == name)),
            choices: choices(field),
        });
    }
    fields
}

/// An invalid answer for a field. The variants contain the limits of the field.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The field takes several values of a list.
    #[error("Please answer with numbers of the list, with commas between them{}.", after_colon(.0))]
    Several(Vec<String>),
    /// The field takes one value of a list.
    #[error("Please answer with a number of the list{}.", after_colon(.0))]
    Choice(Vec<String>),
    /// The field takes yes or no.
    #[error("Please answer y or n{}.", after_colon(.0))]
    YesOrNo(Vec<String>),
    /// The field takes a number.
    #[error("Please answer with a number{}.", after_colon(.0))]
    Number(Vec<String>),
    /// The field takes text.
    #[error("Please answer with text{}.", after_colon(.0))]
    Text(Vec<String>),
}

fn after_colon(bounds: &[String]) -> String {
    if bounds.is_empty() { String::new() } else { format!(": {}", bounds.join(", ")) }
}

impl FormField {
    /// Returns the key of the field's value in the answer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks whether the answer is a secret, which must not be visible.
    pub fn is_secret(&self) -> bool {
        self.schema["format"] == "password" || self.schema["writeOnly"] == true
    }

    /// Returns the description and the choices, to be shown above the question.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(description) = self.schema["description"].as_str() {
            lines.push(format!("│ {description}"));
        }
        for (index, Choice { value, title }) in self.choices.iter().enumerate() {
            let number = index + 1;
            lines.push(format!("  {number}: {}", title.as_ref().unwrap_or(value)));
        }
        lines
    }

    fn default(&self) -> Option<&Value> {
        match self.schema.get("default") {
            None | Some(Value::Null) => None,
            default => default,
        }
    }

    /// Returns the question, with the value that Enter stands for.
    pub fn question(&self) -> String {
        let name = &self.name;
        let label = match self.schema["title"].as_str() {
            Some(title) => format!("{name} ({title})"),
            None => name.clone(),
        };
        match (self.default(), self.is_required) {
            (Some(default), _) => format!("{label} [{default}]:"),
            (None, false) => format!("{label} [Enter: none]:"),
            (None, true) => format!("{label} [required]:"),
        }
    }

    /// Parses an answer. Returns `None` if the person skips the field.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is invalid for the field's schema.
    pub fn read(&self, line: &str) -> Result<Option<Value>, AnswerError> {
        let default = self.default();
        if line.is_empty() && default.is_none() && !self.is_required {
            return Ok(None);
        }
        let value = match default {
            Some(default) if line.is_empty() => Some(default.clone()),
            _ => parse_value(line, &self.schema, &self.choices),
        };

        let Some(value) = value else { return Err(self.answer_error()) };
        match compile_schema(&self.schema) {
            Ok(validator) if validator.is_valid(&value) => Ok(Some(value)),
            _ => Err(self.answer_error()),
        }
    }

    /// Returns the error that says which answers are valid.
    fn answer_error(&self) -> AnswerError {
        let mut bounds = Vec::new();
        for key in ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"] {
            if let Some(bound) = self.schema.get(key) {
                bounds.push(format!("{key} {bound}"));
            }
        }
        match self.schema["type"].as_str() {
            Some("array") => AnswerError::Several(bounds),
            _ if !self.choices.is_empty() => AnswerError::Choice(bounds),
            Some("boolean") => AnswerError::YesOrNo(bounds),
            Some("integer" | "number") => AnswerError::Number(bounds),
            _ => AnswerError::Text(bounds),
        }
    }
}

/// Returns the choices of a field: alternatives with titles, or plain values.
fn choices(field: &Value) -> Vec<Choice> {
    // If a field takes several values, the choices are in the schema of the items.
    let schema = field.get("items").unwrap_or(field);
    let mut choices = Vec::new();
    let alternatives = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    if let Some(alternatives) = alternatives.and_then(Value::as_array) {
        for alternative in alternatives {
            if let Some(value) = string(&alternative["const"]) {
                choices.push(Choice { value, title: string(&alternative["title"]) });
            }
        }
        return choices;
    }

    let Some(values) = schema["enum"].as_array() else { return choices };
    for (index, value) in values.iter().filter_map(string).enumerate() {
        let title = string(&schema["enumNames"][index]);
        choices.push(Choice { value, title });
    }
    choices
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Parses an answer of the field's type. Returns `None` if the answer has the wrong type or isn't
/// one of the choices.
fn parse_value(line: &str, field: &Value, choices: &[Choice]) -> Option<Value> {
    match field["type"].as_str() {
        Some("array") => {
            let mut values = Vec::new();
            for word in line.split(',') {
                values.push(find_choice(word.trim(), choices)?);
            }
            Some(Value::Array(values))
        }
        _ if !choices.is_empty() => find_choice(line, choices),
        Some("boolean") => match line.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Some(json!(true)),
            "n" | "no" | "false" => Some(json!(false)),
            _ => None,
        },
        Some("integer") => line.parse::<i64>().ok().map(|number| json!(number)),
        Some("number") => line.parse::<f64>().ok().map(|number| json!(number)),
        _ => Some(json!(line)),
    }
}

/// Finds a choice by its value, or by its number from 1 on. Values come first, because a value may
/// be a number.
fn find_choice(word: &str, choices: &[Choice]) -> Option<Value> {
    if let Some(choice) = choices.iter().find(|choice| choice.value == word) {
        return Some(json!(choice.value));
    }
    let number: usize = word.parse().ok()?;
    let choice = choices.get(number.checked_sub(1)?)?;
    Some(json!(choice.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(wanted: Wanted, input: &str) -> (Option<InquiryAnswer>, String) {
        let inquiry =
            Inquiry { asker: "The server `s`".to_owned(), message: "one\ntwo".to_owned(), wanted };
        let mut output = Vec::new();
        let answer = ask_in(&mut Dialogue::between(input.as_bytes(), &mut output), &inquiry).ok();
        (answer, anstream::adapter::strip_str(&String::from_utf8_lossy(&output)).to_string())
    }

    #[test]
    fn form_is_asked_field_by_field_until_each_fits() {
        let form = json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "minLength": 2, "title": "Your name" },
            "count": { "type": "integer", "maximum": 3, "default": 1 },
            "sure": { "type": "boolean" },
            "one": { "type": "string", "enum": ["a", "b"], "enumNames": ["Alpha", "Beta"] },
            "some": { "type": "array", "items": { "type": "string", "enum": ["x", "y", "z"] } },
            "more": { "type": "string" },
        } });
        let (reply, shown) =
            answer(Wanted::Form(form), "y\n\nx\nmine\n7\n2\nperhaps\nn\n2\n1,z\n\n");
        let content =
            json!({ "name": "mine", "count": 2, "sure": false, "one": "b", "some": ["x", "z"] });
        let content = content.as_object().expect("an object").clone();
        assert_eq!(reply, Some(InquiryAnswer::Accepted { content, by: BY.to_owned() }), "{shown}");
        assert!(
            shown.starts_with("The server `s` has a question for you:\n│ one\n│ two\n"),
            "{shown}"
        );
        assert!(
            shown.contains("name (Your name) [required]:") && shown.contains("  2: Beta"),
            "{shown}"
        );
    }

    #[test]
    fn enter_answers_nothing_and_the_end_of_input_isnt_an_answer() {
        let declined = Some(InquiryAnswer::Declined { by: BY.to_owned() });
        let form = || Wanted::Form(json!({ "type": "object", "properties": {} }));
        assert_eq!(answer(form(), "\n").0, declined);
        let address = || Wanted::Visit("https://example.com/a".to_owned());
        let (reply, shown) = answer(address(), "n\n");
        assert_eq!(reply, declined);
        assert!(shown.contains("│ https://example.com/a\n"), "{shown}");
        assert!(matches!(answer(address(), "y\n").0, Some(InquiryAnswer::Accepted { .. })));
        assert_eq!(answer(address(), "").0, None);
    }
}
