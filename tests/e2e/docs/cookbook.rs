//! The samples of the cookbook: those of each language become one plugin, and the page's commands
//! are run with it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Barrier;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::built;
use super::markdown::{Block, blocks, document, root};
use super::session::Session;
use crate::mcp::client::{Client, LEGACY, text};
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{fetched, go_compiler};

const PAGE: &str = "docs/plugins/cookbook.md";

/// The key that the page puts into a file.
const KEY: &str = "k-49af02";

/// The weather service of the page.
fn weather(asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    if let Some(path) = asked.path().strip_prefix("/try/") {
        return answer_a_try(path, asked, wire);
    }
    let (status, body) = match (asked.header("x-key"), asked.path()) {
        (Some(KEY), "/stations/7") => ("200 OK", r#"{"degrees":21}"#),
        (Some(KEY), "/stations/503") => ("503 Service Unavailable", ""),
        (Some(KEY), _) => ("404 Not Found", ""),
        _ => ("401 Unauthorized", ""),
    };
    answer(wire, status, &[("content-type", "application/json")], body.as_bytes())
}

/// How many requests have to wait at once until they are answered.
static TOGETHER: Barrier = Barrier::new(4);

/// Says nothing more until the client gives up.
fn until_closed(wire: &mut dyn Wire) -> io::Result<()> {
    while wire.read(&mut [0])? > 0 {}
    Err(io::ErrorKind::BrokenPipe.into())
}

/// What the SDK of Go has to cope with.
fn answer_a_try(path: &str, asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    let ok = |wire: &mut dyn Wire, body: &[u8]| answer(wire, "200 OK", &[], body);
    match path {
        "moved" => answer(wire, "307 Temporary Redirect", &[("location", "/try/show")], b""),
        "away" => answer(wire, "302 Found", &[("location", "http://example.org/")], b""),
        "show" => {
            let line = asked.head.lines().next().unwrap_or_default();
            let twice = asked.head.matches("x-two: ").count();
            let encoding = asked.header("transfer-encoding");
            let key = asked.header("x-key").unwrap_or_default();
            let shown = format!("{line} {key} {twice} {encoding:?} ");
            ok(wire, &[shown.as_bytes(), &asked.body].concat())
        }
        "length" => ok(wire, asked.body.len().to_string().as_bytes()),
        "long" => ok(wire, &b"0123456789abcdef".repeat(1 << 16)),
        "broken" => {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")?;
            Err(io::ErrorKind::BrokenPipe.into())
        }
        "together" => {
            TOGETHER.wait();
            ok(wire, b"here")
        }
        "half" => {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf")?;
            wire.flush()?;
            until_closed(wire)
        }
        _ => until_closed(wire),
    }
}

/// Builds the samples of a language with `build`, and runs the commands of the page with them.
fn samples_work(
    folder: &Path,
    tools: Option<&Path>,
    fence: &str,
    build: impl Fn(&Session, &str),
) -> Session {
    let mut session = Session::new(folder);
    session.tools = tools.map(Path::to_owned);
    let service = Server::plain(weather);
    let place = format!("127.0.0.1:{}", service.port());

    let page = blocks(&document(PAGE));
    let samples: Vec<&str> =
        page.iter().filter(|block| block.language == fence).map(|block| &*block.text).collect();
    let file = |name: &str| {
        let found = page.iter().find(|block| block.file.as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("{PAGE} shows no {name}")).text.clone()
    };
    session.write("plugin.toml", file("plugin.toml"));
    build(&session, &samples.join("\n"));

    // The service of the page is on this machine.
    let settings = file("toolhold.toml")
        .replace("https://api.example.com", &format!("http://{place}"))
        .replace("api.example.com", &place)
        .replace("\nprograms", "\nallowed_private_hosts = [\"127.0.0.1\"]\nprograms");
    session.write("toolhold.toml", settings);
    let commands: Vec<&Block> = page.iter().filter(|block| block.language == "console").collect();
    // Beside the recipes, each language has its imports, and Rust its manifest.
    let others = if fence == "rust" { 2 } else { 1 };
    assert_eq!(commands.len(), samples.len() - others, "each recipe has commands");
    commands.into_iter().for_each(|block| session.try_block(block));

    progress_is_shown(&session);
    a_full_answer_stops(&session);
    no_key_is_no_request(&session, &service);
    if fence == "go" {
        requests_work(&session, &service);
    }
    session
}

/// What `net/http` of Go does over the host, beside what the page shows.
fn requests_work(session: &Session, service: &Server) {
    let place = format!("http://127.0.0.1:{}/try", service.port());
    let call =
        format!("toolhold --config toolhold.toml call --yes --json cookbook__try_http url={place}");
    let shown = session.works(&call);
    // A notice about the key that isn't sent elsewhere comes first.
    let line = shown.lines().find(|line| line.starts_with('{')).expect("there is an answer");
    let answer: Value = serde_json::from_str(line).expect("it is JSON");
    // The server got the key and said it again, but not to the plugin.
    let expected = json!({
        "no_url": "invalid-url", "other_host": "invalid-host", "bad_header": "invalid-header",
        "bad_method": "invalid-request", "refused_connection": "connection-refused",
        "sent": "PUT /try/show HTTP/1.1 [REDACTED:key] 2 None föö", "place": "/show",
        "length": "3000000", "own_error": true, "whole": true, "too_long": "too-large",
        "broken": "http-response-incomplete", "together": ["here", "here", "here", "here"],
        "late": true, "cancelled": true, "closed": true, "after": 200,
    });
    assert_eq!(answer["output"]["structured"], expected, "{answer}");
    let shows: Vec<Asked> =
        service.asked().into_iter().filter(|asked| asked.path() == "/try/show").collect();
    assert_eq!(shows.len(), 1);
    assert_eq!(shows[0].header("x-key"), Some(KEY));

    let refused = session.works(&format!(
        "! toolhold --config toolhold.toml call --yes cookbook__ask url={place}/away"
    ));
    assert!(
        refused.contains("error[policy_blocked]") && refused.contains("example.org"),
        "{refused}"
    );
}

/// What a real store does for an SDK, beside what the page shows.
fn store_works(session: &Session) {
    let shown = session.works(
        "toolhold --config toolhold.toml call --yes --json cookbook__try_store 2> store.log",
    );
    let answer: Value = serde_json::from_str(&shown).expect("it is JSON");
    let expected = json!({
        "listed": true, "all_bytes": true, "empty": true, "missing": true, "other_value": false,
        "both_or_none": false, "unchanged": true, "no_key": "invalid", "long_value": "invalid",
        "quota": "limit", "created": true, "deleted": true,
        "left": ["empty", "many/0999", "many/1000", "visits/Ada", "visits/Zoë"],
    });
    assert_eq!(answer["output"]["structured"], expected, "{answer}");
}

/// What a client of MCP sees of a call.
fn progress_is_shown(session: &Session) {
    let mut client = Client::start(session.shell("exec toolhold --config toolhold.toml serve"));
    client.begin(LEGACY, false);
    let answer = client.request(
        "tools/call",
        json!({
            "name": "cookbook__count_words", "arguments": { "paths": ["notes.txt", "more.txt"] },
            "_meta": { "progressToken": "p" },
        }),
    );
    assert_eq!(text(&answer), "5", "{answer}");
    let told: Vec<(f64, String)> = client
        .aside
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| {
            let (fraction, shown) = (&message["params"]["progress"], &message["params"]["message"]);
            (fraction.as_f64().expect("a number"), shown.as_str().expect("a text").to_owned())
        })
        .collect();
    let [(first, notes), (second, more)] = &told[..] else { panic!("{told:?}") };
    assert!(first < second, "{told:?}");
    assert!(notes.starts_with("counting ") && notes.ends_with("/notes.txt"), "{told:?}");
    assert!(more.ends_with("/more.txt"), "{told:?}");
}

