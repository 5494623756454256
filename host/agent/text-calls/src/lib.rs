//! Finds calls that a model without native tool use writes as text.
//!
//! Use [`find`] only for models that got these forms in their [`system_text`]. A model with native
//! tool use also shows commands in fenced blocks as examples. For such a model, use
//! [`OfferedTools::explicit_only`] if its server doesn't understand its tags.
//!
//! # What is a call
//!
//! * A fenced block with a tool's tag, such as `bash` or `scrape`. The body is the tool's text
//!   argument, or a JSON object of arguments.
//! * A tag `<tool_call>`, `<tool_calls>`, `<toolcall>`, `<tool-call>`, `<invoke>`,
//!   `<minimax:tool_call>` or `<minimax:toolcall>`. It contains JSON,
//!   `<invoke name="…"><parameter name="…">`, `<function=…><parameter=…>`, or a tool's name with
//!   `<arg_key>` and `<arg_value>`.
//! * A fenced block `tool_call` with JSON.
//! * A fenced block `tool NAME` with a JSON object of arguments, or with the tool's text argument.
//! * A tag `<tools>` with one JSON object that has a name and arguments, and nothing else.
//! * A whole line `tool/argument>value` or `tool/{…}` before any other form. The tool and the
//!   argument must exist.
//!
//! JSON is `{"name", "arguments"}`, a usual variant of this form, or a list of such objects. The
//! closing tag may be missing if the JSON is complete. A fenced block must have its end.
//!
//! # What isn't a call
//!
//! A model may quote other people's requests. A block must start a line, or follow another block,
//! after at most three spaces. A text isn't a call in these places:
//!
//! * within a line of prose, in a list item, a table or indented code;
//! * in a quotation (`>`), and in the lines after the quotation up to an empty line;
//! * in a fenced block of another tag, up to the line that ends the block. After a line that would
//!   open another block, the end is unclear, and no later text is a call;
//! * in `<tool_result>`, `<external-data>`, `<blockquote>` and `<pre>`;
//! * in thoughts (`<think>`), even if their beginning is missing;
//! * in a refused block, which isn't read in any other form;
//! * JSON without a mark, except with [`FindOptions::is_lenient`].
//!
//! [`TextCall::is_echo`] is true if an earlier result, file or page contains the call, because a
//! fence in a page may end the model's quotation of this page. An echo that acts needs approval at
//! every level of autonomy.
//!
//! A name is the name of an offered tool, or an alias that only one tool has. The host answers
//! other names with `tool_not_found`.

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

/// The most calls of a message. A block with more calls is refused.
pub const MAX_CALLS: usize = 16;

/// The most refused blocks for which the model gets reasons.
const MAX_REJECTED: usize = 8;

/// The most bytes of a refused block in its excerpt.
const MAX_EXCERPT: usize = 200;

/// The circumstances of a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindOptions<'a> {
    /// Whether a message that is one fenced block of JSON may be a call.
    pub is_lenient: bool,
    /// Whether the provider runs on this machine.
    pub is_loopback: bool,
    /// Whether the model used native calls in this session.
    pub used_native_calls: bool,
    /// The texts that the model may repeat. If they are `None`, no call is an echo, and lenient
    /// calls are refused.
    pub earlier: Option<&'a EarlierTexts>,
}

/// The calls in a message, and the other text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundCalls {
    /// The text without calls and thoughts, but with refused blocks.
    pub text_without_calls: String,
    /// The thoughts in the message.
    pub thoughts: String,
    /// The calls, in order.
    pub calls: Vec<TextCall>,
    /// Blocks that look like calls but are refused. The model gets the reasons.
    pub rejected: Vec<RejectedText>,
    /// The hint for a message that looks like a call but has none.
    pub hint: Option<FormHint>,
}

/// A call that was written as text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextCall {
    /// The tool's name. If no such tool is offered, the name as the model wrote it.
    pub name: String,
    /// The arguments, which aren't checked against the schema.
    pub arguments: Value,
    /// The form in which the call was written.
    pub form: CallForm,
    /// Whether the tool is offered. The host answers other calls with `tool_not_found`.
    pub is_offered: bool,
    /// Whether an earlier text contains the call. An echo that acts needs approval.
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
    /// A message that is one fenced block of JSON.
    Json,
}

/// A block that looks like a call but is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedText {
    /// The fault and the remedy, for the model.
    pub why: String,
    /// The start of the block, on one line.
    pub excerpt: String,
}

impl RejectedText {
    fn new(why: &str, raw: &str) -> Self {
        let why = format!("The call was not made: {}.", neutral_line(cut(why, 2 * MAX_EXCERPT)));
        Self { why, excerpt: excerpt(raw, MAX_EXCERPT) }
    }
}

/// Finds the calls in a message. The caller must limit the message's length.
pub fn find(text: &str, offered: &OfferedTools, options: &FindOptions<'_>) -> FoundCalls {
    let mut splitter = CallSplitter::new(offered, options.is_lenient);
    splitter.push(text);
    splitter.finish(options).1
}

fn excerpt(text: &str, max: usize) -> String {
    let shown = neutral_line(cut(text.trim(), max));
    if shown.len() < text.trim().len() { format!("{shown}…") } else { shown }
}
