//! Clients that share a token and nothing else.

use serde_json::{Value, json};

use super::super::client::{LEGACY, text};
use super::client::Serving;
use crate::support::Cli;

/// Text that is only in the first client's answers.
const OWN: &str = "only-of-the-first";

/// The id in an answer that was cut.
pub(super) fn id(answer: &Value) -> String {
    let text = answer.to_string();
    let digits = |id: &&str| id.len() == 25 && id[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.starts_with(['h', 'w']))
        .find(digits)
        .unwrap_or_else(|| panic!("an id is in {text}"))
        .to_owned()
}

/// A long answer with private text.
fn long() -> Value {
    json!({ "path": "long.txt" })
}

fn cli() -> Cli {
    let cli = Cli::asking();
    let line = format!("{OWN} {}\n", "x".repeat(100));
    std::fs::write(cli.work().join("long.txt"), line.repeat(1500)).expect("a file is written");
    cli.configure("[tools.overflow]\nthreshold = 2000\n");
    cli
}

/// Nothing of the first client is in the second one's answers, by any request.
fn assert_apart(first: &str, kept: &str, mut ask: impl FnMut(&str, Value) -> Value) {
    let read_on =
        ask("tools/call", json!({ "name": "read_overflow", "arguments": { "id": kept } }));
    assert_eq!(read_on["result"]["isError"], true, "{first}: {read_on}");
    for uri in [
        format!("toolhold://kept/{kept}"),
        format!("toolhold://kept/{kept}?offset=1&limit=5"),
        format!("toolhold://kept/../{kept}"),
    ] {
        let resource = ask("resources/read", json!({ "uri": uri }));
        assert!(
            resource["error"].is_object() && resource["result"].is_null(),
            "{first}: {uri}: {resource}"
        );
    }
    let record = ask("resources/read", json!({ "uri": "toolhold://record" }));
    assert!(record["result"]["contents"][0]["text"].is_string(), "{first}: {record}");
    for answer in [read_on, record] {
        let told = answer.to_string();
        assert!(!told.contains(OWN) && !told.contains("long.txt"), "{first}: {told}");
    }
}

#[test]
fn kept_answers_and_records_are_of_one_session() {
    let cli = cli();
    let serving = Serving::new(&cli, &[]);
    // Sessions that a client names.
    let named = serving.call("read", &long(), &[("toolhold-session", "one")]);
    let kept = id(&named);
    let own = serving.call("read_overflow", &json!({ "id": kept }), &[("toolhold-session", "one")]);
    assert!(text(&own).contains(OWN), "{own}");
    for others in [&[("toolhold-session", "two")][..], &[]] {
        assert_apart("named", &kept, |method, params| {
            serving.modern(method, &params, others).message()
        });
    }
    // Connections of older revisions, each its own session, also beside named ones.
    let connections =
        [serving.handshake(LEGACY, false, &[]), serving.handshake(LEGACY, false, &[])];
    let post = |connection: &str, method: &str, params: Value| {
        let head = [("mcp-session-id", connection), ("mcp-protocol-version", LEGACY)];
        serving
            .post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }), &head)
            .message()
    };
    assert_apart("named", &kept, |method, params| post(&connections[0], method, params));
    let read = post(&connections[0], "tools/call", json!({ "name": "read", "arguments": long() }));
    let kept = id(&read);
    let own = post(
        &connections[0],
        "resources/read",
        json!({ "uri": format!("toolhold://kept/{kept}") }),
    );
    assert!(
        own["result"]["contents"][0]["text"].as_str().is_some_and(|text| text.contains(OWN)),
        "{own}"
    );
    assert_apart("connected", &kept, |method, params| post(&connections[1], method, params));
    for others in [&[("toolhold-session", "two")][..], &[]] {
        assert_apart("connected", &kept, |method, params| {
            serving.modern(method, &params, others).message()
        });
    }
    assert_eq!(serving.ends(), 0);
}

/// A resource returns a file's text like the tool: with marks in place of secrets.
#[test]
fn secrets_don_t_leave_through_resources() {
    let cli = cli();
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let lines: String =
        (0..200).map(|number| format!("line {number} has token {token} and more\n")).collect();
    std::fs::write(cli.work().join("long.txt"), lines).expect("a file is written");
    let serving = Serving::new(&cli, &[]);
    let read = serving.call("read", &long(), &[]);
    assert!(
        text(&read).contains("[REDACTED:github-token") && !read.to_string().contains(token),
        "{read}"
    );
    let kept = id(&read);
    // Parts that begin and end anywhere.
    for offset in (0..10_000).step_by(701) {
        let params = json!({ "uri": format!("toolhold://kept/{kept}?offset={offset}&limit=40") });
        let part = serving.modern("resources/read", &params, &[]).message();
        assert!(!part.to_string().contains("ghp_abcd"), "{offset}: {part}");
    }
    let all = serving
        .modern(
            "resources/read",
            &json!({ "uri": format!("toolhold://kept/{kept}?limit=100000") }),
            &[],
        )
        .message();
    let marks = all.to_string().matches("[REDACTED:github-token").count();
    assert!(marks > 10 && !all.to_string().contains(token), "{all}");
    // A call's arguments are in the record, without their secrets.
    serving.call("find_path", &json!({ "pattern": format!("*{token}*") }), &[]);
    let record =
        serving.modern("resources/read", &json!({ "uri": "toolhold://record" }), &[]).message();
    let told = record.to_string();
    assert!(told.contains("find_path") && !told.contains(token), "{told}");
    // Files aren't resources, whatever their names are.
    for uri in [
        "file:///etc/passwd",
        "toolhold://kept//etc/passwd",
        "toolhold://record/../../config/toolhold.toml",
        "toolhold://../data/mcp/token",
    ] {
        let answer = serving.modern("resources/read", &json!({ "uri": uri }), &[]).message();
        assert!(answer["error"].is_object(), "{uri}: {answer}");
    }
}
