//! The servers of `recipes.toml`, added as a person does who accepts everything that is proposed.
//! The table of `docs/servers.md` has the words after `toolhold mcp add NAME --yes`, and says how far
//! the server gets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::docs::markdown::document;
use crate::support::server::{Server, answer};
use crate::support::{Cli, Ended, fetched, not_tried};

/// The name of each server in turn. The cache that all tests share has its packages.
const NAME: &str = "known";

/// How far a server gets, in the words of the page.
const CALLED: &str = "a call works";
const LISTED: &str = "lists its tools";
const FAILED: &str = "doesn't start";
const UNTESTED: &str = "not tested";

/// Calls without an account and a remote service: the package, the tool, its arguments, and a part
/// of the answer. `{work}` is the working directory, a repository, and `{page}` the address of
/// `PAGE`.
const CALLS: [(&str, &str, &str, &str); 7] = [
    (
        "npm:@modelcontextprotocol/server-memory",
        "create_entities",
        r#"{"entities": [{"name": "Ada", "entityType": "person", "observations": []}]}"#,
        "Ada",
    ),
    ("pypi:mcp-server-fetch", "fetch", r#"{"url": "{page}"}"#, "The page"),
    ("pypi:mcp-server-git", "git_status", r#"{"repo_path": "{work}"}"#, "notes.txt"),
    ("pypi:duckduckgo-mcp-server", "fetch_content", r#"{"url": "{page}"}"#, "The page"),
    ("npm:@playwright/mcp", "browser_navigate", r#"{"url": "{page}"}"#, "The title"),
    ("npm:chrome-devtools-mcp", "new_page", r#"{"url": "{page}"}"#, "The title"),
    (
        "npm:@modelcontextprotocol/server-puppeteer",
        "puppeteer_navigate",
        r#"{"url": "{page}"}"#,
        "Navigated to",
    ),
];

const PAGE: &str = "<html><head><title>The title</title></head><body><p>The page</p></body></html>";

/// The browser of the rows that name one.
const BROWSER: &str = "/usr/bin/chromium";

/// Variables that aren't credentials, and credentials that servers check before they start. Other
/// credentials are `made-up`.
const VARIABLES: [(&str, &str); 6] = [
    ("DATABASE_URI", "postgresql://127.0.0.1:9/none"),
    ("ES_URL", "http://127.0.0.1:9"),
    ("JIRA_API_TOKEN", "made-up"),
    ("JIRA_URL", "https://jira.example.com"),
    ("JIRA_USERNAME", "ada@example.com"),
    ("STRIPE_SECRET_KEY", "rk_test_made_up"),
];

/// What the recipes name with this key.
fn recipe_values(key: &str) -> BTreeSet<String> {
    let text = include_str!("../../host/mcp/client/src/recipes.toml");
    let recipes: toml::Table = toml::from_str(text).expect("it is TOML");
    let recipes = recipes["recipe"].as_array().expect("there are recipes").iter();
    let lists = recipes.filter_map(|recipe| recipe.get(key)?.as_array());
    lists.flatten().filter_map(|value| Some(value.as_str()?.to_owned())).collect()
}

/// A row of the table of well-known servers.
struct Row {
    /// The words after `toolhold mcp add NAME --yes`.
    line: String,
    /// How far the server gets.
    result: String,
}

impl Row {
    fn all() -> Vec<Self> {
        let page = document("docs/servers.md");
        let (_, section) = page.split_once("## Well-known servers\n").expect("there is a section");
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let line = cells.next().and_then(|line| line.strip_suffix('`')).expect("a command");
            let result = cells.next().expect("a result");
            Self { line: line.to_owned(), result: result.to_owned() }
        })
        .collect()
    }

    /// The words as a shell hands them on.
    fn words(&self) -> Vec<String> {
        self.line.split(' ').map(|word| word.replace('\'', "")).collect()
    }

    /// The package as in the recipes.
    fn package(&self) -> String {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = words.iter().position(|word| ["npx", "uvx"].contains(word));
        match words[start.expect("it has a runner")..] {
            ["npx", "-y", package, ..] => format!("npm:{package}"),
            ["uvx", "--with", _, package, ..] | ["uvx", package, ..] => format!("pypi:{package}"),
            _ => panic!("`{}` starts no package", self.line),
        }
    }
}

/// A machine with `npx` and `uvx`, and with made-up credentials in the environment.
struct Machine {
    cli: Cli,
    path: String,
    variables: BTreeMap<String, String>,
    page: Server,
}

impl Machine {
    /// `None`, with a notice, if something is missing.
    fn new() -> Option<Self> {
        let python = fetched("python")?.canonicalize().expect("it is there");
        if !Path::new("/usr/bin/npx").exists() {
            not_tried("npx");
            return None;
        }
        let cli = Cli::new();
        cli.configure("[tools]\nautonomy = \"full\"\n");
        let made = Command::new("git").args(["init", "--quiet"]).current_dir(cli.work()).status();
        assert!(made.expect("git starts").success());
        let mut variables = BTreeMap::new();
        for name in recipe_values("secrets") {
            variables.insert(name, "made-up".to_owned());
        }
        for (name, value) in VARIABLES {
            variables.insert(name.to_owned(), value.to_owned());
        }
        Some(Self {
            cli,
            path: format!("{}/bin:/usr/local/bin:/usr/bin:/bin", python.display()),
            variables,
            page: Server::plain(|_, wire| {
                answer(wire, "200 OK", &[("content-type", "text/html")], PAGE.as_bytes())
            }),
        })
    }

    /// Runs a command of `toolhold`. The error has what it printed.
    fn run(&self, line: &[&str]) -> Result<Ended, String> {
        let mut command = self.cli.command(line);
        command.env("PATH", &self.path).envs(&self.variables);
        let ended = Ended::from_output(command.output().expect("toolhold starts"));
        if ended.code == 0 { Ok(ended) } else { Err(ended.stdout + &ended.stderr) }
    }

    /// Adds and approves a server, and calls its tool, if there is a call for it. Returns how far
    /// it gets, and a note.
    fn try_server(&self, row: &Row) -> (&'static str, String) {
        let words = row.words();
        let mut add = vec!["mcp", "add", NAME, "--yes"];
        if !words.iter().any(|word| word == "--") {
            add.push("--");
        }
        add.extend(words.iter().map(String::as_str));
        self.run(&add).expect("it is added");
        let reached = match self.list_tools() {
            Err(reason) => (FAILED, reason),
            Ok(tools) => match self.call_tool(&row.package()) {
                None => (LISTED, tools),
                Some(Ok(())) => (CALLED, tools),
                Some(Err(reason)) => (LISTED, reason),
            },
        };
        // The packages go too.
        self.run(&["mcp", "remove", NAME]).expect("it is removed");
        reached
    }

    /// Returns the number of tools.
    fn list_tools(&self) -> Result<String, String> {
        self.run(&["mcp", "approve", NAME, "--yes"])?;
        let listed = self.run(&["mcp", "list", "--json"])?.json();
        match listed[0]["tools"].as_array().map_or(0, Vec::len) {
            0 => Err("it has no tools".to_owned()),
            count => Ok(format!("{count} tools")),
        }
    }

    fn call_tool(&self, package: &str) -> Option<Result<(), String>> {
        let (_, tool, arguments, part) = CALLS.iter().find(|(known, ..)| *known == package)?;
        let arguments = arguments
            .replace("{work}", &self.cli.work().display().to_string())
            .replace("{page}", &format!("http://{}", self.page.address));
        Some(self.run(&["call", &format!("{NAME}__{tool}"), &arguments]).and_then(|ended| {
            if ended.stdout.contains(part) { Ok(()) } else { Err(ended.stdout + &ended.stderr) }
        }))
    }

    /// The file that the server of memories is granted.
    fn memories(&self) -> PathBuf {
        self.cli.root.path().join(".local/share/mcp-servers").join(NAME).join("memory.jsonl")
    }
}

#[test]
fn soak_well_known_servers_get_as_far_as_documented() {
    let rows = Row::all();
    let packages: Vec<String> = rows.iter().map(Row::package).collect();
    let mut known = recipe_values("names");
    known.retain(|name| !name.starts_with("program:"));
    assert_eq!(packages.len(), known.len());
    assert_eq!(packages.iter().cloned().collect::<BTreeSet<_>>(), known);
    for (package, ..) in CALLS {
        let row = rows.iter().find(|row| row.package() == package);
        assert_eq!(row.expect("it is a server of the page").result, CALLED, "{package}");
    }
    if std::env::var_os("TOOLHOLD_SOAK").is_none() {
        return;
    }
    let Some(machine) = Machine::new() else { return };
    let mut differences = Vec::new();
    for row in rows.iter().filter(|row| row.result != UNTESTED) {
        if row.line.contains(BROWSER) && !Path::new(BROWSER).exists() {
            not_tried("chromium");
            continue;
        }
        let (result, note) = machine.try_server(row);
        let note = note.lines().last().unwrap_or_default();
        // Not with a macro, whose output the test runner captures.
        let _ = writeln!(std::io::stdout(), "{}: {result} ({note})", row.line);
        if result != row.result {
            differences.push(format!("{}: {result}, documented: {}", row.line, row.result));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    let memories = fs::read_to_string(machine.memories()).expect("the server wrote it");
    assert!(memories.contains("Ada"), "{memories}");
}
