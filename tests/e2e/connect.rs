//! `toolhold connect`: the clients' files, and taking a change back.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Cli, Ended, toolhold};

fn program() -> Value {
    json!(toolhold().canonicalize().expect("it is there"))
}

/// The content of a file without comments.
fn read(path: &PathBuf) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn each_client_s_file_starts_this_binary() {
    let cli = Cli::new();
    let all = cli.run(&["connect", "--json"]).ends(0).json();
    let all = all.as_array().expect("a list");
    assert!(all.len() >= 10, "{all:?}");
    let listed = cli.run(&["connect"]).ends(0).stdout;
    assert!(listed.contains("set by `claude mcp add`"), "{listed}");
    for client in all {
        let name = client["client"].as_str().expect("it has a name");
        assert!(listed.contains(name), "{listed}");
        let home = cli.work().parent().expect("it lies in a folder").to_owned();
        let files = [
            (vec![], client["user"].as_str().map(PathBuf::from)),
            (vec!["--project"], client["project"].as_str().map(|file| cli.work().join(file))),
        ];
        for (flags, file) in files {
            let write =
                [&["connect", name, "--yes"], &flags[..], &["--", "--allow", "/data"]].concat();
            let Some(file) = file else { continue };
            assert!(
                file.starts_with(&home) || file.starts_with(cli.root.path()),
                "{}",
                file.display()
            );
            let written = cli.run(&write).ends(0);
            assert!(
                written.stdout.contains("+") && written.stdout.contains("serve"),
                "the change is shown: {}",
                written.stdout
            );
            let text = fs::read_to_string(&file).expect("it is written");
            for told in
                [program().as_str().expect("is text"), "serve", "--allow", "/data", "toolhold"]
            {
                assert!(
                    text.contains(&format!("\"{told}\"")) || text.contains(&format!(".{told}]")),
                    "{name}: {told} is not in {text}"
                );
            }
            assert_eq!(
                fs::metadata(&file).expect("it is there").permissions().mode() & 0o077,
                0,
                "{name}: nobody else reads it"
            );
            let again = cli.run(&write).ends(0);
            assert_eq!(
                (again.stdout.as_str(), fs::read_to_string(&file).expect("it is there")),
                ("", text),
                "{name}: it is done once"
            );
            assert!(again.stderr.contains("connected already"), "{}", again.stderr);
            let undo = [&["connect", name, "--undo", "--yes"], &flags[..]].concat();
            let undone = cli.run(&undo).ends(0);
            assert!(undone.stdout.contains("-"), "{name}: the change is shown");
            assert!(undone.stderr.contains("Removed "), "{name}: {}", undone.stderr);
            assert!(!file.exists(), "{name}: it is gone");
            assert!(cli.run(&undo).ends(0).stderr.contains("nothing to undo"), "{name}");
        }
    }
}

#[test]
fn printed_configuration_can_be_pasted() {
    let cli = Cli::new();
    let cursor = cli.run(&["connect", "cursor", "--print", "--name", "mine"]).ends(0);
    assert_eq!(
        cursor.json(),
        json!({ "mcpServers": { "mine": { "command": program(), "args": ["serve"] } } })
    );
    assert!(cursor.stderr.contains(".cursor/mcp.json"), "{}", cursor.stderr);
    let code = cli.run(&["connect", "claude-code", "--print"]).ends(0).stdout;
    assert_eq!(
        code,
        format!(
            "claude mcp add --scope user toolhold -- {} serve\n",
            program().as_str().expect("is text")
        )
    );
    let codex = cli.run(&["connect", "codex", "--print"]).ends(0).stdout;
    assert!(codex.starts_with("[mcp_servers.toolhold]\ncommand = \""), "{codex}");
    let odd = cli
        .run(&["connect", "claude-code", "--print", "--", "--allow", "it's here"])
        .ends(0)
        .stdout;
    let here = cli.work().display().to_string();
    assert!(
        odd.ends_with(&format!(" serve --allow '{here}/it'\\''s here'\n")),
        "a path is the one that it is here: {odd}"
    );
    let kept = cli
        .run(&[
            "connect",
            "cursor",
            "--print",
            "--",
            "--allow=sub",
            "--allow-read",
            "/data",
            "--set",
            "tools.call=9",
        ])
        .ends(0)
        .json();
    let kept = &kept["mcpServers"]["toolhold"]["args"];
    assert_eq!(
        *kept,
        json!([
            "serve",
            format!("--allow={here}/sub"),
            "--allow-read",
            "/data",
            "--set",
            "tools.call=9"
        ])
    );
    assert!(!cli.root.path().join(".cursor").exists(), "nothing is written unasked");
}

