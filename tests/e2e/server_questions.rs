//! Questions of other servers to the user, in the middle of their calls.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, MODERN, records, text};
use crate::servers::{PATIENCE, Scene, assert_small, until};

const ELICITS: &str = "evil__elicits";

/// A question with one field.
fn branch() -> Value {
    json!({ "message": "\u{1b}[2JWhich\n\u{202e}branch?", "requestedSchema": {
        "type": "object", "required": ["branch"],
        "properties": { "branch": { "type": "string", "enum": ["main", "next"], "title": "\u{7}Branch" } },
    } })
}

fn accept(branch: &str) -> Value {
    json!({ "action": "accept", "content": { "branch": branch } })
}

/// The form names who asks, and nothing of it steers a terminal.
#[track_caller]
fn assert_shown(form: &Value) {
    let message = form["message"].as_str().expect("it has a message");
    assert!(message.starts_with("The server `evil` has a question"), "{message}");
    assert!(message.contains("\n│ ") && message.contains("branch?"), "{message}");
    let all = form.to_string();
    assert!(
        !all.contains("\\u001b") && !all.contains('\u{202e}') && !all.contains("\\u0007"),
        "{all}"
    );
    assert_eq!(form["requestedSchema"]["properties"]["branch"]["enum"], json!(["main", "next"]));
}

/// What the server got for its questions.
fn got(result: &Value) -> Vec<String> {
    let text = text(result);
    let list = text.lines().find(|line| line.trim_start().starts_with('[') && line.ends_with(']'));
    let list = list.unwrap_or_else(|| panic!("there are answers: {text}"));
    let answers: Vec<Value> = serde_json::from_str(list).expect("JSON");
    let word = |answer: &Value| match answer["action"].as_str() {
        Some("accept") => format!("accept {}", answer["content"]["branch"].as_str().unwrap_or("")),
        Some(action) => action.to_owned(),
        None => format!("error {}", answer["code"]),
    };
    answers.iter().map(word).collect()
}

#[test]
fn user_of_the_client_is_asked_and_the_server_gets_the_answer() {
    let scene = Scene::new(101, "");
    let mut client = Client::new(&scene.cli, &[], LEGACY, true);
    for (answer, expected) in [
        (accept("next"), "accept next"),
        (accept("other"), "cancel"),
        (json!({ "action": "accept" }), "cancel"),
        (json!({ "action": "accept", "content": { "branch": "main", "more": 1 } }), "cancel"),
        (json!({ "action": "decline" }), "decline"),
        (json!({ "action": "cancel" }), "cancel"),
    ] {
        let call = json!({ "name": ELICITS, "arguments": { "params": branch() } });
        let id = client.ask("tools/call", call);
        assert_shown(&client.user_says(&answer));
        assert_eq!(got(&client.answer(id)), [expected], "{answer}");
    }
    let records = records(&scene.cli.root.path().join("data"));
    let inquiries: Vec<&Value> =
        records.iter().filter(|record| record["kind"] == "inquiry").collect();
    assert_eq!(inquiries.len(), 12, "asked and answered, each once");
    assert_eq!(inquiries[0]["answer"], Value::Null);
    assert_eq!(inquiries[1]["answer"], "accepted");
    assert_eq!(inquiries[1]["answered_by"], "MCP client tester 1");
    assert!(!inquiries.iter().any(|record| record.to_string().contains("next")), "{inquiries:?}");
    let outcome = records.iter().rfind(|record| record["kind"] == "outcome").expect("an outcome");
    assert_eq!(outcome["provider_version"], "hostile 1.2.3", "{outcome}");
    assert!(outcome["waited_ms"].as_f64().is_some(), "{outcome}");
}

#[test]
fn client_without_a_handshake_repeats_its_request_and_nothing_is_done_twice() {
    let scene = Scene::new(102, "");
    let mut client = Client::new(&scene.cli, &[], MODERN, true);
    let mut params = json!({ "name": ELICITS, "arguments": { "params": branch(), "count": 2 } });
    let mut before = Value::Null;
    for answer in ["main", "next"] {
        let required = client.request("tools/call", params.clone());
        assert_eq!(required["resultType"], "input_required", "{required}");
        assert_shown(&required["inputRequests"]["answer"]["params"]);
        before = params.clone();
        params["requestState"] = required["requestState"].clone();
        params["inputResponses"] = json!({ "answer": accept(answer) });
    }
    // The ticket of the first question was used.
    let again = client.request("tools/call", before);
    assert!(again["error"]["message"].as_str().is_some_and(|why| why.contains("no call waits")));
    let mut other = params.clone();
    other["name"] = json!("evil__echo_text");
    assert!(client.request("tools/call", other)["error"].is_object(), "another tool's");
    let mut stranger = Client::new(&scene.cli, &[], MODERN, true);
    assert!(
        stranger.request("tools/call", params.clone())["error"].is_object(),
        "another session's"
    );
    let result = client.request("tools/call", params);
    assert_eq!(got(&result), ["accept main", "accept next"]);
    assert_eq!(scene.starts(), 1);
    let records = records(&scene.cli.root.path().join("data"));
    let is_call = |record: &&Value| record["kind"] == "outcome" && record["tool"] == ELICITS;
    assert_eq!(records.iter().filter(is_call).count(), 1, "one call");
}

