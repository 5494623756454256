//! Tiny registries of npm, Python and Rust with one package, and a git repository.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::server::{Asked, Wire, answer};

/// The text that each package has.
pub(super) const WORD: &str = "installed";

const PACKAGE_JSON: &str = r#"{"name":"dep","version":"1.0.0","main":"index.js"}"#;
const CARGO_TOML: &str = "[package]\nname = \"dep\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
const METADATA: &str = "Metadata-Version: 2.1\nName: dep\nVersion: 1.0.0\n";
const WHEEL: &str = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
const RECORD: &str = "dep.py,,\ndep-1.0.0.dist-info/METADATA,,\ndep-1.0.0.dist-info/WHEEL,,\n\
                      dep-1.0.0.dist-info/RECORD,,\n";

/// Packs the folder `wheel`, as programs of Python do.
const PACK_WHEEL: &str = "import os, zipfile\n\
    with zipfile.ZipFile('dep.whl', 'w') as z:\n\
    \u{20}for folder, _, files in os.walk('wheel'):\n\
    \u{20}\u{20}for file in files:\n\
    \u{20}\u{20}\u{20}path = os.path.join(folder, file)\n\
    \u{20}\u{20}\u{20}z.write(path, os.path.relpath(path, 'wheel'))\n";

/// The content of the registries.
pub(super) struct Registries {
    scheme: &'static str,
    /// The origin of all downloads, if it isn't that of the registries.
    downloads: Option<String>,
    folder: TempDir,
}

impl Registries {
    /// Makes the packages with the programs of this machine.
    pub(super) fn new(scheme: &'static str, downloads: Option<String>) -> Self {
        let folder = TempDir::new().expect("a temporary folder is made");
        let root = folder.path();
        let module = format!("module.exports = '{WORD}';\n");
        let library = format!("pub fn word() -> &'static str {{ \"{WORD}\" }}\n");
        let python = format!("word = '{WORD}'\n");
        let files = [
            ("package/package.json", PACKAGE_JSON),
            ("package/index.js", &module),
            ("dep-1.0.0/Cargo.toml", CARGO_TOML),
            ("dep-1.0.0/src/lib.rs", &library),
            ("wheel/dep.py", &python),
            ("wheel/dep-1.0.0.dist-info/METADATA", METADATA),
            ("wheel/dep-1.0.0.dist-info/WHEEL", WHEEL),
            ("wheel/dep-1.0.0.dist-info/RECORD", RECORD),
            ("tree/word", WORD),
        ];
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("it lies in a folder"))
                .expect("a folder is made");
            fs::write(path, text).expect("a file is written");
        }
        run(root, "tar", &["-czf", "dep.tgz", "package"]);
        run(root, "tar", &["-czf", "dep.crate", "dep-1.0.0"]);
        run(root, "/usr/bin/python3", &["-c", PACK_WHEEL]);
        let tree = root.join("tree");
        run(&tree, "git", &["init", "-q", "-b", "main"]);
        run(&tree, "git", &["add", "word"]);
        let names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
        run(&tree, "git", &[&names[..], &["commit", "-q", "-m", "first"]].concat());
        run(root, "git", &["clone", "-q", "--bare", "tree", "git/dep.git"]);
        run(root, "git", &["-C", "git/dep.git", "config", "http.receivepack", "true"]);
        Self { scheme, downloads, folder }
    }

    /// Answers as all registries, each below a path of its own.
    pub(super) fn answer(&self, asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
        let host = header(asked, "host");
        let own = format!("{}://{host}", self.scheme);
        let downloads = self.downloads.as_ref().unwrap_or(&own);
        let (kind, body) = match asked.path() {
            "/npm/dep" => ("application/json", npm_package(downloads)),
            "/simple/dep/" => ("text/html", python_links(downloads)),
            "/index/config.json" => {
                let config = json!({ "dl": format!("{downloads}/crates"), "api": null });
                ("application/json", config.to_string().into_bytes())
            }
            "/index/3/d/dep" => ("text/plain", self.crate_versions()?),
            "/npm/dep.tgz" => ("application/octet-stream", self.read("dep.tgz")?),
            "/dep-1.0.0-py3-none-any.whl" => ("application/zip", self.read("dep.whl")?),
            "/crates/dep/1.0.0/download" => ("application/gzip", self.read("dep.crate")?),
            "/word" => ("text/plain", WORD.into()),
            path if path.starts_with("/git/") => return self.answer_git(asked, wire),
            _ => return answer(wire, "404 Not Found", &[], b"{}"),
        };
        answer(wire, "200 OK", &[("content-type", kind)], &body)
    }

    /// The number of commits in the git repository.
    pub(super) fn commits(&self) -> usize {
        let folder = self.folder.path().join("git/dep.git");
        let log = Command::new("git").args(["log", "--format=%h"]).current_dir(folder).output();
        log.expect("git starts").stdout.split(|byte| *byte == b'\n').count() - 1
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.folder.path().join(name))
    }

    /// The file of a sparse index.
    fn crate_versions(&self) -> io::Result<Vec<u8>> {
        let digest = Sha256::digest(self.read("dep.crate")?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let version = json!({
            "name": "dep", "vers": "1.0.0", "deps": [], "cksum": digest, "features": {}, "yanked": false,
        });
        Ok(format!("{version}\n").into_bytes())
    }

    /// Lets git's own program for servers answer.
    fn answer_git(&self, asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
        let (path, query) = asked.path().split_once('?').unwrap_or((asked.path(), ""));
        let mut backend = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", self.folder.path())
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", asked.head.split(' ').next().unwrap_or_default())
            .env("CONTENT_TYPE", header(asked, "content-type"))
            .env("CONTENT_LENGTH", asked.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header(asked, "content-encoding"))
            .env("GIT_PROTOCOL", header(asked, "git-protocol"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        backend.stdin.take().expect("it has an input").write_all(&asked.body)?;
        let printed = backend.wait_with_output()?.stdout;
        let end = printed.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = printed.split_at(end.map_or(printed.len(), |end| end + 4));
        let head = String::from_utf8_lossy(head);
        let headers: Vec<(&str, &str)> =
            head.lines().filter_map(|line| line.split_once(": ")).collect();
        let status = headers.iter().find(|(name, _)| *name == "Status");
        answer(wire, status.map_or("200 OK", |(_, status)| status), &headers, body)
    }
}

fn header<'a>(asked: &'a Asked, name: &str) -> &'a str {
    asked.header(name).unwrap_or_default()
}

