//! Prompts, resources and structured answers of other servers.

use std::fs;

use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, MODERN, records, text};
use crate::servers::{Scene, assert_small};

const NOTES: &str = "evil+memo://notes";

fn read(client: &mut Client, uri: &str) -> Value {
    client.request("resources/read", json!({ "uri": uri }))
}

/// The text of a resource that was read.
#[track_caller]
fn read_text(result: &Value) -> &str {
    let text = result["contents"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("there is a text: {result}"))
}

/// What one key has in a list.
fn all<'a>(list: &'a Value, name: &str, key: &str) -> Vec<&'a str> {
    let list = list[name].as_array().expect("a list");
    list.iter().filter_map(|entry| entry[key].as_str()).collect()
}

#[test]
fn lists_are_those_that_were_approved_and_start_nothing() {
    let scene = Scene::new(201, "");
    scene.put("grown");
    let mut client = scene.client();
    let resources = client.request("resources/list", json!({}));
    let templates = client.request("resources/templates/list", json!({}));
    let prompts = client.request("prompts/list", json!({}));
    let uris = all(&resources, "resources", "uri");
    for uri in
        [NOTES, "evil+memo://hostile", "evil+file:///folder/../../etc/passwd", "toolhold://record"]
    {
        assert!(uris.contains(&uri), "{uri} is in {uris:?}");
    }
    assert_eq!(uris.len(), 6, "what has no address that can be shown is left out: {uris:?}");
    assert!(all(&resources, "resources", "name").contains(&"evil__notes"), "{resources}");
    assert!(all(&templates, "resourceTemplates", "uriTemplate").contains(&"evil+memo://{name}"));
    assert_eq!(all(&prompts, "prompts", "name"), ["tools", "evil__plan_it"]);
    let shown = format!("{resources}{templates}{prompts}");
    for hidden in ["id_rsa", "added", "\\u001b", "\u{202e}"] {
        assert!(!shown.contains(hidden), "{hidden} is in {shown}");
    }
    let tools = client.request("tools/list", json!({})).to_string();
    assert!(!tools.contains("read_resource") && !tools.contains("get_prompt"), "{tools}");
    assert_eq!(scene.starts(), 0);
    client.leave();
    let shown = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0).stdout;
    for line in
        ["~ prompt Plan.It", "+ prompt added", "~ resource memo://notes", "+ resource memo://added"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let mut client = scene.client();
    let prompts = client.request("prompts/list", json!({}));
    assert!(all(&prompts, "prompts", "name").contains(&"evil__added"), "{prompts}");
}

#[test]
fn contents_are_untrusted_bounded_and_recorded() {
    let scene = Scene::new(202, "");
    let mut client = Client::new(&scene.cli, &[], MODERN, false);
    let notes = read(&mut client, NOTES);
    assert!(
        read_text(&notes).contains("a note") && read_text(&notes).contains("external-data"),
        "{notes}"
    );
    assert_eq!(notes["contents"][0]["uri"], NOTES, "not the address that the server says");
    let own = read(&mut client, "evil+file:///etc/passwd");
    assert!(read_text(&own).contains("the server's own idea"), "Toolhold reads no file: {own}");
    let hostile = read(&mut client, "evil+memo://hostile").to_string();
    for hidden in ["\\u001b", "\u{202e}", "IOSFODNN7EXAMPLE"] {
        assert!(!hostile.contains(hidden), "{hidden} is in {hostile}");
    }
    let large = read(&mut client, "evil+memo://large");
    assert!(large.to_string().len() < 200_000 && large.to_string().contains("read_overflow"));
    for missing in [
        "evil+memo://nothing",
        "other+memo://notes",
        "memo://notes",
        "evil+../etc/passwd",
        "evil+memo://\u{1b}",
    ] {
        assert!(read(&mut client, missing)["error"].is_object(), "{missing}");
    }
    let prompt = json!({ "name": "evil__plan_it", "arguments": { "topic": "a trip" } });
    let prompt = client.request("prompts/get", prompt);
    let roles: Vec<&Value> =
        prompt["messages"].as_array().expect("messages").iter().map(|one| &one["role"]).collect();
    assert!(roles.contains(&&json!("assistant")) && roles[0] == "user", "{prompt}");
    let all = prompt.to_string();
    assert!(
        all.contains("Plan a trip") && all.contains("external-data") && !all.contains("\\u001b"),
        "{all}"
    );
    assert!(client.request("prompts/get", json!({ "name": "evil__nothing" }))["error"].is_object());
    assert_eq!(scene.starts(), 1);
    client.leave();
    let records = records(&scene.cli.root.path().join("data"));
    let of = |tool: &str| {
        records
            .iter()
            .filter(|record| record["kind"] == "outcome" && record["tool"] == tool)
            .count()
    };
    assert_eq!((of("evil__read_resource"), of("evil__get_prompt")), (7, 1));
}

