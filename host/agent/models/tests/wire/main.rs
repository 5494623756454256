//! The formats: each event of their documents, servers that are nearly compatible, what goes back,
//! and real servers on loopback with every fault.

mod bounded;
mod chat;
mod faults;
mod fuzz;
mod keys;
mod list;
mod messages;
mod ollama;
mod random;
mod requests;
mod responses;
mod returned;
mod server;

use serde_json::Value;
use toolhold_models::{
    Block, Caching, CallResult, ModelAnswer, ModelCall, ModelEvent, ModelTool, Part, RawJson,
    ThinkingLevel, TokenUsage, Turn, TurnMessage, WireCaps, WireError, WireFormat, WireOptions,
};

const PROVIDER: &str = "home";

const FORMATS: [WireFormat; 4] =
    [WireFormat::Messages, WireFormat::Chat, WireFormat::Responses, WireFormat::Ollama];

fn raw(json: &str) -> RawJson {
    RawJson::new(json).expect("it is JSON")
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn image(data: &str) -> Part {
    Part::Image { media_type: "image/png".to_owned(), data: data.to_owned() }
}

/// A turn with two tools and a question.
fn turn() -> Turn {
    let tool = |name: &str| ModelTool {
        name: name.to_owned(),
        description: format!("Does {name}."),
        // In bytes that no serialiser would choose.
        schema: raw(r#"{"type":"object", "properties":{"path":{"type":"string"}}}"#),
    };
    Turn {
        model: "m-1".to_owned(),
        system: "You help.".to_owned(),
        tools: vec![tool("read"), tool("edit")],
        forbid_calls: false,
        messages: vec![TurnMessage::User(vec![text("Fix it.")])],
        max_output: Some(500),
        thinking: ThinkingLevel::Usual,
        output_schema: None,
    }
}

fn options() -> WireOptions {
    WireOptions { provider: PROVIDER.to_owned(), ..WireOptions::default() }
}

fn body_text(format: WireFormat, turn: &Turn, options: &WireOptions) -> String {
    String::from_utf8(format.request(turn, options).body).expect("it is text")
}

fn body(format: WireFormat, turn: &Turn) -> Value {
    serde_json::from_str(&body_text(format, turn, &options())).expect("it is JSON")
}

/// The turn after an answer: its calls have results.
fn next_turn(turn: &Turn, answer: &ModelAnswer) -> Turn {
    let mut next = turn.clone();
    next.messages.push(TurnMessage::Model(answer.clone()));
    let results: Vec<CallResult> = answer
        .calls()
        .map(|call| CallResult {
            call: call.id.clone(),
            name: call.name.clone(),
            content: vec![text("done")],
            failed: false,
        })
        .collect();
    next.messages.push(if results.is_empty() {
        TurnMessage::User(vec![text("Go on.")])
    } else {
        TurnMessage::Results(results)
    });
    next
}

/// The events, and the answer or why there is none.
type Decoded = (Vec<ModelEvent>, Result<ModelAnswer, WireError>);

fn decode_pieces(format: WireFormat, pieces: &[&[u8]], caps: WireCaps) -> Decoded {
    let mut decoder = format.decoder(&turn(), PROVIDER, caps);
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.feed(piece, &mut events) {
            return (events, Err(error));
        }
    }
    let answer = decoder.finish(&mut events);
    (events, answer)
}

fn decode(format: WireFormat, stream: &str) -> Decoded {
    decode_pieces(format, &[stream.as_bytes()], WireCaps::default())
}

/// The answer, which the events tell too.
#[track_caller]
fn answer(format: WireFormat, stream: &str) -> ModelAnswer {
    let (events, answer) = decode(format, stream);
    let answer = answer.unwrap_or_else(|error| panic!("{error}: {stream}"));
    let said = |wanted: fn(&ModelEvent) -> Option<&str>| -> String {
        events.iter().filter_map(wanted).collect()
    };
    let spoken = said(|event| match event {
        ModelEvent::Text(text) => Some(text),
        _ => None,
    });
    assert_eq!(spoken, answer.text());
    let thought = said(|event| match event {
        ModelEvent::Thinking(text) => Some(text),
        _ => None,
    });
    let kept: String = answer.blocks.iter().filter_map(thinking).collect();
    assert_eq!(thought, kept);
    let called: Vec<&ModelCall> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(called, answer.calls().collect::<Vec<_>>());
    let begun = events.iter().filter(|event| matches!(event, ModelEvent::CallBegun(_))).count();
    assert!(begun >= called.len(), "each call begins");
    let [.., usage, finished] = &events[..] else { panic!("{events:?}") };
    assert_eq!(usage, &ModelEvent::Usage(answer.usage));
    assert_eq!(finished, &ModelEvent::Finished(answer.stop.clone()));
    answer
}

#[track_caller]
fn failure(format: WireFormat, stream: &str) -> WireError {
    decode(format, stream).1.expect_err("it fails")
}

fn thinking(block: &Block) -> Option<&str> {
    match block {
        Block::Thinking { text, .. } => Some(text),
        _ => None,
    }
}

/// The calls as ID, name and arguments.
fn calls(answer: &ModelAnswer) -> Vec<(&str, &str, &str)> {
    answer.calls().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect()
}

fn usage(numbers: [Option<u64>; 5]) -> TokenUsage {
    let [input, cache_read, cache_written, output, reasoning] = numbers;
    TokenUsage { input, cache_read, cache_written, output, reasoning }
}

/// Events of data alone, as Chat and Responses have them.
fn data(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Events with names, as Messages and Responses have them.
fn named(events: &[&str]) -> String {
    let name = |event: &str| {
        let event: Value = serde_json::from_str(event).expect("it is JSON");
        event["type"].as_str().expect("it has a type").to_owned()
    };
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect()
}

fn lines(values: &[&str]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}
