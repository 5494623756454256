//! What upstream servers are granted: by options, by proposals, and what is said when a grant is
//! missing.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::Cli;

/// A server that does with each file and address what the arguments of its call say, and that shows
/// its own arguments. With `log`, the cause of a failure is only in its log.
const SERVER: &str = r#"
import json, os, socket, sys
def call(arguments):
    if "write" in arguments:
        open(arguments["write"], "w").write("written")
        return "written"
    if "connect" in arguments:
        socket.getaddrinfo(arguments["connect"], 443)
    return json.dumps([sys.argv[1:], dict(os.environ)])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        tool = lambda name, **more: {"name": name, "inputSchema": {"type": "object", **more}}
        properties = {key: {"type": "string"} for key in ("write", "connect", "log")}
        answer = {"tools": [tool("work", properties=properties), tool("get_a"), tool("get_b")]}
    elif message["method"] == "tools/call":
        try:
            text, failed = call(message["params"].get("arguments", {})), False
        except OSError as error:
            text, failed = f"Error: {error}", True
            if "log" in message["params"]["arguments"]:
                print("noise " * 1000, "\x1b[2J", text, sep="\n", file=sys.stderr, flush=True)
                text = "failed"
        answer = {"content": [{"type": "text", "text": text}], "isError": failed}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"],
                          "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"#;

/// A configuration, and a folder that no server sees unasked.
fn scene() -> (Cli, PathBuf) {
    let cli = Cli::new();
    cli.configure("[tools]\nautonomy = \"full\"\n");
    let folder = cli.root.path().canonicalize().expect("it is there").join("elsewhere");
    fs::create_dir(&folder).expect("a folder is made");
    (cli, folder)
}

fn own_file(cli: &Cli) -> String {
    fs::read_to_string(cli.root.path().join("config/toolhold.toml")).expect("it is there")
}

/// `toolhold mcp add s …` with the server and these arguments of its own.
fn add_line<'a>(options: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let mut line = vec!["mcp", "add", "s"];
    line.extend(options);
    line.extend(["--", "/usr/bin/python3", "-c", SERVER]);
    line.extend(arguments);
    line
}

