//! Sends requests to a language server (definition, references, hover, symbols), waits until it has
//! loaded its project, and refuses what it asks for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::frames::{Frames, frame};
use crate::places::{hover, places, symbols, uri};
use crate::{LspError, Place, Position, Symbol, Transport};

/// Most messages and bytes of a server that one client reads.
const MAX_MESSAGES: usize = 20_000;
const MAX_READ: usize = 64 << 20;

/// Most files that the server has open.
const MAX_OPEN: usize = 200;

/// Most bytes of a file that is opened.
const MAX_FILE: usize = 4 << 20;

/// Most bytes of a server's message in an error.
const MAX_ERROR: usize = 500;

/// Most tasks of a server that are followed, and most bytes of the name of one.
const MAX_TASKS: usize = 64;
const MAX_TASK: usize = 100;

/// A client of one server, for one call. It leaves the server as it found it, so that the client of
/// the next call needs to know nothing of this one.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    frames: Frames,
    /// Whether a message was begun and not all of it was read in time.
    is_half_written: bool,
    /// The files that the server has open.
    open: BTreeSet<String>,
    /// The begin of the names of requests. An answer to a request of an earlier client has another
    /// one.
    prefix: u128,
    /// The number of the last request.
    last: u64,
    messages: usize,
    read: usize,
    /// The tasks that the server is busy with.
    tasks: BTreeSet<String>,
    /// Whether it has loaded its project, if it says that itself.
    is_quiescent: Option<bool>,
    deadline: Instant,
}

