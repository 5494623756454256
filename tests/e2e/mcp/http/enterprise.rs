//! `docs/enterprise.md` is a script for administrators. It runs here as written: as root, with two
//! ordinary users, a server, and an authorization server over TLS.
//!
//! Namespaces of mounts, processes and networks keep the users, files and ports of this machine
//! unchanged. A stand-in for `systemctl` starts the server as its unit says.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Answered, Answering, Stream, modern};
use super::oauth::Key;
use crate::docs::markdown::{Block, blocks, document, root};
use crate::shell::process_lifetime::{assert_gone, mark, with_word};
use crate::support::{not_tried, toolhold, version, wait_until};

const PAGE: &str = "docs/enterprise.md";

/// The names and the port in the page.
const LOGIN: &str = "login.corp.example.com";
const TOOLS: &str = "tools.corp.example.com";
const PORT: u16 = 8443;

/// The folders of this machine that are replaced by folders of the test.
const REPLACED: [&str; 4] = ["etc", "srv", "usr/local", "var"];

/// The folders with the programs of this machine that the page and the test need.
const PROGRAMS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Time limit for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prepares the machine. `ROOT` is the folder of the test, `PROGRAM` is `toolhold`, and `INSTALL`
/// is the `install.sh` of archives.
const SETUP: &str = "
set -e
umask 022
cp -a /etc/. ROOT/etc
for folder in FOLDERS; do mount --bind ROOT/$folder /$folder; done
mkdir -p /var/lib /var/log /var/tmp /etc/systemd/system /usr/local/sbin /usr/local/bin
rm -rf /etc/toolhold
echo '127.0.0.1 localhost LOGIN TOOLS' > /etc/hosts
ip link set lo up
for user in anna ben toolhold; do userdel $user 2> /dev/null || true; done
for user in anna ben; do useradd --create-home --home-dir ROOT/home/$user $user; done
install -m 755 systemctl /usr/local/sbin/systemctl
install -m 755 time-server /usr/local/bin/time-server
archive() {
    folder=toolhold-1.0.0-test-linux
    mkdir -p $1/$folder/bin
    cp PROGRAM $1/$folder/bin/toolhold
    printf %s \"$2\" >> $1/$folder/bin/toolhold
    sed \"s/@ARCH@/$(uname -m)/\" INSTALL > $1/$folder/install.sh
    chmod 755 $1/$folder/install.sh
    (cd $1/$folder && sha256sum bin/toolhold > SHA256SUMS)
    tar -cf $1/$folder.tar.gz -C $1 $folder
    rm -r $1/$folder
}
archive . ''
archive new newer
set +e";

/// Starts the server as its unit says. Nobody waits for an ended server, but it has no command line
/// any more.
const SYSTEMCTL: &str = r#"#!/bin/sh
set -eu
value() { sed -n "s/^$1=//p" /etc/systemd/system/toolhold.service; }
case $1 in enable | restart) ;; *) exit ;; esac
if [ -f /var/lib/pid ]; then
    kill "$(cat /var/lib/pid)"
    while grep -q . "/proc/$(cat /var/lib/pid)/cmdline" 2> /dev/null; do :; done
fi
cd "$(value WorkingDirectory)"
umask "$(value UMask)"
setpriv --reuid "$(value User)" --regid "$(value User)" --init-groups --reset-env \
    env "$(value Environment)" $(value ExecStart) < /dev/null >> /var/log/toolhold.log 2>&1 &
umask 022
echo $! > /var/lib/pid
"#;

