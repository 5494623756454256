//! Ordinary work works: the usual tools in a fresh project, with the defaults and a preset.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::{Ran, run, scene, there_is};
use crate::support::{Scene, fetched};

async fn succeeds(scene: &Scene, command: &str) -> Ran {
    let ran = run(scene, command).await;
    assert_eq!(ran.code, 0, "{command}: {ran:?}");
    ran
}

fn write(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = root.join("granted").join(file);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders are made");
        fs::write(path, text).expect("a file is written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn make_works() {
    if !there_is("make") || !there_is("cc") {
        return;
    }
    let files = [
        ("Makefile", "hello: hello.c\n\tcc -o hello hello.c\n"),
        ("hello.c", "#include <stdio.h>\nint main() { puts(\"made\"); }\n"),
    ];
    let scene = scene(&[], |root| write(root, &files)).await;
    succeeds(&scene, "make").await;
    assert_eq!(succeeds(&scene, "./hello").await.stdout, "made\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_works() {
    if !there_is("git") {
        return;
    }
    let scene = scene(&["tools.shell.presets=[\"git\"]"], |_| {}).await;
    succeeds(&scene, "git init -q -b main . && git config user.name Tester && git config user.email tester@example.org").await;
    succeeds(&scene, "git add public.txt && git commit -q -m 'A first commit'").await;
    // Another call, when `.git/config` is there from the start.
    fs::write(scene.granted.join("public.txt"), "changed").expect("a file is written");
    succeeds(&scene, "git checkout -q -b topic && git commit -q -a -m 'A second commit' && git checkout -q main && git merge -q topic")
        .await;
    assert_eq!(
        succeeds(&scene, "git log --format=%s").await.stdout,
        "A second commit\nA first commit\n"
    );
    assert_eq!(succeeds(&scene, "git status --short").await.stdout, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_without_its_repository_names_the_missing_grant() {
    if !there_is("git") {
        return;
    }
    let git = |directory: &Path, line: &str| {
        let names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
        let ended = Command::new("git")
            .args(names)
            .args(line.split(' '))
            .current_dir(directory)
            .output()
            .expect("git starts");
        assert!(ended.status.success(), "{line}: {ended:?}");
    };
    // A subfolder of a repository, and a linked working tree.
    let subfolder = scene(&[], |root| git(root, "init -q")).await;
    let linked = scene(&[], |root| {
        let main = root.join("main");
        fs::create_dir(&main).expect("a folder is made");
        git(&main, "init -q");
        git(&main, "commit -q --allow-empty -m first");
        git(&main, "worktree add -q ../tree");
        fs::rename(root.join("tree/.git"), root.join("granted/.git")).expect("it is moved");
    })
    .await;
    let missing = [(&subfolder, subfolder.root()), (&linked, linked.root().join("main"))];
    for (scene, missing) in missing {
        let answer = super::call(&scene.host, json!({ "command": "git status" })).await;
        let advice = answer.outcome.expect_err("it has no repository").suggestion;
        let line = format!("`allowed_paths = [\".\", \"{}\"]` in [tools.shell]", missing.display());
        assert!(advice.as_ref().is_some_and(|advice| advice.contains(&line)), "{line}: {advice:?}");
    }
    // With the line, it works.
    let settings = ["tools.shell.allowed_paths=[\".\", \"{root}\"]"];
    let granted = scene(&settings, |root| git(root, "init -q")).await;
    succeeds(&granted, "git status").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_works_on_vendored_crates() {
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ndep = \"1\"\n",
        ),
        (
            "src/main.rs",
            "fn main() { println!(\"{}\", dep::word()); }\n\n#[test]\nfn holds() { assert_eq!(dep::word(), \"vendored\"); }\n",
        ),
        (
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\n \"dep\",\n]\n\n[[package]]\nname = \"dep\"\n\
             version = \"1.0.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n",
        ),
        (
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
        ),
        (
            "vendor/dep/Cargo.toml",
            "[package]\nname = \"dep\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
        ),
        ("vendor/dep/.cargo-checksum.json", "{\"files\":{}}"),
        ("vendor/dep/src/lib.rs", "pub fn word() -> &'static str { \"vendored\" }\n"),
    ];
    let scene = scene(&["tools.shell.presets=[\"cargo\"]"], |root| write(root, &files)).await;
    succeeds(&scene, "cargo build").await;
    assert_eq!(succeeds(&scene, "cargo run -q").await.stdout, "vendored\n");
    succeeds(&scene, "cargo test -q").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pytest_works() {
    let Some(python) = fetched("python") else { return };
    let python = python.canonicalize().expect("it is there");
    let grant =
        format!("tools.shell.allowed_paths=[\".\", {{ path = {python:?}, access = \"read\" }}]");
    let files = [(
        "test_it.py",
        "def test_it(tmp_path):\n    (tmp_path / 'x').write_text('1')\n    assert 1 + 1 == 2\n",
    )];
    let scene = scene(&[&grant, "tools.shell.presets=[\"pip\"]"], |root| write(root, &files)).await;
    let ran = succeeds(&scene, &format!("{}/bin/python -m pytest -q", python.display())).await;
    assert!(ran.stdout.contains("1 passed"), "{ran:?}");
}

/// A registry with one package, until the test is over.
fn registry(tarball: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let tarball = Arc::new(tarball);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let tarball = Arc::clone(&tarball);
            std::thread::spawn(move || serve(client, port, &tarball));
        }
    });
    port
}

fn serve(client: TcpStream, port: u16, tarball: &[u8]) -> Option<()> {
    let mut lines = BufReader::new(client.try_clone().ok()?).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    let version = json!({ "name": "dep", "version": "1.0.0", "dist": { "tarball": format!("http://127.0.0.1:{port}/dep-1.0.0.tgz") } });
    let package = json!({ "name": "dep", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
    let (status, body) = match path.as_str() {
        "/dep" => ("200 OK", package.to_string().into_bytes()),
        "/dep-1.0.0.tgz" => ("200 OK", tarball.to_vec()),
        _ => ("404 Not Found", b"{}".to_vec()),
    };
    let mut client = client;
    write!(client, "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())
        .ok()?;
    client.write_all(&body).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_works_with_a_registry() {
    if !there_is("npm") {
        return;
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder is made");
    let package: PathBuf = folder.path().join("package");
    fs::create_dir(&package).expect("a folder is made");
    fs::write(
        package.join("package.json"),
        r#"{"name":"dep","version":"1.0.0","main":"index.js"}"#,
    )
    .expect("a file is written");
    fs::write(package.join("index.js"), "module.exports = 'installed';\n")
        .expect("a file is written");
    let packed = Command::new("tar")
        .args(["-czf", "dep.tgz", "package"])
        .current_dir(folder.path())
        .status();
    assert!(packed.is_ok_and(|packed| packed.success()), "tar packs it");
    let port = registry(fs::read(folder.path().join("dep.tgz")).expect("it was packed"));

    let files =
        [("package.json", r#"{"name":"app","version":"1.0.0","dependencies":{"dep":"^1.0.0"}}"#)];
    let scene = scene(&["tools.shell.presets=[\"npm\"]", "tools.shell.network=allow"], |root| {
        write(root, &files);
    })
    .await;
    let npm =
        |what: &str| format!("npm {what} --registry http://127.0.0.1:{port} --no-audit --no-fund");
    succeeds(&scene, &npm("install")).await;
    succeeds(&scene, &format!("rm -r node_modules && {}", npm("ci"))).await;
    assert_eq!(succeeds(&scene, "node -p 'require(\"dep\")'").await.stdout, "installed\n");
}
