//! Caps: what is too much is an error that names it, and little is kept until then.

use super::*;

/// The smallest error of a cap for a stream without end.
#[track_caller]
fn capped(format: WireFormat, start: &str, piece: &str) -> WireError {
    let caps = WireCaps {
        event: 50_000,
        arguments: 20_000,
        answer: 40_000,
        stream: 900_000,
        blocks: 50,
        calls: 20,
    };
    let mut decoder = format.decoder(&turn(), PROVIDER, caps);
    let mut events = Vec::new();
    let mut bytes = 0;
    let mut fed = decoder.feed(start.as_bytes(), &mut events);
    while fed.is_ok() {
        assert!(bytes < 2_000_000, "it never ends");
        fed = decoder.feed(piece.as_bytes(), &mut events);
        bytes += piece.len();
        let given: usize = events.drain(..).map(|event| format!("{event:?}").len()).sum();
        assert!(given < piece.len() * 3 + 1000);
    }
    fed.expect_err("it ended")
}

fn cap(what: &'static str, limit: u64) -> WireError {
    WireError::Cap { what, limit }
}

fn count(what: &'static str, limit: usize) -> WireError {
    WireError::Count { what, limit }
}

const EVENT: &str = "an event of the model's answer";
const ANSWER: &str = "the model's answer";
const ARGUMENTS: &str = "the arguments of a call";

#[test]
fn lines_and_events_without_end_are_capped() {
    for format in FORMATS {
        for start in ["", "data: ", ": ", "{", "data: {\"type\":\"", "event: "] {
            assert_eq!(capped(format, start, &"a".repeat(1000)), cap(EVENT, 50_000), "{start}");
        }
    }
    assert_eq!(capped(WireFormat::Chat, "", "data: aaaa\n"), cap(EVENT, 50_000));
    for (format, piece) in [
        (WireFormat::Messages, ": keep-alive\n\n"),
        (WireFormat::Chat, "\n"),
        (WireFormat::Responses, "event: ping\r\n\r\n"),
        (WireFormat::Ollama, "\r\n"),
        (WireFormat::Messages, "data: {\"type\":\"ping\"}\n\n"),
    ] {
        assert_eq!(
            capped(format, "data: {}\n\n", &piece.repeat(1000)).to_string(),
            match format {
                WireFormat::Ollama =>
                    "the model's answer can't be read: `data: {}` is not a JSON object".to_owned(),
                _ => cap(ANSWER, 900_000).to_string(),
            }
        );
    }
    assert_eq!(capped(WireFormat::Ollama, "", "{}\n"), cap(ANSWER, 900_000));
}

#[test]
fn answers_without_end_are_capped() {
    let a = "a".repeat(1000);
    for piece in [
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{a}"}}}}"#
        ),
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"thinking_delta","thinking":"{a}"}}}}"#
        ),
    ] {
        assert_eq!(capped(WireFormat::Messages, "", &data(&[&piece])), cap(ANSWER, 40_000));
    }
    let start = data(&[r#"{"type":"content_block_start","index":0,"content_block":{"type":"x"}}"#]);
    for field in ["signature", "data", "other"] {
        let piece =
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"{field}":"{a}"}}}}"#);
        assert_eq!(capped(WireFormat::Messages, &start, &data(&[&piece])), cap(ANSWER, 40_000));
    }
    for field in
        ["content", "reasoning", "reasoning_content", "refusal", "other", "reasoning_details"]
    {
        for value in [format!("\"{a}\""), format!("[\"{a}\"]")] {
            if field == "refusal" && value.starts_with('[') {
                continue;
            }
            let piece = format!(r#"{{"choices":[{{"delta":{{"{field}":{value}}}}}]}}"#);
            assert_eq!(
                capped(WireFormat::Chat, "", &data(&[&piece])),
                cap(ANSWER, 40_000),
                "{field}"
            );
            let piece = format!("{{\"message\":{{\"{field}\":{value}}}}}\n");
            assert_eq!(capped(WireFormat::Ollama, "", &piece), cap(ANSWER, 40_000), "{field}");
        }
    }
    for kind in ["output_text", "refusal", "reasoning_text", "reasoning_summary_text"] {
        let piece = format!(r#"{{"type":"response.{kind}.delta","output_index":0,"delta":"{a}"}}"#);
        assert_eq!(capped(WireFormat::Responses, "", &data(&[&piece])), cap(ANSWER, 40_000));
    }
    let piece = format!(
        r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"x","y":"{a}"}}}}"#
    );
    assert_eq!(capped(WireFormat::Responses, "", &data(&[&piece])), cap(ANSWER, 40_000));
}

