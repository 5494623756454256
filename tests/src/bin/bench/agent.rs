//! Toolhold's own agent beside a model on loopback that answers at once: what is left is Toolhold's
//! time.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_agent::selection::{SelectionRules, ToolIndex, select};
use toolhold_contract::Definition;

use crate::Setting;
use crate::measure::{median, memory};
use crate::table::{Row, Target, Unit};
use crate::terminal::Terminal;

const ROUNDS: usize = 9;

/// Sessions of earlier tasks.
const SESSIONS: usize = 10_000;

/// Bytes of a long session, and of each result in it.
const LONG: usize = 100_000_000;
const RESULT: usize = 20_000;

/// Calls of a task whose time is measured.
const CALLS: usize = 90;

/// Runs of a test suite in a task whose tokens are counted.
const SUITES: usize = 30;

/// How long the model takes for an answer of a sub-agent.
const LATER: Duration = Duration::from_millis(200);
/// Tools of which some are chosen.
const THOUSAND: usize = 1000;

/// What the model says in the template of old sessions, to make each call another one.
const CALL: &str = "bench-call";

/// MB of an answer that streams by on a full screen.
const STREAMED: usize = 10;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let mut rows = vec![first_request(setting)?];
    rows.extend(resume(setting)?);
    rows.push(turn(setting)?);
    rows.push(tokens(setting)?);
    rows.push(sub_agents(setting)?);
    rows.extend(selection()?);
    rows.extend(keys(setting)?);
    rows.extend(screen_memory(setting)?);
    Ok(rows)
}

/// The tools for a task out of a thousand, those of the recorded catalogues.
fn selection() -> Result<Vec<Row>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the catalogues can't be read: {error}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogues");
    let mut tools = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))?.flatten() {
        let text = fs::read(entry.path()).map_err(|error| failed(&error))?;
        let recorded: Value = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        for tool in recorded["tools"].as_array().into_iter().flatten() {
            let text = |key: &str| tool[key].as_str().unwrap_or_default();
            let name = format!("s{}__{}", tools.len(), text("name").to_lowercase());
            tools.push(Definition::new(name, text("description"), tool["schema"].clone()));
        }
    }
    let more: Vec<Definition> =
        tools.iter().take(THOUSAND.saturating_sub(tools.len())).cloned().collect();
    tools.extend(more);
    let rules = SelectionRules {
        top_k: 10,
        min_description_words: 3,
        always_on: Vec::new(),
        max_tokens: 8192,
    };
    let (mut made, mut chosen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let index = ToolIndex::new(&tools);
        made.push(began.elapsed());
        let began = Instant::now();
        select(&index, "open a pull request from feature/login and assign it to Eva", None, &rules);
        chosen.push(began.elapsed());
    }
    let what = |what: &str| format!("{what}, {} tools, p50", tools.len());
    let row = |text: &str, times: Vec<Duration>, most: f64| {
        let value = milliseconds(median(times));
        row(what(text), value, Unit::Milliseconds, Target::AtMost(most))
    };
    Ok(vec![
        row("words of the tools, once for a session", made, 20.0),
        row("the choice for a task", chosen, 2.0),
    ])
}

/// The first request of a task, with many old sessions.
fn first_request(setting: &Setting) -> Result<Row, String> {
    let home = Home::make(setting, "", |_| Said::Done)?;
    let template = home.record(&home.run(&[])?.session)?;
    for number in 0..SESSIONS {
        let id = format!("6900{number:04x}-0123456789ab");
        home.put(&id, &template)?;
    }
    let runs = (0..=ROUNDS).map(|_| home.run(&[]).map(|ran| ran.first));
    let times: Vec<Duration> = runs.skip(1).collect::<Result<_, _>>()?;
    Ok(row(
        format!("toolhold run to its first request, {SESSIONS} old sessions, p50"),
        milliseconds(median(times)),
        Unit::Milliseconds,
        Target::AtMost(50.0),
    ))
}

