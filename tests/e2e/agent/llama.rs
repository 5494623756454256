//! The agent with a server that others wrote: llama.cpp's, with a model so small that what it says
//! means nothing. So most tests look at what crosses the wire. A larger model does tasks, if
//! somebody names one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Came, PATIENCE, Running, until};
use crate::support::{Cli, Ended, fetched, not_tried};

/// The formats that this server has.
const FORMATS: [&str; 3] = ["chat", "responses", "messages"];

/// Tokens that its context has. A whole one takes the small model a minute.
const CONTEXT: u32 = 8192;

/// A server with a model.
struct Llama {
    cli: Cli,
    server: Child,
    /// Host and port.
    address: String,
}

impl Llama {
    /// `endless`: no answer ends by itself. `model`: a file; without one, the small model. `None`,
    /// with a notice, if this machine couldn't fetch the server.
    fn start(endless: bool, model: Option<&Path>) -> Option<Self> {
        let folder = fetched("llama")?;
        let cli = Cli::new();
        let place = cli.root.path().join("address");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // One core is left to others: threads that wait for each other are slower by far.
        let threads = if model.is_some() { cores.saturating_sub(1).max(1) } else { 1 };
        let context = if model.is_some() { 2 * CONTEXT } else { CONTEXT };
        let (log, endless) =
            (cli.root.path().join("log"), if endless { "endless" } else { "ends" });
        let log = std::fs::File::create(log).expect("a file is created");
        let mut server = Command::new(folder.join("bin/python"));
        // It ends with its stdin, also if this process is killed.
        server.arg("-I").arg(folder.join("serve.py")).arg(&place).stdin(Stdio::piped());
        server.args([&context.to_string(), &threads.to_string(), endless]).args(model);
        server.stdout(Stdio::null()).stderr(log);
        let server = server.spawn().expect("it starts");
        let mut llama = Self { cli, server, address: String::new() };
        until("the server listens", || {
            let ended = llama.server.try_wait().expect("it can be asked");
            let log = || std::fs::read_to_string(llama.cli.root.path().join("log"));
            assert_eq!(ended, None, "the server ended: {:?}", log());
            place.exists()
        });
        let address = std::fs::read_to_string(place).expect("it is there");
        llama.address = address.strip_prefix("http://").expect("it is local").to_owned();
        Some(llama)
    }

    /// `provider`: lines of the table of each provider, which are named after their formats.
    fn configure(&self, provider: &str, more: &str) {
        let table = |format: &str| {
            format!(
                "[providers.{format}]\nformat = \"{format}\"\nmodel = \"small\"\n\
                 base_url = \"http://{}/v1\"\n{provider}\n",
                self.address
            )
        };
        let tables: Vec<String> = FORMATS.into_iter().map(table).collect();
        self.cli.configure(&format!("{more}\n{}", tables.join("\n")));
    }

    fn command(&self, format: &str, line: &[&str]) -> Command {
        let line: Vec<&str> =
            ["run", "--json", "--model", format].iter().chain(line).copied().collect();
        self.cli.command(&line)
    }

    fn run(&self, format: &str, line: &[&str]) -> Came {
        let output = self.command(format, line).output().expect("toolhold starts");
        Came::from_ended(Ended::from_output(output))
    }

    /// Whether it computes an answer.
    fn works(&self) -> bool {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let request = format!("GET /slots HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let state = |works: bool| answer.contains(&format!("\"is_processing\":{works}"));
        assert!(state(true) != state(false), "{answer}");
        state(true)
    }

    /// It was told that nobody waits: an answer without an end takes it far longer.
    #[track_caller]
    fn assert_free(&self, format: &str) {
        let since = Instant::now();
        until("the server is free", || !self.works());
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "{format}: it worked on for {took:?}");
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn independent_server_streams_counts_and_cuts_in_each_format() {
    let Some(llama) = Llama::start(true, None) else { return };
    llama.configure("max_output_tokens = 16", "");
    for format in FORMATS {
        let came = llama.run(format, &["--max-turns", "2", &format!("Say hello to {format}.")]);
        let said = format!("{format}: {:#?}\n{}", came.all, came.ended.stderr);
        let parts = came.all.iter().filter(|event| event["event"] == "text_part").count();
        assert!(parts > 4, "it doesn't stream: {said}");
        let (answers, number) =
            (came.events_of("answer"), |value: &serde_json::Value| value.as_u64());
        assert_eq!(answers.len(), 2, "a cut answer passed for a whole one: {said}");
        for answer in &answers {
            let spent = &answer["spent"];
            assert_eq!(number(&spent["output"]), Some(16), "{said}");
            assert!(number(&spent["input"]) > Some(0), "{said}");
        }
        assert!(number(&answers[1]["spent"]["cache_read"]) > Some(0), "it began anew: {said}");
        came.ends(5, "--max-turns");
    }
}

