//! Reads answers in the format of OpenAI's Chat Completions. Many servers deviate from the format.

use crate::assembly::{Assembly, short_line};
use crate::raw::Fields;
use crate::turn::{Block, FinishReason, ModelEvent, TokenUsage};
use crate::wire::delta::DeltaMessage;
use crate::wire::{Reader, WireError, server_error};

#[derive(Debug, Default)]
pub(super) struct Chat {
    message: DeltaMessage,
    has_end: bool,
}

impl Reader for Chat {
    /// Reads one event of the stream. Events have no names in this format.
    fn read(
        &mut self,
        _name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let choices = fields.items("choices");
        // Some servers report an error without the field `error`.
        let is_other_error = choices.is_empty() && is_error(fields);
        if fields.raw("error").is_some() || is_other_error {
            return Err(server_error(fields));
        }
        assembly.read_model(fields);

        let mut usage = fields.object("usage");
        // Each request asks for one choice, so only the first choice is read.
        if let Some(choice) = choices.first().and_then(|choice| Fields::parse(choice.get())) {
            if choice.raw("error").is_some() {
                return Err(server_error(&choice));
            }
            // A server that doesn't stream sends `message`.
            let delta = choice.object("delta").or_else(|| choice.object("message"));
            if let Some(delta) = delta {
                self.message.add(&delta, assembly, events)?;
            }
            if let Some(reason) = choice.nonempty_text("finish_reason") {
                self.has_end = true;
                assembly.stop = Some(self.finish_reason(&reason));
            }
            usage = usage.or_else(|| choice.object("usage"));
        }
        if usage.is_none()
            && let Some(groq_fields) = fields.object("x_groq")
        {
            usage = groq_fields.object("usage");
        }
        if let Some(usage) = usage {
            assembly.usage = assembly.usage.updated(read_usage(&usage));
        }
        Ok(())
    }

    fn ended(&mut self) {
        self.has_end = true;
    }

    /// Ends the answer, and returns its blocks. Fails if the answer is incomplete.
    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError> {
        if !self.has_end {
            return Err(WireError::Cut);
        }
        let message = std::mem::take(&mut self.message);
        if let Some(refusal) = message.refusal() {
            assembly.stop = Some(FinishReason::Refused(short_line(refusal)));
        }
        message.finish(assembly, events)
    }
}

impl Chat {
    /// Converts the finish reason of a server. Servers have different names for the same reason.
    fn finish_reason(&self, reason: &str) -> FinishReason {
        match reason {
            "stop" | "eos" | "end_turn" => FinishReason::End,
            "tool_calls" | "function_call" | "tool_use" => FinishReason::Calls,
            "length" | "max_tokens" | "model_length" => FinishReason::Length,
            "content_filter" => {
                FinishReason::Refused(short_line(self.message.refusal().unwrap_or_default()))
            }
            other => FinishReason::Other(short_line(other)),
        }
    }
}

/// Checks for an error in the form `{"detail":…}` or `{"object":"error","message":…}`.
fn is_error(fields: &Fields<'_>) -> bool {
    let is_error_object = fields.text("object").as_deref() == Some("error");
    let has_message = fields.raw("message").is_some();
    fields.raw("detail").is_some() || (is_error_object && has_message)
}

/// Reads the token counts. Servers have different field names for the tokens of the cache.
fn read_usage(usage: &Fields<'_>) -> TokenUsage {
    let prompt_details = usage.object("prompt_tokens_details").unwrap_or_default();
    let completion_details = usage.object("completion_tokens_details").unwrap_or_default();
    let cache_read =
        prompt_details.number("cached_tokens").or_else(|| usage.number("prompt_cache_hit_tokens"));
    let cache_written = prompt_details
        .number("cache_write_tokens")
        .or_else(|| usage.number("cache_creation_input_tokens"));
    // Some servers count thinking only in the total and not in `completion_tokens`.
    let total_output = match (usage.number("total_tokens"), usage.number("prompt_tokens")) {
        (Some(total), Some(prompt)) => Some(total.saturating_sub(prompt)),
        _ => None,
    };
    // In this format, `prompt_tokens` includes cached tokens.
    let cached = cache_read.unwrap_or(0).saturating_add(cache_written.unwrap_or(0));
    TokenUsage {
        input: usage.number("prompt_tokens").map(|all| all.saturating_sub(cached)),
        cache_read,
        cache_written,
        output: usage.number("completion_tokens").max(total_output),
        reasoning: completion_details.number("reasoning_tokens"),
    }
}