#[test]
fn question_of_a_server_without_a_handshake_reaches_the_user() {
    let scene = Scene::unapproved(103, "");
    scene.put("modern");
    scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let mut client = Client::new(&scene.cli, &[], LEGACY, true);
    let call = json!({ "name": "evil__requires", "arguments": { "params": branch() } });
    let id = client.ask("tools/call", call);
    assert_shown(&client.user_says(&accept("next")));
    let result = text(&client.answer(id));
    assert!(result.contains("\"mine\"") && result.contains("next"), "{result}");
    // Without a way to ask, it asks again and again.
    let mut client = scene.client();
    let again = json!({ "params": branch(), "again": true });
    let refused = client.call("evil__requires", again);
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("at most"), "{refused}");
}

#[test]
fn nobody_is_asked_outside_of_a_call_or_against_the_operator() {
    let scene = Scene::new(104, "");
    let arguments = json!({ "params": branch(), "after": true });
    let mut client = scene.client();
    assert_eq!(got(&client.call(ELICITS, arguments)), ["cancel"], "the client can't ask");
    let outside = scene.folder().join("outside");
    until("the server asks outside of a call", || outside.exists());
    let answer = || fs::read_to_string(&outside).unwrap_or_default();
    until("it is refused", || answer().contains("only ask questions while a call runs"));
    client.leave();
    for (set, expected, declares) in [
        ("mcp.servers.evil.elicitation=false", "error -32602", false),
        ("approvals.mcp=deny", "decline", true),
        ("approvals.mcp=terminal", "cancel", true),
    ] {
        let mut client = Client::new(&scene.cli, &["--set", set], LEGACY, true);
        assert_eq!(got(&client.call(ELICITS, json!({ "params": branch() }))), [expected], "{set}");
        let declared = fs::read_to_string(scene.folder().join("declared")).expect("it began");
        assert_eq!(declared.contains("elicitation"), declares, "{set}: {declared}");
        assert!(!declared.contains("sampling") && !declared.contains("roots"), "{declared}");
        client.leave();
    }
}

#[test]
fn hostile_questions_are_refused_and_counted() {
    let scene = Scene::new(105, "");
    let mut client = scene.client();
    let form = |fields: Value| json!({ "message": "x", "requestedSchema": { "type": "object", "properties": fields } });
    let address =
        |url: &str| json!({ "mode": "url", "message": "x", "url": url, "elicitationId": "1" });
    for (params, expected) in [
        (form(json!({ "password": { "type": "string" } })), "error -32602"),
        (form(json!({ "a": { "type": "object" } })), "error -32601"),
        (address("https://example.com@evil.example/"), "error -32602"),
        (address("file:///etc/passwd"), "error -32602"),
        (address("https://example.com/a"), "cancel"),
    ] {
        let answers = got(&client.call(ELICITS, json!({ "params": params })));
        assert_eq!(answers, [expected], "{params}");
    }
    let many = json!({ "params": branch(), "count": 12, "flood": true });
    let answers = got(&client.call(ELICITS, many));
    let asked = answers.iter().filter(|answer| *answer == "cancel").count();
    assert_eq!((asked, answers.len()), (8, 12), "{answers:?}");
    let flood = json!({ "params": branch(), "count": 5000, "flood": true });
    let ended = client.call(ELICITS, flood);
    assert!(text(&ended).contains("more than 500 unsolicited messages in one second"), "{ended}");
    assert!(text(&client.call("read", json!({ "path": "notes.txt" }))).contains("first"));
    assert_small(&client);
}

#[test]
fn answer_that_never_comes_delays_nobody() {
    let scene = Scene::new(106, "timeout_secs = 4\n[approvals]\nexpire_secs = 5");
    let mut client = Client::new(&scene.cli, &[], LEGACY, true);
    let call = json!({ "name": ELICITS, "arguments": { "params": branch() } });
    let id = client.ask("tools/call", call.clone());
    client.notification("elicitation/create");
    let started = Instant::now();
    assert!(text(&client.call("read", json!({ "path": "notes.txt" }))).contains("first"));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    // The wait for a person isn't the server's time.
    assert_eq!(got(&client.answer(id)), ["cancel"]);
    client.notification("notifications/cancelled");
    client.leave();
    let soon = ["--set", "approvals.expire_secs=1"];
    let mut client = Client::new(&scene.cli, &soon, MODERN, true);
    let required = client.request("tools/call", call.clone());
    let mut late = call;
    late["requestState"] = required["requestState"].clone();
    late["inputResponses"] = json!({ "answer": accept("main") });
    let data = scene.cli.root.path().join("data");
    let unanswered =
        || records(&data).iter().filter(|record| record["answer"] == "unanswered").count();
    until("its time is over", || unanswered() == 2);
    let answer = client.request("tools/call", late);
    assert!(answer["error"].is_object(), "{answer}");
}

#[test]
fn person_at_the_terminal_is_asked() {
    let scene = Scene::new(107, "");
    let params = format!("params={}", branch());
    let line = ["call", ELICITS, &params];
    let Some(answered) = scene.cli.typed(&line, "y\n2\n") else { return };
    assert!(answered.stdout.contains("The server `evil` has a question"), "{}", answered.stdout);
    assert!(answered.stdout.contains(r#""branch": "next""#), "{}", answered.stdout);
    let declined = scene.cli.typed(&line, "n\n").expect("there is a terminal");
    assert!(declined.stdout.contains(r#""action": "decline""#), "{}", declined.stdout);
    let started = Instant::now();
    let alone = scene.cli.run(&line).ends(0);
    assert!(alone.stdout.contains("cancel"), "{}", alone.stdout);
    assert!(started.elapsed() < PATIENCE);
}
