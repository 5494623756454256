//! Requests: what each format says of a turn, and that a turn begins as the one before it did.

use serde_json::json;
use toolhold_models::OutputSchema;

use super::*;

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// A stream that has everything that goes back.
pub(crate) fn documented(format: WireFormat) -> String {
    match format {
        WireFormat::Messages => messages::documented(),
        WireFormat::Chat => chat::documented(),
        WireFormat::Responses => responses::documented(),
        WireFormat::Ollama => ollama::documented(),
    }
}

/// A conversation with everything in it, of another provider.
fn foreign() -> Turn {
    let mut turn = turn();
    turn.messages[0] = TurnMessage::User(vec![text("Look:"), image("aWltYWdl")]);
    let call = ModelCall {
        id: "call:1".to_owned(),
        name: "read".to_owned(),
        arguments: r#"{"path": "a"}"#.to_owned(),
        raw: Some(raw(r#"{"opaque":"secret-thought"}"#)),
    };
    turn.messages.push(TurnMessage::Model(ModelAnswer {
        provider: "other".to_owned(),
        format: WireFormat::Messages,
        model: "x".to_owned(),
        blocks: vec![
            Block::Thinking {
                text: "secret-thought".to_owned(),
                raw: Some(raw(r#"{"secret-thought":1}"#)),
            },
            Block::Opaque(raw(r#"{"secret-thought":2}"#)),
            Block::Text { text: "Looking.".to_owned(), raw: Some(raw(r#"{"secret-thought":3}"#)) },
            Block::Call(call.clone()),
            Block::Call(ModelCall { id: "plain".to_owned(), arguments: "oops".to_owned(), ..call }),
        ],
        stop: toolhold_models::FinishReason::Calls,
        usage: TokenUsage::default(),
    }));
    let result = |call: &str, content: Vec<Part>| CallResult {
        call: call.to_owned(),
        name: "read".to_owned(),
        content,
        failed: call == "plain",
    };
    turn.messages.push(TurnMessage::Results(vec![
        result("call:1", vec![text("one"), image("aW1n")]),
        result("plain", vec![text("two")]),
    ]));
    turn
}

#[test]
fn messages_of_a_turn_in_messages() {
    let body = body(WireFormat::Messages, &foreign());
    let mark = json!({"type": "ephemeral"});
    let tool = |name: &str| {
        json!({"name": name, "description": format!("Does {name}."),
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}})
    };
    let source = |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    assert_eq!(
        body,
        json!({
            "model": "m-1", "max_tokens": 500, "stream": true, "cache_control": mark,
            "tools": [tool("read"), tool("edit")],
            "system": [{"type": "text", "text": "You help.", "cache_control": mark}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Look:"}, source("aWltYWdl")]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "call1_0", "name": "read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "plain", "name": "read", "input": {"INVALID_JSON": "oops"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call1_0", "content": [{"type": "text", "text": "one"}, source("aW1n")]},
                    {"type": "tool_result", "tool_use_id": "plain", "content": [{"type": "text", "text": "two"}], "is_error": true},
                ]},
            ],
        })
    );
    let request = WireFormat::Messages.request(&turn(), &options());
    assert_eq!(request.path, "/messages");
    assert_eq!(request.headers, [("anthropic-version", "2023-06-01")]);
}

#[test]
fn messages_of_a_turn_in_chat() {
    let body = body(WireFormat::Chat, &foreign());
    let url = |data: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["max_tokens"], 500);
    assert_eq!(body["tools"][1]["function"]["name"], "edit");
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, url("aWltYWdl")]},
            {"role": "assistant", "content": "Looking.", "tool_calls": [
                call("call1_0", r#"{"path": "a"}"#), call("plain", r#"{"INVALID_JSON":"oops"}"#)]},
            {"role": "tool", "tool_call_id": "call1_0", "content": "one"},
            {"role": "tool", "tool_call_id": "plain", "content": "two"},
            {"role": "user", "content": [
                {"type": "text", "text": "Images of the result of `read`:"}, url("aW1n")]},
        ])
    );
    let openai = WireOptions { completion_tokens: true, ..options() };
    let text = body_text(WireFormat::Chat, &turn(), &openai);
    assert!(text.contains(r#""max_completion_tokens":500"#) && !text.contains("max_tokens"));
}

#[test]
fn messages_of_a_turn_in_responses() {
    let body = body(WireFormat::Responses, &foreign());
    let url = |data: &str| json!({"type": "input_image", "image_url": format!("data:image/png;base64,{data}")});
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(
        (&body["max_output_tokens"], &body["instructions"]),
        (&json!(500), &json!("You help."))
    );
    assert_eq!(body["tools"][0]["name"], "read");
    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look:"}, url("aWltYWdl")]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
            {"type": "function_call", "call_id": "call1_0", "name": "read", "arguments": r#"{"path": "a"}"#},
            {"type": "function_call", "call_id": "plain", "name": "read", "arguments": r#"{"INVALID_JSON":"oops"}"#},
            {"type": "function_call_output", "call_id": "call1_0", "output": [{"type": "input_text", "text": "one"}, url("aW1n")]},
            {"type": "function_call_output", "call_id": "plain", "output": "two"},
        ])
    );
}

#[test]
fn messages_of_a_turn_in_ollama() {
    let body = body(WireFormat::Ollama, &foreign());
    assert_eq!((&body["truncate"], &body["shift"]), (&json!(false), &json!(false)));
    assert_eq!(body["options"], json!({"num_predict": 500}));
    assert_eq!(body["tools"][1]["function"]["name"], "edit");
    let call = |id: &str, arguments: Value| json!({"id": id, "function": {"name": "read", "arguments": arguments}});
    let result = |id: &str, content: &str| json!({"role": "tool", "tool_name": "read", "tool_call_id": id, "content": content});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Look:", "images": ["aWltYWdl"]},
            {"role": "assistant", "content": "Looking.", "tool_calls": [
                call("call1_0", json!({"path": "a"})), call("plain", json!({"INVALID_JSON": "oops"}))]},
            result("call1_0", "one"),
            result("plain", "two"),
            {"role": "user", "content": "Images of the result of `read`:", "images": ["aW1n"]},
        ])
    );
    let roomy = WireOptions { context: Some(65_536), ..options() };
    let text = body_text(WireFormat::Ollama, &turn(), &roomy);
    assert!(text.contains(r#""options":{"num_predict":500,"num_ctx":65536}"#), "{text}");
}

#[test]
fn thinking_and_output_are_asked_for_in_each_format() {
    let schema = r#"{"type": "object","n":1.0}"#;
    let with = |thinking| Turn {
        thinking,
        output_schema: Some(OutputSchema { name: "out".to_owned(), schema: raw(schema) }),
        ..turn()
    };
    let has = |format, thinking, parts: &[&str]| {
        let text = body_text(format, &with(thinking), &options());
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    let high = || ThinkingLevel::Effort("high".to_owned());
    let named = format!(r#""name":"out","strict":true,"schema":{schema}"#);
    let form = format!(r#""format":{{"type":"json_schema","schema":{schema}}}}}"#);
    has(WireFormat::Messages, ThinkingLevel::Usual, &[&format!(r#""output_config":{{{form}"#)]);
    has(
        WireFormat::Messages,
        high(),
        &[
            r#""thinking":{"type":"adaptive""#,
            &format!(r#""output_config":{{"effort":"high",{form}"#),
        ],
    );
    has(WireFormat::Messages, ThinkingLevel::Off, &[r#""thinking":{"type":"disabled"}"#]);
    has(
        WireFormat::Messages,
        ThinkingLevel::Tokens(2000),
        &[r#""thinking":{"type":"enabled","budget_tokens":2000}"#, r#""max_tokens":6096"#],
    );
    has(WireFormat::Chat, high(), &[r#""reasoning_effort":"high""#, &named]);
    has(WireFormat::Chat, ThinkingLevel::Off, &[r#""reasoning_effort":"none""#]);
    has(
        WireFormat::Responses,
        high(),
        &[r#""reasoning":{"effort":"high","summary":"auto"}"#, &named],
    );
    has(WireFormat::Responses, ThinkingLevel::Off, &[r#""reasoning":{"effort":"none"}"#]);
    has(WireFormat::Ollama, high(), &[r#""think":"high""#, &format!(r#""format":{schema}"#)]);
    has(WireFormat::Ollama, ThinkingLevel::Off, &[r#""think":false"#]);
    has(WireFormat::Ollama, ThinkingLevel::Tokens(9), &[r#""think":true"#]);
}

#[test]
fn calls_can_be_forbidden_without_losing_the_tools() {
    let forbidden = Turn { forbid_calls: true, ..turn() };
    let choice = |format| body(format, &forbidden)["tool_choice"].clone();
    assert_eq!(choice(WireFormat::Messages), json!({"type": "none"}));
    assert_eq!(
        (choice(WireFormat::Chat), choice(WireFormat::Responses)),
        (json!("none"), json!("none"))
    );
    assert!(body(WireFormat::Ollama, &forbidden).get("tools").is_none());
    // Without tools there is nothing to forbid, and servers refuse it.
    let bare = Turn { tools: Vec::new(), ..forbidden };
    for format in FORMATS {
        assert!(body(format, &bare).get("tool_choice").is_none(), "{format:?}");
    }
}

#[test]
fn own_fields_are_sent_but_replace_nothing_that_matters() {
    let own = |name: &str, json: &str| (name.to_owned(), raw(json));
    let options = WireOptions {
        fields: vec![
            own("temperature", "0.10"),
            own("messages", "[]"),
            own("input", "[]"),
            own("store", "true"),
            own("previous_response_id", "\"x\""),
            own("model", "\"evil\""),
            own("stream", "false"),
        ],
        ..options()
    };
    for format in FORMATS {
        let text = body_text(format, &turn(), &options);
        let body: Value = serde_json::from_str(&text).expect("it is JSON");
        assert!(text.contains(r#""temperature":0.10"#), "{text}");
        assert_eq!((&body["model"], &body["stream"]), (&json!("m-1"), &json!(true)));
        assert_eq!(text.matches(r#""model":"#).count(), 1);
        match format {
            WireFormat::Responses => {
                assert_eq!(body["store"], json!(false));
                assert!(!text.contains("previous_response_id"));
                assert_eq!(body["input"].as_array().map(Vec::len), Some(1));
            }
            _ => assert!(body["messages"].as_array().is_some_and(|all| !all.is_empty())),
        }
    }
}

/// The beginning of a body, without what closes it.
fn beginning(body: &str) -> &str {
    body.strip_suffix("]}").expect("the messages are last")
}

#[test]
fn each_turn_begins_with_the_bytes_of_the_one_before() {
    for format in FORMATS {
        let stream = documented(format);
        let mut turn = turn();
        let mut before = body_text(format, &turn, &options());
        assert_eq!(before, body_text(format, &turn, &options()), "it is always the same");
        for number in 1..6 {
            let mut decoder = format.decoder(&turn, PROVIDER, WireCaps::default());
            let mut events = Vec::new();
            decoder.feed(stream.as_bytes(), &mut events).expect("it is read");
            turn = next_turn(&turn, &decoder.finish(&mut events).expect("it is whole"));
            if let Some(TurnMessage::Results(results)) = turn.messages.last_mut() {
                results[0].content.push(image("aW1n"));
            }
            if number == 3 {
                turn.messages.push(TurnMessage::User(vec![text("Go on.")]));
            }
            // A session on disk keeps the bytes.
            let kept = serde_json::to_string(&turn).expect("it is kept");
            turn = serde_json::from_str(&kept).expect("it is read");
            let after = body_text(format, &turn, &options());
            assert!(after.starts_with(beginning(&before)), "{format:?}\n{before}\n{after}");
            assert!(after.len() > before.len());
            before = after;
        }
    }
}

#[test]
fn marks_move_and_nothing_else_changes() {
    let marked = WireOptions { caching: Caching::Marks, ..options() };
    let bare = WireOptions { caching: Caching::Off, ..options() };
    let answer = answer(WireFormat::Messages, &documented(WireFormat::Messages));
    let mut turn = turn();
    let mut last = String::new();
    for number in 0..5 {
        let text = body_text(WireFormat::Messages, &turn, &marked);
        let without = body_text(WireFormat::Messages, &turn, &bare);
        assert_eq!(text.replace(MARK, ""), without);
        // One at the end of the system text, one at the end, one where the last request ended: that
        // is where the server finds what it has cached.
        assert_eq!(text.matches(MARK).count(), if number == 0 { 2 } else { 3 });
        assert!(text.ends_with(&format!("{MARK}}}]}}]}}")), "{text}");
        if number == 1 {
            assert!(text.starts_with(beginning(&last)));
        }
        turn = next_turn(&turn, &answer);
        last = text;
    }
    assert!(!body_text(WireFormat::Messages, &turn, &bare).contains("cache_control"));
}

#[test]
fn end_of_the_last_request_is_marked_if_much_is_new() {
    let mut first = turn();
    first.system = String::new();
    let mut answer = answer(WireFormat::Messages, &documented(WireFormat::Messages));
    let Block::Call(call) = answer.blocks[3].clone() else { panic!("{answer:?}") };
    for number in 0..12 {
        answer.blocks.push(Block::Call(ModelCall { id: format!("more_{number}"), ..call.clone() }));
    }
    let text = body_text(WireFormat::Messages, &next_turn(&first, &answer), &options());
    let body: Value = serde_json::from_str(&text).expect("it is JSON");
    // Without a system text, the last tool has the mark that stays.
    assert!(body["tools"][0].get("cache_control").is_none());
    assert!(body["tools"][1].get("cache_control").is_some());
    assert!(body["messages"][0]["content"][0].get("cache_control").is_some());
    assert_eq!(text.matches(MARK).count(), 3, "with the automatic one: {text}");
}
