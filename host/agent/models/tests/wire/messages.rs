//! Answers of Messages.

use toolhold_models::{FinishReason, ServerError};

use super::*;

const FORMAT: WireFormat = WireFormat::Messages;

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1-real","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn end(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":99}}}}"#
    )
}

/// All that an answer can consist of, as the documents have it.
pub(crate) fn documented() -> String {
    named(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see\u2026"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB\/sig=="}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"Emw\/KnB="}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I'll "}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"look."}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"a."}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"rs\"}"}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"edit","input":{},"caller":{"type":"direct"}}}"#,
        r#"{"type":"content_block_stop","index":4}"#,
        r#"{"type":"content_block_start","index":5,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"query\":  1.0}"}}"#,
        r#"{"type":"content_block_stop","index":5}"#,
        r#"{"type":"content_block_start","index":6,"content_block":{"type":"text","text":"","citations":[]}}"#,
        r#"{"type":"content_block_delta","index":6,"delta":{"type":"text_delta","text":"Cited."}}"#,
        r#"{"type":"content_block_delta","index":6,"delta":{"type":"citations_delta","citation":{"type":"char_location", "n":1.50}}}"#,
        r#"{"type":"content_block_stop","index":6}"#,
        r#"{"type":"content_block_start","index":7,"content_block":{"type":"compaction","content":null}}"#,
        r#"{"type":"content_block_delta","index":7,"delta":{"type":"compaction_delta","content":"All "}}"#,
        r#"{"type":"content_block_delta","index":7,"delta":{"type":"compaction_delta","content":"of it"}}"#,
        r#"{"type":"content_block_stop","index":7}"#,
        &end("tool_use"),
        STOP,
    ])
}

