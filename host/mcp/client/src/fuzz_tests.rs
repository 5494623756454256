//! Any bytes from an upstream server: the client asks for all that it ever asks for, gets what is
//! bounded and neutral, and its requests end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::GetPromptRequestParams;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender, pipe};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;
use toolhold_core::config::McpServer;
use toolhold_core::text::neutral;
use toolhold_core::{
    BoxFuture, Call, CallCommands, CallId, CallRequests, CancellationToken, Inquirer, Inquiry,
    InquiryAnswer, NoEvents, compile_schema,
};
use toolhold_fuzz::{NAMES, Result, Target, Unstructured, json, json_text, schema};

use crate::connection::{Connection, Era, ServerInfo};
use crate::definitions::{OfferedTool, offered_tools, pin_tools};
use crate::events::Parser;
use crate::gate::{ConnectionState, LimitError};
use crate::listed_tools::ListedTools;
use crate::listing::Listing;
use crate::offers::{ServerOffers, pin};
use crate::pins::Pins;
use crate::pipe::Pipe;
use crate::server::{outcome, prompt, resource};
use crate::{MAX_OFFERS, MAX_TOOLS};

/// The longest time for a server that says everything it has to say at once, and ends.
const END: Duration = Duration::from_secs(60);

/// How often other tasks run before the server says more, although nobody asked it.
const IDLE: usize = 64;

/// Stands for the ID of the request that a message answers.
const ID: &str = "$ID";

const TOKENS: [&str; 36] = [
    "\n",
    "\n\n",
    "\r\n",
    "\"id\":$ID,",
    "\"id\":0,",
    "\"id\":null,",
    "\"jsonrpc\":\"2.0\",",
    "\"result\":{",
    "\"error\":{\"code\":-32601,\"message\":\"x\"},",
    "\"protocolVersion\":\"2026-07-28\",",
    "\"capabilities\":{\"tools\":{\"listChanged\":true}},",
    "\"supportedVersions\":[\"2026-07-28\"],",
    "\"tools\":[",
    "\"nextCursor\":\"2\",",
    "\"inputSchema\":{\"type\":\"object\"},",
    "\"outputSchema\":{\"$ref\":\"#\"},",
    "\"name\":\"a\",",
    "\"annotations\":{\"readOnlyHint\":true},",
    "\"prompts\":[",
    "\"resources\":[",
    "\"resourceTemplates\":[",
    "\"content\":[",
    "{\"type\":\"text\",\"text\":\"x\"}",
    "\"structuredContent\":{},",
    "\"isError\":true,",
    "\"inputRequests\":{},",
    "\"method\":\"elicitation/create\",",
    "\"method\":\"notifications/progress\",",
    "\"method\":\"notifications/tools/list_changed\",",
    "\"method\":\"ping\",",
    "data: ",
    "event: x\n",
    "id: 1\n",
    "retry: 5\n",
    "[",
    "}",
];

