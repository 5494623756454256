//! Answers of Chat Completions.

use toolhold_models::FinishReason;

use super::*;

const FORMAT: WireFormat = WireFormat::Chat;

/// A chunk with a delta.
fn chunk(delta: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m-1-real","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
    )
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// A stream of deltas, with the usual end.
fn stream(deltas: &[&str], reason: &str) -> String {
    let mut events: Vec<String> = deltas.iter().map(|delta| chunk(delta)).collect();
    events.push(finish(reason));
    events.push("[DONE]".to_owned());
    data(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn documented() -> String {
    let mut events: Vec<String> = [
        r#"{"role":"assistant","content":"","refusal":null}"#,
        r#"{"reasoning_content":"Let me "}"#,
        r#"{"reasoning_content":"see\u2026","content":null}"#,
        r#"{"content":"I'll "}"#,
        r#"{"content":"look.","annotations":[{"type":"url_citation"}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": "}}]}"#,
        // Parallel calls may alternate.
        r#"{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"edit","arguments":"{\"a\""},"extra_content":{"google":{"thought_signature":"s\/1="}}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"a.rs\"}"}},{"index":1,"function":{"arguments":":1}"}}]}"#,
    ]
    .map(chunk)
    .to_vec();
    events.push(finish("tool_calls"));
    events.push(r#"{"id":"c","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":7}}}"#.to_owned());
    events.push("[DONE]".to_owned());
    ": OPENROUTER PROCESSING\n\n".to_owned()
        + &data(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn every_documented_event_is_read() {
    let answer = answer(FORMAT, &documented());
    assert_eq!((&*answer.model, &answer.stop), ("m-1-real", &FinishReason::Calls));
    assert_eq!(answer.usage, usage([Some(36), Some(64), None, Some(50), Some(7)]));
    assert_eq!(answer.text(), "I'll look.");
    assert_eq!(answer.blocks.iter().find_map(thinking), Some("Let me see…"));
    assert_eq!(
        calls(&answer),
        [("call_a", "read", r#"{"path": "a.rs"}"#), ("call_b", "edit", r#"{"a":1}"#)]
    );
}

#[test]
fn every_reason_to_stop_is_read() {
    for (reason, expected) in [
        ("stop", FinishReason::End),
        ("tool_calls", FinishReason::End),
        ("function_call", FinishReason::End),
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::Refused(String::new())),
        (
            "insufficient_system_resource",
            FinishReason::Other("insufficient_system_resource".into()),
        ),
    ] {
        assert_eq!(answer(FORMAT, &stream(&[], reason)).stop, expected);
    }
    let refused = stream(&[r#"{"refusal":"I can't "}"#, r#"{"refusal":"help."}"#], "stop");
    let answer = answer(FORMAT, &refused);
    assert_eq!(answer.stop, FinishReason::Refused("I can't help.".to_owned()));
    assert_eq!(answer.text(), "I can't help.");
}

#[test]
fn calls_are_told_apart_whatever_the_server_leaves_out() {
    let call = |json: &str| format!(r#"{{"tool_calls":[{json}]}}"#);
    let read = |calls: &[&str]| {
        let deltas: Vec<String> = calls.iter().map(|json| call(json)).collect();
        // `stop`, although there are calls.
        let answer =
            answer(FORMAT, &stream(&deltas.iter().map(String::as_str).collect::<Vec<_>>(), "stop"));
        assert_eq!(answer.stop, FinishReason::Calls);
        answer
            .calls()
            .map(|it| format!("{} {} {}", it.id, it.name, it.arguments))
            .collect::<Vec<_>>()
    };
    // No numbers.
    assert_eq!(
        read(&[
            r#"{"id":"a","function":{"name":"read","arguments":"{\"n\":"}}"#,
            r#"{"function":{"arguments":"1}"}}"#,
            r#"{"id":"b","function":{"name":"read","arguments":"{}"}}"#,
        ]),
        [r#"a read {"n":1}"#, "b read {}"]
    );
    // Neither numbers nor IDs; whole calls.
    assert_eq!(
        read(&[
            r#"{"function":{"name":"read","arguments":"{\"n\":1}"}}"#,
            r#"{"function":{"name":"read","arguments":"{\"n\":2}"}}"#,
            r#"{"function":{"name":"edit","arguments":null}}"#,
        ]),
        [r#"call_0 read {"n":1}"#, r#"call_1 read {"n":2}"#, "call_2 edit {}"]
    );
    // The same number for all of them.
    assert_eq!(
        read(&[
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\":1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"read","arguments":"{\"n\":2}"}}"#,
            r#"{"index":0,"id":"","function":{"name":"read","arguments":"{\"n\":3}"}}"#,
        ]),
        [r#"a read {"n":1}"#, r#"b read {"n":2}"#, r#"call_0 read {"n":3}"#]
    );
    // The name and the ID again with each piece, or the ID late.
    assert_eq!(
        read(&[
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\""}}"#,
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":":1}"}}"#,
            r#"{"index":1,"function":{"name":"edit","arguments":"{"}}"#,
            r#"{"index":1,"id":"b","function":{"name":null,"arguments":"}"}}"#,
        ]),
        [r#"a read {"n":1}"#, "b edit {}"]
    );
    // Arguments as JSON, and the same ID twice.
    assert_eq!(
        read(&[
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":{"n": 1}}}"#,
            r#"{"index":1,"id":"a","function":{"name":"read","arguments":{}}}"#,
        ]),
        [r#"a read {"n": 1}"#, "call_0 read {}"]
    );
    // All arguments again at the end.
    assert_eq!(
        read(&[
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\":"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"n\":1}"}}"#,
        ]),
        [r#"a read {"n":1}"#]
    );
    // As it was before there were parallel calls.
    let old = stream(
        &[
            r#"{"function_call":{"name":"read","arguments":"{"}}"#,
            r#"{"function_call":{"arguments":"}"}}"#,
        ],
        "function_call",
    );
    assert_eq!(calls(&answer(FORMAT, &old)), [("call_0", "read", "{}")]);
}

#[test]
fn nearly_compatible_servers_are_understood() {
    // `\r\n`, a mark of the byte order, no `[DONE]`, usage in the last chunk with a choice.
    let loose = format!(
        "\u{feff}data:{}\r\n\r\n:\r\n\r\ndata: {}\r\n\r\n",
        r#"{"choices":[{"delta":{"content":"Hi","tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":null,"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_cache_hit_tokens":1}}]}"#
    );
    let got = answer(FORMAT, &loose);
    assert_eq!((got.text().as_str(), &got.stop), ("Hi", &FinishReason::End));
    assert_eq!(got.usage, usage([Some(2), Some(1), None, Some(4), None]));
    // Usage in each chunk, and somewhere else.
    let each = data(&[
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
    ]);
    assert_eq!(answer(FORMAT, &each).usage, usage([Some(9), None, None, Some(2), None]));
    let groq = data(&[
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":6}}}"#,
    ]);
    assert_eq!(answer(FORMAT, &groq).usage, usage([Some(5), None, None, Some(6), None]));
    // Thinking is counted only in the total.
    let apart = data(&[
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":111,"completion_tokens_details":{"reasoning_tokens":100}}}"#,
    ]);
    assert_eq!(answer(FORMAT, &apart).usage, usage([Some(5), None, None, Some(106), Some(100)]));
    // `[DONE]` without a reason; an answer that isn't streamed.
    assert_eq!(answer(FORMAT, &data(&[&chunk(r#"{"content":"Hi"}"#), "[DONE]"])).text(), "Hi");
    let whole = r#"{
        "object":"chat.completion","choices":[{"message":{"role":"assistant","content":"Hi","tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let got = answer(FORMAT, whole);
    assert_eq!((got.text().as_str(), calls(&got)), ("Hi", vec![("a", "read", "{}")]));
    // Content as a list of parts, some of which are thoughts.
    let parts = stream(
        &[
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm. "}]}]}"#,
            r#"{"content":"Hi "}"#,
            r#"{"content":[{"type":"text","text":"you"}]}"#,
        ],
        "stop",
    );
    let got = answer(FORMAT, &parts);
    assert_eq!(got.text(), "Hi you");
    assert_eq!(got.blocks.iter().find_map(thinking), Some("Hm. "));
}

#[test]
fn errors_and_missing_ends_are_errors() {
    for error in [
        r#"{"error":{"message":"boom","type":"server_error","code":null}}"#,
        r#"{"error":{"message":"boom","code":502},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
        r#"{"object":"error","message":"boom","type":"BadRequestError","code":400}"#,
        r#"{"error":"boom"}"#,
        r#"{"detail":"boom"}"#,
        r#"[{"error":{"message":"boom","status":"INVALID_ARGUMENT"}}]"#,
        r#"{"choices":[{"error":{"message":"boom"},"finish_reason":"error"}]}"#,
    ] {
        for stream in [data(&[&chunk(r#"{"content":"Hi"}"#), error]), error.to_owned()] {
            let failed = failure(FORMAT, &stream);
            assert!(
                matches!(&failed, WireError::Server(error) if error.message == "boom"),
                "{failed}"
            );
        }
    }
    assert_eq!(failure(FORMAT, &data(&[&chunk(r#"{"content":"Hi"}"#)])), WireError::Cut);
    assert_eq!(failure(FORMAT, ""), WireError::Cut);
    assert!(matches!(failure(FORMAT, "data: oops\n\n"), WireError::Malformed(_)));
}