const TIME_SERVER: &str = r#"#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "time", "version": "1"}}
    elif message["method"] == "tools/list":
        answer = {"tools": [{"name": "now", "inputSchema": {"type": "object"}}]}
    else:
        answer = {"content": [{"type": "text", "text": "noon"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"#;

/// A machine with a shell of root, which runs the page.
struct Machine {
    shell: Child,
    commands: ChildStdin,
    ends: BufReader<ChildStdout>,
    root: TempDir,
}

impl Machine {
    /// `None`, with a notice, if this machine can't be prepared.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            not_tried("root");
            return None;
        }
        for program in ["unshare", "ip", "useradd", "runuser", "setpriv", "tar", "python3"] {
            if !PROGRAMS.iter().any(|folder| Path::new(folder).join(program).exists()) {
                not_tried(program);
                return None;
            }
        }
        let namespaces = ["-mnpf", "--kill-child", "--mount-proc"];
        let tried =
            Command::new("unshare").args(namespaces).arg("true").stderr(Stdio::null()).status();
        if !tried.is_ok_and(|status| status.success()) {
            not_tried("namespaces of root (`unshare -mnpf`)");
            return None;
        }

        let root = TempDir::new().expect("a temporary folder is made");
        // The homes of users are in this folder.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("it is opened");
        for folder in REPLACED.into_iter().chain(["admin/new", "home", "root"]) {
            fs::create_dir_all(root.path().join(folder)).expect("a folder is made");
        }
        let mut shell = Command::new("unshare")
            .args(namespaces)
            .arg("sh")
            .current_dir(root.path().join("admin"))
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", root.path().join("root"))
            .env("KEY_PASSWORD", "a password")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let commands = shell.stdin.take().expect("it has an input");
        let ends = BufReader::new(shell.stdout.take().expect("it has an output"));
        Some(Self { shell, commands, ends, root })
    }

    /// Runs a script, whose variables and functions stay. Returns its exit code and its output. The
    /// code is `None` if the shell has ended.
    fn run(&mut self, script: &str) -> (Option<i32>, String) {
        let said = self.root.path().join("said");
        let ran = format!("{{\n{script}\n}} > {} 2>&1 < /dev/null\necho $?\n", said.display());
        self.commands.write_all(ran.as_bytes()).expect("the shell reads");
        let mut code = String::new();
        self.ends.read_line(&mut code).expect("the shell answers");
        let said = String::from_utf8_lossy(&fs::read(said).expect("it is there")).into_owned();
        (code.trim().parse().ok(), said)
    }

    /// Runs commands of which each has to work. Returns their output.
    #[track_caller]
    fn works(&mut self, script: &str) -> String {
        let (code, said) = self.run(&format!("set -e\n{script}\nset +e"));
        assert_eq!(code, Some(0), "{script}\nfails:\n{said}");
        said
    }

    /// Runs a command that has to fail. Returns its output.
    #[track_caller]
    fn fails(&mut self, script: &str) -> String {
        let (code, said) = self.run(script);
        assert!(code.is_some_and(|code| code != 0), "{script}\nworks:\n{said}");
        said
    }

    /// Returns the place of a file of the machine, as this process sees it.
    fn file(&self, path: &str) -> PathBuf {
        let root = self.root.path();
        if let Some(inside) = path.strip_prefix("~/") {
            return root.join("root").join(inside);
        }
        let Some(inside) = path.strip_prefix('/') else { return root.join("admin").join(path) };
        assert!(REPLACED.iter().any(|folder| inside.starts_with(folder)), "{path} is of the test");
        root.join(inside)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.file(path);
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).expect("it is written");
    }

    #[track_caller]
    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.file(path)).expect("it is there").mode() & 0o7777
    }

    #[track_caller]
    fn length(&self, path: &str) -> u64 {
        fs::metadata(self.file(path)).expect("it is there").len()
    }

    /// Moves this thread into the network of the machine. Threads that it starts are there, too.
    fn enter_network(&self) {
        let parent = self.shell.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = children.expect("unshare runs");
        let shell = children.split_whitespace().next().expect("it has started the shell");
        let network = fs::File::open(format!("/proc/{shell}/ns/net")).expect("it has a network");
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter it");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The shell and all of its processes end with `unshare`.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The page, its machine, its authorization server, and the callers of its server.
struct Company {
    machine: Machine,
    blocks: std::vec::IntoIter<Block>,
    key: Key,
    client: Arc<ClientConfig>,
}

impl Company {
    fn new(mut machine: Machine) -> Self {
        machine.write("systemctl", SYSTEMCTL);
        machine.write("time-server", TIME_SERVER);
        let setup = SETUP
            .replace("FOLDERS", &REPLACED.join(" "))
            .replace("ROOT", &machine.root.path().display().to_string())
            .replace("PROGRAM", &toolhold().display().to_string())
            .replace("INSTALL", &root().join("xtask/src/dist/install.sh").display().to_string())
            .replace("LOGIN", LOGIN)
            .replace("TOOLS", TOOLS);
        machine.works(&setup);
        machine.enter_network();

        let notes = version("acme-notes", "1.0.0", "a note").encode();
        machine.write("acme-notes.wasm", notes);
        machine.write("other.wasm", version("other", "1.0.0", "an unsigned plugin").encode());
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([TOOLS.to_owned(), LOGIN.to_owned()])
                .expect("a certificate is made");
        for file in ["certificate.pem", "authority.pem"] {
            machine.write(file, cert.pem());
        }
        machine.write("key.pem", signing_key.serialize_pem());

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("there are some");
        let private =
            PrivateKeyDer::try_from(signing_key.serialize_der()).expect("it is a private key");
        let server = server
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], private)
            .expect("the key fits the certificate");
        let key = Key::ed();
        let keys = json!({ "keys": [key.public("one")] }).to_string();
        let listener = TcpListener::bind(("127.0.0.1", 443)).expect("the network is a new one");
        std::thread::spawn(move || serve_keys(&listener, &Arc::new(server), &keys));

        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("it is a certificate");
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are some");
        let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
        Self { machine, blocks: blocks(&document(PAGE)).into_iter(), key, client }
    }

    /// Writes the files and runs the commands of the page, up to the block with the text `last`.
    #[track_caller]
    fn follow_through(&mut self, last: &str) {
        for block in self.blocks.by_ref() {
            match (&block.file, block.language.as_str()) {
                (Some(path), _) => self.machine.write(path, &block.text),
                (None, "sh") => drop(self.machine.works(&block.text)),
                _ => {}
            }
            if block.text.contains(last) {
                return;
            }
        }
        panic!("{PAGE} has no further block with {last:?}");
    }

    /// A token of the authorization server.
    fn token(&self, name: &str, groups: &[&str]) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let claims = json!({
            "iss": format!("https://{LOGIN}"), "aud": format!("https://{TOOLS}:{PORT}/mcp"),
            "sub": name, "groups": groups, "exp": now + 600, "nbf": now - 10,
        });
        self.key.token(&json!({ "alg": "EdDSA", "kid": "one" }), &claims)
    }

    fn developer(&self, name: &str) -> String {
        self.token(name, &["dev"])
    }

    /// Sends a request, whose answer can be read from the connection.
    fn send(&self, token: &str, method: &str, params: &Value) -> io::Result<Box<dyn Stream>> {
        let name = ServerName::try_from(TOOLS).expect("it is a name");
        let connection =
            ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(("127.0.0.1", PORT))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(connection, stream);
        let (message, head) = modern(method, params);
        let body = message.to_string();
        let head: String =
            head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {TOOLS}:{PORT}\r\nauthorization: Bearer {token}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n{head}\r\n{body}",
            body.len()
        )?;
        stream.flush()?;
        Ok(Box::new(stream))
    }

    fn list(&self, token: &str) -> Answered {
        let stream = self.send(token, "tools/list", &json!({})).expect("the server reads");
        Answering::new(stream).whole()
    }

    #[track_caller]
    fn call(&self, token: &str, tool: &str, arguments: &Value) -> Value {
        self.result(token, &json!({ "name": tool, "arguments": arguments }))
    }

    #[track_caller]
    fn result(&self, token: &str, params: &Value) -> Value {
        let stream = self.send(token, "tools/call", params).expect("the server reads");
        let answer = Answering::new(stream).whole();
        assert_eq!(answer.status, 200, "{params}: {answer:?}");
        answer.message()["result"].clone()
    }

    #[track_caller]
    fn succeeds(&self, token: &str, tool: &str, arguments: &Value) {
        let result = self.call(token, tool, arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
    }

    /// Calls a tool that needs approval, and approves the call.
    #[track_caller]
    fn approve(&self, token: &str, tool: &str) {
        let mut params = json!({ "name": tool, "arguments": {} });
        let asked = self.result(token, &params);
        assert_eq!(asked["resultType"], "input_required", "{tool}: {asked}");
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] =
            json!({ "answer": { "action": "accept", "content": { "answer": "once" } } });
        let result = self.result(token, &params);
        assert_eq!(result["isError"], false, "{tool}: {result}");
    }

    /// Waits until the server answers.
    fn wait_for_server(&self) {
        let token = self.developer("anna");
        let is_ready = || {
            let sent = self.send(&token, "tools/list", &json!({}));
            sent.is_ok_and(|stream| Answering::new(stream).status == 200)
        };
        wait_until("the server answers", is_ready);
    }

    /// A token of this server, in a file that the page makes.
    #[track_caller]
    fn stored_token(&self, path: &str) -> String {
        self.content(path).lines().next().expect("the file has a token").to_owned()
    }

    #[track_caller]
    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.machine.file(path)).expect("the file is there")
    }
}