#[test]
fn soak_any_bytes_of_a_server_are_read() {
    let target = Target {
        name: "mcp-client",
        test: "fuzz_tests::soak_any_bytes_of_a_server_are_read",
        tokens: &TOKENS,
        generate: messages,
        read: |entry| entry,
        cases: 300,
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    target.run(|input| {
        check_events(input);
        check(&runtime, input);
    });
}

/// Reads the events of a server at a URL, whole and in pieces.
fn check_events(input: &[u8]) {
    let parse = |size: usize| -> std::result::Result<Vec<_>, LimitError> {
        let mut parser = Parser::default();
        let pieces = input.chunks(size).map(|piece| parser.parse_piece(piece));
        pieces.collect::<std::result::Result<Vec<_>, _>>().map(|all| all.concat())
    };
    let whole = parse(input.len().max(1));
    for size in [1, 7] {
        assert_eq!(parse(size), whole, "in pieces of {size}");
    }
}

fn check(runtime: &Runtime, input: &[u8]) {
    for era in [Era::Unknown, Era::Handshake] {
        let talk = async {
            let ((to_server, from_client), (to_client, from_server)) =
                (pipe().expect("a pipe"), pipe().expect("a pipe"));
            let (complaint, stderr) = pipe().expect("a pipe");
            drop(complaint);
            let streams: [OwnedFd; 3] = [
                to_server.into_nonblocking_fd().expect("a descriptor"),
                from_server.into_nonblocking_fd().expect("a descriptor"),
                stderr.into_nonblocking_fd().expect("a descriptor"),
            ];
            let connection_state = Arc::new(ConnectionState::default());
            let pipe = Pipe::new(streams, Arc::clone(&connection_state)).expect("a connection");
            let client = async {
                if let Some(connection) = Connection::over_pipe(pipe, era, connection_state).await {
                    ask(&connection).await;
                }
            };
            tokio::join!(client, serve(input, from_client, to_client));
        };
        runtime.block_on(async { timeout(END, talk).await }).expect("it ends");
    }
}

/// Says a paragraph of the input for each request, and the rest if there is none for a while.
async fn serve(input: &[u8], from_client: Receiver, mut to_client: Sender) {
    let text = String::from_utf8_lossy(input);
    let mut lines = BufReader::new(from_client).lines();
    let mut id = Value::from(0);
    for paragraph in text.split("\n\n") {
        tokio::select! {
            biased;
            asked = next_request(&mut lines) => match asked {
                Some(next) => id = next,
                None => return,
            },
            () = idle() => {}
        }
        let said = paragraph.replace(ID, &id.to_string()) + "\n";
        if to_client.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
    // What it has said is read before it ends.
    tokio::select! {
        biased;
        _ = next_request(&mut lines) => {}
        () = idle() => {}
    }
}

async fn idle() {
    for _ in 0..IDLE {
        yield_now().await;
    }
}

/// The ID of the client's next request.
async fn next_request(lines: &mut tokio::io::Lines<BufReader<Receiver>>) -> Option<Value> {
    loop {
        let line = lines.next_line().await.ok()??;
        let message: Value = serde_json::from_str(&line).expect("the client writes JSON");
        if message.get("method").is_some()
            && let Some(id) = message.get("id")
        {
            return Some(id.clone());
        }
    }
}

/// Asks a server for everything.
async fn ask(connection: &Connection) {
    let ServerInfo { protocol, name, version, instructions } = connection.about();
    for part in [protocol, name, version, instructions] {
        assert_eq!(neutral(&part).len(), part.len());
    }
    let listed = connection.tools().await;
    let outputs = check_tools(&listed.unwrap_or_default());
    check_listing(&connection.listing().await.unwrap_or_default());
    let call = call();
    if let Ok(result) = connection.call("a", &call).await
        && let Ok(output) = outcome(result)
        && let Some(value) = output.structured
    {
        for tool in outputs {
            tool.fits(&value);
        }
    }
    if let Ok(read) = connection.read("memo://a", &call).await {
        let _ = resource(read);
    }
    if let Ok(got) = connection.prompt(&GetPromptRequestParams::new("a"), &call).await {
        let _ = prompt(got);
    }
}

fn check_tools(listed: &ListedTools) -> Vec<OfferedTool> {
    assert!(listed.tools.len() <= MAX_TOOLS + 1 && listed.unreadable.len() <= MAX_TOOLS);
    let (tools, _) = pin_tools(&listed.tools);
    assert!(tools.len() <= MAX_TOOLS);
    let pins = Pins { tools, ..Pins::default() };
    let trusting = McpServer { trust_annotations: true, ..McpServer::default() };
    let (offered, _) = offered_tools("server", &pins, &trusting);
    for tool in &offered {
        let definition = &tool.definition;
        assert!(definition.foreign && definition.name.len() <= 64, "{}", definition.name);
        check_neutral(&serde_json::to_value(&**definition).expect("it is JSON"));
        compile_schema(&definition.input_schema).expect("it was compiled before");
    }
    offered
}

fn check_listing(listing: &Listing) {
    let (pins, _) = pin(listing);
    for (_, list) in pins.lists() {
        assert!(list.len() <= MAX_OFFERS);
    }
    let offers = ServerOffers::new("server", &pins, true);
    for prompt in &offers.offers.prompts {
        assert!(prompt.name.len() <= 64, "{}", prompt.name);
    }
}

/// Checks that no text in it steers a terminal or a model.
fn check_neutral(value: &Value) {
    match value {
        Value::String(text) => assert_eq!(neutral(text), *text),
        Value::Array(items) => items.iter().for_each(check_neutral),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            assert_eq!(neutral(key), *key);
            check_neutral(value);
        }),
        _ => {}
    }
}