/// A tool that was told to stop does, and what it gave is kept.
fn a_full_answer_stops(session: &Session) {
    let set = "--set plugins.cookbook.limits.result_mib=1";
    let shown = session.works(&format!(
        "toolhold --config toolhold.toml {set} call --json cookbook__squares count=100000"
    ));
    let answer: Value = serde_json::from_str(&shown).expect("it is JSON");
    let parts = answer["output"]["content"].as_array().expect("the answer has parts");
    let last = parts.last().and_then(|part| part["text"].as_str()).unwrap_or_default();
    assert!(last.starts_with("cut at "), "{} parts, the last: {last}", parts.len());
    assert_eq!(parts[1]["text"], "4");
}

/// The tool itself sees whether there is a key, and no request goes out without one.
fn no_key_is_no_request(session: &Session, service: &Server) {
    let before = service.asked().len();
    let settings =
        fs::read_to_string(session.folder.join("toolhold.toml")).expect("it was written");
    let (without, _) =
        settings.split_once("[plugins.cookbook.secrets").expect("the page has a secret");
    session.write("keyless.toml", without);
    let shown = session.works("! toolhold --config keyless.toml call cookbook__weather station=7");
    assert!(shown.contains("error[permanent_failure/no-key]"), "{shown}");
    assert_eq!(service.asked().len(), before);
}

