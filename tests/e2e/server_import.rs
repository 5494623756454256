//! `berth mcp import`: servers move from the files of clients behind Berth.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;

use crate::support::Cli;

/// A credential, which must not be found in the repository as it is.
fn token() -> String {
    ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat()
}

fn write(cli: &Cli, path: &str, text: &str) -> PathBuf {
    let path = cli.root.path().join(path);
    fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder is made");
    fs::write(&path, text).expect("a file is written");
    path
}

/// A client's file with a server that works, one with a credential in its arguments, and Berth.
fn cursor(cli: &Cli) -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/small.py");
    let start = format!(
        "import os, runpy; print(os.environ['GITHUB_TOKEN'][-6:], os.environ['LEVEL'], \
         file=__import__('sys').stderr); runpy.run_path('{script}')['main']()"
    );
    let servers = json!({
        "Small": {
            "command": "/usr/bin/python3", "args": ["-c", start],
            "env": { "GITHUB_TOKEN": token(), "LEVEL": "info" },
        },
        "leaky": { "command": "x", "args": ["--token", token()] },
        "berth": { "command": "/usr/bin/berth", "args": ["serve"] },
        "kept": { "command": "other" },
    });
    write(cli, ".cursor/mcp.json", &json!({ "mcpServers": servers, "theme": "dark" }).to_string())
}

#[test]
fn servers_move_behind_berth_and_their_credentials_into_secrets() {
    let cli = Cli::new();
    let file = cursor(&cli);
    let own = write(&cli, "config/berth.toml", "# mine\n[tools]\nautonomy = \"full\"\n");
    // Nobody was asked, so nothing is done.
    assert_ne!(cli.run(&["mcp", "import", "cursor"]).code, 0);
    let folder = cli.root.path().join("config/secrets");
    assert!(!folder.exists());
    let shown = cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0).stdout;
    assert!(!shown.contains(&token()), "{shown}");
    for line in ["[mcp.servers.small]", "leaky is left out", "it is Berth itself", "approve small"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let text = fs::read_to_string(&own).expect("it is there");
    assert!(text.starts_with("# mine\n") && !text.contains(&token()), "{text}");
    let secret = folder.join("small-GITHUB_TOKEN");
    assert_eq!(fs::read_to_string(&secret).expect("it is there"), token());
    for (path, mode) in [(&secret, 0o600), (&folder, 0o700)] {
        let found = fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }
    // What was imported isn't imported twice.
    let again = cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0).stdout;
    assert!(again.contains("has [mcp.servers.small] already"), "{again}");
    // It works with its secret, once it is approved and sees its script.
    let grant = concat!(
        "allowed_paths = [{ path = \"",
        env!("CARGO_MANIFEST_DIR"),
        "/servers\", access = \"read\" }]\n"
    );
    let table = "[mcp.servers.small]\n";
    fs::write(&own, text.replace(table, &format!("{table}{grant}"))).expect("it is written");
    cli.run(&["mcp", "approve", "small", "--yes"]).ends(0);
    let called = cli.run(&["call", "small__version"]).ends(0).stdout;
    assert!(called.contains("version"), "{called}");
    // Berth takes its place in the client's file, and only there.
    cli.run(&["mcp", "config", "cursor", "--write", "--replace", "--name", "mine"]).ends(0);
    let left: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("it is there")).expect("JSON");
    let mut names: Vec<&String> = left["mcpServers"].as_object().expect("a table").keys().collect();
    names.sort();
    assert_eq!(names, ["berth", "leaky", "mine"], "what Berth doesn't have stays");
    assert_eq!(left["theme"], "dark");
}

#[test]
fn servers_of_a_repository_are_shown_and_not_started() {
    let cli = Cli::new();
    let hostile = json!({ "mcpServers": {
        "evil\u{1b}[2J": { "command": "x" },
        "sly": { "command": "/bin/sh", "args": ["-c", "touch started"], "env": { "A": "${HOME}" } },
        "odd": { "command": "x", "env": { "a.token": token() } },
        "odder": { "url": "http://h.example/mcp" },
        "at": { "type": "http", "url": "https://h.example/mcp", "headers": { "X-Team": "blue" } },
    } });
    write(&cli, "work/.mcp.json", &hostile.to_string());
    cli.configure("");
    let found = cli.run(&["mcp", "import", "--yes"]).ends(0).stdout;
    assert!(!found.contains("sly"), "a project's file is read if that is asked for: {found}");
    let shown = cli.run(&["mcp", "import", "claude-code", "--project", "--yes"]).ends(0).stdout;
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.contains("touch started") && shown.contains("env = \"HOME\""), "{shown}");
    for odd in ["odd is left out", "odder is left out"] {
        assert!(shown.contains(odd), "{odd}: {shown}");
    }
    cli.run(&["tools"]).ends(0);
    cli.run(&["call", "sly__x"]).ends(2);
    assert!(!cli.work().join("started").exists());
    let listed = cli.run(&["mcp", "list"]).ends(0).stdout;
    assert_eq!(listed.matches("unapproved").count(), 3, "{listed}");
}

#[test]
fn tools_that_are_left_out_are_not_counted_as_approved() {
    let cli = Cli::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/servers");
    let start = format!(
        "import runpy; it = runpy.run_path('{folder}/small.py'); tool = lambda name: dict(name=name, \
         inputSchema=dict(type='object')); it['ANSWERS']['tools/list'] = lambda: \
         dict(tools=[tool(name) for name in ('a', 'b', 'x' * 64, 'C.d', 'C_d')]); it['main']()"
    );
    let own = format!(
        "[mcp.servers.s]\ncommand = \"/usr/bin/python3\"\nargs = [\"-c\", {start:?}]\n\
         allowed_paths = [{{ path = {folder:?}, access = \"read\" }}]\n"
    );
    write(&cli, "config/berth.toml", &own);
    let approved = cli.run(&["mcp", "approve", "s", "--yes"]).ends(0).stdout;
    assert!(approved.contains("Approved, with 2 tools; 3 left out."), "{approved}");
    let tools = cli.run(&["tools"]).ends(0).stdout;
    assert_eq!(tools.matches("s__").count(), 2, "{tools}");
    let doctor = cli.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("is left out: ") && doctor.contains("; 2 more are left out"),
        "{doctor}"
    );
}
