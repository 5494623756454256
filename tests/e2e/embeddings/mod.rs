//! Search by meaning: a model of the operator's makes vectors for the memory, for `search_code` and
//! for plugins that were granted it. The model is a server on this machine that knows groups of
//! words. What counts is the effect: what it is sent, what nobody else is sent, and what is found.

mod code;
mod memory;
mod plugins;
mod qdrant;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Builtin, Host};
use toolhold_models::choice::capability_providers;

use crate::support::{shared_cache, toolhold};

/// The key of the provider, which nobody but its server sees.
const KEY: &str = "zk-4471-Wert-for-vectors-alone";

/// Words of one meaning in each line. Each is a dimension.
const MEANINGS: [&str; 18] = [
    "deploy ship roll",
    "owns responsible looks",
    "postgres database records",
    "flaky random unreliable",
    "logs journal protocol",
    "released published tuesday",
    "port reached address",
    "outage down incident",
    "rust language written",
    "small large size",
    "billing invoices",
    "search lookup",
    "mailer newsletters",
    "gateway entrance",
    "uploads attachments",
    "sessions logins",
    "retry backoff again",
    "delete unlink removed",
];

/// What the server does.
#[derive(Clone, Debug)]
enum Does {
    Vectors,
    /// Vectors of the model, each with one number more than the one before.
    UnequalVectors,
    /// This whole answer.
    Http(String),
    /// Vectors of a body without an end.
    Endless,
    /// Nothing, until the client goes away.
    Nothing,
}

/// A server on this machine that makes vectors.
struct Vectors {
    port: u16,
    does: Arc<Mutex<Does>>,
    requests: Arc<Mutex<Vec<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vectors {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let does = Arc::new(Mutex::new(Does::Vectors));
        let server = Self { port, does, requests: Arc::default() };
        let (does, requests) = (Arc::clone(&server.does), Arc::clone(&server.requests));
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let (does, requests) = (Arc::clone(&does), Arc::clone(&requests));
                std::thread::spawn(move || {
                    let Some(request) = read_request(&mut connection) else { return };
                    let does = lock(&does).clone();
                    let answer = answer(&mut connection, &request, &does);
                    // Clients go away in the middle.
                    drop(answer);
                    lock(&requests).push(request);
                });
            }
        });
        server
    }

    fn set(&self, does: Does) {
        *lock(&self.does) = does;
    }

    /// An answer with this body.
    fn set_body(&self, body: &str) {
        let length = body.len();
        self.set(Does::Http(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )));
    }

    /// The requests since the last look, headers and body.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.requests))
    }

    /// The texts of the requests since the last look.
    fn texts(&self) -> Vec<String> {
        self.asked().iter().flat_map(|request| texts_of(request)).collect()
    }

    fn settings(&self, name: &str) -> Vec<String> {
        vec![
            format!("providers.{name}.format=chat"),
            format!("providers.{name}.model=small"),
            format!("providers.{name}.base_url=http://127.0.0.1:{}/v1", self.port),
        ]
    }

    /// The provider's tables, with a key in a file of this folder.
    fn tables(&self, name: &str, folder: &Path) -> String {
        let key = folder.join("key");
        fs::write(&key, KEY).expect("a file is written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is private");
        let port = self.port;
        format!(
            "\n[providers.{name}]\nformat = \"chat\"\nmodel = \"small\"\n\
             base_url = \"http://127.0.0.1:{port}/v1\"\nsecrets.key.file = {key:?}\n"
        )
    }
}

fn read_request(connection: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        let read = connection.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]);
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            return String::from_utf8(bytes).ok();
        }
    }
}

fn body_of(request: &str) -> Value {
    let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).expect("a body is JSON")
}

fn texts_of(request: &str) -> Vec<String> {
    serde_json::from_value(body_of(request)["input"].clone()).expect("`input` is texts")
}

/// The vector of a text: which meanings its words have.
fn vector(text: &str) -> Vec<f64> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |meaning: &&str| {
        meaning.split(' ').any(|known| words.iter().any(|word| word.starts_with(known)))
    };
    let mut vector: Vec<f64> =
        MEANINGS.iter().map(|meaning| if has(meaning) { 1.0 } else { 0.0 }).collect();
    vector.push(0.01);
    vector
}

fn answer(connection: &mut TcpStream, request: &str, does: &Does) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let texts = texts_of(request);
    let items = |more: usize| -> Vec<Value> {
        let texts = texts.iter().enumerate();
        let vectors = texts.map(|(at, text)| {
            let mut vector = vector(text);
            vector.resize(vector.len() + more * at, 0.5);
            json!({ "object": "embedding", "index": at, "embedding": vector })
        });
        vectors.collect()
    };
    match does {
        Does::Vectors => {
            connection.write_all(format!("{head}{}", json!({ "data": items(0) })).as_bytes())
        }
        Does::UnequalVectors => {
            connection.write_all(format!("{head}{}", json!({ "data": items(1) })).as_bytes())
        }
        Does::Http(answer) => connection.write_all(answer.as_bytes()),
        Does::Endless => {
            connection.write_all(format!("{head}{{\"data\":[{{\"embedding\":[").as_bytes())?;
            loop {
                connection.write_all(&b"0.5,".repeat(4096))?;
            }
        }
        Does::Nothing => connection.read(&mut [0]).map(drop),
    }
}

/// A host that asks the models and the database of vectors of its configuration, in folders that a
/// test keeps.
async fn host(folder: &Path, builtins: &[Builtin], settings: &[String]) -> Host {
    let folders = Folders { cache: shared_cache(), ..Folders::inside(&folder.join("toolhold")) };
    let work = folder.join("work");
    fs::create_dir_all(&work).expect("a folder is made");
    let mut all = vec!["tools.autonomy=full".to_owned()];
    all.extend_from_slice(settings);
    let loaded = config::load(&folders, &Inputs { settings: all, ..Inputs::default() })
        .expect("the settings are valid");
    let providers = capability_providers(&loaded, &folders, &work, "test");
    let host = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(work)
        .capability_providers(providers)
        .builtins(builtins)
        .helper(toolhold());
    host.build().await.expect("the host starts")
}
