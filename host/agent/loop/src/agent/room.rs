//! Makes room in the model's context: first replaces old results, then summarises the older part of
//! the conversation.

use std::time::Duration;

use toolhold_core::CancellationToken;
use toolhold_core::text::grouped;
use toolhold_models::{ModelAnswer, Turn};

use super::{Agent, Next};
use crate::AgentError;
use crate::context;
use crate::ending::{EndKind, TaskEnd};
use crate::environment::AskError;
use crate::events::RunEvents;
use crate::record::{Compressed, CompressionMethod, SessionEntry};
use crate::tokens::{Fill, estimate};

/// A local model is slow if it reads a request for at least this time.
const SLOW_READING: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub(super) enum SummaryError {
    #[error("the conversation has no older part to summarise")]
    NothingOlder,
    #[error("the summary is empty")]
    Empty,
    #[error("the summary is longer than the conversation")]
    Longer,
    #[error("the task has no time left")]
    Time,
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl Agent {
    /// Leaves out long results, except in the last `recent` messages. Returns `false` if no result
    /// was left out.
    pub(super) async fn prune(
        &mut self,
        recent: usize,
        events: &mut dyn RunEvents,
    ) -> Result<bool, AgentError> {
        let pruned = context::prunable(self.conversation.context_messages(), recent);
        if pruned.is_empty() {
            return Ok(false);
        }
        let text = format!("{} old results are left out of the context", pruned.len());
        self.append(&SessionEntry::Pruned(pruned)).await?;
        self.notice(text, events).await?;
        self.measure();
        Ok(true)
    }

    /// Leaves out old results, or summarises the conversation, if the context is too full.
    pub(super) async fn fit(
        &mut self,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Next, AgentError> {
        let window = self.settings.context_tokens;
        let answer_tokens = self.settings.max_output.into();
        // If the context is rather full, leave out old results. If it is still too full after that,
        // also leave out recent results, but none that the model hasn't read yet.
        for (fill, recent) in
            [(Fill::Soft, context::RECENT_MESSAGES), (Fill::Hard, context::UNREAD_MESSAGES)]
        {
            if self.meter.fill(window, answer_tokens) < fill {
                return Ok(Next::Ask);
            }
            self.prune(recent, events).await?;
        }
        if self.meter.fill(window, answer_tokens) < Fill::Hard {
            return Ok(Next::Ask);
        }
        match self.compress(CompressionMethod::Triggered, events, cancel).await? {
            Ok(()) => {}
            Err(error) if cancel.is_cancelled() => {
                return Ok(Next::End(TaskEnd::new(EndKind::Cancelled, error.to_string())));
            }
            // The agent checks the time before the next request, and then ends the task.
            Err(_) if self.time_left().is_none() => return Ok(Next::Ask),
            Err(error) => {
                let text = format!("the conversation isn't summarised: {error}");
                self.notice(text, events).await?;
            }
        }
        if self.meter.fill(window, answer_tokens) < Fill::Hard {
            return Ok(Next::Ask);
        }
        let reason = format!(
            "the conversation has about {} tokens; the limit of the model is {window} \
             (`context_tokens` in [providers.{}]). Start a new session",
            self.meter.tokens(),
            self.settings.provider
        );
        Ok(Next::End(TaskEnd::new(EndKind::Budget, reason)))
    }

    /// Summarises the older part of the conversation. The inner error is the reason why the
    /// conversation stays unchanged.
    pub(super) async fn compress(
        &mut self,
        method: CompressionMethod,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Result<(), SummaryError>, AgentError> {
        let Some(older) = context::older(self.conversation.context_messages()) else {
            return Ok(Err(SummaryError::NothingOlder));
        };
        let (last_entry, text) = older;
        let turn = context::summary_turn(&self.settings, text);
        let answer = match self.summarise(&turn, cancel).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let summary = answer.text();
        if summary.trim().is_empty() {
            self.append(&SessionEntry::Summary(answer.usage)).await?;
            return Ok(Err(SummaryError::Empty));
        }
        let summary = self.conversation.summaries_with(summary);
        let compressed = Compressed { through: last_entry, summary, method, usage: answer.usage };
        self.append(&SessionEntry::Compressed(compressed)).await?;
        // If the model called `compress_context`, the person sees the result of this call instead.
        if method != CompressionMethod::Autonomous {
            let text = "the older part of the conversation is summarised".to_owned();
            self.notice(text, events).await?;
        }
        self.measure();
        Ok(Ok(()))
    }

    /// Asks the summarising model, and adds the tokens of its answer to the task's use.
    pub(super) async fn summarise(
        &mut self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, SummaryError> {
        let time = self.time_left().unwrap_or(Duration::ZERO);
        let asking = self.environment.summarise(turn, cancel);
        let Ok(result) = tokio::time::timeout(time, asking).await else {
            return Err(SummaryError::Time);
        };
        let answer = result?;
        let prices = self.settings.summary_prices;
        self.spend(&answer.usage, &prices);
        Ok(answer)
    }

    /// Measures the tokens of the context again, because messages were removed or replaced.
    pub(super) fn measure(&mut self) {
        let summary = self.conversation.head();
        let summary_bytes = summary.as_ref().map_or(0, context::size);
        let mut sizes = vec![self.settings.system.len(), self.tool_bytes(), summary_bytes];
        let messages = self.conversation.context_messages().iter();
        sizes.extend(messages.map(|message| context::size(&message.message)));
        self.meter.replace(sizes);
    }

    fn tool_bytes(&self) -> usize {
        self.tools.iter().map(|tool| context::size_of_tool(tool)).sum()
    }

    pub(super) fn tool_tokens(&self) -> u64 {
        estimate(self.tool_bytes())
    }

    /// Advises the person once in a session to offer fewer tools, if a local model reads slowly.
    pub(super) async fn advise_fewer_tools(
        &mut self,
        reading_time: Duration,
        tool_tokens: u64,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        let has_all_tools = self.chosen.is_none();
        let is_slow = self.settings.is_local && reading_time >= SLOW_READING;
        if self.is_advised || !has_all_tools || !is_slow {
            return Ok(());
        }
        self.is_advised = true;
        let text = fewer_tools_advice(reading_time, self.tools.len(), tool_tokens);
        self.notice(text, events).await
    }
}

/// Returns the advice for the person. The descriptions of the tools have `tokens` tokens.
fn fewer_tools_advice(reading_time: Duration, tools: usize, tokens: u64) -> String {
    format!(
        "the model took {} s to read the conversation, of which about {} tokens describe {tools} \
         tools. To offer only tools that fit the task, set `tool_filter = {{ enabled = true }}` in \
         [agent]",
        reading_time.as_secs(),
        grouped(tokens)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_time_the_tools_and_the_line() {
        let advice = fewer_tools_advice(Duration::from_millis(95_400), 26, 7_900);
        for part in ["95 s", "7,900 tokens", "26 tools", "`tool_filter = { enabled = true }`"] {
            assert!(advice.contains(part), "{part}: {advice}");
        }
    }
}
