//! What is opaque goes back to the same provider byte for byte, and to no other one.

use super::*;

/// What has to be in the next request of each format, in these bytes.
fn opaque(format: WireFormat) -> Vec<&'static str> {
    match format {
        WireFormat::Messages => vec![
            r#"{"type":"thinking","thinking":"Let me see\u2026","signature":"EqQB\/sig=="}"#,
            r#"{"type":"redacted_thinking","data":"Emw\/KnB="}"#,
            r#"{"type":"tool_use","id":"toolu_2","name":"edit","input":{},"caller":{"type":"direct"}}"#,
            r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":  1.0}}"#,
            r#"{"type":"text","text":"Cited.","citations":[{"type":"char_location", "n":1.50}]}"#,
            r#"{"type":"compaction","content":"All of it"}"#,
        ],
        WireFormat::Chat => vec![
            r#""reasoning_content":"Let me see\u2026""#,
            r#""extra_content":{"google":{"thought_signature":"s\/1="}}"#,
        ],
        WireFormat::Responses => vec![
            r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me"},{"type":"summary_text","text":"see"}],"encrypted_content":"gAAA\/=="}"#,
            r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"I'll look.","annotations":[],"logprobs":[ ]}]}"#,
            r#"{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"path\": \"a.rs\"}","call_id":"call_a","name":"read"}"#,
            r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"q" : 1.0}}"#,
        ],
        WireFormat::Ollama => vec![r#""thinking":"Let me see\u2026""#, r#""signature":"s\/1=""#],
    }
}

/// Through a session on disk.
fn stored(turn: &Turn) -> Turn {
    let kept = serde_json::to_string(turn).expect("it is kept");
    assert!(!kept.contains('\n'));
    serde_json::from_str(&kept).expect("it is read")
}

#[test]
fn opaque_parts_go_back_byte_for_byte() {
    for format in FORMATS {
        let answer = answer(format, &requests::documented(format));
        let next = stored(&next_turn(&turn(), &answer));
        let text = body_text(format, &next, &options());
        let mut rest = text.as_str();
        for part in opaque(format) {
            let at =
                rest.find(part).unwrap_or_else(|| panic!("{format:?}, in order: {part}\n{text}"));
            rest = &rest[at + part.len()..];
        }
        serde_json::from_str::<Value>(&text).expect("it is JSON");
    }
}

#[test]
fn another_provider_or_format_gets_only_texts_and_calls() {
    for format in FORMATS {
        let answer = answer(format, &requests::documented(format));
        let next = next_turn(&turn(), &answer);
        for other in FORMATS {
            let elsewhere = WireOptions { provider: "elsewhere".to_owned(), ..options() };
            let here = (other != format).then(options);
            for options in [Some(elsewhere), here].into_iter().flatten() {
                let text = body_text(other, &next, &options);
                for part in opaque(format)
                    .into_iter()
                    .chain(["Let me", "EqQB", "Emw", "gAAA", "s\\/1=", "rs_1"])
                {
                    assert!(!text.contains(part), "{format:?} to {other:?}: {part}\n{text}");
                }
                assert!(text.contains("I'll look.") && text.contains("a.rs"), "{text}");
                let body: Value = serde_json::from_str(&text).expect("it is JSON");
                let result = if other == WireFormat::Messages { "tool_use_id" } else { "call_id" };
                assert!(text.contains(result), "{body}");
            }
        }
    }
}

#[test]
fn thinking_can_be_left_out() {
    for format in FORMATS {
        let answer = answer(format, &requests::documented(format));
        let next = next_turn(&turn(), &answer);
        let text = body_text(format, &next, &WireOptions { drop_thinking: true, ..options() });
        assert!(!text.contains("Let me") && text.contains("I'll look."), "{text}");
    }
}

#[test]
fn unknown_fields_of_chat_go_back() {
    let stream = data(&[
        r#"{"choices":[{"delta":{"role":"assistant","reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"H","index":0,"format":"f"}]}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":null,"reasoning_details":[{"type":"reasoning.text","text":"m","signature":"s\/","index":0,"format":"f"},{"type":"reasoning.encrypted","data":"e=","index":1}],"reasoning_opaque":"a\/"}}]}"#,
        r#"{"choices":[{"delta":{"content":"Hi","reasoning_opaque":"b","logprobs":1,"annotations":[]},"finish_reason":"stop"}]}"#,
    ]);
    let text = body_text(
        WireFormat::Chat,
        &next_turn(&turn(), &answer(WireFormat::Chat, &stream)),
        &options(),
    );
    let expected = r#"{"role":"assistant","content":"Hi","reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","index":0,"format":"f","signature":"s\/"},{"type":"reasoning.encrypted","data":"e=","index":1}],"reasoning_opaque":"a\/b"}"#;
    assert!(text.contains(expected), "{text}");
}

#[test]
fn parts_of_content_go_back_as_they_came() {
    let stream = data(&[
        r#"{"choices":[{"delta":{"content":"A\u0021"}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}],"x" : 1}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"B\u0021"},"finish_reason":"stop"}]}"#,
    ]);
    let text = body_text(
        WireFormat::Chat,
        &next_turn(&turn(), &answer(WireFormat::Chat, &stream)),
        &options(),
    );
    let expected = r#""content":[{"type":"text","text":"A!"},{"type":"thinking","thinking":[{"type":"text","text":"Hm"}],"x" : 1},{"type":"text","text":"B\u0021"}]"#;
    assert!(text.contains(expected), "{text}");
}

#[test]
fn empty_answers_are_taken_back() {
    let empty = [
        (
            WireFormat::Messages,
            r#"{"type":"message","content":[{"type":"text","text":" "}],"stop_reason":"end_turn"}"#,
        ),
        (WireFormat::Chat, r#"{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}"#),
        (WireFormat::Ollama, r#"{"message":{"content":""},"done":true}"#),
    ];
    for (format, stream) in empty {
        let answer = answer(format, stream);
        let body = body(format, &next_turn(&turn(), &answer));
        let messages = body["messages"].as_array().expect("there are messages");
        let message = &messages[messages.len() - 2];
        assert_eq!(message["role"], "assistant");
        match format {
            WireFormat::Messages => assert_eq!(message["content"][0]["text"], "(no answer)"),
            _ => assert_eq!(message["content"], ""),
        }
    }
}