/// A home whose model reads a long file once, and the record of that.
fn home_with_a_long_result(setting: &Setting) -> Result<(Home, String), String> {
    let script = |number| match number {
        0 => Said::Call("read", json!({ "path": "long" })),
        _ => Said::Done,
    };
    let home = Home::make(setting, "context_tokens = 100_000_000\n", script)?;
    fs::write(home.work().join("long"), "a line of a file that is read\n".repeat(RESULT / 30))
        .map_err(|error| format!("no file to read: {error}"))?;
    let template = home.record(&home.run(&[])?.session)?;
    Ok((home, template))
}

/// A long session that goes on: with results left out, and with its older part summarised.
fn resume(setting: &Setting) -> Result<Vec<Row>, String> {
    let (home, template) = home_with_a_long_result(setting)?;
    let Long { session: long, tasks, entries, result_at } = Long::new(&template)?;
    let pruned: Vec<Value> = (0..tasks - 3)
        .map(|task| {
            let text =
                "[An old result of 20010 bytes is left out; to see the result, make the call again.]";
            let result = json!({
                "call": format!("{CALL}-{task}-0-0"), "name": "read", "content": [{ "Text": text }],
                "failed": false
            });
            json!({ "entry": 1 + task * entries + result_at, "result": result })
        })
        .collect();
    let summary = json!({ "compressed": {
        "through": (tasks - 3) * entries, "summary": "Files were read.", "method": "triggered",
        "usage": {}
    } });
    let mut rows = Vec::new();
    for (what, last) in [
        ("old results left out", json!({ "pruned": pruned })),
        ("the older part summarised", summary),
    ] {
        let id = "69000000-0123456789ab";
        let (mut times, mut peak) = (Vec::new(), 0.0_f64);
        for round in 0..=ROUNDS {
            home.put(id, &format!("{long}{last}\n"))?;
            let ran = home.run(&["--session", id])?;
            if round > 0 {
                times.push(ran.first);
                peak = peak.max(ran.peak);
            }
        }
        let what = format!("a session of 100 MB goes on, {what}");
        rows.push(row(
            format!("{what}: to its first request, p50"),
            milliseconds(median(times)),
            Unit::Milliseconds,
            Target::AtMost(300.0),
        ));
        let what = format!("{what}: most memory");
        rows.push(row(what, peak, Unit::Mebibytes, Target::AtMost(200.0)));
    }
    Ok(rows)
}

/// A session of many tasks.
struct Long {
    session: String,
    tasks: usize,
    /// Entries of each task, and the place of the result in them.
    entries: usize,
    result_at: usize,
}

impl Long {
    /// `template`: a session with one task.
    fn new(template: &str) -> Result<Self, String> {
        let (began, task) = template.split_once('\n').ok_or("the session has no task")?;
        let entries = task.lines().count();
        let result_at = task
            .lines()
            .position(|line| line.starts_with("{\"result\":"))
            .ok_or("the session has no result")?;
        let mut session = format!("{began}\n");
        let mut tasks = 0;
        while session.len() < LONG {
            session += &task.replace(CALL, &format!("{CALL}-{tasks}"));
            tasks += 1;
        }
        Ok(Self { session, tasks, entries, result_at })
    }
}

/// The time from a key to its letter on the screen, while an answer streams by.
fn keys(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = Home::make(setting, "", |_| Said::Streamed)?;
    let mut terminal = home.chat(&[]);
    terminal.keys("stream\r");
    terminal.until_shows("writes");
    let (mut times, mut typed) = (Vec::new(), String::new());
    while !terminal.screen().contains("done · ") {
        typed.push('x');
        let began = Instant::now();
        terminal.keys("x");
        terminal.until("the key", |screen| screen.contains(&format!("❯ {typed}")));
        times.push(began.elapsed());
        if typed.len() == 40 {
            terminal.keys("\x15");
            terminal.until("an empty prompt", |screen| !screen.contains("❯ x"));
            typed.clear();
        }
    }
    times.sort_unstable();
    let last = times.get(times.len() * 99 / 100).copied().ok_or("no key was typed")?;
    let what = format!("a key on the full screen, while {STREAMED} MB stream by");
    let keys = format!("{} keys", times.len());
    let [mut middle, mut late] = [("p50", median(times)), ("p99", last)].map(|(which, time)| {
        let what = format!("{what}, {which}");
        row(what, milliseconds(time), Unit::Milliseconds, Target::AtMost(16.0))
    });
    (middle.ours, late.ours) = (keys.clone(), keys);
    Ok(vec![middle, late])
}

