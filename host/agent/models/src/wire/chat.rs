//! Reads answers of OpenAI's Chat Completions, and of the many servers that are nearly compatible.

use crate::assembly::{Assembly, word};
use crate::raw::Fields;
use crate::turn::{Block, FinishReason, ModelEvent, TokenUsage};
use crate::wire::delta::DeltaMessage;
use crate::wire::{Reader, WireError, server_error};

/// An answer that is read.
#[derive(Debug, Default)]
pub(super) struct Chat {
    message: DeltaMessage,
    /// Whether the server reported the end.
    has_end: bool,
}

impl Reader for Chat {
    fn read(
        &mut self,
        _name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let choices = fields.items("choices");
        let is_other_error = choices.is_empty() && is_error(fields);
        if fields.raw("error").is_some() || is_other_error {
            return Err(server_error(fields));
        }
        assembly.read_model(fields);

        let mut usage = fields.object("usage");
        // The request asks for only one choice.
        if let Some(choice) = choices.first().and_then(|choice| Fields::parse(choice.get())) {
            if choice.raw("error").is_some() {
                return Err(server_error(&choice));
            }
            // A server that doesn't stream sends `message`.
            let delta = choice.object("delta").or_else(|| choice.object("message"));
            if let Some(delta) = delta {
                self.message.add(&delta, assembly, events)?;
            }
            if let Some(reason) = choice.some_text("finish_reason") {
                self.has_end = true;
                assembly.stop = Some(self.stop(&reason));
            }
            usage = usage.or_else(|| choice.object("usage"));
        }
        usage = usage.or_else(|| fields.object("x_groq")?.object("usage"));
        if let Some(usage) = usage {
            assembly.usage = assembly.usage.updated(read_usage(&usage));
        }
        Ok(())
    }

    fn ended(&mut self) {
        self.has_end = true;
    }

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
            assembly.stop = Some(FinishReason::Refused(word(refusal)));
        }
        message.finish(assembly, events)
    }
}

impl Chat {
    fn stop(&self, reason: &str) -> FinishReason {
        match reason {
            "stop" | "eos" | "end_turn" => FinishReason::End,
            "tool_calls" | "function_call" | "tool_use" => FinishReason::Calls,
            "length" | "max_tokens" | "model_length" => FinishReason::Length,
            "content_filter" => {
                FinishReason::Refused(word(self.message.refusal().unwrap_or_default()))
            }
            other => FinishReason::Other(word(other)),
        }
    }
}

/// Checks whether an event without choices is an error: `{"detail":…}` or
/// `{"object":"error","message":…}`.
fn is_error(fields: &Fields<'_>) -> bool {
    let is_error_object = fields.text("object").as_deref() == Some("error");
    let has_message = fields.raw("message").is_some();
    fields.raw("detail").is_some() || (is_error_object && has_message)
}

fn read_usage(usage: &Fields<'_>) -> TokenUsage {
    let prompt = usage.object("prompt_tokens_details").unwrap_or_default();
    let completion = usage.object("completion_tokens_details").unwrap_or_default();
    let cache_read =
        prompt.number("cached_tokens").or_else(|| usage.number("prompt_cache_hit_tokens"));
    let cache_written =
        prompt.number("cache_write_tokens").or_else(|| usage.number("cache_creation_input_tokens"));
    // Some servers include thinking only in the total.
    let beyond_prompt = match (usage.number("total_tokens"), usage.number("prompt_tokens")) {
        (Some(total), Some(prompt)) => Some(total.saturating_sub(prompt)),
        _ => None,
    };
    // In this format, the cached tokens are part of all tokens.
    let cached = cache_read.unwrap_or(0).saturating_add(cache_written.unwrap_or(0));
    TokenUsage {
        input: usage.number("prompt_tokens").map(|all| all.saturating_sub(cached)),
        cache_read,
        cache_written,
        output: usage.number("completion_tokens").max(beyond_prompt),
        reasoning: completion.number("reasoning_tokens"),
    }
}
