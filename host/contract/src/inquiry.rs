//! A question that a source asks the person during a call (an elicitation of a server), and the
//! answer to it.

use serde_json::{Map, Value};

use crate::BoxFuture;

/// A provider's own question to the person during a call. Its texts are untrusted. The provider
/// limits their length and [neutralises](crate::text::neutral) them.
#[derive(Clone, Debug, PartialEq)]
pub struct Inquiry {
    /// The name of the asker, for people: ``the server `time` ``.
    pub asker: String,
    /// The question in the asker's own words.
    pub message: String,
    /// The form of the answer that the asker wants.
    pub wanted: Wanted,
}

impl Inquiry {
    /// Formats the question for people. A bar marks the lines with the asker's own words.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} asks a question of its own:\n", self.asker);
        for line in self.message.lines() {
            text.push_str("│ ");
            text.push_str(line);
            text.push('\n');
        }
        match &self.wanted {
            Wanted::Form(_) => text
                .push_str("The answer goes to it. Don't enter passwords, keys or other secrets.\n"),
            Wanted::Visit(address) => {
                text.push_str("It wants you to open this address, which Toolhold doesn't do:\n│ ");
                text.push_str(address);
                text.push('\n');
            }
        }
        text
    }
}

/// The form of the answer to an [`Inquiry`].
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// The fields of a form: a JSON Schema of an object, as in the Model Context Protocol's
    /// `requestedSchema`. Its properties are strings, numbers, booleans and choices.
    Form(Value),
    /// An address that the person opens. Toolhold doesn't open it.
    Visit(String),
}

/// The result of an [`Inquiry`].
#[derive(Clone, Debug, PartialEq)]
pub enum InquiryAnswer {
    /// The person answered.
    Accepted {
        /// The values of the form. They haven't been checked against its schema.
        content: Map<String, Value>,
        /// The person who answered.
        by: String,
    },
    /// The person, or a rule of the operator, refused to answer.
    Declined {
        /// The person or rule that refused.
        by: String,
    },
    /// Nobody answered, for this reason.
    Unanswered(String),
}

/// Puts the questions of a running call's provider to a person.
pub trait Inquirer: Send + Sync + 'static {
    /// Asks and waits for the answer, up to the host's limit. Dropping the future takes the
    /// question back.
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer>;
}
