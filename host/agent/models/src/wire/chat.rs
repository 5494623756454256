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
    /// Whether the server said why it ended, or that it ended.
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
        if fields.raw("error").is_some() || choices.is_empty() && is_error(fields) {
            return Err(server_error(fields));
        }
        assembly.read_model(fields);
        let mut usage = fields.object("usage");
        // Only one choice was asked for.
        if let Some(choice) = choices.first().and_then(|choice| Fields::parse(choice.get())) {
            if choice.raw("error").is_some() {
                return Err(server_error(&choice));
            }
            // `message`: from a server that doesn't stream.
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

/// Whether an event without choices is an error: `{"object":"error","message":…}`.
fn is_error(fields: &Fields<'_>) -> bool {
    fields.raw("detail").is_some()
        || fields.text("object").as_deref() == Some("error") && fields.raw("message").is_some()
}

fn read_usage(usage: &Fields<'_>) -> TokenUsage {
    let prompt = usage.object("prompt_tokens_details").unwrap_or_default();
    let completion = usage.object("completion_tokens_details").unwrap_or_default();
    let cache_read =
        prompt.number("cached_tokens").or_else(|| usage.number("prompt_cache_hit_tokens"));
    let cache_written =
        prompt.number("cache_write_tokens").or_else(|| usage.number("cache_creation_input_tokens"));
    // Some servers count thinking only in the total.
    let beyond_prompt = usage
        .number("total_tokens")
        .zip(usage.number("prompt_tokens"))
        .map(|(total, prompt)| total.saturating_sub(prompt));
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
