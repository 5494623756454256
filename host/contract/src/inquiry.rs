//! A question that a source asks the person during a call, and the answer. In MCP, this is an
//! elicitation.

use serde_json::{Map, Value};

use crate::BoxFuture;

/// A question from a source to the person. Its texts are untrusted. The source limits their length
/// and [neutralises](crate::text::neutral) them.
#[derive(Clone, Debug, PartialEq)]
pub struct Inquiry {
    /// The name of the asker, for people: ``the server `time` ``.
    pub asker: String,
    /// The question in the asker's words.
    pub message: String,
    /// The form of the wanted answer.
    pub wanted: Wanted,
}

impl Inquiry {
    /// Formats the question for people. A bar marks the lines that the asker wrote.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} has a question for you:\n", self.asker);
        for line in self.message.lines() {
            text.push_str("│ ");
            text.push_str(line);
            text.push('\n');
        }
        match &self.wanted {
            Wanted::Form(_) => text.push_str(
                "Your answer goes to the sender above. Don't enter passwords, keys or other \
                 secrets.\n",
            ),
            Wanted::Visit(address) => {
                text.push_str(
                    "You are asked to open this address, which Toolhold doesn't open itself:\n│ ",
                );
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
    /// The fields of a form: a JSON Schema of an object, like MCP's `requestedSchema`. Properties
    /// are strings, numbers, booleans or choices.
    Form(Value),
    /// An address that the person opens. Toolhold doesn't open it.
    Visit(String),
}

/// The result of an [`Inquiry`].
#[derive(Clone, Debug, PartialEq)]
pub enum InquiryAnswer {
    /// The person answered.
    Accepted {
        /// The values of the form. The host hasn't checked them against the form's schema.
        content: Map<String, Value>,
        /// The person who answered.
        by: String,
    },
    /// A person or a rule refused to answer.
    Declined {
        /// The person or rule that refused.
        by: String,
    },
    /// The reason why nobody answered.
    Unanswered(String),
}

/// Asks a person the questions of a running call's source.
pub trait Inquirer: Send + Sync + 'static {
    /// Asks and waits for the answer, up to the host's limit. Dropping the future withdraws the
    /// question.
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer>;
}
