//! Secrets are put into the requests that they are for. Nobody else gets one: no guest, model,
//! other host, log or record.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use toolhold_core::{Answer, Category};

use crate::network_attacks::said;
use crate::support::server::{Asked, Authority, Server, Wire, answer};
use crate::support::{Cli, Scene, failure, log_with, loot, plugin, run, said_by};

/// Other characters in each encoding.
const SECRET: &str = "zq-7731/Wert+&=42~Ka";

/// Every trace of it: itself, in hexadecimal, with percent signs, and in base64 at any offset.
fn traces() -> Vec<Vec<u8>> {
    let bytes = SECRET.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut traces = vec![SECRET.to_owned(), hex.to_uppercase(), hex, escaped(SECRET)];
    for before in 0..3 {
        // Three bytes are four characters. Those at the ends depend on their neighbours.
        let whole = [&[0; 2][..before], bytes, &[0; 2]].concat();
        let within = (before * 8).div_ceil(6)..(before + bytes.len()) * 8 / 6;
        traces.extend(
            [&STANDARD, &URL_SAFE].map(|engine| engine.encode(&whole)[within.clone()].to_owned()),
        );
    }
    traces.into_iter().map(String::into_bytes).collect()
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[track_caller]
fn assert_untold(what: &str, bytes: &[u8]) {
    for trace in traces() {
        let at = bytes.windows(trace.len()).position(|window| window == trace);
        assert!(
            at.is_none(),
            "{what} has {} at {at:?}: {}",
            String::from_utf8_lossy(&trace),
            String::from_utf8_lossy(bytes)
        );
    }
}

/// Everything below a folder, except files of this name.
#[track_caller]
fn assert_untold_below(folder: &Path, but: &str) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("it is readable").flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("it has a kind");
        if kind.is_dir() {
            files += assert_untold_below(&path, but);
        } else if kind.is_file() && entry.file_name() != but {
            assert_untold(&path.display().to_string(), &fs::read(&path).expect("it is readable"));
            files += 1;
        }
    }
    files
}

/// What a server received of it: in a header, or decoded from the query.
fn got(asked: &Asked) -> Option<String> {
    let bearer = asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if let Some(header) = bearer.or_else(|| asked.header("x-key")) {
        return Some(header.to_owned());
    }
    let (_, value) = asked.path().split_once("api_key=")?;
    let mut parts = value.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        decoded.push(char::from(u8::from_str_radix(code, 16).ok()?));
        decoded += rest;
    }
    Some(decoded)
}

/// Echoes what it received, in four forms, in its headers and in a body of small pieces.
fn echo(asked: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    let sent = got(asked).unwrap_or_default();
    let hex: String = sent.bytes().map(|byte| format!("{byte:02x}")).collect();
    let forms = [sent.clone(), STANDARD.encode(format!("user:{sent}")), hex, escaped(&sent)];
    write!(wire, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n")?;
    for (index, form) in forms.iter().enumerate() {
        write!(wire, "x-echo-{index}: <{form}>\r\n")?;
    }
    write!(wire, "x-asked: {}\r\n", asked.path())?;
    wire.write_all(b"\r\n")?;
    for piece in format!("echoes: {} and no more", forms.join(" | ")).as_bytes().chunks(3) {
        write!(wire, "{:x}\r\n", piece.len())?;
        wire.write_all(piece)?;
        wire.write_all(b"\r\n")?;
        wire.flush()?;
    }
    wire.write_all(b"0\r\n\r\n")
}

fn ok(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[], b"hello")
}

/// A scene whose hostile plugin may reach these places, with further settings. The secret is in
/// `{root}/token`.
async fn scene(opened: &[String], settings: &[&str]) -> Scene {
    let path = format!("plugins.hostile-http.path={:?}", plugin("hostile-http"));
    let opened = format!("plugins.hostile-http.allowed_private_hosts={opened:?}");
    let mut all =
        vec![path.as_str(), "plugins.hostile-http.reload=trust", &opened, "tools.call=20"];
    all.extend(settings);
    Scene::with(&all, |root| {
        fs::write(root.join("token"), format!("{SECRET}\n")).expect("it is written");
    })
    .await
}