#[test]
fn running_server_is_reached_without_a_token_in_any_file() {
    let cli = Cli::new();
    let url = "http://127.0.0.1:8300/mcp";
    for client in cli.run(&["connect", "--json"]).ends(0).json().as_array().expect("a list") {
        let name = client["client"].as_str().expect("it has a name");
        let told = cli.run(&["connect", name, "--print", "--http", url]);
        if client["http"] == false {
            assert!(told.ends(2).stderr.contains("token"), "{name}");
            continue;
        }
        let told = told.ends(0).stdout;
        let own = cli.run(&["connect", name, "--print", "--http", url, "--oauth"]).ends(0).stdout;
        assert!(
            own.contains(url) && !own.contains("TOKEN") && !own.contains("uthorization"),
            "{name}: {own}"
        );
        assert!(
            told.contains(url)
                && told.contains("MCP_TOOLHOLD_TOKEN")
                && !told.contains("\"serve\""),
            "{name}: {told}"
        );
    }
    // From a process to a URL: nothing of the process is left.
    let connected = cli.run(&["connect", "cursor", "--yes"]).ends(0);
    let told = connected.stdout + &connected.stderr;
    assert!(told.contains("add \"toolhold:*\" to `mcpAllowlist`"), "{told}");
    cli.run(&["connect", "cursor", "--yes", "--http", url, "--token-variable", "MINE"]).ends(0);
    let entry = json!({ "url": url, "headers": { "Authorization": "Bearer ${env:MINE}" } });
    assert_eq!(
        read(&cli.root.path().join(".cursor/mcp.json")),
        json!({ "mcpServers": { "toolhold": entry } })
    );
}

#[test]
fn other_content_of_a_client_s_file_stays() {
    let cli = Cli::new();
    let file = cli.root.path().join(".config/zed/settings.json");
    fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder is made");
    // Kept elsewhere, behind a link, and for others to read.
    let kept = cli.root.path().join("dotfiles.json");
    let before = "{\n\t// mine\n\t\"theme\": \"dark\",\n}\n";
    fs::write(&kept, before).expect("it is written");
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).expect("it is allowed");
    symlink(&kept, &file).expect("a link is made");
    cli.run(&["connect", "zed", "--yes"]).ends(0);
    assert!(file.symlink_metadata().expect("it is there").is_symlink(), "the link stays");
    let after = fs::read_to_string(&kept).expect("it is there");
    assert!(
        after.starts_with("{\n\t// mine\n\t\"theme\": \"dark\",\n\t\"context_servers\": {"),
        "{after}"
    );
    assert_eq!(fs::metadata(&kept).expect("it is there").permissions().mode() & 0o777, 0o644);
}

#[test]
fn unparsable_or_linked_files_stay_unchanged() {
    let cli = Cli::new();
    fs::create_dir(cli.work().join(".cursor")).expect("a folder is made");
    let file = cli.work().join(".cursor/mcp.json");
    let write = ["connect", "cursor", "--project", "--yes"];
    for wrong in [&b"{\n  \"mcpServers\": {,}\n}"[..], b"[]", b"{ \"mcpServers\": 7 }", b"\xff\xfe"]
    {
        fs::write(&file, wrong).expect("it is written");
        let refused = cli.run(&write).ends(2);
        assert!(refused.stderr.contains("was not changed"), "{}", refused.stderr);
        assert_eq!(fs::read(&file).expect("it is there"), wrong);
    }
    fs::write(&file, "{\n  \"mcpServers\": {,}\n}").expect("it is written");
    assert!(cli.run(&write).ends(2).stderr.contains("line 2"));

    // The content of a repository must not lead to the user's own files.
    let outside = cli.root.path().join("settings.json");
    fs::write(&outside, "{}").expect("it is written");
    fs::remove_file(&file).and_then(|()| symlink(&outside, &file)).expect("a link is made");
    cli.run(&write).ends(2);
    fs::remove_dir_all(cli.work().join(".cursor"))
        .and_then(|()| symlink(cli.root.path(), cli.work().join(".cursor")))
        .expect("a link is made");
    cli.run(&write).ends(2);
    assert_eq!(fs::read_to_string(&outside).expect("it is there"), "{}");
    assert!(!cli.root.path().join("mcp.json").exists());
}

