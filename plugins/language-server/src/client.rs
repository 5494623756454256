//! The client: requests and their answers, and which files the server knows.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::frames::{Frames, frame};
use crate::places::{hover, places, symbols, uri};
use crate::{LspError, Place, Position, Symbol, Transport};

/// Most messages and bytes that are read for one answer.
const MAX_MESSAGES: usize = 10_000;
const MAX_READ: usize = 64 << 20;

/// Most files that the server has open. The one that was used longest ago is closed.
const MAX_OPEN: usize = 200;

/// Most bytes of a file that is opened.
const MAX_FILE: usize = 4 << 20;

/// Most bytes of a server's message in an error.
const MAX_ERROR: usize = 500;

/// What the client knows of a server, for the plugin to keep from one call to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    is_initialized: bool,
    last_id: u64,
    /// The files that it has open, by path.
    open: BTreeMap<String, OpenFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpenFile {
    version: u64,
    text: u64,
    used: u64,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    frames: Frames,
    /// What is known of the server.
    state: ServerState,
    deadline: Instant,
}

impl<T: Transport> Client<T> {
    /// A client of a server, which answers until `time` is over. `state`: what an earlier call has
    /// kept, or the default for a server that was just started.
    pub fn new(transport: T, state: ServerState, time: Duration) -> Self {
        let deadline = Instant::now() + time;
        Self { transport, frames: Frames::default(), state, deadline }
    }

    /// What is known of the server. `None`: a message was begun and isn't finished, so nobody can
    /// go on with this server.
    pub fn into_state(self) -> (T, Option<ServerState>) {
        let state = self.frames.is_between().then_some(self.state);
        (self.transport, state)
    }

    /// Tells the server of the project in the folder `root`, unless it knows.
    ///
    /// # Errors
    ///
    /// Those of every request: the server has ended, takes too long, or can't be understood.
    pub fn initialize(&mut self, root: &str) -> Result<(), LspError> {
        if self.state.is_initialized {
            return Ok(());
        }
        let root = uri(root);
        let parameters = json!({
            "processId": null,
            "rootUri": root,
            "workspaceFolders": [{ "uri": root, "name": "project" }],
            "capabilities": {
                "general": { "positionEncodings": ["utf-16"] },
                "textDocument": {
                    "definition": { "linkSupport": true },
                    "hover": { "contentFormat": ["plaintext", "markdown"] },
                    "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
                },
            },
        });
        self.request("initialize", parameters)?;
        self.notify("initialized", json!({}))?;
        self.state.is_initialized = true;
        Ok(())
    }

    /// Gives the server the text of a file as it is on disk. `language`: its name in the protocol,
    /// such as `rust`.
    ///
    /// # Errors
    ///
    /// As [`initialize`](Self::initialize), or the file is too large.
    pub fn open(&mut self, path: &str, language: &str, text: &str) -> Result<(), LspError> {
        if text.len() > MAX_FILE {
            let size = text.len();
            return Err(LspError::Refused(format!(
                "{path} is {size} bytes; the limit is {MAX_FILE}"
            )));
        }
        let used = self.state.open.values().map(|open| open.used).max().unwrap_or_default() + 1;
        let hash = hash(text);
        let uri = uri(path);
        match self.state.open.get_mut(path) {
            Some(open) if open.text == hash => open.used = used,
            Some(open) => {
                *open = OpenFile { version: open.version + 1, text: hash, used };
                let document = json!({ "uri": uri, "version": open.version });
                let changes = json!([{ "text": text }]);
                let parameters = json!({ "textDocument": document, "contentChanges": changes });
                self.notify("textDocument/didChange", parameters)?;
            }
            None => {
                self.close_oldest()?;
                let document =
                    json!({ "uri": uri, "languageId": language, "version": 1, "text": text });
                self.notify("textDocument/didOpen", json!({ "textDocument": document }))?;
                let open = OpenFile { version: 1, text: hash, used };
                self.state.open.insert(path.to_owned(), open);
            }
        }
        Ok(())
    }

    fn close_oldest(&mut self) -> Result<(), LspError> {
        if self.state.open.len() < MAX_OPEN {
            return Ok(());
        }
        let oldest = self.state.open.iter().min_by_key(|(_, open)| open.used);
        let Some(path) = oldest.map(|(path, _)| path.clone()) else { return Ok(()) };
        self.state.open.remove(&path);
        let parameters = json!({ "textDocument": { "uri": uri(&path) } });
        self.notify("textDocument/didClose", parameters)
    }

    /// Where what stands at a position is defined.
    ///
    /// # Errors
    ///
    /// As [`initialize`](Self::initialize), or the server refuses.
    pub fn definition(&mut self, path: &str, at: Position) -> Result<Vec<Place>, LspError> {
        self.request("textDocument/definition", position(path, at)).map(|answer| places(&answer))
    }

