//! `toolhold mcp import`: servers move from the files of clients behind Toolhold.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};
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

/// A client's file with a server that works, one with a credential in its arguments, and Toolhold.
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
        "toolhold": { "command": "/usr/bin/toolhold", "args": ["serve"] },
        "kept": { "command": "other" },
    });
    write(cli, ".cursor/mcp.json", &json!({ "mcpServers": servers, "theme": "dark" }).to_string())
}

#[test]
fn servers_move_behind_toolhold_and_their_credentials_into_secrets() {
    let cli = Cli::new();
    let file = cursor(&cli);
    let own = write(&cli, "config/toolhold.toml", "# mine\n[tools]\nautonomy = \"full\"\n");
    // Nobody was asked, so nothing is done.
    assert_ne!(cli.run(&["mcp", "import", "cursor"]).code, 0);
    let folder = cli.root.path().join("config/secrets");
    assert!(!folder.exists());
    let shown = cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0).stdout;
    assert!(!shown.contains(&token()), "{shown}");
    for line in [
        "[mcp.servers.small]",
        "args = [\"--token\", \"${secret:ARGUMENT_2}\"]",
        "the server is Toolhold itself",
        "approve small",
    ] {
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
    assert!(again.contains("already has [mcp.servers.small]"), "{again}");
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
    // Toolhold takes its place in the client's file, and only there.
    cli.run(&["connect", "cursor", "--yes", "--replace", "--name", "mine"]).ends(0);
    let left: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("it is there")).expect("JSON");
    let mut names: Vec<&String> = left["mcpServers"].as_object().expect("a table").keys().collect();
    names.sort();
    assert_eq!(names, ["kept", "leaky", "mine", "toolhold"], "what doesn't work here yet stays");
    assert_eq!(left["theme"], "dark");
}