#[test]
fn options_grant_what_they_name_and_nothing_else() {
    let (cli, folder) = scene();
    let read = cli.root.path().canonicalize().expect("it is there").join("read");
    fs::create_dir(&read).expect("a folder is made");
    let (folder, read) = (folder.display().to_string(), read.display().to_string());
    let options = ["--allow-path", &folder, "--allow-read", &read, "--env", "LEVEL=info"];
    cli.run(&add_line(&options, &[])).ends(0);
    let text = own_file(&cli);
    for line in [
        format!("allowed_paths = [\"{folder}\", {{ path = \"{read}\", access = \"read\" }}]"),
        "variables = { LEVEL = \"info\" }".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(!text.contains("network"), "{text}");
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let write = |path: &str| cli.run(&["call", "s__work", &format!("write={path}/new")]);
    write(&folder).ends(0);
    assert_ne!(write(&read).code, 0);
    assert!(PathBuf::from(&folder).join("new").exists());
    assert!(!PathBuf::from(&read).join("new").exists());
}

#[test]
fn dot_of_an_option_is_the_working_directory_of_the_command() {
    let (cli, _) = scene();
    cli.run(&add_line(&["--allow-path", "."], &[])).ends(0);
    let here = cli.work().canonicalize().expect("it is there");
    let line = format!("allowed_paths = [\"{}\"]", here.display());
    assert!(own_file(&cli).contains(&line), "{}", own_file(&cli));
}

#[test]
fn hosts_are_granted_in_place_of_the_network() {
    let (cli, _) = scene();
    let hosts = ["--host", "api.example.com", "--host", "db.example.com:5432"];
    cli.run(&add_line(&hosts, &[])).ends(0);
    let text = own_file(&cli);
    assert!(text.contains("hosts = [\"api.example.com\", \"db.example.com:5432\"]"), "{text}");
    assert!(!text.contains("network"), "{text}");
    cli.run(&["mcp", "remove", "s"]).ends(0);
    // A well-known server gets the hosts of its recipe.
    let github = ["npx", "-y", "@modelcontextprotocol/server-github"];
    cli.run(&[&["mcp", "add", "github", "--yes", "--"][..], &github].concat()).ends(0);
    let text = own_file(&cli);
    assert!(text.contains("hosts = [\"api.github.com\"]") && !text.contains("network"), "{text}");
}

#[test]
fn options_without_effect_are_errors_that_name_the_right_one() {
    let (cli, folder) = scene();
    let before = own_file(&cli);
    let folder = folder.display().to_string();
    let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
    let variable = format!("API_KEY={token}");
    for (options, reason) in [
        (&["--allow", folder.as_str()][..], "`--allow-path DIR`"),
        (&["--set", "tools.call=60"], "`--set` has no effect"),
        (&["--plugin", "x.wasm"], "`--plugin` has no effect"),
        (&["--allow-path", "/"], "the whole machine"),
        (&["--preset", "nod"], "the preset `nod` doesn't exist"),
        (&["--secret", &variable], "never the secret itself"),
        (&["--secret", "KEY"], "a name and a source"),
        (&["--host", "not a host"], "not a host"),
        (&["--host", "a.example", "--network"], "cannot be used with"),
        (&["--env", &variable], "looks like a credential"),
    ] {
        let refused = cli.run(&add_line(options, &[])).ends(2).stderr;
        assert!(refused.contains(reason) && !refused.contains(&token), "{options:?}: {refused}");
    }
    let unknown = cli.run(&add_line(&[], &["${secret:NOWHERE}"])).ends(2).stderr;
    assert!(unknown.contains("no secret `NOWHERE`"), "{unknown}");
    assert_eq!(own_file(&cli), before);
}

#[test]
fn proposed_grants_need_a_yes() {
    let (cli, folder) = scene();
    let named = folder.display().to_string();
    let line = format!("allowed_paths = [\"{named}\"]");
    let told = cli.run(&add_line(&[], &[&named])).ends(0).stderr;
    assert!(told.contains(&line) && told.contains("`--yes`"), "{told}");
    assert!(!own_file(&cli).contains("allowed_paths"));
    cli.run(&["mcp", "remove", "s"]).ends(0);
    cli.run(&add_line(&["--yes"], &[&named])).ends(0);
    assert!(own_file(&cli).contains(&line));
    cli.run(&["mcp", "remove", "s"]).ends(0);

    let ask = ["mcp", "add", "s", "--", "/usr/bin/python3", &named];
    let Some(refused) = cli.typed(&ask, "n\n") else { return };
    assert!(refused.stdout.contains("arguments name"), "{}", refused.stdout);
    assert!(!own_file(&cli).contains("allowed_paths"));
    cli.run(&["mcp", "remove", "s"]).ends(0);
    cli.typed(&ask, "y\n").expect("there is a terminal");
    assert!(own_file(&cli).contains(&line));
}

#[test]
fn no_yes_grants_credentials_the_home_or_own_folders() {
    let (cli, _) = scene();
    let home = cli.root.path().canonicalize().expect("it is there");
    fs::create_dir(home.join(".ssh")).expect("a folder is made");
    for named in ["/", "/etc", ".ssh", "config", "data", ""] {
        let path = home.join(named).display().to_string();
        let output = cli.command(&add_line(&["--yes"], &[&path])).env("HOME", &home).output();
        assert!(output.expect("toolhold starts").status.success(), "{path}");
        assert!(!own_file(&cli).contains("allowed_paths"), "{path}");
        cli.run(&["mcp", "remove", "s"]).ends(0);
    }
    // The home is the working directory.
    let mut command = cli.command(&add_line(&["--yes"], &["."]));
    let output = command.env("HOME", &home).current_dir(&home).output();
    assert!(output.expect("toolhold starts").status.success());
    assert!(!own_file(&cli).contains("allowed_paths"));
}

#[test]
fn missing_grant_is_named_by_the_answer_and_by_the_doctor() {
    let (cli, folder) = scene();
    let named = folder.display().to_string();
    cli.run(&add_line(&[], &[&named])).ends(0);
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let write = cli.run(&["call", "s__work", &format!("write={named}/new")]);
    let told = write.stdout + &write.stderr;
    assert!(told.contains("allowed_paths = ") && told.contains("toolhold mcp approve s"), "{told}");
    assert!(told.contains("[mcp.servers.s]"), "{told}");
    assert!(!folder.join("new").exists());
    let connect = cli.run(&["call", "s__work", "connect=api.example.com"]);
    let told = connect.stdout + &connect.stderr;
    assert!(told.contains("`hosts = [\"HOST\"]` in [mcp.servers.s]"), "{told}");
    let doctor = cli.run(&["doctor"]).stdout;
    assert!(doctor.contains("arguments name a directory"), "{doctor}");
    assert!(doctor.contains(&format!("allowed_paths = [\"{named}\"]")), "{doctor}");
    let list = cli.run(&["mcp", "list"]).ends(0).stdout;
    let (_, details) = list.split_once("\ns ").expect("the server has a row");
    assert!(details.contains("a directory that isn't granted"), "{list}");
}

#[test]
fn missing_grant_that_only_the_log_of_a_call_shows_is_named_by_the_answer() {
    let (cli, folder) = scene();
    cli.run(&add_line(&[], &[])).ends(0);
    cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let write = format!("write={}/new", folder.display());
    for (argument, grant) in
        [(write.as_str(), "\"~/elsewhere\""), ("connect=api.example.com", "`network = true`")]
    {
        let failed = cli.run(&["call", "s__work", argument, "log=on"]);
        assert_ne!(failed.code, 0);
        let told = failed.stdout + &failed.stderr;
        assert!(told.contains(grant) && told.contains("[mcp.servers.s]"), "{told}");
        assert!(!told.contains("noise") && !told.contains('\u{1b}'), "{told}");
    }
    assert!(!folder.join("new").exists());
}

#[test]
fn secret_in_an_argument_reaches_the_server_alone() {
    let (cli, folder) = scene();
    let secret = "s3cret-value-of-the-test";
    let file = folder.join("key");
    fs::write(&file, secret).expect("a file is written");
    let source = format!("KEY=file:{}", file.display());
    cli.run(&add_line(&["--secret", &source], &["--key=${secret:KEY}"])).ends(0);
    assert!(!own_file(&cli).contains(secret));
    let approved = cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    assert!(!(approved.stdout + &approved.stderr).contains(secret));
    // The server shows its arguments: it got the secret, and a mark replaces it in the answer.
    let shown = cli.run(&["call", "s__work"]).ends(0).stdout;
    assert!(shown.contains("--key=[REDACTED:KEY]") && !shown.contains(secret), "{shown}");
    let listed = cli.run(&["mcp", "list", "--json"]).ends(0).stdout;
    assert!(listed.contains("${secret:KEY}") && !listed.contains(secret), "{listed}");
}

#[test]
fn only_chosen_tools_are_offered_and_callable() {
    let (cli, _) = scene();
    cli.run(&add_line(&[], &[])).ends(0);
    let file = cli.root.path().join("config/toolhold.toml");
    let text = own_file(&cli);
    let table = "[mcp.servers.s]\n";
    let chosen = format!("{table}tools = [\"get_*\", \"gone\"]\n");
    fs::write(&file, text.replace(table, &chosen)).expect("a file is written");
    let approved = cli.run(&["mcp", "approve", "s", "--yes"]).ends(0).stdout;
    assert!(approved.contains("Approved, with 2 tools"), "{approved}");
    assert!(approved.contains("`tools` names `gone`"), "{approved}");
    let listed = cli.run(&["tools"]).ends(0).stdout;
    assert!(listed.contains("s__get_a") && listed.contains("s__get_b"), "{listed}");
    assert!(!listed.contains("s__work"), "{listed}");
    let written = cli.work().join("written");
    let call = cli.run(&["call", "s__work", &format!("write={}", written.display())]);
    assert_eq!(call.code, 2, "{}", call.stderr);
    // A project's file narrows further, and doesn't widen.
    fs::write(cli.work().join("toolhold.toml"), "[mcp.servers.s]\ntools = [\"work\"]\n")
        .expect("a file is written");
    assert_eq!(cli.run(&["call", "s__work"]).code, 2);
}

#[test]
fn approval_shows_cards_and_all_on_demand() {
    let (cli, _) = scene();
    cli.run(&add_line(&[], &[])).ends(0);
    let card = cli.run(&["mcp", "approve", "s", "--yes"]).ends(0).stdout;
    assert!(card.contains("+ work\n") && card.contains("[write: string]"), "{card}");
    assert!(card.contains("--full") && !card.contains("write (string)"), "{card}");
    cli.run(&["mcp", "remove", "s"]).ends(0);
    cli.run(&add_line(&[], &[])).ends(0);
    let full = cli.run(&["mcp", "approve", "s", "--yes", "--full"]).ends(0).stdout;
    assert!(full.contains("write (string)") && !full.contains("--full"), "{full}");
}

#[test]
fn import_grants_what_is_proposed_but_never_that_of_a_project() {
    let (cli, folder) = scene();
    let servers = json!({ "mcpServers": {
        "files": { "command": "/usr/bin/python3", "args": ["-c", SERVER, folder] },
        "old": { "url": "https://mcp.example.com/sse" },
    } });
    let client = cli.root.path().join(".cursor/mcp.json");
    fs::create_dir_all(client.parent().expect("a folder")).expect("a folder is made");
    fs::write(&client, servers.to_string()).expect("a file is written");
    let project = cli.work().join(".cursor/mcp.json");
    fs::create_dir_all(project.parent().expect("a folder")).expect("a folder is made");
    fs::write(&project, servers.to_string()).expect("a file is written");

    let line = format!("allowed_paths = [\"{}\"]", folder.display());
    let shown = cli.run(&["mcp", "import", "cursor", "--project", "--yes"]).ends(0).stdout;
    assert!(shown.contains(&line) && shown.contains("old is left out"), "{shown}");
    assert!(!own_file(&cli).contains("allowed_paths"));
    cli.run(&["mcp", "remove", "files"]).ends(0);
    cli.run(&["mcp", "import", "cursor", "--yes"]).ends(0);
    assert!(own_file(&cli).contains(&line));
}
