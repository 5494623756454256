//! Makes room when the model's context is full. First leaves out old results, then summarises the
//! older part of the conversation.

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

/// The time after which a model on this machine is slow.
const SLOW: Duration = Duration::from_secs(20);

/// The reason why there is no summary.
#[derive(Debug, thiserror::Error)]
pub(super) enum SummaryError {
    #[error("there is nothing older to summarise")]
    NothingOlder,
    #[error("the summary is empty")]
    Empty,
    #[error("the summary is longer")]
    Longer,
    #[error("the task has no time left")]
    Time,
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl Agent {
    /// Leaves out all results except in the `recent` last messages. Returns `false` if there are no
    /// results to leave out.
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

    /// Makes the context smaller if it is too full.
    pub(super) async fn fit(
        &mut self,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Next, AgentError> {
        let window = self.settings.context_tokens;
        let answer = self.settings.max_output.into();
        for (fill, recent) in [(Fill::Soft, context::RECENT), (Fill::Hard, context::LAST)] {
            if self.meter.fill(window, answer) < fill {
                return Ok(Next::Ask);
            }
            self.prune(recent, events).await?;
        }
        if self.meter.fill(window, answer) < Fill::Hard {
            return Ok(Next::Ask);
        }
        match self.compress(CompressionMethod::Triggered, events, cancel).await? {
            Ok(()) => {}
            Err(error) if cancel.is_cancelled() => {
                return Ok(Next::End(TaskEnd::new(EndKind::Cancelled, error.to_string())));
            }
            Err(_) if self.time_left().is_none() => return Ok(Next::Ask),
            Err(error) => {
                let text = format!("the conversation isn't summarised: {error}");
                self.notice(text, events).await?;
            }
        }
        if self.meter.fill(window, answer) < Fill::Hard {
            return Ok(Next::Ask);
        }
        let reason = format!(
            "the conversation is about {} tokens; the limit of the model is {window}, by `context_tokens` in [providers.{}]; start a new session",
            self.meter.tokens(),
            self.settings.provider
        );
        Ok(Next::End(TaskEnd::new(EndKind::Budget, reason)))
    }

    /// Summarises the older part of the conversation. If that fails, the conversation doesn't
    /// change, and the reason is returned.
    pub(super) async fn compress(
        &mut self,
        method: CompressionMethod,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<Result<(), SummaryError>, AgentError> {
        let Some((through, text)) = context::older(self.conversation.context_messages()) else {
            return Ok(Err(SummaryError::NothingOlder));
        };
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
        let compressed = Compressed { through, summary, method, usage: answer.usage };
        self.append(&SessionEntry::Compressed(compressed)).await?;
        if method != CompressionMethod::Autonomous {
            let text = "the older part of the conversation is summarised".to_owned();
            self.notice(text, events).await?;
        }
        self.measure();
        Ok(Ok(()))
    }

    /// Asks the summarising model. Its tokens and costs are part of the task's. The error is a
    /// reason for the person.
    pub(super) async fn summarise(
        &mut self,
        turn: &Turn,
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, SummaryError> {
        let time = self.time_left().unwrap_or_default();
        let asking = self.environment.summarise(turn, cancel);
        let Ok(result) = tokio::time::timeout(time, asking).await else {
            return Err(SummaryError::Time);
        };
        let answer = result?;
        let prices = self.settings.summary_prices;
        self.spend(&answer.usage, &prices);
        Ok(answer)
    }

    /// Measures the conversation again.
    pub(super) fn measure(&mut self) {
        let tools = self.tool_bytes();
        let head = self.conversation.head().as_ref().map_or(0, context::size);
        let mut sizes = vec![self.settings.system.len(), tools, head];
        let messages = self.conversation.context_messages().iter();
        sizes.extend(messages.map(|message| context::size(&message.message)));
        self.meter.replace(sizes);
    }

    fn tool_bytes(&self) -> usize {
        self.tools.iter().map(|tool| context::size_of_tool(tool)).sum()
    }

    /// Estimates the tokens of the descriptions of the offered tools.
    pub(super) fn tool_tokens(&self) -> u64 {
        estimate(self.tool_bytes())
    }

    /// Tells the person once that fewer tools would make a slow model on this machine faster.
    pub(super) async fn advise_fewer_tools(
        &mut self,
        reading_time: Duration,
        tool_tokens: u64,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        let has_all_tools = self.chosen.is_none();
        if self.is_advised || !self.settings.is_local || !has_all_tools || reading_time < SLOW {
            return Ok(());
        }
        self.is_advised = true;
        let text = fewer_tools_advice(reading_time, self.tools.len(), tool_tokens);
        self.notice(text, events).await
    }
}

/// Returns the advice about a slow model on this machine.
fn fewer_tools_advice(reading_time: Duration, tools: usize, tokens: u64) -> String {
    format!(
        "the model read for {} s; about {} tokens of that describe {tools} tools. To offer only \
         those that match the task: `tool_filter = {{ enabled = true }}` in [agent]",
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
