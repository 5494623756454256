//! Package managers, git and other programs of every kind reach the granted host by its name, and
//! nothing else. None of them is told of a proxy.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::package_servers::{C, Registries, WORD, build_go};
use super::{Ran, ran_of, scene, there_is};
use crate::support::server::{Authority, Server, answer};
use crate::support::{Scene, compiler_caches, fetched, go_compiler};

/// A program that gets something from a host.
struct Program {
    name: &'static str,
    /// The command. It prints [`WORD`] if it has reached `$URL`, the origin of `$HOST` and `$PORT`.
    /// `$CA` is the file of the authority, if the server speaks TLS.
    command: &'static str,
    speaks_tls: bool,
    /// Whether the program fetches files from where the host says.
    follows_links: bool,
}

const CLIENT: Program = Program { name: "", command: "", speaks_tls: true, follows_links: false };

const PROGRAMS: [Program; 10] = [
    Program {
        name: "curl",
        command: "curl -sS --max-time 20 ${CA:+--cacert $CA} $URL/word",
        ..CLIENT
    },
    Program {
        name: "wget",
        command: "wget -q -T 20 -t 1 -O - ${CA:+--ca-certificate=$CA} $URL/word",
        ..CLIENT
    },
    Program {
        name: "node",
        command: "NODE_EXTRA_CA_CERTS=$CA node -e \
                  'fetch(process.argv[1]).then(r => r.text()).then(console.log)' $URL/word",
        ..CLIENT
    },
    Program {
        name: "python3",
        command: "SSL_CERT_FILE=$CA /usr/bin/python3 -c 'import sys, urllib.request as r; \
                  print(r.urlopen(sys.argv[1], timeout=20).read().decode())' $URL/word",
        ..CLIENT
    },
    Program { name: "go", command: "./reach-go $URL/word $CA", ..CLIENT },
    Program {
        name: "cc",
        command: "./reach-c $(getent ahostsv4 $HOST | head -n 1 | cut -d ' ' -f 1) $PORT $HOST",
        speaks_tls: false,
        ..CLIENT
    },
    Program {
        name: "git",
        command: "rm -rf clone; export GIT_SSL_CAINFO=$CA GIT_TERMINAL_PROMPT=0; \
                  git clone -q $URL/git/dep.git clone && cat clone/word && cd clone && \
                  git -c user.name=t -c user.email=t@t commit -q --allow-empty -m second && \
                  git push -q origin main",
        ..CLIENT
    },
    Program {
        name: "npm",
        command: "rm -rf node_modules package-lock.json cache; npm install --registry $URL/npm/ \
                  --cache ./cache ${CA:+--cafile $CA} --fetch-retries=0 --no-audit --no-fund && \
                  node -p 'require(\"dep\")'",
        follows_links: true,
        ..CLIENT
    },
    Program {
        name: "pip3",
        command: "rm -rf lib; /usr/bin/python3 -m pip install -q --disable-pip-version-check \
                  --no-cache-dir --retries 0 --timeout 20 --target lib --index-url $URL/simple/ \
                  ${CA:+--cert $CA} --trusted-host $HOST:$PORT dep && \
                  PYTHONPATH=lib /usr/bin/python3 -c 'import dep; print(dep.word)'",
        follows_links: true,
        ..CLIENT
    },
    Program {
        name: "cargo",
        command: "rm -rf home Cargo.lock; CARGO_HOME=$PWD/home CARGO_NET_RETRY=0 \
                  CARGO_REGISTRIES_TEST_INDEX=sparse+$URL/index/ ${CA:+env CARGO_HTTP_CAINFO=$CA} \
                  cargo run -q",
        follows_links: true,
        ..CLIENT
    },
];

