//! Finds calls that a model without native tool use writes as text.
//!
//! Read only messages of models that got a description of these forms ([`system_text`]). A model
//! with native tool use shows commands in fenced blocks without meaning a call. If the server of
//! such a model doesn't understand the model's tags, read its messages with
//! [`OfferedTools::marked_only`].
//!
//! # What is a call
//!
//! | form | |
//! |---|---|
//! | a fenced block with a tool's tag (`bash`, `scrape`) | its body is the argument that takes a text, or a JSON object of arguments |
//! | `<tool_call>`, `<tool_calls>`, `<toolcall>`, `<tool-call>`, `<invoke>`, `<minimax:tool_call>`, `<minimax:toolcall>` | with JSON, `<invoke name="…"><parameter name="…">`, `<function=…><parameter=…>`, or a name with `<arg_key>` and `<arg_value>` |
//! | a fenced block `tool_call` | with JSON |
//! | a fenced block `tool NAME` | with a JSON object of arguments, or the argument that takes a text |
//! | `<tools>` | if it contains one JSON object with a name and arguments, and nothing else |
//! | `tool/argument>value`, `tool/{…}` | a whole line, before any other form, if the tool and the argument exist |
//!
//! JSON is `{"name", "arguments"}`, a usual variant of this form, or a list of such objects. The
//! closing tag may be missing if the JSON is complete. A fenced block must have its end.
//!
//! # What isn't a call
//!
//! A model quotes pages and files, which may contain other people's requests. Therefore a block
//! must begin a line, or follow another block, with at most three spaces before it. A text isn't a
//! call in these places:
//!
//! * within a line of prose, in a list item, a table or indented code;
//! * in a quotation (`>`), and in the lines after the quotation up to an empty line;
//! * in a fenced block of another tag, up to the line that ends the block. If the block contains a
//!   line that would open another block, its end is unclear, and no later text is a call;
//! * in `<tool_result>`, `<external-data>`, `<blockquote>` and `<pre>`;
//! * in thoughts (`<think>`), even if their beginning is missing;
//! * in a refused block, which isn't read again in another form;
//! * as JSON without a mark. [`FindOptions::is_lenient`] has the one exception.
//!
//! If an earlier result, file or page contains the same call, [`TextCall::is_echo`] is true. A page
//! may have its own fences, which end the model's quotation. If such a call acts, it needs
//! approval, whatever the autonomy.
//!
//! A name means an offered tool, or an alias that only one tool has. Any other name doesn't change,
//! and the host answers that there is no such tool. No unknown name becomes `bash`.

mod block;
mod echo;
mod hint;
mod marks;
mod offered_tools;
mod read;
mod render;
mod scan;
mod splitter;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};

pub use echo::EarlierTexts;
pub use hint::FormHint;
pub use offered_tools::OfferedTools;
pub use render::{system_text, tool_result};
pub use splitter::{CallSplitter, ShownText, shown_call};

/// Most calls that one message makes.
pub const MAX_CALLS: usize = 16;

/// Most refused blocks that are listed.
const MAX_REJECTED: usize = 8;

/// Bytes of a refused block that are shown.
const MAX_EXCERPT: usize = 200;

/// The facts that are known apart from the message.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindOptions<'a> {
    /// Whether a fenced block of JSON that is the whole message is a call.
    pub is_lenient: bool,
    /// Whether the provider runs on this machine.
    pub is_loopback: bool,
    /// Whether the model used native calls in this session.
    pub used_native_calls: bool,
    /// The texts that the model may repeat. Without them, no call is an echo, and there are no
    /// lenient calls.
    pub earlier: Option<&'a EarlierTexts>,
}

/// The calls in a message, and what is left of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundCalls {
    /// The text without calls and thoughts. Refused blocks stay: nothing is hidden that wasn't
    /// done.
    pub text_without_calls: String,
    /// The thoughts in it.
    pub thoughts: String,
    /// The calls, in their order.
    pub calls: Vec<TextCall>,
    /// Blocks that look like calls and are none. The model gets the reason.
    pub rejected: Vec<RejectedText>,
    /// The hint to give if there is no call, and the model seems to have meant one.
    pub hint: Option<FormHint>,
}

/// A call that was written as text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextCall {
    /// The tool's own name, or the name as it was written if no such tool is offered.
    pub name: String,
    /// The arguments, as an object that isn't checked against the schema.
    pub arguments: Value,
    /// The form in which the call was written.
    pub form: CallForm,
    /// Whether the tool was offered. The host answers any other call with `tool_not_found`.
    pub is_offered: bool,
    /// Whether an earlier text has the call. If it acts, it needs approval.
    pub is_echo: bool,
}

/// The form in which a call was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// A fenced block with a tool's tag.
    Fence,
    /// JSON in a tag.
    Tag,
    /// Tags for the tool and each argument.
    Invoke,
    /// A fenced block `tool_call` or `tool NAME`.
    ToolFence,
    /// `tool/argument>value`
    Line,
    /// A fenced block of JSON that is the whole message.
    Json,
}

/// A block that looks like a call and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedText {
    /// The fault and the remedy, for the model.
    pub why: String,
    /// Its beginning, on one line.
    pub excerpt: String,
}

impl RejectedText {
    fn new(why: &str, raw: &str) -> Self {
        let why = format!("The call was not made: {}.", neutral_line(cut(why, 2 * MAX_EXCERPT)));
        Self { why, excerpt: excerpt(raw, MAX_EXCERPT) }
    }
}

/// Finds the calls in a message. The caller bounds its length.
pub fn find(text: &str, offered: &OfferedTools, options: &FindOptions<'_>) -> FoundCalls {
    let mut splitter = CallSplitter::new(offered, options.is_lenient);
    splitter.push(text);
    splitter.finish(options).1
}

/// Returns the beginning of a text on one line.
fn excerpt(text: &str, max: usize) -> String {
    let shown = neutral_line(cut(text.trim(), max));
    if shown.len() < text.trim().len() { format!("{shown}…") } else { shown }
}