    /// Where what stands at a position is used, and where it is declared.
    ///
    /// # Errors
    ///
    /// As [`definition`](Self::definition).
    pub fn references(&mut self, path: &str, at: Position) -> Result<Vec<Place>, LspError> {
        let mut parameters = position(path, at);
        parameters["context"] = json!({ "includeDeclaration": true });
        self.request("textDocument/references", parameters).map(|answer| places(&answer))
    }

    /// What stands at a position: its type and its documentation.
    ///
    /// # Errors
    ///
    /// As [`definition`](Self::definition).
    pub fn hover(&mut self, path: &str, at: Position) -> Result<Option<String>, LspError> {
        self.request("textDocument/hover", position(path, at)).map(|answer| hover(&answer))
    }

    /// The symbols of a file.
    ///
    /// # Errors
    ///
    /// As [`definition`](Self::definition).
    pub fn document_symbols(&mut self, path: &str) -> Result<Vec<Symbol>, LspError> {
        let parameters = json!({ "textDocument": { "uri": uri(path) } });
        let answer = self.request("textDocument/documentSymbol", parameters)?;
        Ok(symbols(&answer, Some(path)))
    }

    /// The symbols of the project whose names match `query`.
    ///
    /// # Errors
    ///
    /// As [`definition`](Self::definition).
    pub fn workspace_symbols(&mut self, query: &str) -> Result<Vec<Symbol>, LspError> {
        let answer = self.request("workspace/symbol", json!({ "query": query }))?;
        Ok(symbols(&answer, None))
    }

    fn notify(&mut self, method: &str, parameters: Value) -> Result<(), LspError> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": parameters }))
    }

    fn send(&mut self, message: &Value) -> Result<(), LspError> {
        self.transport.write(&frame(message))
    }

    /// Sends a request and waits for its answer. Meanwhile the server may say anything.
    fn request(&mut self, method: &str, parameters: Value) -> Result<Value, LspError> {
        self.state.last_id += 1;
        let id = self.state.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        self.send(&message)?;
        let (mut messages, mut read) = (0, 0);
        loop {
            while let Some(mut message) = self.frames.next()? {
                messages += 1;
                if messages > MAX_MESSAGES {
                    let what = format!("it wrote {MAX_MESSAGES} messages and no answer");
                    return Err(LspError::Protocol(what));
                }
                if message.get("method").is_some() {
                    self.refuse(&message)?;
                } else if message["id"] == id {
                    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
                        let said = error["message"].as_str().unwrap_or("no reason");
                        let end = said.floor_char_boundary(MAX_ERROR);
                        return Err(LspError::Refused(said[..end].to_owned()));
                    }
                    return Ok(message["result"].take());
                }
                // Others answer requests of calls that didn't wait.
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LspError::Timeout);
            }
            let bytes = self.transport.read(left)?;
            read += bytes.len();
            if read > MAX_READ {
                let what = format!("it wrote {} MiB and no answer", MAX_READ >> 20);
                return Err(LspError::Protocol(what));
            }
            self.frames.push(&bytes);
        }
    }

    /// Refuses what the server asks of the client. It would change files, or show something.
    fn refuse(&mut self, message: &Value) -> Result<(), LspError> {
        match &message["id"] {
            id @ (Value::Number(_) | Value::String(_)) => {
                let error = json!({ "code": -32601, "message": "this client offers no methods" });
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            _ => Ok(()),
        }
    }
}