#[test]
fn every_documented_event_is_read() {
    let answer = answer(FORMAT, &documented());
    assert_eq!((&*answer.model, &answer.stop), ("m-1-real", &FinishReason::Calls));
    assert_eq!(answer.usage, usage([Some(10), Some(30), Some(20), Some(99), None]));
    assert_eq!(answer.usage.request(), Some(60));
    assert_eq!(
        calls(&answer),
        [("toolu_1", "read", r#"{"path": "a.rs"}"#), ("toolu_2", "edit", "{}")]
    );
    let raws: Vec<Option<&str>> = answer
        .blocks
        .iter()
        .map(|block| match block {
            Block::Text { raw, .. } | Block::Thinking { raw, .. } => raw.as_ref(),
            Block::Call(call) => call.raw.as_ref(),
            Block::Opaque(raw) => Some(raw),
        })
        .map(|raw| raw.map(RawJson::get))
        .collect();
    assert_eq!(
        raws,
        [
            Some(r#"{"type":"thinking","thinking":"Let me see\u2026","signature":"EqQB\/sig=="}"#),
            Some(r#"{"type":"redacted_thinking","data":"Emw\/KnB="}"#),
            None,
            None,
            Some(
                r#"{"type":"tool_use","id":"toolu_2","name":"edit","input":{},"caller":{"type":"direct"}}"#
            ),
            Some(
                r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":  1.0}}"#
            ),
            Some(
                r#"{"type":"text","text":"Cited.","citations":[{"type":"char_location", "n":1.50}]}"#
            ),
            Some(r#"{"type":"compaction","content":"All of it"}"#),
        ]
    );
    assert_eq!(answer.text(), "I'll look.Cited.");
    assert_eq!(answer.blocks.iter().find_map(thinking), Some("Let me see…"));
}

#[test]
fn every_reason_to_stop_is_read() {
    for (reason, expected) in [
        ("end_turn", FinishReason::End),
        ("stop_sequence", FinishReason::End),
        ("tool_use", FinishReason::End),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::ContextFull),
        ("pause_turn", FinishReason::Paused),
        ("refusal", FinishReason::Refused(String::new())),
        ("new_reason", FinishReason::Other("new_reason".to_owned())),
    ] {
        // Without the last event, the reason is enough.
        for stop in [&[STOP][..], &[]] {
            let stream = named(&[START, &end(reason)]) + &named(stop);
            assert_eq!(answer(FORMAT, &stream).stop, expected, "{reason}");
        }
    }
    let refused = r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"No."}},"usage":null}"#;
    let stop = answer(FORMAT, &named(&[START, refused, STOP])).stop;
    assert_eq!(stop, FinishReason::Refused("No.".to_owned()));
}

#[test]
fn nearly_compatible_servers_are_understood() {
    // No names of events, no numbers, `null` and missing fields, no end of a block.
    let loose = data(&[
        r#"{"type":"message_start","message":{"content":null,"usage":null}}"#,
        r#"{"type":"content_block_start","content_block":{"type":"text","text":"A","citations":null}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"B"}}"#,
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"read","input":{"path":"x"}}}"#,
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":null,"name":"edit"}}"#,
        r#"{"type":"something_new","delta":{}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":5.0,"output_tokens":6}}"#,
        "[DONE]",
    ]);
    let got = answer(FORMAT, &loose);
    assert_eq!((got.text().as_str(), &got.stop), ("AB", &FinishReason::Calls));
    assert_eq!(
        calls(&got),
        [("call_0", "read", r#"{"path":"x"}"#), ("call_1", "edit", "{}")],
        "the text has no raw form: {:?}",
        got.blocks
    );
    assert!(matches!(&got.blocks[0], Block::Text { raw: None, .. }));
    assert_eq!(got.usage, usage([Some(5), None, None, Some(6), None]));

    // The type only in the name of the event, and deltas without their block.
    let nameless = "event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\nevent: message_stop\ndata: {}\n\n";
    assert_eq!(answer(FORMAT, nameless).text(), "Hi");

    // A number that comes again is another block.
    let twice = named(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"read","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"n\":1}"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"read","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"n\":2}"}}"#,
        STOP,
    ]);
    assert_eq!(
        calls(&answer(FORMAT, &twice)),
        [("a", "read", r#"{"n":1}"#), ("call_0", "read", r#"{"n":2}"#)]
    );

    // Not streamed at all.
    let whole = r#"{"type":"message","model":"x","content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"read","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#;
    let got = answer(FORMAT, whole);
    assert_eq!((got.text().as_str(), calls(&got)), ("Hi", vec![("t", "read", r#"{"a":1}"#)]));
}

#[test]
fn errors_and_missing_ends_are_errors() {
    let overloaded = r#"{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"}}"#;
    let expected = WireError::Server(ServerError {
        kind: "overloaded_error".to_owned(),
        message: "Overloaded".to_owned(),
    });
    assert_eq!(failure(FORMAT, &named(&[START, overloaded])), expected);
    assert_eq!(failure(FORMAT, overloaded), expected);
    let started =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"A"}}"#;
    for cut in [String::new(), named(&[START]), named(&[START, started])] {
        assert_eq!(failure(FORMAT, &cut), WireError::Cut);
    }
    // In the middle of an event.
    let whole = named(&[START, started, STOP]);
    assert_eq!(failure(FORMAT, &whole[..whole.len() - 8]), WireError::Cut);
    let broken = failure(FORMAT, "event: ping\ndata: {\"type\":\u{1b}\n\n");
    assert!(matches!(&broken, WireError::Malformed(_)), "{broken}");
    assert!(!broken.to_string().contains('\u{1b}'));
}

#[test]
fn half_of_a_call_is_kept_as_it_is() {
    let stream = named(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"edit","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"text\": \"half"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        &end("max_tokens"),
        STOP,
    ]);
    let answer = answer(FORMAT, &stream);
    assert_eq!(answer.stop, FinishReason::Length);
    assert_eq!(calls(&answer), [("a", "edit", r#"{"text": "half"#)]);
    // It goes back in a form that the server takes.
    let next = body(FORMAT, &next_turn(&turn(), &answer));
    assert_eq!(
        next["messages"][1]["content"][0]["input"],
        serde_json::json!({"INVALID_JSON": "{\"text\": \"half"})
    );
}
