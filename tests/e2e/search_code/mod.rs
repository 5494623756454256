//! `search_code` with the real binary and real parsers: what it finds, what it never shows, and an
//! index that survives everything.

mod hostile;
mod interrupted_updates;
mod servers;

use std::fs;
use std::path::Path;

use crate::support::{Cli, Ended};

/// A project in several languages.
const FILES: [(&str, &str); 5] = [
    (
        "src/config.rs",
        "//! load_config is mentioned here.\n\npub struct Config {\n    pub name: String,\n}\n\n\
         impl Config {\n    pub fn load_config(path: &str) -> Config {\n        let name = path.to_owned();\n        \
         Config { name }\n    }\n}\n",
    ),
    (
        "src/main.rs",
        "mod config;\n\nfn main() {\n    // load_config in a comment\n    let text = \"load_config in a text\";\n    \
         let config = config::Config::load_config(text);\n    println!(\"{}\", config.name);\n}\n",
    ),
    (
        "tool/run.py",
        "class Runner:\n    def start_engine(self):\n        return load_config('x')\n",
    ),
    (
        "web/app.ts",
        "export interface Options { depth: number }\nexport function renderPage(o: Options) {}\n",
    ),
    ("notes.md", "The zebra crossing is described here.\n"),
];

pub(super) fn project() -> Cli {
    let cli = Cli::new();
    FILES.iter().for_each(|(path, text)| write(&cli, path, text));
    cli
}

pub(super) fn write(cli: &Cli, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = cli.work().join(path);
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("folders are made");
    fs::write(path, text).expect("a file is written");
}

impl Cli {
    /// The text of a search that must succeed.
    #[track_caller]
    pub(super) fn finds(&self, arguments: &[&str]) -> String {
        self.searches(arguments).ends(0).stdout
    }

    pub(super) fn searches(&self, arguments: &[&str]) -> Ended {
        self.run(&[&["call", "search_code"], arguments].concat())
    }
}

#[track_caller]
fn assert_first(text: &str, line: &str) {
    assert_eq!(text.lines().next(), Some(line), "{text}");
}

#[test]
fn definitions_are_found_in_every_language_and_style() {
    let cli = project();
    for (symbol, line) in [
        ("load_config", "src/config.rs:8 method load_config in Config (definition)"),
        ("Config::load_config", "src/config.rs:8 method load_config in Config (definition)"),
        ("loadConfig", "src/config.rs:8 method load_config in Config (definition)"),
        ("Config", "src/config.rs:3 struct Config (definition)"),
        ("start_engine", "tool/run.py:2 method start_engine in Runner (definition)"),
        ("renderPage", "web/app.ts:2 function renderPage (definition)"),
        ("Options", "web/app.ts:1 interface Options (definition)"),
    ] {
        assert_first(&cli.finds(&[&format!("symbol={symbol}")]), line);
    }
    let narrowed = cli.finds(&["symbol=Config", "kind=class"]);
    assert!(!narrowed.contains("(definition)"), "{narrowed}");
    let typo = cli.finds(&["symbol=load_cofnig"]);
    assert!(typo.contains("[Did you mean load_config?]"), "{typo}");
}

#[test]
fn references_are_uses_and_no_comments_or_texts() {
    let text = project().finds(&["symbol=load_config", "include_references=true"]);
    assert!(text.contains("src/main.rs:6 in main (reference)\n"), "{text}");
    assert!(text.contains("tool/run.py:3 in Runner.start_engine (reference)\n"), "{text}");
    for (path, line) in [("src/main.rs", 4), ("src/main.rs", 5), ("src/config.rs", 1)] {
        assert!(!text.contains(&format!("{path}:{line} ")), "{path}:{line} is no use: {text}");
    }
}

#[test]
fn words_are_found_in_code_and_text() {
    let cli = project();
    assert_first(&cli.finds(&["query=zebra crossing"]), "notes.md:1 (words)");
    let text = cli.finds(&["query=start engine"]);
    assert!(text.starts_with("tool/run.py:2 method start_engine in Runner (definition"), "{text}");
    let narrowed = cli.finds(&["query=load config", "file_pattern=*.py"]);
    assert!(narrowed.starts_with("tool/run.py:3 ") && !narrowed.contains("src/"), "{narrowed}");
}

#[test]
fn outline_lists_what_a_file_defines() {
    let text = project().finds(&["outline=src/config.rs"]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        ["3-5 struct Config", "4-4   field name", "8-11 method Config.load_config"],
        "{text}"
    );
}

#[test]
fn edits_and_deletions_are_seen_by_the_next_call() {
    let cli = project();
    let missing = cli.finds(&["symbol=brand_new"]);
    assert!(missing.starts_with("Nothing found for `brand_new`."), "{missing}");
    for round in 0..3 {
        write(&cli, "src/main.rs", format!("fn brand_new_{round}() {{}}\n"));
        let text = cli.finds(&[&format!("symbol=brand_new_{round}")]);
        assert_first(&text, &format!("src/main.rs:1 function brand_new_{round} (definition)"));
    }
    let old = cli.finds(&["symbol=brand_new_0"]);
    assert!(!old.contains("(definition)"), "{old}");
    fs::remove_file(cli.work().join("src/main.rs")).expect("it is removed");
    let gone = cli.finds(&["symbol=brand_new_2"]);
    assert!(!gone.contains("src/main.rs"), "{gone}");
}

#[test]
fn tool_is_missing_where_the_index_is_off() {
    let cli = project();
    cli.configure("[index]\nenabled = false\n");
    let tools = cli.run(&["tools"]).ends(0).stdout;
    assert!(!tools.contains("search_code") && tools.contains("grep"), "{tools}");
    let refused = cli.searches(&["symbol=Config"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert!(!cli.root.path().join("data/indexes").exists(), "nothing was indexed");
}
