//! `toolhold plugin dev`: from a saved file to the new answer.
//!
//! A script stands in the place of Python's compiler, which takes half a minute. It takes the
//! component that `plugin.py` names, so the tests are about what comes before and after it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Cli, version};

const COMPILER: &str = r#"#!/bin/sh
for out; do :; done
read -r what < plugin.py
case "$what" in
  broken) echo "plugin.py, line 1: it is broken" >&2; exit 1 ;;
  slow) sleep 600 & echo $! > ../sleeps.new; mv ../sleeps.new ../sleeps; wait ;;
  *) cp "$what" "$out" ;;
esac
"#;

const MANIFEST: &str = "name = \"alive\"\nversion = \"1.0.0\"\ndescription = \"A plugin that changes\"\n\
    [build]\nlanguage = \"python\"\nsdk = \".\"\n";

/// A running `toolhold plugin dev`.
struct Dev {
    cli: Cli,
    child: Child,
    events: Receiver<Value>,
}

impl Dev {
    fn start(arguments: &[&str]) -> Self {
        Self::configured("", arguments)
    }

    fn configured(settings: &str, arguments: &[&str]) -> Self {
        let cli = Cli::new();
        let bin = cli.work().join("plugin/.venv/bin");
        fs::create_dir_all(&bin).expect("a folder is made");
        let compiler = bin.join("componentize-py");
        fs::write(&compiler, COMPILER).expect("a file is written");
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::write(cli.work().join("plugin/plugin.toml"), MANIFEST).expect("a file is written");
        for answer in ["one", "two"] {
            let component = version("alive", "1.0.0", answer).encode();
            fs::write(cli.work().join(answer), component).expect("a file is written");
        }
        cli.configure(settings);
        save(&cli, "../one");
        let line = [&["plugin", "dev", "plugin", "--json"], arguments].concat();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut child = cli
            .command(&line)
            .env("PATH", path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("toolhold starts");
        let lines = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("each line is JSON");
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        Self { cli, child, events }
    }

    /// The next event of a kind.
    #[track_caller]
    fn next(&self, kind: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).expect("the event comes in time");
            if event["event"] == kind {
                return event;
            }
        }
    }

    #[track_caller]
    fn answers(&self, expected: &str) {
        let call = self.next("call");
        assert_eq!((&call["status"], &call["answer"]), (&"ok".into(), &expected.into()), "{call}");
    }

    /// Ctrl-C, and the exit code.
    fn interrupt(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn save(cli: &Cli, text: &str) {
    fs::write(cli.work().join("plugin/plugin.py"), format!("{text}\n")).expect("a file is written");
}

#[test]
fn saved_file_leads_to_the_new_answer_and_a_failed_build_to_the_old_one() {
    let mut dev = Dev::start(&["--yes", "--call", "say"]);
    dev.next("building");
    let serving = dev.next("serving");
    assert_eq!(serving["tools"], serde_json::json!(["alive__say"]), "{serving}");
    dev.answers("one");

    save(&dev.cli, "../two");
    dev.next("built");
    dev.answers("two");

    save(&dev.cli, "broken");
    let failed = dev.next("build_failed");
    assert_eq!(failed["output"], "plugin.py, line 1: it is broken");
    assert_eq!(failed["now"], "the previous version stays in use");
    // A changed configuration counts at once, and the version before answers.
    dev.cli.configure("[tools]\ncall = 20\n");
    dev.answers("two");

    save(&dev.cli, "../one");
    dev.answers("one");
    assert_eq!(dev.interrupt(), Some(130));
}

#[test]
fn wrong_call_and_grants_of_another_component_are_told() {
    let dev = Dev::start(&["--call", "sai"]);
    dev.next("serving");
    let told = dev.next("call_not_made");
    let reason = told["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("`sai`") && reason.contains("alive__say"), "{told}");
    drop(dev);

    let dev = Dev::configured("[plugins.alive]\npath = \"elsewhere.wasm\"\n", &[]);
    let note = dev.next("note");
    assert!(note["text"].as_str().is_some_and(|text| text.contains("elsewhere.wasm")), "{note}");
}

/// What a build runs with the author's rights may not change unseen.
#[test]
fn changed_compiler_is_not_run() {
    let dev = Dev::start(&[]);
    dev.next("serving");
    let compiler = dev.cli.work().join("plugin/.venv/bin/componentize-py");
    fs::write(&compiler, "#!/bin/sh\ntouch ../evil\n").expect("a file is written");
    save(&dev.cli, "../two");
    let held = dev.next("held");
    let reason = held["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(".venv/bin/componentize-py has changed"), "{held}");
    assert!(!dev.cli.work().join("evil").exists());
}

/// Trust ends with the command, and is for its component alone.
#[test]
fn nothing_else_is_trusted() {
    let dev = Dev::start(&[]);
    dev.next("serving");
    let other = version("other", "1.0.0", "other").encode();
    fs::write(dev.cli.work().join("other.wasm"), other).expect("a file is written");
    dev.cli.configure(&format!(
        "[plugins.alive]\npath = {:?}\n[plugins.other]\npath = {:?}\n",
        dev.cli.work().join("plugin/alive.wasm"),
        dev.cli.work().join("other.wasm"),
    ));
    // The running one serves on, with the changed configuration.
    dev.next("serving");
    for tool in ["alive__say", "other__say"] {
        let held = dev.cli.run(&["call", "--yes", tool]);
        assert_ne!(held.code, 0);
        assert!(held.stderr.contains("never approved"), "{}", held.stderr);
    }
}

/// This server has no hosts of principals, so the limits of another token wouldn't apply.
#[test]
fn only_the_servers_own_token_is_accepted() {
    let dev = Dev::start(&["--http", "0"]);
    let how = dev.next("how");
    let (_, file) = how["text"]
        .as_str()
        .and_then(|text| text.split_once("the token is in "))
        .expect("it names the file");
    let own = fs::read_to_string(file).expect("it is read");
    let other = dev.cli.run(&["token", "new", "ci"]).ends(0).stdout;
    let place = how["url"]
        .as_str()
        .and_then(|url| url.strip_prefix("http://")?.strip_suffix("/mcp"))
        .expect("it has an address");
    for (token, status) in [(&own, "200"), (&other, "401")] {
        let token = token.trim();
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: {place}\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n\r\n"
        );
        let mut stream = TcpStream::connect(place).expect("it listens");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn interrupted_build_ends_with_all_that_it_started() {
    let mut dev = Dev::start(&[]);
    dev.next("serving");
    let sleeps = dev.cli.work().join("sleeps");
    save(&dev.cli, "slow");
    let end = Instant::now() + Duration::from_secs(60);
    while !sleeps.exists() {
        assert!(Instant::now() < end, "the build starts in time");
        std::thread::yield_now();
    }
    let pid = fs::read_to_string(&sleeps).expect("it is written").trim().to_owned();
    assert_eq!(dev.interrupt(), Some(130));
    // A process that was killed has no command line, even if nobody has waited for it.
    let line = fs::read(PathBuf::from("/proc").join(pid).join("cmdline"));
    assert!(line.is_err() || line.is_ok_and(|line| line.is_empty()));
}
