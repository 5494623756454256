//! Puts a question or a form of a tool's own to the person at the terminal, and checks the answer
//! by its schema.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_core::{Inquiry, InquiryAnswer, Wanted, compile_schema};

use crate::ask::{Dialogue, open_dialogue};
use crate::error::CommandError;

/// The name of the answerer.
const BY: &str = "terminal";

/// Puts a question of a tool's own to the person at the terminal, until `is_over` is set. Blocks.
pub fn ask(inquiry: &Inquiry, is_over: Arc<AtomicBool>) -> InquiryAnswer {
    let Some(dialogue) = open_dialogue("the question was not answered") else {
        return InquiryAnswer::Unanswered("there is no terminal to ask at".to_owned());
    };
    answered(&mut dialogue.until(is_over), inquiry).unwrap_or_else(|error| {
        let (_, message) = error.end();
        InquiryAnswer::Unanswered(message.unwrap_or_else(|| "the terminal is gone".to_owned()))
    })
}

fn answered<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    inquiry: &Inquiry,
) -> Result<InquiryAnswer, CommandError> {
    dialogue.print(inquiry.to_text().trim_end())?;
    let (question, schema) = match &inquiry.wanted {
        Wanted::Visit(_) => ("Go on?", &Value::Null),
        Wanted::Form(schema) => ("Answer it?", schema),
    };
    if !dialogue.yes_or_no(question, false)? {
        return Ok(InquiryAnswer::Declined { by: BY.to_owned() });
    }
    let mut content = Map::new();
    for field in form_fields(schema) {
        for line in field.lines() {
            dialogue.print(&line)?;
        }
        let value = loop {
            match field.read(&dialogue.ask(&field.question())?) {
                Ok(value) => break value,
                Err(why) => dialogue.print(&format!("  {why}"))?,
            }
        };
        if let Some(value) = value {
            content.insert(field.name, value);
        }
    }
    Ok(InquiryAnswer::Accepted { content, by: BY.to_owned() })
}

/// A field of a form.
#[derive(Clone, Debug)]
pub struct FormField {
    name: String,
    schema: Value,
    is_required: bool,
    choices: Vec<(String, Option<String>)>,
}

/// The fields of a form's JSON Schema, in their order.
pub fn form_fields(schema: &Value) -> Vec<FormField> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields
        .map(|(name, field)| FormField {
            name: name.clone(),
            schema: field.clone(),
            is_required: required.iter().any(|other| other == name),
            choices: choices(field),
        })
        .collect()
}

/// A line that doesn't fit the field of a form. Each variant has the bounds of the field.
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
    #[error("Please answer with a text{}.", after_colon(.0))]
    Text(Vec<String>),
}

fn after_colon(bounds: &[String]) -> String {
    if bounds.is_empty() { String::new() } else { format!(": {}", bounds.join(", ")) }
}

impl FormField {
    /// The key of its value in the answer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether nobody else should see the typed text.
    pub fn is_secret(&self) -> bool {
        self.schema["format"] == "password" || self.schema["writeOnly"] == true
    }

    /// The lines before the question: the description and the choices.
    pub fn lines(&self) -> Vec<String> {
        let description = self.schema["description"].as_str();
        let choices = self.choices.iter().enumerate().map(|(at, (value, title))| {
            format!("  {}: {}", at + 1, title.as_ref().unwrap_or(value))
        });
        description.map(|text| format!("│ {text}")).into_iter().chain(choices).collect()
    }

    fn default(&self) -> Option<&Value> {
        self.schema.get("default").filter(|default| !default.is_null())
    }

    /// The question, with the meaning of Enter alone.
    pub fn question(&self) -> String {
        let name = &self.name;
        let title = self.schema["title"]
            .as_str()
            .map_or_else(|| name.clone(), |title| format!("{name} ({title})"));
        match (self.default(), self.is_required) {
            (Some(default), _) => format!("{title} [{default}]:"),
            (None, false) => format!("{title} [Enter: none]:"),
            (None, true) => format!("{title} [required]:"),
        }
    }

    /// The value that a line stands for. `None`: the field is left out.
    ///
    /// # Errors
    ///
    /// The line doesn't fit.
    pub fn read(&self, line: &str) -> Result<Option<Value>, AnswerError> {
        let value = match (line, self.default()) {
            ("", Some(default)) => Some(default.clone()),
            ("", None) if !self.is_required => return Ok(None),
            (line, _) => value(line, &self.schema, &self.choices),
        };
        match value {
            Some(value)
                if compile_schema(&self.schema).is_ok_and(|schema| schema.is_valid(&value)) =>
            {
                Ok(Some(value))
            }
            _ => Err(self.unfit()),
        }
    }

    fn unfit(&self) -> AnswerError {
        let bounds = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"]
            .iter()
            .filter_map(|key| self.schema.get(*key).map(|bound| format!("{key} {bound}")))
            .collect();
        match self.schema["type"].as_str() {
            Some("array") => AnswerError::Several(bounds),
            _ if !self.choices.is_empty() => AnswerError::Choice(bounds),
            Some("boolean") => AnswerError::YesOrNo(bounds),
            Some("integer" | "number") => AnswerError::Number(bounds),
            _ => AnswerError::Text(bounds),
        }
    }
}

/// The values of a choice, each with its title.
fn choices(field: &Value) -> Vec<(String, Option<String>)> {
    let field = field.get("items").unwrap_or(field);
    let titled = field.get("oneOf").or_else(|| field.get("anyOf")).and_then(Value::as_array);
    if let Some(titled) = titled {
        return titled
            .iter()
            .filter_map(|choice| Some((text(&choice["const"])?, text(&choice["title"]))))
            .collect();
    }
    let values = field["enum"].as_array().into_iter().flatten().filter_map(text).enumerate();
    values.map(|(at, value)| (value, text(&field["enumNames"][at]))).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The value that a line stands for.
fn value(line: &str, field: &Value, choices: &[(String, Option<String>)]) -> Option<Value> {
    match field["type"].as_str() {
        Some("array") => line.split(',').map(|word| chosen(word.trim(), choices)).collect(),
        _ if !choices.is_empty() => chosen(line, choices),
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

/// The choice with a name or a number.
fn chosen(word: &str, choices: &[(String, Option<String>)]) -> Option<Value> {
    let by_number = word.parse::<usize>().ok().and_then(|at| choices.get(at.checked_sub(1)?));
    let by_name = choices.iter().find(|(value, _)| value == word);
    by_name.or(by_number).map(|(value, _)| json!(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(wanted: Wanted, input: &str) -> (Option<InquiryAnswer>, String) {
        let inquiry =
            Inquiry { asker: "The server `s`".to_owned(), message: "one\ntwo".to_owned(), wanted };
        let mut output = Vec::new();
        let answer = answered(&mut Dialogue::between(input.as_bytes(), &mut output), &inquiry).ok();
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
            shown.starts_with("The server `s` asks a question of its own:\n│ one\n│ two\n"),
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
