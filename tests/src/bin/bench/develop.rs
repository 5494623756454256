//! `toolhold plugin dev`: from a saved file to the answer of the new version.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Setting;
use crate::measure::output_of;
use crate::table::{Row, Target, Unit};

/// The languages, each with the source of a new plugin and what begins a comment there.
const LANGUAGES: [(&str, &str, &str); 2] =
    [("rust", "src/lib.rs", "//"), ("python", "plugin.py", "#")];

const SAVES: usize = 5;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let compilers = setting.repository.join("target/clients/plugins-python/bin");
    let row = |(language, source, comment)| {
        let what = format!("plugin dev in {language}, from a saved file to the new answer, p50");
        if language == "python" && !compilers.exists() {
            let why =
                format!("{} is missing: see what `cargo xtask bench` says", compilers.display());
            return Ok(Row::not_measured("develop", &what, Unit::Milliseconds, Target::Lower, why));
        }
        Ok(Row {
            name: "develop",
            what,
            samples: of_language(setting, &compilers, language, source, comment)?,
            unit: Unit::Milliseconds,
            target: Target::Lower,
            ours: String::new(),
            rival: String::new(),
        })
    };
    LANGUAGES.into_iter().map(row).collect()
}

fn of_language(
    setting: &Setting,
    compilers: &Path,
    language: &str,
    source: &str,
    comment: &str,
) -> Result<Vec<f64>, String> {
    let failed = |error: std::io::Error| format!("a plugin in {language}: {error}");
    let home = tempfile::tempdir_in(&setting.scratch).map_err(failed)?;
    let home = home.path().canonicalize().map_err(failed)?;
    let counted = home.join("notes.txt");
    std::fs::write(&counted, "one two\n").map_err(failed)?;
    let project = home.join("word-count");
    let mut new = toolhold(&home)?;
    output_of(new.args(["plugin", "new", "word-count", "--lang", language]).current_dir(&home))?;
    let mut path = compilers.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = toolhold(&home)?;
    let allowed = format!("plugins.word-count.allowed_paths=[{home:?}]");
    command
        .args(["plugin", "dev"])
        .arg(&project)
        .args(["--json", "--yes", "--set", &allowed, "--call", "word_count"])
        .arg(format!("path={}", counted.display()))
        .env("PATH", path)
        // It has compiled most of what a plugin needs.
        .env("CARGO_TARGET_DIR", setting.repository.join("plugins/target"));
    let mut dev = Dev::start(command)?;
    dev.answers()?;
    let source = project.join(source);
    let text = std::fs::read_to_string(&source).map_err(failed)?;
    let mut times = Vec::with_capacity(SAVES);
    for save in 0..SAVES {
        let begin = Instant::now();
        std::fs::write(&source, format!("{text}\n{comment} {save}\n")).map_err(failed)?;
        dev.answers()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// `toolhold` with folders of its own.
fn toolhold(home: &Path) -> Result<Command, String> {
    // Built together with this program.
    let toolhold = std::env::current_exe()
        .map_err(|error| format!("this program can't find itself: {error}"))?
        .with_file_name("toolhold");
    let mut command = Command::new(toolhold);
    command
        .env("TOOLHOLD_CONFIG_DIR", home.join("config"))
        .env("TOOLHOLD_DATA_DIR", home.join("data"))
        .env("TOOLHOLD_CACHE_DIR", home.join("cache"));
    Ok(command)
}

/// A running `toolhold plugin dev`.
struct Dev {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("toolhold plugin dev doesn't start: {error}"))?;
        let output = child.stdout.take().ok_or("it has no output")?;
        Ok(Self { child, events: BufReader::new(output).lines() })
    }

    /// Waits for the next answer of the tool.
    fn answers(&mut self) -> Result<(), String> {
        const MOST: Duration = Duration::from_secs(600);
        let begin = Instant::now();
        while begin.elapsed() < MOST {
            let line = self.events.next().ok_or("toolhold plugin dev has ended")?;
            let line = line.map_err(|error| format!("its output can't be read: {error}"))?;
            let event: Value = serde_json::from_str(&line)
                .map_err(|error| format!("it wrote {line:?}: {error}"))?;
            match event["event"].as_str() {
                Some("call") if event["status"] == "ok" => return Ok(()),
                Some("call" | "build_failed") => {
                    return Err(format!("toolhold plugin dev: {event}"));
                }
                _ => {}
            }
        }
        Err("toolhold plugin dev gave no answer in ten minutes".to_owned())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
