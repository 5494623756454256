//! Plays `toolhold demo`: tools at work, then attacks, in a temporary folder. Each attack is judged
//! by its effect, not by its own report.

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

/// The configuration of the demo. The limits are stricter than the defaults, so that an endless
/// loop ends soon. Like the built-in tools, the attacker can read and write the project.
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

/// The time after which a running call has failed to stop. It is the time limits of the call and
/// its answer, twice as long for a busy machine.
const STOPPED_WITHIN: Duration = Duration::from_secs(16);

/// Bytes of an answer or a reason in the JSON, and of what went wrong.
const SHOWN: usize = 160;

/// The most bytes of an answer or a reason after the title of its act. The whole line has at most
/// 100 columns.
const SHOWN_BEHIND: usize = 40;

/// Runs the demo, and reports on stdout. `as_json`: the report is one JSON object at the end.
///
/// # Errors
///
/// Returns an error if the temporary folder can't be written, or if the host can't be built.
pub(crate) async fn demo(as_json: bool) -> Result<Exit, CommandError> {
    let scene = Scene::new()?;
    let out: &mut dyn Write = if as_json { &mut io::sink() } else { &mut anstream::stdout() };
    let played = play(&scene, &toolhold_builtins::hostile().read()?, out).await?;
    let good = played.iter().all(|played| played.verdict.is_ok());
    if as_json {
        let acts: Vec<Value> = played.iter().map(ActResult::to_json).collect();
        writeln!(io::stdout(), "{:#}", json!({ "ok": good, "acts": acts }))?;
    }
    Ok(if good { Exit::Success } else { Exit::Host })
}

async fn play(
    scene: &Scene,
    hostile: &[u8],
    out: &mut dyn Write,
) -> Result<Vec<ActResult>, CommandError> {
    let host = build(scene, hostile).await?;
    let mut played = Vec::new();
    writeln!(out, "{STRONG}Tools at work, each call of a plugin in a fresh sandbox{STRONG:#}")?;
    for act in TASKS {
        perform(&host, scene, act, "done", out, &mut played).await?;
    }
    writeln!(
        out,
        "\n{STRONG}Attacks by a hostile plugin in the project, and what stopped them{STRONG:#}"
    )?;
    for act in ATTACKS {
        perform(&host, scene, act, "stopped", out, &mut played).await?;
    }
    writeln!(out, "\n{STRONG}Afterwards{STRONG:#}")?;
    for act in &TASKS[1..2] {
        perform(&host, scene, act, "done", out, &mut played).await?;
    }
    let failed = played.iter().filter(|played| played.verdict.is_err()).count();
    if failed == 0 {
        writeln!(out, "{GOOD}Every tool worked and every attack was stopped.{GOOD:#}")?;
    } else {
        writeln!(
            out,
            "{BAD}{failed} of {} tools and attacks had a wrong result.{BAD:#}",
            played.len()
        )?;
    }
    Ok(played)
}

async fn perform(
    host: &Host,
    scene: &Scene,
    act: &'static Act,
    good: &str,
    out: &mut dyn Write,
    all: &mut Vec<ActResult>,
) -> Result<(), CommandError> {
    let start = Instant::now();
    let answer = host.call(Request::new(act.tool, (act.arguments)(scene))).await;
    let time = start.elapsed();
    let verdict = if time > STOPPED_WITHIN {
        Err(ActError::Late(time.as_secs()))
    } else {
        (act.judge)(scene, &answer.outcome)
    };
    let (style, word, said) = match &verdict {
        Ok(said) => (GOOD, good, shown(&scene.shortened(said), SHOWN_BEHIND)),
        Err(error) => (BAD, "FAILED", shown(&scene.shortened(&error.to_string()), SHOWN)),
    };
    let millis = time.as_secs_f64() * 1e3;
    writeln!(
        out,
        "  {style}{word:7}{style:#}  {:35} {FAINT}{millis:>6.1} ms  {said}{FAINT:#}",
        act.title
    )?;
    all.push(ActResult { act, time, verdict });
    Ok(())
}

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

/// The result of an act.
struct ActResult {
    act: &'static Act,
    time: Duration,
    /// The part of the answer to show.
    verdict: Result<String, ActError>,
}

impl ActResult {
    fn to_json(&self) -> Value {
        let (good, said) = match &self.verdict {
            Ok(said) => (true, said.clone()),
            Err(error) => (false, error.to_string()),
        };
        let micros = u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX);
        json!({ "title": self.act.title, "tool": self.act.tool, "ok": good, "micros": micros, "said": shown(&said, SHOWN) })
    }
}

/// The first line of a text, cut.
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