/// The files of the projects in which the package managers work.
const FILES: [(&str, &str); 4] = [
    ("package.json", r#"{"name":"app","version":"1.0.0","dependencies":{"dep":"^1.0.0"}}"#),
    (
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
         [dependencies]\ndep = { version = \"1\", registry = \"test\" }\n",
    ),
    ("src/main.rs", "fn main() { println!(\"{}\", dep::word()); }\n"),
    ("reach.c", C),
];

/// A scene whose commands reach only `hosts`. Names below `test` resolve to this machine.
async fn granted(hosts: &[String], authority: &Authority) -> Scene {
    let hosts = format!("tools.shell.hosts={hosts:?}");
    let settings = [
        &hosts,
        "tools.shell.presets=[\"cargo\", \"npm\", \"pip\", \"git\"]",
        "tools.shell.allowed_commands=[\"curl\", \"wget\"]",
        "tools.shell.network=ask",
        "tools.call=300",
        "tools.limits.written_mib=200",
    ];
    scene(&settings, |root| {
        let granted = root.join("granted");
        fs::create_dir(granted.join("src")).expect("a folder is made");
        for (file, text) in FILES {
            fs::write(granted.join(file), text).expect("a file is written");
        }
        fs::copy(authority.file(), granted.join("ca.pem")).expect("a file is copied");
    })
    .await
}

/// Makes the programs of this test that need a compiler, outside of the sandbox. Returns whether
/// `name` can be run.
fn prepare(name: &str, folder: &Path) -> bool {
    match name {
        "go" => {
            let Some(tools) = fetched("plugins-go") else { return false };
            let _alone = go_compiler();
            let sources = tempfile::TempDir::new().expect("a folder is made");
            let compiler = tools.join("bin/go");
            let built = build_go(&compiler, &compiler_caches(&tools), sources.path());
            fs::copy(built, folder.join("reach-go")).expect("it is copied");
            true
        }
        "cc" if there_is("cc") => {
            let mut cc = Command::new("cc");
            cc.args(["-static", "-o", "reach-c", "reach.c"]).current_dir(folder);
            assert!(cc.status().is_ok_and(|status| status.success()), "cc makes it");
            true
        }
        "npm" => there_is("npm") && there_is("node"),
        // Rust's own programs are where the user has them.
        "cargo" => true,
        name => there_is(name),
    }
}

async fn run(scene: &Scene, program: &Program, scheme: &str, host: &str, port: u16) -> Ran {
    let authority = if scheme == "https" { "CA=$PWD/ca.pem; " } else { "" };
    let command = format!(
        "URL={scheme}://{host}:{port}; HOST={host}; PORT={port}; {authority}{}",
        program.command
    );
    ran_of(scene, json!({ "command": command, "timeout": 240 })).await
}

/// Servers of one scheme: the granted registries, registries whose files another host has, and a
/// server that nothing is granted for.
struct Servers {
    registries: Arc<Registries>,
    granted: Server,
    linking: Server,
    other: Server,
}

impl Servers {
    fn new(scheme: &'static str, authority: &Authority) -> Self {
        let other = Server::plain(|_, wire| {
            answer(wire, "200 OK", &[("connection", "close")], WORD.as_bytes())
        });
        let elsewhere = format!("{scheme}://other.test:{}", other.port());
        let registries = Arc::new(Registries::new(scheme, None));
        let linking = Arc::new(Registries::new(scheme, Some(elsewhere)));
        let granted = serve(scheme, authority, Arc::clone(&registries));
        let linking = serve(scheme, authority, linking);
        Self { registries, granted, linking, other }
    }
}

fn serve(scheme: &str, authority: &Authority, registries: Arc<Registries>) -> Server {
    if scheme == "http" {
        return Server::plain(move |asked, wire| registries.answer(asked, wire));
    }
    let tls = authority.server(&["npm.test"], &[], |_| {});
    Server::tls(tls, move |asked, wire| registries.answer(asked, wire))
}

/// Programs get what they need from the granted host. With another name, at another port, and for
/// files of another host, no connection arrives.
async fn assert_only_granted_host_is_reached(scheme: &'static str, programs: &[&Program]) {
    // They make the packages.
    if !there_is("python3") || !there_is("git") {
        return;
    }
    let authority = Authority::new();
    let servers = Servers::new(scheme, &authority);
    let entry = |server: &Server| format!("{scheme}://npm.test:{}", server.port());
    let scene = granted(&[entry(&servers.granted), entry(&servers.linking)], &authority).await;
    let port = servers.granted.port();
    for program in programs {
        if !prepare(program.name, &scene.granted) {
            continue;
        }
        let name = program.name;
        let before = servers.granted.asked().len();
        let came = run(&scene, program, scheme, "npm.test", port).await;
        assert!(came.code == 0 && came.stdout.contains(WORD), "{name}, {scheme}: {came:?}");
        let asked = servers.granted.asked().len();
        assert!(asked > before, "{name}, {scheme}: {came:?}");

        for (host, port) in [("other.test", port), ("npm.test", servers.other.port())] {
            let came = run(&scene, program, scheme, host, port).await;
            assert_ne!(came.code, 0, "{name}, {scheme}, {host}:{port}: {came:?}");
        }
        if program.follows_links {
            let came = run(&scene, program, scheme, "npm.test", servers.linking.port()).await;
            assert_ne!(came.code, 0, "{name}, {scheme}, linking: {came:?}");
            assert!(!servers.linking.asked().is_empty(), "{name}, {scheme}: {came:?}");
        }
        let arrived = (servers.granted.asked().len(), servers.other.connections());
        assert_eq!(arrived, (asked, 0), "{name}, {scheme}");
        if name == "git" {
            assert_eq!(servers.registries.commits(), 2, "git has pushed");
        }
    }
    scene.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_with_tls_reach_the_granted_host_and_no_other() {
    let programs: Vec<&Program> = PROGRAMS[..6].iter().filter(|one| one.speaks_tls).collect();
    assert_only_granted_host_is_reached("https", &programs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_package_managers_reach_the_granted_registry_and_no_other_host() {
    let programs: Vec<&Program> = PROGRAMS[4..].iter().collect();
    assert_only_granted_host_is_reached("http", &programs).await;
    if std::env::var_os("TOOLHOLD_SOAK").is_some() {
        assert_only_granted_host_is_reached("https", &PROGRAMS[6..].iter().collect::<Vec<_>>())
            .await;
    }
}
