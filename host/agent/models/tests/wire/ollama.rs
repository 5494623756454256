//! Answers of Ollama.

use toolhold_models::FinishReason;

use super::*;

const FORMAT: WireFormat = WireFormat::Ollama;

fn message(message: &str) -> String {
    format!(
        r#"{{"model":"m-1-real","created_at":"2026-11-01T00:00:00Z","message":{message},"done":false}}"#
    )
}

const DONE: &str = r#"{"model":"m-1-real","created_at":"2026-11-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":5,"load_duration":1,"prompt_eval_count":26,"prompt_eval_duration":1,"eval_count":290,"eval_duration":2}"#;

pub(crate) fn documented() -> String {
    lines(&[
        &message(r#"{"role":"assistant","content":"","thinking":"Let me "}"#),
        &message(r#"{"role":"assistant","content":"","thinking":"see\u2026"}"#),
        &message(r#"{"role":"assistant","content":"I'll "}"#),
        &message(r#"{"role":"assistant","content":"look."}"#),
        &message(
            r#"{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"read","arguments":{"path": "a.rs"}}},{"function":{"index":1,"name":"read","arguments":{"path":"b.rs"}}}]}"#,
        ),
        &message(
            r#"{"role":"assistant","content":"","tool_calls":[{"id":"call_x","function":{"name":"edit","arguments":{}},"signature":"s\/1="}]}"#,
        ),
        DONE,
    ])
}

#[test]
fn every_documented_line_is_read() {
    let answer = answer(FORMAT, &documented());
    assert_eq!((&*answer.model, &answer.stop), ("m-1-real", &FinishReason::Calls));
    assert_eq!(answer.usage, usage([Some(26), None, None, Some(290), None]));
    assert_eq!(answer.text(), "I'll look.");
    assert_eq!(answer.blocks.iter().find_map(thinking), Some("Let me see…"));
    assert_eq!(
        calls(&answer),
        [
            ("call_0", "read", r#"{"path": "a.rs"}"#),
            ("call_1", "read", r#"{"path":"b.rs"}"#),
            ("call_x", "edit", "{}")
        ]
    );
}

#[test]
fn every_reason_to_stop_is_read() {
    for (reason, expected) in [
        (r#","done_reason":"stop""#, FinishReason::End),
        (r#","done_reason":"length""#, FinishReason::Length),
        (r#","done_reason":"unload""#, FinishReason::Other("unload".to_owned())),
        ("", FinishReason::End),
    ] {
        // Without a line end.
        let stream = format!(r#"{{"message":{{"content":"Hi"}},"done":true{reason}}}"#);
        assert_eq!(answer(FORMAT, &stream).stop, expected);
    }
}

#[test]
fn calls_have_ids_that_no_earlier_call_has() {
    let first = answer(FORMAT, &documented());
    let second = next_turn(&turn(), &first);
    let mut decoder = FORMAT.decoder(&second, PROVIDER, WireCaps::default());
    let mut events = Vec::new();
    decoder.feed(documented().as_bytes(), &mut events).expect("it is read");
    let second = decoder.finish(&mut events).expect("it is whole");
    let ids: Vec<&str> = second.calls().map(|call| &*call.id).collect();
    assert_eq!(ids, ["call_3", "call_4", "call_5"]);
    // The same answer to the same turn has the same IDs.
    assert_eq!(answer(FORMAT, &documented()), first);
}

#[test]
fn errors_and_missing_ends_are_errors() {
    for stream in [
        lines(&[&message(r#"{"content":"Hi"}"#), r#"{"error":"boom"}"#]),
        r#"{"error":"boom"}"#.to_owned(),
        r#"{"error":{"message":"boom"}}"#.to_owned(),
    ] {
        let failed = failure(FORMAT, &stream);
        assert!(matches!(&failed, WireError::Server(error) if error.message == "boom"), "{failed}");
    }
    for cut in ["".to_owned(), lines(&[&message(r#"{"content":"Hi"}"#)]), DONE[..90].to_owned()] {
        assert_eq!(failure(FORMAT, &cut), WireError::Cut);
    }
    assert!(matches!(failure(FORMAT, "<html>\n"), WireError::Malformed(_)));
}
