//! The documents are true: their commands run, the files in them are the real ones, and their
//! tables have every key.

mod cli;
mod command_lines;
mod contract;
mod cookbook;
pub(crate) mod markdown;
mod policies;
mod reference;
pub(crate) mod session;
mod terminal;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use toolhold_core::Limits;
use toolhold_core::config::{self, Folders, Inputs};

use crate::support::{Component, Offer, fetched, go_compiler, manifest, plugin};
use markdown::{Block, blocks, code_spans, document, documents, root};
use reference::{presets, reference};
use session::Session;

/// The built plugins.
pub(crate) fn built() -> PathBuf {
    root().join("plugins/target")
}

/// The SDK as a package, which must be complete.
fn packaged_sdk() -> PathBuf {
    let folder = built().join("packaged");
    let _ = fs::remove_dir_all(&folder);
    let done = |command: &mut Command| {
        let ended = command.output().expect("it starts");
        assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    };
    let mut package = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    package.current_dir(root().join("plugins")).args([
        "package",
        "--package",
        "toolhold-sdk",
        "--no-verify",
        "--allow-dirty",
        "--offline",
    ]);
    done(package.arg("--target-dir").arg(&folder));
    let package = format!("toolhold-sdk-{}", env!("CARGO_PKG_VERSION"));
    done(
        Command::new("tar")
            .current_dir(folder.join("package"))
            .arg("-xmzf")
            .arg(format!("{package}.crate")),
    );
    let packaged = folder.join("package").join(package);
    // What the code doesn't need is missed by nobody who only builds it.
    for (file, has) in [
        ("README.md", "toolhold_sdk::plugin!"),
        ("LICENSE-MIT", "MIT License"),
        ("LICENSE-APACHE", "Apache License"),
        ("wit/tool/tools.wit", "interface tools"),
        ("wit/host/store.wit", "interface store"),
    ] {
        let text = fs::read_to_string(packaged.join(file)).unwrap_or_default();
        assert!(text.contains(has), "{file} of the package: {text}");
    }
    let manifest = fs::read_to_string(packaged.join("Cargo.toml")).expect("it has a manifest");
    let manifest: toml::Table = toml::from_str(&manifest).expect("it is TOML");
    let may_be_published = manifest["package"].get("publish") != Some(&toml::Value::Boolean(false));
    assert!(may_be_published, "{manifest:?}");
    for dependency in dependencies(&manifest) {
        assert!(
            dependency.get("version").is_some() && dependency.get("path").is_none(),
            "{dependency:?}"
        );
    }
    packaged
}

/// The dependencies of a packaged manifest, for every target.
fn dependencies(manifest: &toml::Table) -> Vec<toml::Value> {
    let mut tables = vec![manifest];
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    tables.extend(targets.filter_map(|(_, target)| target.as_table()));
    let found: Vec<toml::Value> = tables
        .iter()
        .flat_map(|table| [table.get("dependencies"), table.get("dev-dependencies")])
        .filter_map(|listed| listed.and_then(toml::Value::as_table))
        .flat_map(|listed| listed.values().cloned())
        .collect();
    assert!(found.len() >= 8, "{found:?}");
    found
}

/// The pages whose snippets in Rust belong to the plugin of the first page.
const PLUGIN_PAGES: [&str; 5] = [
    "docs/plugins.md",
    "docs/plugins/tools.md",
    "docs/plugins/calls.md",
    "docs/plugins/data.md",
    "docs/plugins/manifest.md",
];

/// The page on plugins in an empty folder, as a reader types it.
#[test]
fn first_plugin_is_built_as_documented() {
    // Always the same folder, or cargo would keep a build for each; and a folder where cargo finds
    // the settings of the plugins.
    let folder = built().join("documented");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder is made");
    let mut session = Session::new(&folder);
    let mut shown = 0;
    for block in blocks(&document("docs/plugins.md")) {
        match block.file.as_deref() {
            Some("src/lib.rs") => {
                let made = fs::read_to_string(session.folder.join("src/lib.rs"));
                assert_eq!(block.text, made.expect("`plugin new` wrote it"));
                shown += 1;
            }
            Some(name) => session.write(name, &block.text),
            None => session.follow(&block),
        }
    }
    assert_eq!(shown, 1, "docs/plugins.md shows the plugin");
}

