//! Any bytes as the stream of a model, in each format: the caps apply, cuts don't matter, and an
//! answer can go back.

use toolhold_fuzz::{Result, Target, Unstructured, json, json_text};

use super::*;

const TOKENS: [&str; 40] = [
    "data: ",
    "\n\n",
    "\r\r",
    "event: error\n",
    ": ",
    "[DONE]",
    "\"type\":\"content_block_delta\",",
    "\"type\":\"content_block_start\",",
    "\"type\":\"content_block_stop\",",
    "\"type\":\"message_stop\",",
    "\"type\":\"response.completed\",",
    "\"type\":\"response.output_item.done\",",
    "\"type\":\"tool_use\",",
    "\"type\":\"function_call\",",
    "\"index\":0,",
    "\"index\":7,",
    "\"output_index\":2,",
    "\"choices\":[",
    "\"delta\":{",
    "\"message\":{",
    "\"tool_calls\":[",
    "\"function\":{",
    "\"arguments\":\"{\",",
    "\"partial_json\":\"}\",",
    "\"name\":\"read\",",
    "\"id\":\"call_a\",",
    "\"content\":\"x\",",
    "\"thinking\":\"x\",",
    "\"signature\":\"x\",",
    "\"usage\":{",
    "\"finish_reason\":\"length\",",
    "\"done\":true,",
    "\"error\":{",
    "null",
    "{",
    "}",
    "[]",
    "\\\"",
    "\\ud83d",
    "1e999",
];

/// Caps that inputs reach.
const SMALL: WireCaps =
    WireCaps { event: 700, arguments: 40, answer: 5_000, stream: 8_000, blocks: 9, calls: 4 };

#[test]
fn soak_any_stream_is_decoded() {
    let target = Target {
        name: "models",
        test: "fuzz::soak_any_stream_is_decoded",
        tokens: &TOKENS,
        generate: stream,
        read: |entry| entry,
        cases: 400,
    };
    target.run(|input| {
        for format in FORMATS {
            check(format, input, WireCaps::default());
            check(format, input, SMALL);
        }
    });
}

fn check(format: WireFormat, input: &[u8], caps: WireCaps) {
    let whole = decode_pieces(format, &[input], caps);
    for size in [1, 7, 999] {
        let pieces: Vec<&[u8]> = input.chunks(size).collect();
        assert_eq!(decode_pieces(format, &pieces, caps), whole, "{format:?} in pieces of {size}");
    }
    let Ok(answer) = whole.1 else { return };
    assert!(answer.blocks.len() <= caps.blocks && answer.calls().count() <= caps.calls);
    let next = next_turn(&turn(), &answer);
    for format in FORMATS {
        let body = body_text(format, &next, &options());
        let body: serde_json::Result<Value> = serde_json::from_str(&body);
        // Such a number is JSON, and goes back as it came.
        let is_large = |error: &serde_json::Error| error.to_string().contains("out of range");
        assert!(body.as_ref().err().is_none_or(is_large), "{body:?}");
    }
    let kept = serde_json::to_string(&next).expect("it is kept");
    assert_eq!(serde_json::from_str::<Turn>(&kept).expect("it is read"), next);
}

/// Events with the usual fields of one format.
fn stream(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KEYS: [&str; 24] = [
        "type",
        "index",
        "delta",
        "content_block",
        "text",
        "thinking",
        "partial_json",
        "id",
        "name",
        "input",
        "message",
        "content",
        "role",
        "usage",
        "choices",
        "tool_calls",
        "function",
        "arguments",
        "item",
        "output",
        "call_id",
        "response",
        "summary",
        "error",
    ];
    const KINDS: [&str; 16] = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "[DONE]",
    ];
    let format = *random.choose(&FORMATS)?;
    let mut stream = String::new();
    for _ in 0..random.int_in_range(1..=12)? {
        let value = json(random, &KEYS, 4)?;
        let text = json_text(random.choose(&["Hi", "{\"path\":", "\"a\"}", "{}", "é", "\u{0}"])?);
        let kind = *random.choose(&KINDS)?;
        let index = random.int_in_range(0..=3)?;
        let event = match (format, random.int_in_range(0..=4)?) {
            (_, 0) => value,
            (WireFormat::Messages, 1) => format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":{text},"name":"read","input":{value}}}}}"#
            ),
            (WireFormat::Messages, 2) => format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":{text}}}}}"#
            ),
            (WireFormat::Messages, 3) => format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text","text":{text}}}}}"#
            ),
            (WireFormat::Messages | WireFormat::Responses, _) => format!(
                r#"{{"type":"{kind}","index":{index},"output_index":{index},"delta":{text},"item":{{"type":"function_call","call_id":{text},"name":"edit","arguments":{text}}},"response":{value}}}"#
            ),
            (WireFormat::Chat, 1) => {
                format!(r#"{{"choices":[{{"index":0,"delta":{value},"finish_reason":{text}}}]}}"#)
            }
            (WireFormat::Chat, _) => format!(
                r#"{{"choices":[{{"delta":{{"content":{text},"tool_calls":[{{"index":{index},"id":{text},"function":{{"name":"read","arguments":{text}}}}}]}}}}],"usage":{value}}}"#
            ),
            (WireFormat::Ollama, _) => format!(
                r#"{{"message":{{"content":{text},"tool_calls":[{{"function":{{"name":"read","arguments":{value}}}}}]}},"done":{}}}"#,
                index == 3
            ),
        };
        stream += &match format {
            WireFormat::Messages => format!("event: {kind}\ndata: {event}\n\n"),
            WireFormat::Chat | WireFormat::Responses => format!("data: {event}\n\n"),
            WireFormat::Ollama => format!("{event}\n"),
        };
    }
    if random.ratio(1, 2)? {
        stream += match format {
            WireFormat::Messages => "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            WireFormat::Chat => "data: [DONE]\n\n",
            WireFormat::Responses => {
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n"
            }
            WireFormat::Ollama => "{\"done\":true}\n",
        };
    }
    Ok(stream.into_bytes())
}
