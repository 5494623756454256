//! The time until a new version in the plugin folder answers, including the wait for the file to be
//! complete.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::Setting;
use crate::sandbox::{ECHO, Sandbox};
use crate::table::{Row, Target, Unit};

const ROUNDS: usize = 7;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let (sandbox, folder) =
        Sandbox::with_folder(&setting.repository, &setting.scratch.join("swap"))?;
    let component = setting.repository.join("target/plugins/bench.wasm");
    let component = std::fs::read(&component)
        .map_err(|error| format!("can't read {}: {error}", component.display()))?;
    // Versions that no earlier run has compiled.
    let unique = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let version = |number: usize| with_mark(&component, format!("{unique}-{number}").as_bytes());

    let mut compiled = Vec::with_capacity(ROUNDS);
    for number in 0..=ROUNDS {
        compiled.push(swap(&sandbox, &folder, &version(number))?);
    }
    // The first is no swap.
    compiled.remove(0);
    let mut cached = Vec::with_capacity(ROUNDS);
    for number in 0..ROUNDS {
        cached.push(swap(&sandbox, &folder, &version(number))?);
    }
    let row = |what: &str, times: Vec<Duration>| Row {
        name: "swap",
        what: format!("a new version in the plugin folder answers, {what}, p50"),
        samples: times.iter().map(|time| time.as_secs_f64() * 1e3).collect(),
        unit: Unit::Milliseconds,
        target: Target::Lower,
        ours: String::new(),
        rival: String::new(),
    };
    Ok(vec![row("compiled", compiled), row("compiled before", cached)])
}

/// From the time at which the file is in place to the first answer of the new version.
fn swap(sandbox: &Sandbox, folder: &Path, component: &[u8]) -> Result<Duration, String> {
    let (aside, file) = (folder.with_extension("aside"), folder.join("bench.wasm"));
    let failed = |error: std::io::Error| format!("can't write {}: {error}", file.display());
    std::fs::write(&aside, component).map_err(failed)?;
    let before = sandbox.generation("bench");
    std::fs::rename(&aside, &file).map_err(failed)?;
    let start = Instant::now();
    sandbox.wait_until("the new version serves", || sandbox.generation("bench") > before)?;
    sandbox.call_and_wait(ECHO, json!({ "text": "hello" }))?;
    Ok(start.elapsed())
}

/// The component with an additional custom section, which makes it another version and changes
/// nothing else.
fn with_mark(component: &[u8], mark: &[u8]) -> Vec<u8> {
    let name = b"mark";
    let size = u8::try_from(1 + name.len() + mark.len()).unwrap_or(0x7f).min(0x7f);
    let mut marked = component.to_vec();
    marked.extend([0, size, 4]);
    marked.extend(name);
    marked.extend(&mark[..usize::from(size) - 1 - name.len()]);
    marked
}

#[cfg(test)]
mod tests {
    use super::with_mark;

    #[test]
    fn a_mark_is_a_custom_section() {
        assert_eq!(with_mark(b"component", b"7"), b"component\0\x06\x04mark7");
    }
}
