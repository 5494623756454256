//! The packages of a release, each installed from its file: what it installs answers calls, serves,
//! ends by signals and with its own exit codes, and tells clients how to start it.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_packaging::{Architecture, Package, Release, packages};

use crate::support::{fetched, not_tried, shared_cache, toolhold};

/// The packages, with the program that is tested, made once.
static MADE: LazyLock<(TempDir, Vec<PathBuf>)> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a folder is made");
    let stripped = folder.path().join("toolhold");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(toolhold()).status();
    // Without the tool, it takes longer.
    let stripped = strip.is_ok_and(|status| status.success()).then_some(stripped);
    let program = fs::read(stripped.unwrap_or_else(toolhold)).expect("it is there");
    let release = Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: Architecture::from_name(std::env::consts::ARCH).expect("it has packages"),
        program,
        parts: vec![("go".to_owned(), b"\0asm".to_vec())],
        readme: b"# Toolhold\n".to_vec(),
        licences: vec![("LICENSE-MIT".to_owned(), b"licence".to_vec())],
        sbom: b"{}\n".to_vec(),
        share: Vec::new(),
        sdk_python: Vec::new(),
        sdk_javascript: Vec::new(),
        repository: None,
        time: 1_700_000_000,
        compression: 1,
    };
    let write = |Package { file_name, bytes }| {
        let path = folder.path().join(file_name);
        fs::write(&path, bytes).expect("it is written");
        path
    };
    let paths = packages(&release).expect("they are made").into_iter().map(write).collect();
    (folder, paths)
});

/// The package whose name ends so.
fn package(end: &str) -> &'static Path {
    let found = MADE.1.iter().find(|path| path.to_string_lossy().ends_with(end));
    found.unwrap_or_else(|| panic!("{end} is not among {:?}", MADE.1))
}

/// A user who installs something.
struct Installing {
    root: TempDir,
}

impl Installing {
    fn new() -> Self {
        let root = TempDir::new().expect("a folder is made");
        fs::create_dir(root.path().join("work")).expect("a folder is made");
        fs::write(root.path().join("work/notes.txt"), "first\n").expect("it is written");
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The user's own programs, then those of this machine.
    fn search_path(&self) -> OsString {
        let machine = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.path("bin")).chain(std::env::split_paths(&machine));
        std::env::join_paths(folders).expect("no folder has a colon")
    }

    /// A program with this user's folders, and no access to a network of packages.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.path("work")).env_clear();
        command
            .env("HOME", self.root.path())
            .env("PATH", self.search_path())
            .env("TOOLHOLD_CACHE_DIR", shared_cache())
            .env("npm_config_update_notifier", "false")
            .stdin(Stdio::null());
        command
    }

    /// What a command prints, if it ends with this code.
    #[track_caller]
    fn ends(&self, words: &[&str], code: i32) -> String {
        let output = self.command(words).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{errors}");
        said
    }

    /// Whether what these words start works as Toolhold itself does.
    #[track_caller]
    fn works(&self, toolhold: &[&str]) {
        let with = |more: &[&'static str]| [toolhold, more].concat();
        assert!(self.ends(&with(&["--version"]), 0).starts_with("toolhold "));
        assert!(self.ends(&with(&["call", "read", "path=notes.txt"]), 0).contains("first"));
        self.ends(&with(&["call", "read", "path=/etc/shadow"]), 3);
        self.ends(&with(&["call", "nothing"]), 2);
        let said =
            self.ends(&with(&["call", "--yes", "bash", "command=echo from-the-$((40+2))"]), 0);
        assert!(said.contains("from-the-42"), "{said}");

        self.serves(&with(&["serve"]), "notes.txt");
    }

    /// Whether what these words start is a server that reads this file, which begins with `first`,
    /// until a signal to the process that was started ends it.
    #[track_caller]
    fn serves(&self, server: &[&str], file: &str) {
        let mut served = self.command(server);
        let served = served.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut served = served.expect("it starts");
        let (mut to, from) = (served.stdin.take().expect("it is piped"), served.stdout.take());
        let mut lines = BufReader::new(from.expect("it is piped")).lines();
        let mut ask = |message: Value| {
            writeln!(to, "{message}").expect("it is sent");
            let line = lines.next().expect("it answers").expect("it is text");
            serde_json::from_str::<Value>(&line).expect("it is JSON")
        };
        let hello = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
        });
        assert_eq!(ask(hello)["result"]["serverInfo"]["name"], "toolhold");
        let call = json!({
            "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "read", "arguments": { "path": file } },
        });
        assert!(ask(call).to_string().contains("first"));
        let pid = Pid::from_raw(served.id().cast_signed()).expect("it is a process");
        kill_process(pid, Signal::TERM).expect("it is there");
        let status = served.wait().expect("it ends");
        assert!(status.code() == Some(0) || status.signal() == Some(15), "{status:?}");
    }

    /// How `toolhold connect` has a client start what these words start.
    #[track_caller]
    fn configured(&self, toolhold: &[&str]) -> Vec<String> {
        let told = self.ends(&[toolhold, &["connect", "cursor", "--print", "--json"]].concat(), 0);
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        let server = &told["config"]["mcpServers"]["toolhold"];
        let words =
            std::iter::once(&server["command"]).chain(server["args"].as_array().expect("a list"));
        words.map(|word| word.as_str().expect("it is text").to_owned()).collect()
    }

    /// A program in the cache of a package runner: `toolhold connect` has each client start the
    /// program that is installed, by its path, or ends with the command that installs it. No
    /// client's configuration names a package.
    #[track_caller]
    fn is_not_configured_from_a_cache(&self, toolhold: &[&str], install: &str) {
        let clients = self.ends(&[toolhold, &["connect", "--json"]].concat(), 0);
        let clients: Value = serde_json::from_str(&clients).expect("it is JSON");
        let clients = clients.as_array().expect("a list");
        assert!(clients.len() >= 10, "{clients:?}");
        for client in clients {
            let name = client["client"].as_str().expect("it has a name");
            let config = [toolhold, &["connect", name, "--yes"]].concat();
            let output = self.command(&config).output().expect("it starts");
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), told.contains(install)), (Some(2), true), "{told}");
            assert!(!client["user"].as_str().is_some_and(|file| Path::new(file).exists()));
        }
        let installed = self.path("bin/toolhold");
        fs::create_dir_all(self.path("bin")).expect("a folder is made");
        fs::copy(crate::support::toolhold(), &installed).expect("it is copied");
        for client in clients {
            let name = client["client"].as_str().expect("it has a name");
            let told = self.ends(&[toolhold, &["connect", name, "--print"]].concat(), 0);
            assert!(told.contains(text(&installed)), "{name}: {told}");
            for word in ["npx", "uvx", "toolhold@"] {
                assert!(!told.contains(word), "{name}: {word} is in {told}");
            }
        }
        fs::remove_dir_all(self.path("bin")).expect("it was there");
    }
}