impl<T: Transport> Client<T> {
    /// A client of a server, which answers until `time` is over.
    pub fn new(transport: T, time: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            transport,
            frames: Frames::default(),
            is_half_written: false,
            open: BTreeSet::new(),
            prefix: now.as_nanos(),
            last: 0,
            messages: 0,
            read: 0,
            tasks: BTreeSet::new(),
            is_quiescent: None,
            deadline: Instant::now() + time,
        }
    }

    /// Closes the files, and hands the server over to the next client. `None`: a message was begun
    /// and isn't finished, or the server has ended, so nobody can go on with it.
    pub fn finish(mut self) -> Option<T> {
        for path in std::mem::take(&mut self.open) {
            let parameters = json!({ "textDocument": { "uri": uri(&path) } });
            self.notify("textDocument/didClose", parameters).ok()?;
        }
        (self.frames.is_between() && !self.is_half_written).then_some(self.transport)
    }

    /// The way to the server, which nobody can go on with.
    pub fn into_transport(self) -> T {
        self.transport
    }

    /// Tells a server that was just started of the project in the folder `root`. `options` are
    /// those that only this server knows, or null.
    ///
    /// # Errors
    ///
    /// The errors of every request: the server has ended, takes too long, or can't be understood.
    pub fn initialize(&mut self, root: &str, options: &Value) -> Result<(), LspError> {
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
                "window": { "workDoneProgress": true },
                "experimental": { "serverStatusNotification": true },
            },
            "initializationOptions": options,
        });
        self.request("initialize", parameters)?;
        self.notify("initialized", json!({}))
    }

    /// Waits until the server says that it has loaded its project, at most for `time`. `grace`: the
    /// time in which it has to say that it loads something. Returns whether it is done.
    ///
    /// # Errors
    ///
    /// As [`initialize`](Self::initialize).
    pub fn settle(&mut self, grace: Duration, time: Duration) -> Result<bool, LspError> {
        let now = Instant::now();
        let grace_end = now + grace;
        let end = (now + time).min(self.deadline);
        while self.next_message(if self.is_loading() { end } else { grace_end })?.is_some() {}
        Ok(!self.is_loading())
    }

    /// Whether the server says that it still loads its project. Its answers may lack something.
    pub fn is_loading(&self) -> bool {
        self.is_quiescent.map_or(!self.tasks.is_empty(), |is_quiescent| !is_quiescent)
    }

    /// Tells the server that these files were made or have changed on disk.
    ///
    /// # Errors
    ///
    /// The server has ended.
    pub fn files_changed(&mut self, paths: &[String]) -> Result<(), LspError> {
        // The client doesn't know whether a file was made or changed, so it reports both.
        let changes: Vec<Value> = paths
            .iter()
            .flat_map(|path| [1, 2].map(|kind| json!({ "uri": uri(path), "type": kind })))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.notify("workspace/didChangeWatchedFiles", json!({ "changes": changes }))
    }

    /// Gives the server the text of a file as it is on disk, once. `language`: its name in the
    /// protocol, such as `rust`.
    ///
    /// # Errors
    ///
    /// The server has ended, or the file is too large, or there are too many.
    pub fn open(&mut self, path: &str, language: &str, text: &str) -> Result<(), LspError> {
        if self.open.contains(path) {
            return Ok(());
        }
        if text.len() > MAX_FILE || self.open.len() >= MAX_OPEN {
            let size = text.len();
            let count = self.open.len();
            return Err(LspError::Refused(format!(
                "{path} is {size} bytes, and {count} files are open; the limits are {MAX_FILE} and {MAX_OPEN}"
            )));
        }
        let document =
            json!({ "uri": uri(path), "languageId": language, "version": 1, "text": text });
        self.notify("textDocument/didOpen", json!({ "textDocument": document }))?;
        self.open.insert(path.to_owned());
        Ok(())
    }

    /// The places where the symbol at a position is defined.
    ///
    /// # Errors
    ///
    /// As [`initialize`](Self::initialize), or the server refuses.
    pub fn definition(&mut self, path: &str, at: Position) -> Result<Vec<Place>, LspError> {
        self.request("textDocument/definition", position(path, at)).map(|answer| places(&answer))
    }

    /// The places where the symbol at a position is used.
    ///
    /// # Errors
    ///
    /// As [`definition`](Self::definition).
    pub fn references(&mut self, path: &str, at: Position) -> Result<Vec<Place>, LspError> {
        let mut parameters = position(path, at);
        parameters["context"] = json!({ "includeDeclaration": false });
        self.request("textDocument/references", parameters).map(|answer| places(&answer))
    }

    /// The type and the documentation of the symbol at a position.
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

    /// Writes a message, until the client's time is over. After a part of a message, no client can
    /// go on.
    fn send(&mut self, message: &Value) -> Result<(), LspError> {
        if self.is_half_written {
            return Err(LspError::Timeout);
        }
        let bytes = frame(message);
        let mut left = bytes.as_slice();
        self.is_half_written = true;
        loop {
            let written = self.transport.write(left)?;
            left = left.get(written..).unwrap_or_default();
            if left.is_empty() {
                self.is_half_written = false;
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                return Err(LspError::Timeout);
            }
        }
    }

    /// Sends a request and waits for its answer. Meanwhile the server may say anything.
    fn request(&mut self, method: &str, parameters: Value) -> Result<Value, LspError> {
        self.last += 1;
        // A text, since servers keep numbers in 32 bits.
        let id = format!("{:x}-{}", self.prefix, self.last);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters });
        self.send(&message)?;
        loop {
            let Some(mut message) = self.next_message(self.deadline)? else {
                return Err(LspError::Timeout);
            };
            // Others answer requests of clients that didn't wait.
            if message["id"] != id || message.get("method").is_some() {
                continue;
            }
            if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
                let said = error["message"].as_str().unwrap_or("no reason");
                let end = said.floor_char_boundary(MAX_ERROR);
                return Err(LspError::Refused(said[..end].to_owned()));
            }
            return Ok(message["result"].take());
        }
    }

    /// Waits for the next message, and heeds it if it is no answer. `None`: there was none until
    /// then.
    fn next_message(&mut self, until: Instant) -> Result<Option<Value>, LspError> {
        let mut has_looked = false;
        loop {
            if let Some(message) = self.frames.next()? {
                self.messages += 1;
                if self.messages > MAX_MESSAGES {
                    let reason = format!("it wrote more than {MAX_MESSAGES} messages");
                    return Err(LspError::Protocol(reason));
                }
                if message.get("method").is_some() {
                    self.heed(&message)?;
                }
                return Ok(Some(message));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && has_looked {
                return Ok(None);
            }
            has_looked = true;
            let bytes = self.transport.read(left)?;
            self.read += bytes.len();
            if self.read > MAX_READ {
                let reason = format!("it wrote more than {} MiB", MAX_READ >> 20);
                return Err(LspError::Protocol(reason));
            }
            self.frames.push(&bytes);
        }
    }

    /// Notes the server's reports on its work, and refuses its requests to the client, which would
    /// change files, or show something.
    fn heed(&mut self, message: &Value) -> Result<(), LspError> {
        let parameters = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "$/progress" => {
                let task = parameters["token"].to_string();
                let task = &task[..task.floor_char_boundary(MAX_TASK)];
                match parameters["value"]["kind"].as_str() {
                    Some("begin" | "report") if self.tasks.len() < MAX_TASKS => {
                        self.tasks.insert(task.to_owned());
                    }
                    Some("end") => {
                        self.tasks.remove(task);
                    }
                    _ => {}
                }
            }
            "experimental/serverStatus" => self.is_quiescent = parameters["quiescent"].as_bool(),
            _ => {}
        }
        let id = &message["id"];
        if !(id.is_number() || id.is_string()) {
            return Ok(());
        }
        // It asks whether it may tell of its progress.
        if message["method"] == "window/workDoneProgress/create" {
            return self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": null }));
        }
        let error = json!({ "code": -32601, "message": "this client offers no methods" });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }
}

