//! Everything that Toolhold keeps, and a process that is killed while it writes all of it:
//! memories, tasks, their runs and the index of `search_code`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mcp::client::{Client, MODERN, text};
use crate::support::{Cli, wait_until};

/// Calls may all run at once, so that a kill meets several.
const SETTINGS: &str = "\
[tools]\nautonomy = \"full\"\n\
[tools.scheduler]\nenabled = true\nmax_tasks = 1000\n";

/// Sources that change, and their definitions.
const SOURCES: usize = 30;
const ITEMS: usize = 20;

/// Kills between two looks at everything.
const BETWEEN: u64 = 25;

/// Splitmix64, so that a seed is enough to repeat a choice.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// What became of a change as far as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It was asked for. Nobody knows whether it happened.
    Asked,
    /// It was acknowledged.
    Done,
}

/// What a call in flight asks for.
#[derive(Clone, Debug)]
enum Change {
    Memory(String),
    /// A task that is soon due.
    Task(String),
    /// A task that is never due.
    Far(String),
    Cancel(String),
    Search,
}

/// What there has to be.
#[derive(Default)]
struct Expected {
    memories: BTreeMap<String, Known>,
    tasks: BTreeMap<String, Known>,
    /// Each with what is known of its cancellation.
    far: BTreeMap<String, (Known, Option<Known>)>,
    /// The version of each source.
    versions: [u64; SOURCES],
}

/// Counts for the report.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    asked: u64,
    acknowledged: u64,
    memories: usize,
    tasks_done: u64,
    interrupted_with_effect: u64,
    interrupted_without_effect: u64,
    compared_searches: u64,
}

struct Soak {
    cli: Cli,
    random: Random,
    expected: Expected,
    tally: Tally,
    /// For names that nothing else has.
    next: u64,
}

/// What a memory says.
fn content(key: &str) -> String {
    format!("The fact {key} is that {}", format!("word-{key} ").repeat(40).trim_end())
}

impl Soak {
    fn new(seed: u64) -> Self {
        let cli = Cli::new();
        cli.configure(SETTINGS);
        fs::create_dir(cli.work().join("effects")).expect("a folder is made");
        let mut soak = Self {
            cli,
            random: Random(seed),
            expected: Expected::default(),
            tally: Tally::default(),
            next: 0,
        };
        (0..SOURCES).for_each(|source| soak.write_source(source));
        soak
    }

    fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}-{}", self.next)
    }

    /// Writes the next version of a source.
    fn write_source(&mut self, source: usize) {
        let version = &mut self.expected.versions[source];
        *version += 1;
        let items = (0..ITEMS).map(|item| {
            format!("fn source_{source}_version_{version}_item_{item}() {{\n    work();\n}}\n")
        });
        let text: String = items.collect();
        fs::write(self.cli.work().join(format!("source_{source}.rs")), text)
            .expect("it is written");
    }

    /// Makes one call without waiting for its answer.
    fn ask(&mut self, client: &mut Client) -> (u64, Change) {
        let call = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
        let cancelled =
            self.expected.far.iter().find_map(|(name, known)| {
                matches!(known, (Known::Done, None)).then(|| name.clone())
            });
        let (change, params) = match (self.random.below(10), cancelled) {
            (0..4, _) => {
                let key = self.name("memory");
                let arguments = json!({ "key": key, "content": content(&key) });
                self.expected.memories.insert(key.clone(), Known::Asked);
                (Change::Memory(key), call("memory_save", arguments))
            }
            (4..6, _) => {
                let name = self.name("task");
                let command = format!("echo {name} >> effects/{name}");
                let task = json!({ "name": name, "when": "1s", "tool": "bash", "arguments": { "command": command } });
                self.expected.tasks.insert(name.clone(), Known::Asked);
                (Change::Task(name), call("schedule_deferred", task))
            }
            (6, _) | (7, None) => {
                let name = self.name("far");
                let path = json!({ "path": "x" });
                let task =
                    json!({ "name": name, "cron": "@yearly", "tool": "read", "arguments": path });
                self.expected.far.insert(name.clone(), (Known::Asked, None));
                (Change::Far(name), call("schedule_periodic", task))
            }
            (7, Some(name)) => {
                self.expected.far.insert(name.clone(), (Known::Done, Some(Known::Asked)));
                (Change::Cancel(name.clone()), call("cancel_task", json!({ "name": name })))
            }
            _ => {
                let source = self.random.below(SOURCES as u64);
                self.write_source(usize::try_from(source).expect("it is small"));
                (Change::Search, call("search_code", json!({ "symbol": "work" })))
            }
        };
        self.tally.asked += 1;
        (client.ask("tools/call", params), change)
    }

    /// Notes what a process has said.
    fn hear(&mut self, asked: &BTreeMap<u64, Change>, said: &Value) {
        let change = said["id"].as_u64().and_then(|id| asked.get(&id));
        let (Some(change), Some(result)) = (change, said.get("result")) else { return };
        if result["isError"] == true {
            // What was busy did nothing, or nobody knows.
            let why = text(result);
            assert!(why.contains("busy") || why.contains("try again"), "{change:?}: {why}");
            return;
        }
        self.tally.acknowledged += 1;
        let expected = &mut self.expected;
        match change {
            Change::Memory(key) => drop(expected.memories.insert(key.clone(), Known::Done)),
            Change::Task(name) => drop(expected.tasks.insert(name.clone(), Known::Done)),
            // Nobody cancels it before it is acknowledged.
            Change::Far(name) => drop(expected.far.insert(name.clone(), (Known::Done, None))),
            Change::Cancel(name) => {
                expected.far.insert(name.clone(), (Known::Done, Some(Known::Done)));
            }
            Change::Search => {}
        }
    }

    /// Has a server do all kinds of work at once, and kills it.
    fn kill_server(&mut self) {
        let mut client = Client::new(&self.cli, &[], MODERN, false);
        let calls = 1 + self.random.below(12);
        let asked: BTreeMap<u64, Change> = (0..calls).map(|_| self.ask(&mut client)).collect();
        for _ in 0..self.random.below(calls + 1) {
            let said = client.next();
            self.hear(&asked, &said);
        }
        let since = Instant::now();
        let moment = Duration::from_micros(self.random.below(20_000));
        while since.elapsed() < moment {
            std::hint::spin_loop();
        }
        for said in client.kill() {
            self.hear(&asked, &said);
        }
        self.tally.kills += 1;
    }

    /// Kills a daemon, which only runs tasks.
    fn kill_daemon(&mut self) {
        let mut command = self.cli.command(&["tasks", "daemon"]);
        let mut daemon = command.stderr(Stdio::null()).spawn().expect("it starts");
        // At any moment of its start, and of what it then runs: a command takes its time.
        let moment = Duration::from_micros(self.random.below(1_500_000));
        let (_silent, nothing) = channel::<()>();
        assert!(nothing.recv_timeout(moment).is_err());
        daemon.kill().expect("it is killed");
        daemon.wait().expect("it ends");
        self.tally.kills += 1;
    }

    /// Looks at everything.
    fn check(&mut self) {
        self.check_memories();
        self.check_tasks();
        self.check_search();
    }

    fn check_memories(&mut self) {
        let exported = self.cli.run(&["memory", "export"]).ends(0).stdout;
        let mut found = BTreeSet::new();
        for line in exported.lines() {
            let entry: Value = serde_json::from_str(line).expect("it is JSON");
            let key = entry["key"].as_str().expect("it has one").to_owned();
            assert_eq!(entry["content"], content(&key), "a memory is whole");
            assert!(self.expected.memories.contains_key(&key), "{key} was never asked for");
            found.insert(key);
        }
        for (key, known) in &self.expected.memories {
            assert!(*known == Known::Asked || found.contains(key), "{key} is lost");
        }
        self.tally.memories = found.len();
    }

    /// Lets all tasks run, and looks at each one's effect.
    fn check_tasks(&mut self) {
        let mut command = self.cli.command(&["tasks", "daemon"]);
        let mut daemon = command.stderr(Stdio::null()).spawn().expect("it starts");
        let mut tasks: BTreeMap<String, Value> = BTreeMap::new();
        wait_until("each task has run", || {
            let listed = self.cli.run(&["tasks", "list", "--json"]).ends(0).json();
            let all = listed["tasks"].as_array().expect("it is a list").iter();
            tasks =
                all.map(|it| (it["name"].as_str().expect("text").to_owned(), it.clone())).collect();
            let soon = tasks.iter().filter(|(name, _)| name.starts_with("task-"));
            soon.clone().all(|(_, task)| task["last"]["ended"].is_string())
        });
        daemon.kill().expect("it is killed");
        daemon.wait().expect("it ends");
        for (name, known) in std::mem::take(&mut self.expected.tasks) {
            let effects = fs::read_to_string(self.cli.work().join("effects").join(&name));
            let effects = effects.unwrap_or_default().lines().count();
            let Some(task) = tasks.get(&name) else {
                assert!(known == Known::Asked && effects == 0, "{name} is lost: {effects}");
                continue;
            };
            let interrupted = match task["last"]["state"].as_str() {
                Some("done") => false,
                Some("interrupted") => true,
                _ => panic!("{task}"),
            };
            match (interrupted, effects) {
                (false, 1) => self.tally.tasks_done += 1,
                (true, 1) => self.tally.interrupted_with_effect += 1,
                (true, 0) => self.tally.interrupted_without_effect += 1,
                _ => panic!("{name} has {effects} effects: {task}"),
            }
        }
        for (name, (made, cancelled)) in &self.expected.far {
            match (tasks.contains_key(name), made, cancelled) {
                (true, _, Some(Known::Done)) => panic!("{name} was cancelled"),
                (false, Known::Done, None) => panic!("{name} is lost"),
                _ => {}
            }
        }
        // So that the quota isn't reached.
        let mut client = Client::new(&self.cli, &[], MODERN, false);
        for name in tasks.keys() {
            let said = client.call("cancel_task", json!({ "name": name }));
            assert_ne!(said["isError"], true, "{said}");
        }
        self.expected.far.clear();
    }

    /// The index answers as one that is made now.
    fn check_search(&mut self) {
        let fresh = TempDir::new().expect("a temporary folder is made");
        let mut queries = Vec::new();
        for _ in 0..10 {
            let source = usize::try_from(self.random.below(SOURCES as u64)).expect("it is small");
            let item = self.random.below(ITEMS as u64);
            let now = self.expected.versions[source];
            for version in [now, now - 1] {
                queries.push(format!("symbol=source_{source}_version_{version}_item_{item}"));
            }
        }
        for query in queries {
            let line = ["call", "search_code", &query];
            let kept = self.cli.run(&line).ends(0).stdout;
            let mut command = self.cli.command(&line);
            let made = command.env("TOOLHOLD_DATA_DIR", fresh.path()).output().expect("it starts");
            assert_eq!(kept, String::from_utf8_lossy(&made.stdout), "{query}");
            self.tally.compared_searches += 1;
        }
    }
}

#[test]
fn soak_state_survives_kills() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let seed = number("TOOLHOLD_SEED").unwrap_or(now.as_secs());
    let kills = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 500 } else { 10 };
    println!("TOOLHOLD_SEED={seed}, {kills} kills");
    let mut soak = Soak::new(seed);
    while soak.tally.kills < kills {
        match soak.random.below(5) {
            0 | 1 => soak.kill_daemon(),
            _ => soak.kill_server(),
        }
        if soak.tally.kills.is_multiple_of(BETWEEN) {
            soak.check();
        }
    }
    soak.check();
    println!("{:#?}", soak.tally);
}
