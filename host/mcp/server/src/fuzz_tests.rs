//! Any bytes from a client: each request gets at most one answer, an answer has the ID of a
//! request, and the connection ends when the client has closed its side.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use toolhold_core::config::{Approvals, Folders};
use toolhold_core::{
    Annotations, BoxFuture, Call, CancellationToken, Definition, Host, Outcome, Output, Session,
    ToolSource,
};
use toolhold_fuzz::{Result, Target, Unstructured, json, json_text};

use crate::Server;
use crate::envelope::Envelope;
use crate::stdio::serve;

/// How long a client waits for answers that may not come.
const QUIET: Duration = Duration::from_millis(20);

/// The longest time for a connection whose client has written everything and reads everything.
const END: Duration = Duration::from_secs(60);

const START: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"a","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

/// What each request says since the revision without a handshake.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

const TOKENS: [&str; 30] = [
    "\n",
    "\r\n",
    START,
    META,
    "\"jsonrpc\":\"2.0\",",
    "\"id\":0,",
    "\"id\":7,",
    "\"id\":\"x\",",
    "\"id\":null,",
    "\"id\":1.5,",
    "\"method\":\"tools/call\",",
    "\"method\":\"ping\",",
    "\"method\":\"initialize\",",
    "\"method\":\"notifications/cancelled\",",
    "\"params\":{",
    "\"name\":\"echo\",",
    "\"name\":\"act\",",
    "\"arguments\":{},",
    "\"requestId\":7,",
    "\"progressToken\":1,",
    "\"requestState\":\"x\",",
    "\"inputResponses\":{},",
    "\"result\":{\"action\":\"accept\",\"content\":{}},",
    "\"error\":{\"code\":1,\"message\":\"x\"},",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "\\ud800",
];

const METHODS: [&str; 20] = [
    "tools/call",
    "tools/call",
    "tools/call",
    "tools/list",
    "ping",
    "initialize",
    "server/discover",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "completion/complete",
    "subscriptions/listen",
    "tasks/get",
    "tasks/cancel",
    "tasks/update",
    "notifications/cancelled",
    "notifications/progress",
    "logging/setLevel",
];

#[test]
fn soak_any_bytes_of_a_client_are_answered() {
    let target = Target {
        name: "mcp-server",
        test: "fuzz_tests::soak_any_bytes_of_a_client_are_answered",
        tokens: &TOKENS,
        generate: messages,
        read: |entry| entry,
        cases: 100,
    };
    let served = Served::new();
    target.run(|input| served.check(input));
}

/// A host and its runtime.
struct Served {
    runtime: Runtime,
    host: Arc<Host>,
    folders: Folders,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(&folder.path().join("own"));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let builder = Host::builder()
            .folders(folders.clone())
            .working_directory(folder.path())
            .provider(Arc::new(Tools));
        let host = runtime.block_on(builder.build()).expect("a host");
        Self { runtime, host: Arc::new(host), folders, _folder: folder }
    }

    fn check(&self, input: &[u8]) {
        let server =
            Server::new(Arc::clone(&self.host), self.folders.clone(), &Approvals::default());
        let server = server.expect("a server");
        let said = self.runtime.block_on(async {
            let (client, ours) = duplex(1 << 16);
            let (reading, writing) = tokio::io::split(ours);
            let session = Session::new("fuzz");
            let serving =
                tokio::spawn(serve(server, session, reading, writing, CancellationToken::new()));
            let (from, to) = tokio::io::split(client);
            let said = timeout(END, talk(input, from, to)).await.expect("it ends");
            let served = timeout(END, serving).await.expect("it ends");
            // A client that doesn't follow the protocol gets an end.
            let _ = served.expect("no task panics");
            said
        });
        check_answers(input, &said);
    }
}

