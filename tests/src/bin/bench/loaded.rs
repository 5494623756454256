//! What loaded plugins cost `toolhold serve`: the time to start, memory, and the time of a call.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_engine::Candidate;

use crate::Setting;
use crate::mcp::Client;
use crate::measure::median;
use crate::table::{Row, Target, Unit};

/// Plugins in the folder.
const COUNTS: [usize; 3] = [1, 100, 1000];

/// Starts of each kind.
const STARTS: usize = 5;

/// The stamp of a file is trusted only if the file hasn't changed for three seconds.
const SETTLED: Duration = Duration::from_millis(3500);

/// What is done after an answer is done within this time.
const QUIET: Duration = Duration::from_millis(500);

pub(crate) fn memory(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = Home::make(setting)?;
    // The first start keeps what the built-in plugins offer.
    home.serve()?;
    sleep(QUIET);
    let client = home.serve()?;
    sleep(QUIET);
    let row = |what: &str, value, most| Row {
        name: "memory",
        what: what.to_owned(),
        samples: vec![value],
        unit: Unit::Mebibytes,
        target: Target::AtMost(most),
        ours: String::new(),
        rival: String::new(),
    };
    Ok(vec![
        row("toolhold serve, idle: resident memory", client.resident()?, 18.0),
        row("toolhold serve, idle: its own memory", client.own_memory()?, 6.0),
    ])
}

pub(crate) fn plugins(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = Home::make(setting)?;
    home.put(&setting.repository, 0..1)?;
    // They differ in their names only, so one of them is compiled, and its code copied.
    let mut client = home.serve()?;
    client.check(&echo(0), "hello")?;
    sleep(QUIET);
    drop(client);
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    let mut there = 1;
    for count in COUNTS {
        home.put(&setting.repository, there..count)?;
        there = count;
        let these = home.figures(count)?;
        rows.push(Row {
            name: "plugins",
            what: format!("echo of {count} plugins in turn, p50"),
            samples: vec![these.p50.as_secs_f64() * 1e6],
            unit: Unit::Microseconds,
            target: Target::Lower,
            ours: format!(
                "own memory {:.1} MiB idle, {:.1} MiB after the calls; the last one answers {:.0} ms after the start",
                these.idle, these.used, these.loaded.as_secs_f64() * 1e3
            ),
            rival: String::new(),
        });
        figures.push(these);
    }
    if let Some(most) = figures.last() {
        let what = format!("toolhold serve with {there} plugins");
        let reported = |what: String, value, unit| Row {
            name: "plugins",
            what,
            samples: vec![value],
            unit,
            target: Target::Lower,
            ours: String::new(),
            rival: String::new(),
        };
        let loaded = most.loaded.as_secs_f64() * 1e3;
        let mib = Unit::Mebibytes;
        rows.push(reported(format!("{what}: the last one answers"), loaded, Unit::Milliseconds));
        rows.push(reported(format!("{what}, idle: own memory"), most.idle, mib));
        rows.push(reported(format!("{what}, each called: own memory"), most.used, mib));
    }
    let (few, many, more) = (&figures[0], &figures[COUNTS.len() - 1], (there - 1) as f64);
    let row = |what: &str, value: f64, unit| Row {
        name: "plugins",
        what: what.to_owned(),
        samples: vec![value / more],
        unit,
        target: Target::AtMost(0.1),
        ours: String::new(),
        rival: String::new(),
    };
    let late = many.loaded.saturating_sub(few.loaded).as_secs_f64() * 1e3;
    rows.push(row("a plugin more that isn't called: start", late, Unit::Milliseconds));
    rows.push(row(
        "a plugin more that isn't called: own memory",
        many.idle - few.idle,
        Unit::Mebibytes,
    ));
    Ok(rows)
}

/// The figures of a server with some plugins.
struct Figures {
    /// From the start to the answer of the last plugin.
    loaded: Duration,
    /// Own memory in MiB before and after the calls.
    idle: f64,
    used: f64,
    p50: Duration,
}

/// The home folder of a server, with plugins in its folder.
struct Home {
    folder: tempfile::TempDir,
    toolhold: PathBuf,
}

impl Home {
    fn make(setting: &Setting) -> Result<Self, String> {
        // Built together with this program.
        let toolhold = std::env::current_exe()
            .map_err(|error| format!("this program can't find itself: {error}"))?
            .with_file_name("toolhold");
        let folder = tempfile::tempdir_in(&setting.scratch)
            .map_err(|error| format!("no folder for a home: {error}"))?;
        let home = Self { folder, toolhold };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(home.plugins());
        made.map_err(|error| format!("no folder for plugins: {error}"))?;
        Ok(home)
    }

    fn plugins(&self) -> PathBuf {
        self.folder.path().join(".local/share/toolhold/plugins")
    }

