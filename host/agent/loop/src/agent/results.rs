//! Makes the calls of an answer, and records each result.

use std::sync::Arc;

use serde_json::Value;
use toolhold_core::text::neutral;
use toolhold_core::{CancellationToken, Category, fenced, without_fence_keys};
use toolhold_models::Part;

use super::Agent;
use super::room::SummaryError;
use crate::AgentError;
use crate::calls::{invalid, is_echo};
use crate::chosen;
use crate::context;
use crate::correct::{self, CorrectionError};
use crate::environment::{AnsweredCall, AskError, ReadyCall};
use crate::events::{RunEvent, RunEvents, text_of};
use crate::plausible::{self, PathWarning};
use crate::record::{Corrected, RecordedResult, SessionEntry};
use crate::think::strip;

impl Agent {
    /// Makes the calls in `queue` at the same time, and records their results. Sets `all_denied` to
    /// `false` if the host allowed at least one call.
    pub(super) async fn flush(
        &mut self,
        queue: &mut Vec<ReadyCall>,
        all_denied: &mut bool,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<(), AgentError> {
        for call in queue.iter() {
            announce_call(call, events);
        }
        let calls = std::mem::take(queue);
        let answered = self.call_in_time(&calls, events, cancel).await;
        self.count_delegated().await?;
        // The first recorded result gets the number of calls that began together. Later results get
        // 0.
        let mut unrecorded_begun = calls.len();
        for (call, answered) in calls.into_iter().zip(answered) {
            let is_denied =
                self.record_call(call, answered, &mut unrecorded_begun, events, cancel).await?;
            if !is_denied {
                *all_denied = false;
            }
        }
        Ok(())
    }

    /// Corrects, checks and records an answered call. Returns whether the call was denied.
    /// `unrecorded_begun` is the number of calls that began together. It becomes 0 as soon as an
    /// entry contains it.
    async fn record_call(
        &mut self,
        call: ReadyCall,
        answered: AnsweredCall,
        unrecorded_begun: &mut usize,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<bool, AgentError> {
        let (mut answered, note) =
            self.correct(&call, answered, unrecorded_begun, events, cancel).await?;
        // The check for repetitions gets the result before it is summarised, because a model writes
        // a different summary each time.
        let text = text_of(&answered.result.result.content);
        // Fences around untrusted text have random keys, which differ in each result.
        let compared = without_fence_keys(&text);
        self.repetition.after(&call.name, &call.arguments, call.read_only, Some(&compared));

        let path_warnings = self.made_up_path_warnings(&call, &answered);
        let unsummarised = self.summarise_result(&call, &mut answered, cancel).await?;

        let mut result = answered.result;
        result.begun = std::mem::take(unrecorded_begun);
        let category = result.category.as_deref();
        // If all calls are denied, the task can end as denied. A person's refusal doesn't count for
        // this, because the model can follow the person's answer and finish the task.
        let is_denied = !answered.is_refused
            && matches!(category, Some("policy_blocked" | "confirmation_required"));
        let for_model = path_warnings.iter().map(PathWarning::for_model);
        let warnings = note.into_iter().chain(call.warning).chain(for_model);
        result.result.content.extend(warnings.map(Part::Text));
        self.finish(result, events).await?;

        let for_person = path_warnings.iter().map(PathWarning::for_person);
        for text in for_person.chain(unsummarised) {
            self.notice(text, events).await?;
        }
        Ok(is_denied)
    }

    /// Has a model correct arguments that don't match the tool's schema, and makes the call again.
    /// The new call passes all checks again. Returns the answered call and a note for the model.
    async fn correct(
        &mut self,
        call: &ReadyCall,
        answered: AnsweredCall,
        unrecorded_begun: &mut usize,
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Result<(AnsweredCall, Option<String>), AgentError> {
        let (Some(corrector), Some(error)) = (&self.settings.corrector, &answered.unfit) else {
            return Ok((answered, None));
        };
        let time = self.time_left().unwrap_or_default().min(corrector.budget);
        if time.is_zero() || self.reached_limit().is_some() {
            return Ok((answered, None));
        }
        let Some(tool) = self.environment.host.tool(&call.name) else {
            return Ok((answered, None));
        };
        let turn = correct::correction_turn(corrector, &tool, &call.arguments, error);
        let Some(turn) = turn else { return Ok((answered, None)) };

        let asking = self.environment.ask_corrector(&turn, cancel);
        let (usage, corrected) = match tokio::time::timeout(time, asking).await {
            Err(_) => (None, Err(CorrectionError::Late(time))),
            Ok(None | Some(Err(AskError::Cancelled))) => return Ok((answered, None)),
            Ok(Some(Err(error))) => (None, Err(error.into())),
            Ok(Some(Ok(answer))) => {
                (Some(answer.usage), correct::corrected(&answer, &tool.name, &call.arguments))
            }
        };
        let prices = corrector.prices;
        let corrector_name = format!("{}/{}", corrector.provider, corrector.model);
        if let Some(usage) = &usage {
            self.spend(usage, &prices);
        }

        let fault = format!("the arguments of `{}` don't match the tool's schema", tool.name);
        let notice = match &corrected {
            Ok(arguments) => {
                format!(
                    "{fault}; {corrector_name} corrected the arguments: {}",
                    correct::shown(arguments)
                )
            }
            Err(error) => {
                format!("{fault}, and {corrector_name} didn't correct the arguments: {error}")
            }
        };
        let entry = Corrected {
            call: call.id.clone(),
            begun: std::mem::take(unrecorded_begun),
            notice,
            usage,
        };
        self.append(&SessionEntry::Corrected(entry.clone())).await?;
        events.event(RunEvent::Notice { text: entry.notice });

        let Ok(arguments) = corrected else { return Ok((answered, None)) };
        let corrected_call = self.corrected_call(call, arguments);
        let calls = std::slice::from_ref(&corrected_call);
        match self.call_in_time(calls, events, cancel).await.pop() {
            Some(second) if second.unfit.is_none() => {
                let error = answered.unfit.unwrap_or_default();
                let note = correct::note(&corrector_name, &corrected_call.arguments, &error);
                Ok((second, Some(note)))
            }
            // The model gets the error about its own arguments.
            _ => Ok((answered, None)),
        }
    }

    /// Returns the call with corrected arguments, without the model's thoughts.
    fn corrected_call(&self, call: &ReadyCall, mut arguments: Value) -> ReadyCall {
        strip(&mut arguments);
        let read_only = self.environment.reads(&call.name, &arguments);
        // The correcting model may have copied the call from an untrusted text.
        let accepts_text_calls = self.forms.offered.is_some();
        let may_be_echo =
            accepts_text_calls && is_echo(&self.forms.earlier, &call.name, &arguments);
        let is_doubtful = call.is_doubtful || may_be_echo;
        ReadyCall { arguments, read_only, is_doubtful, ..call.clone() }
    }

    /// Replaces a truncated result with a summary. If the summary fails, keeps the result and
    /// returns a notice for the person.
    async fn summarise_result(
        &mut self,
        call: &ReadyCall,
        answered: &mut AnsweredCall,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, AgentError> {
        let (Some(cut), Some(rest)) = (&answered.cut, &answered.result.rest) else {
            return Ok(None);
        };
        if !self.settings.summarize_output || self.reached_limit().is_some() {
            return Ok(None);
        }
        let result = &mut answered.result.result;
        // The first part of a failed call is its error message, which stays unchanged.
        let first = usize::from(result.failed).min(result.content.len());
        let text = text_of(&result.content[first..]);
        let Some(turn) = context::result_turn(&self.settings, call, &text) else {
            return Ok(None);
        };

        let answer = match self.summarise(&turn, cancel).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Some(not_summarised(&cut.tool, error))),
        };
        self.append(&SessionEntry::Summary(answer.usage)).await?;
        let written = answer.text();
        let summary = neutral(written.trim());
        if summary.is_empty() {
            return Ok(Some(not_summarised(&cut.tool, SummaryError::Empty)));
        }
        if summary.len() >= text.len() {
            return Ok(Some(not_summarised(&cut.tool, SummaryError::Longer)));
        }

        let shown =
            if cut.is_untrusted { fenced(&cut.tool, &summary) } else { summary.into_owned() };
        let explanation = format!(
            "[This is a summary by {} of a result that is too long. To see the whole result, call \
             read_overflow with id \"{}\" and offset 0.]",
            self.settings.summary_model, rest.id
        );
        let replaced = result.content.split_off(first);
        result.content.push(Part::Text(shown));
        result.content.push(Part::Text(explanation));
        let notices = cut.notices.iter().map(|notice| format!("[{notice}]"));
        result.content.extend(notices.map(Part::Text));
        let images = replaced.into_iter().filter(|part| matches!(part, Part::Image { .. }));
        result.content.extend(images);
        Ok(None)
    }

    /// Returns warnings about paths in a failed call that the model may have made up.
    fn made_up_path_warnings(&self, call: &ReadyCall, answered: &AnsweredCall) -> Vec<PathWarning> {
        if !self.settings.hallucination_detection || !answered.result.result.failed {
            return Vec::new();
        }
        let Some(tool) = self.environment.host.tool(&call.name) else { return Vec::new() };
        plausible::check_arguments(&tool, &call.arguments, |path| {
            // If the tool didn't report a missing path, all paths of the call count as known.
            !answered.is_missing || self.forms.earlier.contain_path(path)
        })
    }

    /// Warns the person about paths in the answer that the model may have made up.
    pub(super) async fn warn_of_made_up_paths(
        &mut self,
        text: &str,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        if !self.settings.hallucination_detection {
            return Ok(());
        }
        // Only look for paths that the model hasn't read.
        let earlier = &self.forms.earlier;
        let mut paths = plausible::paths_in(text);
        paths.retain(|path| !earlier.contain_path(path));
        let unseen: Vec<String> = paths.into_iter().map(str::to_owned).collect();
        let existing = self.environment.existing(unseen).await;

        let warnings = plausible::check_text(text, |path| {
            earlier.contain_path(path) || existing.contains(path)
        });
        for warning in warnings {
            self.notice(warning.for_person(), events).await?;
        }
        Ok(())
    }

    pub(super) async fn find_tools(
        &mut self,
        call: &ReadyCall,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        announce_call(call, events);
        let is_native = self.settings.native_tools;
        let (found, notices) =
            chosen::find(&self.environment, &self.tools, is_native, &call.arguments).await;
        let (text, category) = match found {
            Ok(text) => (text, None),
            Err(error) => (invalid(error), Some(Category::InvalidParameters)),
        };
        let read_only = false;
        self.repetition.after(&call.name, &call.arguments, read_only, Some(&text));
        let result = RecordedResult::new(call, vec![Part::Text(text)], category);
        self.finish(result, events).await?;
        for text in notices {
            self.notice(text, events).await?;
        }
        Ok(())
    }

    /// Answers a call without making it. `text` tells the model why.
    pub(super) async fn refuse(
        &mut self,
        call: &ReadyCall,
        text: &str,
        category: Category,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        announce_call(call, events);
        let content = vec![Part::Text(text.to_owned())];
        let result = RecordedResult::new(call, content, Some(category));
        self.finish(result, events).await
    }

    pub(super) async fn finish(
        &mut self,
        result: RecordedResult,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        let event = result.event();
        self.append(&SessionEntry::Result(result)).await?;
        events.event(event);
        Ok(())
    }

    /// Makes calls, and cancels them when the task's time ends.
    async fn call_in_time(
        &self,
        calls: &[ReadyCall],
        events: &mut dyn RunEvents,
        cancel: &CancellationToken,
    ) -> Vec<AnsweredCall> {
        let cancel = cancel.child_token();
        let live_events = Arc::default();
        let calling = self.environment.call_all(calls, &live_events, &cancel);
        let mut calling = std::pin::pin!(live_events.pass_on(calling, events));
        loop {
            // The clock stops while a person is asked, so time may be left after the timeout.
            let Some(time_left) = self.time_left() else {
                cancel.cancel();
                return calling.await;
            };
            if let Ok(results) = tokio::time::timeout(time_left, &mut calling).await {
                return results;
            }
        }
    }
}

fn not_summarised(tool: &str, error: SummaryError) -> String {
    format!("the result of `{tool}` isn't summarised: {error}")
}

pub(super) fn announce_call(call: &ReadyCall, events: &mut dyn RunEvents) {
    events.event(RunEvent::Call {
        id: call.id.clone(),
        tool: call.name.clone(),
        arguments: call.arguments.clone(),
    });
}