/// Writes the input, declines what the server asks meanwhile, and closes. Returns what it said.
async fn talk(
    input: &[u8],
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Vec<u8> {
    let (tell, mut told) = unbounded_channel();
    let read = async move {
        let (mut from, mut said) = (BufReader::new(from), Vec::new());
        loop {
            let before = said.len();
            if from.read_until(b'\n', &mut said).await.expect("it is memory") == 0 {
                return said;
            }
            // Nobody may listen any more.
            let _ = tell.send(serde_json::from_slice::<Value>(&said[before..]).unwrap_or_default());
        }
    };
    let write = async move {
        // The server may give up before it has read everything.
        let _ = to.write_all(input).await;
        let _ = to.write_all(b"\n").await;
        let lines = input.split(|byte| *byte == b'\n');
        let mut open: HashSet<Value> = lines.filter_map(id_of_request).collect();
        // A call that still asks its client when that closes goes on for some seconds.
        while !open.is_empty()
            && let Ok(Some(message)) = timeout(QUIET, told.recv()).await
        {
            if message.get("method").is_none() {
                open.remove(&message["id"]);
            } else if let Some(id) = message.get("id") {
                let declined = json!({ "action": "decline" });
                let reply = json!({ "jsonrpc": "2.0", "id": id, "result": declined });
                let _ = to.write_all(format!("{reply}\n").as_bytes()).await;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write).0
}

fn id_of_request(line: &[u8]) -> Option<Value> {
    serde_json::to_value(Envelope::parse_id(line)?).ok()
}

fn check_answers(input: &[u8], said: &[u8]) {
    let mut asked: HashMap<Value, usize> = HashMap::new();
    let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    for line in &lines {
        let found = id_of_request(line);
        let parsed = serde_json::from_slice::<Value>(line).ok().map(|line| line["id"].clone());
        let ids = [found, parsed];
        let [found, parsed] = &ids;
        for id in ids.iter().flatten().take(if found == parsed { 1 } else { 2 }) {
            *asked.entry(id.clone()).or_default() += 1;
        }
    }
    let said = std::str::from_utf8(said).expect("it is UTF-8");
    let mut answers = 0;
    for line in said.lines() {
        let message: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        if message.get("method").is_some() {
            continue;
        }
        answers += 1;
        assert_eq!(
            message.get("result").is_some(),
            message.get("error").is_none(),
            "one of both: {line}"
        );
        let id = &message["id"];
        if id.is_null() {
            continue;
        }
        let left = asked.get_mut(id).filter(|left| **left > 0);
        *left.unwrap_or_else(|| panic!("nobody waits for this answer: {line}")) -= 1;
    }
    assert!(answers <= lines.len(), "{answers} answers to {} lines", lines.len());
}

/// A tool that only reads, and one that needs approval.
struct Tools;

impl ToolSource for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let schema =
            json!({ "type": "object", "properties": { "a": {}, "n": { "type": "integer" } } });
        let echo = Definition {
            annotations: Annotations {
                read_only: true,
                destructive: false,
                open_world: false,
                ..Annotations::default()
            },
            ..Definition::new("echo", "Answers with its arguments.", schema.clone())
        };
        let act = Definition::new("act", "Changes something.", schema);
        vec![Arc::new(echo), Arc::new(act)]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move { Ok(Output::text(call.arguments.to_string())) })
    }
}

/// Messages of a client, mostly of a session that has begun.
fn messages(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KEYS: [&str; 16] = [
        "name",
        "arguments",
        "a",
        "n",
        "_meta",
        "cursor",
        "uri",
        "ref",
        "argument",
        "type",
        "value",
        "taskId",
        "requestId",
        "inputResponses",
        "requestState",
        "protocolVersion",
    ];
    let is_old = random.ratio(1, 2)?;
    let mut messages = String::new();
    if is_old && random.ratio(7, 8)? {
        messages += START;
    }
    for _ in 0..random.int_in_range(1..=8)? {
        let method = *random.choose(&METHODS)?;
        let id = *random.choose(&["1", "2", "3", "4", "\"a\"", "\"b\"", "1", "null"])?;
        let value = json(random, &KEYS, 3)?;
        let params = match random.int_in_range(0..=4)? {
            0 => value,
            1 => format!(r#"{{"requestId":{id},"taskId":{id},"progressToken":1}}"#),
            2 => format!(r#"{{"name":"tools","uri":"toolhold://status","ref":{value},{META}}}"#),
            _ => {
                let tool = random.choose(&["echo", "act", "nothing"])?;
                let meta = if is_old { r#""_meta":{"progressToken":1}"# } else { META };
                format!(r#"{{"name":"{tool}","arguments":{value},{meta}}}"#)
            }
        };
        let method = json_text(method);
        messages += &match random.int_in_range(0..=9)? {
            0 => format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#),
            1 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{params}}}}}"#
            ),
            2 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{params}}}"#),
            3 => params,
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#),
        };
        messages.push('\n');
    }
    Ok(messages.into_bytes())
}