    fn compiled(&self) -> PathBuf {
        self.folder.path().join(".cache/toolhold/compiled")
    }

    /// `toolhold serve` with its defaults, except for what would measure something else: no answer
    /// is reused, records are thrown away, and nobody has to approve the plugins.
    fn serve(&self) -> Result<Client, String> {
        let mut command = Command::new(&self.toolhold);
        command.arg("serve");
        for setting in
            ["plugin_folder.reload=trust", "tools.result_cache.enabled=false", "audit.keep=1"]
        {
            command.args(["--set", setting]);
        }
        let folder = self.folder.path();
        Client::start(command.current_dir(folder).env_clear().env("HOME", folder))
    }

    /// Puts copies of the plugin `bench` into the folder, and what is kept of the first one into
    /// the cache for each.
    fn put(&self, repository: &Path, numbers: std::ops::Range<usize>) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("copying a plugin: {error}");
        let component = repository.join("target/plugins/bench.wasm");
        let component = fs::read(&component).map_err(|error| {
            format!("can't read {}: {error}; build with `cargo xtask bench`", component.display())
        })?;
        let file = |number| self.plugins().join(format!("{}.wasm", copy_name(number)));
        let mut kept = Vec::new();
        if numbers.start > 0 {
            let first = digest(&file(0))?;
            for entry in fs::read_dir(self.compiled()).map_err(failed)?.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(rest) = name.strip_prefix(&first) {
                    kept.push((rest.to_owned(), fs::read(entry.path()).map_err(failed)?));
                }
            }
        }
        for number in numbers {
            let path = file(number);
            fs::write(&path, renamed(&component, &copy_name(number))?).map_err(failed)?;
            let digest = digest(&path)?;
            for (rest, content) in &kept {
                let content = if rest.ends_with(".offer") {
                    let offer = String::from_utf8_lossy(content);
                    offer.replace(&copy_name(0), &copy_name(number)).into_bytes()
                } else {
                    content.clone()
                };
                let mut private = fs::OpenOptions::new();
                private.write(true).create(true).truncate(true).mode(0o600);
                let path = self.compiled().join(format!("{digest}{rest}"));
                let mut file = private.open(path).map_err(failed)?;
                std::io::Write::write_all(&mut file, &content).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn figures(&self, count: usize) -> Result<Figures, String> {
        let last = echo(count - 1);
        sleep(SETTLED);
        // The first start keeps the stamps.
        let mut client = self.serve()?;
        client.check(&last, "hello")?;
        sleep(QUIET + Duration::from_millis(count as u64));
        drop(client);
        let mut times = Vec::new();
        for _ in 1..STARTS {
            let start = Instant::now();
            self.serve()?.check(&last, "hello")?;
            times.push(start.elapsed());
        }
        let start = Instant::now();
        let mut client = self.serve()?;
        client.check(&last, "hello")?;
        times.push(start.elapsed());
        sleep(QUIET);
        let idle = client.own_memory()?;
        let mut calls = Vec::new();
        // In the first round, code is mapped.
        for round in 0..=(300 / count).max(2) {
            for number in 0..count {
                let time = client.one_by_one(&echo(number), 1)?;
                calls.extend(time.into_iter().filter(|_| round > 0));
            }
        }
        let used = client.own_memory()?;
        Ok(Figures { loaded: median(times), idle, used, p50: median(calls) })
    }
}

fn digest(path: &Path) -> Result<String, String> {
    let candidate = Candidate::file(path).map_err(|error| error.to_string())?;
    Ok(candidate.info().digest.clone())
}

/// The call of a copy.
fn echo(number: usize) -> String {
    let name = format!("{}__echo", copy_name(number));
    json!({ "name": name, "arguments": { "text": "hello" } }).to_string()
}

/// As long as the plugin's real name, so that it fits.
pub(crate) fn copy_name(number: usize) -> String {
    format!("b{number:04}")
}

/// The component under another name of the same length.
pub(crate) fn renamed(component: &[u8], name: &str) -> Result<Vec<u8>, String> {
    const NAME: &[u8] = br#""name":"bench""#;
    let at = component
        .windows(NAME.len())
        .position(|window| window == NAME)
        .ok_or("the plugin `bench` has no manifest with its name")?;
    let mut renamed = component.to_vec();
    renamed[at + NAME.len() - 1 - name.len()..at + NAME.len() - 1].copy_from_slice(name.as_bytes());
    Ok(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_differs_in_its_name_only() {
        let component = br#"...{"manifest":1,"name":"bench","version":"0.1.0"}..."#;
        let expected = br#"...{"manifest":1,"name":"b0042","version":"0.1.0"}..."#;
        assert_eq!(renamed(component, &copy_name(42)).unwrap(), expected);
        assert!(renamed(b"nothing", "b0042").is_err());
    }
}