/// Gives the keys of the authorization server to all callers.
fn serve_keys(listener: &TcpListener, config: &Arc<ServerConfig>, keys: &str) {
    for stream in listener.incoming().map_while(Result::ok) {
        let Ok(connection) = ServerConnection::new(Arc::clone(config)) else { return };
        let mut stream = BufReader::new(StreamOwned::new(connection, stream));
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|length| length > 2) {
            line.clear();
        }
        // A client that is gone needs no keys.
        let _ = write!(
            stream.get_mut(),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{keys}",
            keys.len()
        );
        stream.get_mut().conn.send_close_notify();
        let _ = stream.get_mut().flush();
    }
}

#[test]
fn page_for_administrators_runs_as_written() {
    let Some(machine) = Machine::new() else { return };
    // The thread stays in the network of the machine.
    let running = std::thread::spawn(move || run_page(machine));
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

fn run_page(machine: Machine) {
    let mut company = Company::new(machine);
    keys_are_private(&mut company);
    ceiling_limits_users(&mut company);
    people_are_apart(&mut company);
    bundle_replaces_the_network(&mut company);
    upgrade_keeps_what_can_be_undone(&mut company);
    revoked_token_and_removed_person_are_out(&mut company);
    revoked_key_loads_nothing(&mut company);
}

/// Checks whether the server offers the plugin to a caller, whom it has to accept.
#[track_caller]
fn offers_notes(company: &Company, token: &str) -> bool {
    let listed = company.list(token);
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.body.contains("acme-notes__say")
}

fn keys_are_private(company: &mut Company) {
    company.follow_through("toolhold plugin publish");
    let machine = &mut company.machine;
    assert_eq!(machine.mode("~/.config/toolhold/keys"), 0o700);
    for name in ["plugins", "fleet"] {
        assert_eq!(machine.mode(&format!("~/.config/toolhold/keys/{name}.key")), 0o600);
        assert_eq!(machine.mode(&format!("~/.config/toolhold/keys/{name}.pub")), 0o644);
        let key = machine.file(&format!("~/.config/toolhold/keys/{name}.key"));
        machine.fails(&format!("runuser -l anna -c 'cat {}'", key.display()));
    }
    assert_eq!(machine.mode("/srv/plugins/acme-notes.wasm"), 0o644);
}

fn ceiling_limits_users(company: &mut Company) {
    company.follow_through("toolhold plugin install'");
    let machine = &mut company.machine;
    for file in ["ceiling.toml", "ceiling.pub", "toolhold.toml", "servers/time.json"] {
        assert_eq!(machine.mode(&format!("/etc/toolhold/{file}")), 0o644, "{file}");
    }
    machine.works("cp other.wasm /srv/plugins; chmod 644 /srv/plugins/other.wasm");
    machine.works("runuser -l anna -c 'echo first > notes.txt; echo hidden > .env'");
    let mut anna = |line: &str| machine.run(&format!("runuser -l anna -c 'toolhold call {line}'"));
    for (line, answer) in [
        ("read path=notes.txt", "first"),
        // The organisation has approved both.
        ("--yes acme-notes__say", "a note"),
        ("--yes time__now", "noon"),
    ] {
        let (code, said) = anna(line);
        assert!(code == Some(0) && said.contains(answer), "{line}: {said}");
    }
    for line in [
        "read path=.env",
        "--set tools.file.deny_read=[] read path=.env",
        "--yes --set tools.autonomy=full bash \"command=cat .env\"",
        "--yes --plugin /srv/plugins/other.wasm other__say",
        "--yes --plugin /srv/plugins/other.wasm --set installing.require_signature=false \
         other__say",
    ] {
        let (code, said) = anna(line);
        assert_ne!(code, Some(0), "{line}: {said}");
        assert!(!said.contains("hidden") && !said.contains("an unsigned"), "{line}: {said}");
    }
    // A changed ceiling stops every call.
    let ceiling = "/etc/toolhold/ceiling.toml";
    machine.works(&format!("cp {ceiling} kept; echo 'tools.call = 9' >> {ceiling}"));
    let said = machine.fails("runuser -l anna -c 'toolhold call read path=notes.txt'");
    assert!(!said.contains("first"), "{said}");
    machine.works(&format!("mv kept {ceiling}"));
}

fn people_are_apart(company: &mut Company) {
    company.follow_through("enable --now");
    let machine = &mut company.machine;
    assert_eq!(machine.mode("/etc/toolhold/server/key.pem"), 0o640);
    assert_eq!(machine.mode("/var/lib/toolhold"), 0o700);
    machine.works(
        "if command -v systemd-analyze; then \
         systemd-analyze verify --man=no /etc/systemd/system/toolhold.service; fi",
    );
    company.wait_for_server();

    let [anna, ben] = ["anna", "ben"].map(|name| company.developer(name));
    for (token, name) in [(&anna, "anna"), (&ben, "ben")] {
        let write = json!({ "path": "a.txt", "content": format!("of {name}") });
        company.succeeds(token, "write", &write);
        assert_eq!(company.content(&format!("/srv/work/{name}/a.txt")), format!("of {name}"));
        assert_eq!(company.machine.mode(&format!("/srv/work/{name}")), 0o700);
    }
    for (token, other) in [(&anna, "ben"), (&ben, "anna")] {
        for path in [format!("/srv/work/{other}/a.txt"), format!("../{other}/a.txt")] {
            let command = json!({ "command": format!("cat {path}; echo gone > {path}") });
            for (tool, arguments) in [
                ("read", json!({ "path": path })),
                ("write", json!({ "path": path, "content": "gone" })),
                ("bash", command),
            ] {
                let result = company.call(token, tool, &arguments);
                assert!(!result.to_string().contains(&format!("of {other}")), "{result}");
            }
        }
        let content = company.content(&format!("/srv/work/{other}/a.txt"));
        assert_eq!(content, format!("of {other}"));
    }
    wait_until("her table's plugin is offered", || offers_notes(company, &anna));
    assert_eq!(company.list(&company.token("eve", &["sales"])).status, 403);
    assert_eq!(company.list("nonsense").status, 401);

    company.follow_through("token new ci");
    let ci = company.stored_token("ci-token");
    company.succeeds(&ci, "write", &json!({ "path": "built.txt", "content": "by ci" }));
    assert_eq!(company.content("/srv/ci/built.txt"), "by ci");
    let read = company.call(&ci, "read", &json!({ "path": "/srv/work/anna/a.txt" }));
    assert!(!read.to_string().contains("of anna"), "{read}");
    assert!(!offers_notes(company, &ci), "the table doesn't name the plugin");
    company.machine.works("as_server toolhold token new short --expires 3s > short-token");
    let short = company.stored_token("short-token");
    wait_until("the token has expired", || company.list(&short).status == 401);
}

fn bundle_replaces_the_network(company: &mut Company) {
    let call = "runuser -l ben -c 'toolhold call --yes acme-notes__say'";
    let said = company.machine.fails(call);
    assert!(!said.contains("a note"), "it isn't installed: {said}");
    company.follow_through("bundle install");
    assert!(company.machine.works(call).contains("a note"));
}

fn upgrade_keeps_what_can_be_undone(company: &mut Company) {
    let anna = company.developer("anna");
    company.succeeds(&anna, "write", &json!({ "path": "a.txt", "content": "changed" }));
    let older = company.machine.length("/usr/local/bin/toolhold");
    company.follow_through("systemctl restart");
    let newer = company.machine.length("/usr/local/bin/toolhold");
    assert!(newer > older, "the program is another one");
    company.wait_for_server();
    company.approve(&anna, "undo");
    assert_eq!(company.content("/srv/work/anna/a.txt"), "of anna");
    assert_eq!(company.list(&company.stored_token("ci-token")).status, 200);
}

fn revoked_token_and_removed_person_are_out(company: &mut Company) {
    let ci = company.stored_token("ci-token");
    company.follow_through("token revoke ci");
    assert_eq!(company.list(&ci).status, 401);

    let [anna, ben] = ["anna", "ben"].map(|name| company.developer(name));
    let data = company.machine.file("/var/lib/toolhold/.local/share/toolhold/principals");
    let folders = || fs::read_dir(&data).expect("principals have folders").count();
    let before = folders();
    let mark = mark(97, 0);
    let command = json!({ "command": format!("sleep {mark}") });
    let call = json!({ "name": "bash", "arguments": command });
    let running = company.send(&ben, "tools/call", &call).expect("the server reads");
    wait_until("his command runs", || with_word(&mark) > 0);
    company.follow_through("--subject ben --purge");
    assert_eq!(company.list(&ben).status, 403);
    assert_eq!(company.list(&company.developer("ben")).status, 403, "a new token doesn't help");
    assert_gone(&mark);
    let answer = Answering::new(running).whole();
    assert!(!answer.body.contains("\"result\""), "{answer:?}");
    wait_until("his data is gone", || folders() == before - 1);
    assert!(!company.machine.file("/srv/work/ben").exists());
    assert_eq!(company.list(&anna).status, 200);
}

fn revoked_key_loads_nothing(company: &mut Company) {
    let anna = company.developer("anna");
    wait_until("the plugin is offered", || offers_notes(company, &anna));
    company.follow_through("a revoked = true");
    wait_until("the plugin is no longer offered", || !offers_notes(company, &anna));
    let call = "runuser -l anna -c 'toolhold call --yes acme-notes__say'";
    let said = company.machine.fails(call);
    assert!(!said.contains("a note"), "{said}");
    company.machine.works("runuser -l anna -c 'toolhold call read path=notes.txt'");
    // The rest of the page has no commands for this machine.
    for block in company.blocks.by_ref() {
        assert_ne!(block.language, "sh", "{}", block.text);
    }
}