/// Accepts every question with nothing.
struct Accepting;

impl Inquirer for Accepting {
    fn inquire(&self, _: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async { InquiryAnswer::Accepted { content: Map::new(), by: String::new() } })
    }
}

fn call() -> Call {
    Call {
        id: CallId("1".into()),
        tool: "server__a".to_owned(),
        arguments: Arc::new(json!({ "a": 1 })),
        attachments: Vec::new(),
        meta: None,
        time: None,
        caller: None,
        session: "session".into(),
        caller_info: None,
        read_only: false,
        path_rules: None,
        changes: None,
        commands: CallCommands::default(),
        requests: CallRequests::default(),
        tasks: None,
        inquirer: Some(Arc::new(Accepting)),
        report: Arc::default(),
        events: Arc::new(NoEvents),
        cancel: CancellationToken::new(),
    }
}

/// Messages of a server, mostly of one that has begun a session.
fn messages(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KEYS: [&str; 16] = [
        "type",
        "text",
        "data",
        "mimeType",
        "uri",
        "name",
        "resource",
        "content",
        "role",
        "messages",
        "contents",
        "title",
        "icons",
        "_meta",
        "arguments",
        "required",
    ];
    const START: [&str; 3] = [
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"x"}}"#,
    ];
    let mut messages = (*random.choose(&START)?).to_owned();
    for _ in 0..random.int_in_range(1..=8)? {
        let value = json(random, &KEYS, 3)?;
        let name = json_text(random.choose(&NAMES)?);
        let result = match random.int_in_range(0..=8)? {
            0 => value,
            1 | 2 => format!(
                r#"{{"tools":[{{"name":{name},"description":"d","inputSchema":{},"outputSchema":{}}},{{"name":"a","inputSchema":{{"type":"object"}},"annotations":{value}}}]}}"#,
                schema(random, 4)?,
                schema(random, 3)?
            ),
            3 => format!(r#"{{"prompts":[{{"name":{name},"arguments":[{value}]}}]}}"#),
            4 => format!(
                r#"{{"resources":[{{"uri":"memo://{}","name":{name}}}]}}"#,
                random.choose(&["a", "\\u202e", " "])?
            ),
            5 => format!(
                r#"{{"content":[{value},{{"type":"text","text":{name}}}],"structuredContent":{value}}}"#
            ),
            6 => format!(
                r#"{{"contents":[{{"uri":"memo://a","text":{name}}},{{"uri":"memo://a","blob":{name}}}]}}"#
            ),
            7 => format!(r#"{{"messages":[{{"role":"user","content":{value}}}]}}"#),
            _ => format!(
                r#"{{"resultType":"input_required","inputRequests":{{{name}:{{"method":"elicitation/create","params":{{"mode":"form","message":{name},"requestedSchema":{}}}}}}},"requestState":"x"}}"#,
                schema(random, 2)?
            ),
        };
        messages += random.choose(&["\n\n", "\n\n", "\n\n", "\n"])?;
        messages += &match random.int_in_range(0..=9)? {
            0 => format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{{"mode":"form","message":{name},"requestedSchema":{result}}}}}"#
            ),
            1 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$ID,"progress":1,"total":0,"message":{name}}}}}"#
            ),
            2 => r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned(),
            3 => format!("data: {result}"),
            _ => format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{result}}}"#),
        };
    }
    Ok(messages.into_bytes())
}