#[test]
fn independent_server_is_free_after_a_cancelled_answer() {
    let Some(llama) = Llama::start(true, None) else { return };
    for format in FORMATS {
        llama.configure("context_tokens = 100000", "[agent]\nmax_secs = 1");
        let begun = Instant::now();
        let came = llama.run(format, &["Tell a long story."]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{format}: {:?}", begun.elapsed());
        assert!(!came.all.iter().any(|event| event["event"] == "answer"), "{:#?}", came.all);
        came.ends(5, "max_secs");
        llama.assert_free(format);

        llama.configure("context_tokens = 100000", "");
        let mut command = llama.command(format, &["Tell a long story."]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("toolhold starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        let running = Running(Some(child));
        let mut next = || lines.next().expect("it goes on").expect("it can be read");
        while !next().contains("\"text_part\"") {}
        assert!(llama.works(), "{format}");
        let begun = Instant::now();
        running.signal(rustix::process::Signal::INT);
        while !next().contains("\"ended\"") {}
        assert_eq!(running.wait().status.code(), Some(130), "{format}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{format}: {:?}", begun.elapsed());
        llama.assert_free(format);
    }
}

#[test]
fn independent_server_is_listed_and_tested() {
    let Some(llama) = Llama::start(false, None) else { return };
    llama.configure("", "");
    let listed = llama.cli.run(&["models", "--json"]).ends(0).json();
    for provider in listed.as_array().expect("a list") {
        assert_eq!(provider["models"][0]["context_tokens"], CONTEXT, "{listed}");
    }
    assert_eq!(listed.as_array().map(Vec::len), Some(FORMATS.len()));
    for format in ["chat", "messages"] {
        let tested = llama.cli.run(&["models", "--test", format, "--json"]).ends(0).json();
        assert_eq!(
            (&tested[0]["ok"], &tested[0]["streams"]),
            (&true.into(), &true.into()),
            "{tested}"
        );
        assert!(tested[0]["whole_ms"].as_u64() >= tested[0]["first_ms"].as_u64(), "{tested}");
    }
}

/// A task for the larger model: what it is told, and whether it was done.
struct SmallTask {
    text: &'static str,
    is_done: fn(&Path) -> bool,
}

/// What a file says, without the white space around it.
fn content(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

const TASKS: [SmallTask; 3] = [
    SmallTask {
        text: "Create the file greeting.txt with this one line: hello harbour",
        is_done: |work| content(&work.join("greeting.txt")) == "hello harbour",
    },
    SmallTask {
        text: "Edit add.py: replace a - b with a + b.",
        is_done: |work| {
            let mut python = Command::new("python3");
            python.args(["-c", "import add; print(add.add(2, 3), add.add(-7, 4))"]);
            let output = python.current_dir(work).output().expect("it starts");
            output.stdout == b"5 -3\n"
        },
    },
    SmallTask {
        text: "Rename old.txt to new.txt.",
        is_done: |work| content(&work.join("new.txt")) == "old" && !work.join("old.txt").exists(),
    },
];

#[test]
fn larger_model_does_small_tasks() {
    let Some(model) = std::env::var_os("TOOLHOLD_TEST_MODEL") else {
        return not_tried("TOOLHOLD_TEST_MODEL");
    };
    let Some(llama) = Llama::start(false, Some(Path::new(&model))) else { return };
    llama.configure(
        "native_tools = false\ncontext_tokens = 16384\nmax_output_tokens = 400\nidle_secs = 1800",
        "[tools]\nautonomy = \"full\"\n[agent]\nlenient_models = [\"*\"]\nmax_turns = 12",
    );
    let work = llama.cli.work();
    let mut seen = String::new();
    let done = TASKS.iter().filter(|task| {
        std::fs::remove_dir_all(&work).expect("it can be emptied");
        std::fs::create_dir(&work).expect("a folder is made");
        std::fs::write(work.join("old.txt"), "old\n").expect("a file is written");
        let wrong = "def add(a, b):\n    return a - b\n";
        std::fs::write(work.join("add.py"), wrong).expect("a file is written");
        let begun = Instant::now();
        let came = llama.run("chat", &["--yes", task.text]);
        let is_done = (task.is_done)(&work);
        let report = format!("{}: done: {is_done}, {:?}", task.text, begun.elapsed());
        println!("{report}");
        seen.push_str(&format!("{report}\n{:#?}\n", came.events));
        is_done
    });
    assert!(done.count() >= 2, "{seen}");
}
