//! Shows the text and thoughts of a model's answer while it arrives. Returns the notice to record
//! for a part.

use toolhold_models::ModelEvent;

use toolhold_text_calls::{CallSplitter, ShownText};

use crate::events::{RunEvent, RunEvents};

/// Shows a part of an answer. Returns a notice if the part has to be recorded.
pub(crate) fn show_event(
    event: ModelEvent,
    splitter: Option<&mut CallSplitter<'_>>,
    events: &mut dyn RunEvents,
) -> Option<String> {
    match event {
        ModelEvent::Text(text) => {
            let shown = match splitter {
                None => ShownText { text, ..ShownText::default() },
                // A text that may be a call isn't shown until this is clear.
                Some(splitter) => splitter.push(&text),
            };
            show(shown, events);
        }
        ModelEvent::Thinking(text) => events.event(RunEvent::ThinkingPart { text }),
        ModelEvent::CallBegun(tool) => events.event(RunEvent::CallPart { tool }),
        ModelEvent::Retrying { attempts, wait, why } => {
            let wait = wait.as_secs_f64();
            let text =
                format!("asking again in {wait:.1} s, after {attempts} failed attempts: {why}");
            events.event(RunEvent::Notice { text: text.clone() });
            return Some(text);
        }
        ModelEvent::Call(_) | ModelEvent::Usage(_) | ModelEvent::Finished(_) => {}
    }
    None
}

/// Shows a part of an answer's text.
pub(crate) fn show(shown: ShownText, events: &mut dyn RunEvents) {
    if !shown.thoughts.is_empty() {
        events.event(RunEvent::ThinkingPart { text: shown.thoughts });
    }
    if !shown.text.is_empty() {
        events.event(RunEvent::TextPart { text: shown.text });
    }
}
