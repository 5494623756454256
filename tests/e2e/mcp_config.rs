//! `toolhold mcp config`: the clients' configuration and files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Cli, toolhold};

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
    let all = cli.run(&["mcp", "config", "--json"]).ends(0).json();
    let all = all.as_array().expect("a list");
    assert!(all.len() >= 10, "{all:?}");
    let listed = cli.run(&["mcp", "config"]).ends(0).stdout;
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
                [&["mcp", "config", name, "--write"], &flags[..], &["--", "--allow", "/data"]]
                    .concat();
            let Some(file) = file else {
                cli.run(&write).ends(2);
                continue;
            };
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
        }
    }
}

#[test]
fn printed_configuration_can_be_pasted() {
    let cli = Cli::new();
    let cursor = cli.run(&["mcp", "config", "cursor", "--name", "mine"]).ends(0);
    assert_eq!(
        cursor.json(),
        json!({ "mcpServers": { "mine": { "command": program(), "args": ["serve"] } } })
    );
    assert!(cursor.stderr.contains(".cursor/mcp.json"), "{}", cursor.stderr);
    let code = cli.run(&["mcp", "config", "claude-code"]).ends(0).stdout;
    assert_eq!(
        code,
        format!(
            "claude mcp add --scope user toolhold -- {} serve\n",
            program().as_str().expect("is text")
        )
    );
    let codex = cli.run(&["mcp", "config", "codex"]).ends(0).stdout;
    assert!(codex.starts_with("[mcp_servers.toolhold]\ncommand = \""), "{codex}");
    let odd =
        cli.run(&["mcp", "config", "claude-code", "--", "--allow", "it's here"]).ends(0).stdout;
    let here = cli.work().display().to_string();
    assert!(
        odd.ends_with(&format!(" serve --allow '{here}/it'\\''s here'\n")),
        "a path is the one that it is here: {odd}"
    );
    let kept = cli
        .run(&[
            "mcp",
            "config",
            "cursor",
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
    for client in cli.run(&["mcp", "config", "--json"]).ends(0).json().as_array().expect("a list") {
        let name = client["client"].as_str().expect("it has a name");
        let told = cli.run(&["mcp", "config", name, "--http", url]);
        if client["http"] == false {
            assert!(told.ends(2).stderr.contains("token"), "{name}");
            continue;
        }
        let told = told.ends(0).stdout;
        let own = cli.run(&["mcp", "config", name, "--http", url, "--oauth"]).ends(0).stdout;
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
    cli.run(&["mcp", "config", "cursor", "--write"]).ends(0);
    cli.run(&["mcp", "config", "cursor", "--write", "--http", url, "--token-variable", "MINE"])
        .ends(0);
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
    cli.run(&["mcp", "config", "zed", "--write"]).ends(0);
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
    let write = ["mcp", "config", "cursor", "--project", "--write"];
    for wrong in [&b"{\n  \"mcpServers\": {,}\n}"[..], b"[]", b"{ \"mcpServers\": 7 }", b"\xff\xfe"]
    {
        fs::write(&file, wrong).expect("it is written");
        let refused = cli.run(&write).ends(2);
        assert!(refused.stderr.contains("isn't changed"), "{}", refused.stderr);
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
        (&["cursor", "--allow", "/data"], "follow `--`"),
        (&["cursor", "--", "--http", "8000"], "--http URL"),
        (&["cursor", "--", "--alow", "/data"], "--alow"),
        (&["windsurf", "--project"], "no file in a project"),
        (&["--write"], "CLIENT"),
    ] {
        let ended = cli.run(&[&["mcp", "config"], wrong].concat()).ends(2);
        assert!(ended.stderr.contains(told), "{wrong:?}: {}", ended.stderr);
    }
}
