//! A client that writes HTTP itself, so that it can also send what no real client would.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::client::MODERN;
use crate::support::Cli;

/// Time limit for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The byte stream.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A running `toolhold serve --http`.
pub(crate) struct Serving {
    child: Child,
    /// `127.0.0.1:PORT`, or a socket's path.
    pub(crate) place: String,
    /// The callers' token; `None` without authentication.
    pub(crate) token: Option<String>,
    token_file: Option<PathBuf>,
    /// The lines that the server prints after its start.
    log: Mutex<mpsc::Receiver<String>>,
}

impl Serving {
    /// At a free port, with the server's own token.
    pub(crate) fn new(cli: &Cli, more: &[&str]) -> Self {
        Self::at(cli, "0", more, true)
    }

    /// At this address, with or without its own token.
    pub(crate) fn at(cli: &Cli, place: &str, more: &[&str], own_token: bool) -> Self {
        let line: Vec<&str> = ["serve", "--http", place].iter().chain(more).copied().collect();
        Self::start(cli.command(&line), own_token)
    }

    /// The same with this command.
    pub(crate) fn start(mut command: Command, own_token: bool) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("toolhold starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it has one")).lines();
        let mut said = Vec::new();
        let url = loop {
            let line =
                lines.next().unwrap_or_else(|| panic!("it serves: {said:?}")).expect("is UTF-8");
            match line.strip_prefix("serving ") {
                Some(said) => break said.to_owned(),
                None => said.push(line),
            }
        };
        let (_, place) = url.split_once(" at ").unwrap_or_else(|| panic!("it tells where: {url}"));
        let place = place.trim_start_matches("unix:").to_owned();
        let file = own_token.then(|| {
            let line = lines.next().expect("it tells where the token lies").expect("is UTF-8");
            PathBuf::from(line.split_once("the token is in ").expect("it names the file").1)
        });
        // The server may print more.
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let token = file
            .as_ref()
            .map(|file| fs::read_to_string(file).expect("it is there").trim().to_owned());
        Self { child, place, token, token_file: file, log: Mutex::new(log) }
    }

    /// The file with the token.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.token_file.clone().expect("there is one")
    }

    /// Waits for a line of the log with this part.
    #[track_caller]
    pub(crate) fn logged(&self, part: &str) -> String {
        let log = self.log.lock().expect("no other test has failed");
        loop {
            let line = log.recv_timeout(PATIENCE).expect("the line comes");
            if line.contains(part) {
                return line;
            }
        }
    }

    /// The id of the server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Box<dyn Stream> {
        if self.place.starts_with('/') {
            let stream = UnixStream::connect(&self.place).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("is taken");
            return Box::new(stream);
        }
        let stream = TcpStream::connect(&self.place).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is taken");
        Box::new(stream)
    }

    /// Sends a request's bytes and starts to read the response.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answering {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("the server reads");
        Answering::new(stream)
    }

    /// The bytes of a request, with these header lines added to or replacing the usual ones.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        head: &[(&str, &str)],
        body: &str,
    ) -> Vec<u8> {
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let length = body.len().to_string();
        let mut lines = BTreeMap::from([
            ("host", self.place.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("connection", "close"),
            ("content-length", &length),
        ]);
        lines.extend(authorization.as_ref().map(|value| ("authorization", value.as_str())));
        if self.place.starts_with('/') {
            lines.insert("host", "localhost");
        }
        lines.extend(head.iter().copied());
        let head: String =
            lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{method} {path} HTTP/1.1\r\n{head}\r\n{body}").into_bytes()
    }

    /// Asks for a page.
    pub(crate) fn get(&self, path: &str, head: &[(&str, &str)]) -> Answered {
        self.raw(&self.request("GET", path, head, "")).whole()
    }

    /// Sends a message.
    pub(crate) fn post(&self, message: &Value, head: &[(&str, &str)]) -> Answered {
        self.posted(message, head).whole()
    }

    /// Sends a message and starts to read the response.
    pub(crate) fn posted(&self, message: &Value, head: &[(&str, &str)]) -> Answering {
        self.raw(&self.request("POST", "/mcp", head, &message.to_string()))
    }

    /// A request of 2026-07-28, by a client that can ask.
    pub(crate) fn modern(&self, method: &str, params: &Value, head: &[(&str, &str)]) -> Answering {
        let (message, mut lines) = modern(method, params);
        lines.extend(head.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let lines: Vec<_> =
            lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.posted(&message, &lines)
    }

    /// Calls a tool in the form of 2026-07-28.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: &Value, head: &[(&str, &str)]) -> Value {
        let answer = self
            .modern("tools/call", &json!({ "name": tool, "arguments": arguments }), head)
            .whole();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.message()["result"].clone()
    }

    /// Opens a connection in the older form and returns the ID for later requests.
    #[track_caller]
    pub(crate) fn handshake(&self, version: &str, asks: bool, head: &[(&str, &str)]) -> String {
        let capabilities = if asks { json!({ "elicitation": {} }) } else { json!({}) };
        let info = json!({ "name": "tester", "version": "1" });
        let params =
            json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
        let begun = self.post(
            &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
            head,
        );
        assert_eq!(begun.status, 200, "{begun:?}");
        assert_eq!(begun.message()["result"]["protocolVersion"], version, "{begun:?}");
        let id = begun.head["mcp-session-id"].clone();
        let told = self.post(
            &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            &[head, &[("mcp-session-id", &id)]].concat(),
        );
        assert_eq!(told.status, 202, "{told:?}");
        id
    }

    /// Tells the process to end and waits for its end.
    pub(crate) fn ends(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message of 2026-07-28 with its header lines.
pub(crate) fn modern(method: &str, params: &Value) -> (Value, Vec<(String, String)>) {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let mut lines = vec![
        ("mcp-protocol-version".to_owned(), MODERN.to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    lines.extend(
        params["name"]
            .as_str()
            .or(params["uri"].as_str())
            .map(|name| ("mcp-name".to_owned(), name.to_owned())),
    );
    (json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }), lines)
}

/// A response that is being read.
pub(crate) struct Answering {
    pub(crate) status: u16,
    pub(crate) head: BTreeMap<String, String>,
    body: Box<dyn BufRead + Send>,
}

/// A response that was read.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answering {
    /// The response on a connection.
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        // A cut connection has no response and no status.
        let _ = stream.read_line(&mut line);
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut head = BTreeMap::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).unwrap_or(0) <= 2 {
                break;
            }
            let (name, value) = line.trim_end().split_once(": ").expect("a line of a head");
            head.insert(name.to_owned(), value.to_owned());
        }
        let body: Box<dyn BufRead + Send> = match head.get("transfer-encoding").map(String::as_str)
        {
            Some("chunked") => Box::new(BufReader::new(Chunked { stream, left: 0 })),
            _ => {
                let length =
                    head.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
                Box::new(stream.take(length))
            }
        };
        Self { status, head, body }
    }

    /// The next message: the body, or the next event with one.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Value {
        if self.head.get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            loop {
                let mut line = String::new();
                assert!(
                    self.body.read_line(&mut line).expect("it can be read") > 0,
                    "there is one more message"
                );
                if let Some(data) =
                    line.strip_prefix("data:").map(str::trim).filter(|data| !data.is_empty())
                {
                    return serde_json::from_str(data).expect("is JSON");
                }
            }
        }
        serde_json::from_reader(&mut self.body).expect("is JSON")
    }

    /// The message with an id, or with a method.
    #[track_caller]
    pub(crate) fn until(&mut self, what: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.message();
            if what(&message) {
                return message;
            }
        }
    }

    /// All of it.
    pub(crate) fn whole(mut self) -> Answered {
        let mut body = Vec::new();
        let _ = self.body.read_to_end(&mut body);
        Answered {
            status: self.status,
            head: self.head,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

impl Answered {
    /// The first message in it.
    #[track_caller]
    pub(crate) fn message(&self) -> Value {
        let text = self
            .body
            .lines()
            .find_map(|line| line.strip_prefix("data: ").filter(|data| !data.is_empty()));
        serde_json::from_str(text.unwrap_or(&self.body))
            .unwrap_or_else(|_| panic!("is JSON: {self:?}"))
    }
}

/// A chunked body.
struct Chunked<R> {
    stream: BufReader<R>,
    left: usize,
}

impl<R: Read> Read for Chunked<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            // The end of the chunk before is an empty line.
            while line.trim().is_empty() {
                line.clear();
                if self.stream.read_line(&mut line)? == 0 {
                    return Ok(0);
                }
            }
            self.left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = into.len().min(self.left);
        let read = self.stream.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}