/// With the SDK as its package has it, and under another name than the first plugin, which another
/// test builds in the same folder.
#[test]
fn snippets_of_the_plugin_pages_compile() {
    let example = root().join("plugins/examples/rust");
    let folder = built().join("snippets");
    let _ = fs::remove_dir_all(&folder);
    let session = Session::new(&folder);
    let sdk = packaged_sdk();
    for name in ["Cargo.toml", "Cargo.lock"] {
        let text = fs::read_to_string(example.join(name)).expect("the example is there");
        let text = text.replace("word-count", "snippets");
        session.write(name, text.replace("../../sdk", &sdk.display().to_string()));
    }
    let mut source = fs::read_to_string(example.join("src/lib.rs")).expect("the example is there");
    session.write("src/lib.rs", &source);
    session.works("cargo test --no-run && cargo build --release --target wasm32-wasip2");

    let shown = PLUGIN_PAGES.iter().flat_map(|page| blocks(&document(page)));
    let snippets: Vec<Block> =
        shown.filter(|block| block.language == "rust" && block.file.is_none()).collect();
    assert!(snippets.len() >= 7, "{snippets:?}");
    for (number, snippet) in snippets.iter().enumerate() {
        source += &format!(
            "#[expect(unused, reason = \"only whether it compiles\")]\nmod snippet_{number} {{\n use super::*;\n{}}}\n",
            snippet.text
        );
    }
    session.write("src/lib.rs", source);
    session.works("cargo check");
}

/// The guide of a language, as a reader follows it.
fn guide_is_followed(language: &str, tools: &Path) {
    let example = root().join("plugins/examples").join(language);
    let folder = TempDir::new().expect("a temporary folder is made");
    let mut session = Session::new(&folder.path().canonicalize().expect("the folder is there"));
    session.tools = Some(tools.to_owned());
    let page = document(&format!("docs/plugins/{language}.md"));
    let place = if ["javascript", "go"].contains(&language) { "./sdk" } else { "sdk" };
    let (mut shown, mut snippets) = (0, String::new());
    for block in blocks(&page) {
        match &block.file {
            // A file of the example, with the place of the SDK in a reader's folder.
            Some(name) if example.join(name).exists() => {
                let original = fs::read_to_string(example.join(name)).expect("it is a text");
                let original = original.replace(&format!("../../sdk-{language}"), place);
                assert_eq!(block.text, original, "{name} of the example");
                shown += 1;
            }
            Some(name) => session.write(name, &block.text),
            None if block.language == language => snippets += &block.text,
            None => session.follow(&block),
        }
    }
    if let Some((name, before, check)) = snippets_of(language) {
        session.write(name, format!("{before}{snippets}"));
        session.works(check);
    }
    assert!(shown >= 2, "docs/plugins/{language}.md shows {shown} files of the example");
}

/// The file for what a guide shows beside the example, what comes before it, and the command that
/// checks it.
fn snippets_of(language: &str) -> Option<(&'static str, &'static str, &'static str)> {
    match language {
        "c" => {
            Some(("snippets.c", "#include \"toolhold.h\"\n", "cc -Isdk -fsyntax-only snippets.c"))
        }
        "go" => Some((
            "snippets/snippets.go",
            "package snippets\n\nimport (\n\"net/http\"\n\"time\"\n\"toolhold\"\n\"toolhold/toolholdhttp\"\n)\n\n",
            "go vet ./snippets",
        )),
        _ => None,
    }
}

#[test]
fn guide_of_python_is_followed() {
    if let Some(folder) = fetched("plugins-python") {
        guide_is_followed("python", &folder.join("bin"));
    }
}

#[test]
fn guide_of_javascript_is_followed() {
    if let Some(folder) = fetched("plugins-javascript") {
        guide_is_followed("javascript", &folder.join("node_modules/.bin"));
    }
}

#[test]
fn guide_of_c_is_followed() {
    if let Some(folder) = fetched("plugins-c") {
        guide_is_followed("c", &folder.join("bin"));
    }
}

#[test]
fn guide_of_go_is_followed() {
    if let Some(folder) = fetched("plugins-go") {
        let _alone = go_compiler();
        guide_is_followed("go", &folder.join("bin"));
    }
}

