//! `toolhold plugin add` from a registry on this machine to the first call, against `npm install`
//! of a package of the same size, and `toolhold plugin verify`, against `sha256sum`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Setting;
use crate::loaded::{copy_name, renamed};
use crate::measure::{Compared, find_program, in_turn, output_of, time};
use crate::serving::{Content, serve};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 5;

/// The plugins that are verified, and how often.
const INSTALLED: usize = 100;
const VERIFIED: usize = 21;

const NO_RIVAL: &str = "npm is not installed: apt-get install npm";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for language in ["rust", "javascript", "python"] {
        rows.push(added(setting, language)?);
    }
    rows.push(verified(setting)?);
    Ok(rows)
}

/// From nothing to the first answer: nothing is compiled or fetched before.
fn added(setting: &Setting, language: &str) -> Result<Row, String> {
    let target = Target::Lower;
    let file = setting.repository.join(format!("target/plugins/languages/{language}.wasm"));
    let row = |what: String, samples, ours, rival| Row {
        name: "install",
        what,
        samples,
        unit: Unit::Ratio,
        target,
        ours,
        rival,
    };
    let Ok(component) = fs::read(&file) else {
        let what = format!("plugin add in {language}, to its first call");
        let why = format!("{} is missing: see what `cargo xtask bench` says", file.display());
        return Ok(Row::not_measured("install", &what, Unit::Ratio, target, why));
    };
    let what = format!(
        "plugin add of {:.1} MB ({language}) from a registry, to its first call",
        component.len() as f64 / 1e6
    );
    if find_program("npm").is_none() {
        let why = NO_RIVAL.to_owned();
        return Ok(Row::not_measured("install", &what, Unit::Ratio, target, why));
    }
    let server = Server::start().map_err(|error| format!("no server on loopback: {error}"))?;
    let package = server.offer_package(setting, &component)?;
    server.offer_plugin(component);
    let ours = || {
        let home = Home::make(setting)?;
        let notes = home.path().join("notes.txt");
        fs::write(&notes, "one two\nthree\n").map_err(|error| format!("no notes: {error}"))?;
        let source = format!("oci+http://{}/bench/word-count:1.0.0", server.address);
        time(|| {
            home.toolhold(&["plugin", "add", &source, "--yes", "--allow-read", &home.shown()])?;
            let path = format!("path={}", notes.display());
            let answer = home.toolhold(&["call", "word-count__word_count", &path])?;
            let said = String::from_utf8_lossy(&answer);
            if said.contains("\"words\": 3") || said.contains("\"words\":3") {
                Ok(())
            } else {
                Err(format!("word_count answered {said}"))
            }
        })
    };
    let rival = || {
        let home = Home::make(setting)?;
        let mut npm = Command::new("npm");
        let registry = format!("http://{}/", server.address);
        npm.args(["install", "--no-audit", "--no-fund", "--registry", &registry, &package])
            .current_dir(home.path())
            .env("HOME", home.path());
        let all = time(|| output_of(&mut npm))?;
        let there = home.path().join("node_modules").join(&package).join("component.wasm");
        if there.is_file() { Ok(all) } else { Err(format!("no {}", there.display())) }
    };
    let Compared { ours, rival, ratios } = in_turn(ROUNDS, ours, rival)?;
    Ok(row(what, ratios, show_time(ours), format!("npm install {}", show_time(rival))))
}

fn verified(setting: &Setting) -> Result<Row, String> {
    let failed = |error: std::io::Error| format!("preparing plugins to verify: {error}");
    let home = Home::make(setting)?;
    let bench = fs::read(setting.repository.join("target/plugins/bench.wasm")).map_err(failed)?;
    for number in 0..INSTALLED {
        let file = home.path().join("source.wasm");
        fs::write(&file, renamed(&bench, &copy_name(number))?).map_err(failed)?;
        home.toolhold(&["plugin", "add", &file.display().to_string(), "--yes"])?;
    }
    let kept: Vec<PathBuf> = fs::read_dir(home.path().join(".local/share/toolhold/approved"))
        .map_err(failed)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    if kept.len() < INSTALLED {
        return Err(format!("{} of {INSTALLED} plugins are installed", kept.len()));
    }
    let ours = || time(|| home.toolhold(&["plugin", "verify"]));
    let rival = || time(|| output_of(Command::new("sha256sum").args(&kept)));
    let Compared { ours, rival, ratios } = in_turn(VERIFIED, ours, rival)?;
    Ok(Row {
        name: "install",
        what: format!("plugin verify of {INSTALLED} plugins of {:.1} MB", bench.len() as f64 / 1e6),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::Lower,
        ours: show_time(ours),
        rival: format!("sha256sum {}", show_time(rival)),
    })
}

