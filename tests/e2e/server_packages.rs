//! What `npx` and `uvx` would fetch is pinned: the archives that were approved run, and nothing
//! else.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use crate::support::{Cli, fetched, not_tried, shared_cache};

/// The name of the package and of its program.
const NAME: &str = "small-server";

/// A registry on this machine.
#[derive(Clone, Default)]
struct Registry(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    asked: usize,
}

impl Registry {
    /// Starts to serve. Returns it with its address.
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it has an address"));
        let registry = Self::default();
        let serving = registry.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.answer(stream));
            }
        });
        (registry, address)
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn offer(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.state(|state| state.files.insert(path.to_owned(), content.into()));
    }

    /// How often it was asked since the last time.
    fn asked(&self) -> usize {
        self.state(|state| std::mem::take(&mut state.asked))
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = first.split(' ').nth(1).unwrap_or_default().trim_end_matches('/');
        let found = self.state(|state| {
            state.asked += 1;
            state.files.get(path).cloned()
        });
        let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
        let body = found.unwrap_or_default();
        let kind = match path.rsplit_once('.') {
            Some((_, "tgz" | "whl")) => "application/octet-stream",
            _ if body.starts_with(b"{") => "application/json",
            _ => "text/html",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat())
    }
}

/// Runs the Python of the system.
fn python(script: &str, arguments: &[&str]) {
    let output = Command::new("/usr/bin/python3").arg("-c").arg(script).args(arguments).output();
    let output = output.expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A version and its archive.
type Version<'v> = (&'v str, &'v [u8]);

/// A manager of packages, and how a registry offers a package to it.
struct Manager {
    /// The name of the server, whose packages lie in the cache that all tests share.
    server: &'static str,
    command: PathBuf,
    arguments: Vec<&'static str>,
    /// The variable with the registry's address.
    variable: &'static str,
    /// Where it lies, if that isn't a folder of the system.
    readable: Vec<PathBuf>,
    /// The archive of a version.
    pack: fn(&str, &Path) -> Vec<u8>,
    /// Offers versions, the newest last.
    offer: fn(&Registry, &str, &[Version<'_>]),
}

fn npm() -> Option<Manager> {
    if !Path::new("/usr/bin/npx").exists() {
        not_tried("npx");
        return None;
    }
    Some(Manager {
        server: "small-npm",
        command: "/usr/bin/npx".into(),
        arguments: vec!["-y", NAME],
        variable: "npm_config_registry",
        readable: Vec::new(),
        pack: |version, folder| {
            let package = folder.join("package");
            fs::create_dir_all(&package).expect("a folder is made");
            let described = json!({ "name": NAME, "version": version, "bin": "index.js",
                "scripts": { "install": "touch /tmp/installed && exit 7" } });
            fs::write(package.join("package.json"), described.to_string()).expect("it is written");
            fs::write(package.join("index.js"), include_str!("../servers/small.js"))
                .expect("it is written");
            let archive = folder.join("package.tgz");
            let ended = Command::new("tar")
                .args(["-czf", archive.to_str().expect("UTF-8"), "package"])
                .current_dir(folder)
                .status();
            assert!(ended.expect("tar starts").success());
            fs::read(archive).expect("it was packed")
        },
        offer: |registry, address, versions| {
            let mut all = serde_json::Map::new();
            for (version, archive) in versions {
                let path = format!("/{NAME}/-/{NAME}-{version}.tgz");
                // The digest that a registry names isn't the pinned one.
                let described = json!({ "name": NAME, "version": version, "bin": "index.js",
                    "hasInstallScript": true, "dist": { "tarball": format!("{address}{path}"),
                    "integrity": integrity(archive) } });
                registry.offer(&path, *archive);
                all.insert((*version).to_owned(), described);
            }
            let latest = versions.last().expect("there is a version").0;
            let package = json!({ "name": NAME, "dist-tags": { "latest": latest },
                "versions": all });
            registry.offer(&format!("/simple/{NAME}"), package.to_string());
        },
    })
}

/// What npm calls the integrity of an archive.
fn integrity(archive: &[u8]) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let digest = sha2::Sha512::digest(archive);
    format!("sha512-{}", base64::engine::general_purpose::STANDARD.encode(digest))
}

fn uv() -> Option<Manager> {
    let folder = fetched("python")?.canonicalize().expect("it is there");
    Some(Manager {
        server: "small-uv",
        command: folder.join("bin/uvx"),
        arguments: vec!["--python", "/usr/bin/python3", NAME],
        variable: "UV_DEFAULT_INDEX",
        readable: vec![folder],
        pack: |version, folder| {
            let archive = folder.join("package.whl");
            let script = "import sys, zipfile, hashlib\n\
                archive, version, source = sys.argv[1:]\n\
                info = f'small_server-{version}.dist-info'\n\
                files = {'small_server.py': open(source).read().replace('@VERSION@', version),\n\
                \x20 f'{info}/METADATA': f'Metadata-Version: 2.1\\nName: small-server\\nVersion: {version}\\n',\n\
                \x20 f'{info}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',\n\
                \x20 f'{info}/entry_points.txt': '[console_scripts]\\nsmall-server = small_server:main\\n'}\n\
                files[f'{info}/RECORD'] = ''.join(f'{name},,\\n' for name in files)\n\
                with zipfile.ZipFile(archive, 'w') as out:\n\
                \x20 for name, text in files.items(): out.writestr(zipfile.ZipInfo(name), text)\n";
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/small.py");
            python(script, &[archive.to_str().expect("UTF-8"), version, source]);
            fs::read(archive).expect("it was packed")
        },
        offer: |registry, address, versions| {
            let mut links = String::new();
            for (version, archive) in versions {
                use sha2::Digest as _;
                let path = format!("/files/small_server-{version}-py3-none-any.whl");
                let digest = format!("{:x}", sha2::Sha256::digest(archive));
                let name = path.rsplit('/').next().unwrap_or_default();
                links += &format!("<a href=\"{address}{path}#sha256={digest}\">{name}</a>\n");
                registry.offer(&path, *archive);
            }
            registry
                .offer(&format!("/simple/{NAME}"), format!("<!DOCTYPE html><html><body>{links}"));
        },
    })
}

/// What was approved runs, wherever the registry stands by then.
fn approved_archives_run(manager: &Manager) {
    let (cli, server) = (Cli::new(), manager.server);
    let (registry, address) = Registry::start();
    let packed = |version: &str| {
        let folder = cli.root.path().join(format!("packed-{version}"));
        fs::create_dir_all(&folder).expect("a folder is made");
        (manager.pack)(version, &folder)
    };
    let (one, two) = (packed("1.0.0"), packed("2.0.0"));
    (manager.offer)(&registry, &address, &[("1.0.0", &one)]);
    let Manager { command, arguments, variable, readable, .. } = manager;
    let readable: Vec<String> =
        readable.iter().map(|path| format!("{{ path = {path:?}, access = \"read\" }}")).collect();
    cli.configure(&format!(
        "[tools]\nautonomy = \"full\"\n[mcp.servers.{server}]\ncommand = {command:?}\n\
         args = {arguments:?}\nallowed_paths = [{}]\nvariables = {{ {variable} = \"{address}/simple\" }}\n",
        readable.join(", "),
    ));
    let tool = format!("{server}__version");
    let call = &["call", tool.as_str()];
    let shown = cli.run(&["mcp", "approve", server, "--yes"]).ends(0).stdout;
    assert!(shown.contains(&format!("+ package {NAME} 1.0.0")), "{shown}");
    assert!(!shown.contains("not pinned"), "{shown}");
    assert_ne!(registry.asked(), 0);
    assert_eq!(cli.run(call).ends(0).stdout.trim(), "version 1.0.0", "it can't write its code");
    // A newer version isn't even asked for.
    (manager.offer)(&registry, &address, &[("1.0.0", &one), ("2.0.0", &two)]);
    assert_eq!(cli.run(call).ends(0).stdout.trim(), "version 1.0.0");
    assert_eq!(registry.asked(), 0, "nothing is fetched twice");
    // Lost packages are fetched again, and only those that were approved.
    let packages = shared_cache().join("servers").join(server);
    fs::remove_dir_all(&packages).expect("it was there");
    let other = (manager.pack)("1.0.0", &{
        let folder = cli.root.path().join("other");
        fs::create_dir_all(folder.join("package")).expect("a folder is made");
        fs::write(folder.join("package/more"), "more").expect("it is written");
        folder
    });
    let other = [&other[..], b"\0"].concat();
    (manager.offer)(&registry, &address, &[("1.0.0", &other)]);
    let refused = cli.run(call);
    assert_ne!(refused.code, 0);
    let told = format!("{}{}", refused.stdout, refused.stderr).to_lowercase();
    assert!(told.contains("integrity") || told.contains("hash"), "{told}");
    (manager.offer)(&registry, &address, &[("1.0.0", &one), ("2.0.0", &two)]);
    assert_eq!(cli.run(call).ends(0).stdout.trim(), "version 1.0.0");
    // A new approval takes what is there now.
    let shown = cli.run(&["mcp", "approve", server, "--yes"]).ends(0).stdout;
    assert!(shown.contains(&format!("~ package {NAME} 1.0.0 -> 2.0.0")), "{shown}");
    assert_eq!(cli.run(call).ends(0).stdout.trim(), "version 2.0.0");
    let folders = || {
        let entries = fs::read_dir(&packages).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    assert_eq!(folders(), 1, "the old packages are removed");
    cli.run(&["mcp", "remove", server]).ends(0);
    assert_eq!(folders(), 0);
}

#[test]
fn archives_of_npm_that_were_approved_run() {
    if let Some(manager) = npm() {
        approved_archives_run(&manager);
    }
}

#[test]
fn archives_of_python_that_were_approved_run() {
    if let Some(manager) = uv() {
        approved_archives_run(&manager);
    }
}

#[test]
fn what_isnt_pinned_is_named() {
    let cli = Cli::new();
    cli.configure(
        "[mcp.servers.loose]\ncommand = \"npx\"\nargs = [\"-y\", \"github:acme/server\"]\n",
    );
    let listed = cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("not pinned: `github:acme/server` isn't a package"), "{listed}");
}
