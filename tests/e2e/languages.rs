//! The SDKs of other languages, in real components: what a tool says, and what becomes of its
//! failures. They have the same tools, in `tests/plugins`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::mcp::client::{Client, LEGACY, text};
use crate::support::{Cli, Ended, compiler_caches, fetched, go_compiler, plugin};

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie one level below the root")
}

fn copy(from: &Path, to: &Path, change: &dyn Fn(String) -> String) {
    fs::create_dir_all(to).expect("a folder is made");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to, change);
        } else if let Ok(text) = fs::read_to_string(&from) {
            fs::write(to, change(text)).expect("a file is written");
        } else {
            fs::copy(&from, to).expect("a file is copied");
        }
    }
}

/// A plugin of `tests/plugins` in a host.
struct Fixture {
    cli: Cli,
    name: &'static str,
}

impl Fixture {
    fn new(language: &str, name: &'static str, tools: &Path) -> Self {
        let cli = Cli::new();
        let folder = cli.work().join("plugin");
        let sdk = format!("../../../plugins/sdk-{language}");
        let part = fs::read(plugin("hostile-part")).expect("the part is readable");
        let digest: String = Sha256::digest(&part).iter().map(|b| format!("{b:02x}")).collect();
        copy(&root().join("tests/plugins").join(language), &folder, &|text| {
            text.replace(&sdk, "./sdk").replace(&"0".repeat(64), &digest)
        });
        let parts = folder.join(format!("{name}.parts"));
        fs::create_dir(&parts).expect("a folder is made");
        fs::write(parts.join("attack.wasm"), part).expect("a file is written");
        // The bindings of the SDKs for C and Go are in the program alone.
        cli.run(&["plugin", "new", "made", "--lang", language]).ends(0);
        let made = cli.work().join("made");
        fs::rename(made.join("sdk"), folder.join("sdk")).expect("a project has its SDK");
        fs::remove_dir_all(made).expect("a folder is removed");
        let mut path = tools.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut build = cli.command(&["plugin", "build", "plugin"]);
        let built = build.env("PATH", path).envs(compiler_caches(tools)).output();
        Ended::from_output(built.expect("toolhold starts")).ends(0);
        cli.configure(&format!(
            "[tools.scheduler]\nenabled = true\n[plugins.{name}]\npath = {:?}\nreload = \"trust\"\nallowed_paths = [{:?}]\nhosts = [\"http://127.0.0.1\"]\n\
             allowed_private_hosts = [\"127.0.0.1\"]\nprograms = [\"cat\", \"false\"]\nstore_mib = 1\n\
             index_mib = 1\nschedule_tasks = 2\nservices = 1\nparts_cpu_secs = 10\n[plugins.{name}.config]\ncolour = \"red\"\n",
            folder.join(format!("{name}.wasm")),
            cli.work(),
        ));
        Self { cli, name }
    }

    /// The whole answer of a call, and what the operator's log has.
    fn call(&self, tool: &str, arguments: &Value) -> (Value, String) {
        let (name, arguments) = (format!("{}__{tool}", self.name), arguments.to_string());
        let line = ["call", "--yes", "--json", &name, &arguments];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut command = self.cli.command(&line);
        let output = command.env("PATH", path).env("TZ", "Europe/Lisbon").output();
        let ended = Ended::from_output(output.expect("toolhold starts"));
        (ended.json(), ended.stderr)
    }

    #[track_caller]
    fn fails(&self, how: &str, category: &str, code: &str, message: &str) -> (Value, String) {
        let (answer, log) = self.call("fail", &json!({ "how": how }));
        let failure = &answer["failure"];
        assert_eq!(
            (&failure["category"], &failure["code"]),
            (&json!(category), &json!(code)),
            "{answer}"
        );
        let text = failure["message"].as_str().unwrap_or_default();
        assert!(text.starts_with(message), "{answer}");
        assert!(text.len() <= 4096, "{} bytes", text.len());
        (answer, log)
    }

    /// What all languages do alike.
    fn works(&self) {
        self.speaks();

        let (unasked, _) = self.call("keep", &json!({}));
        let message = unasked["failure"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("doesn't import `store`"), "{unasked}");

        self.requests_are_answered();
    }