#[test]
fn wrong_arguments_are_refused_before_a_client_uses_them() {
    let cli = Cli::new();
    for (wrong, told) in [
        (&["curser"][..], "did you mean `cursor`?"),
        (&["cursor", "--name", "a b"], "--name"),
        (&["cursor", "--http", "127.0.0.1:8300"], "URL"),
        (
            &["cursor", "--http", "http://x/mcp", "--token-variable", "s3cret-token"],
            "never the token",
        ),
        (&["cursor", "--http", "http://x/mcp", "--", "--allow", "/data"], "already running"),
        (&["cursor", "--allow", "/data"], "go after `--`"),
        (&["cursor", "--", "--http", "8000"], "--http URL"),
        (&["cursor", "--", "--alow", "/data"], "--alow"),
        (&["windsurf", "--project"], "no file in a project"),
        (&["--yes"], "CLIENT"),
        (&["cursor", "--undo", "--http", "http://x/mcp"], "--undo"),
    ] {
        let ended = cli.run(&[&["connect"], wrong].concat()).ends(2);
        assert!(ended.stderr.contains(told), "{wrong:?}: {}", ended.stderr);
    }
}

/// A file of a user, as it looks in reality, and what `--only-toolhold` puts into it.
struct Fixture {
    client: &'static str,
    file: &'static str,
    text: &'static str,
    told: &'static [&'static str],
}

const FIXTURES: [Fixture; 5] = [
    Fixture {
        client: "codex",
        file: ".codex/config.toml",
        text: "# mine\nmodel = \"gpt-5\" # so\n\n[projects.\"/home/u/p\"]\ntrust_level = \"trusted\"\n\n# about it\n[mcp_servers.other]\ncommand = \"o\"\n",
        told: &["approval_mode = \"approve\"", "shell_tool = false", "web_search = \"disabled\""],
    },
    Fixture {
        client: "claude-code",
        file: ".claude/settings.json",
        text: "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(npm test:*)\"\n    ]\n  },\n  \"model\": \"opus\"\n}\n",
        told: &["mcp__toolhold", "\"deny\": [", "\"WebFetch\"", "Bash(npm test:*)"],
    },
    Fixture {
        client: "gemini",
        file: ".gemini/settings.json",
        text: "{\n  // mine\n  \"tools\": { \"exclude\": [\"save_memory\"] },\n  \"mcpServers\": { \"o\": { \"command\": \"o\" } }\n}",
        told: &["\"trust\": true", "save_memory", "run_shell_command", "// mine"],
    },
    Fixture {
        client: "qwen",
        file: ".qwen/settings.json",
        text: "{}",
        told: &["\"trust\": true", "\"deny\": [", "run_shell_command"],
    },
    Fixture {
        client: "opencode",
        file: ".config/opencode/opencode.json",
        text: "{\n\t\"$schema\": \"https://opencode.ai/config.json\",\n\t\"permission\": \"ask\", // all\n}\n",
        told: &["\"toolhold_*\": \"allow\"", "\"*\": \"ask\"", "\"bash\": \"deny\"", "// all"],
    },
];

