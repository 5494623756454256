//! Calls that need approval, over MCP.

use std::fs;

use serde_json::{Value, json};

use super::client::{Client, LEGACY, MODERN, records, text};
use crate::approvals_command::only_question;
use crate::support::Cli;

const WRITE: &str = "write";

fn arguments() -> Value {
    json!({ "path": "notes.txt", "content": "changed\n" })
}

fn notes(cli: &Cli) -> String {
    fs::read_to_string(cli.work().join("notes.txt")).expect("it is there")
}

fn accept(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

/// The form shows everything that a person needs to know.
#[track_caller]
fn assert_tells_all(form: &Value) {
    let message = form["message"].as_str().expect("it has a message");
    for told in ["write", "notes.txt", "+changed", "-first", "why"] {
        assert!(message.contains(told), "{told} is not in {message}");
    }
    assert!(!message.contains('\u{1b}'), "{message:?}");
    let choices = &form["requestedSchema"]["properties"]["answer"]["oneOf"];
    assert_eq!(choices.as_array().map(Vec::len), Some(3), "{form}");
}

#[test]
fn client_s_user_is_asked_and_the_answer_holds() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, true);
    for no in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        accept("no"),
        accept("sure"),
        json!({ "action": "accept" }),
    ] {
        let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
        assert_tells_all(&client.user_says(&no));
        let result = client.answer(id);
        assert_eq!(result["isError"], true, "{no}: {result}");
        assert_eq!(notes(&cli), "first\nsecond\n", "{no}");
    }
    let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    client.user_says(&accept("once"));
    assert_eq!(client.answer(id)["isError"], false);
    assert_eq!(notes(&cli), "changed\n");
    let records = records(&cli.root.path().join("data"));
    assert!(records.iter().any(|record| record["approved_by"] == "MCP client tester 1"
        && record["approval_scope"] == "once"));
}

#[test]
fn form_fits_the_clients_revision() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], "2025-06-18", true);
    let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    let form = client.user_says(&accept("once"));
    let choice = &form["requestedSchema"]["properties"]["answer"];
    assert_eq!(
        (&choice["type"], &choice["enum"]),
        (&json!("string"), &json!(["once", "session", "no"])),
        "{form}"
    );
    assert_eq!(choice["enumNames"].as_array().map(Vec::len), Some(3), "{form}");
    assert!(choice.get("oneOf").is_none(), "{form}");
    assert_eq!(client.answer(id)["isError"], false);
    assert_eq!(notes(&cli), "changed\n");
}

#[test]
fn question_is_withdrawn_with_its_call() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, true);
    let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    let question = client.notification("elicitation/create");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    assert_eq!(
        client.notification("notifications/cancelled")["params"]["requestId"],
        question["id"]
    );
    // A late answer has no effect.
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept("once") }));
    assert_eq!(client.call("read", json!({ "path": "notes.txt" }))["isError"], false);
    assert_eq!(notes(&cli), "first\nsecond\n");
    // An answered question isn't taken back either.
    let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    client.user_says(&accept("once"));
    assert_eq!(client.answer(id)["isError"], false);
    assert!(client.aside.iter().all(|message| message["method"] != "notifications/cancelled"));
}

#[test]
fn session_approval_ends_with_the_connection() {
    let cli = Cli::asking();
    fs::write(cli.work().join("notes.txt"), "changed\n").expect("it is written");
    let mut client = Client::new(&cli, &[], LEGACY, true);
    let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    client.user_says(&accept("session"));
    assert_eq!(client.answer(id)["isError"], false);
    assert_eq!(client.call(WRITE, arguments())["isError"], false, "it is not asked about again");
    client.leave();
    let mut other = Client::new(&cli, &[], LEGACY, true);
    let id = other.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
    other.user_says(&json!({ "action": "decline" }));
    assert_eq!(other.answer(id)["isError"], true, "another connection is asked anew");
}

