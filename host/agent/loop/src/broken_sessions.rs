//! Tests of damaged session files. Reading a file gives an error or a session. The memory that
//! reading takes is in proportion to the file's size.

use std::fs::File;
use std::io::{Seek, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use toolhold_core::CancellationToken;
use toolhold_models::{
    Block, CallResult, FinishReason, ModelAnswer, ModelCall, Part, RawJson, TokenUsage, WireFormat,
};

use crate::conversation::Conversation;
use crate::events::{RunEvent, RunEvents};
use crate::record::{EarlierMessage, MAX_ENTRIES, Recorded, RecordedResult};
use crate::replay::RecordedSession;

/// A file in memory.
fn file(bytes: &[u8]) -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("session", flags).unwrap());
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// An answer of a model, with its calls.
fn answer(text: &str, calls: &[(&str, &str)], usage: u64) -> Value {
    let opaque = RawJson::new(r#"{"type": "search", "n": [1, {"a": null}]}"#).unwrap();
    let mut blocks = vec![
        Block::Thinking { text: "Let me see".to_owned(), raw: Some(opaque.clone()) },
        Block::Text { text: text.to_owned(), raw: None },
        Block::Opaque(opaque),
    ];
    for (id, name) in calls {
        let id = (*id).to_owned();
        let name = (*name).to_owned();
        let arguments = r#"{"path": "a"}"#.to_owned();
        blocks.push(Block::Call(ModelCall { id, name, arguments, raw: None }));
    }
    let usage = TokenUsage { input: Some(usage), output: Some(7), ..TokenUsage::default() };
    let answer = ModelAnswer {
        provider: "home".to_owned(),
        format: WireFormat::Chat,
        model: "m".to_owned(),
        blocks,
        stop: FinishReason::End,
        usage,
    };
    json!({ "answer": answer })
}

/// The result of a call: a text and an image. `begun`: the number of calls that began together.
fn result(call: &str, begun: usize) -> Value {
    let result = CallResult {
        call: call.to_owned(),
        name: "read".to_owned(),
        content: vec![
            Part::Text("line\n".repeat(20)),
            Part::Image { media_type: "image/png".to_owned(), data: "iVBO".to_owned() },
        ],
        failed: false,
    };
    json!({ "result": RecordedResult { result, category: None, begun, rest: None, filtered: None } })
}

/// A task with all settings and tools.
fn task(text: &str) -> Value {
    let prices = json!({ "input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75 });
    let settings = json!({
        "provider": "home", "model": "m", "summary_model": "m", "system": "You help.",
        "context_tokens": 32768, "max_output": 1024, "thinking": "Usual", "native_tools": false,
        "is_local": true, "lenient_text": true, "thoughts": 0.5, "max_turns": 10,
        "max_time": { "secs": 60, "nanos": 0 }, "max_tokens": 0, "max_cost": 1.5,
        "prices": prices, "summary_prices": prices, "summarize_output": true,
        "hallucination_detection": true,
        "corrector": {
            "provider": "fixer", "model": "small", "native_tools": true, "max_output": 100,
            "budget": { "secs": 30, "nanos": 0 }, "prices": prices,
        },
    });
    let tools = crate::testing::definitions();
    let parts = json!([{ "Text": text }]);
    json!({ "task": { "parts": parts, "settings": settings, "tools": tools, "turn": 5 } })
}

fn rewound(to: usize) -> Value {
    json!({ "rewound": { "to": to, "notice": "The conversation goes on from before." } })
}

fn left_out(entry: usize, call: &str) -> Value {
    let content = json!([{ "Text": "An old result." }]);
    let result = json!({ "call": call, "name": "read", "content": content, "failed": false });
    json!({ "entry": entry, "result": result })
}

/// A session with every kind of entry: two tasks, calls in text and native calls, pruned results, a
/// summary, an end, and a step back to before the second task.
fn whole() -> Vec<u8> {
    let spent = json!({
        "turns": 2, "input": 80, "cache_read": 0, "cache_written": 0, "output": 14, "cost": 0.5,
    });
    let usage = json!({ "input": 9, "cache_read": 1, "cache_written": null, "output": 2, "reasoning": null });
    let entries = [
        json!({ "began": { "version": 1, "id": "6b083", "directory": "/w", "at": 1_700_000_000 } }),
        task("Fix it."),
        answer(
            "I look.\n```tool_call\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```",
            &[],
            40,
        ),
        result("text-2-0", 1),
        answer("Two.", &[("c1", "read"), ("c2", "edit")], 40),
        result("c1", 2),
        result("c2", 0),
        json!({ "notice": "Toolhold waited." }),
        json!({ "note": "Your answer was empty." }),
        json!({ "pruned": [left_out(3, "text-2-0"), left_out(5, "c1")] }),
        json!({ "summary": usage }),
        json!({ "corrected": {
            "call": "c2", "begun": 0, "notice": "It was corrected.", "usage": usage,
        } }),
        json!({ "compressed": {
            "through": 4, "summary": "It read a.", "method": "triggered", "usage": usage,
        } }),
        json!({ "ended": { "ending": { "kind": "done", "reason": "" }, "spent": spent } }),
        task("And now?"),
        answer("```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"b\"}}\n```", &[], 40),
        rewound(14),
    ];
    entries.iter().flat_map(|entry| format!("{entry}\n").into_bytes()).collect()
}

/// Counts events, and reads each event as a front end does.
#[derive(Default)]
struct Counted(usize);

impl RunEvents for Counted {
    fn event(&mut self, event: RunEvent) {
        self.0 += serde_json::to_string(&event).unwrap().len();
    }
}

/// Reads a file for resuming and for a replay. Returns for each whether the file is a session.
fn read(bytes: &[u8]) -> [bool; 2] {
    let recorded = Recorded::read(&mut file(bytes));
    if let Ok(recorded) = &recorded {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(recorded.entries, lines);
        assert!(recorded.conversation.len() <= lines && recorded.bytes <= bytes.len() as u64);
        let conversation = Conversation::from_recorded(recorded);
        assert!(conversation.messages().len() <= lines + 1);
        conversation.last_answer();
        recorded.spent();
    }
    let mut events = Counted::default();
    let session = RecordedSession { id: "6b083".to_owned(), file: file(bytes) };
    let replayed = session.replay(&mut events, &CancellationToken::new());
    // Each text is shown twice at most, and escaped.
    assert!(events.0 <= 4096 + 64 * bytes.len(), "{} of {}", events.0, bytes.len());
    [recorded.is_ok(), replayed.is_ok()]
}

/// Texts that readers stumble over.
const PIECES: [&str; 25] = [
    "null",
    "{",
    "}",
    "[]",
    "\"",
    "\\",
    "\\ud83d",
    ":",
    ",",
    "\n",
    "\n\n",
    "\r",
    "-1",
    "1e999",
    "18446744073709551615",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "{\"note\":\"a\"}\n",
    "{\"compressed\":{\"through\":18446744073709551615,\"summary\":\"\",\"method\":\"manual\",\"usage\":{}}}\n",
    "{\"pruned\":[{\"entry\":18446744073709551615,\"result\":{\"call\":\"\",\"name\":\"\",\"content\":[],\"failed\":false}}]}\n",
    "{\"ended\":{\"ending\":{\"kind\":\"done\",\"reason\":\"\"},\"spent\":{\"turns\":18446744073709551615,\"input\":18446744073709551615,\"cache_read\":0,\"cache_written\":0,\"output\":1,\"cost\":1e308}}}\n",
    "{\"summary\":{\"input\":18446744073709551615,\"cache_read\":18446744073709551615}}\n",
    "{\"rewound\":{\"to\":1,\"notice\":\"\"}}\n",
    "```tool_call\n",
];

/// A way to break a file.
#[derive(Clone, Debug)]
enum Break {
    Remove(usize),
    Insert(Vec<u8>),
    Repeat(usize),
    /// Repeats a line at another place.
    Line(prop::sample::Index),
    /// A piece comes at the begin of a line.
    Begin(&'static str),
    /// Replaces a number with another number.
    Number(&'static str),
    End,
}

/// Generates up to seven changes that break a session file, each with its place in the file.
fn breaks() -> impl Strategy<Value = Vec<(prop::sample::Index, Break)>> {
    let numbers =
        &["0", "1", "12", "18446744073709551615", "-1", "1e308", "99999999999999999999"][..];
    let whole_lines = &PIECES[18..24];
    let one = prop_oneof![
        (1..60usize).prop_map(Break::Remove),
        prop::sample::select(&PIECES[..]).prop_map(|piece| Break::Insert(piece.into())),
        vec(any::<u8>(), 1..4).prop_map(Break::Insert),
        (1..4000usize).prop_map(Break::Repeat),
        any::<prop::sample::Index>().prop_map(Break::Line),
        prop::sample::select(whole_lines).prop_map(Break::Begin),
        prop::sample::select(numbers).prop_map(Break::Number),
        Just(Break::End),
    ];
    vec((any::<prop::sample::Index>(), one), 1..8)
}

/// Returns the file of [`whole`] with these changes.
fn broken(breaks: &[(prop::sample::Index, Break)]) -> Vec<u8> {
    let mut bytes = whole();
    for (index, how) in breaks {
        let at = index.index(bytes.len() + 1);
        match how {
            Break::Remove(length) => drop(bytes.drain(at..bytes.len().min(at + length))),
            Break::Insert(piece) => drop(bytes.splice(at..at, piece.iter().copied())),
            Break::Repeat(length) => {
                let again = bytes[at..bytes.len().min(at + length)].to_vec();
                bytes.splice(at..at, again);
            }
            Break::Line(other) => {
                let from = begin_of_line(&bytes, other.index(bytes.len() + 1));
                let mut lines = bytes[from..].split_inclusive(|byte| *byte == b'\n');
                let line = lines.next().unwrap_or_default().to_vec();
                let to = begin_of_line(&bytes, at);
                bytes.splice(to..to, line);
            }
            Break::Begin(piece) => {
                let at = begin_of_line(&bytes, at);
                bytes.splice(at..at, piece.bytes());
            }
            Break::Number(number) => {
                let Some(before) = bytes[at..].iter().position(u8::is_ascii_digit) else {
                    continue;
                };
                let from = at + before;
                let digits = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(from..from + digits, number.bytes());
            }
            Break::End => bytes.truncate(at),
        }
    }
    bytes
}

fn begin_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |it| it + 1)
}

/// Many cases where time doesn't matter.
fn cases() -> ProptestConfig {
    let cases = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 50_000 } else { 300 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn whole_session_is_read_and_shown() {
    assert_eq!(read(&whole()), [true, true]);
}

#[test]
fn rewound_entries_leave_the_conversation() {
    let mut bytes = whole();
    let recorded = Recorded::read(&mut file(&bytes)).unwrap();
    let message = vec![Part::Text("Fix it.".to_owned())];
    assert_eq!(recorded.last_message, Some((1, message)));
    assert!(recorded.summary.is_some() && recorded.is_pruned);
    assert_eq!(recorded.conversation.last().map(|(number, _)| *number), Some(8));
    let messages = EarlierMessage::read_all(&mut file(&bytes)).unwrap();
    let fix = EarlierMessage { entry: 1, text: "Fix it.".to_owned(), turn: 5 };
    assert_eq!(messages, [fix]);

    // The summary and the earlier step back are behind the message, too.
    bytes.extend(format!("{}\n", rewound(1)).bytes());
    let recorded = Recorded::read(&mut file(&bytes)).unwrap();
    assert_eq!((recorded.last_message, recorded.conversation.len()), (None, 0));
    assert!(recorded.summary.is_none() && !recorded.is_pruned);
    // The settings and the costs stay.
    assert!(recorded.task.is_some() && recorded.ended.is_some());
    assert_eq!(EarlierMessage::read_all(&mut file(&bytes)).unwrap(), []);
}

#[test]
fn session_that_ends_anywhere_is_read() {
    let whole = whole();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for at in (first + 1..whole.len()).step_by(whole.len() / 150) {
        assert_eq!(read(&whole[..at]), [true, true], "{at}");
    }
}

#[test]
fn lines_that_are_no_entries_are_not_collected() {
    let mut lines = file(format!("{}\n", &"\n".repeat(8 << 20)).as_bytes());
    let error = Recorded::read(&mut lines).unwrap_err().to_string();
    assert!(error.contains("line 1 "), "{error}");
    assert!(lines.stream_position().unwrap() < 1 << 20, "all of it was read");
}

#[test]
fn session_of_too_many_entries_is_refused() {
    let whole = whole();
    let end = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut bytes = whole[..end].to_vec();
    bytes.extend("{\"note\":\"\"}\n".repeat(MAX_ENTRIES).bytes());
    let error = Recorded::read(&mut file(&bytes)).unwrap_err().to_string();
    assert!(error.contains(&MAX_ENTRIES.to_string()), "{error}");
    bytes.truncate(bytes.len() - "{\"note\":\"\"}\n".len());
    assert_eq!(Recorded::read(&mut file(&bytes)).unwrap().conversation.len(), MAX_ENTRIES - 1);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn soak_broken_session_is_an_error_or_a_session(breaks in breaks()) {
        read(&broken(&breaks));
    }

    #[test]
    fn soak_bytes_are_an_error_or_a_session(bytes in vec(any::<u8>(), 0..2000)) {
        read(&bytes);
        let begun = whole();
        let first = begun.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        read(&[&begun[..first], &bytes].concat());
    }
}
