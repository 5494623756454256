//! Passes the events of running calls from their threads to the session's events.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolhold_core::{Content, Events, Progress};

use crate::events::{RunEvent, RunEvents};

/// The most bytes of one call's output that may wait. The start of longer output is dropped.
const MAX_WAITING: usize = 16 * 1024;

/// The time between two events with output, so that fast output becomes a few large events.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct LiveEvents(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    events: VecDeque<RunEvent>,
    waker: Option<Waker>,
}

impl LiveEvents {
    /// Runs `work`, and passes on events until `work` is done. Output is passed on only once in
    /// each [`OUTPUT_INTERVAL`].
    pub(crate) async fn pass_on<T>(
        &self,
        work: impl Future<Output = T>,
        events: &mut dyn RunEvents,
    ) -> T {
        let mut work = pin!(work);
        let mut next_output = pin!(sleep(Duration::ZERO));
        // `take` stores the waker of this task, so that a new event also wakes this task.
        poll_fn(|context| {
            let result = work.as_mut().poll(context);
            let is_output_due = result.is_ready() || next_output.as_mut().poll(context).is_ready();
            let due_events = self.take(is_output_due, context.waker());
            if !due_events.is_empty() && result.is_pending() {
                next_output.as_mut().reset(Instant::now() + OUTPUT_INTERVAL);
                // A sleep registers a new deadline only when it is polled.
                let _ = next_output.as_mut().poll(context);
            }
            for event in due_events {
                events.event(event);
            }
            result
        })
        .await
    }

    /// Takes the waiting events, and stores the waker for the next event. If all events are output,
    /// takes no events before `is_output_due`.
    fn take(&self, is_output_due: bool, waker: &Waker) -> VecDeque<RunEvent> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.waker = Some(waker.clone());
        let has_only_output =
            waiting.events.iter().all(|event| matches!(event, RunEvent::CallOutput { .. }));
        if is_output_due || !has_only_output {
            std::mem::take(&mut waiting.events)
        } else {
            VecDeque::new()
        }
    }

    fn push(&self, event: RunEvent) {
        self.change(|events| events.push_back(event));
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<RunEvent>)) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting.events);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }

    fn output(&self, call: &str, more: &str) {
        self.change(|events| {
            // One event per call collects all waiting output.
            for event in events.iter_mut().rev() {
                if let RunEvent::CallOutput { id, text, left_out } = event
                    && *id == *call
                {
                    text.push_str(more);
                    shorten(text, left_out);
                    return;
                }
            }
            let mut text = more.to_owned();
            let mut left_out = 0;
            shorten(&mut text, &mut left_out);
            events.push_back(RunEvent::CallOutput { id: call.to_owned(), text, left_out });
        });
    }
}

/// Removes the start of a text that is too long, and counts the removed bytes in `left_out`.
fn shorten(text: &mut String, left_out: &mut u64) {
    let Some(surplus) = text.len().checked_sub(MAX_WAITING) else { return };
    let start = text.ceil_char_boundary(surplus);
    text.drain(..start);
    *left_out += start as u64;
}

pub(crate) struct CallEvents {
    call: String,
    live_events: Arc<LiveEvents>,
    /// Replaces the providers' keys in a text.
    hide: Box<dyn Fn(&str) -> String + Send + Sync>,
}

impl CallEvents {
    pub(crate) fn new(
        call: &str,
        live_events: Arc<LiveEvents>,
        hide: Box<dyn Fn(&str) -> String + Send + Sync>,
    ) -> Self {
        Self { call: call.to_owned(), live_events, hide }
    }

    pub(crate) fn call(&self) -> &str {
        &self.call
    }

    pub(crate) fn push(&self, event: RunEvent) {
        self.live_events.push(event);
    }

    fn hide(&self, text: &str) -> String {
        (self.hide)(text)
    }
}

impl Events for CallEvents {
    /// Adds a progress message as a line of output.
    fn progress(&self, progress: Progress) {
        let percent = match progress.fraction {
            Some(fraction) if fraction.is_finite() => {
                format!("{:.0}% ", fraction.clamp(0.0, 1.0) * 100.0)
            }
            _ => String::new(),
        };
        let message = self.hide(&progress.message);
        self.live_events.output(&self.call, &format!("{percent}{message}\n"));
    }

    fn emitted(&self, part: &Content) {
        if let Some(text) = part.as_text() {
            self.live_events.output(&self.call, &self.hide(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(told: &LiveEvents) -> Vec<RunEvent> {
        told.take(true, Waker::noop()).into()
    }

    #[test]
    fn flood_is_one_event_with_its_last_part() {
        let told = LiveEvents::default();
        for number in 0..10_000 {
            told.output("a", &format!("line {number} ä\n"));
        }
        told.output("b", "other\n");
        let [RunEvent::CallOutput { id, text, left_out }, RunEvent::CallOutput { .. }] =
            &events(&told)[..]
        else {
            panic!("two calls have two events");
        };
        assert!(id == "a" && text.ends_with("line 9999 ä\n") && text.len() <= MAX_WAITING);
        let whole: usize = (0..10_000).map(|number| format!("line {number} ä\n").len()).sum();
        assert_eq!(text.len() as u64 + left_out, whole as u64);
    }

    #[test]
    fn output_waits_for_its_time_and_questions_dont() {
        let told = LiveEvents::default();
        told.output("a", "text");
        assert!(told.take(false, Waker::noop()).is_empty());
        told.push(RunEvent::Notice { text: String::new() });
        assert_eq!(told.take(false, Waker::noop()).len(), 2);
    }

    #[test]
    fn events_are_passed_on_while_the_work_runs() {
        let (told, mut seen) = (LiveEvents::default(), Vec::new());
        let work = async {
            told.output("a", "one\n");
            tokio::task::yield_now().await;
            told.output("a", "two\n");
            7
        };
        let mut keep = |event: RunEvent| seen.push(event);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("it is made");
        assert_eq!(runtime.block_on(told.pass_on(work, &mut keep)), 7);
        let text: String = seen
            .iter()
            .map(|event| match event {
                RunEvent::CallOutput { text, .. } => text.as_str(),
                _ => "",
            })
            .collect();
        assert_eq!(text, "one\ntwo\n");
    }
}
