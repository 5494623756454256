//! A scripted model behind a loopback server, in the protocols in which published clients ask their
//! models.
//!
//! The test says what the model says, and sees the results that reach the model. The server keeps
//! no conversation: each request has all of it, and the number of results in it is the number of
//! the turn. So a request that a client repeats gets the same answer.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Asked, Server, Wire, answer};

/// Time limit for the test to say what the model says.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the model says in a turn.
#[derive(Clone)]
pub(crate) enum Saying {
    Text(&'static str),
    /// A call of a tool, by Toolhold's name, with the arguments.
    Call(&'static str, Value),
}

/// A protocol in which clients ask models.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    /// The end of the path to which requests go.
    path: &'static str,
    read: fn(&Value) -> Conversation,
    write: fn(&Said) -> String,
}

/// What a request has of the conversation.
struct Conversation {
    tools: Vec<Tool>,
    /// The text of each result of a call.
    results: Vec<String>,
}

/// A tool as the client names it.
#[derive(Clone)]
struct Tool {
    namespace: Option<String>,
    name: String,
}

/// What the model says to a request.
enum Said<'s> {
    Text(&'s str),
    Call { turn: usize, tool: &'s Tool, arguments: &'s Value },
}

/// A model that answers until it is dropped.
pub(crate) struct Model {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    script: Mutex<Script>,
    changed: Condvar,
}

#[derive(Default)]
struct Script {
    /// By the number of the turn.
    sayings: Vec<Saying>,
    /// The longest list of results that a request had.
    results: Vec<String>,
    /// The tools of Toolhold in the last request.
    tools: Vec<Tool>,
}

impl Model {
    pub(crate) fn start(protocol: Protocol) -> Self {
        let shared = Arc::<Shared>::default();
        let script = Arc::clone(&shared);
        let server = Server::plain(move |asked, wire| script.answer(protocol, asked, wire));
        Self { server, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Has the model say this in the next turn.
    pub(crate) fn say(&self, saying: Saying) {
        self.shared.lock().sayings.push(saying);
        self.shared.changed.notify_all();
    }

    /// The results that have reached the model.
    pub(crate) fn results(&self) -> Vec<String> {
        self.shared.lock().results.clone()
    }

    /// The tools of Toolhold that the client has offered, by the client's names.
    pub(crate) fn tools(&self) -> Vec<String> {
        self.shared.lock().tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, protocol: Protocol, asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
        let path = asked.path().split('?').next().unwrap_or_default();
        if !path.ends_with(protocol.path) {
            return answer(wire, "404 Not Found", &[], b"{}");
        }
        let mut conversation = (protocol.read)(&serde_json::from_slice(&asked.body)?);
        conversation.tools.retain(Tool::is_of_toolhold);
        let Some(body) = self.body(protocol, conversation) else {
            return answer(wire, "500 Internal Server Error", &[], b"{}");
        };
        answer(wire, "200 OK", &[("content-type", "text/event-stream")], body.as_bytes())
    }

    /// Returns `None` if the test doesn't say what the model says, or the client lacks the tool.
    fn body(&self, protocol: Protocol, conversation: Conversation) -> Option<String> {
        let Conversation { tools, results } = conversation;
        if tools.is_empty() {
            // Clients also ask for titles and summaries.
            return Some((protocol.write)(&Said::Text("A title")));
        }
        let turn = results.len();
        let mut script = self.lock();
        script.tools.clone_from(&tools);
        if turn > script.results.len() {
            script.results = results;
        }
        let (script, _) = self
            .changed
            .wait_timeout_while(script, PATIENCE, |script| script.sayings.len() <= turn)
            .unwrap_or_else(PoisonError::into_inner);
        let said = match script.sayings.get(turn)? {
            Saying::Text(text) => Said::Text(text),
            Saying::Call(name, arguments) => {
                let tool = tools.iter().find(|tool| tool.is_named(name))?;
                Said::Call { turn, tool, arguments }
            }
        };
        Some((protocol.write)(&said))
    }
}

impl Tool {
    fn new(name: &Value) -> Self {
        Self { namespace: None, name: name.as_str().unwrap_or_default().to_owned() }
    }

    /// Whether it is a tool of the server that `toolhold connect` names `toolhold`.
    fn is_of_toolhold(&self) -> bool {
        self.namespace.as_ref().unwrap_or(&self.name).contains("toolhold")
    }

    /// Whether it is the tool of this name. Clients put the server's name before it.
    fn is_named(&self, name: &str) -> bool {
        self.name
            .strip_suffix(name)
            .is_some_and(|before| before.is_empty() || before.ends_with('_'))
    }
}

/// Chat Completions of OpenAI, which `opencode` uses.
pub(crate) const CHAT: Protocol =
    Protocol { path: "/chat/completions", read: read_chat, write: write_chat };

/// Responses of OpenAI, which Codex uses.
pub(crate) const RESPONSES: Protocol =
    Protocol { path: "/responses", read: read_responses, write: write_responses };

/// Messages of Anthropic, which Claude Code uses.
pub(crate) const MESSAGES: Protocol =
    Protocol { path: "/messages", read: read_messages, write: write_messages };

/// Google's protocol, which Gemini CLI uses.
pub(crate) const GEMINI: Protocol =
    Protocol { path: ":streamGenerateContent", read: read_gemini, write: write_gemini };

fn read_chat(body: &Value) -> Conversation {
    let tools = items(&body["tools"]).iter().map(|tool| Tool::new(&tool["function"]["name"]));
    let results = items(&body["messages"]).iter().filter(|message| message["role"] == "tool");
    Conversation {
        tools: tools.collect(),
        results: results.map(|result| strings(&result["content"])).collect(),
    }
}

fn write_chat(said: &Said) -> String {
    let (delta, reason) = match said {
        Said::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        Said::Call { turn, tool, arguments } => {
            let function = json!({ "name": tool.name, "arguments": arguments.to_string() });
            let call = json!({
                "index": 0, "id": id(*turn), "type": "function", "function": function,
            });
            (json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
        }
    };
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    let chunks = [(delta, Value::Null), (json!({}), json!(reason))].map(|(delta, reason)| {
        json!({
            "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }], "usage": usage,
        })
    });
    stream(&chunks) + "data: [DONE]\n\n"
}

fn read_responses(body: &Value) -> Conversation {
    let mut tools = Vec::new();
    for tool in items(&body["tools"]) {
        let namespace = tool["name"].as_str().map(str::to_owned);
        if tool["type"] == "namespace" {
            tools.extend(
                items(&tool["tools"]).iter().map(|inner| Tool {
                    namespace: namespace.clone(),
                    ..Tool::new(&inner["name"])
                }),
            );
        } else {
            tools.push(Tool::new(&tool["name"]));
        }
    }
    let results =
        items(&body["input"]).iter().filter(|item| item["type"] == "function_call_output");
    Conversation { tools, results: results.map(|result| strings(&result["output"])).collect() }
}

fn write_responses(said: &Said) -> String {
    let item = match said {
        Said::Text(text) => json!({
            "type": "message", "role": "assistant", "id": "m",
            "content": [{ "type": "output_text", "text": text }],
        }),
        Said::Call { turn, tool, arguments } => {
            let mut call = json!({
                "type": "function_call", "call_id": id(*turn), "name": tool.name,
                "arguments": arguments.to_string(),
            });
            if let Some(namespace) = &tool.namespace {
                call["namespace"] = json!(namespace);
            }
            call
        }
    };
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    stream(&[
        json!({ "type": "response.created", "response": { "id": "a" } }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": "a", "usage": usage } }),
    ])
}

fn read_messages(body: &Value) -> Conversation {
    let parts = items(&body["messages"]).iter().flat_map(|message| items(&message["content"]));
    let results = parts.filter(|part| part["type"] == "tool_result");
    Conversation {
        tools: items(&body["tools"]).iter().map(|tool| Tool::new(&tool["name"])).collect(),
        results: results.map(|result| strings(&result["content"])).collect(),
    }
}

fn write_messages(said: &Said) -> String {
    let (block, delta, reason) = match said {
        Said::Text(text) => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": text }),
            "end_turn",
        ),
        Said::Call { turn, tool, arguments } => (
            json!({ "type": "tool_use", "id": id(*turn), "name": tool.name, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }),
            "tool_use",
        ),
    };
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let message = json!({
        "id": "a", "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let end = json!({ "stop_reason": reason, "stop_sequence": null });
    stream(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": usage }),
        json!({ "type": "message_stop" }),
    ])
}

fn read_gemini(body: &Value) -> Conversation {
    let declared =
        items(&body["tools"]).iter().flat_map(|tool| items(&tool["functionDeclarations"]));
    let parts = items(&body["contents"]).iter().flat_map(|content| items(&content["parts"]));
    let results = parts.filter_map(|part| part.get("functionResponse"));
    Conversation {
        tools: declared.map(|tool| Tool::new(&tool["name"])).collect(),
        results: results.map(|result| strings(&result["response"])).collect(),
    }
}

fn write_gemini(said: &Said) -> String {
    let part = match said {
        Said::Text(text) => json!({ "text": text }),
        Said::Call { turn, tool, arguments } => {
            json!({ "functionCall": { "id": id(*turn), "name": tool.name, "args": arguments } })
        }
    };
    let content = json!({ "role": "model", "parts": [part] });
    let usage = json!({ "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 });
    stream(&[json!({
        "candidates": [{ "index": 0, "content": content, "finishReason": "STOP" }],
        "usageMetadata": usage, "modelVersion": "scripted",
    })])
}

/// The ID of the call in a turn.
fn id(turn: usize) -> String {
    format!("call_{turn}")
}

/// The events of a stream. An event with a type has this name.
fn stream(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        if let Some(name) = event["type"].as_str() {
            text += &format!("event: {name}\n");
        }
        text += &format!("data: {event}\n\n");
    }
    text
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// All strings in a value, one a line.
fn strings(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(strings).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => fields.values().map(strings).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}