fn position(path: &str, at: Position) -> Value {
    let Position { line, character } = at;
    json!({
        "textDocument": { "uri": uri(path) },
        "position": { "line": line, "character": character },
    })
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A server that answers each message by a function.
    struct Server<F> {
        answer: F,
        got: Frames,
        said: VecDeque<u8>,
        log: Vec<Value>,
    }

    impl<F: FnMut(&Value) -> Vec<Value>> Transport for Server<F> {
        fn read(&mut self, _: Duration) -> Result<Vec<u8>, LspError> {
            Ok(self.said.drain(..self.said.len().min(1_000_000)).collect())
        }

        fn write(&mut self, bytes: &[u8]) -> Result<(), LspError> {
            self.got.push(bytes);
            while let Some(message) = self.got.next()? {
                for answer in (self.answer)(&message) {
                    self.said.extend(frame(&answer));
                }
                self.log.push(message);
            }
            Ok(())
        }
    }

    fn server<F: FnMut(&Value) -> Vec<Value>>(answer: F) -> Server<F> {
        Server { answer, got: Frames::default(), said: VecDeque::new(), log: Vec::new() }
    }

    fn client<F: FnMut(&Value) -> Vec<Value>>(answer: F) -> Client<Server<F>> {
        Client::new(server(answer), ServerState::default(), Duration::from_secs(30))
    }

    fn ok(message: &Value, result: Value) -> Vec<Value> {
        match message.get("id") {
            Some(id) if message.get("method").is_some() => {
                vec![json!({ "id": id, "result": result })]
            }
            _ => Vec::new(),
        }
    }

    fn methods<F>(server: &Server<F>) -> Vec<&str> {
        server.log.iter().filter_map(|message| message["method"].as_str()).collect()
    }

    #[test]
    fn files_are_opened_once_and_changed_by_what_is_on_disk() {
        let mut one = client(|message| ok(message, json!({})));
        one.initialize("/w").unwrap();
        one.open("/w/a.rs", "rust", "one").unwrap();
        one.open("/w/a.rs", "rust", "one").unwrap();
        let (server, state) = one.into_state();
        // The next call goes on with the same server.
        let state = serde_json::to_string(&state.unwrap()).unwrap();
        let state = serde_json::from_str(&state).unwrap();
        let mut next = Client::new(server, state, Duration::from_secs(1));
        next.initialize("/w").unwrap();
        next.open("/w/a.rs", "rust", "two").unwrap();
        let (server, _) = next.into_state();
        let expected =
            ["initialize", "initialized", "textDocument/didOpen", "textDocument/didChange"];
        assert_eq!(methods(&server), expected);
        assert_eq!(server.log[3]["params"]["textDocument"]["version"], 2);
    }

    #[test]
    fn file_that_was_used_longest_ago_is_closed() {
        let mut client = client(|message| ok(message, json!({})));
        for number in 0..=MAX_OPEN {
            client.open("/w/used.rs", "rust", "").unwrap();
            client.open(&format!("/w/{number}.rs"), "rust", "").unwrap();
        }
        let (server, state) = client.into_state();
        let state = state.unwrap();
        assert!(state.open.len() <= MAX_OPEN && state.open.contains_key("/w/used.rs"));
        assert!(methods(&server).contains(&"textDocument/didClose"));
    }

    #[test]
    fn answer_is_found_among_everything_else() {
        let range =
            json!({ "start": { "line": 1, "character": 2 }, "end": { "line": 1, "character": 3 } });
        let mut client = client(|message| {
            let mut answers = vec![
                json!({ "method": "window/logMessage", "params": { "message": "hello" } }),
                json!({ "id": 999, "result": [] }),
                json!({ "id": "1", "result": [] }),
                json!({ "id": 7, "method": "workspace/applyEdit", "params": {} }),
            ];
            answers.extend(ok(message, json!({ "uri": "file:///w/b.rs", "range": range })));
            if message.get("method").is_some() { answers } else { Vec::new() }
        });
        let found = client.definition("/w/a.rs", Position { line: 0, character: 0 }).unwrap();
        assert_eq!(found[0].path, "/w/b.rs");
        let (server, _) = client.into_state();
        let refused = server.log.iter().find(|message| message["id"] == 7).unwrap();
        assert_eq!(refused["error"]["code"], -32601, "what it asks for is refused");
    }

    #[test]
    fn refusal_is_an_error_and_the_server_goes_on() {
        let mut client = client(|message| {
            let error = json!({ "code": -1, "message": "no".repeat(9_000) });
            message.get("id").map(|id| json!({ "id": id, "error": error })).into_iter().collect()
        });
        let error = client.workspace_symbols("x").unwrap_err();
        let LspError::Refused(said) = error else { panic!("{error}") };
        assert_eq!(said.len(), MAX_ERROR);
        assert!(client.into_state().1.is_some());
    }

    #[test]
    fn endless_messages_and_silence_end() {
        let note = json!({ "method": "$/progress", "params": {} });
        let mut endless = client(move |_| vec![note.clone(); MAX_MESSAGES + 1]);
        let error = endless.workspace_symbols("x").unwrap_err();
        assert!(matches!(error, LspError::Protocol(_)), "{error}");
        let large = json!({ "method": "x", "params": "y".repeat(1 << 20) });
        let mut large = client(move |_| vec![large.clone(); 65]);
        let error = large.workspace_symbols("x").unwrap_err();
        assert!(error.to_string().contains("MiB"), "{error}");
        let (silent, time) = (server(|_| Vec::new()), Duration::from_millis(20));
        let mut silent = Client::new(silent, ServerState::default(), time);
        assert_eq!(silent.workspace_symbols("x"), Err(LspError::Timeout));
    }

    #[test]
    fn unfinished_message_leaves_no_state() {
        let (silent, time) = (server(|_| Vec::new()), Duration::from_millis(20));
        let mut client = Client::new(silent, ServerState::default(), time);
        client.transport.said.extend(b"Content-Length: 100\r\n\r\n{");
        client.workspace_symbols("x").unwrap_err();
        assert_eq!(client.into_state().1, None);
    }
}