#[test]
fn client_without_a_handshake_answers_with_a_single_use_ticket() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], MODERN, true);
    let asked = client.call(WRITE, arguments());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_tells_all(&asked["inputRequests"]["answer"]["params"]);
    assert_eq!(notes(&cli), "first\nsecond\n");
    let ticket = asked["requestState"].as_str().expect("it has a ticket").to_owned();
    let again = |client: &mut Client, arguments: Value, ticket: &str, answer: Value| {
        let params = json!({ "name": WRITE, "arguments": arguments, "requestState": ticket, "inputResponses": { "answer": answer } });
        client.request("tools/call", params)
    };

    // Not sealed, for other arguments, without an answer.
    let forged = again(
        &mut client,
        arguments(),
        &format!("{}x", &ticket[..ticket.len() - 1]),
        accept("once"),
    );
    assert_eq!(forged["error"]["code"], -32602, "{forged}");
    let bare = client.request(
        "tools/call",
        json!({ "name": WRITE, "arguments": arguments(), "requestState": ticket }),
    );
    assert_eq!(bare["error"]["code"], -32602, "{bare}");
    let mut other = Client::new(&cli, &[], MODERN, true);
    let elsewhere = again(&mut other, arguments(), &ticket, accept("once"));
    assert_eq!(elsewhere["error"]["code"], -32602, "another connection's: {elsewhere}");
    assert_eq!(notes(&cli), "first\nsecond\n");

    let done = again(&mut client, arguments(), &ticket, accept("once"));
    assert_eq!(done["isError"], false, "{done}");
    assert_eq!(notes(&cli), "changed\n");
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
    let replayed = again(&mut client, arguments(), &ticket, accept("once"));
    assert_eq!(replayed["error"]["code"], -32602, "{replayed}");
    assert_eq!(notes(&cli), "first\nsecond\n");

    // The ticket of one call doesn't approve another.
    let ticket = client.call(WRITE, arguments())["requestState"]
        .as_str()
        .expect("it has a ticket")
        .to_owned();
    let other = json!({ "path": "notes.txt", "content": "something else\n" });
    assert_eq!(again(&mut client, other, &ticket, accept("once"))["resultType"], "input_required");
    assert_eq!(notes(&cli), "first\nsecond\n");
    // And a denial never becomes an approval.
    let ticket = client.call(WRITE, arguments())["requestState"]
        .as_str()
        .expect("it has a ticket")
        .to_owned();
    assert_eq!(
        again(&mut client, arguments(), &ticket, json!({ "action": "decline" }))["isError"],
        true
    );
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn model_output_is_never_an_approval() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    for more in ["approved", "confirmed", "yes", "_meta"] {
        let mut arguments = arguments();
        arguments[more] = json!(true);
        assert_eq!(client.call(WRITE, arguments)["isError"], true, "{more}");
    }
    assert_eq!(notes(&cli), "first\nsecond\n");
}

#[test]
fn terminal_approves_if_the_client_cannot_ask() {
    let cli = Cli::asking();
    for (version, set, asks) in
        [(LEGACY, "approvals.mcp=client", false), (MODERN, "approvals.mcp=terminal", true)]
    {
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
        let mut client = Client::new(&cli, &["--set", set], version, asks);
        let waits = client.call(WRITE, arguments());
        assert_eq!(waits["_meta"]["toolhold"]["category"], "confirmation_required", "{waits}");
        assert!(text(&waits).contains("toolhold approvals allow"), "{waits}");
        let listed = cli.run(&["approvals", "--json"]).ends(0).json();
        let id =
            listed[0]["id"].as_str().unwrap_or_else(|| panic!("it is listed: {listed}")).to_owned();
        cli.run(&["approvals", "allow", &id]).ends(0);
        assert_eq!(client.call(WRITE, arguments())["isError"], false, "{version}");
        assert_eq!(notes(&cli), "changed\n");
    }
}

#[test]
fn client_without_a_person_leaves_the_question_to_approvals() {
    let cli = Cli::asking();
    for answer in [json!({ "action": "decline" }), json!({ "action": "cancel" })] {
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
        let mut client = Client::new(&cli, &[], LEGACY, true);
        // However often the client answers by itself, nothing is approved.
        for _ in 0..3 {
            let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
            client.user_says(&answer);
            let waits = client.answer(id);
            assert_eq!(waits["_meta"]["toolhold"]["category"], "confirmation_required", "{waits}");
            for told in
                ["no person answered in the client", "toolhold approvals allow", "wait_secs"]
            {
                assert!(text(&waits).contains(told), "{told} is not in {waits}");
            }
            assert_eq!(notes(&cli), "first\nsecond\n", "{answer}");
        }
        cli.run(&["approvals", "allow", &only_question(&cli)]).ends(0);
        // The next call runs without a question in the client, and only once.
        assert_eq!(client.call(WRITE, arguments())["isError"], false, "{answer}");
        assert_eq!(notes(&cli), "changed\n");
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
        let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
        client.user_says(&answer);
        assert_eq!(client.answer(id)["isError"], true, "{answer}");
        assert_eq!(notes(&cli), "first\nsecond\n", "{answer}");
        // A person who answers in the client after all leaves no question behind.
        let id = client.ask("tools/call", json!({ "name": WRITE, "arguments": arguments() }));
        client.user_says(&accept("no"));
        assert!(text(&client.answer(id)).contains("denied by the user"), "{answer}");
        assert_eq!(cli.run(&["approvals", "--json"]).ends(0).json(), json!([]));
    }
}

#[test]
fn configuration_can_forbid_questions() {
    let cli = Cli::asking();
    for version in [LEGACY, MODERN] {
        let mut client = Client::new(&cli, &["--set", "approvals.mcp=deny"], version, true);
        let refused = client.call(WRITE, arguments());
        assert_eq!(refused["_meta"]["toolhold"]["category"], "confirmation_required", "{refused}");
        assert!(text(&refused).contains("[approvals]"), "{refused}");
    }
    assert_eq!(notes(&cli), "first\nsecond\n");
}