    /// The structured answer of a tool.
    #[track_caller]
    fn tries(&self, tool: &str, arguments: &Value, expected: &Value) {
        let (answer, _) = self.call(tool, arguments);
        assert_eq!(&answer["output"]["structured"], expected, "{answer}");
    }

    /// What outlives a call, and parts, in languages with functions for all of it.
    fn keeps(&self) {
        let found = json!({
            "words": ["a/2", "a/1"], "tagged": ["a/1"], "near": [["a/1", ["vector"]]],
            "whole": ["A quick fox", ["animal"], [1, -128], true, null], "no_key": "invalid",
            "quota": "limit", "listed": 1001, "deleted": 1001,
            "left": [["a/1", 256], ["a/2", 0]],
        });
        self.tries("try_index", &json!({}), &found);

        let own = json!({ "own": format!("{}__setting", self.name) });
        let tasks = json!({
            "next": ":T", "other": "denied", "prompt": "denied", "invalid": "invalid",
            "quota": "limit", "paused": [true, false],
            "tasks": [
                ["again", "every", "3600", "Europe/Berlin", "skip", true],
                ["tidy", "cron", "0 4 * * *", "Europe/Lisbon", "once", false],
            ],
            "arguments": { "key": "colour" }, "removed": [true, false], "soon": [true, false],
            "runs": [],
        });
        self.tries("try_schedule", &own, &tasks);
        self.has_its_task();

        let answers = json!(["a", "failed", "failed", "b", "invalid"]);
        self.tries("try_parts", &json!({}), &answers);

        let services = json!({
            "said": [[true, 4, "one\n", true], [false, 4, "two\n", true]], "full": "unavailable",
            "stopped": [true, false], "dropped": [true, false], "ended": [0, 0, 1, "exited"],
            "denied": "denied",
        });
        self.serves(&services);
    }

    /// Programs that outlive a call need a program that does.
    #[track_caller]
    fn serves(&self, expected: &Value) {
        let more = ["--set", "tools.autonomy=full"];
        let mut client = Client::new(&self.cli, &more, LEGACY, false);
        let answer = client.call(&format!("{}__try_service", self.name), json!({}));
        let text = text(&answer);
        // Its own line, between those that mark it as third-party.
        let said: Value = serde_json::from_str(text.lines().nth(1).unwrap_or_default())
            .unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!(&said, expected, "{answer}");
    }

    /// People see the task that the plugin left.
    #[track_caller]
    fn has_its_task(&self) {
        let listed = self.cli.run(&["tasks", "list", "--json"]).ends(0).json();
        let task = &listed["tasks"][0];
        assert_eq!(task["name"], "tidy", "{listed}");
        let tool = format!("{}__setting", self.name);
        assert_eq!(task["action"]["call"]["tool"], tool, "{listed}");
    }

    /// What languages without functions for requests do too.
    fn speaks(&self) {
        let (own, _) = self.fails("own", "rate_limited", "slow", "too often");
        assert_eq!(own["failure"]["suggestion"], "wait");
        assert_eq!(own["failure"]["retry_after_ms"], 2500);
        assert_eq!(own["failure"]["content"][0]["text"], "so far");

        let (said, log) = self.call("talk", &json!({ "words": ["a", "b"] }));
        let texts: Vec<&str> = said["output"]["content"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|part| part["text"].as_str())
            .collect();
        assert_eq!(texts, ["a", "b", "end"], "{said}");
        assert!(log.contains("said 2"), "{log}");

        let (setting, _) = self.call("setting", &json!({ "key": "colour" }));
        assert_eq!(setting["output"]["content"][0]["text"], "red", "{setting}");

        let (started, _) = self.call("start", &json!({ "program": ["cat"], "input": "föö" }));
        assert_eq!(started["output"]["content"][0]["text"], "föö", "{started}");
        let (failed, _) = self.call("start", &json!({ "program": ["false"] }));
        assert_eq!(failed["failure"]["code"], "exit-status", "{failed}");
    }

    /// Fails as a crash does, and the caller reads the end of standard error.
    #[track_caller]
    fn crashes(&self, how: &str, message: &str, last_words: &str) {
        let message = format!("the tool crashed: {message}");
        let (answer, _) = self.fails(how, "permanent_failure", "crash", &message);
        let text = answer["failure"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains(last_words), "{answer}");
    }