#[test]
fn permission_and_own_tools_are_set_and_taken_back_to_the_byte() {
    for fixture in &FIXTURES {
        let cli = Cli::new();
        let client = fixture.client;
        let file = cli.root.path().join(fixture.file);
        fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder is made");
        fs::write(&file, fixture.text).expect("it is written");
        let asked = cli.run(&["connect", client]).ends(3);
        assert!(asked.stderr.contains("--yes"), "{client}: {}", asked.stderr);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), fixture.text, "{client}");

        // The second command adds to the first, and one command takes both back.
        cli.run(&["connect", client, "--yes"]).ends(0);
        cli.run(&["connect", client, "--yes", "--only-toolhold"]).ends(0);
        let text = fs::read_to_string(&file).expect("it is there");
        for told in fixture.told {
            assert!(text.contains(told), "{client}: {told} is not in {text}");
        }
        cli.run(&["connect", client, "--undo", "--yes"]).ends(0);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), fixture.text, "{client}");
    }
}

#[test]
fn undo_keeps_what_others_changed_since() {
    let cli = Cli::new();
    let file = cli.root.path().join(".cursor/mcp.json");
    cli.run(&["connect", "cursor", "--yes"]).ends(0);
    let text = fs::read_to_string(&file).expect("it is there");
    let edited = text.replace(
        "\"mcpServers\": {",
        "// theirs\n  \"mcpServers\": {\n    \"other\": { \"command\": \"o\" },",
    );
    fs::write(&file, &edited).expect("it is written");
    cli.run(&["connect", "cursor", "--undo", "--yes"]).ends(0);
    let left = fs::read_to_string(&file).expect("it stays");
    assert!(left.contains("// theirs") && left.contains("\"other\""), "{left}");
    assert!(!left.contains("toolhold"), "{left}");
}

#[test]
fn undo_puts_back_a_server_that_connect_replaced() {
    let cli = Cli::new();
    let file = cli.root.path().join(".cursor/mcp.json");
    fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder is made");
    let before = "{ \"mcpServers\": { \"toolhold\": { \"command\": \"old\" } } }\n";
    fs::write(&file, before).expect("it is written");
    cli.run(&["connect", "cursor", "--yes"]).ends(0);
    assert_eq!(read(&file)["mcpServers"]["toolhold"]["command"], program());
    cli.run(&["connect", "cursor", "--undo", "--yes"]).ends(0);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), before);
}

/// Runs a command with only the programs of this folder in `PATH`.
#[track_caller]
fn run_with(cli: &Cli, bin: &PathBuf, line: &[&str]) -> Ended {
    let mut command = cli.command(line);
    command.env("PATH", bin);
    Ended::from_output(command.output().expect("it starts"))
}

/// Makes a `claude` that writes its arguments into a log. Returns the folder of the program, and
/// the log.
fn claude(cli: &Cli) -> (PathBuf, PathBuf) {
    let bin = cli.root.path().join("bin");
    fs::create_dir(&bin).expect("a folder is made");
    let claude = bin.join("claude");
    let log = cli.root.path().join("claude.log");
    let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\n", log.display());
    fs::write(&claude, script).expect("it is written");
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).expect("it is allowed");
    (bin, log)
}

#[test]
fn undo_takes_back_every_name_or_the_given_one() {
    let cli = Cli::new();
    let (bin, log) = claude(&cli);
    let settings = cli.root.path().join(".claude/settings.json");
    let servers = cli.root.path().join(".cursor/mcp.json");
    for client in ["claude-code", "cursor"] {
        for name in ["one", "two", "three"] {
            run_with(&cli, &bin, &["connect", client, "--name", name, "--yes"]).ends(0);
        }
        let line = ["connect", client, "--name", "two", "--undo", "--yes"];
        run_with(&cli, &bin, &line).ends(0);
        let again = run_with(&cli, &bin, &line).ends(0).stderr;
        assert!(again.contains("nothing to undo"), "{again}");
    }
    assert_eq!(read(&settings)["permissions"]["allow"], json!(["mcp__one", "mcp__three"]));
    let left = read(&servers)["mcpServers"].as_object().expect("a table").clone();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["one", "three"]);

    for client in ["claude-code", "cursor"] {
        run_with(&cli, &bin, &["connect", client, "--undo", "--yes"]).ends(0);
    }
    let ran = fs::read_to_string(&log).expect("it ran");
    let removed: Vec<&str> =
        ran.lines().filter_map(|line| line.strip_prefix("mcp remove --scope user ")).collect();
    assert_eq!(removed, ["two", "three", "one"]);
    assert!(!settings.exists() && !servers.exists());
}