fn position(path: &str, at: Position) -> Value {
    let Position { line, character } = at;
    json!({
        "textDocument": { "uri": uri(path) },
        "position": { "line": line, "character": character },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A server that answers each message by a function.
    struct Server<F> {
        answer: F,
        got: Frames,
        /// Bytes that it reads at a time.
        most: usize,
        said: VecDeque<u8>,
        log: Vec<Value>,
    }

    impl<F: FnMut(&Value) -> Vec<Value>> Transport for Server<F> {
        fn read(&mut self, _: Duration) -> Result<Vec<u8>, LspError> {
            Ok(self.said.drain(..self.said.len().min(1_000_000)).collect())
        }

        fn write(&mut self, bytes: &[u8]) -> Result<usize, LspError> {
            let bytes = &bytes[..bytes.len().min(self.most)];
            self.got.push(bytes);
            while let Some(message) = self.got.next()? {
                for answer in (self.answer)(&message) {
                    self.said.extend(frame(&answer));
                }
                self.log.push(message);
            }
            Ok(bytes.len())
        }
    }

    fn server<F: FnMut(&Value) -> Vec<Value>>(answer: F) -> Server<F> {
        let (got, said, log) = (Frames::default(), VecDeque::new(), Vec::new());
        Server { answer, got, most: usize::MAX, said, log }
    }

    fn client<F: FnMut(&Value) -> Vec<Value>>(answer: F) -> Client<Server<F>> {
        Client::new(server(answer), Duration::from_secs(30))
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
    fn files_are_opened_once_and_closed_for_the_next_client() {
        let mut one = client(|message| ok(message, json!({})));
        one.initialize("/w", &Value::Null).unwrap();
        one.open("/w/a.rs", "rust", "one").unwrap();
        one.open("/w/a.rs", "rust", "one").unwrap();
        let mut next = Client::new(one.finish().unwrap(), Duration::from_secs(1));
        next.files_changed(&["/w/b.rs".to_owned()]).unwrap();
        next.open("/w/a.rs", "rust", "two").unwrap();
        let server = next.finish().unwrap();
        let [open, close] = ["textDocument/didOpen", "textDocument/didClose"];
        let changed = "workspace/didChangeWatchedFiles";
        let expected = ["initialize", "initialized", open, close, changed, open, close];
        assert_eq!(methods(&server), expected);
        assert_eq!(server.log[5]["params"]["textDocument"]["text"], "two");
    }

    #[test]
    fn open_files_are_bounded() {
        let mut client = client(|message| ok(message, json!({})));
        for number in 0..MAX_OPEN {
            client.open(&format!("/w/{number}.rs"), "rust", "").unwrap();
        }
        let refused = client.open("/w/more.rs", "rust", "").unwrap_err();
        assert!(matches!(refused, LspError::Refused(_)), "{refused}");
        let large = "x".repeat(MAX_FILE + 1);
        assert!(self::client(|_| Vec::new()).open("/w/a.rs", "rust", &large).is_err());
    }

    #[test]
    fn loading_is_waited_for() {
        let progress = |kind: &str| json!({ "method": "$/progress", "params": { "token": 1, "value": { "kind": kind } } });
        let status = |quiescent: bool| json!({ "method": "experimental/serverStatus", "params": { "quiescent": quiescent } });
        let none = Duration::ZERO;
        for (said, is_done) in [
            (vec![], true),
            (vec![progress("begin")], false),
            (vec![progress("begin"), progress("report"), progress("end")], true),
            (vec![progress("begin"), progress("end"), status(false)], false),
            (vec![status(false), status(true), progress("begin")], true),
        ] {
            let mut client = client(|_| said.clone());
            client.notify("initialized", json!({})).unwrap();
            let settled = client.settle(none, Duration::from_millis(20));
            assert_eq!(settled, Ok(is_done), "{said:?}");
        }
        let mut many = client(|_| {
            (0..1_000).map(|task| json!({ "method": "$/progress", "params": { "token": task, "value": { "kind": "begin" } } })).collect()
        });
        many.notify("initialized", json!({})).unwrap();
        assert_eq!(many.settle(none, none), Ok(false));
        assert!(many.tasks.len() <= MAX_TASKS);
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
        let server = client.finish().unwrap();
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
        assert!(client.finish().is_some());
    }

    #[test]
    fn endless_messages_and_silence_end() {
        let note = json!({ "method": "x", "params": {} });
        let mut endless = client(move |_| vec![note.clone(); MAX_MESSAGES + 1]);
        let error = endless.workspace_symbols("x").unwrap_err();
        assert!(matches!(error, LspError::Protocol(_)), "{error}");
        let large = json!({ "method": "x", "params": "y".repeat(1 << 20) });
        let mut large = client(move |_| vec![large.clone(); 65]);
        let error = large.workspace_symbols("x").unwrap_err();
        assert!(error.to_string().contains("MiB"), "{error}");
        let (silent, time) = (server(|_| Vec::new()), Duration::from_millis(20));
        let mut silent = Client::new(silent, time);
        assert_eq!(silent.workspace_symbols("x"), Err(LspError::Timeout));
    }

    #[test]
    fn server_that_reads_slowly_gets_everything_and_one_that_never_reads_ends() {
        let slow = Server { most: 7, ..server(|message| ok(message, json!([]))) };
        let mut slow = Client::new(slow, Duration::from_secs(30));
        slow.open("/w/a.rs", "rust", &"x".repeat(10_000)).unwrap();
        assert_eq!(slow.workspace_symbols("x"), Ok(Vec::new()));
        let server = slow.finish().unwrap();
        assert_eq!(server.log.len(), 3);
        let deaf = Server { most: 0, ..self::server(|_| Vec::new()) };
        let mut deaf = Client::new(deaf, Duration::from_millis(20));
        assert_eq!(deaf.open("/w/a.rs", "rust", "x"), Err(LspError::Timeout));
        assert_eq!(deaf.workspace_symbols("x"), Err(LspError::Timeout));
        assert!(deaf.finish().is_none());
    }

    #[test]
    fn nobody_goes_on_after_an_unfinished_message() {
        let (silent, time) = (server(|_| Vec::new()), Duration::from_millis(20));
        let mut client = Client::new(silent, time);
        client.transport.said.extend(b"Content-Length: 100\r\n\r\n{");
        client.workspace_symbols("x").unwrap_err();
        assert!(client.finish().is_none());
    }
}
