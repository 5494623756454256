//! Commands use secrets that they don't see.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;

use super::{call, ran, run, scene, there_is};
use crate::servers_hosts::start_proxy;
use crate::support::server::{Asked, Authority, Server, Wire, answer};
use crate::support::{Scene, fetched};

const SECRET: &str = "s3cret-Token-of-the-operator";

/// A server of TLS that commands reach as `api.test`, with the secret, and as `other.test`.
struct Secrets {
    server: Server,
    scene: Scene,
    _authority: Authority,
    _folder: TempDir,
}

impl Secrets {
    async fn new(
        answer: impl Fn(&Asked, &mut dyn Wire) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let names = ["api.test", "other.test"];
        let server = Server::tls(authority.server(&names, &[], |_| {}), answer);
        let folder = TempDir::new().expect("a folder");
        let file = write_secret(&folder);
        let port = server.port();
        let settings = [
            format!(
                "tools.shell.hosts=[\"https://api.test:{port}\", \"https://other.test:{port}\"]"
            ),
            format!(
                "tools.shell.secrets.github={{env=\"GH_TOKEN\", from={{file={file:?}}}, \
                 hosts=[\"api.test:{port}\"]}}"
            ),
            format!("network.authorities=[{:?}]", authority.file()),
            "tools.shell.allowed_commands=[\"curl\", \"wget\"]".to_owned(),
            "tools.shell.network=ask".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        // The operator's own authority is the one of the test's server.
        let certificates = fs::read(authority.file()).expect("it is read");
        let scene = scene(&settings, |root| {
            fs::write(root.join("granted/server.pem"), certificates).expect("it is written");
        })
        .await;
        Self { server, scene, _authority: authority, _folder: folder }
    }

    fn origin(&self) -> String {
        format!("api.test:{}", self.server.port())
    }
}

/// Returns the content of a file that a command has written.
fn received(scene: &Scene, name: &str) -> String {
    let bytes = fs::read(scene.root().join("granted").join(name)).expect("it is there");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write_secret(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("token");
    fs::write(&file, SECRET).expect("it is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is private");
    file
}

/// Asks for a password, as the servers of git do, and repeats it.
fn echo(asked: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    match asked.header("authorization") {
        Some(credentials) => {
            let text = format!("hello {credentials}\n");
            answer(wire, "200 OK", &[("connection", "close")], text.as_bytes())?;
        }
        None => {
            let headers = [("connection", "close"), ("www-authenticate", "Basic realm=\"x\"")];
            answer(wire, "401 Unauthorized", &headers, b"")?;
        }
    }
    Err(std::io::ErrorKind::ConnectionAborted.into())
}

/// Programs that send a token to a URL, each in its own way, and whether they use basic
/// authentication.
const PROGRAMS: [(&str, &str, bool); 5] = [
    ("curl", "curl -sS --max-time 20 -H \"Authorization: Bearer $GH_TOKEN\" https://HOST/", false),
    ("curl", "curl -sS --max-time 20 -u \"me:$GH_TOKEN\" https://HOST/", true),
    (
        "python3",
        "/usr/bin/python3 -c 'import os, urllib.request as r; print(r.urlopen(r.Request(\"https://HOST/\", headers={\"Authorization\": \"Bearer \" + os.environ[\"GH_TOKEN\"]}), timeout=20).read().decode())'",
        false,
    ),
    (
        "node",
        "node -e 'fetch(\"https://HOST/\", {headers: {authorization: \"Bearer \" + process.env.GH_TOKEN}}).then(r => r.text()).then(console.log)'",
        false,
    ),
    (
        "wget",
        "wget -q -T 20 -t 1 -O - --header \"Authorization: Bearer $GH_TOKEN\" https://HOST/",
        false,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn programs_send_the_secret_and_see_no_echo_of_it() {
    let secrets = Secrets::new(echo).await;
    let bearer = format!("Bearer {SECRET}");
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    for (program, form, is_basic) in PROGRAMS.iter().filter(|(program, ..)| there_is(program)) {
        let line = form.replace("HOST", &secrets.origin());
        let came = run(&secrets.scene, &format!("{line} > out.txt && cat out.txt")).await;
        assert!(came.code == 0 && came.stdout.contains("hello"), "{program}: {came:?}");
        let asked = secrets.server.asked();
        let last = asked.last().and_then(|asked| asked.header("authorization"));
        assert_eq!(last, Some(if *is_basic { &*basic } else { &*bearer }), "{program}");
        // The file shows what the program received.
        let text = received(&secrets.scene, "out.txt");
        assert!(text.contains("[REDACTED:github]"), "{program}: {text}");
        assert!(!text.contains(SECRET) && !text.contains(&basic[6..]), "{program}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_authenticates_with_the_secret() {
    if !there_is("git") {
        return;
    }
    let secrets = Secrets::new(|asked, wire| {
        if asked.header("authorization").is_none() {
            return echo(asked, wire);
        }
        let refs = format!("{}\trefs/heads/main\n", "1".repeat(40));
        answer(wire, "200 OK", &[("content-type", "text/plain")], refs.as_bytes())
    })
    .await;
    let line = format!("git ls-remote https://me:$GH_TOKEN@{}/repo", secrets.origin());
    let came = run(&secrets.scene, &line).await;
    assert!(came.stdout.contains("refs/heads/main"), "{came:?}");
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    let asked = secrets.server.asked();
    assert!(asked.iter().any(|asked| asked.header("authorization") == Some(&*basic)), "{asked:?}");
}

/// Answers as `api.github.com` does, and repeats the credentials.
fn play_github(asked: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    let said = format!("hello {}", asked.header("authorization").unwrap_or("stranger"));
    let body = if asked.path() == "/graphql" {
        let request = json!({
            "number": 7, "title": said, "state": "OPEN", "headRefName": "branch",
            "url": "https://github.com/me/x/pull/7", "isCrossRepository": false, "isDraft": false,
            "headRepositoryOwner": { "id": "1", "login": "me" },
            "createdAt": "2026-01-02T03:04:05Z",
        });
        let page = json!({ "hasNextPage": false, "endCursor": "" });
        let requests = json!({ "totalCount": 1, "nodes": [request], "pageInfo": page });
        json!({ "data": { "repository": { "pullRequests": requests } } })
    } else {
        json!({ "login": said })
    };
    let headers = [("content-type", "application/json")];
    answer(wire, "200 OK", &headers, body.to_string().as_bytes())
}

fn last_credentials(server: &Server) -> Option<String> {
    let asked = server.asked();
    asked.last().and_then(|asked| asked.header("authorization").map(str::to_owned))
}

/// Has gh send the placeholder to another host than GitHub's, for which gh takes the token of
/// another variable.
const ELSEWHERE: &str = "SSL_CERT_FILE=$PWD/server.pem GH_ENTERPRISE_TOKEN=$GH_TOKEN \
                         ./gh api --hostname HOST user > out.txt";

#[tokio::test(flavor = "multi_thread")]
async fn gh_sends_the_secret_to_github_and_no_other_host() {
    let Some(debian) = fetched("debian") else { return };
    let authority = Authority::new();
    let [github, other] = ["api.github.com", "*.example.org"]
        .map(|name| Server::tls(authority.server(&[name], &[], |_| {}), play_github));
    let (github_port, other_port) = (github.port(), other.port());
    let proxy = start_proxy(move |target| match target {
        "api.github.com:443" => Some(github_port),
        _ if target.ends_with(".example.org:443") => Some(other_port),
        _ => None,
    });
    let folder = TempDir::new().expect("a folder");
    let settings = [
        "tools.shell.hosts=[\"api.github.com\", \"granted.example.org\"]".to_owned(),
        format!(
            "tools.shell.secrets.github={{env=\"GH_TOKEN\", from={{file={:?}}}, \
             hosts=[\"api.github.com\"]}}",
            write_secret(&folder)
        ),
        format!("network.authorities=[{:?}]", authority.file()),
        format!("network.proxy=\"http://{proxy}\""),
        "network.no_proxy=[]".to_owned(),
        "network.proxy_resolves=true".to_owned(),
        "tools.shell.network=ask".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let scene = scene(&settings, |root| {
        let granted = root.join("granted");
        fs::copy(debian.join("usr/bin/gh"), granted.join("gh")).expect("it is copied");
        fs::copy(authority.file(), granted.join("server.pem")).expect("it is copied");
    })
    .await;
    // The files show what gh received.
    for command in ["pr list --repo me/x", "api user"] {
        let came = run(&scene, &format!("./gh {command} > out.txt; cat out.txt")).await;
        assert!(came.stdout.contains("hello"), "{command}: {came:?}");
        assert_eq!(last_credentials(&github), Some(format!("token {SECRET}")), "{command}");
        let text = received(&scene, "out.txt");
        assert!(text.contains("[REDACTED:github]"), "{command}: {text}");
        assert!(!text.contains(SECRET), "{command}: {text}");
    }
    let came = run(&scene, "./gh auth token > out.txt").await;
    assert!(received(&scene, "out.txt").starts_with("placeholder_"), "{came:?}");

    let came = run(&scene, &ELSEWHERE.replace("HOST", "denied.example.org")).await;
    assert!(came.code != 0 && other.connections() == 0, "{came:?}");
    let came = run(&scene, &ELSEWHERE.replace("HOST", "granted.example.org")).await;
    assert!(received(&scene, "out.txt").contains("hello token placeholder_"), "{came:?}");
    let sent = last_credentials(&other).expect("the request has arrived");
    assert!(sent.starts_with("token placeholder_") && !sent.contains(SECRET), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_not_in_the_sandbox_and_other_hosts_get_the_placeholder() {
    let secrets = Secrets::new(echo).await;
    let everything = "{ env; cat /proc/self/environ /proc/*/cmdline; \
                      grep -rl 'PRIVATE KEY' /run; grep -rl s3cret-Token /etc /run /tmp; } \
                      > all.txt 2> /dev/null; grep -c 'BEGIN CERT' /run/toolhold/*";
    let came = run(&secrets.scene, everything).await;
    assert_ne!(came.stdout.trim(), "0", "{came:?}");
    let all = received(&secrets.scene, "all.txt");
    assert!(all.contains("GH_TOKEN=placeholder_"), "{all}");
    assert!(all.contains("SSL_CERT_FILE=/run/toolhold/certificates.pem"), "{all}");
    assert!(!all.contains(SECRET) && !all.lines().any(|line| line.starts_with("/run/")), "{all}");
    if !there_is("curl") {
        return;
    }
    // TLS to this host is passed on unread, so the program checks the server's own certificate.
    let other = format!("other.test:{}", secrets.server.port());
    let line = format!(
        "curl -sS --max-time 20 --cacert server.pem -H \"Authorization: Bearer $GH_TOKEN\" \
         https://{other}/ > out.txt"
    );
    let came = run(&secrets.scene, &line).await;
    assert!(received(&secrets.scene, "out.txt").contains("hello Bearer placeholder_"), "{came:?}");
    let asked = secrets.server.asked();
    assert!(asked.iter().all(|asked| !format!("{asked:?}").contains(SECRET)), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_with_its_own_certificates_fails_with_the_reason() {
    if !there_is("curl") {
        return;
    }
    let secrets = Secrets::new(echo).await;
    let line = format!("curl -sS --max-time 20 --cacert server.pem https://{}/", secrets.origin());
    let answer = call(&secrets.scene.host, json!({ "command": line })).await;
    assert!(ran(&answer).is_some_and(|ran| ran.code != 0), "{:?}", answer.outcome);
    let text = format!("{:?}", answer.outcome);
    assert!(text.contains("`curl` refused Toolhold's certificate for api.test"), "{text}");
    assert_eq!(secrets.server.connections(), 0);
}