#[test]
fn fifo_or_device_of_a_repository_is_refused_at_once() {
    let cli = Cli::new();
    for (client, file) in [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json")] {
        let path = write(&cli, &format!("work/{file}"), "");
        fs::remove_file(&path).expect("it is removed");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO is made");
        let shown = cli.run(&["mcp", "import", client, "--project", "--yes"]);
        assert!(
            shown.code != 0 && shown.stderr.contains("isn't a regular file"),
            "{}",
            shown.stderr
        );
        fs::remove_file(&path).expect("it is removed");
        let own = write(&cli, "own.json", r#"{"mcpServers":{"a":{"command":"x"}}}"#);
        std::os::unix::fs::symlink(&own, &path).expect("a link is made");
        let shown = cli.run(&["mcp", "import", client, "--project", "--yes"]);
        assert!(shown.code != 0 && !shown.stdout.contains("mcp.servers"), "{}", shown.stdout);
        fs::remove_file(&path).expect("it is removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link is made");
        let shown = cli.run(&["mcp", "import", client, "--project", "--yes"]);
        assert!(
            shown.code != 0
                && shown.stderr.contains("is a link, which may lead to one of your own files"),
            "{}",
            shown.stderr
        );
    }

    let own = write(&cli, "own/mcp.json", r#"{"mcpServers":{"a":{"command":"x"}}}"#);
    let folder = cli.work().join(".cursor");
    fs::remove_dir_all(&folder).expect("it is removed");
    std::os::unix::fs::symlink(own.parent().expect("a folder"), &folder).expect("a link is made");
    let shown = cli.run(&["mcp", "import", "cursor", "--project", "--yes"]);
    assert!(shown.code != 0 && shown.stderr.contains("is a link"), "{}", shown.stderr);
    assert!(!shown.stdout.contains("mcp.servers"), "{}", shown.stdout);
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
    for odd in ["odd is left out", "odder is left out", "the name isn't valid"] {
        assert!(shown.contains(odd), "{odd}: {shown}");
    }
    cli.run(&["tools"]).ends(0);
    cli.run(&["call", "sly__x"]).ends(2);
    assert!(!cli.work().join("started").exists());
    let listed = cli.run(&["mcp", "list"]).ends(0).stdout;
    assert_eq!(listed.matches("unapproved").count(), 2, "{listed}");
}

/// A client's file with one server `s` that works and has a key.
fn one_server(key: &str) -> String {
    let script = format!("{}\nmain()\n", include_str!("../servers/small.py"));
    let server = json!({
        "command": "/usr/bin/python3", "args": ["-c", script], "env": { "API_KEY": key },
    });
    json!({ "mcpServers": { "s": server } }).to_string()
}

#[test]
fn no_file_with_a_secret_is_replaced() {
    let cli = Cli::new();
    let (first, second) = (token(), token().replace("012345", "543210"));
    let own = write(&cli, "config/toolhold.toml", "# Read the guide first.\n\n# above\n[tools]\n");
    let file = write(&cli, ".cursor/mcp.json", &one_server(&first));
    let users = write(&cli, "config/secrets/s-API_KEY", "the user's own");
    let folder = users.parent().expect("a folder");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("they are set");
    cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0);
    let waits = cli.run(&["connect", "cursor", "--yes", "--replace"]).ends(0).stderr;
    assert!(
        waits.contains("until the server is approved: run `toolhold mcp approve s`"),
        "{waits}"
    );
    assert!(fs::read_to_string(&file).expect("it is there").contains("API_KEY"));
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let moved = cli.run(&["connect", "cursor", "--yes", "--replace"]).ends(0);
    assert!(!moved.stdout.contains(&first) && moved.stdout.contains("[REDACTED:"));
    assert!(!fs::read_to_string(&file).expect("it is there").contains("API_KEY"));
    let removed = cli.run(&["mcp", "remove", "s"]).ends(0).stderr;
    assert!(removed.contains("config/secrets/s-API_KEY-2"), "{removed}");
    let text = fs::read_to_string(&own).expect("it is there");
    assert!(text.starts_with("# Read the guide first.\n\n# above\n[tools]\n"), "{text}");
    write(&cli, ".gemini/settings.json", &one_server(&second));
    cli.run(&["mcp", "import", "gemini", "--yes"]).ends(0);
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    for (name, value) in [("", "the user's own"), ("-2", &first), ("-3", &second)] {
        let path = folder.join(format!("s-API_KEY{name}"));
        assert_eq!(fs::read_to_string(path).expect("it is there"), value, "{name}");
    }
    assert_eq!(fs::read_dir(folder).expect("it is there").count(), 3);
    // Another client's server of this name has another key, which would be lost.
    let copy = write(&cli, ".codeium/windsurf/mcp_config.json", &one_server(&first));
    let kept = cli.run(&["connect", "windsurf", "--yes", "--replace"]).ends(0);
    assert!(kept.stderr.contains("`s` stays in the file") && kept.stderr.contains("`API_KEY`"));
    assert!(!kept.stdout.contains(&first), "{}", kept.stdout);
    assert!(fs::read_to_string(copy).expect("it is there").contains(&first));
}

#[test]
fn what_is_not_taken_over_is_named_and_what_is_off_stays_off() {
    let cli = Cli::new();
    let own = write(&cli, "config/toolhold.toml", "");
    let codex = "# Model first.\n\n# the old one\n[mcp_servers.old]\ncommand = \"x\"\nenabled = false\n\n\
                 [mcp_servers.kept] # kept\ncommand = \"/usr/bin/toolhold\"\n";
    let codex = write(&cli, ".codex/config.toml", codex);
    let script = format!("{}\nmain()\n", include_str!("../servers/small.py"));
    let works = ["-c", script.as_str()];
    let gemini = json!({ "mcpServers": {
        "My.Srv": { "command": "/usr/bin/python3", "args": works, "cwd": "/x", "trust": true },
        "my_srv": { "command": "z" },
        "stream": { "url": "https://h.example/sse" },
    } });
    write(&cli, ".gemini/settings.json", &gemini.to_string());
    write(&cli, ".cursor/mcp.json", "{\n \"mcpServers\": x }");
    // A broken file holds up no other, and isn't forgotten.
    let all = cli.run(&["mcp", "import", "--yes"]).ends(2);
    assert!(all.stderr.contains(".cursor/mcp.json: line 2"), "{}", all.stderr);
    for line in [
        "not imported: `cwd`, `trust`",
        "my_srv is left out: the name would be `my-srv`, which `My.Srv` in the same file also gets",
        "stream is left out: the server uses the old SSE transport",
    ] {
        assert!(all.stdout.contains(line), "{line}: {}", all.stdout);
    }
    let text = fs::read_to_string(&own).expect("it is there");
    assert!(text.contains("command = \"x\"\nenabled = false\n"), "{text}");
    let listed = cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("disabled") && listed.contains("unapproved"), "{listed}");
    cli.run(&["connect", "codex", "--yes", "--replace"]).ends(0);
    let left = fs::read_to_string(codex).expect("it is there");
    assert!(left.starts_with("# Model first.\n\n[mcp_servers.kept] # kept\n"), "{left}");
    cli.run(&["mcp", "approve", "my-srv", "--yes"]).ends(0);
    let taken = cli.run(&["connect", "gemini", "--yes", "--replace"]).ends(0).stderr;
    assert!(taken.contains("`My.Srv` is removed") && taken.contains("`cwd`, `trust`"), "{taken}");
}

