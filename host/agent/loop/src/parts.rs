//! Shows the text and thoughts of a model's answer while it arrives.

use toolhold_core::text::counted;
use toolhold_models::ModelEvent;

use toolhold_text_calls::{CallSplitter, ShownText};

use crate::events::{RunEvent, RunEvents};

/// Shows a part of an answer that is arriving. If the request is repeated, returns a notice for the
/// session file.
pub(crate) fn show_event(
    event: ModelEvent,
    splitter: Option<&mut CallSplitter<'_>>,
    events: &mut dyn RunEvents,
) -> Option<String> {
    match event {
        ModelEvent::Text(text) => {
            let shown = match splitter {
                None => ShownText { text, ..ShownText::default() },
                // The splitter holds text back that may be the start of a call.
                Some(splitter) => splitter.push(&text),
            };
            show(shown, events);
        }
        ModelEvent::Thinking(text) => events.event(RunEvent::ThinkingPart { text }),
        ModelEvent::CallBegun(tool) => events.event(RunEvent::CallPart { tool }),
        ModelEvent::Retrying { attempts, wait, why } => {
            let wait = wait.as_secs_f64();
            let attempts = counted(attempts, "failed attempt");
            let text = format!("the model is asked again in {wait:.1} s, after {attempts}: {why}");
            events.event(RunEvent::Notice { text: text.clone() });
            return Some(text);
        }
        // The complete answer contains these parts.
        ModelEvent::Call(_) | ModelEvent::Usage(_) | ModelEvent::Finished(_) => {}
    }
    None
}

pub(crate) fn show(shown: ShownText, events: &mut dyn RunEvents) {
    if !shown.thoughts.is_empty() {
        events.event(RunEvent::ThinkingPart { text: shown.thoughts });
    }
    if !shown.text.is_empty() {
        events.event(RunEvent::TextPart { text: shown.text });
    }
}
