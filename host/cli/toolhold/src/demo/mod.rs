//! `toolhold demo`: runs tools and then attacks in a temporary folder. The effect of an attack is
//! checked, because the hostile tool's answer may be a lie.

mod acts;
pub(crate) mod command;
mod scene;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::config::{self, Inputs};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Host, HostError, Request};

use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{BAD, FAINT, GOOD, STRONG};

use crate::demo::acts::{ATTACKS, Act, ActError, TASKS};
use crate::demo::scene::Scene;

/// The configuration of the demo. Its low limits end an endless loop soon. Like the built-in tools,
/// the hostile plugin may read and write the project.
const CONFIGURATION: &str = "\
[tools]
call = 3
# Nobody is asked: the attacks are to be stopped by what holds without a person.
autonomy = \"full\"

[tools.limits]
cpu_secs = 1
memory_mib = 64
result_mib = 1

[plugins.hostile]
path = \"hostile.wasm\"
reload = \"trust\"
allowed_paths = [\".\"]
";

/// A call that runs longer counts as not stopped. The machine may be busy, so this is twice the
/// time limits of a call and its answer.
const MAX_TIME_OF_ACT: Duration = Duration::from_secs(16);

/// The most bytes of a text or error in the JSON report.
const MAX_TEXT: usize = 160;

/// The most bytes of a text after an act's title, so that the line has at most 100 columns.
const MAX_TEXT_BESIDE_TITLE: usize = 40;

/// The index of the task "read it", which runs again after the attacks.
const REPEATED_TASK: usize = 1;

/// Runs the demo. With `as_json`, the report is one JSON object.
pub(crate) async fn demo(as_json: bool) -> Result<Exit, CommandError> {
    let scene = Scene::new()?;
    let out: &mut dyn Write = if as_json { &mut io::sink() } else { &mut anstream::stdout() };
    let results = play(&scene, &toolhold_builtins::hostile().read()?, out).await?;
    let is_good = results.iter().all(|result| result.verdict.is_ok());
    if as_json {
        let acts: Vec<Value> = results.iter().map(ActResult::to_json).collect();
        writeln!(io::stdout(), "{:#}", json!({ "ok": is_good, "acts": acts }))?;
    }
    Ok(if is_good { Exit::Success } else { Exit::Host })
}

/// Runs the tasks, the attacks, and one task again. `hostile` is the hostile plugin's component.
async fn play(
    scene: &Scene,
    hostile: &[u8],
    out: &mut dyn Write,
) -> Result<Vec<ActResult>, CommandError> {
    let host = build(scene, hostile).await?;
    let mut results = Vec::new();
    writeln!(out, "{STRONG}Tools at work, each call of a plugin in a fresh sandbox{STRONG:#}")?;
    for act in TASKS {
        perform(&host, scene, act, "done", out, &mut results).await?;
    }
    writeln!(
        out,
        "\n{STRONG}Attacks by a hostile plugin, and the rule or limit that stopped each \
         attack{STRONG:#}"
    )?;
    for act in ATTACKS {
        perform(&host, scene, act, "stopped", out, &mut results).await?;
    }
    writeln!(out, "\n{STRONG}Afterwards{STRONG:#}")?;
    // A task that runs again shows that tools still work after the attacks.
    perform(&host, scene, &TASKS[REPEATED_TASK], "done", out, &mut results).await?;
    let failed = results.iter().filter(|result| result.verdict.is_err()).count();
    if failed == 0 {
        writeln!(
            out,
            "{GOOD}Every tool worked and every attack was stopped.{GOOD:#} Next, run: toolhold init"
        )?;
    } else {
        writeln!(
            out,
            "{BAD}{failed} of {} tools and attacks had a wrong result.{BAD:#}",
            results.len()
        )?;
    }
    Ok(results)
}

/// Runs an act, prints its result, and adds the result to `results`. A good result is called
/// `good`.
async fn perform(
    host: &Host,
    scene: &Scene,
    act: &'static Act,
    good: &str,
    out: &mut dyn Write,
    results: &mut Vec<ActResult>,
) -> Result<(), CommandError> {
    let start = Instant::now();
    let answer = host.call(Request::new(act.tool, (act.arguments)(scene))).await;
    let time = start.elapsed();
    let verdict = if time > MAX_TIME_OF_ACT {
        Err(ActError::Late(time.as_secs()))
    } else {
        (act.judge)(scene, &answer.outcome)
    };
    let (style, word, text) = match &verdict {
        Ok(text) => (GOOD, good, shown(&scene.shortened(text), MAX_TEXT_BESIDE_TITLE)),
        Err(error) => (BAD, "FAILED", shown(&scene.shortened(&error.to_string()), MAX_TEXT)),
    };
    let millis = time.as_secs_f64() * 1e3;
    writeln!(
        out,
        "  {style}{word:7}{style:#}  {:35} {FAINT}{millis:>6.1} ms  {text}{FAINT:#}",
        act.title
    )?;
    results.push(ActResult { act, time, verdict });
    Ok(())
}

/// Builds a host with the demo's configuration and the hostile plugin.
async fn build(scene: &Scene, hostile: &[u8]) -> Result<Host, HostError> {
    scene.configure("toolhold.toml", CONFIGURATION.as_bytes())?;
    scene.configure("hostile.wasm", hostile)?;
    let folders = scene.folders();
    let loaded = config::load(&folders, &Inputs::default())?;
    Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(scene.project.clone())
        .front_end("toolhold demo")
        .builtins(toolhold_builtins::all())
        .build()
        .await
}

struct ActResult {
    act: &'static Act,
    time: Duration,
    /// A text for the report.
    verdict: Result<String, ActError>,
}

impl ActResult {
    fn to_json(&self) -> Value {
        let text = match &self.verdict {
            Ok(text) => text.clone(),
            Err(error) => error.to_string(),
        };
        // The limit of `u64` is more than 500,000 years of microseconds.
        let micros = u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX);
        json!({
            "title": self.act.title,
            "tool": self.act.tool,
            "ok": self.verdict.is_ok(),
            "micros": micros,
            "said": shown(&text, MAX_TEXT),
        })
    }
}

/// Returns the first line of `text`, cut to `bytes`.
fn shown(text: &str, bytes: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim();
    let short = cut(line, bytes);
    let more = if short.len() < text.trim().len() { " …" } else { "" };
    neutral_line(short) + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_a_text_is_shown() {
        assert_eq!(shown("\n a\tb \nc", 9), "a b …");
        assert_eq!(shown("all", 3), "all");
        assert_eq!(shown("cut", 2), "cu …");
        assert_eq!(shown("\u{1b}[2J", 9), "\u{fffd}[2J");
    }
}