/// The parts are where a program looks for them.
#[track_caller]
fn has_parts(program: &Path) {
    let folder = program.parent().and_then(Path::parent).expect("it is in a folder");
    assert_eq!(fs::read(folder.join("lib/toolhold/parts/go.wasm")).expect("it is there"), b"\0asm");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

fn has(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    let has = tried.is_ok_and(|status| status.success());
    if !has {
        not_tried(program);
    }
    has
}

#[test]
fn wheel_puts_the_program_beside_python() {
    let Some(python) = fetched("python") else { return };
    let user = Installing::new();
    let (environment, pip) = (user.path("venv"), python.join("bin/pip"));
    user.ends(
        &[text(&python.join("bin/python")), "-m", "venv", "--without-pip", text(&environment)],
        0,
    );
    let interpreter = environment.join("bin/python");
    let options = ["--quiet", "--no-index", "--disable-pip-version-check"];
    let install = [
        &[text(&pip), "--python", text(&interpreter), "install"],
        &options[..],
        &[text(package(".whl"))],
    ];
    user.ends(&install.concat(), 0);
    let toolhold = environment.join("bin/toolhold");
    user.works(&[text(&toolhold)]);
    let real = toolhold.canonicalize().expect("it is there");
    assert_eq!(user.configured(&[text(&toolhold)]), [text(&real), "serve"]);
    let info = format!("toolhold-{}.dist-info", env!("CARGO_PKG_VERSION"));
    let libraries = fs::read_dir(environment.join("lib")).expect("it is there").flatten();
    let site = libraries.map(|entry| entry.path()).find(|path| path.join("site-packages").exists());
    let site = site.expect("it has a version").join("site-packages").join(info);
    has_parts(&real);
    for file in ["licenses/LICENSE-MIT", "sboms/toolhold.cdx.json", "METADATA"] {
        assert!(site.join(file).is_file(), "{file}");
    }
    user.ends(
        &[text(&pip), "--python", text(&interpreter), "uninstall", "--yes", "--quiet", "toolhold"],
        0,
    );
    assert!(!toolhold.exists());

    // By uv, which fetches it into its cache.
    let (uv, own_python) = (python.join("bin/uv"), python.join("bin/python"));
    let base = user.path("uv-cache");
    let with = [text(&uv), "tool", "run", "--offline", "--quiet", "--cache-dir", text(&base)];
    let with = [&with[..], &["--python", text(&own_python)]].concat();
    let from = [&with[..], &["--from", text(package(".whl")), "toolhold"]].concat();
    user.works(&from);
    user.is_not_configured_from_a_cache(&from, "uv tool install");
}

#[test]
fn packages_of_npm_start_the_program_without_node() {
    if !has("npm") {
        return;
    }
    let user = Installing::new();
    let machine = match Architecture::from_name(std::env::consts::ARCH) {
        Some(Architecture::X86_64) => "toolhold-linux-x64",
        _ => "toolhold-linux-arm64",
    };
    let version = env!("CARGO_PKG_VERSION");
    let (program, launcher) =
        (package(&format!("{machine}-{version}.tgz")), package(&format!("toolhold-{version}.tgz")));
    let quiet = ["--offline", "--no-audit", "--no-fund", "--loglevel=error"];
    let both = [text(program), text(launcher)];
    user.ends(&[&["npm", "install"], &quiet[..], &both].concat(), 0);
    let toolhold = user.path("work/node_modules/.bin/toolhold");
    user.works(&[text(&toolhold)]);
    user.works(&["npx", "--offline", "toolhold"]);
    let real = user.path("work").canonicalize().expect("it is there");
    let real = real.join(format!("node_modules/{machine}/bin/toolhold"));
    assert_eq!(user.configured(&[text(&toolhold)]), [text(&real), "serve"]);
    has_parts(&real);

    // By npx, which fetches it into its cache.
    fs::remove_dir_all(user.path("work/node_modules")).expect("it was there");
    for file in ["package.json", "package-lock.json"] {
        fs::remove_file(user.path("work").join(file)).expect("it was there");
    }
    let packages = both.map(|path| format!("--package={path}"));
    let run = ["npx", "--offline", "--yes", &packages[0], &packages[1], "toolhold"];
    user.is_not_configured_from_a_cache(&run, "npm install --global");

    // Without the package of this machine, it says what is missing.
    fs::remove_dir_all(user.path(".npm")).expect("it was there");
    user.ends(&[&["npm", "install"], &quiet[..], &["--omit=optional", text(launcher)]].concat(), 0);
    let output = user.command(&[text(&toolhold)]).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), told.contains(machine)), (Some(1), true), "{told}");
}