#[test]
fn claude_code_s_own_command_is_run() {
    let cli = Cli::new();
    let (bin, log) = claude(&cli);
    let connected = run_with(&cli, &bin, &["connect", "claude-code", "--yes"]).ends(0);
    let program = program();
    let add = format!("mcp add --scope user toolhold -- {} serve", program.as_str().expect("text"));
    assert!(connected.stdout.contains(&format!("$ claude {add}")), "{}", connected.stdout);
    assert_eq!(fs::read_to_string(&log).expect("it ran"), format!("{add}\n"));
    let settings = cli.root.path().join(".claude/settings.json");
    assert_eq!(read(&settings), json!({ "permissions": { "allow": ["mcp__toolhold"] } }));

    // Claude Code has it now.
    let servers = json!({ "toolhold": { "type": "stdio", "command": program, "args": ["serve"] } });
    let own = json!({ "numStartups": 3, "mcpServers": servers }).to_string();
    fs::write(cli.root.path().join(".claude.json"), own).expect("it is written");
    assert!(
        run_with(&cli, &bin, &["connect", "claude-code", "--yes"])
            .ends(0)
            .stderr
            .contains("connected already")
    );
    let listed = run_with(&cli, &bin, &["connect", "--json"]).ends(0).json();
    assert_eq!(
        (&listed[0]["client"], &listed[0]["found"], &listed[0]["connected"]),
        (&json!("claude-code"), &json!(true), &json!(true)),
        "{listed}"
    );
    run_with(&cli, &bin, &["connect", "claude-code", "--undo", "--yes"]).ends(0);
    let ran = fs::read_to_string(&log).expect("it ran");
    assert_eq!(ran.lines().last(), Some("mcp remove --scope user toolhold"), "{ran}");
    assert!(!settings.exists());

    // Without the program, the line is shown, and nothing fails.
    fs::remove_file(cli.root.path().join(".claude.json")).expect("it goes");
    let shown = cli.run(&["connect", "claude-code", "--yes"]).ends(0).stderr;
    assert!(shown.contains("isn't in PATH") && shown.contains(&add), "{shown}");
}

#[test]
fn change_is_shown_without_credentials_and_asked_about() {
    let cli = Cli::new();
    let file = cli.root.path().join(".cursor/mcp.json");
    fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder is made");
    let secret = "c4ca4238a0b923820dcc509a6f75849b";
    let before = format!(
        "{{ \"mcpServers\": {{ \"o\": {{ \"command\": \"o\", \"env\": {{ \"API_TOKEN\": \"{secret}\" }} }} }} }}\n"
    );
    fs::write(&file, &before).expect("it is written");
    let shown = cli.run(&["connect", "cursor"]).ends(3);
    assert!(shown.stdout.contains("serve") && !shown.stdout.contains(secret), "{}", shown.stdout);
    let shown = cli.run(&["connect", "cursor", "--json"]).ends(0);
    assert!(!shown.stdout.contains(secret), "{}", shown.stdout);
    assert_eq!(shown.json()["written"], false);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), before);

    if let Some(ended) = cli.typed(&["connect", "cursor"], "n\n") {
        assert!(ended.ends(3).stdout.contains("Nothing was changed"));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), before);
    }
    let Some(ended) = cli.typed(&["connect", "gemini"], "y\n\n") else { return };
    let shown = ended.ends(0).stdout;
    assert!(shown.contains("Disable Gemini CLI's own tools?"), "{shown}");
    let settings = read(&cli.root.path().join(".gemini/settings.json"));
    assert_eq!(settings["mcpServers"]["toolhold"]["trust"], true);
    assert!(settings["tools"]["exclude"].as_array().is_some_and(|tools| tools.len() > 5));
}
