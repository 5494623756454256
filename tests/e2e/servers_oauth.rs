//! Logins at servers at a URL: by a browser, with tokens for that URL alone.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::mcp::client::{Client, LEGACY, text};
use crate::servers::until;
use crate::support::Cli;

/// The server with its authorization server as `[mcp.servers.far]`.
struct Scene {
    cli: Cli,
    server: Child,
    ports: Vec<u16>,
}

impl Scene {
    /// `files`: what the server finds. `more`: lines of its table, with `SECOND` for the second
    /// origin.
    fn new(files: &[&str], more: &str) -> Self {
        let cli = Cli::new();
        let folder = cli.root.path().join("server");
        fs::create_dir(&folder).expect("a folder is made");
        for file in files {
            fs::write(folder.join(file), "").expect("a file is written");
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/oauth.py");
        let server = Command::new("/usr/bin/python3")
            .args([script, folder.to_str().expect("UTF-8")])
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut scene = Self { cli, server, ports: Vec::new() };
        until("the server serves", || !scene.file("ports").is_empty());
        let ports = scene.file("ports");
        scene.ports = ports.split(' ').map(|port| port.parse().expect("a port")).collect();
        let more = more.replace("SECOND", &format!("http://127.0.0.1:{}", scene.ports[1]));
        scene.cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[mcp.servers.far]\nurl = \"http://127.0.0.1:{}/mcp\"\n{more}\n",
            scene.ports[0]
        ));
        scene
    }

    fn folder(&self) -> PathBuf {
        self.cli.root.path().join("server")
    }

    fn put(&self, name: &str) {
        fs::write(self.folder().join(name), "").expect("a file is written");
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder().join(name)).unwrap_or_default()
    }

    /// Logs in, as a browser does that follows where it is led. `detour`: visits the address that
    /// it comes back by in this form before.
    fn login(&self, detour: Option<fn(&str) -> String>) -> (bool, String) {
        let mut command = self.cli.command(&["mcp", "login", "far"]);
        let mut toolhold = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("toolhold starts");
        let mut address = String::new();
        let mut out = BufReader::new(toolhold.stdout.take().expect("it has an output"));
        out.read_line(&mut address).expect("it is read");
        if !address.is_empty() {
            let back = location(&visit(address.trim_end()));
            if let Some(detour) = detour {
                assert!(visit(&detour(&back)).starts_with("HTTP/1.1 404"));
            }
            let shown = visit(&back);
            if self.folder().join("state_wrong").exists() {
                // Nothing came back that counts, so it would wait on.
                assert!(shown.starts_with("HTTP/1.1 404"), "{shown}");
                let _ = toolhold.kill();
            }
        }
        let output = toolhold.wait_with_output().expect("it ends");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[track_caller]
    fn logs_in(&self, detour: Option<fn(&str) -> String>) {
        let (is_in, told) = self.login(detour);
        assert!(is_in, "{told}");
    }

    /// No token is where it doesn't belong.
    #[track_caller]
    fn assert_hidden(&self, shown: &str) {
        let log = fs::read_to_string(self.cli.root.path().join("data/audit/audit.jsonl"));
        let log = log.unwrap_or_default();
        for token in self.file("tokens").lines() {
            assert!(!shown.contains(token) && !log.contains(token), "{token} is in {shown}");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Gets a page of this machine. Returns the whole answer.
fn visit(url: &str) -> String {
    let rest = url.strip_prefix("http://").expect("it is http");
    let (host, path) = rest.split_once('/').expect("it has a path");
    let mut stream = TcpStream::connect(host).expect("it is there");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it is set");
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .expect("it is sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn location(answer: &str) -> String {
    let line = answer.lines().find_map(|line| line.strip_prefix("Location: "));
    line.unwrap_or_else(|| panic!("it is a redirect: {answer}")).to_owned()
}

#[test]
fn login_brings_tokens_that_are_used_refreshed_and_forgotten() {
    let scene = Scene::new(&[], "");
    let told = scene.cli.run(&["mcp", "approve", "far", "--yes"]);
    assert!(told.code != 0 && told.stderr.contains("toolhold mcp login far"), "{}", told.stderr);
    // Whoever doesn't know the state gets nowhere.
    let detour = |back: &str| back.replace("state=", "state=x");
    scene.logs_in(Some(detour));
    let asked = format!("read http://127.0.0.1:{}/mcp registered", scene.ports[0]);
    assert_eq!(scene.file("asked").trim_end(), asked);
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    let mut client = Client::new(&scene.cli, &[], LEGACY, false);
    let who = text(&client.call("far__who", json!({})));
    assert!(who.contains("you sent [REDACTED:token]"), "{who}");
    scene.assert_hidden(&who);
    let more = text(&client.call("far__more", json!({})));
    assert!(more.contains("needs the scope") && more.contains("toolhold mcp login far"), "{more}");
    // What the tokens are good for now isn't forgotten.
    assert!(more.contains("`scopes = [\"read\",\"write"), "{more}");
    assert!(text(&client.call("far__who", json!({}))).contains("you sent"), "others serve");
    client.leave();
    let folder = scene.cli.root.path().join("data/servers/tokens");
    let read = scene.cli.run(&["call", "read", &format!("path={}/far.json", folder.display())]);
    assert!(read.code != 0, "no tool reads the tokens: {}", read.stdout);
    // Tokens whose time is over are exchanged, each once.
    scene.put("short");
    scene.logs_in(None);
    assert_refreshes(&scene);
    // Another URL doesn't get them.
    let set = format!("mcp.servers.far.url='http://127.0.0.1:{}/mcp'", scene.ports[1]);
    scene.cli.run(&["--set", &set, "mcp", "approve", "far", "--yes"]);
    assert!(!scene.file("other").is_empty(), "it was asked");
    // A token that is gone is told of.
    scene.put("gone");
    let told = scene.cli.run(&["call", "far__who"]);
    assert!(told.code != 0 && told.stderr.contains("toolhold mcp login far"), "{}", told.stderr);
    assert!(!scene.cli.run(&["mcp", "list"]).ends(0).stdout.contains("toolhold mcp login"));
    scene.cli.run(&["mcp", "logout", "far"]).ends(0);
    for command in [["mcp", "list"].as_slice(), &["doctor"]] {
        let told = scene.cli.run(command).stdout;
        assert!(
            told.contains("login is no longer valid") && told.contains("toolhold mcp login far"),
            "{told}"
        );
    }
    let kept = fs::read_to_string(folder.join("far.json")).unwrap_or_default();
    scene.assert_hidden(&kept);
    let told = scene.cli.run(&["call", "far__who"]);
    assert!(told.code != 0 && told.stderr.contains("toolhold mcp login far"), "{}", told.stderr);
}

#[test]
fn hostile_authorization_servers_get_nothing() {
    for (file, reason) in [
        ("metadata_inside", ""),
        ("metadata_cloud", ""),
        ("issuer_wrong", ""),
        ("token_elsewhere", "token exchange failed"),
        ("plain", "PKCE"),
        ("page_plain", "only https"),
        ("state_wrong", ""),
        ("iss_wrong", "issuer mismatch"),
        ("iss_missing", "missing required issuer"),
        ("refused", "access_denied"),
        ("token_empty", "token is empty"),
        ("token_lines", "characters that headers don't allow"),
    ] {
        let scene = Scene::new(&[file], "");
        let (is_in, told) = scene.login(None);
        assert!(!is_in && told.contains(reason), "{file}: {told}");
        assert_eq!(scene.file("other"), "", "{file}: another origin was asked");
        assert_eq!(scene.file("tokens"), "", "{file}: there are tokens");
        assert!(!scene.cli.root.path().join("data/servers/tokens/far.json").exists(), "{file}");
    }
}

/// Whether a token whose time is over can be exchanged.
#[track_caller]
fn assert_refreshes(scene: &Scene) {
    let count = || scene.file("log").matches("token refresh_token").count();
    let before = count();
    let called = scene.cli.run(&["call", "far__who"]).ends(0);
    assert!(count() > before, "{}", scene.file("log"));
    scene.assert_hidden(&called.stdout);
}

#[test]
fn server_that_says_only_in_a_refusal_where_to_log_in_is_believed() {
    let scene = Scene::new(&["elsewhere", "short"], "");
    scene.logs_in(None);
    assert!(scene.file("asked").starts_with("basic http"), "{}", scene.file("asked"));
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    assert_refreshes(&scene);
}

#[test]
fn refresh_token_never_goes_where_nobody_said() {
    let table = "[mcp.servers.far.oauth]\nissuer = \"SECOND\"";
    let scene = Scene::new(&["second", "short"], table);
    scene.logs_in(None);
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    assert_refreshes(&scene);
    // The server at the URL waits for the token itself: it says that it is the authorization server
    // of the login, or names none any more.
    for (file, reason) in
        [("claims", "can't provide metadata for"), ("unnamed", "no authorization server")]
    {
        scene.put(file);
        let before = scene.file("log").matches("token").count();
        let told = scene.cli.run(&["call", "far__who"]);
        assert!(told.code != 0 && told.stderr.contains(reason), "{}", told.stderr);
        assert_eq!(scene.file("log").matches("token").count(), before, "{}", scene.file("log"));
    }
    let scene = Scene::new(&["claims"], table);
    let (is_in, told) = scene.login(None);
    assert!(!is_in && told.contains("can't provide metadata for"), "{told}");
    assert_eq!(scene.file("tokens"), "");
}

#[test]
fn client_secret_goes_to_the_token_endpoint_alone() {
    // Toolhold is given one when it registers.
    let scene = Scene::new(&["secret", "short"], "");
    scene.logs_in(None);
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    assert_refreshes(&scene);
    assert_eq!(scene.file("leak"), "");
    // The operator has one.
    let table = "oauth.client_id = \"mine\"\noauth.secrets.mine.file = \"client\"";
    let scene = Scene::new(&["secret", "short"], table);
    let file = scene.cli.root.path().join("config/client");
    fs::write(&file, "client-secret-wrong").expect("it is written");
    let (is_in, told) = scene.login(None);
    assert!(!is_in && !told.contains("client-secret-wrong"), "{told}");
    fs::write(&file, "client-secret-Zx81").expect("it is written");
    scene.logs_in(None);
    assert!(!scene.file("log").contains("register"), "{}", scene.file("log"));
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    assert_refreshes(&scene);
    assert_eq!(scene.file("leak"), "");
    let kept = fs::read_to_string(scene.cli.root.path().join("data/servers/tokens/far.json"));
    assert!(!kept.expect("it is there").contains("client-secret"), "it stays where it stands");
    let read = scene.cli.run(&["call", "read", &format!("path={}", file.display())]);
    assert!(read.code != 0 && !read.stdout.contains("Zx81"), "{}", read.stdout);
}

#[test]
fn named_issuer_is_the_only_one_and_may_be_private() {
    let table = "[mcp.servers.far.oauth]\nissuer = \"SECOND\"\nclient_id = \"mine\"\nscopes = [\"a\", \"b\"]";
    let scene = Scene::new(&["second"], table);
    scene.logs_in(None);
    assert!(scene.file("asked").starts_with("a b "), "{}", scene.file("asked"));
    assert!(scene.file("asked").trim_end().ends_with(" mine"), "{}", scene.file("asked"));
    assert!(!scene.file("log").contains("register"), "{}", scene.file("log"));
    scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
    let scene = Scene::new(&[], table);
    let (is_in, told) = scene.login(None);
    assert!(!is_in && told.contains("but `issuer` in [mcp.servers.far.oauth] is http"), "{told}");
    assert_eq!(scene.file("tokens"), "");
    // Who wants one at a private address is told how to name it.
    let scene = Scene::new(&["second"], "");
    let (is_in, told) = scene.login(None);
    let line = format!("`issuer = \"http://127.0.0.1:{}\"`", scene.ports[1]);
    assert!(!is_in && told.contains(&line), "{told}");
    assert_eq!(scene.file("other"), "");
}