#[test]
fn documented_manifest_is_valid() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let page = document("docs/plugins/other-languages.md");
    let shown = blocks(&page)
        .into_iter()
        .find(|block| block.language == "json")
        .expect("the page shows a manifest");
    let component = Component {
        manifests: vec![shown.text.clone().into_bytes()],
        ..Component::offering(vec![Offer::named("tool")])
    };
    let path = folder.path().join("plugin.wasm");
    fs::write(&path, component.encode()).expect("a plugin is written");
    let read = toolhold_core::Candidate::file(&path)
        .expect("the manifest is right")
        .info()
        .manifest
        .clone();
    // Nothing in it is unknown to the host.
    let shown: serde_json::Value = serde_json::from_str(&shown.text).expect("it is JSON");
    let read = serde_json::to_value(&read).expect("a manifest has a form in JSON");
    for (key, value) in shown.as_object().expect("a manifest is an object") {
        assert_eq!(read.get(key), Some(value), "{key}");
    }
}

#[test]
fn documented_limits_are_the_defaults() {
    let page = document("docs/plugins/limits.md");
    let limits = Limits::default();
    let mib = |bytes: usize| bytes >> 20;
    for shown in [
        format!("{} s, `[tools] call`", limits.call.as_secs()),
        format!("up to {} s, `max_call`", limits.max_call.as_secs()),
        format!("{} s more for the answer", limits.grace.as_secs()),
        format!("| {} s, `cpu_secs` |", limits.cpu.as_secs()),
        format!("| {} MiB, `memory_mib` |", mib(limits.memory)),
        format!("| arguments | {} MiB of JSON |", mib(limits.arguments)),
        format!("| {} MiB, `result_mib` |", mib(limits.result)),
        format!("| {} GiB, `written_mib` |", limits.written >> 30),
        format!("| {}, `handles` |", limits.handles),
        format!("| {} KiB each |", limits.stdio >> 10),
    ] {
        assert!(page.contains(&shown), "docs/plugins/limits.md lacks {shown:?}");
    }
}

/// The manifest of a plugin that a reader installs.
const NOTES: &str = r#"{
    "manifest": 1,
    "name": "notes",
    "version": "1.2.0",
    "description": "Finds notes, and sends them to a wiki",
    "license": "MIT",
    "capabilities": [
        { "name": "files", "access": "read", "reason": "to read the notes" },
        { "name": "http", "reason": "to send a note to the wiki" }
    ]
}"#;

/// A small project of a reader of the README.
fn project() -> (TempDir, Session) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let session = Session::new(&folder.path().canonicalize().expect("the folder is there"));
    session.write("README.md", document("README.md"));
    session.write("src/main.rs", "fn main() {}\n");
    // A plugin `my` whose tool answers with nothing.
    let component = Component {
        manifests: vec![manifest("my")],
        on_call: "i32.const 0 return",
        ..Component::offering(vec![Offer::named("tool")])
    };
    session.write("my.wasm", component.encode());
    // A plugin `notes` that asks for files and requests.
    let offers = [("find", "Finds the notes with a word."), ("send", "Sends a note to the wiki.")]
        .map(|(name, text)| Offer { description: text.to_owned(), ..Offer::named(name) });
    let component = Component {
        manifests: vec![NOTES.as_bytes().to_vec()],
        ..Component::offering(offers.to_vec())
    };
    session.write("notes.wasm", component.encode());
    session.write("every-type.wasm", fs::read(plugin("every-type")).expect("it was built"));
    (folder, session)
}

#[test]
fn commands_of_the_readme_and_of_the_overview_run() {
    let (_folder, session) = project();
    let page = document("docs/commands.md");
    let (_, overview) = page.split_once("\n## By task\n").expect("the page has an overview");
    let overview = overview.split_once("\n## ").map_or(overview, |(overview, _)| overview);
    let mut commands = code_spans(&document("README.md"));
    commands.extend(code_spans(overview));
    commands.retain(|span| span.starts_with("toolhold ") && !span.contains('…'));
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        session.works(&command);
    }
}

#[test]
fn demo_prints_what_the_readme_shows() {
    let (_folder, session) = project();
    let shown = blocks(&document("README.md"))
        .into_iter()
        .find(|block| block.text.starts_with("$ toolhold demo\n"))
        .expect("the README shows the demo");
    session.try_block(&Block {
        language: "console".to_owned(),
        text: shown.text.lines().map(without_time).collect(),
        ..shown
    });
}

/// A line that fits the same line of another run, which takes another time.
fn without_time(line: &str) -> String {
    match line.split_once(" ms  ") {
        Some((before, after)) => {
            let before = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            format!("{}… ms  {after}\n", before.trim_end())
        }
        None => format!("{line}\n"),
    }
}

