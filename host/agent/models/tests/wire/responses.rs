//! Answers of Responses.

use toolhold_models::FinishReason;

use super::*;

const FORMAT: WireFormat = WireFormat::Responses;

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me"},{"type":"summary_text","text":"see"}],"encrypted_content":"gAAA\/=="}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"I'll look.","annotations":[],"logprobs":[ ]}]}"#;
const CALL: &str = r#"{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"path\": \"a.rs\"}","call_id":"call_a","name":"read"}"#;
const SEARCH: &str =
    r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"q" : 1.0}}"#;

fn item(kind: &str, index: u64, item: &str) -> String {
    format!(r#"{{"type":"response.output_item.{kind}","output_index":{index},"item":{item}}}"#)
}

fn ended(kind: &str, response: &str) -> String {
    format!(r#"{{"type":"response.{kind}","sequence_number":9,"response":{response}}}"#)
}

const COMPLETED: &str = r#"{"id":"resp_1","object":"response","status":"completed","error":null,"incomplete_details":null,"model":"m-1-real","output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":80},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":150}}"#;

pub(crate) fn documented() -> String {
    named(&[
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"m-1-real","output":[],"error":null}}"#,
        r#"{"type":"response.queued","response":{"model":"m-1-real"}}"#,
        r#"{"type":"response.in_progress","response":{"model":"m-1-real"}}"#,
        &item("added", 0, r#"{"id":"rs_1","type":"reasoning","summary":[]}"#),
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Let "}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"me"}"#,
        r#"{"type":"response.reasoning_summary_text.done","output_index":0,"text":"Let me"}"#,
        r#"{"type":"response.reasoning_summary_part.done","output_index":0}"#,
        r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"see"}"#,
        &item("done", 0, REASONING),
        &item(
            "added",
            1,
            r#"{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}"#,
        ),
        r#"{"type":"response.content_part.added","output_index":1,"content_index":0,"part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"I'll ","obfuscation":"xY"}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"look."}"#,
        r#"{"type":"response.output_text.annotation.added","output_index":1,"annotation":{}}"#,
        r#"{"type":"response.output_text.done","output_index":1,"text":"I'll look."}"#,
        r#"{"type":"response.content_part.done","output_index":1}"#,
        &item("done", 1, MESSAGE),
        &item(
            "added",
            2,
            r#"{"id":"fc_1","type":"function_call","arguments":"","call_id":"call_a","name":"read"}"#,
        ),
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"path\": "}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"\"a.rs\"}"}"#,
        r#"{"type":"response.function_call_arguments.done","output_index":2,"arguments":"{\"path\": \"a.rs\"}"}"#,
        &item("done", 2, CALL),
        &item("added", 3, r#"{"id":"ws_1","type":"web_search_call","status":"in_progress"}"#),
        r#"{"type":"response.web_search_call.searching","output_index":3}"#,
        &item("done", 3, SEARCH),
        &ended("completed", COMPLETED),
    ])
}

fn raws(answer: &ModelAnswer) -> Vec<Option<&str>> {
    let raw = |block| match block {
        &Block::Text { ref raw, .. } | &Block::Thinking { ref raw, .. } => raw.as_ref(),
        Block::Call(call) => call.raw.as_ref(),
        Block::Opaque(raw) => Some(raw),
    };
    answer.blocks.iter().map(|block| raw(block).map(RawJson::get)).collect()
}

