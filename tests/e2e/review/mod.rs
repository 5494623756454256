//! Calls that a model judges before they run (`[tools.adversarial_policy]`): only the exact word
//! lets one through, and no way around the model does. The model is a server on this machine that
//! says whatever a test wants. What counts is the effect: the file that is written or isn't, and
//! what the model was sent.

mod calls;
mod library;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::support::{Cli, Ended};

/// The key of the provider, which nobody but its server sees.
const KEY: &str = "zk-7731-Wert-for-the-judge-alone";

/// The policy of the operator.
const POLICY: &str = "No call may touch the harbour.";

/// What the model gives as its reason. The agent never sees it.
const REASON: &str = "the reason that only people see";

/// What the model answers.
#[derive(Clone)]
enum Says {
    /// This text.
    Text(String),
    /// These pieces of its format.
    Deltas(Vec<Value>),
    /// This whole answer.
    Http(Vec<u8>),
    /// Nothing, until the client goes away.
    Nothing,
    /// Text without an end.
    Endless,
}

/// A model on this machine that judges.
pub(crate) struct Judge {
    pub(crate) port: u16,
    says: Arc<Mutex<Says>>,
    requests: Arc<Mutex<Vec<String>>>,
    /// Connections that the client ended while nothing was answered.
    left: Arc<Mutex<usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Judge {
    pub(crate) fn new(says: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let judge = Self {
            port,
            says: Arc::new(Mutex::new(Says::Text(says.to_owned()))),
            requests: Arc::default(),
            left: Arc::default(),
        };
        let (says, requests, left) =
            (Arc::clone(&judge.says), Arc::clone(&judge.requests), Arc::clone(&judge.left));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (says, requests, left) =
                    (Arc::clone(&says), Arc::clone(&requests), Arc::clone(&left));
                std::thread::spawn(move || {
                    let mut connection = connection;
                    let Some(request) = read_request(&mut connection) else { return };
                    lock(&requests).push(request);
                    let says = lock(&says).clone();
                    // Clients go away in the middle.
                    let _ = answer(&mut connection, &says);
                    if matches!(says, Says::Nothing) {
                        let _ = connection.read(&mut [0]);
                        *lock(&left) += 1;
                    }
                });
            }
        });
        judge
    }

    fn set_answer(&self, says: Says) {
        *lock(&self.says) = says;
    }

    fn set_text(&self, text: &str) {
        self.set_answer(Says::Text(text.to_owned()));
    }

    /// The requests since the last look, headers and body.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.requests))
    }

    /// The provider's tables.
    pub(crate) fn provider(&self, name: &str) -> String {
        format!(
            "\n[providers.{name}]\nformat = \"chat\"\nmodel = \"small\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n",
            self.port
        )
    }
}

fn read_request(connection: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        let read = connection.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(text.into_owned());
        }
    }
}

fn delta(delta: &Value, end: Option<&str>) -> String {
    let choices = json!([{ "index": 0, "delta": delta, "finish_reason": end }]);
    let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "model": "small", "choices": choices });
    format!("data: {chunk}\n\n")
}

fn answer(connection: &mut TcpStream, says: &Says) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let end = |reason| format!("{}data: [DONE]\n\n", delta(&json!({}), Some(reason)));
    match says {
        Says::Text(text) => {
            let text = delta(&json!({ "content": text }), None);
            connection.write_all(format!("{head}{text}{}", end("stop")).as_bytes())
        }
        Says::Deltas(deltas) => {
            let deltas: String = deltas.iter().map(|it| delta(it, None)).collect();
            connection.write_all(format!("{head}{deltas}{}", end("stop")).as_bytes())
        }
        Says::Http(bytes) => connection.write_all(bytes),
        Says::Nothing => connection.write_all(head.as_bytes()),
        Says::Endless => {
            connection.write_all(head.as_bytes())?;
            let more = delta(&json!({ "content": "ALLOW\n".repeat(100) }), None);
            loop {
                connection.write_all(more.as_bytes())?;
            }
        }
    }
}

struct Scene {
    cli: Cli,
    judge: Judge,
}

impl Scene {
    /// `keys`: lines of the table. `more`: tables.
    fn new(says: &str, keys: &str, more: &str) -> Self {
        let scene = Self { cli: Cli::new(), judge: Judge::new(says) };
        scene.configure("autonomy = \"full\"", keys, more);
        scene
    }

    fn configure(&self, tools: &str, keys: &str, more: &str) {
        let key = self.cli.root.path().join("key");
        fs::write(&key, KEY).expect("a file is written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is private");
        let provider = self.judge.provider("judge");
        self.cli.configure(&format!(
            "[tools]\n{tools}\n[tools.adversarial_policy]\nenabled = true\nprovider = \"judge\"\n\
             policies = [\"{POLICY}\"]\n{keys}\n{provider}\
             [providers.judge.secrets.key]\nfile = {key:?}\n{more}\n"
        ));
    }

    fn call(&self, line: &[&str]) -> Ended {
        let line: Vec<&str> = ["call"].iter().chain(line).copied().collect();
        self.cli.run(&line)
    }

    /// Whether a call that writes does so.
    fn writes(&self) -> bool {
        self.written(self.call(&["write", "path=made.txt", "content=made"]).code == 0)
    }

    #[track_caller]
    fn written(&self, ran: bool) -> bool {
        let made = self.cli.work().join("made.txt");
        let is_there = made.exists();
        assert_eq!(is_there, ran, "the exit code and the effect agree");
        if is_there {
            fs::remove_file(made).expect("it is there");
        }
        is_there
    }

    /// The last outcome of a tool in the record.
    fn recorded(&self, tool: &str) -> Value {
        let audit = self.cli.run(&["audit", "tail", "--json", "-n", "100"]).ends(0).stdout;
        let mut lines =
            audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
        let of_tool = |line: &Value| line["kind"] == "outcome" && line["tool"] == tool;
        lines.rfind(of_tool).expect("the call is recorded")
    }

    fn decision(&self) -> String {
        let recorded = self.recorded("write");
        recorded["adversarial_policy_decision"].as_str().unwrap_or_default().to_owned()
    }
}

/// What the model was told of the call.
fn message(request: &str) -> String {
    let (_, body) = request.split_once("\r\n\r\n").expect("it has a body");
    let body: Value = serde_json::from_str(body).expect("it is JSON");
    assert!(body.get("tools").is_none(), "no tools are offered: {body}");
    let messages = body["messages"].as_array().expect("it has messages");
    assert_eq!(messages.len(), 2, "nothing of a conversation: {body}");
    let content = &messages[1]["content"];
    content.as_str().or(content[0]["text"].as_str()).expect("it has a text").to_owned()
}
