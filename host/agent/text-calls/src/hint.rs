//! The hint for a model that seems to have meant a call but wrote none.

/// The reason why a message without a call looks like an attempt to make a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormHint {
    /// The message is a call of this tool as a fenced block of JSON.
    Json {
        /// The offered tool.
        tool: String,
        /// Whether `lenient_models` would allow the call.
        lenient_helps: bool,
    },
    /// A tag of calls is in a line of prose, or in a quotation.
    WithinLine,
    /// The model wrote a text that looks like a result of a tool.
    MadeUpResult,
}

impl FormHint {
    /// Returns the hint for the model.
    pub fn for_model(&self) -> String {
        match self {
            Self::Json { tool, .. } => format!(
                "Your message is JSON that looks like a call of `{tool}`. It was not made, since \
                 JSON alone is no call. Write it as a block:\n```tool_call\n\
                 {{\"name\": \"{tool}\", \"arguments\": {{…}}}}\n```"
            ),
            Self::WithinLine => "The tag of a call is within a line or a quotation, so no call was made. Begin a new line with the tag, after an empty line."
                .to_owned(),
            Self::MadeUpResult => {
                "Your message contains a tool result. Results come from the host \
                alone: write a call, and wait for its result."
                    .to_owned()
            }
        }
    }

    /// Returns the hint for the person, or `None` if the model can fix the problem without the
    /// person.
    pub fn for_person(&self) -> Option<String> {
        match self {
            Self::Json { tool, lenient_helps } => {
                let remedy = if *lenient_helps {
                    ". To accept such calls, set `lenient_models` in [agent]"
                } else {
                    ""
                };
                Some(format!(
                    "The model wrote a call of `{tool}` as text; it was not made{remedy}."
                ))
            }
            Self::WithinLine | Self::MadeUpResult => None,
        }
    }
}