#[test]
fn every_documented_event_is_read() {
    let answer = answer(FORMAT, &documented());
    assert_eq!((&*answer.model, &answer.stop), ("m-1-real", &FinishReason::Calls));
    assert_eq!(answer.usage, usage([Some(20), Some(80), None, Some(50), Some(7)]));
    assert_eq!(answer.text(), "I'll look.");
    assert_eq!(answer.blocks.iter().find_map(thinking), Some("Let me\n\nsee"));
    assert_eq!(calls(&answer), [("call_a", "read", r#"{"path": "a.rs"}"#)]);
    // Each item in its own bytes.
    assert_eq!(raws(&answer), [Some(REASONING), Some(MESSAGE), Some(CALL), Some(SEARCH)]);
}

#[test]
fn every_end_is_read() {
    let end = |kind: &str, response: &str| answer(FORMAT, &named(&[&ended(kind, response)])).stop;
    assert_eq!(end("completed", COMPLETED), FinishReason::End);
    // llama.cpp says this of an answer that it cut at the 500 tokens of the turn.
    for (output, expected) in [(499, FinishReason::End), (500, FinishReason::Length)] {
        let full =
            COMPLETED.replace("\"output_tokens\":50,", &format!("\"output_tokens\":{output},"));
        assert_eq!(end("completed", &full), expected);
    }
    for (reason, expected) in [
        ("max_output_tokens", FinishReason::Length),
        ("content_filter", FinishReason::Refused("content_filter".to_owned())),
        ("other", FinishReason::Other("other".to_owned())),
    ] {
        let response =
            format!(r#"{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}}}}"#);
        assert_eq!(end("incomplete", &response), expected);
    }
    let refusal = named(&[
        &item("added", 0, r#"{"type":"message","content":[]}"#),
        r#"{"type":"response.refusal.delta","output_index":0,"delta":"No."}"#,
        r#"{"type":"response.refusal.done","output_index":0,"refusal":"No."}"#,
        &item("done", 0, r#"{"type":"message","content":[{"type":"refusal","refusal":"No."}]}"#),
        &ended("completed", COMPLETED),
    ]);
    let answer = answer(FORMAT, &refusal);
    assert_eq!(
        (answer.text().as_str(), answer.stop),
        ("No.", FinishReason::Refused("No.".to_owned()))
    );
}

#[test]
fn nearly_compatible_servers_are_understood() {
    // Whole items without deltas, or items only at the end: the texts are events all the same.
    let items =
        data(&[&item("done", 0, MESSAGE), &item("done", 1, CALL), &ended("completed", COMPLETED)]);
    let at_end = data(&[&ended(
        "completed",
        &COMPLETED.replace(r#""output":[]"#, &format!(r#""output":[{MESSAGE},{CALL}]"#)),
    )]);
    let whole = COMPLETED.replace(r#""output":[]"#, &format!(r#""output":[{MESSAGE},{CALL}]"#));
    for stream in [items, at_end, whole] {
        let got = answer(FORMAT, &stream);
        assert_eq!(got.text(), "I'll look.", "{stream}");
        assert_eq!(raws(&got), [Some(MESSAGE), Some(CALL)]);
    }
    // No numbers, no IDs, arguments only in pieces, no item at the end, no `type` in the data.
    let loose = data(&[
        r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"read"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{\"n\":1}"}"#,
        r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"edit","arguments":{"n": 2}}}"#,
        r#"{"type":"response.output_item.added","item":{"type":"message"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
    ]) + "event: response.done\ndata: {\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n";
    let got = answer(FORMAT, &loose);
    assert_eq!(got.text(), "Hi");
    assert_eq!(calls(&got), [("call_0", "read", r#"{"n":1}"#), ("call_1", "edit", r#"{"n": 2}"#)]);
    assert_eq!(got.usage, usage([Some(1), None, None, Some(2), None]));
    // The unfinished message goes back as its text, not as the empty item that it was.
    assert_eq!(raws(&got)[2], None);
    let back = body(FORMAT, &next_turn(&turn(), &got));
    assert_eq!(back["input"][1]["call_id"], "call_0");
    assert_eq!(back["input"][1]["arguments"], r#"{"n":1}"#);
    assert_eq!(back["input"][3]["content"][0]["text"], "Hi");
    // A number that comes again is another item.
    let twice = data(&[
        &item("done", 0, CALL),
        &item(
            "added",
            0,
            r#"{"type":"function_call","name":"edit","call_id":"call_a","arguments":""}"#,
        ),
        &item(
            "done",
            0,
            r#"{"type":"function_call","name":"edit","call_id":"call_a","arguments":"{}"}"#,
        ),
        &ended("completed", COMPLETED),
    ]);
    let got = answer(FORMAT, &twice);
    assert_eq!(calls(&got), [("call_a", "read", r#"{"path": "a.rs"}"#), ("call_0", "edit", "{}")]);
}

#[test]
fn errors_and_missing_ends_are_errors() {
    let failed = ended(
        "failed",
        r#"{"status":"failed","error":{"code":"rate_limit_exceeded","message":"boom"}}"#,
    );
    for error in [
        failed.as_str(),
        r#"{"type":"error","code":"server_error","message":"boom","param":null,"sequence_number":3}"#,
        r#"{"type":"error","error":{"type":"server_error","message":"boom"}}"#,
        r#"{"error":{"message":"boom","type":"invalid_request_error"}}"#,
    ] {
        let failed = failure(FORMAT, &data(&[error]));
        assert!(matches!(&failed, WireError::Server(error) if error.message == "boom"), "{failed}");
    }
    for cut in [
        String::new(),
        data(&[&item("done", 0, MESSAGE)]),
        data(&[&item("done", 0, MESSAGE), "[DONE]"]),
    ] {
        assert_eq!(failure(FORMAT, &cut), WireError::Cut);
    }
}