#[test]
fn calls_without_end_are_capped() {
    let a = "a".repeat(1000);
    let start = data(&[
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"read"}}"#,
    ]);
    let more = format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{a}"}}}}"#
    );
    assert_eq!(capped(WireFormat::Messages, &start, &data(&[&more])), cap(ARGUMENTS, 20_000));
    let more = format!(
        r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"name":"read","arguments":"{a}"}}}}]}}}}]}}"#
    );
    assert_eq!(capped(WireFormat::Chat, "", &data(&[&more])), cap(ARGUMENTS, 20_000));
    let more = format!(
        r#"{{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{a}"}}"#
    );
    assert_eq!(capped(WireFormat::Responses, "", &data(&[&more])), cap(ARGUMENTS, 20_000));
    let large = "a".repeat(20_001);
    let whole = format!(
        "{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"read\",\"arguments\":\"{large}\"}}}}]}}}}\n"
    );
    assert_eq!(capped(WireFormat::Ollama, "", &whole), cap(ARGUMENTS, 20_000));

    let calls = count("calls in the model's answer", 20);
    let call =
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"read"}}"#;
    assert_eq!(capped(WireFormat::Messages, "", &data(&[call])), calls);
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}}]}"#;
    assert_eq!(capped(WireFormat::Chat, "", &data(&[call])), calls);
    let call =
        r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"read"}}"#;
    assert_eq!(capped(WireFormat::Responses, "", &data(&[call])), calls);
    let call =
        "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"read\",\"arguments\":{}}}]}}\n";
    assert_eq!(capped(WireFormat::Ollama, "", call), calls);

    let blocks = count("blocks in the model's answer", 50);
    let block = r#"{"type":"content_block_start","content_block":{"type":"text"}}"#;
    assert_eq!(capped(WireFormat::Messages, "", &data(&[block])), blocks);
    let block = r#"{"type":"response.output_item.done","item":{"type":"x"}}"#;
    assert_eq!(capped(WireFormat::Responses, "", &data(&[block])), blocks);
    let block = r#"{"choices":[{"delta":{"content":[{}]}}]}"#;
    assert_eq!(capped(WireFormat::Chat, "", &data(&[block])), blocks);

    let long = format!(
        r#"{{"type":"content_block_start","content_block":{{"type":"tool_use","name":"{a}"}}}}"#
    );
    let what = "the name or the ID of a call";
    assert_eq!(capped(WireFormat::Messages, "", &data(&[&long])), cap(what, 256));
}

#[test]
fn deep_json_is_read_without_recursion() {
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let block =
        format!(r#"{{"type":"content_block_start","content_block":{{"type":"x","y":{deep}}}}}"#);
    let (_, failed) = decode(WireFormat::Messages, &data(&[&block]));
    assert!(failed.is_err());
    let chunk = format!(r#"{{"choices":[{{"delta":{{"x":{deep}}}}}]}}"#);
    assert!(decode(WireFormat::Chat, &data(&[&chunk])).1.is_err());
}

#[test]
fn largest_numbers_are_only_numbers() {
    for number in ["18446744073709551615", "1e999", "1.8e308"] {
        let usage = format!(
            r#"{{"input_tokens":{number},"prompt_tokens":{number},"output_tokens":{number},"completion_tokens":{number},"cache_read_input_tokens":{number},"prompt_tokens_details":{{"cached_tokens":{number},"cache_write_tokens":{number}}}}}"#
        );
        let block = r#"{"type":"content_block_start","content_block":{"type":"text","text":"b"}}"#;
        let messages = data(&[
            &format!(
                r#"{{"type":"content_block_start","index":{number},"content_block":{{"type":"text","text":"a"}}}}"#
            ),
            block,
            &format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#
            ),
        ]);
        let got = answer(WireFormat::Messages, &messages);
        assert_eq!((got.text().as_str(), got.usage.request()), ("ab", Some(u64::MAX)));
        let item = r#"{"type":"response.output_item.added","item":{"type":"message"}}"#;
        let responses = data(&[
            &format!(
                r#"{{"type":"response.output_item.added","output_index":{number},"item":{{"type":"message"}}}}"#
            ),
            item,
            r#"{"type":"response.output_text.delta","delta":"a"}"#,
            &format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#),
        ]);
        assert_eq!(answer(WireFormat::Responses, &responses).text(), "a");
        let call =
            format!(r#"{{"index":{number},"function":{{"name":"read","arguments":"{{}}"}}}}"#);
        let chat = data(&[&format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{call},{call}]}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        )]);
        assert_eq!(answer(WireFormat::Chat, &chat).calls().count(), 2);
    }
}

#[test]
fn words_of_a_server_are_short_and_neutral() {
    let long = format!("\\u001b[2J{}", "x".repeat(10_000));
    for (format, stream) in [
        (
            WireFormat::Messages,
            format!(r#"{{"type":"message","model":"{long}","stop_reason":"{long}"}}"#),
        ),
        (
            WireFormat::Chat,
            format!(r#"{{"model":"{long}","choices":[{{"finish_reason":"{long}"}}]}}"#),
        ),
        (
            WireFormat::Responses,
            format!(
                r#"{{"object":"response","model":"{long}","incomplete_details":{{"reason":"{long}"}}}}"#
            ),
        ),
        (WireFormat::Ollama, format!(r#"{{"model":"{long}","done":true,"done_reason":"{long}"}}"#)),
    ] {
        let got = answer(format, &stream);
        let toolhold_models::FinishReason::Other(reason) = &got.stop else {
            panic!("{:?}", got.stop)
        };
        for word in [reason, &got.model] {
            assert!((100..300).contains(&word.len()) && !word.contains('\u{1b}'), "{word}");
        }
    }
}