    fn requests_are_answered(&self) {
        let (url, seen) = serve(3);
        let (answer, _) = self.call("ask", &json!({ "url": format!("{url}/x"), "body": "föö" }));
        let expected = json!({ "status": 200, "text": "POST /x HTTP/1.1 föö", "cut": false, "type": "text/plain" });
        assert_eq!(answer["output"]["structured"], expected, "{answer}");
        let (down, _) = self.call("ask", &json!({ "url": format!("{url}/down") }));
        let failure = &down["failure"];
        assert_eq!(
            (&failure["category"], &failure["code"]),
            (&json!("server_error"), &json!("http-503")),
            "{down}"
        );
        let (away, _) = self.call("ask", &json!({ "url": format!("{url}/away") }));
        assert_eq!(away["failure"]["category"], "policy_blocked", "{away}");
        assert_eq!(seen.join().expect("the server ends").len(), 3);
    }
}

/// A server for a number of requests. It answers with the request, and returns their first lines.
fn serve(requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let served = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for stream in listener.incoming().take(requests) {
            let mut stream = stream.expect("a client comes");
            let (mut read, mut part) = (Vec::new(), [0; 4096]);
            let text = loop {
                let length = stream.read(&mut part).expect("it sends");
                read.extend_from_slice(&part[..length]);
                let text = String::from_utf8_lossy(&read).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
                if head.starts_with("GET")
                    || length == 0
                    || !chunked && !body.is_empty()
                    || body.ends_with("0\r\n\r\n")
                {
                    break text;
                }
            };
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            let first = head.lines().next().unwrap_or_default().to_owned();
            // A chunk stands between its length and the empty one.
            let body = if body.contains("\r\n") {
                body.split("\r\n").nth(1).unwrap_or_default()
            } else {
                body
            };
            let (status, more) = match () {
                () if first.contains("/down") => ("503 Unavailable", ""),
                () if first.contains("/away") => ("302 Found", "location: http://example.org/\r\n"),
                () => ("200 OK", ""),
            };
            let body = format!("{first} {body}");
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).expect("it reads");
            lines.push(first);
        }
        lines
    });
    (url, served)
}

/// Runs the tests of an SDK itself.
#[track_caller]
fn passes(program: PathBuf, arguments: &[&str], folder: &str) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root().join(folder)).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn sdk_of_python_works_in_a_host() {
    let Some(tools) = fetched("plugins-python") else { return };
    passes(
        tools.join("bin/python"),
        &["-m", "unittest", "tests.test_toolhold"],
        "plugins/sdk-python",
    );
    let fixture = Fixture::new("python", "fixture-python", &tools.join("bin"));
    let (_, log) = fixture.fails("uncaught", "permanent_failure", "exception", "KeyError: 'b'");
    assert!(log.contains("plugin.py\", line"), "{log}");
    fixture.fails("file", "permanent_failure", "not-found", "nope: not found");
    fixture.fails("deep", "permanent_failure", "exception", "RecursionError: ");
    fixture.fails("exit", "permanent_failure", "exception", "SystemExit: 3");
    fixture.fails("long", "permanent_failure", "exception", "ValueError: üü");
    fixture.works();
    fixture.keeps();
}

#[test]
fn sdk_of_javascript_works_in_a_host() {
    let Some(tools) = fetched("plugins-javascript") else { return };
    passes("node".into(), &["--test", "tests"], "plugins/sdk-javascript");
    let fixture = Fixture::new("javascript", "fixture-js", &tools.join("node_modules/.bin"));
    let (_, log) = fixture.fails("uncaught", "permanent_failure", "exception", "TypeError: ");
    assert!(log.contains("plugin.js:"), "{log}");
    fixture.fails("file", "permanent_failure", "exception", "TypeError: `call` returned a promise");
    // The stack of WebAssembly ends before that of QuickJS.
    fixture.fails("deep", "permanent_failure", "crash", "the tool crashed: ");
    fixture.fails("exit", "permanent_failure", "exception", "threw {\"exit\":3}");
    fixture.fails("long", "permanent_failure", "exception", "RangeError: üü");
    fixture.works();
    fixture.keeps();
}