#[test]
fn samples_of_the_cookbook_work_in_rust() {
    let example = root().join("plugins/examples/rust");
    // Below the build folder of the plugins, with the settings of the example, so that what the
    // example needed isn't compiled again.
    let folder = built().join("cookbook");
    let _ = fs::remove_dir_all(&folder);
    samples_work(&folder, None, "rust", |session, samples| {
        let renamed = |name: &str| {
            let text = fs::read_to_string(example.join(name)).expect("the example is there");
            text.replace("word-count", "cookbook")
        };
        let sdk = root().join("plugins/sdk");
        let manifest = renamed("Cargo.toml")
            .replace("../../sdk", &sdk.display().to_string())
            .replace("[dev-dependencies]\n", "");
        session.write("Cargo.toml", manifest);
        session.write("Cargo.lock", renamed("Cargo.lock"));
        session.write("src/lib.rs", format!("//! The samples.\n\n{samples}"));
        let build = "cargo build --release --target wasm32-wasip2 --offline";
        session.works(build);
        let component = built().join("wasm32-wasip2/release/cookbook.wasm");
        fs::copy(component, session.folder.join("cookbook.wasm")).expect("it was built");
    });
}

fn samples_work_with_sdk(language: &str, source: &str, tools: &Path) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let path = folder.path().canonicalize().expect("the folder is there");
    let others = root().join("tests/plugins").join(language);
    let more = others.join(format!("try_store{}", source.trim_start_matches("plugin")));
    // In Go, they are files of their own.
    let more = if language == "go" {
        String::new()
    } else {
        fs::read_to_string(more).expect("the tool is there")
    };
    let session = samples_work(&path, Some(tools), language, |session, samples| {
        session.works(&format!(
            "toolhold plugin new made --lang {language} && mv made/sdk . && rm -r made"
        ));
        let manifest = fs::read_to_string(session.folder.join("plugin.toml"));
        let manifest = manifest.expect("it was written");
        let place = if language == "javascript" { "./sdk" } else { "sdk" };
        if language == "go" {
            let module = fs::read_to_string(others.join("go.mod")).expect("the module is there");
            session.write("go.mod", module.replace("../../../plugins/sdk-go", "./sdk"));
            for name in ["try_store.go", "try_http.go"] {
                let tool = fs::read(others.join("cookbook").join(name));
                session.write(name, tool.expect("the tool is there"));
            }
        }
        session.write(
            "plugin.toml",
            format!("{manifest}\n[build]\nlanguage = \"{language}\"\nsdk = \"{place}\"\n"),
        );
        session.write(source, format!("{samples}{more}"));
        session.works("toolhold plugin build");
    });
    store_works(&session);
}

#[test]
fn samples_of_the_cookbook_work_in_python() {
    if let Some(folder) = fetched("plugins-python") {
        samples_work_with_sdk("python", "plugin.py", &folder.join("bin"));
    }
}

#[test]
fn samples_of_the_cookbook_work_in_javascript() {
    if let Some(folder) = fetched("plugins-javascript") {
        samples_work_with_sdk("javascript", "plugin.js", &folder.join("node_modules/.bin"));
    }
}

#[test]
fn samples_of_the_cookbook_work_in_go() {
    if let Some(folder) = fetched("plugins-go") {
        let _alone = go_compiler();
        samples_work_with_sdk("go", "plugin.go", &folder.join("bin"));
    }
}