/// The memory of a full screen.
fn screen_memory(setting: &Setting) -> Result<Vec<Row>, String> {
    let (home, template) = home_with_a_long_result(setting)?;
    let Long { session, tasks, entries, .. } = Long::new(&template)?;
    let summary = json!({ "compressed": {
        "through": (tasks - 3) * entries, "summary": "Files were read.", "method": "triggered",
        "usage": {}
    } });
    let id = "69000000-0123456789ab";
    home.put(id, &format!("{session}{summary}\n"))?;
    let mut rows = Vec::new();
    for (what, line, most) in [
        ("an idle chat", &[][..], 60.0),
        ("a chat that goes on with 100 MB", &["--session", id][..], 150.0),
    ] {
        let terminal = home.chat(line);
        let used = memory(terminal.process(), "VmRSS")?;
        rows.push(row(format!("memory of {what}"), used, Unit::Mebibytes, Target::AtMost(most)));
    }
    Ok(rows)
}

/// The time between an answer of the model and the next request, the call included.
fn turn(setting: &Setting) -> Result<Row, String> {
    let script = |number| match number {
        CALLS => Said::Done,
        number => Said::Call("read", json!({ "path": format!("file-{number}") })),
    };
    let home = Home::make(setting, "", script)?;
    for number in 0..CALLS {
        let name = format!("file-{number}");
        fs::write(home.work().join(&name), format!("{name} is a short file\n"))
            .map_err(|error| format!("no file to read: {error}"))?;
    }
    home.run(&[])?;
    let ran = home.run(&[])?;
    let gap = |pair: &[Asked]| pair[1].came.saturating_duration_since(pair[0].answered);
    let gaps: Vec<Duration> = ran.asked.windows(2).map(gap).collect();
    Ok(row(
        "a turn of the loop with a call of read, beside the model's time, p50".to_owned(),
        milliseconds(median(gaps)),
        Unit::Milliseconds,
        Target::AtMost(1.0),
    ))
}

/// What a model reads in a task that runs tests again and again, against the same without filters
/// and with a context so large that no result is left out.
fn tokens(setting: &Setting) -> Result<Row, String> {
    let script = |number| match number {
        SUITES => Said::Done,
        number => Said::Call("bash", json!({ "command": format!("./pytest {number}") })),
    };
    let read = |provider: &str| {
        let home = Home::make(setting, provider, script)?;
        let tests: String = (0..400)
            .map(|number| format!("tests/test_cart.py::test_{number} PASSED [{}%]\\n", number / 4))
            .collect();
        let pytest = home.work().join("pytest");
        let script = format!(
            "#!/bin/sh\nprintf '============ test session starts ============\\ncollected 400 items\\n\\n{}\\n============ 400 passed in 1.%ss ============\\n' \"$1\"\n",
            tests.replace('%', "%%")
        );
        fs::write(&pytest, script).map_err(|error| format!("no tests to run: {error}"))?;
        fs::set_permissions(&pytest, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("no tests to run: {error}"))?;
        Ok::<usize, String>(home.run(&[])?.asked.iter().map(|asked| asked.bytes).sum())
    };
    let with = read("")?;
    let without = read("context_tokens = 100_000_000\n[tools.filters]\nenabled = false\n")?;
    let mut row = row(
        format!("bytes of all requests of a task with {SUITES} runs of tests, against unfiltered"),
        with as f64 / without as f64,
        Unit::Ratio,
        Target::AtMost(0.5),
    );
    row.ours = format!("{:.1} MB", with as f64 / 1e6);
    row.rival = format!("without filters and pruning {:.1} MB", without as f64 / 1e6);
    Ok(row)
}