#[test]
fn rules_of_calls_hold_for_contents() {
    let scene = Scene::new(203, "");
    let ask = ["--set", "tools.autonomy=ask"];
    let mut client = Client::new(&scene.cli, &ask, LEGACY, true);
    let id = client.ask("resources/read", json!({ "uri": NOTES }));
    let question = client.user_says(&json!({ "action": "decline" }));
    assert!(
        question["message"].as_str().is_some_and(|text| text.contains("memo://notes")),
        "{question}"
    );
    assert!(client.answer(id)["error"].is_object());
    assert_eq!(scene.starts(), 0, "it was refused before");
    client.leave();
    let mut client = Client::new(&scene.cli, &ask, MODERN, true);
    let mut params = json!({ "uri": NOTES });
    let required = client.request("resources/read", params.clone());
    params["requestState"] = required["requestState"].clone();
    params["inputResponses"] =
        json!({ "answer": { "action": "accept", "content": { "answer": "once" } } });
    assert!(read_text(&client.request("resources/read", params)).contains("a note"));
    client.leave();
    let file = scene.cli.root.path().join("config/toolhold.toml");
    let rules = "\n[[tools.permissions.evil__read_resource]]\npattern = \"*\"\naction = \"deny\"\n";
    let text = fs::read_to_string(&file).expect("it is there") + rules;
    fs::write(&file, text).expect("it is written");
    let mut client = scene.client();
    assert!(read(&mut client, NOTES)["error"].is_object());
    let listed = client.request("resources/list", json!({}));
    assert!(
        !all(&listed, "resources", "uri").contains(&NOTES),
        "what is denied isn't listed: {listed}"
    );
}

#[test]
fn endless_lists_and_notifications_harm_nobody() {
    let scene = Scene::new(204, "timeout_secs = 5");
    let mut client = scene.client();
    let flooded = read(&mut client, "evil+memo://flood").to_string();
    assert!(flooded.contains("more than 500 unsolicited messages in one second"), "{flooded}");
    assert!(text(&client.call("read", json!({ "path": "notes.txt" }))).contains("first"));
    assert_small(&client);
    client.leave();
    scene.put("million");
    let told = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0).stdout;
    assert!(
        told.contains("! memo://256 is left out: the server offers more than 256, the limit"),
        "{told}"
    );
    let mut client = scene.client();
    let listed = client.request("resources/list", json!({}));
    assert_eq!(all(&listed, "resources", "uri").len(), 257);
    client.leave();
    scene.assert_gone();
}

#[test]
fn structured_answer_has_to_fit_the_approved_schema() {
    let scene = Scene::new(205, "");
    let mut client = scene.client();
    let tools = client.request("tools/list", json!({}));
    let shaped = tools["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|tool| tool["name"] == "evil__shaped");
    assert_eq!(shaped.expect("it is there")["outputSchema"]["properties"]["n"]["type"], "integer");
    let fits = client.call("evil__shaped", json!({ "n": 7 }));
    assert_eq!(fits["structuredContent"]["n"], 7, "{fits}");
    let doesnt = client.call("evil__shaped", json!({ "n": "seven" }));
    assert_eq!(doesnt["isError"], true, "{doesnt}");
    assert!(
        doesnt["structuredContent"].is_null() && text(&doesnt).contains("no structured part"),
        "{doesnt}"
    );
}