fn npm_package(downloads: &str) -> Vec<u8> {
    let tarball = format!("{downloads}/npm/dep.tgz");
    let version = json!({ "name": "dep", "version": "1.0.0", "dist": { "tarball": tarball } });
    let package = json!({
        "name": "dep", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version },
    });
    package.to_string().into_bytes()
}

fn python_links(downloads: &str) -> Vec<u8> {
    let file = "dep-1.0.0-py3-none-any.whl";
    format!("<!DOCTYPE html><a href=\"{downloads}/{file}\">{file}</a>").into_bytes()
}

fn run(directory: &Path, program: &str, arguments: &[&str]) {
    let ended = Command::new(program).args(arguments).current_dir(directory).output();
    let ended = ended.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(ended.status.success(), "{program} {arguments:?}: {ended:?}");
}

/// A static program in Go that fetches a URL. It has no setting for a proxy.
pub(super) const GO: &str = r#"package main

import (
    "crypto/tls"
    "crypto/x509"
    "fmt"
    "io"
    "net/http"
    "os"
    "time"
)

func main() {
    config := &tls.Config{}
    if len(os.Args) > 2 {
        authority, _ := os.ReadFile(os.Args[2])
        config.RootCAs = x509.NewCertPool()
        config.RootCAs.AppendCertsFromPEM(authority)
    }
    transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
    client := &http.Client{Timeout: 20 * time.Second, Transport: transport}
    answer, err := client.Get(os.Args[1])
    if err != nil {
        fmt.Fprintln(os.Stderr, err)
        os.Exit(1)
    }
    body, _ := io.ReadAll(answer.Body)
    fmt.Println(string(body))
}
"#;

/// Builds the program with a Go compiler. Returns its path.
pub(super) fn build_go(compiler: &Path, caches: &[(&str, PathBuf)], folder: &Path) -> PathBuf {
    fs::write(folder.join("reach.go"), GO).expect("it is written");
    let mut build = Command::new(compiler);
    build.args(["build", "-o", "reach-go", "reach.go"]).current_dir(folder);
    build.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod");
    for (name, cache) in caches {
        build.env(name, cache);
    }
    let built = build.output().expect("the compiler starts");
    assert!(built.status.success(), "{built:?}");
    folder.join("reach-go")
}

/// A program in C that needs no library and no setting: it gets an address, a port and a host.
pub(super) const C: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
  struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
  inet_pton(AF_INET, argv[1], &to.sin_addr);
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(s, (struct sockaddr *)&to, sizeof to) < 0) { perror("connect"); return 1; }
  dprintf(s, "GET /word HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n", argv[3], argv[2]);
  char text[4096];
  ssize_t length;
  int failure = 1;
  while ((length = read(s, text, sizeof text)) > 0) {
    fwrite(text, 1, length, stdout);
    failure = 0;
  }
  return failure;
}
"#;