/// Three sub-agents at once, against one after another: each asks the model once.
fn sub_agents(setting: &Setting) -> Result<Row, String> {
    let script = |number| match number {
        0 => Said::ThreeAgents,
        4 => Said::Done,
        _ => Said::Later,
    };
    let took = |settings: &str| {
        let home = Home::make(setting, settings, script)?;
        home.run(&[])?;
        let times = (0..ROUNDS).map(|_| {
            let asked = home.run(&[])?.asked;
            let first = asked.first().ok_or("nothing was asked")?.answered;
            let last = asked.last().ok_or("nothing was asked")?.came;
            Ok::<Duration, String>(last.saturating_duration_since(first))
        });
        Ok::<Duration, String>(median(times.collect::<Result<_, _>>()?))
    };
    let (at_once, one_by_one) = (took("")?, took("[agent.delegate]\nat_once = 1\n")?);
    let mut row = row(
        format!(
            "three sub-agents at once, against one after another; a model that takes {} ms",
            LATER.as_millis()
        ),
        at_once.as_secs_f64() / one_by_one.as_secs_f64(),
        Unit::Ratio,
        Target::AtMost(0.4),
    );
    row.ours = format!("{:.0} ms", milliseconds(at_once));
    row.rival = format!("one after another {:.0} ms", milliseconds(one_by_one));
    Ok(row)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(what: String, value: f64, unit: Unit, target: Target) -> Row {
    Row {
        name: "agent",
        what,
        samples: vec![value],
        unit,
        target,
        ours: String::new(),
        rival: String::new(),
    }
}

/// The folders of an agent, and its model.
struct Home {
    folder: tempfile::TempDir,
    toolhold: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The process that asks.
    process: Arc<Mutex<Option<u32>>>,
}

/// A request to the model.
#[derive(Clone, Copy)]
struct Asked {
    came: Instant,
    answered: Instant,
    /// Of its body.
    bytes: usize,
    /// The most memory of the process that asks, in MiB.
    peak: f64,
}

/// What the model says.
enum Said {
    Call(&'static str, Value),
    /// Three calls of `delegate`.
    ThreeAgents,
    /// A long text.
    Streamed,
    Done,
    /// The same, after a while.
    Later,
}

/// A task that ended.
struct Ran {
    session: String,
    /// From the start to the first request.
    first: Duration,
    /// The most memory until then, in MiB.
    peak: f64,
    asked: Vec<Asked>,
}

impl Home {
    /// `settings`: more lines of the provider's table, and tables behind it. `script`: what the
    /// model says to the request of this number in a task.
    fn make(
        setting: &Setting,
        settings: &str,
        script: impl Fn(usize) -> Said + Send + 'static,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("no home for an agent: {error}");
        // Built together with this program.
        let toolhold = std::env::current_exe().map_err(failed)?.with_file_name("toolhold");
        let folder = tempfile::tempdir_in(&setting.scratch).map_err(failed)?;
        let home = Self { folder, toolhold, asked: Arc::default(), process: Arc::default() };
        fs::create_dir(home.work()).map_err(failed)?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let private = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        private(&home.path(".config/toolhold")).map_err(failed)?;
        private(&home.sessions()).map_err(failed)?;
        let config = format!(
            "[tools]\nautonomy = \"full\"\n[audit]\nkeep = 1\n\
             [providers.model]\nformat = \"chat\"\nbase_url = \"http://{address}/v1\"\n\
             model = \"scripted\"\n{settings}"
        );
        fs::write(home.path(".config/toolhold/toolhold.toml"), config).map_err(failed)?;
        let (asked, process) = (Arc::clone(&home.asked), Arc::clone(&home.process));
        let script = Arc::new(Mutex::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let came = Instant::now();
                let (script, asked, process) =
                    (Arc::clone(&script), Arc::clone(&asked), Arc::clone(&process));
                let say =
                    move |number| (script.lock().unwrap_or_else(PoisonError::into_inner))(number);
                // A stream that ends early is seen as a request that is missing.
                std::thread::spawn(move || answer(stream, came, &say, &asked, &process));
            }
        });
        Ok(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn work(&self) -> PathBuf {
        self.path("work")
    }

    fn sessions(&self) -> PathBuf {
        self.path(".local/share/toolhold/agent")
    }

    fn record(&self, id: &str) -> Result<String, String> {
        fs::read_to_string(self.sessions().join(format!("{id}.jsonl")))
            .map_err(|error| format!("the session isn't there: {error}"))
    }

    /// Writes a session that has the entries of another one.
    fn put(&self, id: &str, entries: &str) -> Result<(), String> {
        let path = self.sessions().join(format!("{id}.jsonl"));
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(entries.as_bytes()))
            .map_err(|error| format!("no old session: {error}"))
    }

    /// A chat on a full screen.
    fn chat(&self, line: &[&str]) -> Terminal {
        let mut command = Command::new(&self.toolhold);
        command.arg("chat").args(line).current_dir(self.work());
        command.env("HOME", self.folder.path()).env("PATH", "/usr/bin:/bin");
        let terminal = Terminal::open(&command, (24, 80));
        terminal.until("the prompt", |screen| screen.contains("❯") && screen.contains("ready"));
        terminal
    }

    fn run(&self, arguments: &[&str]) -> Result<Ran, String> {
        let lock = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        lock().clear();
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let child = Command::new(&self.toolhold)
            .args(["run", "--json", "work"])
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("toolhold doesn't start: {error}"))?;
        *process = Some(child.id());
        drop(process);
        let output = child.wait_with_output().map_err(|error| format!("toolhold run: {error}"))?;
        let events = String::from_utf8_lossy(&output.stdout);
        let asked = lock().clone();
        let first = events.lines().next().and_then(|line| serde_json::from_str(line).ok());
        let session = first.and_then(|event: Value| Some(event["id"].as_str()?.to_owned()));
        match (session, asked.first().copied()) {
            (Some(session), Some(Asked { came, peak, .. })) if output.status.success() => {
                Ok(Ran { session, first: came.duration_since(began), peak, asked })
            }
            _ => Err(format!(
                "toolhold run ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

fn answer(
    stream: TcpStream,
    came: Instant,
    script: &impl Fn(usize) -> Said,
    asked: &Mutex<Vec<Asked>>,
    process: &Mutex<Option<u32>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    if !first.starts_with("POST ") {
        let nothing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return reader.get_mut().write_all(nothing.as_bytes());
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
    let process = *process.lock().unwrap_or_else(PoisonError::into_inner);
    let peak = process.and_then(|process| memory(process, "VmHWM").ok()).unwrap_or_default();
    let number = {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = usize::try_from(length).unwrap_or_default();
        asked.push(Asked { came, answered: came, bytes, peak });
        asked.len() - 1
    };
    let calls = |calls: &[(&str, Value)]| {
        let calls: Vec<Value> = calls
            .iter()
            .enumerate()
            .map(|(index, (tool, arguments))| {
                json!({
                    "index": index, "id": format!("{CALL}-{number}-{index}"), "type": "function",
                    "function": { "name": tool, "arguments": arguments.to_string() }
                })
            })
            .collect();
        (json!({ "tool_calls": calls }), "tool_calls")
    };
    let done = (json!({ "content": format!("Done, request {number}.") }), "stop");
    let (delta, reason) = match script(number) {
        Said::Streamed => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            reader.get_mut().write_all(head.as_bytes())?;
            let text = "A line that streams by, with *some* Markdown.\n\n".repeat(20);
            let part = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
            let part = format!("data: {part}\n\n");
            for _ in 0..STREAMED * 1_000_000 / text.len() {
                reader.get_mut().write_all(part.as_bytes())?;
            }
            let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
            let end = format!("data: {end}\n\ndata: [DONE]\n\n");
            return reader.get_mut().write_all(end.as_bytes());
        }
        Said::Done => done,
        Said::Later => {
            std::thread::sleep(LATER);
            done
        }
        Said::Call(tool, arguments) => calls(&[(tool, arguments)]),
        Said::ThreeAgents => {
            calls(&[1, 2, 3].map(|part| ("delegate", json!({ "task": format!("part {part}") }))))
        }
    };
    let said = json!({ "choices": [{ "index": 0, "delta": delta }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
         data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"
    );
    reader.get_mut().write_all(text.as_bytes())?;
    asked.lock().unwrap_or_else(PoisonError::into_inner)[number].answered = Instant::now();
    Ok(())
}