/// Its answers to what it doesn't know are empty, in place of errors.
#[test]
fn server_that_answers_everything_is_approved_and_called_in_the_same_way() {
    let cli = Cli::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/servers");
    let start = format!(
        "import runpy; main = runpy.run_path('{folder}/small.py')['main']\n\
         class Any(dict):\n  get = lambda self, name: dict.get(self, name, lambda: {{}})\n\
         main.__globals__['ANSWERS'] = Any(main.__globals__['ANSWERS'])\nmain()"
    );
    cli.configure(&format!(
        "[mcp.servers.s]\ncommand = \"/usr/bin/python3\"\nargs = [\"-c\", {start:?}]\n\
         allowed_paths = [{{ path = {folder:?}, access = \"read\" }}]\n"
    ));
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let called = cli.run(&["call", "--yes", "s__version"]).ends(0).stdout;
    assert!(called.contains("version"), "{called}");
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
    write(&cli, "config/toolhold.toml", &own);
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

#[test]
fn import_says_where_it_looked() {
    let cli = Cli::new();
    cli.configure("");
    let none = cli.run(&["mcp", "import"]).ends(0).stdout;
    assert!(none.contains(".cursor/mcp.json") && none.contains(".codex/config.toml"), "{none}");
    let zed = cli.run(&["mcp", "import", "zed", "--project"]).ends(2).stderr;
    assert!(zed.contains("Zed has no file in a project"), "{zed}");
}

#[test]
fn server_that_import_would_refuse_is_not_added() {
    let cli = Cli::new();
    cli.configure("");
    let own = cli.root.path().join("config/toolhold.toml");
    let before = fs::read_to_string(&own).ok();
    let at = format!("https://h.example/mcp?api_key={}", token());
    for (line, reason) in [
        (&["--", "foo", "--token", &token()][..], "argument 2 looks like a credential"),
        (&["--url", &at], "the address seems to contain a credential"),
        (&["--", ""], "the command is empty"),
        (&[], "--url"),
    ] {
        let refused = cli.run(&[&["mcp", "add", "s"], line].concat()).ends(2).stderr;
        assert!(refused.contains(reason) && !refused.contains(&token()), "{refused}");
        assert_eq!(fs::read_to_string(&own).ok(), before, "{line:?}");
    }
}

#[test]
fn server_that_looks_like_another_is_left_out_and_an_address_with_a_credential_is_told() {
    let cli = Cli::new();
    cli.configure("[mcp.servers.mine]\ncommand = \"/usr/bin/mine\"\n");
    let hosted = "https://h.example/s/0a1b2c3d4e5f60718293/mcp";
    let servers = json!({
        "m1ne": { "command": "other" },
        "\u{431}ash": { "command": "other" },
        "hosted": { "url": hosted },
    });
    write(&cli, ".cursor/mcp.json", &json!({ "mcpServers": servers }).to_string());
    let shown = cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0).stdout;
    for line in [
        "the name looks like the name of your server `mine`",
        "the name isn't valid",
        "may contain a credential",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let own = fs::read_to_string(cli.root.path().join("config/toolhold.toml")).expect("a file");
    assert!(own.contains(hosted) && !own.contains("other"), "{own}");
}