async fn attack(scene: &Scene, tool: &str, arguments: Value) -> Answer {
    let answer = scene.call(&format!("hostile-http__{tool}"), arguments).await;
    assert_untold("an answer", format!("{:?}", answer.outcome).as_bytes());
    answer
}

/// Each source, in a header and in the query, with the built-in tools. Then every trace that is
/// left.
#[test]
fn secret_from_each_source_reaches_its_server_only() {
    let server = Server::plain(echo);
    let cli = Cli::new();
    let token = cli.root.path().join("config/token");
    fs::write(&token, format!("{SECRET}\n")).expect("it is written");
    // Replaces the program that reads the desktop's keyring.
    let programs = cli.root.path().join("programs");
    fs::create_dir(&programs).expect("a folder is made");
    let looks_up = format!(
        "#!/bin/sh\n[ \"$*\" = 'lookup service example account me' ] && exec /bin/cat '{}'\n",
        token.display()
    );
    fs::write(programs.join("secret-tool"), looks_up).expect("it is written");
    fs::set_permissions(programs.join("secret-tool"), Permissions::from_mode(0o700))
        .expect("it is a program");
    let by_command = format!("command = [\"/bin/cat\", {token:?}]");
    let sources = [
        ("variable", "env = \"TOKEN\""),
        ("file", "file = \"token\""),
        ("command", &by_command),
        (
            "keyring",
            "command = [\"secret-tool\", \"lookup\", \"service\", \"example\", \"account\", \"me\"]",
        ),
        ("parameter", "env = \"TOKEN\"\nquery = \"api_key\""),
    ];
    let mut configuration =
        format!("[tools.web]\nallowed_private_hosts = [\"{}\"]\n", server.address);
    for (name, source) in sources {
        configuration += &format!(
            "[tools.web.secrets.{name}]\n{source}\nhosts = [\"{}\"]\npaths = [\"/{name}\"]\n",
            server.address
        );
    }
    cli.configure(&configuration);
    let called = |tool: &str, rest: &[&str]| {
        let mut command =
            cli.command(&[&["--log", "trace", "call", "--json", "--yes", tool], rest].concat());
        command
            .env("TOKEN", SECRET)
            .env("PATH", &programs)
            .env("TOOLHOLD_CACHE_DIR", cli.root.path().join("cache"));
        let output = command.output().expect("toolhold starts");
        assert_untold("what is printed", &output.stdout);
        assert_untold("the log", &output.stderr);
        assert!(output.status.success() && !output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (name, _) in sources {
        for (tool, more) in [("fetch", &[][..]), ("http_request", &["method=POST", "body=x"])] {
            let url = format!("url=http://{}/{name}", server.address);
            let told = called(tool, &[&[url.as_str()], more].concat());
            let asked = server.asked();
            let sent = got(asked.last().expect("it was asked"));
            assert_eq!(sent.as_deref(), Some(SECRET), "{tool} with the {name}");
            assert!(
                told.contains(&format!("[REDACTED:{name}]")) && told.contains("and no more"),
                "{told}"
            );
        }
    }
    cli.run(&["audit", "verify"]).ends(0);
    assert!(
        fs::read_to_string(cli.root.path().join("data/audit/audit.jsonl"))
            .is_ok_and(|log| log.contains("\"secrets\":\"keyring\""))
    );
    assert!(assert_untold_below(cli.root.path(), "token") > 3);
}

#[test]
fn secret_that_is_not_sent_is_told_with_the_line_that_sends_it() {
    let server = Server::plain(echo);
    let cli = Cli::new();
    let origin = format!("http://{}", server.address);
    for (host, is_sent) in [("127.0.0.1", false), (origin.as_str(), true)] {
        cli.configure(&format!(
            "[tools.web]\nallowed_private_hosts = [\"{}\"]\n[tools.web.secrets.key]\nenv = \"TOKEN\"\nhosts = [\"{host}\"]\n",
            server.address
        ));
        let mut command = cli.command(&["call", "--yes", "fetch", &format!("url={origin}/x")]);
        let output = command.env("TOKEN", SECRET).output().expect("toolhold starts");
        let told = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_untold("the answer", told.as_bytes());
        let line = format!("add \"{origin}\" to `hosts` in [tools.web.secrets.key]");
        assert_eq!(told.contains(&line), !is_sent, "{told}");
        let sent = got(server.asked().last().expect("it was asked"));
        assert_eq!(sent.as_deref() == Some(SECRET), is_sent);
    }
}

#[test]
fn secret_goes_only_to_its_host_methods_and_paths() {
    run(async {
        let other = Server::plain(ok);
        let away = format!("http://localhost:{}/api", other.port());
        let server = Server::plain(move |asked, wire| match asked.path() {
            "/api/away" => answer(wire, "302 Found", &[("location", &away)], b""),
            "/api/down" => {
                let down = format!("http://{}/other", asked.header("host").unwrap_or_default());
                answer(wire, "302 Found", &[("location", &down)], b"")
            }
            _ => answer(wire, "200 OK", &[], b"hello"),
        });
        let opened = [
            server.address.to_string(),
            format!("localhost:{}", server.port()),
            format!("localhost:{}", other.port()),
        ];
        let token = format!(
            r#"plugins.hostile-http.secrets.token={{file="{{root}}/token", hosts=["{}"], methods=["GET"], paths=["/api"]}}"#,
            server.address
        );
        // Of this machine, on one of two ports that are opened. Without a port it would be that of
        // https.
        let named = format!(
            r#"plugins.hostile-http.secrets.named={{file="{{root}}/token", hosts=["localhost:{}"], paths=["/named"], header="X-Key"}}"#,
            server.port()
        );
        let nowhere = r#"plugins.hostile-http.secrets.nowhere={file="{root}/token", hosts=["localhost", "127.0.0.1"], query="api_key"}"#;
        let scene = scene(&opened, &[&token, &named, nowhere]).await;
        let base = format!("http://{}", server.address);
        let last = || got(server.asked().last().expect("it was asked"));
        for path in ["/api", "/api/x", "/api?y=z"] {
            loot(&attack(&scene, "send", json!({ "url": format!("{base}{path}") })).await);
            assert_eq!(last().as_deref(), Some(SECRET), "{path}");
        }
        let by_name =
            |server: &Server, path: &str| format!("http://localhost:{}{path}", server.port());
        loot(&attack(&scene, "send", json!({ "url": by_name(&server, "/named") })).await);
        assert_eq!(last().as_deref(), Some(SECRET));
        loot(&attack(&scene, "send", json!({ "url": by_name(&other, "/named") })).await);
        for (url, method) in [
            (format!("{base}/"), "GET"),
            (format!("{base}/apis"), "GET"),
            (format!("{base}/other/api"), "GET"),
            (format!("{base}/api/%2e%2e/other"), "GET"),
            (format!("{base}/api"), "POST"),
            (by_name(&server, "/api"), "GET"),
        ] {
            loot(&attack(&scene, "send", json!({ "url": url, "method": method })).await);
            assert_eq!(last(), None, "{method} {url}");
        }
        for path in ["/api/away", "/api/down"] {
            loot(
                &attack(&scene, "follow", json!({ "url": format!("{base}{path}"), "count": 3 }))
                    .await,
            );
        }
        let asked = server.asked();
        let sent = |path: &str| {
            asked.iter().filter(|asked| asked.path() == path).map(got).collect::<Vec<_>>()
        };
        assert_eq!(
            (sent("/api/away"), sent("/api/down")),
            (vec![Some(SECRET.to_owned())], vec![Some(SECRET.to_owned())])
        );
        // The path with dots is resolved here too.
        assert_eq!(sent("/other"), [None::<String>, None]);
        assert_eq!(other.asked().iter().map(got).collect::<Vec<_>>(), [None::<String>, None]);
        for asked in other.asked() {
            assert_untold("what another host was sent", asked.head.as_bytes());
        }
        // A guest's own header is replaced, and it can't send a secret that it has guessed.
        let headers = json!([["authorization", "Bearer of-the-guest"]]);
        loot(
            &attack(&scene, "send", json!({ "url": format!("{base}/api"), "headers": headers }))
                .await,
        );
        assert_eq!(last().as_deref(), Some(SECRET));
        let before = server.asked().len();
        for encoded in [SECRET.to_owned(), STANDARD.encode(SECRET), escaped(SECRET)] {
            let sent = scene
                .call(
                    "hostile-http__send",
                    json!({ "url": format!("{base}/"), "method": "POST", "body": encoded }),
                )
                .await;
            assert_eq!(
                failure(&sent, Category::PolicyBlocked, None)
                    .denial
                    .as_ref()
                    .map(|denial| &*denial.capability),
                Some("http")
            );
        }
        assert_eq!(server.asked().len(), before);
    });
}

#[test]
fn secret_over_tls_goes_to_its_host_name_only() {
    run(async {
        let authority = Authority::new();
        let server =
            Server::tls(authority.server(&["localhost", "127.0.0.1"], &["http/1.1"], |_| {}), echo);
        let opened = [server.address.to_string(), format!("localhost:{}", server.port())];
        let trusted = format!("network.authorities=[{:?}]", authority.file());
        let secret = r#"plugins.hostile-http.secrets.named={file="{root}/token", hosts=["localhost:PORT"], header="X-Key"}"#;
        let named = secret.replace("PORT", &server.port().to_string());
        let scene = scene(&opened, &[&trusted, &named]).await;
        for (host, expected) in [("localhost", Some(SECRET)), ("127.0.0.1", None)] {
            loot(
                &attack(
                    &scene,
                    "send",
                    json!({ "url": format!("https://{host}:{}/", server.port()) }),
                )
                .await,
            );
            assert_eq!(
                got(server.asked().last().expect("it was asked")).as_deref(),
                expected,
                "{host}"
            );
        }
    });
}

/// A guest gets a server's echoes without the secret, and doesn't find it in its own memory.
#[test]
fn guest_never_has_a_secret_in_its_memory() {
    run(async {
        let server = Server::plain(echo);
        let secret = r#"plugins.hostile-http.secrets.token={command=["cat", "{root}/token"], hosts=["ADDRESS"]}"#;
        let token = secret.replace("ADDRESS", &server.address.to_string());
        let scene = scene(
            &[server.address.to_string()],
            &[&token, "plugins.hostile-http.limits.cpu_secs=60"],
        )
        .await;
        let url = format!("http://{}/", server.address);
        let told: Value =
            serde_json::from_str(&said(&attack(&scene, "send", json!({ "url": url })).await))
                .expect("it is JSON");
        let body = told["body"].as_str().expect("there is one");
        assert!(
            body.starts_with("echoes: [REDACTED:token] | ") && body.ends_with(" and no more"),
            "{body}"
        );
        assert_eq!(body.matches("[REDACTED:token]").count(), 4, "{body}");
        let headers: Vec<&str> = told["headers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| pair[1].as_str())
            .collect();
        assert_eq!(
            headers.iter().filter(|value| value.contains("[REDACTED:token]")).count(),
            4,
            "{headers:?}"
        );

        // With one added to each byte, so that the searched text isn't found in the request itself.
        // The last one is present.
        let needles: Vec<Vec<u8>> = traces().into_iter().chain([b"and no more".to_vec()]).collect();
        let needles: Vec<Vec<u8>> = needles
            .into_iter()
            .map(|bytes| bytes.into_iter().map(|byte| byte.wrapping_add(1)).collect())
            .collect();
        let answer =
            attack(&scene, "search_memory", json!({ "url": url, "needles": needles })).await;
        let told: Value = serde_json::from_str(&said(&answer)).expect("it is JSON");
        let (last, traces) =
            told["found"].as_array().and_then(|found| found.split_last()).expect("it is a list");
        assert!(last.is_u64() && told["answer"] == true, "{told}");
        assert!(traces.iter().all(Value::is_null), "{told}");
        assert_eq!(server.asked().iter().filter_map(got).collect::<Vec<_>>(), [SECRET, SECRET]);

        assert_untold("the log", log_with(&[]).join("\n").as_bytes());
        assert!(assert_untold_below(&scene.root(), "token") > 2);
    });
}

#[test]
fn secret_that_can_t_be_read_fails_the_call_in_words() {
    run(async {
        let server = Server::plain(ok);
        let sources = [
            ("unset", r#"env="NO_SUCH_VARIABLE""#, "NO_SUCH_VARIABLE"),
            ("missing", r#"file="{root}/no-such-file""#, "can't be read"),
            ("lines", r#"file="{root}/lines""#, "several lines"),
            ("short", r#"file="{root}/short""#, "too short"),
            (
                "failing",
                r#"command=["sh", "-c", "cat {root}/token {root}/token >&2; exit 3"]"#,
                "failed",
            ),
            ("absent", r#"command=["no-such-program"]"#, "not found"),
        ];
        let path = format!("plugins.hostile-http.path={:?}", plugin("hostile-http"));
        let opened = format!(
            "plugins.hostile-http.allowed_private_hosts=[{:?}]",
            server.address.to_string()
        );
        let secrets = sources.map(|(name, source, _)| {
            format!("plugins.hostile-http.secrets.{name}={{{source}, hosts=[\"{}\"], paths=[\"/{name}\"]}}", server.address)
        });
        let mut all =
            vec![path.as_str(), "plugins.hostile-http.reload=trust", &opened, "tools.call=20"];
        all.extend(secrets.iter().map(String::as_str));
        let scene = Scene::with(&all, |root| {
            for (name, text) in [
                ("token", SECRET.to_owned()),
                ("lines", format!("{SECRET}\nmore\n")),
                ("short", "zq-77".to_owned()),
            ] {
                fs::write(root.join(name), text).expect("it is written");
            }
        });
        let scene = scene.await;
        for (name, _, words) in sources {
            let answer = attack(
                &scene,
                "send",
                json!({ "url": format!("http://{}/{name}", server.address) }),
            )
            .await;
            // The message is for the operator: a guest has no use for the name of a file.
            let message = said_by(failure(&answer, Category::PermanentFailure, None));
            assert!(
                message.contains("ConfigurationError")
                    && !message.contains("zq-77")
                    && !message.contains("no-such"),
                "{message}"
            );
            let told = log_with(&[&format!("the secret {name} can't be read"), words]);
            assert!(
                !told.is_empty() && !told.iter().any(|line| line.contains("zq-77")),
                "{told:?}"
            );
        }
        assert_eq!(server.connections(), 0);
        assert_untold("the log", log_with(&[]).join("\n").as_bytes());
        // If no secret is needed, nothing is wrong.
        loot(
            &attack(&scene, "send", json!({ "url": format!("http://{}/", server.address) })).await,
        );
    });
}

#[test]
fn secret_file_is_closed_to_every_tool() {
    let cli = Cli::new();
    fs::create_dir(cli.work().join("keys")).expect("a folder is made");
    let token = cli.work().join("keys/token");
    fs::write(&token, format!("{SECRET}\n")).expect("it is written");
    fs::write(cli.work().join("keys/other"), "another file\n").expect("it is written");
    let secret =
        format!("[tools.web.secrets.token]\nfile = {token:?}\nhosts = [\"api.example.com\"]\n");
    let unasked = "[tools]\nautonomy = \"full\"\n";
    cli.configure(&format!("{unasked}{secret}"));
    let attempts: [&[&str]; 10] = [
        &["read", "path=keys/token"],
        &["grep", "pattern=Wert", "path=keys/token"],
        &["grep", "pattern=Wert"],
        &["write", "path=keys/token", "content=mine"],
        &["edit", "path=keys/token", "old_string=zq", "new_string=mine"],
        &["copy_path", "source=keys/token", "destination=copied"],
        &["copy_path", "source=keys", "destination=all"],
        &["move_path", "source=keys/token", "destination=moved"],
        &[
            "bash",
            "command=cat keys/token; cp keys/token copied; ln keys/token linked; mv keys elsewhere",
        ],
        &["bash", "command=echo mine > keys/token; rm -rf keys/token"],
    ];
    for line in attempts {
        let ended = cli.run(&[&["call"], line].concat());
        assert_untold(line[0], format!("{}{}", ended.stdout, ended.stderr).as_bytes());
        assert_eq!(
            fs::read_to_string(&token).ok().as_deref(),
            Some(format!("{SECRET}\n").as_str()),
            "{line:?}: {}",
            ended.stderr
        );
        assert_untold_below(&cli.work(), "token");
    }
    // The text beside it is for them.
    assert!(cli.run(&["call", "read", "path=keys/other"]).ends(0).stdout.contains("another file"));
    assert!(
        cli.run(&["call", "bash", "command=cat keys/other"])
            .ends(0)
            .stdout
            .contains("another file")
    );
    cli.run(&["call", "copy_path", "source=keys/other", "destination=copied"]).ends(0);
}