#[test]
fn package_for_debian_has_the_program() {
    if !has("dpkg-deb") {
        return;
    }
    let user = Installing::new();
    let system = user.path("system");
    user.ends(&["dpkg-deb", "--extract", text(package(".deb")), text(&system)], 0);
    let toolhold = system.join("usr/bin/toolhold");
    user.works(&[text(&toolhold)]);
    has_parts(&toolhold);
}

#[test]
fn bundle_for_clients_of_mcp_starts_as_its_manifest_says() {
    let Some(clients) = fetched("release") else { return };
    let user = Installing::new();
    let (bundle, chosen) = (user.path("bundle"), user.path("chosen directory"));
    let mcpb = clients.join("node_modules/.bin/mcpb");
    user.ends(&[text(&mcpb), "unpack", text(package(".mcpb")), text(&bundle)], 0);
    has_parts(&bundle.join("bin/toolhold"));
    fs::create_dir(&chosen).expect("a folder is made");
    let file = chosen.join("notes.txt");
    fs::write(&file, "first\n").expect("it is written");
    let manifest = fs::read_to_string(bundle.join("manifest.json")).expect("it is there");
    let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
    let start = &manifest["server"]["mcp_config"];
    let words = std::iter::once(&start["command"]).chain(start["args"].as_array().expect("a list"));
    let words: Vec<String> = words
        .map(|word| word.as_str().expect("it is text"))
        .map(|word| word.replace("${__dirname}", text(&bundle)))
        .map(|word| word.replace("${user_config.directory}", text(&chosen)))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    user.serves(&words, text(&file));
}

#[test]
fn image_is_read_by_another_program_and_holds_the_program() {
    let Some(debian) = fetched("debian") else { return };
    let user = Installing::new();
    let layout = user.path("layout");
    fs::create_dir(&layout).expect("a folder is made");
    user.ends(&["tar", "-xf", text(package("-image.tar")), "-C", text(&layout)], 0);
    let (umoci, version) = (debian.join("usr/bin/umoci"), env!("CARGO_PKG_VERSION"));
    let image = format!("{}:{version}", text(&layout));
    let told = user.ends(&[text(&umoci), "stat", "--image", &image, "--json"], 0);
    assert!(told.contains("cargo xtask dist"), "{told}");
    let bundle = user.path("bundle");
    user.ends(&[text(&umoci), "unpack", "--rootless", "--image", &image, text(&bundle)], 0);
    let config = fs::read_to_string(bundle.join("config.json")).expect("it is there");
    let config: Value = serde_json::from_str(&config).expect("it is JSON");
    assert_eq!(config["process"]["args"], json!(["/usr/bin/toolhold", "serve"]));
    assert_eq!(config["process"]["cwd"], "/work");
    let root = bundle.join("rootfs");
    for path in ["work", "tmp", "root", "usr/share/doc/toolhold/LICENSE-MIT"] {
        assert!(root.join(path).exists(), "{path}");
    }
    user.works(&[text(&root.join("usr/bin/toolhold"))]);
    has_parts(&root.join("usr/bin/toolhold"));
}
