//! Hints for a model that probably meant a call but made none.

/// The reason why a message without calls looks like a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormHint {
    /// The message is a fenced block of JSON that calls an offered tool.
    Json {
        /// The tool.
        tool: String,
        /// Whether `lenient_models` would allow the call.
        lenient_helps: bool,
    },
    /// A tag of a call is in the middle of a line or in a quotation.
    WithinLine,
    /// The message has a text that looks like a tool's result.
    MadeUpResult,
}

impl FormHint {
    /// Returns the hint for the model.
    pub fn for_model(&self) -> String {
        match self {
            Self::Json { tool, .. } => format!(
                "Your message is JSON that looks like a call of `{tool}`. The call was not made, \
                 because JSON without a block isn't a call. Write the call as a block:\n\
                 ```tool_call\n{{\"name\": \"{tool}\", \"arguments\": {{…}}}}\n```"
            ),
            Self::WithinLine => {
                "The tag of a call is within a line or a quotation, so no call was made. Write the \
                 tag at the start of a line, after an empty line."
                    .to_owned()
            }
            Self::MadeUpResult => {
                "Your message contains a tool result. Only the host writes results: write a call, \
                 and wait for its result."
                    .to_owned()
            }
        }
    }

    /// Returns the hint for the user, or `None` if the model can solve the problem.
    pub fn for_person(&self) -> Option<String> {
        match self {
            Self::Json { tool, lenient_helps } => {
                let remedy = if *lenient_helps {
                    ". To accept such calls, set `lenient_models` in [agent]"
                } else {
                    ""
                };
                Some(format!(
                    "The model wrote a call of `{tool}` as text, so the tool was not \
                     called{remedy}."
                ))
            }
            Self::WithinLine | Self::MadeUpResult => None,
        }
    }
}