#[test]
fn examples_print_the_shown_output() {
    // Commands in `sh` blocks elsewhere are this repository's own, which run the tests themselves.
    let elsewhere = |path: &str| path.starts_with("docs/plugins") || path == "docs/policy.md";
    for path in documents().iter().filter(|path| !elsewhere(path)) {
        let (_folder, session) = project();
        for block in blocks(&document(path)).iter().filter(|block| block.language != "sh") {
            session.try_block(block);
        }
    }
}

#[test]
fn configurations_in_the_documents_load() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let folders = Folders::inside(folder.path());
    let mut count = 0;
    for path in documents() {
        let other = |name: &str| ["Cargo.toml", "filters.toml", "plugin.toml"].contains(&name);
        let of_toolhold = |block: &markdown::Block| {
            block.language == "toml" && !block.file.as_deref().is_some_and(other)
        };
        for block in blocks(&document(&path)).into_iter().filter(of_toolhold) {
            let file = folder.path().join("shown.toml");
            fs::write(&file, &block.text).expect("a file is written");
            // A ceiling has keys of its own.
            let inputs = match block.file.as_deref() {
                Some("/etc/toolhold/ceiling.toml" | "ceiling.toml") => Inputs {
                    variables: vec![("TOOLHOLD_CEILING".into(), file.into())],
                    ..Inputs::default()
                },
                _ => Inputs { file: Some(file), ..Inputs::default() },
            };
            if let Err(problems) = config::load(&folders, &inputs) {
                panic!(
                    "{path} shows a configuration that does not load: {problems}\n{}",
                    block.text
                );
            }
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} configurations were found");
}

#[test]
fn rules_in_the_documents_come_out_as_they_say() {
    let (_folder, mut session) = project();
    let rules = blocks(&document("docs/filters.md"))
        .into_iter()
        .find(|block| block.file.as_deref() == Some("filters.toml"));
    session
        .write_of_user("config/filters.toml", rules.expect("the page shows rules").text.as_bytes());
    session.works("toolhold filter test seed deploy && toolhold filter list --json | grep -q '\"problems\": \\[\\]' && ! toolhold filter test kubectl-get");
}

#[test]
fn reference_has_every_key() {
    let page = document("docs/configuration.md");
    let (_, rest) = page.split_once("## Every key\n\n").expect("there is a reference");
    let shown = rest.split_once("\n## ").map_or(rest, |(shown, _)| shown);
    let expected = reference(&config::describe());
    if shown.trim_end() != expected.trim_end() {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference.md");
        fs::write(&kept, &expected).expect("the reference is written");
        let line = shown.lines().zip(expected.lines()).find(|(shown, expected)| shown != expected);
        panic!(
            "docs/configuration.md, \"Every key\", has to be as in {}; the first difference: {line:#?}",
            kept.display()
        );
    }
}

#[test]
fn page_of_commands_equals_the_help() {
    let expected = cli::page();
    if document("docs/cli.md") != expected {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli.md");
        fs::write(&kept, &expected).expect("the page is written");
        panic!("docs/cli.md has to be as {}", kept.display());
    }
}

#[test]
fn page_of_the_contract_equals_the_wit() {
    let expected = contract::page();
    if document("docs/plugins/contract.md") != expected {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract.md");
        fs::write(&kept, &expected).expect("the page is written");
        panic!("docs/plugins/contract.md has to be as {}", kept.display());
    }
}

#[test]
fn documented_presets_are_complete() {
    let expected = presets();
    if !document("docs/shell.md").contains(&expected) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("presets.md");
        fs::write(&kept, &expected).expect("the table is written");
        panic!("docs/shell.md has to have the table of {}", kept.display());
    }
}

#[test]
fn exit_codes_and_variables_are_those_of_the_help() {
    let help = std::process::Command::new(crate::support::toolhold())
        .arg("--help")
        .output()
        .expect("toolhold runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let page = document("docs/configuration.md");
    let (_, codes) = help.split_once("Exit codes:\n").expect("the help tells them");
    let codes: Vec<&str> = codes.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(codes.len(), 7, "{codes:?}");
    for line in codes {
        let (code, meaning) = line.trim().split_once("  ").expect("a code and its meaning");
        assert!(
            page.contains(&format!("| {code} | {meaning} |")),
            "docs/configuration.md lacks the exit code {line:?}"
        );
    }
    let names: BTreeSet<&str> = help
        .split(|c: char| !c.is_ascii_uppercase() && c != '_')
        .filter(|word| word.starts_with("TOOLHOLD_"))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(page.contains(name), "docs/configuration.md lacks {name}");
    }
}