/// The language has no SDK and no generator of bindings here: the source has the types of the WIT
/// in the layout of the canonical ABI.
#[test]
fn plugin_without_an_sdk_works_in_a_host() {
    let Some(tools) = fetched("plugins-c") else { return };
    let cli = Cli::new();
    let source = root().join("tests/plugins/zig");
    let core = cli.work().join("core.wasm");
    let mut compiler = Command::new(tools.join("bin/python3"));
    compiler.args(["-m", "ziglang", "build-exe"]).arg(source.join("plugin.zig"));
    compiler.args(["-target", "wasm32-freestanding", "-fno-entry", "-rdynamic"]);
    compiler.args(["-O", "ReleaseSmall", &format!("-femit-bin={}", core.display())]);
    let compiled = compiler.envs(compiler_caches(&tools)).output().expect("the compiler starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let manifest = source.join("plugin.toml").display().to_string();
    let core = core.display().to_string();
    cli.run(&["plugin", "pack", &core, "--manifest", &manifest]).ends(0);
    let tested = cli.run(&["plugin", "test", "mirror.wasm", "--json"]).ends(0).json();
    assert_eq!(tested["ok"], true, "{tested}");
    let call = ["--plugin", "mirror.wasm", "call", "--yes", "mirror__mirror", "text=añb€"];
    assert_eq!(cli.run(&call).ends(0).stdout.trim(), "€bña");
    let listed = cli.run(&["--plugin", "mirror.wasm", "tools", "mirror__mirror"]).ends(0).stdout;
    assert!(listed.contains("only reads (enforced)"), "{listed}");
}

#[test]
fn sdk_of_c_works_in_a_host() {
    let Some(tools) = fetched("plugins-c") else { return };
    let program = tempfile::NamedTempFile::new().expect("a file is made").into_temp_path();
    let shown = program.to_str().expect("it is UTF-8");
    let compile = format!("cc -Wall -Wextra -Werror -I. *.c tests/*.c -o {shown} && {shown}");
    passes("sh".into(), &["-ec", &compile], "plugins/sdk-c");

    let fixture = Fixture::new("c", "fixture-c", &tools.join("bin"));
    fixture.fails("file", "permanent_failure", "not-found", "nope: not found");
    fixture.fails("long", "permanent_failure", "long", "üü");
    fixture.crashes("assert", "wasm trap: wasm `unreachable`", "seven is no prime");
    fixture.crashes("type", "wasm trap: wasm `unreachable`", "as another type than it has: how");
    fixture.crashes("abort", "wasm trap: wasm `unreachable`", "");
    fixture.crashes("exit", "the component exited", "");
    fixture.crashes("null", "wasm trap: out of bounds memory access", "");
    // The stack ends, and nothing beside it is written.
    fixture.crashes("deep", "wasm trap: ", "");
    let (cleaned, _) = fixture.call("fail", &json!({ "how": "text" }));
    let text = &cleaned["output"]["content"][0]["text"];
    assert_eq!(text, "not UTF-8: \u{FFFD}, and half a character: \u{FFFD}", "{cleaned}");
    fixture.speaks();

    let (types, _) = fixture.call(
        "types",
        &json!({ "integer": -9_007_199_254_740_993_i64, "number": 1e3, "some": { "a": [1, "]"] } }),
    );
    let expected = json!({
        "text": "fällt \"zurück\"!", "integer": -9_007_199_254_740_993_i64, "number": 1000,
        "boolean": false, "has": true, "some": [1, "]"],
    });
    assert_eq!(types["output"]["structured"], expected, "{types}");
    let (zero, _) = fixture.call("types", &json!({ "integer": 1, "text": "a\0b" }));
    assert_eq!(zero["failure"]["category"], "type_mismatch", "{zero}");

    for count in ["x", "xx"] {
        let (kept, _) = fixture.call("keep", &json!({}));
        assert_eq!(kept["output"]["content"][0]["text"], count, "{kept}");
    }

    let found = json!({
        "words": ["a/2", "a/1"], "tagged": ["a/1"], "near": ["a/1"], "whole": true, "missing": true,
        "no_key": "invalid", "quota": "limit",
        "left": ["b", "a/2", "a/1"], "deleted": true, "then": ["a/2", "a/1"],
    });
    fixture.tries("try_index", &json!({}), &found);
    let tasks = json!({
        "other": "denied", "invalid": "invalid", "quota": "limit",
        "tasks": [
            ["again", "every", "3600", "Europe/Berlin", "skip", {}, true],
            ["tidy", "cron", "0 4 * * *", "Europe/Lisbon", "once", { "key": "colour" }, true],
        ],
        "removed": [true, false],
    });
    fixture.tries("try_schedule", &json!({ "own": "fixture-c__setting" }), &tasks);
    fixture.has_its_task();
    fixture.tries("try_parts", &json!({}), &json!(["a", "failed", "b"]));
    let services = json!({
        "said": [[true, 4, "one "], [false, 4, "two "]], "stopped": [true, false],
    });
    fixture.serves(&services);
}

#[test]
fn sdk_of_go_works_in_a_host() {
    let Some(tools) = fetched("plugins-go") else { return };
    let _alone = go_compiler();
    let test = format!(
        "export PATH={}:$PATH GOCACHE={} GOTOOLCHAIN=local\ngo vet ./tests ./store ./process ./toolholdhttp ./secrets ./index ./schedule ./parts ./service\ngo test ./tests",
        tools.join("bin").display(),
        tools.join("cache").display()
    );
    passes("sh".into(), &["-ec", &test], "plugins/sdk-go");

    let fixture = Fixture::new("go", "fixture-go", &tools.join("bin"));
    // It makes no requests, so nothing of them is in it.
    let component = fs::read(fixture.cli.work().join("plugin/fixture-go.wasm"));
    let component = component.expect("it was built");
    assert!(component.len() < 6_000_000, "{} bytes", component.len());
    assert!(!component.windows(9).any(|part| part == b"wasi:http"));
    fixture.fails("file", "permanent_failure", "not-found", "nope: not found");
    fixture.fails("error", "permanent_failure", "error", "while counting: seven is no prime");
    fixture.fails("long", "permanent_failure", "panic", "panic: üü");
    let (_, log) = fixture.fails(
        "index",
        "permanent_failure",
        "panic",
        "panic: runtime error: index out of range [5] with length 0",
    );
    assert!(log.contains("fixture-go/plugin.go:"), "{log}");
    fixture.fails("nil", "permanent_failure", "panic", "panic: assignment to entry in nil map");
    fixture.fails("pointer", "permanent_failure", "panic", "panic: runtime error: invalid memory");
    let (late, _) = fixture.call("fail", &json!({ "how": "late" }));
    assert_eq!(late["failure"]["category"], "timeout", "{late}");
    // The stack of WebAssembly ends before that of Go.
    fixture.crashes("deep", "wasm trap: call stack exhausted", "");
    fixture.crashes("exit", "the component exited", "");
    fixture.crashes("goroutine", "wasm trap: ", "panic: nobody recovers here");
    fixture.crashes("stuck", "wasm trap: ", "all goroutines are asleep - deadlock!");
    let (cleaned, _) = fixture.call("fail", &json!({ "how": "text" }));
    assert_eq!(cleaned["output"]["content"][0]["text"], "not UTF-8: \u{FFFD}", "{cleaned}");
    fixture.speaks();

    for count in ["x", "xx"] {
        let (kept, _) = fixture.call("keep", &json!({}));
        assert_eq!(kept["output"]["content"][0]["text"], count, "{kept}");
    }
    let folder = fixture.cli.work();
    let (found, _) = fixture.call("look", &json!({ "folder": folder, "regex": "^SEC" }));
    let notes = format!("file {}", folder.join("notes.txt").display());
    assert_eq!(found["output"]["structured"], json!([notes, "2 second"]), "{found}");
    let (wrong, _) = fixture.call("look", &json!({ "folder": folder, "regex": "(" }));
    assert_eq!(wrong["failure"]["code"], "invalid", "{wrong}");
    fixture.keeps();
}

/// What the host hands over stays as it was, while Go collects garbage and waits for timers.
#[test]
fn soak_of_go_keeps_what_it_reads() {
    let Some(tools) = fetched("plugins-go") else { return };
    let _alone = go_compiler();
    let fixture = Fixture::new("go", "fixture-go", &tools.join("bin"));
    let (calls, rounds) =
        if std::env::var_os("TOOLHOLD_SOAK").is_some() { (10, 500) } else { (1, 100) };
    for _ in 0..calls {
        let (sound, _) = fixture.call("soak", &json!({ "rounds": rounds }));
        assert_eq!(sound["output"]["content"][0]["text"], "sound", "{sound}");
    }
}