/// A home folder in which nothing was done before.
struct Home(tempfile::TempDir);

impl Home {
    fn make(setting: &Setting) -> Result<Self, String> {
        let folder = tempfile::tempdir_in(&setting.scratch);
        folder.map(Self).map_err(|error| format!("no folder for a home: {error}"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn shown(&self) -> String {
        self.path().display().to_string()
    }

    /// Runs the program that was built together with this one.
    fn toolhold(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let toolhold = std::env::current_exe()
            .map_err(|error| format!("this program can't find itself: {error}"))?
            .with_file_name("toolhold");
        let mut command = Command::new(toolhold);
        output_of(
            command.args(arguments).current_dir(self.path()).env_clear().env("HOME", self.path()),
        )
    }
}

/// Contents with their types, by path.
type Contents = BTreeMap<String, Content>;

/// A registry for plugins and one for packages of npm, for as long as this process lives.
struct Server {
    address: SocketAddr,
    contents: Arc<Mutex<Contents>>,
}

impl Server {
    fn start() -> std::io::Result<Self> {
        let contents = Arc::<Mutex<Contents>>::default();
        let found = Arc::clone(&contents);
        let find = move |path: &str| {
            found.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
        };
        Ok(Self { address: serve(find)?, contents })
    }

    fn put(&self, path: String, kind: &'static str, bytes: Vec<u8>) {
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.insert(path, (kind, Arc::new(bytes)));
    }

    /// Offers `bench/word-count:1.0.0`.
    fn offer_plugin(&self, component: Vec<u8>) {
        let config = b"{}".to_vec();
        let described = |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
        let manifest = "application/vnd.oci.image.manifest.v1+json";
        let content = json!({
            "schemaVersion": 2,
            "mediaType": manifest,
            "config": described("application/vnd.wasm.config.v0+json", &config),
            "layers": [described("application/wasm", &component)],
        });
        let content = content.to_string().into_bytes();
        let name = "/v2/bench/word-count";
        for version in ["1.0.0", &digest(&content)] {
            self.put(format!("{name}/manifests/{version}"), manifest, content.clone());
        }
        for blob in [config, component] {
            let path = format!("{name}/blobs/{}", digest(&blob));
            self.put(path, "application/octet-stream", blob);
        }
    }

    /// Offers a package of npm that holds the component, and returns its name.
    fn offer_package(&self, setting: &Setting, component: &[u8]) -> Result<String, String> {
        const NAME: &str = "word-count-bench";
        let failed = |error: std::io::Error| format!("packing for npm: {error}");
        let folder = Home::make(setting)?;
        let about = json!({ "name": NAME, "version": "1.0.0" });
        fs::write(folder.path().join("package.json"), about.to_string()).map_err(failed)?;
        fs::write(folder.path().join("component.wasm"), component).map_err(failed)?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--json"]).current_dir(folder.path()).env("HOME", folder.path());
        let packed: Value = serde_json::from_slice(&output_of(&mut pack)?)
            .map_err(|error| format!("`npm pack` printed no JSON: {error}"))?;
        let packed = &packed[0];
        let file = packed["filename"].as_str().ok_or("`npm pack` named no file")?;
        let archive = fs::read(folder.path().join(file)).map_err(failed)?;
        let path = format!("/{NAME}/-/{NAME}-1.0.0.tgz");
        let tarball = format!("http://{}{path}", self.address);
        self.put(path, "application/octet-stream", archive);
        let dist = json!({
            "tarball": tarball,
            "integrity": packed["integrity"],
            "shasum": packed["shasum"],
        });
        let metadata = json!({
            "name": NAME,
            "dist-tags": { "latest": "1.0.0" },
            "versions": { "1.0.0": { "name": NAME, "version": "1.0.0", "dist": dist } },
        });
        self.put(format!("/{NAME}"), "application/json", metadata.to_string().into_bytes());
        Ok(NAME.to_owned())
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
